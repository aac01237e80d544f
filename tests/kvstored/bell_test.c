// SPDX-License-Identifier: Apache-2.0
// At stake: a ring that is lost leaves an answer lying until the next one. Rings before, during and
// without a wait.
#include "kvstored/bell.h"
#include "proto/os/clock.h"
#include "tests/check.h"

#include <stdatomic.h>

static atomic_int woken;

static void count_wake(void *context)
{
    assert_ptr_equal(context, &woken);
    atomic_fetch_add(&woken, 1);
}

static void ring_later(void *argument)
{
    os_sleep_ms(30);
    bell_ring(argument);
}

static void a_ring_is_never_lost(void **state)
{
    (void)state;
    struct bell bell;
    bell_init(&bell, count_wake, &woken);
    uint64_t before = os_clock_ms();
    bell_wait(&bell, 20); // nobody rings
    assert_true(os_clock_ms() - before >= 19);
    bell_ring(&bell);
    bell_ring(&bell); // is one
    before = os_clock_ms();
    bell_wait(&bell, 5000);
    assert_true(os_clock_ms() - before < 2000);
    bell_wait(&bell, 0); // taken already
    struct os_thread *thread;
    CHECK_OK(os_thread_start("ringer", ring_later, &bell, &thread));
    before = os_clock_ms();
    bell_wait(&bell, 10000);
    assert_true(os_clock_ms() - before < 8000);
    os_thread_join(thread);
    assert_int_equal(atomic_load(&woken), 3);
    bell_finish(&bell);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_ring_is_never_lost)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
