// SPDX-License-Identifier: Apache-2.0
// At stake: ids and files that users give are read as written or refused, never half; errors keep
// their one-line form. Parsers are run on text that ends at an unmapped page.
#include "tests/check.h"

#include "client/console.h"

static void ids_equal(const char *text, const uint32_t *expected, size_t expected_count)
{
    size_t bytes = strlen(text);
    struct check_edge edge = check_edge_create(bytes);
    memcpy(edge.data, text, bytes);
    uint32_t *ids = NULL;
    size_t count = 0;
    CHECK_OK(console_parse_ids("t", (const char *)edge.data, bytes, &ids, &count, NULL));
    assert_int_equal(count, expected_count);
    if (count > 0) {
        assert_memory_equal(ids, expected, count * sizeof(*ids));
    }
    free(ids);
    check_edge_destroy(&edge);
}

static void test_ids(void **state)
{
    (void)state;
    const uint32_t three[] = {1, 20, 4294967295u};
    ids_equal("1 20 4294967295", three, 3);
    ids_equal("1,20,4294967295", three, 3);
    ids_equal("[1, 20,\n4294967295]\n", three, 3);
    ids_equal("", NULL, 0);
    ids_equal("[ ]", NULL, 0);
    ids_equal("7", (const uint32_t[]){7}, 1);
}

static void test_ids_malformed(void **state)
{
    (void)state;
    static const char *const cases[] = {"x",      "1 -2", "1.5",  "4294967296", "99999999999999",
                                        "1 2 3x", "{1}",  "\"1\""};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint32_t *ids = NULL;
        size_t count = 0;
        struct reason reason = {0};
        assert_int_equal(console_parse_ids("t", cases[i], strlen(cases[i]), &ids, &count, &reason),
                         STATUS_INVALID);
        assert_null(ids);
        assert_non_null(strstr(reason.text, "line 1"));
    }
}

static void test_ids_brackets(void **state)
{
    (void)state;
    static const char *const cases[] = {"[1,2", "1,2]", "[", "]", "][", "[[1]]", "[1][2]", "1 [2]"};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint32_t *ids = NULL;
        size_t count = 0;
        struct reason reason = {0};
        assert_int_equal(console_parse_ids("t", cases[i], strlen(cases[i]), &ids, &count, &reason),
                         STATUS_INVALID);
        assert_null(ids);
        assert_non_null(strstr(reason.text, "brackets"));
    }
}

static void test_files(void **state)
{
    (void)state;
    char folder[256];
    char path[300];
    check_folder_create(folder);
    snprintf(path, sizeof(path), "%s/f", folder);
    char *text = NULL;
    size_t bytes = 0;
    assert_int_equal(console_read_file(path, 10, &text, &bytes, NULL), STATUS_NOT_FOUND);
    FILE *file = fopen(path, "w");
    fputs("0123456789", file);
    fclose(file);
    CHECK_OK(console_read_file(path, 10, &text, &bytes, NULL));
    assert_int_equal(bytes, 10);
    assert_string_equal(text, "0123456789");
    free(text);
    assert_int_equal(console_read_file(path, 9, &text, &bytes, NULL), STATUS_REFUSED);
    check_folder_remove(folder);
}

static void test_words(void **state)
{
    (void)state;
    assert_string_equal(console_size(0).text, "0 B");
    assert_string_equal(console_size(1536).text, "1.5 KiB");
    assert_string_equal(console_size(3ull << 30).text, "3.0 GiB");
    assert_string_equal(console_age(500).text, "0 s");
    assert_string_equal(console_age(7200000).text, "2 h");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids),          cmocka_unit_test(test_ids_malformed),
        cmocka_unit_test(test_ids_brackets), cmocka_unit_test(test_files),
        cmocka_unit_test(test_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
