// SPDX-License-Identifier: Apache-2.0
// At stake: bars and prompts in a log file or a pipe, or none at a terminal. Both are tried: a
// pipe, and a pseudo terminal.
#include "tests/check.h"

#include "proto/os/terminal.h"

#include <fcntl.h>

static void test_pipe_and_terminal(void **state)
{
    (void)state;
    int saved_in = dup(STDIN_FILENO);
    int saved_err = dup(STDERR_FILENO);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    dup2(ends[0], STDIN_FILENO);
    dup2(ends[1], STDERR_FILENO);
    bool pipe_in = os_terminal_input();
    bool pipe_err = os_terminal_errors();
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(terminal >= 0);
    dup2(terminal, STDIN_FILENO);
    dup2(terminal, STDERR_FILENO);
    bool terminal_in = os_terminal_input();
    bool terminal_err = os_terminal_errors();
    dup2(saved_in, STDIN_FILENO);
    dup2(saved_err, STDERR_FILENO);
    assert_false(pipe_in || pipe_err);
    assert_true(terminal_in && terminal_err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pipe_and_terminal)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
