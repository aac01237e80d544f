// SPDX-License-Identifier: Apache-2.0
// The mover: a thread that publishes closed blocks, so that the engine never waits for a peer.
// Blocks leave in the order they were queued; blocks of one lease that wait together go in one
// message. Any thread queues. An arena stays alive until the flush after its last block: the caller
// sees to it. Never: retries (a block that is not published is a later miss, counted).
#ifndef KVTIER_GPUD_MOVER_H
#define KVTIER_GPUD_MOVER_H

#include "gpud/cold_arena.h"
#include "proto/status.h"

#include <stdint.h>

struct mover;

// Starts the thread. STATUS_NO_MEMORY.
enum status mover_start(struct mover **out_mover) KV_MUST_CHECK;
// Publishes what is queued, then ends the thread. NULL is fine.
void mover_stop(struct mover *mover);

// Queues a READY block of a lease. Never blocks.
void mover_publish(struct mover *mover, struct cold_arena *arena, uint64_t lease_id,
                   uint32_t block_index);
// Waits until everything queued before is published, or has failed to be.
void mover_flush(struct mover *mover);
// Blocks that were not published.
uint64_t mover_failed_count(const struct mover *mover);

#endif
