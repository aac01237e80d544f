// SPDX-License-Identifier: Apache-2.0
// The thread that reads blocks from disk into slots of the arena and verifies them there. Between
// submit and its result the slot belongs to the thread. Bounded queues on both sides. Owner: the
// store's thread.
#ifndef KVTIER_KVSTORED_LOADER_H
#define KVTIER_KVSTORED_LOADER_H

#include "kvstored/bell.h"
#include "kvstored/disk.h"

#include <stdbool.h>
#include <stdint.h>

struct loader;

struct loader_block {
    uint32_t slot;
    struct block_id id;
    struct block_header *header; // in the arena: written by the thread
    void *payload;
};

// STATUS_OK: header and payload are whole and are the block of that id. STATUS_NOT_FOUND;
// STATUS_DAMAGED: what is on disk is not that block; STATUS_CANCELLED: the loader stops; else the
// disk's. What the slot holds after a failure means nothing.
struct loader_result {
    uint32_t slot;
    enum status status;
};

// `slot_count`: most blocks that are submitted at a time. The disk and the bell outlive the thread.
enum status loader_start(struct disk *disk, struct bell *bell, uint32_t slot_count,
                         struct loader **out_loader) KV_MUST_CHECK;
// Answers what is left with STATUS_CANCELLED and ends the thread. Results can still be taken until
// destroy.
void loader_stop(struct loader *loader);
void loader_destroy(struct loader *loader); // stopped; NULL is fine

// A block to load; false from next_result when no result waits. Neither blocks.
void loader_submit(struct loader *loader, const struct loader_block *block);
bool loader_next_result(struct loader *loader, struct loader_result *out_result);

#endif
