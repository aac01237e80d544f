// SPDX-License-Identifier: Apache-2.0
// At stake: events reach the app once each, in order, whole, however slowly it reads and whenever
// it goes away; ipc is woken when, and only when, it has to be. Played by one thread step by step,
// then by two at once.
#include "gpud/reply.h"

#include "proto/os/thread.h"
#include "tests/check.h"

#include <stdatomic.h>

struct waker {
    atomic_uint count;
    uint64_t tag;
};

static void wake(void *context, uint64_t tag)
{
    struct waker *waker = context;
    waker->tag = tag;
    atomic_fetch_add(&waker->count, 1);
}

static struct reply *make_reply(struct waker *waker, uint32_t items, size_t text_bytes,
                                uint32_t top_count)
{
    struct reply *reply = NULL;
    CHECK_OK(reply_create(wake, waker, 77, &reply));
    const struct reply_capacity capacity = {
        .item_count = items, .text_bytes = text_bytes, .top_count = top_count};
    CHECK_OK(reply_reserve(reply, &capacity));
    return reply;
}

static void put_token(struct reply *reply, uint32_t id, const char *text)
{
    const struct reply_token token = {.id = id,
                                      .text = text,
                                      .text_bytes = (uint32_t)strlen(text),
                                      .logits_hash = id + 1,
                                      .has_logits_hash = true};
    reply_put_token(reply, &token);
}

static void expect_token(struct reply *reply, uint32_t id, const char *text)
{
    struct reply_event event;
    assert_true(reply_pop(reply, &event));
    assert_int_equal(event.kind, REPLY_EVENT_TOKEN);
    assert_int_equal(event.token.id, id);
    assert_int_equal(event.token.logits_hash, id + 1);
    assert_int_equal(event.token.text_bytes, strlen(text));
    assert_memory_equal(event.token.text, text, strlen(text));
}

static void end(struct reply *reply)
{
    const struct reply_done done = {.finish_reason = FINISH_REASON_LENGTH, .session = "s"};
    reply_put_done(reply, &done);
}

static void expect_done(struct reply *reply)
{
    struct reply_event event;
    assert_true(reply_pop(reply, &event));
    assert_int_equal(event.kind, REPLY_EVENT_DONE);
    assert_int_equal(event.done.finish_reason, FINISH_REASON_LENGTH);
    assert_string_equal(event.done.session, "s");
    assert_false(reply_pop(reply, &event));
}

static void events_come_in_order(void **state)
{
    (void)state;
    struct waker waker = {0};
    struct reply *reply = make_reply(&waker, 3, 100, 0);
    put_token(reply, 5, "five");
    put_token(reply, 6, "");
    const struct reply_progress progress = {.done_tokens = 1, .total_tokens = 9};
    const struct reply_progress later = {.done_tokens = 9, .total_tokens = 9};
    reply_put_progress(reply, &progress);
    reply_put_progress(reply, &later); // replaces the other
    const struct reply_start start = {.prompt_tokens = 10, .computed_tokens = 9, .ram_tokens = 1};
    reply_put_start(reply, &start);
    end(reply);
    struct reply_event event;
    assert_true(reply_pop(reply, &event));
    assert_int_equal(event.kind, REPLY_EVENT_START);
    assert_int_equal(event.start.prompt_tokens, 10);
    assert_true(reply_pop(reply, &event));
    assert_int_equal(event.kind, REPLY_EVENT_PROGRESS);
    assert_int_equal(event.progress.done_tokens, 9);
    expect_token(reply, 5, "five");
    expect_token(reply, 6, "");
    expect_done(reply);
    reply_release(reply);
    reply_drop(reply);
}

static void room_counts_what_ipc_still_holds(void **state)
{
    (void)state;
    struct waker waker = {0};
    struct reply *reply = make_reply(&waker, 2, 100, 0);
    put_token(reply, 1, "one");
    put_token(reply, 2, "two");
    assert_int_equal(reply_room(reply), 0);
    struct reply_event event;
    assert_true(reply_pop(reply, &event));
    assert_int_equal(reply_room(reply), 0); // event.token.text must stay
    assert_memory_equal(event.token.text, "one", 3);
    expect_token(reply, 2, "two");
    assert_int_equal(reply_room(reply), 1);
    put_token(reply, 3, "three");
    expect_token(reply, 3, "three");
    assert_false(reply_pop(reply, &event));
    assert_int_equal(reply_room(reply), 2);
    reply_release(reply);
    reply_drop(reply);
}

static void wakes_only_a_sleeper(void **state)
{
    (void)state;
    struct waker waker = {0};
    struct reply *reply = make_reply(&waker, 4, 100, 0);
    put_token(reply, 1, "a");
    put_token(reply, 2, "b");
    assert_int_equal(waker.count, 1);
    assert_int_equal(waker.tag, 77);
    expect_token(reply, 1, "a");
    put_token(reply, 3, "c");
    assert_int_equal(waker.count, 1); // it has not found it empty yet
    expect_token(reply, 2, "b");
    expect_token(reply, 3, "c");
    struct reply_event event;
    assert_false(reply_pop(reply, &event));
    put_token(reply, 4, "d");
    assert_int_equal(waker.count, 2);
    reply_release(reply);
    reply_drop(reply);
}

static void score_rows_carry_their_tops(void **state)
{
    (void)state;
    struct waker waker = {0};
    struct reply *reply = make_reply(&waker, 3, 0, 2);
    for (uint32_t i = 0; i < 10; i++) {
        const uint32_t ids[2] = {i, i + 100};
        const float logits[2] = {(float)i, (float)i - 1};
        const struct reply_score row = {.position = i,
                                        .id = 7 * i,
                                        .lse = i * 0.5,
                                        .top_count = 2,
                                        .top_ids = ids,
                                        .top_logits = logits,
                                        .has_next = i < 9,
                                        .next_logprob = -1.0 * i};
        reply_put_score(reply, &row);
        struct reply_event event;
        assert_true(reply_pop(reply, &event));
        assert_int_equal(event.kind, REPLY_EVENT_SCORE);
        assert_int_equal(event.score.position, i);
        assert_int_equal(event.score.id, 7 * i);
        assert_int_equal(event.score.top_ids[1], i + 100);
        assert_true(event.score.top_logits[1] == (float)i - 1);
        assert_int_equal(event.score.has_next, i < 9);
    }
    reply_release(reply);
    reply_drop(reply);
}

static void results_are_given_and_freed(void **state)
{
    (void)state;
    struct waker waker = {0};
    struct reply *reply = NULL;
    CHECK_OK(reply_create(wake, &waker, 1, &reply));
    uint32_t *ids = malloc(2 * sizeof(*ids));
    ids[0] = 3;
    ids[1] = 4;
    reply_give_ids(reply, ids, 2, 100);
    reply_give_text(reply, strdup("text"), 4);
    reply_give_sessions(reply, calloc(1, sizeof(struct kv_session_info)), 1);
    const struct kv_checkpoint_reply saved = {.block_count = 5};
    reply_put_saved(reply, &saved);
    const struct reason reason = {.text = "it: broke"};
    reply_put_error(reply, STATUS_IO, &reason);
    static const enum reply_event_kind order[] = {REPLY_EVENT_IDS, REPLY_EVENT_SESSIONS,
                                                  REPLY_EVENT_SAVED, REPLY_EVENT_TEXT,
                                                  REPLY_EVENT_ERROR};
    struct reply_event event;
    for (int i = 0; i < 5; i++) {
        assert_true(reply_pop(reply, &event));
        assert_int_equal(event.kind, order[i]);
    }
    assert_int_equal(event.error.status, STATUS_IO);
    assert_string_equal(event.error.reason.text, "it: broke");
    assert_false(reply_pop(reply, &event));
    reply_release(reply);
    reply_drop(reply);
}

static void dropping_cancels_and_silences(void **state)
{
    (void)state;
    struct waker waker = {0};
    struct reply *reply = make_reply(&waker, 4, 100, 0);
    assert_false(reply_cancelled(reply));
    reply_drop(reply);
    assert_true(reply_cancelled(reply));
    put_token(reply, 1, "nobody reads this");
    end(reply);
    assert_int_equal(waker.count, 0);
    reply_release(reply);

    reply = make_reply(&waker, 1, 1, 0);
    reply_cancel(reply);
    assert_true(reply_cancelled(reply));
    end(reply);
    assert_int_equal(waker.count, 1); // its end still comes
    reply_release(reply);
    expect_done(reply);
    reply_drop(reply);
    reply_drop(NULL);
    reply_release(NULL);
}

static void finish_reasons_have_names(void **state)
{
    (void)state;
    assert_string_equal(finish_reason_name(FINISH_REASON_NONE), "");
    assert_string_equal(finish_reason_name(FINISH_REASON_STOP), "stop");
    assert_string_equal(finish_reason_name(FINISH_REASON_LENGTH), "length");
    assert_string_equal(finish_reason_name(FINISH_REASON_CANCELLED), "cancelled");
    assert_string_equal(finish_reason_name(FINISH_REASON_ERROR), "error");
}

// ---- two threads

enum { TOKENS = 20000 };

static size_t token_text(uint32_t id, char *out)
{
    return (size_t)snprintf(out, 16, "%.*s%u", (int)(id % 5), "    ", id);
}

static void put_all(void *argument)
{
    struct reply *reply = argument;
    for (uint32_t id = 0; id < TOKENS; id++) {
        char text[16];
        token_text(id, text);
        put_token(reply, id, text);
    }
    end(reply);
    reply_release(reply);
}

static void two_threads_lose_nothing(void **state)
{
    (void)state;
    struct waker waker = {0};
    struct reply *reply = make_reply(&waker, TOKENS, (size_t)TOKENS * 16, 0);
    struct os_thread *thread = NULL;
    CHECK_OK(os_thread_start("put", put_all, reply, &thread));
    uint32_t next = 0;
    struct reply_event event = {.kind = REPLY_EVENT_START};
    while (event.kind != REPLY_EVENT_DONE) {
        if (!reply_pop(reply, &event)) {
            os_thread_yield();
        } else if (event.kind == REPLY_EVENT_TOKEN) {
            char text[16];
            size_t bytes = token_text(next, text);
            assert_int_equal(event.token.id, next++);
            assert_int_equal(event.token.text_bytes, bytes);
            assert_memory_equal(event.token.text, text, bytes);
        }
    }
    assert_int_equal(next, TOKENS);
    os_thread_join(thread);
    reply_drop(reply);
}

static void reader_may_leave_at_any_time(void **state)
{
    (void)state;
    struct waker waker = {0};
    for (int round = 0; round < 50; round++) {
        struct reply *reply = make_reply(&waker, TOKENS, (size_t)TOKENS * 16, 0);
        struct os_thread *thread = NULL;
        CHECK_OK(os_thread_start("put", put_all, reply, &thread));
        struct reply_event event;
        for (int i = 0; i < 20 * round; i++) {
            (void)reply_pop(reply, &event);
        }
        reply_drop(reply);
        os_thread_join(thread);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_come_in_order),
        cmocka_unit_test(room_counts_what_ipc_still_holds),
        cmocka_unit_test(wakes_only_a_sleeper),
        cmocka_unit_test(score_rows_carry_their_tops),
        cmocka_unit_test(results_are_given_and_freed),
        cmocka_unit_test(dropping_cancels_and_silences),
        cmocka_unit_test(finish_reasons_have_names),
        cmocka_unit_test(two_threads_lose_nothing),
        cmocka_unit_test(reader_may_leave_at_any_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
