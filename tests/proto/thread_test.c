// SPDX-License-Identifier: Apache-2.0
// At stake: locks exclude, waits end at their deadline or signal, and the signals of a daemon do
// not land on its worker threads.
#include "tests/check.h"

#include "proto/os/clock.h"
#include "proto/os/thread.h"

#include <pthread.h>
#include <signal.h>

struct shared {
    struct os_mutex mutex;
    struct os_condition changed;
    int count; // guarded by mutex
};

static void add(void *argument)
{
    struct shared *shared = argument;
    for (int i = 0; i < 50000; i++) {
        os_mutex_lock(&shared->mutex);
        shared->count++;
        os_mutex_unlock(&shared->mutex);
    }
    os_thread_yield();
}

static void a_mutex_excludes(void **state)
{
    (void)state;
    struct shared shared = {.count = 0};
    struct os_thread *threads[4];
    os_mutex_init(&shared.mutex);
    for (int i = 0; i < 4; i++) {
        CHECK_OK(os_thread_start("a name longer than fifteen", add, &shared, &threads[i]));
    }
    for (int i = 0; i < 4; i++) {
        os_thread_join(threads[i]);
    }
    assert_int_equal(shared.count, 200000);
    os_mutex_finish(&shared.mutex);
    os_thread_join(NULL);
}

static void signal_soon(void *argument)
{
    struct shared *shared = argument;
    os_sleep_ms(50);
    os_mutex_lock(&shared->mutex);
    shared->count = 1;
    os_condition_broadcast(&shared->changed);
    os_mutex_unlock(&shared->mutex);
}

static void a_wait_ends_by_signal_or_deadline(void **state)
{
    (void)state;
    struct shared shared = {.count = 0};
    struct os_thread *thread;
    os_mutex_init(&shared.mutex);
    os_condition_init(&shared.changed);
    os_mutex_lock(&shared.mutex);
    uint64_t begin = os_clock_ms();
    while (os_condition_wait(&shared.changed, &shared.mutex, begin + 50)) {
    }
    assert_in_range(os_clock_ms() - begin, 49, 1000);
    CHECK_OK(os_thread_start("signal", signal_soon, &shared, &thread));
    while (shared.count == 0) {
        assert_true(os_condition_wait(&shared.changed, &shared.mutex, OS_DEADLINE_NEVER));
    }
    os_mutex_unlock(&shared.mutex);
    os_thread_join(thread);
    os_condition_finish(&shared.changed);
    os_mutex_finish(&shared.mutex);
}

static void read_mask(void *argument)
{
    pthread_sigmask(SIG_BLOCK, NULL, argument);
}

static void threads_leave_signals_to_main(void **state)
{
    (void)state;
    sigset_t mask;
    sigset_t ours;
    struct os_thread *thread;
    sigemptyset(&mask);
    CHECK_OK(os_thread_start("mask", read_mask, &mask, &thread));
    os_thread_join(thread);
    pthread_sigmask(SIG_BLOCK, NULL, &ours);
    assert_true(sigismember(&mask, SIGTERM) && sigismember(&mask, SIGINT));
    assert_true(sigismember(&mask, SIGHUP));
    assert_false(sigismember(&ours, SIGTERM)); // the caller's mask is as before
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mutex_excludes),
        cmocka_unit_test(a_wait_ends_by_signal_or_deadline),
        cmocka_unit_test(threads_leave_signals_to_main),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
