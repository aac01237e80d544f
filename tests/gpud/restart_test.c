// SPDX-License-Identifier: Apache-2.0
// At stake: the reason for the project. A session that was saved goes on after everything was
// stopped, from disk, with the tokens and bits of an uninterrupted run; and when kvstored dies in
// the middle, nobody notices. The engine in this process, the real kvstored (argument 1) beside it.
#include "gpud/engine.h"

#include "tests/gpud/engine_rig.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { PROMPT = 200, HALF = 20, CACHED = (PROMPT + HALF - 1) / 32 * 32 };

static const char *kvstored_path;

struct daemon {
    char folder[256];
    char url[300];
    pid_t process;
};

static void daemon_start(struct daemon *daemon)
{
    daemon->process = fork();
    assert_true(daemon->process >= 0);
    if (daemon->process == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM); // a failed test leaves none behind
        setenv("KVTIER_RUNTIME_DIR", daemon->folder, 1);
        setenv("KVTIER_DATA_DIR", daemon->folder, 1);
        setenv("KVTIER_CONFIG_DIR", daemon->folder, 1);
        execl(kvstored_path, kvstored_path, "--listen", daemon->url, "--swap-space", "64M",
              "--disk-space", "64M", "--log-level", "warning", (char *)NULL);
        _exit(127);
    }
}

static void daemon_end(struct daemon *daemon, int signal_number)
{
    kill(daemon->process, signal_number);
    assert_int_equal(waitpid(daemon->process, NULL, 0), daemon->process);
}

static void daemon_create(struct daemon *daemon)
{
    check_folder_create(daemon->folder);
    snprintf(daemon->url, sizeof(daemon->url), "ipc://%s/kv.sock", daemon->folder);
    daemon_start(daemon);
}

static void save(struct machine *machine, const char *name)
{
    static struct app app;
    struct request *request = app_request(&app, REQUEST_KIND_SESSION_SAVE);
    request->input.session = strdup(name);
    app_run(machine, &app, request);
    app_expect_done(&app, FINISH_REASON_NONE);
    assert_int_equal(app.saved.durable_block_count, app.saved.block_count);
    assert_int_equal(app.saved.block_count, (PROMPT + HALF) / 32);
}

// What an uninterrupted run generates, without kvstored.
static void run_whole(struct app *app, uint32_t *ids)
{
    static struct machine machine;
    random_ids(ids, PROMPT, 21);
    machine_create(&machine, &(struct machine_options){0});
    app_generate(&machine, app, "whole", ids, PROMPT, 2 * HALF);
    app_expect_done(app, FINISH_REASON_LENGTH);
    machine_destroy(&machine);
}

static void expect_part(const struct app *part, const struct app *whole, uint32_t first)
{
    assert_memory_equal(part->ids, whole->ids + first, part->token_count * sizeof(uint32_t));
    assert_memory_equal(part->hashes, whole->hashes + first, part->token_count * sizeof(uint64_t));
}

static void saved_sessions_survive_everything(void **state)
{
    (void)state;
    static struct machine machine;
    static struct app whole, part, rows;
    uint32_t ids[PROMPT + HALF];
    run_whole(&whole, ids);
    static const int signals[] = {SIGTERM, SIGKILL};
    for (int i = 0; i < 4; i++) { // both ways to stop, unified and discrete
        const struct machine_options unified = {0};
        struct machine_options options = unified;
        struct daemon daemon;
        daemon_create(&daemon);
        options.store_url = daemon.url;
        options.hot_blocks = i < 2 ? 0 : 3;
        machine_create(&machine, &options);
        app_generate(&machine, &part, "s", ids, PROMPT, HALF);
        expect_part(&part, &whole, 0);
        save(&machine, "s");
        machine_destroy(&machine);
        daemon_end(&daemon, signals[i % 2]);

        daemon_start(&daemon);
        machine_create(&machine, &options);
        // Scoring the same tokens finds the session's blocks by identity.
        memcpy(ids + PROMPT, whole.ids, HALF * sizeof(*ids));
        struct request *request = app_request(&rows, REQUEST_KIND_SCORE);
        app_set_ids(request, ids, PROMPT + HALF);
        request->input.score_from = PROMPT - 1;
        app_run(&machine, &rows, request);
        app_expect_done(&rows, FINISH_REASON_NONE);
        assert_int_equal(rows.start.disk_tokens, (PROMPT - 1) / 32 * 32);
        assert_memory_equal(rows.hashes, whole.hashes, HALF * sizeof(uint64_t));
        app_generate(&machine, &part, "s", NULL, 0, HALF);
        app_expect_done(&part, FINISH_REASON_LENGTH);
        expect_part(&part, &whole, HALF);
        assert_int_equal(part.start.computed_tokens, PROMPT + HALF - CACHED);
        machine_destroy(&machine);
        daemon_end(&daemon, SIGTERM);
        check_folder_remove(daemon.folder);
    }
}

static void kvstored_may_die_while_a_request_runs(void **state)
{
    (void)state;
    static struct machine machine;
    static struct app whole, part;
    uint32_t ids[PROMPT];
    run_whole(&whole, ids);
    struct daemon daemon;
    daemon_create(&daemon);
    machine_create(&machine, &(struct machine_options){.store_url = daemon.url, .batch_tokens = 1});
    struct request *request = app_request(&part, REQUEST_KIND_GENERATE);
    app_set_ids(request, ids, PROMPT);
    request->input.max_tokens = 2 * HALF;
    request->input.session = strdup("s");
    app_submit(&machine, request);
    while (part.progress_count == 0) {
        assert_false(app_poll(&part));
    }
    daemon_end(&daemon, SIGKILL);
    app_wait(&part);
    app_expect_done(&part, FINISH_REASON_LENGTH);
    expect_part(&part, &whole, 0);
    app_generate(&machine, &part, NULL, ids, PROMPT, 2 * HALF); // from a private arena
    app_expect_done(&part, FINISH_REASON_LENGTH);
    expect_part(&part, &whole, 0);
    machine_destroy(&machine);
    daemon_start(&daemon); // takes over what the dead one left, and removes it
    machine_create(&machine, &(struct machine_options){.store_url = daemon.url});
    machine_destroy(&machine);
    daemon_end(&daemon, SIGTERM);
    check_folder_remove(daemon.folder);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        return 2;
    }
    kvstored_path = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saved_sessions_survive_everything),
        cmocka_unit_test(kvstored_may_die_while_a_request_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
