// SPDX-License-Identifier: Apache-2.0
// Hand-over without a lock: one 64-bit word holds how many items the job has and how many are
// taken, so that whoever adds one to `taken` owns that item, and can only do so while the job
// lives: the owner replaces the job only after `done` has reached its item count. Hence an item's
// taker may read the job's fields without further protection, and a worker that slept through a job
// is never waited for. The mutex guards only going to sleep (rank: none is taken inside).

#include "gpud/kernels/cpu/thread_pool.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

enum { SPIN_NS = 50000, SPIN_CLOCK_STEPS = 64 };

struct worker {
    struct thread_pool *pool;
    uint32_t thread;
    pthread_t handle;
};

struct thread_pool {
    _Alignas(64) _Atomic uint64_t word; // item count << 32 | items taken
    _Alignas(64) _Atomic uint32_t done; // items finished
    thread_pool_work *work;
    void *context;
    _Alignas(64) _Atomic uint32_t sleepers;
    _Atomic bool stopping;
    pthread_mutex_t mutex; // guards the step from "no work" to waiting on `wake`
    pthread_cond_t wake;
    uint32_t thread_count;
    struct worker *workers; // [thread_count - 1]
};

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    sched_yield();
#endif
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool word_has_work(uint64_t word)
{
    return (uint32_t)word < (uint32_t)(word >> 32);
}

// Takes and runs items until none is left.
static void drain(struct thread_pool *pool, uint32_t thread)
{
    uint64_t word = atomic_load_explicit(&pool->word, memory_order_acquire);
    while (word_has_work(word)) {
        // Acquire: the job's fields were written before its word was published.
        if (atomic_compare_exchange_weak_explicit(&pool->word, &word, word + 1,
                                                  memory_order_acq_rel, memory_order_acquire)) {
            pool->work(pool->context, (uint32_t)word, thread);
            // Release: the item's results are visible to the owner that sees the count.
            atomic_fetch_add_explicit(&pool->done, 1, memory_order_release);
            word = atomic_load_explicit(&pool->word, memory_order_acquire);
        }
    }
}

static bool stirred(struct thread_pool *pool)
{
    return word_has_work(atomic_load_explicit(&pool->word, memory_order_acquire)) ||
           atomic_load_explicit(&pool->stopping, memory_order_acquire);
}

// Waits by spinning; false when SPIN_NS passed without work.
static bool spin(struct thread_pool *pool)
{
    uint64_t end_ns = now_ns() + SPIN_NS;
    do {
        for (int i = 0; i < SPIN_CLOCK_STEPS; i++) {
            if (stirred(pool)) {
                return true;
            }
            pause_cpu();
        }
    } while (now_ns() < end_ns);
    return false;
}

static void sleep_until_stirred(struct thread_pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    // Sequentially consistent against publish(): either it sees us counted, or we see its word.
    atomic_fetch_add(&pool->sleepers, 1);
    while (!word_has_work(atomic_load(&pool->word)) && !atomic_load(&pool->stopping)) {
        pthread_cond_wait(&pool->wake, &pool->mutex);
    }
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->mutex);
}

static void wake_sleepers(struct thread_pool *pool)
{
    if (atomic_load(&pool->sleepers) != 0) {
        pthread_mutex_lock(&pool->mutex);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->mutex);
    }
}

static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    struct thread_pool *pool = worker->pool;
    while (!atomic_load_explicit(&pool->stopping, memory_order_acquire)) {
        if (!spin(pool)) {
            sleep_until_stirred(pool);
        }
        drain(pool, worker->thread);
    }
    return NULL;
}

static void stop_workers(struct thread_pool *pool, uint32_t count)
{
    atomic_store(&pool->stopping, true);
    wake_sleepers(pool);
    for (uint32_t i = 0; i < count; i++) {
        pthread_join(pool->workers[i].handle, NULL);
    }
}

static enum status start_workers(struct thread_pool *pool)
{
    for (uint32_t i = 0; i + 1 < pool->thread_count; i++) {
        pool->workers[i] = (struct worker){.pool = pool, .thread = i + 1};
        if (pthread_create(&pool->workers[i].handle, NULL, worker_main, &pool->workers[i]) != 0) {
            stop_workers(pool, i);
            return STATUS_NO_MEMORY;
        }
    }
    return STATUS_OK;
}

static void pool_free(struct thread_pool *pool)
{
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->mutex);
    free(pool->workers);
    free(pool);
}

enum status thread_pool_create(uint32_t thread_count, struct thread_pool **out_pool)
{
    assert(thread_count >= 1);
    struct thread_pool *pool = aligned_alloc(64, sizeof(*pool));
    if (pool == NULL) {
        return STATUS_NO_MEMORY;
    }
    *pool = (struct thread_pool){.thread_count = thread_count};
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pool->workers = calloc(thread_count, sizeof(*pool->workers));
    enum status status = pool->workers != NULL ? start_workers(pool) : STATUS_NO_MEMORY;
    if (status != STATUS_OK) {
        pool_free(pool);
        return status;
    }
    *out_pool = pool;
    return STATUS_OK;
}

void thread_pool_destroy(struct thread_pool *pool)
{
    if (pool == NULL) {
        return;
    }
    stop_workers(pool, pool->thread_count - 1);
    pool_free(pool);
}

uint32_t thread_pool_thread_count(const struct thread_pool *pool)
{
    return pool->thread_count;
}

void thread_pool_run(struct thread_pool *pool, thread_pool_work *work, void *context,
                     uint32_t item_count)
{
    if (pool->thread_count == 1 || item_count <= 1) {
        for (uint32_t item = 0; item < item_count; item++) {
            work(context, item, 0);
        }
        return;
    }
    pool->work = work;
    pool->context = context;
    atomic_store_explicit(&pool->done, 0, memory_order_relaxed); // ordered by the word's store
    atomic_store(&pool->word, (uint64_t)item_count << 32);
    wake_sleepers(pool);
    drain(pool, 0);
    uint64_t end_ns = now_ns() + SPIN_NS;
    // Others finish what they took. After a while give the CPU away: they may wait for it.
    for (uint32_t i = 1; atomic_load_explicit(&pool->done, memory_order_acquire) != item_count;
         i++) {
        pause_cpu();
        if (i % SPIN_CLOCK_STEPS == 0 && now_ns() >= end_ns) {
            sched_yield();
        }
    }
}
