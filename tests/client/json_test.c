// SPDX-License-Identifier: Apache-2.0
// At stake: programs read this output. Commas, nesting and escapes are compared with the text that
// RFC 8259 asks for; hostile bytes must never give a line that is not JSON.
#include "tests/check.h"

#include "client/json.h"

#include <math.h>

struct capture {
    FILE *file;
    char *text;
    size_t bytes;
};

static void capture_begin(struct capture *capture)
{
    capture->file = open_memstream(&capture->text, &capture->bytes);
    assert_non_null(capture->file);
}

static void capture_equal(struct capture *capture, const char *expected)
{
    fclose(capture->file);
    assert_string_equal(capture->text, expected);
    free(capture->text);
}

static void test_nesting(void **state)
{
    (void)state;
    struct capture capture;
    struct json json;
    capture_begin(&capture);
    json_begin(&json, capture.file);
    for (int i = 0; i < 2; i++) { // a second line starts afresh
        json_object(&json, NULL);
        json_number(&json, "a", UINT64_MAX);
        json_array(&json, "b");
        json_number(&json, NULL, 1);
        json_array(&json, NULL);
        json_end(&json);
        json_real(&json, NULL, 0.25, 6);
        json_end(&json);
        json_bool(&json, "c", false);
        json_null(&json, "d");
        json_hex64(&json, "e", 255);
        json_real(&json, "f", INFINITY, 6);
        json_end(&json);
        json_line(&json);
    }
    capture_equal(&capture, "{\"a\":18446744073709551615,\"b\":[1,[],0.25],\"c\":false,\"d\":null,"
                            "\"e\":\"00000000000000ff\",\"f\":null}\n"
                            "{\"a\":18446744073709551615,\"b\":[1,[],0.25],\"c\":false,\"d\":null,"
                            "\"e\":\"00000000000000ff\",\"f\":null}\n");
}

static void test_strings(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t length;
        const char *expected;
    } cases[] = {
        {"", 0, "\"\"\n"},
        {"a\"\\\n\t\r\b\f", 8, "\"a\\\"\\\\\\n\\t\\r\\b\\f\"\n"},
        {"\0\x1f\x7f", 3, "\"\\u0000\\u001f\\u007f\"\n"},
        {"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", 9, "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"\n"},
        {"\xc3", 1, "\"\\ufffd\"\n"},                       // cut off
        {"\xc0\x80", 2, "\"\\ufffd\\ufffd\"\n"},            // overlong
        {"\xed\xa0\x80", 3, "\"\\ufffd\\ufffd\\ufffd\"\n"}, // surrogate
        {"\xf4\x90\x80\x80", 4, "\"\\ufffd\\ufffd\\ufffd\\ufffd\"\n"},
        {"\x80z", 2, "\"\\ufffdz\"\n"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct capture capture;
        struct json json;
        capture_begin(&capture);
        json_begin(&json, capture.file);
        json_bytes(&json, NULL, cases[i].bytes, cases[i].length);
        json_line(&json);
        capture_equal(&capture, cases[i].expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_strings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
