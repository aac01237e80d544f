// SPDX-License-Identifier: Apache-2.0
// At stake: apps and gpud must mean the same by a frame, and no frame may crash either. Every
// request and event goes there and back; every cut and many random damages of good frames, at the
// end of a mapped page, must give an answer; a request with one thing out of range is refused.
#include "tests/check.h"

#include "proto/codec.h"
#include "proto/gpu_message.h"

enum { DAMAGES = 20000 };

struct frame {
    void *data;
    size_t bytes;
};

static struct gpu_text text_of(const char *text)
{
    return (struct gpu_text){.text = text, .bytes = strlen(text)};
}

static void text_equal(struct gpu_text text, const char *expected)
{
    assert_int_equal(text.bytes, strlen(expected));
    assert_memory_equal(text.text, expected, text.bytes);
}

// ---- requests

static const uint32_t some_ids[] = {0, 7, UINT32_MAX};

static void full_request(struct gpu_request *request, struct gpu_turn *turns)
{
    gpu_request_init(request, GPU_OP_GENERATE);
    turns[0] = (struct gpu_turn){text_of("user"), text_of("h\xc3\xa9")};
    turns[1] = (struct gpu_turn){text_of("assistant"), text_of("")};
    request->prompt = (struct gpu_text){.text = "a\0\xff", .bytes = 3};
    request->ids = gpu_ids_of(some_ids, 3);
    request->turns = turns;
    request->turn_count = 2;
    request->session = text_of("chat");
    request->stop[0] = text_of("\n\n");
    request->stop[1] = text_of("\xc3");
    request->stop_count = 2;
    request->max_tokens = -1;
    request->sampling = (struct gpu_sampling){.temperature = 0.25f,
                                              .top_k = -3,
                                              .top_p = 0.5f,
                                              .min_p = 0.125f,
                                              .repeat_penalty = 1.5f,
                                              .repeat_last_n = -1,
                                              .presence_penalty = -0.5f,
                                              .frequency_penalty = 2.0f,
                                              .has_seed = true,
                                              .seed = UINT64_MAX};
    request->add_special = request->parse_special = request->logits_hash = true;
    request->ignore_eos = request->no_cache = true;
}

static void sampling_equal(const struct gpu_sampling *a, const struct gpu_sampling *b)
{
    assert_true(a->temperature == b->temperature && a->top_p == b->top_p && a->min_p == b->min_p);
    assert_true(a->repeat_penalty == b->repeat_penalty);
    assert_true(a->presence_penalty == b->presence_penalty);
    assert_true(a->frequency_penalty == b->frequency_penalty);
    assert_int_equal(a->top_k, b->top_k);
    assert_int_equal(a->repeat_last_n, b->repeat_last_n);
    assert_int_equal(a->has_seed, b->has_seed);
    assert_true(a->seed == b->seed);
}

static void test_full_request(void **state)
{
    (void)state;
    struct gpu_turn turns[2];
    struct gpu_request request;
    struct gpu_request got;
    struct frame frame;
    full_request(&request, turns);
    CHECK_OK(gpu_request_encode(&request, &frame.data, &frame.bytes));
    CHECK_OK(gpu_request_decode(frame.data, frame.bytes, &got, NULL));
    assert_int_equal(got.op, GPU_OP_GENERATE);
    assert_int_equal(got.prompt.bytes, 3);
    assert_memory_equal(got.prompt.text, "a\0\xff", 3);
    assert_int_equal(got.ids.count, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(gpu_ids_get(got.ids, i), some_ids[i]);
    }
    assert_int_equal(got.turn_count, 2);
    text_equal(got.turns[0].role, "user");
    text_equal(got.turns[0].content, "h\xc3\xa9");
    text_equal(got.turns[1].content, "");
    text_equal(got.session, "chat");
    assert_int_equal(got.stop_count, 2);
    text_equal(got.stop[0], "\n\n");
    text_equal(got.stop[1], "\xc3");
    assert_int_equal(got.max_tokens, -1);
    sampling_equal(&got.sampling, &request.sampling);
    assert_true(got.add_special && got.parse_special && got.logits_hash);
    assert_true(got.ignore_eos && got.no_cache);
    gpu_request_finish(&got);
    free(frame.data);
}

// Every op, with nothing set: what comes back has the defaults.
static void test_defaults(void **state)
{
    (void)state;
    for (int op = 0; op < GPU_OP_COUNT; op++) {
        struct gpu_request request;
        struct gpu_request got;
        struct frame frame;
        gpu_request_init(&request, (enum gpu_op)op);
        CHECK_OK(gpu_request_encode(&request, &frame.data, &frame.bytes));
        CHECK_OK(gpu_request_decode(frame.data, frame.bytes, &got, NULL));
        assert_int_equal(got.op, op);
        assert_int_equal(got.version, GPU_PROTOCOL_VERSION);
        assert_null(got.prompt.text);
        assert_null(got.session.text);
        assert_int_equal(got.max_tokens, 2048);
        assert_int_equal(got.score_top, 16);
        assert_false(got.add_special || got.parse_special || got.logits_hash || got.no_cache);
        sampling_equal(&got.sampling, &request.sampling);
        gpu_request_finish(&got);
        free(frame.data);
    }
}

static void test_hello_and_score(void **state)
{
    (void)state;
    struct gpu_request request;
    struct gpu_request got;
    struct frame frame;
    gpu_request_init(&request, GPU_OP_HELLO);
    request.version = 77;
    request.program = text_of("gpuctl");
    CHECK_OK(gpu_request_encode(&request, &frame.data, &frame.bytes));
    CHECK_OK(gpu_request_decode(frame.data, frame.bytes, &got, NULL));
    assert_int_equal(got.version, 77);
    text_equal(got.program, "gpuctl");
    free(frame.data);

    gpu_request_init(&request, GPU_OP_SCORE);
    request.score_top = 0;
    request.score_from = 5;
    CHECK_OK(gpu_request_encode(&request, &frame.data, &frame.bytes));
    CHECK_OK(gpu_request_decode(frame.data, frame.bytes, &got, NULL));
    assert_int_equal(got.score_top, 0);
    assert_int_equal(got.score_from, 5);
    free(frame.data);
}

// ---- malformed requests: each builds one field on top of a good op

static void put_long_role(struct codec_writer *writer)
{
    char role[GPU_ROLE_BYTES_MAX + 1] = {0};
    codec_put_array(writer, "turns");
    codec_put_map(writer, NULL);
    codec_put_bin(writer, "role", role, sizeof(role));
    codec_end(writer);
    codec_end(writer);
}

static void put_many_stops(struct codec_writer *writer)
{
    codec_put_array(writer, "stop");
    for (int i = 0; i <= LIMIT_STOP_STRINGS; i++) {
        codec_put_map(writer, NULL);
        codec_put_bin(writer, "text", "a", 1);
        codec_end(writer);
    }
    codec_end(writer);
}

static void put_many_turns(struct codec_writer *writer)
{
    codec_put_array(writer, "turns");
    for (int i = 0; i <= GPU_TURNS_MAX; i++) {
        codec_put_map(writer, NULL);
        codec_end(writer);
    }
    codec_end(writer);
}

static void put_odd_ids(struct codec_writer *writer)
{
    codec_put_bin(writer, "ids", "12345", 5);
}

static void put_text_ids(struct codec_writer *writer)
{
    codec_put_text(writer, "ids", "1234");
}

static void put_low_max_tokens(struct codec_writer *writer)
{
    codec_put_i64(writer, "max_tokens", -2);
}

static void put_high_max_tokens(struct codec_writer *writer)
{
    codec_put_i64(writer, "max_tokens", (int64_t)LIMIT_CONTEXT_TOKENS + 1);
}

static void put_huge_top_k(struct codec_writer *writer)
{
    codec_put_map(writer, "sampling");
    codec_put_i64(writer, "top_k", INT64_MAX);
    codec_end(writer);
}

static void put_flat_sampling(struct codec_writer *writer)
{
    codec_put_u64(writer, "sampling", 1);
}

static void put_high_top(struct codec_writer *writer)
{
    codec_put_u64(writer, "top", GPU_SCORE_TOP_MAX + 1);
}

static void put_long_session(struct codec_writer *writer)
{
    char name[LIMIT_SESSION_NAME_BYTES + 1] = {'a'};
    codec_put_bin(writer, "session", name, sizeof(name));
}

static void put_long_stop(struct codec_writer *writer)
{
    char text[LIMIT_STOP_BYTES + 1] = {'a'};
    codec_put_array(writer, "stop");
    codec_put_map(writer, NULL);
    codec_put_bin(writer, "text", text, sizeof(text));
    codec_end(writer);
    codec_end(writer);
}

static void put_wrong_flag(struct codec_writer *writer)
{
    codec_put_u64(writer, "no_cache", 1);
}

static void test_malformed_requests(void **state)
{
    (void)state;
    void (*const cases[])(struct codec_writer *) = {
        put_long_role,      put_many_stops,      put_many_turns, put_odd_ids,       put_text_ids,
        put_low_max_tokens, put_high_max_tokens, put_huge_top_k, put_flat_sampling, put_high_top,
        put_long_session,   put_long_stop,       put_wrong_flag,
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct codec_writer writer;
        const uint8_t *data;
        size_t bytes;
        struct gpu_request got;
        struct reason reason = {0};
        codec_writer_init(&writer, 1 << 20);
        codec_put_text(&writer, "op", "generate");
        cases[i](&writer);
        CHECK_OK(codec_writer_finish(&writer, &data, &bytes));
        assert_int_equal(gpu_request_decode(data, bytes, &got, &reason), STATUS_INVALID);
        assert_true(reason.text[0] != 0);
        codec_writer_free(&writer);
    }
}

static void test_unknown(void **state)
{
    (void)state;
    struct codec_writer writer;
    const uint8_t *data;
    size_t bytes;
    struct gpu_request got;
    struct gpu_event event;
    struct reason reason = {0};
    codec_writer_init(&writer, 1 << 20);
    codec_put_text(&writer, "op", "fly");
    codec_put_text(&writer, "event", "flown");
    CHECK_OK(codec_writer_finish(&writer, &data, &bytes));
    assert_int_equal(gpu_request_decode(data, bytes, &got, &reason), STATUS_UNSUPPORTED);
    assert_non_null(strstr(reason.text, "fly"));
    assert_int_equal(gpu_event_decode(data, bytes, &event, &reason), STATUS_UNSUPPORTED);
    codec_writer_free(&writer);

    // Unknown fields are ignored: a later client may send more.
    codec_writer_init(&writer, 1 << 20);
    codec_put_text(&writer, "op", "status");
    codec_put_map(&writer, "later");
    codec_put_u64(&writer, "a", 1);
    codec_end(&writer);
    CHECK_OK(codec_writer_finish(&writer, &data, &bytes));
    CHECK_OK(gpu_request_decode(data, bytes, &got, &reason));
    assert_int_equal(got.op, GPU_OP_STATUS);
    codec_writer_free(&writer);
}

static void test_too_long(void **state)
{
    (void)state;
    struct gpu_request request;
    struct frame frame;
    size_t bytes = (size_t)LIMIT_FRAME_BYTES + 1;
    char *text = calloc(1, bytes);
    assert_non_null(text);
    gpu_request_init(&request, GPU_OP_TOKENIZE);
    request.prompt = (struct gpu_text){.text = text, .bytes = bytes};
    assert_int_equal(gpu_request_encode(&request, &frame.data, &frame.bytes), STATUS_REFUSED);
    free(text);
}

// ---- events

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

// ---- hostile frames

// Decodes bytes that end at an unmapped page, both ways; what is accepted must encode again.
static void decode_any(const uint8_t *data, size_t bytes)
{
    struct check_edge edge = check_edge_create(bytes);
    struct gpu_request request;
    struct gpu_event event;
    struct frame frame;
    if (bytes > 0) {
        memcpy(edge.data, data, bytes);
    }
    if (gpu_request_decode(edge.data, bytes, &request, NULL) == STATUS_OK) {
        CHECK_OK(gpu_request_encode(&request, &frame.data, &frame.bytes));
        free(frame.data);
        gpu_request_finish(&request);
    }
    if (gpu_event_decode(edge.data, bytes, &event, NULL) == STATUS_OK) {
        CHECK_OK(gpu_event_encode(&event, &frame.data, &frame.bytes));
        free(frame.data);
        gpu_event_finish(&event);
    }
    check_edge_destroy(&edge);
}

static void damage(const struct frame *frame, uint64_t *random, uint64_t times)
{
    uint8_t *copy = malloc(frame->bytes);
    assert_non_null(copy);
    for (uint64_t i = 0; i < times; i++) {
        memcpy(copy, frame->data, frame->bytes);
        for (uint64_t n = check_random(random) % 3 + 1; n > 0; n--) {
            copy[check_random(random) % frame->bytes] = (uint8_t)check_random(random);
        }
        decode_any(copy, frame->bytes);
    }
    free(copy);
}

static void cut(const struct frame *frame)
{
    struct gpu_event event;
    struct gpu_request request;
    for (size_t bytes = 0; bytes < frame->bytes; bytes++) {
        decode_any(frame->data, bytes);
        assert_int_not_equal(gpu_event_decode(frame->data, bytes, &event, NULL), STATUS_OK);
        assert_int_not_equal(gpu_request_decode(frame->data, bytes, &request, NULL), STATUS_OK);
    }
}

static void test_hostile(void **state)
{
    (void)state;
    uint64_t random = check_seed();
    struct gpu_turn turns[2];
    struct gpu_request request;
    struct frame frame;
    full_request(&request, turns);
    CHECK_OK(gpu_request_encode(&request, &frame.data, &frame.bytes));
    cut(&frame);
    damage(&frame, &random, DAMAGES / 4);
    free(frame.data);
    for (int kind = 0; kind < GPU_EVENT_COUNT; kind++) {
        frame = event_frame((enum gpu_event_kind)kind);
        cut(&frame);
        damage(&frame, &random, DAMAGES / GPU_EVENT_COUNT);
        free(frame.data);
    }
}

static void test_ids(void **state)
{
    (void)state;
    uint32_t *copy = gpu_ids_copy(gpu_ids_of(some_ids, 3));
    assert_memory_equal(copy, some_ids, sizeof(some_ids));
    free(copy);
    assert_null(gpu_ids_copy((struct gpu_ids){0}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_request),    cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_hello_and_score), cmocka_unit_test(test_malformed_requests),
        cmocka_unit_test(test_unknown),         cmocka_unit_test(test_too_long),
        cmocka_unit_test(test_events),          cmocka_unit_test(test_any_bytes_in_reasons),
        cmocka_unit_test(test_hostile),         cmocka_unit_test(test_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
