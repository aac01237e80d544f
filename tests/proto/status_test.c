// SPDX-License-Identifier: Apache-2.0
// At stake: status numbers are part of the wire protocol and names part of --json output, so both
// are pinned here one by one; a reason must never overflow.
#include "tests/check.h"

#include "proto/status.h"

static const struct {
    enum status status;
    int number;
    const char *name;
} table[] = {
    {STATUS_OK, 0, "ok"},
    {STATUS_INVALID, 1, "invalid"},
    {STATUS_NO_MEMORY, 2, "no_memory"},
    {STATUS_NO_SPACE, 3, "no_space"},
    {STATUS_NOT_FOUND, 4, "not_found"},
    {STATUS_BUSY, 5, "busy"},
    {STATUS_REFUSED, 6, "refused"},
    {STATUS_DAMAGED, 7, "damaged"},
    {STATUS_UNREACHABLE, 8, "unreachable"},
    {STATUS_TIMEOUT, 9, "timeout"},
    {STATUS_CLOSED, 10, "closed"},
    {STATUS_CANCELLED, 11, "cancelled"},
    {STATUS_VERSION, 12, "version"},
    {STATUS_STALE, 13, "stale"},
    {STATUS_IO, 14, "io"},
    {STATUS_EXISTS, 15, "exists"},
    {STATUS_UNSUPPORTED, 16, "unsupported"},
    {STATUS_PERMISSION, 17, "permission"},
    {STATUS_MISMATCH, 18, "mismatch"},
};

static void numbers_and_names_are_pinned(void **state)
{
    (void)state;
    assert_int_equal(sizeof(table) / sizeof(table[0]), STATUS_COUNT);
    for (int i = 0; i < STATUS_COUNT; i++) {
        assert_int_equal(table[i].status, i);
        assert_int_equal(table[i].number, i);
        assert_string_equal(status_name(table[i].status), table[i].name);
        assert_int_equal(status_from_wire(i), i);
    }
}

static void other_numbers_are_invalid(void **state)
{
    (void)state;
    assert_string_equal(status_name(STATUS_COUNT), "unknown");
    assert_string_equal(status_name((enum status) - 1), "unknown");
    assert_int_equal(status_from_wire(STATUS_COUNT), STATUS_INVALID);
    assert_int_equal(status_from_wire(-1), STATUS_INVALID);
    assert_int_equal(status_from_wire(1LL << 32), STATUS_INVALID); // not cut to 0
}

static void reasons_are_cut_and_optional(void **state)
{
    (void)state;
    struct reason reason;
    char text[1000];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(reason_set(&reason, STATUS_IO, text, "%s", text), STATUS_IO);
    assert_int_equal(strlen(reason.text), REASON_TEXT_BYTES - 1);
    assert_int_equal(strlen(reason.hint), REASON_HINT_BYTES - 1);
    assert_int_equal(reason_set(&reason, STATUS_BUSY, NULL, "a %d", 7), STATUS_BUSY);
    assert_string_equal(reason.text, "a 7");
    assert_string_equal(reason.hint, "");
    assert_int_equal(reason_set(NULL, STATUS_BUSY, "", "a"), STATUS_BUSY);
}

// They reach terminals, logs and the wire, and hold names that files and users chose.
static void reasons_are_clean(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"plain", "plain"},
        {"h\xc3\xa9 \xf0\x9f\x98\x80", "h\xc3\xa9 \xf0\x9f\x98\x80"},
        {"a\nb\x1b[2J\x7f", "a?b?[2J?"},
        {"cut \xc3", "cut ?"},
        {"\xc0\x80\xed\xa0\x80\xff", "??????"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct reason reason;
        (void)reason_set(&reason, STATUS_IO, cases[i][0], "%s", cases[i][0]);
        assert_string_equal(reason.text, cases[i][1]);
        assert_string_equal(reason.hint, cases[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_and_names_are_pinned),
        cmocka_unit_test(other_numbers_are_invalid),
        cmocka_unit_test(reasons_are_cut_and_optional),
        cmocka_unit_test(reasons_are_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
