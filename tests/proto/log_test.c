// SPDX-License-Identifier: Apache-2.0
// At stake: one event is one line, whatever a value holds.
#include "tests/check.h"

#include "proto/log.h"

// What `log_event` writes to stderr.
static void captured(char *out, size_t bytes, enum log_level level, const char *value)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    int saved = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    log_event(level, "TEST-EVENT", "key=%s", value);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(ends[1]);
    ssize_t got = read(ends[0], out, bytes - 1);
    out[got > 0 ? got : 0] = '\0';
    close(ends[0]);
}

static void a_log_line_is_one_line(void **state)
{
    (void)state;
    char line[2 * LOG_LINE_BYTES];
    captured(line, sizeof(line), LOG_LEVEL_INFO, "a\nb\x1b[31m");
    assert_string_equal(line + strlen("2026-01-01T00:00:00.000Z"),
                        " info TEST-EVENT key=a?b?[31m\n");
    char value[2000];
    memset(value, 'x', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    captured(line, sizeof(line), LOG_LEVEL_ERROR, value);
    assert_true(strlen(line) <= LOG_LINE_BYTES);
    assert_int_equal(line[strlen(line) - 1], '\n');
    captured(line, sizeof(line), LOG_LEVEL_DEBUG, "x"); // below the default level
    assert_string_equal(line, "");
    enum log_level level = LOG_LEVEL_ERROR;
    assert_true(log_level_parse("debug", &level) && level == LOG_LEVEL_DEBUG);
    assert_false(log_level_parse("loud", &level));
    log_level_set(LOG_LEVEL_WARNING);
    captured(line, sizeof(line), LOG_LEVEL_INFO, "x");
    assert_string_equal(line, "");
    log_level_set(LOG_LEVEL_INFO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_log_line_is_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
