// SPDX-License-Identifier: Apache-2.0
// One bounded queue and the thread that empties it. A flush is a mark in the queue whose passing is
// waited for.
#include "gpud/mover.h"

#include "proto/kv_message.h"
#include "proto/os/clock.h"
#include "proto/os/queue.h"
#include "proto/os/thread.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

enum {
    // At 1,000 tokens a second 30 blocks close a second, and a peer that hangs is given up within
    // seconds, so this is never full; if it were, the block would stay unpublished.
    QUEUE_CAPACITY = 1 << 15,
    PUBLISH_BATCH = 512, // blocks of one message
};

// A block to publish, or (arena NULL) a mark.
struct move {
    struct cold_arena *arena;
    uint64_t lease_id;
    uint32_t block_index;
    bool *passed; // of a mark: set under `mutex` when everything before it is done
};

struct mover {
    struct os_queue queue; // of struct move
    struct os_thread *thread;
    atomic_uint_fast64_t failed_count; // relaxed: a counter for people
    struct os_mutex mutex;             // guards what `passed` of marks points to; a leaf
    struct os_condition mark_passed;
};

static void count_failed(struct mover *mover, uint32_t count)
{
    atomic_fetch_add_explicit(&mover->failed_count, count, memory_order_relaxed);
}

static void publish_blocks(struct mover *mover, const struct move *first,
                           const uint32_t *block_indexes, uint32_t count)
{
    const struct kv_request request = {
        .op = KV_OP_PUBLISH,
        .publish = {.lease_id = first->lease_id,
                    .block_indexes = block_indexes,
                    .block_count = count},
    };
    struct kv_reply reply;
    if (cold_arena_alive(first->arena) &&
        cold_arena_call(first->arena, &request, &reply, NULL) == STATUS_OK) {
        kv_reply_finish(&reply);
    } else {
        count_failed(mover, count);
    }
}

// Publishes `first` and what follows it for the same lease. True when *next holds a move that does
// not belong to it.
static bool move_batch(struct mover *mover, const struct move *first, struct move *next)
{
    uint32_t block_indexes[PUBLISH_BATCH] = {first->block_index};
    uint32_t count = 1;
    bool other = false;
    while (count < PUBLISH_BATCH && os_queue_pop(&mover->queue, next, 0) == STATUS_OK) {
        other = next->arena != first->arena || next->lease_id != first->lease_id;
        if (other) {
            break;
        }
        block_indexes[count++] = next->block_index;
    }
    publish_blocks(mover, first, block_indexes, count);
    return other;
}

static void pass_mark(struct mover *mover, bool *passed)
{
    os_mutex_lock(&mover->mutex);
    *passed = true;
    os_condition_broadcast(&mover->mark_passed);
    os_mutex_unlock(&mover->mutex);
}

static void mover_main(void *argument)
{
    struct mover *mover = argument;
    struct move move;
    struct move next;
    bool have_next = false;
    while (have_next || os_queue_pop(&mover->queue, &move, OS_WAIT_FOREVER) == STATUS_OK) {
        if (have_next) {
            move = next;
            have_next = false;
        }
        if (move.arena == NULL) {
            pass_mark(mover, move.passed);
        } else {
            have_next = move_batch(mover, &move, &next);
        }
    }
}

enum status mover_start(struct mover **out_mover)
{
    struct mover *mover = calloc(1, sizeof(*mover));
    if (mover == NULL) {
        return STATUS_NO_MEMORY;
    }
    os_mutex_init(&mover->mutex);
    os_condition_init(&mover->mark_passed);
    enum status status = os_queue_init(&mover->queue, sizeof(struct move), QUEUE_CAPACITY);
    if (status == STATUS_OK) {
        status = os_thread_start("mover", mover_main, mover, &mover->thread);
    }
    if (status != STATUS_OK) {
        mover_stop(mover);
        return status;
    }
    *out_mover = mover;
    return STATUS_OK;
}

void mover_stop(struct mover *mover)
{
    if (mover == NULL) {
        return;
    }
    if (mover->thread != NULL) {
        os_queue_close(&mover->queue);
        os_thread_join(mover->thread);
    }
    os_queue_finish(&mover->queue);
    os_condition_finish(&mover->mark_passed);
    os_mutex_finish(&mover->mutex);
    free(mover);
}

void mover_publish(struct mover *mover, struct cold_arena *arena, uint64_t lease_id,
                   uint32_t block_index)
{
    const struct move move = {.arena = arena, .lease_id = lease_id, .block_index = block_index};
    if (os_queue_try_push(&mover->queue, &move) != STATUS_OK) {
        count_failed(mover, 1);
    }
}

void mover_flush(struct mover *mover)
{
    bool passed = false;
    const struct move mark = {.passed = &passed};
    if (os_queue_push(&mover->queue, &mark) != STATUS_OK) {
        return; // stopped: nothing is queued
    }
    os_mutex_lock(&mover->mutex);
    while (!passed) {
        os_condition_wait(&mover->mark_passed, &mover->mutex, OS_DEADLINE_NEVER);
    }
    os_mutex_unlock(&mover->mutex);
}

uint64_t mover_failed_count(const struct mover *mover)
{
    return atomic_load_explicit(&mover->failed_count, memory_order_relaxed);
}
