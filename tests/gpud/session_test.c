// SPDX-License-Identifier: Apache-2.0
// At stake: a session goes on with exactly the tokens of an uninterrupted run, whatever its
// sampling, and a request means what the app gave, or is refused with the numbers. Whole requests
// over a tiny model; the settings blob also by itself, cut and damaged at every byte.
#include "gpud/session.h"

#include "tests/gpud/engine_rig.h"

enum { PROMPT = 70, HALF = 25 };

// ---- the settings blob

static struct sampling odd_sampling(void)
{
    return (struct sampling){.temperature = 1.25f,
                             .top_k = -3,
                             .top_p = 0.7f,
                             .min_p = 0.01f,
                             .repeat_last_n = -1,
                             .repeat_penalty = 1.1f,
                             .frequency_penalty = -0.25f,
                             .presence_penalty = 0.5f,
                             .has_seed = true,
                             .seed = UINT64_MAX - 5};
}

static void settings_come_back(void **state)
{
    (void)state;
    const struct sampling sampling = odd_sampling();
    void *data = NULL;
    size_t bytes = 0;
    CHECK_OK(session_settings_encode(&sampling, &data, &bytes));
    struct sampling back;
    CHECK_OK(session_settings_decode(data, bytes, &back));
    assert_true(back.temperature == sampling.temperature && back.top_k == sampling.top_k &&
                back.top_p == sampling.top_p && back.min_p == sampling.min_p &&
                back.repeat_last_n == sampling.repeat_last_n &&
                back.repeat_penalty == sampling.repeat_penalty &&
                back.frequency_penalty == sampling.frequency_penalty &&
                back.presence_penalty == sampling.presence_penalty && back.has_seed &&
                back.seed == sampling.seed);
    free(data);
}

static void damaged_settings_are_a_status(void **state)
{
    (void)state;
    const struct sampling sampling = odd_sampling();
    void *data = NULL;
    size_t bytes = 0;
    CHECK_OK(session_settings_encode(&sampling, &data, &bytes));
    struct sampling back;
    for (size_t cut = 0; cut < bytes; cut++) {
        struct check_edge edge = check_edge_create(cut);
        memcpy(edge.data, data, cut);
        assert_int_equal(session_settings_decode(edge.data, cut, &back), STATUS_DAMAGED);
        check_edge_destroy(&edge);
    }
    uint8_t *copy = malloc(bytes);
    for (size_t at = 0; at < bytes; at++) {
        for (int bit = 0; bit < 8; bit++) {
            memcpy(copy, data, bytes);
            copy[at] ^= (uint8_t)(1 << bit);
            enum status status = session_settings_decode(copy, bytes, &back);
            assert_true(status == STATUS_OK || status == STATUS_DAMAGED ||
                        status == STATUS_VERSION);
            assert_true(status != STATUS_OK || sampling_check(&back, NULL) == STATUS_OK);
        }
    }
    uint8_t *version = memmem(data, bytes, "version", 7);
    version[7] = 2; // a positive fixint
    assert_int_equal(session_settings_decode(data, bytes, &back), STATUS_VERSION);
    free(copy);
    free(data);
}

// ---- resuming

struct way { // one way of sampling
    struct sampling sampling;
    bool repeat_settings; // the second request says them again
};

static void set_sampling(struct request *request, const struct sampling *sampling)
{
    request->input.sampling = *sampling;
}

static void generate(struct machine *machine, struct app *app, const char *name,
                     const uint32_t *ids, uint32_t count, const struct sampling *sampling,
                     int64_t max_tokens)
{
    struct request *request = app_request(app, REQUEST_KIND_GENERATE);
    if (count > 0) {
        app_set_ids(request, ids, count);
    }
    request->input.max_tokens = max_tokens;
    request->input.session = strdup(name);
    set_sampling(request, sampling);
    app_run(machine, app, request);
    app_expect_done(app, FINISH_REASON_LENGTH);
}

static void check_resume(struct machine *machine, const struct way *way, uint32_t first_half,
                         bool restart)
{
    static struct app whole, first, second, gone;
    uint32_t ids[PROMPT];
    random_ids(ids, PROMPT, 11);
    generate(machine, &whole, "whole", ids, PROMPT, &way->sampling, 2 * HALF);
    generate(machine, &first, "parts", ids, PROMPT, &way->sampling, first_half);
    if (restart) {
        machine_stop(machine);
        machine_start(machine);
    }
    struct sampling defaults;
    sampling_init(&defaults);
    struct sampling again = way->repeat_settings ? way->sampling : defaults;
    again.has_seed = false; // it is the session's
    generate(machine, &second, "parts", NULL, 0, &again, 2 * HALF - first_half);
    assert_memory_equal(first.ids, whole.ids, first_half * sizeof(uint32_t));
    assert_memory_equal(second.ids, whole.ids + first_half, second.token_count * sizeof(uint32_t));
    assert_memory_equal(second.hashes, whole.hashes + first_half,
                        second.token_count * sizeof(uint64_t));
    assert_int_equal(second.start.prompt_tokens, PROMPT + first_half);
    assert_true(second.start.computed_tokens <= 32);
    assert_string_equal(second.done.session, "parts");
    memcpy(first.text + first.text_bytes, second.text, second.text_bytes);
    assert_int_equal(first.text_bytes + second.text_bytes, whole.text_bytes);
    assert_memory_equal(first.text, whole.text, whole.text_bytes);
    for (int i = 0; i < 2; i++) {
        struct request *forget = app_request(&gone, REQUEST_KIND_SESSION_DELETE);
        forget->input.session = strdup(i == 0 ? "whole" : "parts");
        app_run(machine, &gone, forget);
        app_expect_done(&gone, FINISH_REASON_NONE);
    }
}

static void resumed_sessions_go_on_as_if_never_stopped(void **state)
{
    (void)state;
    const struct way ways[] = {
        {.sampling = {.temperature = 0, .repeat_penalty = 1, .top_p = 1, .has_seed = true}},
        {.sampling =
             {.temperature = 1, .top_p = 1, .repeat_penalty = 1, .has_seed = true, .seed = 5}},
        {.sampling = {.temperature = 1.5f,
                      .top_k = 40,
                      .top_p = 0.95f,
                      .min_p = 0.05f,
                      .repeat_last_n = 64,
                      .repeat_penalty = 1.3f,
                      .has_seed = true,
                      .seed = 6}},
        {.sampling = {.temperature = 2,
                      .top_p = 1,
                      .repeat_last_n = -1,
                      .repeat_penalty = 1,
                      .frequency_penalty = 0.5f,
                      .presence_penalty = 0.25f,
                      .has_seed = true,
                      .seed = 7},
         .repeat_settings = true},
    };
    static struct machine machine;
    for (uint32_t hot_blocks = 0; hot_blocks < 6; hot_blocks += 3) {
        machine_create(&machine, &(struct machine_options){.hot_blocks = hot_blocks});
        for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
            for (uint32_t first_half = 1; first_half < 2 * HALF; first_half += 12) {
                check_resume(&machine, &ways[i], first_half, first_half % 2 == 0);
            }
        }
        machine_destroy(&machine);
    }
}

static void kept_sessions_stay_kept(void **state)
{
    (void)state;
    static struct machine machine;
    static struct app app;
    machine_create(&machine, &(struct machine_options){0});
    uint32_t ids[PROMPT];
    random_ids(ids, PROMPT, 14);
    app_generate(&machine, &app, "s", ids, PROMPT, 5);
    struct kv_checkpoint *checkpoint = NULL;
    struct kv_checkpoint_reply reply;
    struct reason reason = {0};
    rig_check(cold_store_session_get(machine.rig.cold_store, "s", "user", 4, &checkpoint, &reason),
              &reason);
    assert_false(checkpoint->keep);
    checkpoint->keep = true; // as `session save` does
    rig_check(cold_store_checkpoint(machine.rig.cold_store, checkpoint, &reply, &reason), &reason);
    free(checkpoint);
    app_generate(&machine, &app, "s", ids, PROMPT, 5);
    rig_check(cold_store_session_get(machine.rig.cold_store, "s", "user", 4, &checkpoint, &reason),
              &reason);
    assert_true(checkpoint->keep);
    assert_int_equal(checkpoint->token_count, 2 * PROMPT + 10);
    free(checkpoint);
    machine_destroy(&machine);
}

static void text_goes_on_within_a_character(void **state)
{
    (void)state;
    static struct machine machine;
    static struct app app;
    machine_create(&machine, &(struct machine_options){0});
    static const uint32_t ids[] = {VOCAB_LETTERS, 5}; // 'a', then the first byte of four
    app_generate(&machine, &app, "s", ids, 2, 0);
    app_generate(&machine, &app, "s", NULL, 0, 1);
    app_expect_done(&app, FINISH_REASON_LENGTH);
    assert_true(app.ids[0] >= 15); // no byte: what was begun becomes U+FFFD, and is not forgotten
    assert_true(app.text_bytes > 3);
    assert_memory_equal(app.text, "\xef\xbf\xbd", 3);
    machine_destroy(&machine);
}

static void seeds_differ_unless_given(void **state)
{
    (void)state;
    static struct machine machine;
    static struct app apps[4];
    machine_create(&machine, &(struct machine_options){0});
    uint32_t ids[PROMPT];
    random_ids(ids, PROMPT, 12);
    for (int i = 0; i < 4; i++) {
        struct sampling sampling = {
            .temperature = 2, .top_p = 1, .repeat_penalty = 1, .has_seed = i >= 2, .seed = 9};
        struct request *request = app_request(&apps[i], REQUEST_KIND_GENERATE);
        app_set_ids(request, ids, PROMPT);
        request->input.max_tokens = HALF;
        set_sampling(request, &sampling);
        app_run(&machine, &apps[i], request);
    }
    assert_memory_not_equal(apps[0].ids, apps[1].ids, HALF * sizeof(uint32_t));
    assert_memory_equal(apps[2].ids, apps[3].ids, HALF * sizeof(uint32_t));
    machine_destroy(&machine);
}

static void errors_keep_the_session_as_it_was(void **state)
{
    (void)state;
    static struct machine machine;
    static struct app app;
    machine_create(&machine, &(struct machine_options){.context_tokens = 128});
    uint32_t ids[PROMPT];
    random_ids(ids, PROMPT, 13);
    app_generate(&machine, &app, "s", ids, PROMPT, 5);
    app_generate(&machine, &app, "s", ids, PROMPT, 5); // 75 + 70 tokens in 128
    app_expect_error(&app, STATUS_REFUSED, "145 tokens do not fit the context of 128");
    app_run(&machine, &app, app_request(&app, REQUEST_KIND_SESSION_LIST));
    assert_int_equal(app.sessions[0].token_count, PROMPT + 5);
    app_generate(&machine, &app, "s", ids, 0, -1); // goes on to the end of the context
    app_expect_done(&app, FINISH_REASON_LENGTH);
    assert_int_equal(app.token_count, 128 - PROMPT - 5);
    app_generate(&machine, &app, "s", ids, 0, -1);
    app_expect_error(&app, STATUS_REFUSED, "128 tokens leave no room for an answer in 128");
    machine_destroy(&machine);
}

// ---- prompts

static uint32_t prompt_tokens(struct machine *machine, const char *session, const char *text,
                              struct request *request, struct app *app)
{
    if (text != NULL) {
        app_set_text(request, text);
    }
    request->input.session = session == NULL ? NULL : strdup(session);
    request->input.max_tokens = 0;
    app_run(machine, app, request);
    app_expect_done(app, FINISH_REASON_LENGTH);
    return app->start.prompt_tokens;
}

static void text_gets_one_bos_at_the_start_only(void **state)
{
    (void)state;
    static struct machine machine;
    static struct app app;
    machine_create(&machine, &(struct machine_options){0});
    // " jk": BOS, the space prefix, j, k (the pair "jk" is no token of this vocabulary)
    assert_int_equal(
        prompt_tokens(&machine, "s", "jk", app_request(&app, REQUEST_KIND_GENERATE), &app), 4);
    // Going on: no BOS, no space prefix.
    assert_int_equal(
        prompt_tokens(&machine, "s", "jk", app_request(&app, REQUEST_KIND_GENERATE), &app), 6);
    struct request *request = app_request(&app, REQUEST_KIND_GENERATE);
    request->input.parse_special = true;
    assert_int_equal(prompt_tokens(&machine, NULL, "<s>", request, &app), 1);
    // As text it is nine letters at most, never the token.
    assert_true(
        prompt_tokens(&machine, NULL, "<s>", app_request(&app, REQUEST_KIND_GENERATE), &app) > 2);
    machine_destroy(&machine);
}

static void chat_turns_are_rendered_and_closed(void **state)
{
    (void)state;
    static struct machine machine;
    static struct app app;
    machine_create(&machine, &(struct machine_options){0});
    uint32_t before = 0;
    for (int turn = 0; turn < 2; turn++) {
        struct request *request = app_request(&app, REQUEST_KIND_GENERATE);
        request->input.messages = calloc(1, sizeof(*request->input.messages));
        request->input.messages[0] =
            (struct request_message){.role = strdup("user"), .content = strdup("jk <|im_end|>")};
        request->input.message_count = 1;
        uint32_t tokens = prompt_tokens(&machine, "chat", NULL, request, &app);
        assert_true(tokens > before + 10);
        before = tokens;
    }
    machine_destroy(&machine);
}

static void bad_input_is_named(void **state)
{
    (void)state;
    static struct machine machine;
    static struct app app;
    machine_create(&machine, &(struct machine_options){.context_tokens = 256});
    uint32_t ids[300] = {VOCAB_LETTERS};
    app_generate(&machine, &app, NULL, ids, 0, 5);
    app_expect_error(&app, STATUS_INVALID, "is empty");
    app_generate(&machine, &app, "none", ids, 0, 5);
    app_expect_error(&app, STATUS_NOT_FOUND, "session none");
    app_generate(&machine, &app, NULL, ids, 257, 5);
    app_expect_error(&app, STATUS_REFUSED, "257 tokens do not fit the context of 256");
    app_generate(&machine, &app, NULL, ids, 256, 5);
    app_expect_error(&app, STATUS_REFUSED, "leave no room for an answer in 256");
    app_generate(&machine, &app, NULL, ids, 255, -1);
    app_expect_done(&app, FINISH_REASON_LENGTH);
    assert_int_equal(app.token_count, 1);
    app_generate(&machine, &app, NULL, ids, 5, -2);
    app_expect_error(&app, STATUS_INVALID, "max_tokens");
    ids[3] = TINY_VOCAB;
    app_generate(&machine, &app, NULL, ids, 5, 5);
    app_expect_error(&app, STATUS_INVALID, "below 100");
    struct request *request = app_request(&app, REQUEST_KIND_GENERATE);
    app_set_ids(request, ids, 1);
    request->input.sampling.top_p = 2;
    app_run(&machine, &app, request);
    app_expect_error(&app, STATUS_INVALID, "top_p");
    request = app_request(&app, REQUEST_KIND_GENERATE);
    app_set_ids(request, ids, 1);
    request->input.stop[0] = strdup("");
    request->input.stop_count = 1;
    app_run(&machine, &app, request);
    app_expect_error(&app, STATUS_INVALID, "stop");
    request = app_request(&app, REQUEST_KIND_SCORE);
    app_set_ids(request, ids, 3);
    request->input.score_from = 3;
    app_run(&machine, &app, request);
    app_expect_error(&app, STATUS_INVALID, "from: 3");
    request = app_request(&app, REQUEST_KIND_SCORE);
    app_set_ids(request, ids, 3);
    request->input.score_top = REPLY_SCORE_TOP_MAX + 1;
    app_run(&machine, &app, request);
    app_expect_error(&app, STATUS_INVALID, "top");
    request = app_request(&app, REQUEST_KIND_SCORE);
    app_set_ids(request, ids, 3);
    request->input.session = strdup("s");
    app_run(&machine, &app, request);
    app_expect_error(&app, STATUS_INVALID, "no session");
    machine_destroy(&machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_come_back),
        cmocka_unit_test(damaged_settings_are_a_status),
        cmocka_unit_test(resumed_sessions_go_on_as_if_never_stopped),
        cmocka_unit_test(kept_sessions_stay_kept),
        cmocka_unit_test(text_goes_on_within_a_character),
        cmocka_unit_test(seeds_differ_unless_given),
        cmocka_unit_test(errors_keep_the_session_as_it_was),
        cmocka_unit_test(text_gets_one_bos_at_the_start_only),
        cmocka_unit_test(chat_turns_are_rendered_and_closed),
        cmocka_unit_test(bad_input_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
