// SPDX-License-Identifier: Apache-2.0
// A table from block ids to a number: which slot holds a block, which blocks lie on disk. Owner:
// the store's thread. Lookups and removals never allocate; insertion does only when the table must
// grow. Never: knows what the number means.
#ifndef KVTIER_KVSTORED_BLOCK_INDEX_H
#define KVTIER_KVSTORED_BLOCK_INDEX_H

#include "proto/block.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { BLOCK_INDEX_MAX = 1 << 28 }; // ids

struct block_index_entry {
    struct block_id id;
    uint32_t value;
    uint32_t used; // 1: holds an id
};

// Embedded by value; fields are the index's own. Zeroed memory is an empty index.
struct block_index {
    struct block_index_entry *entries; // [capacity], open addressing, at most 3/4 full
    uint64_t multiplier;               // random and odd: nobody outside can choose collisions
    uint32_t capacity;                 // a power of two, or 0
    uint32_t count;
};

// An empty index that takes `count` ids without growing. STATUS_NO_MEMORY.
enum status block_index_init(struct block_index *index, uint32_t count) KV_MUST_CHECK;
void block_index_finish(struct block_index *index);

// False, and nothing written, when the id is not there.
bool block_index_find(const struct block_index *index, const struct block_id *id,
                      uint32_t *out_value);
// STATUS_EXISTS changes nothing. STATUS_NO_MEMORY when it had to grow and could not.
enum status block_index_insert(struct block_index *index, const struct block_id *id,
                               uint32_t value) KV_MUST_CHECK;
// False when it was not there.
bool block_index_remove(struct block_index *index, const struct block_id *id);

// The next entry at or after *cursor (start with 0), in no order; NULL at the end. Not across
// insert or remove.
const struct block_index_entry *block_index_next(const struct block_index *index, uint32_t *cursor);

#endif
