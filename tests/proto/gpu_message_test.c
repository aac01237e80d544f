// SPDX-License-Identifier: Apache-2.0
// At stake: apps and gpud must mean the same by a request, and no frame may crash gpud. Every
// request goes there and back; every cut and many random damages of good frames, at the end of a
// mapped page, must give an answer; a request with one thing out of range is refused.
#include "proto/codec.h"
#include "tests/proto/gpu_frames.h"

enum { DAMAGES = 5000 };

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
    struct reason reason = {0};
    codec_writer_init(&writer, 1 << 20);
    codec_put_text(&writer, "op", "fly");
    CHECK_OK(codec_writer_finish(&writer, &data, &bytes));
    assert_int_equal(gpu_request_decode(data, bytes, &got, &reason), STATUS_UNSUPPORTED);
    assert_non_null(strstr(reason.text, "fly"));
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
    damage(&frame, &random, DAMAGES);
    free(frame.data);
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
        cmocka_unit_test(test_hostile),         cmocka_unit_test(test_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
