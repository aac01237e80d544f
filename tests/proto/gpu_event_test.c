// SPDX-License-Identifier: Apache-2.0
// At stake: what gpud says must arrive as it was said, and nothing it (or another program on its
// socket) says may crash an app. Every event goes there and back; every cut and many random damages
// of good frames must give an answer; names that files and users chose may hold any bytes.
#include "proto/codec.h"
#include "tests/proto/gpu_frames.h"

enum { DAMAGES = 20000 };

static struct kv_session_info session_row = {.name = "chat",
                                             .salt_bytes = 8,
                                             .token_count = 100,
                                             .block_count = 3,
                                             .ram_block_count = 2,
                                             .disk_block_count = 1,
                                             .payload_bytes = 4096,
                                             .created_ms = 1,
                                             .updated_ms = 2,
                                             .keep = true};

static void fill_event(struct gpu_event *event, struct gpu_status *status)
{
    static const float logits[] = {1.5f, -2.25f, 0.0f};
    event->hello = (struct gpu_hello){1, 42, text_of("0.1"), text_of("m\xff"), 8192, 49152, 32};
    event->start = (struct gpu_hits){.prompt_tokens = 10,
                                     .hot_tokens = 1,
                                     .ram_tokens = 2,
                                     .disk_tokens = 3,
                                     .computed_tokens = 4};
    event->progress_done = 5;
    event->progress_total = 6;
    event->token = (struct gpu_token){.id = 9,
                                      .text = text_of("\xe2\x82\xac"),
                                      .has_logits_hash = true,
                                      .logits_hash = UINT64_MAX};
    event->ids = gpu_ids_of(some_ids, 3);
    event->vocab_tokens = 49152;
    event->score = (struct gpu_score_row){.position = 3,
                                          .id = 4,
                                          .lse = 12.5,
                                          .top_ids = gpu_ids_of(some_ids, 3),
                                          .top_logits = (const uint8_t *)logits,
                                          .has_next = true,
                                          .next_logprob = -0.5};
    event->sessions = (struct kv_session_list){.count = 1, .rows = &session_row};
    event->saved = (struct kv_checkpoint_reply){
        .block_count = 3, .durable_block_count = 2, .written_bytes = 1};
    event->text = text_of("text");
    strcpy(status->model_name, "model");
    strcpy(status->fingerprint, "00ff");
    status->anonymous_bytes = UINT64_MAX;
    status->decode_tokens_per_s = 0.1;
    status->store_attached = status->has_store = true;
    status->store.slot_count = 77;
    strcpy(status->store.persistence_state, "ok");
    event->status = status;
    event->done = (struct gpu_done){.finish_reason = text_of("stop"),
                                    .completion_tokens = 2,
                                    .ttft_ms = 1.5,
                                    .prefill_ms = 1.25,
                                    .decode_ms = 0.5,
                                    .session = text_of("chat")};
    event->error = STATUS_REFUSED;
    strcpy(event->reason.text, "why");
    strcpy(event->reason.hint, "what");
}

static void status_equal(const struct gpu_status *got)
{
    assert_string_equal(got->model_name, "model");
    assert_string_equal(got->fingerprint, "00ff");
    assert_true(got->anonymous_bytes == UINT64_MAX && got->decode_tokens_per_s == 0.1);
    assert_true(got->store_attached && got->has_store);
    assert_int_equal(got->store.slot_count, 77);
    assert_string_equal(got->store.persistence_state, "ok");
}

static void score_equal(const struct gpu_score_row *got)
{
    assert_int_equal(got->position, 3);
    assert_int_equal(got->id, 4);
    assert_true(got->lse == 12.5 && got->has_next && got->next_logprob == -0.5);
    assert_false(got->has_logits_hash);
    assert_int_equal(got->top_ids.count, 3);
    assert_int_equal(gpu_ids_get(got->top_ids, 1), 7);
    assert_true(gpu_score_logit(got, 1) == -2.25f);
}

static void sessions_equal(const struct kv_session_list *got)
{
    assert_int_equal(got->count, 1);
    assert_string_equal(got->rows[0].name, "chat");
    assert_int_equal(got->rows[0].token_count, 100);
    assert_true(got->rows[0].keep);
}

static void event_equal(const struct gpu_event *got)
{
    switch (got->kind) {
    case GPU_EVENT_HELLO:
        assert_true(got->hello.epoch == 42);
        text_equal(got->hello.model_name, "m\xff");
        assert_int_equal(got->hello.context_tokens, 8192);
        break;
    case GPU_EVENT_START:
        assert_int_equal(got->start.prompt_tokens, 10);
        assert_int_equal(got->start.hot_tokens, 1);
        assert_int_equal(got->start.ram_tokens, 2);
        assert_int_equal(got->start.disk_tokens, 3);
        assert_int_equal(got->start.computed_tokens, 4);
        break;
    case GPU_EVENT_PROGRESS:
        assert_int_equal(got->progress_done, 5);
        assert_int_equal(got->progress_total, 6);
        break;
    case GPU_EVENT_TOKEN:
        assert_int_equal(got->token.id, 9);
        text_equal(got->token.text, "\xe2\x82\xac");
        assert_true(got->token.has_logits_hash && got->token.logits_hash == UINT64_MAX);
        break;
    case GPU_EVENT_IDS:
        assert_int_equal(got->ids.count, 3);
        assert_int_equal(got->vocab_tokens, 49152);
        break;
    case GPU_EVENT_SCORE:
        score_equal(&got->score);
        break;
    case GPU_EVENT_SESSIONS:
        sessions_equal(&got->sessions);
        break;
    case GPU_EVENT_SAVED:
        assert_int_equal(got->saved.durable_block_count, 2);
        break;
    case GPU_EVENT_TEXT:
        text_equal(got->text, "text");
        break;
    case GPU_EVENT_STATUS:
        status_equal(got->status);
        break;
    case GPU_EVENT_DONE:
        text_equal(got->done.finish_reason, "stop");
        text_equal(got->done.session, "chat");
        assert_true(got->done.ttft_ms == 1.5 && got->done.decode_ms == 0.5);
        break;
    case GPU_EVENT_ERROR:
        assert_int_equal(got->error, STATUS_REFUSED);
        assert_string_equal(got->reason.text, "why");
        assert_string_equal(got->reason.hint, "what");
        break;
    case GPU_EVENT_COUNT:
        fail();
    }
}

static struct frame event_frame(enum gpu_event_kind kind)
{
    static struct gpu_status status;
    struct gpu_event event = {.kind = kind};
    struct frame frame;
    memset(&status, 0, sizeof(status));
    fill_event(&event, &status);
    CHECK_OK(gpu_event_encode(&event, &frame.data, &frame.bytes));
    return frame;
}

static void test_events(void **state)
{
    (void)state;
    for (int kind = 0; kind < GPU_EVENT_COUNT; kind++) {
        struct frame frame = event_frame((enum gpu_event_kind)kind);
        struct gpu_event got;
        CHECK_OK(gpu_event_decode(frame.data, frame.bytes, &got, NULL));
        assert_int_equal(got.kind, kind);
        event_equal(&got);
        gpu_event_finish(&got);
        free(frame.data);
    }
}

// Reasons hold names that users and files chose: any bytes, cut anywhere.
static void test_any_bytes_in_reasons(void **state)
{
    (void)state;
    struct gpu_status status = {.architecture = "\xc3"};
    struct gpu_event event = {.kind = GPU_EVENT_ERROR, .error = STATUS_INVALID};
    struct gpu_event got;
    struct frame frame;
    snprintf(event.reason.text, sizeof(event.reason.text), "name \xff\xc3: is not UTF-8");
    snprintf(event.reason.hint, sizeof(event.reason.hint), "\xe2\x82");
    CHECK_OK(gpu_event_encode(&event, &frame.data, &frame.bytes));
    CHECK_OK(gpu_event_decode(frame.data, frame.bytes, &got, NULL));
    assert_int_equal(got.error, STATUS_INVALID);
    assert_non_null(strstr(got.reason.text, "is not UTF-8"));
    free(frame.data);

    event = (struct gpu_event){.kind = GPU_EVENT_STATUS, .status = &status};
    memset(status.model_name, 0xff, sizeof(status.model_name) - 1);
    CHECK_OK(gpu_event_encode(&event, &frame.data, &frame.bytes));
    CHECK_OK(gpu_event_decode(frame.data, frame.bytes, &got, NULL));
    gpu_event_finish(&got);
    free(frame.data);
}

static void test_unknown(void **state)
{
    (void)state;
    struct codec_writer writer;
    const uint8_t *data;
    size_t bytes;
    struct gpu_event event;
    struct reason reason = {0};
    codec_writer_init(&writer, 1 << 20);
    codec_put_text(&writer, "event", "flown");
    CHECK_OK(codec_writer_finish(&writer, &data, &bytes));
    assert_int_equal(gpu_event_decode(data, bytes, &event, &reason), STATUS_UNSUPPORTED);
    assert_non_null(strstr(reason.text, "flown"));
    codec_writer_free(&writer);
}

// An error that says all is well would be taken for success.
static void test_error_without_error(void **state)
{
    (void)state;
    struct gpu_event event = {.kind = GPU_EVENT_ERROR, .error = STATUS_OK};
    struct gpu_event got;
    struct frame frame;
    CHECK_OK(gpu_event_encode(&event, &frame.data, &frame.bytes));
    assert_int_equal(gpu_event_decode(frame.data, frame.bytes, &got, NULL), STATUS_INVALID);
    free(frame.data);
}

static void test_hostile(void **state)
{
    (void)state;
    uint64_t random = check_seed();
    for (int kind = 0; kind < GPU_EVENT_COUNT; kind++) {
        struct frame frame = event_frame((enum gpu_event_kind)kind);
        cut(&frame);
        damage(&frame, &random, DAMAGES / GPU_EVENT_COUNT);
        free(frame.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events),  cmocka_unit_test(test_any_bytes_in_reasons),
        cmocka_unit_test(test_unknown), cmocka_unit_test(test_error_without_error),
        cmocka_unit_test(test_hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
