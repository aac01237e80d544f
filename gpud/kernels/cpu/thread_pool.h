// SPDX-License-Identifier: Apache-2.0
// A fixed team of threads that works through the items of one job at a time. Owns its threads. One
// owner thread (which is worker 0) calls every function. Made for jobs of microseconds: items are
// taken by an atomic counter, workers spin up to 50 us for the next job before they sleep, and a
// job ends when its items are done, without waiting for workers that took none. Never: allocates
// after creation, pins threads.
#ifndef KVTIER_GPUD_KERNELS_CPU_THREAD_POOL_H
#define KVTIER_GPUD_KERNELS_CPU_THREAD_POOL_H

#include "proto/status.h"

#include <stdint.h>

struct thread_pool;

// One item of a job, run by thread `thread` (0..thread_count-1, for scratch memory).
typedef void thread_pool_work(void *context, uint32_t item, uint32_t thread);

// Starts thread_count - 1 threads (thread_count >= 1). STATUS_NO_MEMORY when they cannot be had.
enum status thread_pool_create(uint32_t thread_count, struct thread_pool **out_pool) KV_MUST_CHECK;
// Ends and joins the threads; NULL is fine.
void thread_pool_destroy(struct thread_pool *pool);

uint32_t thread_pool_thread_count(const struct thread_pool *pool);

// Runs items 0..item_count-1 in any order on any thread and returns when all are done. What was
// written before the call is visible to every item, what items wrote is visible after it.
void thread_pool_run(struct thread_pool *pool, thread_pool_work *work, void *context,
                     uint32_t item_count);

#endif
