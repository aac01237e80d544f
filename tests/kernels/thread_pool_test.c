// SPDX-License-Identifier: Apache-2.0
// At stake: an item run twice, lost, or seen before its inputs were written corrupts results
// silently, and a lost wake-up hangs a daemon. Many short jobs are run with and without pauses (so
// that workers are caught spinning, going to sleep and asleep); under TSan the plain writes of
// items prove the ordering.

#include "gpud/kernels/cpu/thread_pool.h"
#include "tests/check.h"

enum { ITEMS_MAX = 300 };

struct job {
    uint32_t input;
    uint32_t hits[ITEMS_MAX]; // plain, not atomic: one item, one writer
    uint32_t threads_seen[8];
};

static void work(void *context, uint32_t item, uint32_t thread)
{
    struct job *job = context;
    job->hits[item] += job->input;
    job->threads_seen[thread]++; // owned by its thread
}

static void run_jobs(uint32_t threads, int jobs, uint64_t *state)
{
    struct thread_pool *pool = NULL;
    CHECK_OK(thread_pool_create(threads, &pool));
    assert_int_equal(thread_pool_thread_count(pool), threads);
    struct job job = {0};
    uint32_t total = 0;
    for (int i = 0; i < jobs; i++) {
        uint32_t items = (uint32_t)(check_random(state) % (ITEMS_MAX + 1));
        memset(job.hits, 0, sizeof(job.hits));
        job.input = (uint32_t)i + 1;
        thread_pool_run(pool, work, &job, items);
        for (uint32_t item = 0; item < ITEMS_MAX; item++) {
            assert_int_equal(job.hits[item], item < items ? job.input : 0);
        }
        total += items;
        if (i % 97 == 0) {
            usleep((useconds_t)(check_random(state) % 120)); // about the time workers spin
        }
    }
    thread_pool_destroy(pool);
    for (uint32_t t = 0; t < threads; t++) {
        total -= job.threads_seen[t];
    }
    assert_int_equal(total, 0);
}

static void test_every_item_once(void **unused)
{
    (void)unused;
    uint64_t state = check_seed();
    for (uint32_t threads = 1; threads <= 5; threads++) {
        run_jobs(threads, 2000, &state);
    }
}

static void test_ends_while_workers_sleep_or_spin(void **unused)
{
    (void)unused;
    for (int i = 0; i < 50; i++) {
        struct thread_pool *pool = NULL;
        CHECK_OK(thread_pool_create(4, &pool));
        usleep((useconds_t)i * 4);
        thread_pool_destroy(pool);
    }
    thread_pool_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_item_once),
        cmocka_unit_test(test_ends_while_workers_sleep_or_spin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
