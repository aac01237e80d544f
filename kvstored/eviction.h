// SPDX-License-Identifier: Apache-2.0
// Which cached block goes first when a slot is needed: the least recently used of those that
// nothing holds. Holds slot numbers only: a slot is in the list exactly while its block may be
// evicted. Storage is taken once. Owner: the store's thread. Never: frees a slot, knows why one may
// not be evicted.
#ifndef KVTIER_KVSTORED_EVICTION_H
#define KVTIER_KVSTORED_EVICTION_H

#include "proto/status.h"

#include <stdbool.h>
#include <stdint.h>

struct eviction_link {
    uint32_t newer, older; // slots, or EVICTION_NONE at the ends
    bool listed;
};

#define EVICTION_NONE UINT32_MAX

// Embedded by value; fields are the list's own.
struct eviction {
    struct eviction_link *links; // [slot_count]
    uint32_t slot_count;
    uint32_t newest, oldest;
    uint32_t count;
};

// An empty list for slots below `slot_count`. STATUS_NO_MEMORY.
enum status eviction_init(struct eviction *eviction, uint32_t slot_count) KV_MUST_CHECK;
void eviction_finish(struct eviction *eviction); // zeroed memory is fine

// The slot becomes the newest that may be evicted; it moves when it is listed already. To have the
// end of a chain evicted before its start, touch it first.
void eviction_touch(struct eviction *eviction, uint32_t slot);
// The slot may not be evicted now. Fine when it is not listed.
void eviction_remove(struct eviction *eviction, uint32_t slot);
bool eviction_listed(const struct eviction *eviction, uint32_t slot);
// The slot to evict next, EVICTION_NONE when there is none. It stays listed.
uint32_t eviction_victim(const struct eviction *eviction);

#endif
