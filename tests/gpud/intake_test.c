// SPDX-License-Identifier: Apache-2.0
// At stake: what an app asked for is what runs. Every field of a message must arrive in the
// request, copied (the frame is gone when the worker reads it), and be freed with it; what is wrong
// is refused with a reason. Identities of two users must differ.
#include "tests/check.h"

#include "gpud/intake.h"

static struct gpu_text text_of(const char *text)
{
    return (struct gpu_text){.text = text, .bytes = strlen(text)};
}

static void test_everything_is_copied(void **state)
{
    (void)state;
    const uint32_t ids[] = {5, 6};
    char prompt[] = "a\0b";
    char session[] = "chat";
    struct gpu_turn turns[] = {{text_of("system"), text_of("x")}, {text_of("user"), text_of("")}};
    struct gpu_request message;
    struct request *request = NULL;
    gpu_request_init(&message, GPU_OP_GENERATE);
    message.prompt = (struct gpu_text){.text = prompt, .bytes = 3};
    message.ids = gpu_ids_of(ids, 2);
    message.turns = turns;
    message.turn_count = 2;
    message.session = text_of(session);
    message.stop[0] = text_of("END");
    message.stop_count = 1;
    message.max_tokens = -1;
    message.sampling.top_k = 3;
    message.sampling.has_seed = true;
    message.sampling.seed = 77;
    message.parse_special = message.logits_hash = message.ignore_eos = message.no_cache = true;
    CHECK_OK(intake_request(&message, 1000, &request, NULL));
    memset(prompt, 'z', sizeof(prompt)); // the frame's memory is used again
    memset(session, 'z', sizeof(session) - 1);

    const struct request_input *input = &request->input;
    assert_int_equal(request->kind, REQUEST_KIND_GENERATE);
    assert_int_equal(input->prompt_bytes, 3);
    assert_memory_equal(input->prompt, "a\0b", 4);
    assert_int_equal(input->prompt_id_count, 2);
    assert_memory_equal(input->prompt_ids, ids, sizeof(ids));
    assert_int_equal(input->message_count, 2);
    assert_string_equal(input->messages[0].role, "system");
    assert_string_equal(input->messages[1].content, "");
    assert_string_equal(input->session, "chat");
    assert_int_equal(input->stop_count, 1);
    assert_string_equal(input->stop[0], "END");
    assert_int_equal(input->max_tokens, -1);
    assert_int_equal(input->sampling.top_k, 3);
    assert_true(input->sampling.has_seed && input->sampling.seed == 77);
    assert_true(input->parse_special && input->logits_hash && input->ignore_eos && input->no_cache);
    request_destroy(request);
}

// The defaults of the wire and of the sampler are the same: a session goes on with its own settings
// only while they are untouched.
static void test_default_sampling(void **state)
{
    (void)state;
    struct gpu_request message;
    struct request *request = NULL;
    struct sampling defaults;
    sampling_init(&defaults);
    gpu_request_init(&message, GPU_OP_GENERATE);
    CHECK_OK(intake_request(&message, 0, &request, NULL));
    const struct sampling *sampling = &request->input.sampling;
    assert_true(sampling->temperature == defaults.temperature);
    assert_true(sampling->top_p == defaults.top_p && sampling->min_p == defaults.min_p);
    assert_true(sampling->repeat_penalty == defaults.repeat_penalty);
    assert_true(sampling->presence_penalty == defaults.presence_penalty);
    assert_true(sampling->frequency_penalty == defaults.frequency_penalty);
    assert_int_equal(sampling->top_k, defaults.top_k);
    assert_int_equal(sampling->repeat_last_n, defaults.repeat_last_n);
    assert_false(sampling->has_seed);
    request_destroy(request);
}

static void test_kinds(void **state)
{
    (void)state;
    static const struct {
        enum gpu_op op;
        enum request_kind kind;
    } cases[] = {
        {GPU_OP_GENERATE, REQUEST_KIND_GENERATE},
        {GPU_OP_SCORE, REQUEST_KIND_SCORE},
        {GPU_OP_SESSION_LIST, REQUEST_KIND_SESSION_LIST},
        {GPU_OP_SESSION_SHOW, REQUEST_KIND_SESSION_SHOW},
        {GPU_OP_SESSION_SAVE, REQUEST_KIND_SESSION_SAVE},
        {GPU_OP_SESSION_DELETE, REQUEST_KIND_SESSION_DELETE},
        {GPU_OP_TOKENIZE, REQUEST_KIND_TOKENIZE},
        {GPU_OP_DETOKENIZE, REQUEST_KIND_DETOKENIZE},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gpu_request message;
        struct request *request = NULL;
        gpu_request_init(&message, cases[i].op);
        message.session = text_of("s");
        CHECK_OK(intake_request(&message, 0, &request, NULL));
        assert_int_equal(request->kind, cases[i].kind);
        request_destroy(request);
    }
}

static void test_identity(void **state)
{
    (void)state;
    struct gpu_request message;
    struct request *a = NULL;
    struct request *b = NULL;
    gpu_request_init(&message, GPU_OP_SESSION_LIST);
    CHECK_OK(intake_request(&message, 1, &a, NULL));
    CHECK_OK(intake_request(&message, 256, &b, NULL));
    static const uint8_t first[8] = {1};
    static const uint8_t second[8] = {0, 1};
    assert_int_equal(a->salt_bytes, 8);
    assert_memory_equal(a->salt, first, 8);
    assert_memory_equal(b->salt, second, 8);
    request_destroy(a);
    request_destroy(b);
}

static void refuse(const struct gpu_request *message)
{
    struct request *request = NULL;
    struct reason reason = {0};
    assert_int_equal(intake_request(message, 0, &request, &reason), STATUS_INVALID);
    assert_null(request);
    assert_true(reason.text[0] != 0);
}

static void test_refused(void **state)
{
    (void)state;
    struct gpu_request message;
    static const enum gpu_op named[] = {GPU_OP_SESSION_SHOW, GPU_OP_SESSION_SAVE,
                                        GPU_OP_SESSION_DELETE};
    for (size_t i = 0; i < sizeof(named) / sizeof(named[0]); i++) {
        gpu_request_init(&message, named[i]);
        refuse(&message);
        message.session = text_of("a/b");
        refuse(&message);
        message.session = (struct gpu_text){.text = "a\0b", .bytes = 3};
        refuse(&message);
    }
    gpu_request_init(&message, GPU_OP_GENERATE);
    message.stop_count = 1;
    refuse(&message); // empty
    message.stop[0] = (struct gpu_text){.text = "\0", .bytes = 1};
    refuse(&message);
    struct gpu_turn turn = {.role = text_of("user")};
    gpu_request_init(&message, GPU_OP_GENERATE);
    message.turns = &turn;
    message.turn_count = 1;
    refuse(&message); // no content
    turn = (struct gpu_turn){.content = text_of("x")};
    refuse(&message); // no role
    turn.role = (struct gpu_text){.text = "a\0", .bytes = 2};
    refuse(&message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything_is_copied),
        cmocka_unit_test(test_default_sampling),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_identity),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
