// SPDX-License-Identifier: Apache-2.0
// The blocks of one sequence: how far each is computed, and the address of its payload in each
// group. Owns its arrays, taken at init and never grown. Pure bookkeeping; owner: the engine
// thread. Never: owns payloads, knows tiers, decides placement.
//
//     EMPTY --place--> OPEN --write until full, close--> CLOSED
//       \______________________adopt (cached)_____________/
//
// Positions of an OPEN block are written from its first one on without gaps.
#ifndef KVTIER_GPUD_BLOCK_TABLE_H
#define KVTIER_GPUD_BLOCK_TABLE_H

#include "proto/block.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stdint.h>

enum block_stage {
    BLOCK_STAGE_EMPTY = 0, // nothing computed, no memory
    BLOCK_STAGE_OPEN,      // has memory; positions below written_count are computed
    BLOCK_STAGE_CLOSED,    // complete and immutable
};

struct block_entry {
    enum block_stage stage;
    uint32_t written_count; // positions computed, = block_tokens when CLOSED
};

struct block_table {
    uint32_t block_tokens;
    uint32_t block_count; // blocks it can hold
    uint32_t group_count;
    uint32_t closed_count;
    struct block_entry *entries;      // [block_count]
    void **payloads[BLOCK_GROUP_MAX]; // [group_count][block_count]
};

// A table of EMPTY blocks. STATUS_NO_MEMORY leaves `table` zeroed.
enum status block_table_init(struct block_table *table, uint32_t block_tokens, uint32_t block_count,
                             uint32_t group_count) KV_MUST_CHECK;
void block_table_finish(struct block_table *table); // zeroed memory is fine

// Gives a block's payload of a group its address; an EMPTY block becomes OPEN.
void block_table_place(struct block_table *table, uint32_t group, uint32_t block_index,
                       void *payload);
// Makes an EMPTY block CLOSED: its KV was found in a cache.
void block_table_adopt(struct block_table *table, uint32_t block_index);
// Notes that `count` positions from `first` on, all of one OPEN block and the next ones in it, were
// computed; returns whether the block is full now.
bool block_table_write(struct block_table *table, uint32_t first, uint32_t count);
// Makes a full OPEN block CLOSED.
void block_table_close(struct block_table *table, uint32_t block_index);
// Makes an OPEN block without computed positions EMPTY again.
void block_table_clear(struct block_table *table, uint32_t block_index);

// The first run of positions without KV below `token_count`, at most token_count_max of them; a run
// ends at the next CLOSED block. *out_count = 0 when there is none.
void block_table_next_range(const struct block_table *table, uint32_t token_count,
                            uint32_t token_count_max, uint32_t *out_first, uint32_t *out_count);

#endif
