// SPDX-License-Identifier: Apache-2.0
// At stake: what is generated, to the bit, does not depend on chunks, neighbours, tiers or caches;
// a request ends in one way at whatever moment it is cancelled; nothing leaks. Whole requests
// through worker, engine and kernels over a tiny random model; every comparison is of ids and
// logits hashes.
#include "gpud/engine.h"

#include "proto/utf8.h"
#include "tests/gpud/engine_rig.h"

enum { PROMPT = 200, ANSWER = 40 };

static void expect_equal_tokens(const struct app *a, const struct app *b, uint32_t first)
{
    assert_int_equal(a->token_count, b->token_count - first);
    assert_memory_equal(a->ids, b->ids + first, a->token_count * sizeof(a->ids[0]));
    assert_memory_equal(a->hashes, b->hashes + first, a->token_count * sizeof(a->hashes[0]));
}

// The base run that others are compared with: 64-token chunks, unified, alone, nothing cached.
static void base_run(struct app *app, const uint32_t *ids, uint32_t count)
{
    static struct machine machine;
    machine_create(&machine, &(struct machine_options){0});
    app_generate(&machine, app, NULL, ids, count, ANSWER);
    app_expect_done(app, FINISH_REASON_LENGTH);
    assert_int_equal(app->token_count, ANSWER);
    assert_int_equal(app->start.prompt_tokens, count);
    assert_int_equal(app->start.computed_tokens, count);
    assert_true(app->done.ttft_ms > 0 && app->done.prefill_ms > 0 && app->done.decode_ms > 0);
    machine_destroy(&machine);
}

static void bits_do_not_depend_on_how_it_runs(void **state)
{
    (void)state;
    static const struct machine_options variants[] = {
        {.batch_tokens = 1},   {.batch_tokens = 7},
        {.batch_tokens = 512}, {.threads = 2},
        {.hot_blocks = 1},     {.hot_blocks = 3},
        {.hot_blocks = 64},    {.hot_blocks = 2, .batch_tokens = 512},
    };
    static struct machine machine;
    static struct app base, app;
    uint32_t ids[PROMPT];
    random_ids(ids, PROMPT, 1);
    base_run(&base, ids, PROMPT);
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++) {
        machine_create(&machine, &variants[i]);
        app_generate(&machine, &app, NULL, ids, PROMPT, ANSWER);
        app_expect_done(&app, FINISH_REASON_LENGTH);
        expect_equal_tokens(&app, &base, 0);
        machine_destroy(&machine);
    }
}

static void cached_prompts_give_the_same_bits(void **state)
{
    (void)state;
    static struct machine machine;
    static struct app base, app;
    uint32_t ids[PROMPT];
    random_ids(ids, PROMPT, 2);
    base_run(&base, ids, PROMPT);
    for (uint32_t hot_blocks = 0; hot_blocks < 9; hot_blocks += 4) {
        machine_create(&machine, &(struct machine_options){.hot_blocks = hot_blocks});
        for (int round = 0; round < 3; round++) {
            app_generate(&machine, &app, NULL, ids, PROMPT, ANSWER);
            app_expect_done(&app, FINISH_REASON_LENGTH);
            expect_equal_tokens(&app, &base, 0);
            uint32_t cached = app.start.hot_tokens + app.start.ram_tokens + app.start.disk_tokens;
            assert_int_equal(cached + app.start.computed_tokens, PROMPT);
            assert_int_equal(cached, round == 0 ? 0 : (PROMPT - 1) / 32 * 32);
        }
        struct request *request = app_request(&app, REQUEST_KIND_GENERATE);
        app_set_ids(request, ids, PROMPT);
        request->input.max_tokens = ANSWER;
        request->input.no_cache = true;
        app_run(&machine, &app, request);
        expect_equal_tokens(&app, &base, 0);
        assert_int_equal(app.start.computed_tokens, PROMPT);
        machine_destroy(&machine);
    }
}

static void prompts_of_every_length_work(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {1, 2, 31, 32, 33, 63, 64, 65};
    static struct machine machine;
    static struct app cold, warm;
    machine_create(&machine, &(struct machine_options){0});
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        uint32_t ids[65];
        random_ids(ids, lengths[i], 100 + i);
        app_generate(&machine, &cold, NULL, ids, lengths[i], 3);
        app_generate(&machine, &warm, NULL, ids, lengths[i], 3);
        app_expect_done(&warm, FINISH_REASON_LENGTH);
        expect_equal_tokens(&warm, &cold, 0);
        assert_true(warm.start.computed_tokens >= 1);
    }
    machine_destroy(&machine);
}

static void neighbours_do_not_change_a_request(void **state)
{
    (void)state;
    enum { APPS = 6 };
    static struct machine machine;
    static struct app solo[APPS], together[APPS];
    uint32_t ids[APPS][PROMPT];
    for (uint32_t hot_blocks = 0; hot_blocks <= 12; hot_blocks += 6) {
        machine_create(&machine, &(struct machine_options){.hot_blocks = hot_blocks});
        for (uint32_t i = 0; i < APPS; i++) {
            random_ids(ids[i], PROMPT, 10 + i);
            app_generate(&machine, &solo[i], NULL, ids[i], PROMPT - 30 * i, ANSWER);
        }
        machine_destroy(&machine);
        machine_create(&machine, &(struct machine_options){.hot_blocks = hot_blocks});
        for (uint32_t i = 0; i < APPS; i++) {
            struct request *request = app_request(&together[i], REQUEST_KIND_GENERATE);
            app_set_ids(request, ids[i], PROMPT - 30 * i);
            request->input.max_tokens = ANSWER;
            app_submit(&machine, request);
        }
        for (uint32_t i = 0; i < APPS; i++) {
            app_wait(&together[i]);
            app_expect_done(&together[i], FINISH_REASON_LENGTH);
            expect_equal_tokens(&together[i], &solo[i], 0);
        }
        machine_destroy(&machine);
    }
}

// ---- ends

static bool is_whole_text(const char *text, size_t bytes)
{
    size_t length = 1;
    for (size_t i = 0; i < bytes && length > 0; i += length) {
        length = utf8_length(text + i, bytes - i);
    }
    return length > 0;
}

static void text_is_whole_and_stops_where_asked(void **state)
{
    (void)state;
    static struct machine machine;
    static struct app full, app;
    machine_create(&machine, &(struct machine_options){0});
    uint32_t ids[20];
    random_ids(ids, 20, 3);
    app_generate(&machine, &full, NULL, ids, 20, 100);
    assert_true(is_whole_text(full.text, full.text_bytes));
    full.text[full.text_bytes] = '\0';
    for (size_t at = 2; at + 5 < full.text_bytes; at += 9) {
        char stop[6] = {0};
        memcpy(stop, full.text + at, 5);
        size_t first = (size_t)(strstr(full.text, stop) - full.text);
        if (!is_whole_text(stop, 5)) {
            continue; // within a character
        }
        struct request *request = app_request(&app, REQUEST_KIND_GENERATE);
        app_set_ids(request, ids, 20);
        request->input.max_tokens = 100;
        request->input.stop[0] = strdup(stop);
        request->input.stop_count = 1;
        app_run(&machine, &app, request);
        app_expect_done(&app, FINISH_REASON_STOP);
        assert_int_equal(app.text_bytes, first);
        assert_memory_equal(app.text, full.text, first);
        assert_memory_equal(app.ids, full.ids, app.token_count * sizeof(app.ids[0]));
    }
    machine_destroy(&machine);
}

static void held_back_text_comes_at_the_end(void **state)
{
    (void)state;
    static struct machine machine;
    static struct app full, app;
    machine_create(&machine, &(struct machine_options){0});
    uint32_t ids[20];
    random_ids(ids, 20, 3);
    app_generate(&machine, &full, NULL, ids, 20, 30);
    char stop[] = "????";
    stop[0] = full.text[full.text_bytes - 1]; // the text ends with the start of a stop string
    struct request *request = app_request(&app, REQUEST_KIND_GENERATE);
    app_set_ids(request, ids, 20);
    request->input.max_tokens = 30;
    request->input.stop[0] = strdup(stop);
    request->input.stop_count = 1;
    app_run(&machine, &app, request);
    app_expect_done(&app, FINISH_REASON_LENGTH);
    assert_int_equal(app.text_bytes, full.text_bytes);
    assert_memory_equal(app.text, full.text, full.text_bytes);
    machine_destroy(&machine);
}

static void end_token_stops_and_is_kept(void **state)
{
    (void)state;
    static struct machine machine;
    static struct app app, session;
    machine_create(&machine, &(struct machine_options){0});
    bool seen = false;
    for (uint64_t seed = 0; seed < 200 && !seen; seed++) { // until a random text has an end token
        struct request *request = app_request(&app, REQUEST_KIND_GENERATE);
        uint32_t ids[5];
        random_ids(ids, 5, seed);
        app_set_ids(request, ids, 5);
        request->input.max_tokens = 50;
        request->input.ignore_eos = false;
        request->input.sampling.temperature = 2;
        request->input.sampling.top_k = 0;
        request->input.sampling.top_p = 1;
        request->input.sampling.min_p = 0;
        request->input.sampling.has_seed = true;
        request->input.session = strdup("ends");
        app_run(&machine, &app, request);
        seen = app.done.finish_reason == FINISH_REASON_STOP;
        app_run(&machine, &session, app_request(&session, REQUEST_KIND_SESSION_LIST));
        assert_int_equal(session.sessions[0].token_count,
                         app.start.prompt_tokens + app.token_count);
        struct request *forget = app_request(&session, REQUEST_KIND_SESSION_DELETE);
        forget->input.session = strdup("ends");
        app_run(&machine, &session, forget);
        app_expect_done(&session, FINISH_REASON_NONE);
    }
    assert_true(seen);
    uint32_t last = app.ids[app.token_count - 1];
    assert_true(tokenizer_is_end(machine.tokenizer, last));
    assert_int_equal(app.done.completion_tokens, app.token_count);
    assert_null(memchr(app.text, '<', app.text_bytes)); // its name is no text
    machine_destroy(&machine);
}

static void zero_tokens_compute_the_prompt_only(void **state)
{
    (void)state;
    static struct machine machine;
    static struct app app;
    machine_create(&machine, &(struct machine_options){0});
    uint32_t ids[PROMPT];
    random_ids(ids, PROMPT, 4);
    app_generate(&machine, &app, NULL, ids, PROMPT, 0);
    app_expect_done(&app, FINISH_REASON_LENGTH);
    assert_int_equal(app.token_count, 0);
    app_generate(&machine, &app, NULL, ids, PROMPT, 1);
    assert_int_equal(app.start.computed_tokens, PROMPT - (PROMPT - 1) / 32 * 32);
    machine_destroy(&machine);
}

// ---- cancelling

// Cancels after `tokens` tokens, or (0) at the first progress, or (-1) at once; returns the app at
// its end.
static void run_cancelled(struct machine *machine, struct app *app, struct request *request,
                          int tokens)
{
    app_submit(machine, request);
    uint64_t give_up_ms = os_clock_ms() + APP_TIMEOUT_MS;
    bool cancelled = false;
    while (!app_poll(app)) {
        bool now = tokens < 0 || (tokens == 0 && app->progress_count > 0) ||
                   (tokens > 0 && app->token_count >= (uint32_t)tokens);
        if (now && !cancelled) {
            reply_cancel(app->reply);
            cancelled = true;
        }
        assert_true(os_clock_ms() < give_up_ms);
    }
    app_expect_done(app, FINISH_REASON_CANCELLED);
}

static void cancelling_ends_every_phase(void **state)
{
    (void)state;
    static const int moments[] = {-1, 0, 1, 5};
    static struct machine machine;
    static struct app app, after;
    machine_create(&machine, &(struct machine_options){.batch_tokens = 8});
    uint32_t ids[PROMPT];
    for (size_t i = 0; i < sizeof(moments) / sizeof(moments[0]); i++) {
        random_ids(ids, PROMPT, 50 + i);
        struct request *request = app_request(&app, REQUEST_KIND_GENERATE);
        app_set_ids(request, ids, PROMPT);
        request->input.max_tokens = -1;
        request->input.session = strdup("cut");
        run_cancelled(&machine, &app, request, moments[i]);
        assert_true(app.token_count < 1024 - PROMPT);
        assert_int_equal(machine_leased_slots(&machine), 0);
        // The session holds the prompt and what was delivered (unless nobody saw it begin).
        struct request *show = app_request(&after, REQUEST_KIND_SESSION_SHOW);
        show->input.session = strdup("cut");
        app_run(&machine, &after, show);
        if (moments[i] >= 0) {
            app_expect_done(&after, FINISH_REASON_NONE);
            assert_int_equal(after.sessions[0].token_count, PROMPT + app.token_count);
        }
        struct request *forget = app_request(&after, REQUEST_KIND_SESSION_DELETE);
        forget->input.session = strdup("cut");
        app_run(&machine, &after, forget);
    }
    machine_destroy(&machine);
}

static void cancelling_in_line_and_gone_apps(void **state)
{
    (void)state;
    static struct machine machine;
    static struct app first, second, third;
    machine_create(&machine, &(struct machine_options){.running_max = 1});
    uint32_t ids[PROMPT];
    random_ids(ids, PROMPT, 5);
    struct request *request = app_request(&first, REQUEST_KIND_GENERATE);
    app_set_ids(request, ids, PROMPT);
    request->input.max_tokens = -1;
    app_submit(&machine, request);
    struct request *waits = app_request(&second, REQUEST_KIND_GENERATE);
    app_set_ids(waits, ids, 10);
    app_submit(&machine, waits);
    struct request *leaves = app_request(&third, REQUEST_KIND_GENERATE);
    app_set_ids(leaves, ids, 20);
    app_submit(&machine, leaves);
    reply_drop(third.reply); // its connection closed
    reply_cancel(second.reply);
    app_wait(&second);
    app_expect_done(&second, FINISH_REASON_CANCELLED);
    assert_false(second.has_start);
    assert_false(app_poll(&first)); // goes on
    reply_cancel(first.reply);
    app_wait(&first);
    machine_destroy(&machine);
}

static void stopping_keeps_what_was_delivered(void **state)
{
    (void)state;
    static struct machine machine;
    static struct app live, queued, after;
    machine_create(&machine, &(struct machine_options){.running_max = 1});
    uint32_t ids[PROMPT];
    random_ids(ids, PROMPT, 6);
    struct request *request = app_request(&live, REQUEST_KIND_GENERATE);
    app_set_ids(request, ids, PROMPT);
    request->input.max_tokens = -1;
    request->input.session = strdup("live");
    app_submit(&machine, request);
    struct request *waits = app_request(&queued, REQUEST_KIND_GENERATE);
    app_set_ids(waits, ids, 50);
    waits->input.session = strdup("queued");
    app_submit(&machine, waits);
    while (live.token_count < 3) {
        assert_false(app_poll(&live));
    }
    machine_stop(&machine);
    app_wait(&live);
    app_wait(&queued);
    app_expect_done(&live, FINISH_REASON_CANCELLED);
    app_expect_done(&queued, FINISH_REASON_CANCELLED);
    machine_start(&machine);
    app_run(&machine, &after, app_request(&after, REQUEST_KIND_SESSION_LIST));
    assert_int_equal(after.session_count, 2);
    for (int i = 0; i < 2; i++) {
        bool is_live = strcmp(after.sessions[i].name, "live") == 0;
        assert_int_equal(after.sessions[i].token_count, is_live ? PROMPT + live.token_count : 50);
    }
    machine_destroy(&machine);
}

static void random_cancels_leak_nothing(void **state)
{
    (void)state;
    enum { APPS = 4, ROUNDS = 60 };
    static struct machine machine;
    static struct app apps[APPS];
    uint64_t seed = check_seed();
    machine_create(&machine, &(struct machine_options){.hot_blocks = 7, .arena_blocks = 40});
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < APPS; i++) {
            uint32_t ids[PROMPT];
            random_ids(ids, PROMPT, check_random(&seed) % 5); // some shared, so that blocks hit
            struct request *request = app_request(&apps[i], REQUEST_KIND_GENERATE);
            app_set_ids(request, ids, 1 + (uint32_t)(check_random(&seed) % PROMPT));
            request->input.max_tokens = (int64_t)(check_random(&seed) % 60);
            app_submit(&machine, request);
        }
        for (int i = 0; i < APPS; i++) {
            uint64_t choice = check_random(&seed) % 4;
            if (choice == 0) {
                reply_drop(apps[i].reply);
                apps[i].reply = NULL;
            } else if (choice == 1) {
                os_sleep_ms((uint32_t)(check_random(&seed) % 5));
                reply_cancel(apps[i].reply);
            }
        }
        for (int i = 0; i < APPS; i++) {
            app_wait(&apps[i]);
            assert_false(apps[i].is_error);
        }
    }
    machine_stop(&machine);
    assert_int_equal(machine_leased_slots(&machine), 0);
    struct stats_view view;
    stats_read(&machine.stats, &view);
    assert_int_equal(view.request_count, APPS * ROUNDS);
    assert_int_equal(view.done_count + view.cancelled_count, APPS * ROUNDS);
    assert_int_equal(view.failed_count + view.running_count + view.queued_count, 0);
    machine_start(&machine);
    machine_destroy(&machine);
}

// ---- score

static void score(struct machine *machine, struct app *app, const uint32_t *ids, uint32_t count,
                  uint32_t from)
{
    struct request *request = app_request(app, REQUEST_KIND_SCORE);
    app_set_ids(request, ids, count);
    request->input.score_from = from;
    request->input.score_top = 4;
    app_run(machine, app, request);
    app_expect_done(app, FINISH_REASON_NONE);
    assert_int_equal(app->row_count, count - from);
}

static void score_is_what_generate_saw(void **state)
{
    (void)state;
    static struct machine machine;
    static struct app base, rows, part;
    uint32_t ids[PROMPT + ANSWER];
    random_ids(ids, PROMPT, 7);
    base_run(&base, ids, PROMPT);
    memcpy(ids + PROMPT, base.ids, ANSWER * sizeof(*ids));
    for (uint32_t logit_rows = 4; logit_rows <= 16; logit_rows += 12) {
        machine_create(&machine, &(struct machine_options){.logit_rows = logit_rows});
        score(&machine, &rows, ids, PROMPT + ANSWER, 0);
        for (uint32_t i = 0; i < PROMPT + ANSWER; i++) {
            assert_int_equal(rows.positions[i], i);
            assert_true(rows.lses[i] == rows.lses[i] && rows.logprobs[i] <= 0);
        }
        for (uint32_t i = 0; i < ANSWER; i++) {
            assert_int_equal(rows.hashes[PROMPT - 1 + i], base.hashes[i]);
            assert_int_equal(rows.tops[PROMPT - 1 + i], base.ids[i]); // greedy
        }
        // The part below `from` comes from the cache, the rows are the same.
        score(&machine, &part, ids, PROMPT + ANSWER, 150);
        assert_int_equal(part.start.computed_tokens, PROMPT + ANSWER - 150 / 32 * 32);
        assert_memory_equal(part.hashes, rows.hashes + 150, part.row_count * sizeof(uint64_t));
        machine_destroy(&machine);
    }
}

static void slow_reader_of_rows_holds_up_itself_only(void **state)
{
    (void)state;
    enum { LONG = 1500 };
    static struct machine machine;
    static struct app rows, other;
    static uint32_t ids[LONG];
    machine_create(&machine, &(struct machine_options){.context_tokens = 2048});
    random_ids(ids, LONG, 8);
    struct request *request = app_request(&rows, REQUEST_KIND_SCORE);
    app_set_ids(request, ids, LONG);
    app_submit(&machine, request); // and does not read yet
    for (int i = 0; i < 5; i++) {
        app_generate(&machine, &other, NULL, ids, 100, ANSWER);
        app_expect_done(&other, FINISH_REASON_LENGTH);
    }
    app_wait(&rows);
    app_expect_done(&rows, FINISH_REASON_NONE);
    assert_int_equal(rows.row_count, LONG);
    machine_destroy(&machine);
}

static void counters_follow(void **state)
{
    (void)state;
    static struct machine machine;
    static struct app app;
    machine_create(&machine, &(struct machine_options){.hot_blocks = 3});
    uint32_t ids[PROMPT];
    random_ids(ids, PROMPT, 9);
    app_generate(&machine, &app, NULL, ids, PROMPT, ANSWER);
    struct kv_cache_status cache;
    engine_cache_status(machine.engine, &cache);
    assert_false(cache.unified);
    assert_true(cache.closed_count >= PROMPT / 32 && cache.hot_hit_count > 0 &&
                cache.cold_hit_count > 0);
    struct stats_view view;
    stats_read(&machine.stats, &view);
    assert_int_equal(view.prefill_tokens, PROMPT);
    assert_int_equal(view.decode_tokens, ANSWER - 1); // the first one came with the prompt
    assert_true(view.prefill_tokens_per_s > 0 && view.decode_tokens_per_s > 0);
    machine_destroy(&machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_do_not_depend_on_how_it_runs),
        cmocka_unit_test(cached_prompts_give_the_same_bits),
        cmocka_unit_test(prompts_of_every_length_work),
        cmocka_unit_test(neighbours_do_not_change_a_request),
        cmocka_unit_test(text_is_whole_and_stops_where_asked),
        cmocka_unit_test(held_back_text_comes_at_the_end),
        cmocka_unit_test(end_token_stops_and_is_kept),
        cmocka_unit_test(zero_tokens_compute_the_prompt_only),
        cmocka_unit_test(cancelling_ends_every_phase),
        cmocka_unit_test(cancelling_in_line_and_gone_apps),
        cmocka_unit_test(stopping_keeps_what_was_delivered),
        cmocka_unit_test(random_cancels_leak_nothing),
        cmocka_unit_test(score_is_what_generate_saw),
        cmocka_unit_test(slow_reader_of_rows_holds_up_itself_only),
        cmocka_unit_test(counters_follow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
