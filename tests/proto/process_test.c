// SPDX-License-Identifier: Apache-2.0
// At stake: gpuctl up must know whether a daemon is ready, has ended and how, and must never lose a
// wake-up in between. Children are /bin/sh with a line of script.
#include "tests/check.h"

#include "proto/os/clock.h"
#include "proto/os/process.h"
#include "proto/os/service.h"

#include <signal.h>
#include <sys/wait.h>

enum { WAIT_MS = 20000 };

static char folder[256];
static char log_path[300];
static char notify_path[300];

static int64_t start(const char *script, const char *notify)
{
    char *argv[] = {"/bin/sh", "-c", (char *)script, NULL};
    const struct process_options options = {
        .argv = argv, .log_path = log_path, .notify_path = notify};
    int64_t pid = 0;
    CHECK_OK(process_start(&options, &pid, NULL));
    assert_true(pid > 0);
    return pid;
}

static int wait_code(int64_t pid)
{
    int code = -1;
    uint64_t started_ms = os_clock_ms();
    while (!process_reap(pid, &code)) {
        assert_true(os_clock_ms() - started_ms < WAIT_MS);
        (void)process_wait_event(NULL, 0, 1000);
    }
    return code;
}

static void test_exit_codes(void **state)
{
    (void)state;
    assert_int_equal(wait_code(start("exit 0", NULL)), 0);
    assert_int_equal(wait_code(start("exit 6", NULL)), 6);
    assert_int_equal(wait_code(start("kill -9 $$", NULL)), 128 + SIGKILL);
}

static void test_terminate_and_kill(void **state)
{
    (void)state;
    int code = 0;
    int64_t pid = start("exec sleep 100", NULL);
    assert_false(process_reap(pid, &code));
    process_terminate(pid);
    assert_int_equal(wait_code(pid), 128 + SIGTERM);
    pid = start("trap '' TERM; while :; do sleep 0.01; done", NULL);
    os_sleep_ms(100); // let it ignore the signal
    process_terminate(pid);
    os_sleep_ms(50);
    assert_false(process_reap(pid, &code));
    process_kill(pid);
    assert_int_equal(wait_code(pid), 128 + SIGKILL);
}

static void test_log(void **state)
{
    (void)state;
    char text[64] = {0};
    unlink(log_path);
    assert_int_equal(wait_code(start("echo out; echo err >&2", NULL)), 0);
    assert_int_equal(wait_code(start("echo more; read x || echo none", NULL)), 0); // appended
    FILE *file = fopen(log_path, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof(text) - 1, file) > 0);
    fclose(file);
    assert_string_equal(text, "out\nerr\nmore\nnone\n");
}

static void test_missing_program(void **state)
{
    (void)state;
    char *argv[] = {"/nonexistent/program", NULL};
    const struct process_options options = {.argv = argv, .log_path = log_path};
    struct reason reason = {0};
    int64_t pid = 0;
    assert_int_equal(process_start(&options, &pid, &reason), STATUS_NOT_FOUND);
    assert_non_null(strstr(reason.text, "/nonexistent/program"));
}

// Files that we have open are not the child's: a lock of ours must not live on in a daemon.
static void test_nothing_is_inherited(void **state)
{
    (void)state;
    int fd = dup2(STDERR_FILENO, 57);
    assert_int_equal(fd, 57);
    assert_int_equal(wait_code(start("test ! -e /proc/self/fd/57", NULL)), 0);
    close(fd);
}

static void test_notify(void **state)
{
    (void)state;
    struct notify_socket notify = {.fd = -1};
    char message[NOTIFY_MESSAGE_BYTES];
    char value[64];
    CHECK_OK(notify_socket_open(notify_path, &notify, NULL));
    assert_false(notify_socket_receive(&notify, message));
    CHECK_OK(os_service_notify(notify_path, "STATUS=loading 5 %\nREADY=1"));
    (void)process_wait_event(&notify, 1, WAIT_MS);
    assert_true(notify_socket_receive(&notify, message));
    assert_true(notify_message_find(message, "READY", value, sizeof(value)));
    assert_string_equal(value, "1");
    assert_true(notify_message_find(message, "STATUS", value, sizeof(value)));
    assert_string_equal(value, "loading 5 %");
    assert_false(notify_message_find(message, "READ", value, sizeof(value)));
    assert_false(notify_message_find("", "READY", value, sizeof(value)));
    // The child is told where it listens.
    char script[600];
    snprintf(script, sizeof(script), "test \"$NOTIFY_SOCKET\" = '%s'", notify_path);
    assert_int_equal(wait_code(start(script, notify_path)), 0);
    setenv("NOTIFY_SOCKET", "/of/ours", 1); // never handed on
    assert_int_equal(wait_code(start("test -z \"$NOTIFY_SOCKET\"", NULL)), 0);
    notify_socket_close(&notify);
    assert_int_equal(access(notify_path, F_OK), -1);
    notify_socket_close(&notify);
}

static void test_notify_path_too_long(void **state)
{
    (void)state;
    struct notify_socket notify;
    char path[300];
    memset(path, 'a', sizeof(path) - 1);
    path[0] = '/';
    path[sizeof(path) - 1] = 0;
    struct reason reason = {0};
    assert_int_equal(notify_socket_open(path, &notify, &reason), STATUS_INVALID);
    assert_true(reason.hint[0] != 0);
}

// A signal between two waits is not lost, and stays.
static void test_stop(void **state)
{
    (void)state;
    assert_false(process_wait_event(NULL, 0, 1));
    raise(SIGTERM);
    uint64_t started_ms = os_clock_ms();
    assert_true(process_wait_event(NULL, 0, WAIT_MS));
    assert_true(os_clock_ms() - started_ms < WAIT_MS / 2);
    assert_true(process_wait_event(NULL, 0, 1));
}

static void test_background(void **state)
{
    (void)state;
    bool is_child = false;
    FILE *pipe = NULL;
    char text[64] = {0};
    CHECK_OK(process_background(log_path, &is_child, &pipe, NULL));
    if (is_child) {
        fprintf(pipe, "session %d\n", getsid(0) == getpid());
        printf("to the log\n");
        _exit(0);
    }
    assert_non_null(fgets(text, sizeof(text), pipe));
    assert_string_equal(text, "session 1\n");
    assert_null(fgets(text, sizeof(text), pipe)); // the child's end is the only one
    fclose(pipe);
    while (wait(NULL) > 0) {
    }
}

static void test_own_path(void **state)
{
    (void)state;
    char path[1024];
    CHECK_OK(process_own_path(path, sizeof(path)));
    assert_non_null(strstr(path, "/process_test"));
    assert_true(process_is_program(path));
    assert_false(process_is_program(folder));
    assert_false(process_is_program("/nonexistent"));
}

static int set_up(void **state)
{
    (void)state;
    check_folder_create(folder);
    snprintf(log_path, sizeof(log_path), "%s/log", folder);
    snprintf(notify_path, sizeof(notify_path), "%s/notify", folder);
    process_catch_stop();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    check_folder_remove(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exit_codes),
        cmocka_unit_test(test_terminate_and_kill),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_missing_program),
        cmocka_unit_test(test_nothing_is_inherited),
        cmocka_unit_test(test_notify),
        cmocka_unit_test(test_notify_path_too_long),
        cmocka_unit_test(test_background),
        cmocka_unit_test(test_own_path),
        cmocka_unit_test(test_stop), // last: a stop stays asked for
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
