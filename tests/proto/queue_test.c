// SPDX-License-Identifier: Apache-2.0
// At stake: data moves between threads through this: nothing is lost or reordered, full means full,
// and closing wakes everybody. Several threads push while one pops; timeouts are measured.
#include "tests/check.h"

#include "proto/os/clock.h"
#include "proto/os/queue.h"

enum { ITEMS = 20000, PRODUCERS = 2 };

struct item {
    uint32_t producer;
    uint32_t number;
};

struct producer {
    struct os_queue *queue;
    uint32_t index;
};

static void produce(void *argument)
{
    struct producer *producer = argument;
    for (uint32_t i = 0; i < ITEMS; i++) {
        struct item item = {producer->index, i};
        CHECK_OK(os_queue_push(producer->queue, &item));
    }
}

static void queue_keeps_order_over_threads(void **state)
{
    (void)state;
    struct os_queue queue;
    CHECK_OK(os_queue_init(&queue, sizeof(struct item), 7));
    struct producer producers[PRODUCERS];
    struct os_thread *threads[PRODUCERS];
    for (uint32_t i = 0; i < PRODUCERS; i++) {
        producers[i] = (struct producer){&queue, i};
        CHECK_OK(os_thread_start("produce", produce, &producers[i], &threads[i]));
    }
    uint32_t next[PRODUCERS] = {0};
    for (uint32_t i = 0; i < PRODUCERS * ITEMS; i++) {
        struct item item;
        CHECK_OK(os_queue_pop(&queue, &item, 5000));
        assert_int_equal(item.number, next[item.producer]++);
    }
    for (uint32_t i = 0; i < PRODUCERS; i++) {
        os_thread_join(threads[i]);
    }
    assert_int_equal(os_queue_count(&queue), 0);
    os_queue_finish(&queue);
}

static void queue_is_bounded_and_timed(void **state)
{
    (void)state;
    struct os_queue queue;
    int item = 1;
    CHECK_OK(os_queue_init(&queue, sizeof(item), 2));
    CHECK_OK(os_queue_try_push(&queue, &item));
    item = 2;
    CHECK_OK(os_queue_try_push(&queue, &item));
    assert_int_equal(os_queue_try_push(&queue, &item), STATUS_BUSY);
    assert_int_equal(os_queue_count(&queue), 2);
    CHECK_OK(os_queue_pop(&queue, &item, 0));
    assert_int_equal(item, 1);
    os_queue_close(&queue);
    assert_int_equal(os_queue_try_push(&queue, &item), STATUS_CLOSED);
    assert_int_equal(os_queue_push(&queue, &item), STATUS_CLOSED);
    CHECK_OK(os_queue_pop(&queue, &item, 0)); // what was pushed before is handed out
    assert_int_equal(item, 2);
    assert_int_equal(os_queue_pop(&queue, &item, OS_WAIT_FOREVER), STATUS_CLOSED);
    os_queue_finish(&queue);
    CHECK_OK(os_queue_init(&queue, sizeof(item), 2));
    assert_int_equal(os_queue_pop(&queue, &item, 0), STATUS_TIMEOUT);
    uint64_t begin = os_clock_ms();
    assert_int_equal(os_queue_pop(&queue, &item, 50), STATUS_TIMEOUT);
    assert_in_range(os_clock_ms() - begin, 45, 1000);
    os_queue_finish(&queue);
    os_queue_finish(&(struct os_queue){0});
}

static void close_soon(void *argument)
{
    os_sleep_ms(50);
    os_queue_close(argument);
}

static void closing_wakes_who_waits(void **state)
{
    (void)state;
    struct os_queue queue;
    struct os_thread *thread;
    int item = 0;
    CHECK_OK(os_queue_init(&queue, sizeof(item), 1));
    CHECK_OK(os_thread_start("close", close_soon, &queue, &thread));
    assert_int_equal(os_queue_pop(&queue, &item, OS_WAIT_FOREVER), STATUS_CLOSED);
    os_thread_join(thread);
    os_queue_finish(&queue);
    CHECK_OK(os_queue_init(&queue, sizeof(item), 1));
    CHECK_OK(os_queue_push(&queue, &item));
    CHECK_OK(os_thread_start("close", close_soon, &queue, &thread));
    assert_int_equal(os_queue_push(&queue, &item), STATUS_CLOSED);
    os_thread_join(thread);
    os_queue_finish(&queue);
    os_thread_join(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queue_keeps_order_over_threads),
        cmocka_unit_test(queue_is_bounded_and_timed),
        cmocka_unit_test(closing_wakes_who_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
