// SPDX-License-Identifier: Apache-2.0
// At stake: names end in keys, messages and file names of other systems. Each rule by its edges.
#include "proto/limits.h"
#include "proto/session_name.h"
#include "tests/check.h"

static void good_names(void **state)
{
    (void)state;
    static const char *const names[] = {
        "a",       "paper 12",      "v1.2",  ".hidden", "été",   "日本語", "\xf0\x9f\x98\x80",
        "console", "com0",          "com10", "lpt",     "nulls", "a.con",  "-",
        "%00",     "'; drop table",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        assert_int_equal(session_name_check(names[i], NULL), STATUS_OK);
    }
}

static void bad_names(void **state)
{
    (void)state;
    static const char *const names[] = {
        "",
        "a/b",
        "/",
        "a\\b",
        "..",
        "a..b",
        "x...",
        "a\nb",
        "\x01",
        "\x7f",
        "\xc2\x85",
        "\xe2\x80\xa8",
        "con",
        "CON",
        "Nul",
        "aux.txt",
        "com1",
        "LPT9.log",
        "prn .x",
        "\xff",
        "\xc3",
        "a\xc3",
        "\xc0\xaf",
        "\xe0\x80\xaf",
        "\xed\xa0\x80",
        "\xf4\x90\x80\x80",
        "\x80",
        "\xe2\x82",
        "\xf0\x9f\x98",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        struct reason reason = {0};
        assert_int_equal(session_name_check(names[i], &reason), STATUS_INVALID);
        assert_true(reason.text[0] != '\0' && reason.hint[0] != '\0');
    }
}

static void lengths(void **state)
{
    (void)state;
    char name[300];
    memset(name, 'x', sizeof(name));
    name[LIMIT_SESSION_NAME_BYTES] = '\0';
    assert_int_equal(session_name_check(name, NULL), STATUS_OK);
    name[LIMIT_SESSION_NAME_BYTES] = 'x';
    name[LIMIT_SESSION_NAME_BYTES + 1] = '\0';
    assert_int_equal(session_name_check(name, NULL), STATUS_INVALID);
    // A sequence that is cut by the end of the memory.
    struct check_edge edge = check_edge_create(3);
    memcpy(edge.data, "a\xe2", 3);
    assert_int_equal(session_name_check((char *)edge.data, NULL), STATUS_INVALID);
    check_edge_destroy(&edge);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_names),
        cmocka_unit_test(bad_names),
        cmocka_unit_test(lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
