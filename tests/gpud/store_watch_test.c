// SPDX-License-Identifier: Apache-2.0
// At stake: a stopped kvstored must not hold up the thread that streams tokens to every app. The
// store here is a function that waits until the test lets it go.
#include "tests/check.h"

#include "gpud/store_watch.h"
#include "proto/os/clock.h"
#include "proto/os/thread.h"

#include <stdatomic.h>

enum { WAIT_MS = 10000 };

struct store {
    atomic_bool blocked;
    atomic_bool fails;
    atomic_int reads;
    atomic_int wakes;
};

static enum status read_store(void *context, struct kv_status *out_state)
{
    struct store *store = context;
    int number = atomic_fetch_add(&store->reads, 1) + 1;
    while (atomic_load(&store->blocked)) {
        os_sleep_ms(1);
    }
    out_state->slot_count = (uint32_t)number;
    return atomic_load(&store->fails) ? STATUS_UNREACHABLE : STATUS_OK;
}

static void count_wake(void *context)
{
    struct store *store = context;
    atomic_fetch_add(&store->wakes, 1);
}

static struct store_watch *start(struct store *store)
{
    struct store_watch *watch = NULL;
    const struct store_watch_options options = {
        .read = read_store, .read_context = store, .wake = count_wake, .wake_context = store};
    CHECK_OK(store_watch_start(&options, &watch, NULL));
    return watch;
}

static void wait_answer(struct store_watch *watch, uint64_t ask, bool *out_known,
                        struct kv_status *out_state)
{
    uint64_t started_ms = os_clock_ms();
    while (!store_watch_answered(watch, ask, out_known, out_state)) {
        assert_true(os_clock_ms() - started_ms < WAIT_MS);
        os_sleep_ms(1);
    }
}

static void wait_count(atomic_int *count, int value)
{
    uint64_t started_ms = os_clock_ms();
    while (atomic_load(count) < value) {
        assert_true(os_clock_ms() - started_ms < WAIT_MS);
        os_sleep_ms(1);
    }
}

static void test_answers(void **state)
{
    (void)state;
    struct store store = {0};
    struct store_watch *watch = start(&store);
    struct kv_status levels = {0};
    bool known = false;
    os_sleep_ms(20);
    assert_int_equal(atomic_load(&store.reads), 0); // nobody asked
    wait_answer(watch, store_watch_ask(watch), &known, &levels);
    assert_true(known);
    assert_int_equal(levels.slot_count, 1);
    wait_answer(watch, store_watch_ask(watch), &known, &levels);
    assert_int_equal(levels.slot_count, 2);
    wait_count(&store.wakes, 2);

    atomic_store(&store.fails, true);
    wait_answer(watch, store_watch_ask(watch), &known, &levels);
    assert_false(known);
    assert_int_equal(levels.slot_count, 2); // not written
    store_watch_stop(watch);
}

// While the store is stuck nothing here waits; an ask made meanwhile is not answered by the read
// that began before it.
static void test_stuck_store(void **state)
{
    (void)state;
    struct store store = {.blocked = true};
    struct store_watch *watch = start(&store);
    struct kv_status levels = {0};
    bool known = false;
    uint64_t started_ms = os_clock_ms();
    uint64_t first = store_watch_ask(watch);
    wait_count(&store.reads, 1);
    uint64_t second = store_watch_ask(watch);
    assert_false(store_watch_answered(watch, first, &known, &levels));
    assert_true(os_clock_ms() - started_ms < WAIT_MS);
    atomic_store(&store.blocked, false);
    wait_answer(watch, first, &known, &levels);
    wait_answer(watch, second, &known, &levels);
    assert_int_equal(levels.slot_count, 2);
    store_watch_stop(watch);
}

static void test_stop_without_asks(void **state)
{
    (void)state;
    struct store store = {0};
    store_watch_stop(start(&store));
    store_watch_stop(NULL);
    assert_int_equal(atomic_load(&store.reads), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_stuck_store),
        cmocka_unit_test(test_stop_without_asks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
