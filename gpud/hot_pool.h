// SPDX-License-Identifier: Apache-2.0
// The hot tier: slots of one payload each in the device's own memory, the index of the closed
// blocks that have a copy there, and the order in which copies are given up. Every named copy also
// lies in the arena, so giving one up is free. Owner: the engine thread. Never: knows sequences or
// leases, allocates after creation, gives up a slot that is being written.
//
//     FREE --take--> WRITING --name--> RESIDENT (has users) <--acquire/release--> IDLE (no user)
//                       ^                  |                                        |
//                       +------------------+------ take, when none is free ---------+
//
// Slots are taken in this order: free ones; idle copies, least recently used first; resident
// copies, most recently named first. The last rule keeps the hot set of running sequences still:
// exact attention reads every block in each step, so replacing the oldest one (LRU) would replace
// all of them in turn.
#ifndef KVTIER_GPUD_HOT_POOL_H
#define KVTIER_GPUD_HOT_POOL_H

#include "proto/block.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { HOT_SLOT_NONE = UINT32_MAX };

struct hot_pool;

// What hot_pool_take gave up for the slot it returned.
struct hot_victim {
    bool dropped;         // the slot held a copy
    bool resident;        // ... that running sequences use: forget its address
    uint32_t block_index; // position of the block in its sequences (equal ids have equal positions)
};

// As many slots of payload_bytes as hot_bytes holds. STATUS_REFUSED with both numbers when that is
// none.
enum status hot_pool_create(uint64_t hot_bytes, uint64_t payload_bytes, struct hot_pool **out_pool,
                            struct reason *reason) KV_MUST_CHECK;
void hot_pool_destroy(struct hot_pool *pool); // NULL is fine

uint32_t hot_pool_slot_count(const struct hot_pool *pool);
uint32_t hot_pool_used_count(const struct hot_pool *pool);  // not FREE
uint32_t hot_pool_spare_count(const struct hot_pool *pool); // FREE or IDLE

// The slot's memory, payload_bytes long.
void *hot_pool_payload(const struct hot_pool *pool, uint32_t slot);

// A slot for writing, or HOT_SLOT_NONE when all are being written.
uint32_t hot_pool_take(struct hot_pool *pool, struct hot_victim *out_victim);
// Names a WRITING slot, now complete, as the copy of block `id` with one user. Returns the slot to
// use from now on: another one when `id` has a copy already (this one becomes FREE).
uint32_t hot_pool_name(struct hot_pool *pool, uint32_t slot, const struct block_id *id,
                       uint32_t block_index);
// The copy of `id` with one user more, or HOT_SLOT_NONE.
uint32_t hot_pool_acquire(struct hot_pool *pool, const struct block_id *id);
// One user less; a WRITING slot becomes FREE.
void hot_pool_release(struct hot_pool *pool, uint32_t slot);

// Copies of whole payloads from and to the arena.
void hot_pool_load(struct hot_pool *pool, uint32_t slot, const void *payload);
void hot_pool_store(const struct hot_pool *pool, uint32_t slot, void *payload);

#endif
