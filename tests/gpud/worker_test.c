// SPDX-License-Identifier: Apache-2.0
// At stake: who may run, who waits, who is refused, and that each is told so; one writer a session;
// users kept apart. Whole requests over a tiny model whose arena is made small.
#include "gpud/worker.h"

#include "tests/gpud/engine_rig.h"

enum { PROMPT = 100 };

static struct request *prompt_request(struct app *app, uint32_t count, int64_t max_tokens,
                                      uint64_t seed)
{
    uint32_t ids[1000];
    struct request *request = app_request(app, REQUEST_KIND_GENERATE);
    random_ids(ids, count, seed);
    app_set_ids(request, ids, count);
    request->input.max_tokens = max_tokens;
    return request;
}

static void requests_wait_for_slots_in_turn(void **state)
{
    (void)state;
    enum { APPS = 6 };
    static struct machine machine;
    static struct app apps[APPS];
    // 16 slots; each request needs 7 of them, so two run at a time.
    machine_create(&machine, &(struct machine_options){.arena_blocks = 16, .running_max = 4});
    for (uint32_t i = 0; i < APPS; i++) {
        app_submit(&machine, prompt_request(&apps[i], PROMPT, 100, i));
    }
    for (uint32_t i = 0; i < APPS; i++) {
        app_wait(&apps[i]);
        app_expect_done(&apps[i], FINISH_REASON_LENGTH);
        assert_int_equal(apps[i].token_count, 100);
    }
    machine_destroy(&machine);
}

static void what_can_never_fit_is_refused_at_once(void **state)
{
    (void)state;
    static struct machine machine;
    static struct app app;
    machine_create(&machine, &(struct machine_options){.arena_blocks = 8});
    app_run(&machine, &app, prompt_request(&app, PROMPT, 500, 1));
    assert_true(app.is_error);
    assert_int_equal(app.error.status, STATUS_REFUSED);
    assert_false(app.has_start);
    app_run(&machine, &app, prompt_request(&app, PROMPT, 100, 1));
    app_expect_done(&app, FINISH_REASON_LENGTH);
    machine_destroy(&machine);
}

static void a_session_has_one_writer(void **state)
{
    (void)state;
    static struct machine machine;
    static struct app first, second, third;
    machine_create(&machine, &(struct machine_options){0});
    struct request *request = prompt_request(&first, PROMPT, -1, 2);
    request->input.session = strdup("s");
    app_submit(&machine, request);
    static const enum request_kind kinds[] = {REQUEST_KIND_GENERATE, REQUEST_KIND_SESSION_SAVE,
                                              REQUEST_KIND_SESSION_DELETE};
    for (int i = 0; i < 3; i++) {
        request = app_request(&second, kinds[i]);
        app_set_text(request, "a");
        request->input.session = strdup("s");
        app_run(&machine, &second, request);
        app_expect_error(&second, STATUS_BUSY, "session s: is in use");
    }
    request = prompt_request(&third, PROMPT, 3, 2); // another user's "s" is another session
    request->salt[0] = 'x';
    request->input.session = strdup("s");
    app_run(&machine, &third, request);
    app_expect_done(&third, FINISH_REASON_LENGTH);
    reply_cancel(first.reply);
    app_wait(&first);
    request = prompt_request(&second, PROMPT, 3, 3);
    request->input.session = strdup("s");
    app_run(&machine, &second, request);
    app_expect_done(&second, FINISH_REASON_LENGTH);
    machine_destroy(&machine);
}

static void users_share_nothing(void **state)
{
    (void)state;
    static struct machine machine;
    static struct app mine, theirs;
    machine_create(&machine, &(struct machine_options){0});
    for (int i = 0; i < 2; i++) {
        struct request *request = prompt_request(&mine, PROMPT, 3, 4);
        request->salt[0] = i == 0 ? 'u' : 'x';
        app_run(&machine, &mine, request);
        assert_int_equal(mine.start.computed_tokens, PROMPT);
    }
    struct request *request = prompt_request(&mine, PROMPT, 3, 4);
    request->input.session = strdup("mine");
    app_run(&machine, &mine, request);
    assert_int_equal(mine.start.ram_tokens, 96);
    request = app_request(&theirs, REQUEST_KIND_SESSION_LIST);
    request->salt[0] = 'x';
    app_run(&machine, &theirs, request);
    assert_int_equal(theirs.session_count, 0);
    request = app_request(&theirs, REQUEST_KIND_SESSION_SHOW);
    request->salt[0] = 'x';
    request->input.session = strdup("mine");
    app_run(&machine, &theirs, request);
    app_expect_error(&theirs, STATUS_NOT_FOUND, "session mine");
    machine_destroy(&machine);
}

static void commands_are_served_while_requests_run(void **state)
{
    (void)state;
    static struct machine machine;
    static struct app running, app;
    machine_create(&machine, &(struct machine_options){0});
    app_submit(&machine, prompt_request(&running, PROMPT, -1, 5));
    struct request *request = app_request(&app, REQUEST_KIND_TOKENIZE);
    app_set_text(request, "jk");
    request->input.add_special = true;
    app_run(&machine, &app, request);
    app_expect_done(&app, FINISH_REASON_NONE);
    assert_int_equal(app.id_count, 4);
    assert_int_equal(app.ids[0], VOCAB_BOS);
    const uint32_t ids[] = {VOCAB_LETTERS + 9, VOCAB_LETTERS + 10, VOCAB_EOS};
    request = app_request(&app, REQUEST_KIND_DETOKENIZE);
    app_set_ids(request, ids, 3);
    app_run(&machine, &app, request);
    assert_int_equal(app.text_bytes, 6);
    assert_memory_equal(app.text, "jk</s>", 6);
    request = app_request(&app, REQUEST_KIND_SESSION_SAVE);
    request->input.session = strdup("none");
    app_run(&machine, &app, request);
    app_expect_error(&app, STATUS_NOT_FOUND, "none");
    request = app_request(&app, REQUEST_KIND_SESSION_DELETE);
    request->input.session = strdup("none");
    app_run(&machine, &app, request);
    app_expect_error(&app, STATUS_NOT_FOUND, "none");
    static struct app saved;
    request = prompt_request(&app, PROMPT, 3, 6);
    request->input.session = strdup("kept");
    app_run(&machine, &app, request);
    request = app_request(&saved, REQUEST_KIND_SESSION_SAVE);
    request->input.session = strdup("kept");
    app_run(&machine, &saved, request);
    app_expect_error(&saved, STATUS_UNREACHABLE, "kvstored is not running");
    app_poll(&running);
    assert_false(running.is_done || running.is_error); // all that passed it by
    reply_cancel(running.reply);
    app_wait(&running);
    machine_destroy(&machine);
}

static void too_many_requests_are_turned_away(void **state)
{
    (void)state;
    static struct machine machine;
    static struct app running;
    static struct app waiting[WORKER_REQUESTS_MAX + 1];
    machine_create(&machine, &(struct machine_options){.running_max = 1});
    app_submit(&machine, prompt_request(&running, PROMPT, -1, 7));
    uint32_t accepted = 0;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && accepted <= WORKER_REQUESTS_MAX) {
        struct request *request = prompt_request(&waiting[accepted], 5, 1, accepted);
        status = worker_submit(machine.worker, request);
        if (status == STATUS_OK) {
            accepted++;
        } else {
            request_destroy(request); // still ours
            reply_drop(waiting[accepted].reply);
        }
    }
    assert_int_equal(status, STATUS_BUSY);
    assert_int_equal(accepted, WORKER_REQUESTS_MAX - 1);
    reply_cancel(running.reply);
    app_wait(&running);
    for (uint32_t i = 0; i < accepted; i++) {
        app_wait(&waiting[i]);
        app_expect_done(&waiting[i], FINISH_REASON_LENGTH);
    }
    machine_destroy(&machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_wait_for_slots_in_turn),
        cmocka_unit_test(what_can_never_fit_is_refused_at_once),
        cmocka_unit_test(a_session_has_one_writer),
        cmocka_unit_test(users_share_nothing),
        cmocka_unit_test(commands_are_served_while_requests_run),
        cmocka_unit_test(too_many_requests_are_turned_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
