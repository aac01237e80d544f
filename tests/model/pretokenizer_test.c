// SPDX-License-Identifier: Apache-2.0
// At stake: a word boundary in another place gives other tokens. Each scheme is checked on text
// whose words the tokenizers of the field are known to split so; joined words are always the text,
// whatever its bytes.
#include "gpud/model/pretokenizer.h"
#include "tests/check.h"

struct words {
    char joined[4096]; // words with '|' between
    size_t end;
    size_t bytes; // of all words
    uint32_t fail_after;
};

static enum status take_word(void *context, const char *text, size_t bytes)
{
    struct words *words = context;
    assert_true(bytes > 0);
    words->bytes += bytes;
    if (words->end + bytes + 2 < sizeof(words->joined)) {
        if (words->end > 0) {
            words->joined[words->end++] = '|';
        }
        memcpy(words->joined + words->end, text, bytes);
        words->end += bytes;
        words->joined[words->end] = '\0';
    }
    return words->fail_after > 0 && --words->fail_after == 0 ? STATUS_BUSY : STATUS_OK;
}

static struct pretokenizer *create(const char *name)
{
    struct pretokenizer *pretokenizer = NULL;
    struct reason reason = {0};
    struct gguf_string string = {name, strlen(name)};
    if (pretokenizer_create(string, "test.gguf", &pretokenizer, &reason) != STATUS_OK) {
        fail_msg("%s", reason.text);
    }
    return pretokenizer;
}

static void check_split(const char *scheme, const char *text, const char *expected)
{
    struct pretokenizer *pretokenizer = create(scheme);
    struct words words = {.bytes = 0};
    const struct pretokenizer_sink sink = {&words, take_word};
    CHECK_OK(pretokenizer_split(pretokenizer, text, strlen(text), &sink));
    assert_string_equal(words.joined, expected);
    assert_int_equal(words.bytes, strlen(text));
    pretokenizer_destroy(pretokenizer);
}

static void test_schemes(void **state)
{
    (void)state;
    check_split("gpt-2", "Hello world's 123 x", "Hello| world|'s| 123| x");
    check_split("gpt-2", "a   b\n\n c", "a|  | b|\n\n| c");
    check_split("gpt-2", "'RE we'll!?..", "'|RE| we|'ll|!?..");
    check_split("gpt-2", "end  ", "end|  ");
    check_split("smollm", "Hello 1234 x", "Hello| |1|2|3|4| x");
    check_split("default", "Hello, 12345 x", "Hello|,| |123|45| x");
    check_split("default", "a<=b", "a|<=|b");
    check_split("", "Hello, 1", "Hello|,| |1"); // none named: default
    check_split("starcoder", "n12", "n|1|2");
    check_split("olmo", "n12", "n|12");
}

// White space beyond ASCII, letters and numbers of other scripts.
static void test_unicode(void **state)
{
    (void)state;
    check_split("gpt-2", "\xc3\xa9t\xc3\xa9 \xd9\xa3\xd9\xa4",
                "\xc3\xa9t\xc3\xa9| \xd9\xa3\xd9\xa4");
    check_split("gpt-2",
                "a\xc2\xa0\xc2\xa0"
                "b",
                "a|\xc2\xa0|\xc2\xa0|b");
    check_split("gpt-2", "a\xc2\x85!", "a|\xc2\x85|!"); // U+0085, which PCRE2's own \s lacks
    check_split("smollm", "\xe2\x85\xa7\xe2\x85\xa7", "\xe2\x85\xa7|\xe2\x85\xa7");
}

static void test_invalid_utf8_stands_alone(void **state)
{
    (void)state;
    check_split("gpt-2",
                "ab\xff\xfe"
                "cd",
                "ab|\xff\xfe|cd");
    check_split("gpt-2", "\xc3", "\xc3");
    check_split("smollm",
                "\xed\xa0\x80"
                "1",
                "\xed\xa0\x80|1"); // a surrogate
    check_split("default", "\xf4\x90\x80\x80", "\xf4\x90\x80\x80");
    check_split("default", "\xe0\x80\x80", "\xe0\x80\x80"); // overlong
}

static void test_nothing_is_lost(void **state)
{
    (void)state;
    static const char *const schemes[] = {"gpt-2", "smollm", "default"};
    uint64_t random = check_seed();
    for (int round = 0; round < 300; round++) {
        size_t bytes = check_random(&random) % 120;
        struct check_edge edge = check_edge_create(bytes);
        for (size_t i = 0; i < bytes; i++) {
            edge.data[i] = (uint8_t)check_random(&random);
        }
        struct pretokenizer *pretokenizer = create(schemes[round % 3]);
        struct words words = {.bytes = 0};
        const struct pretokenizer_sink sink = {&words, take_word};
        CHECK_OK(pretokenizer_split(pretokenizer, (const char *)edge.data, bytes, &sink));
        assert_int_equal(words.bytes, bytes);
        pretokenizer_destroy(pretokenizer);
        check_edge_destroy(&edge);
    }
}

static void test_failing_sink_ends_it(void **state)
{
    (void)state;
    struct pretokenizer *pretokenizer = create("gpt-2");
    struct words words = {.fail_after = 2};
    const struct pretokenizer_sink sink = {&words, take_word};
    assert_int_equal(pretokenizer_split(pretokenizer, "a b c d", 7, &sink), STATUS_BUSY);
    assert_string_equal(words.joined, "a| b");
    pretokenizer_destroy(pretokenizer);
}

static void test_unknown_is_named(void **state)
{
    (void)state;
    struct pretokenizer *pretokenizer = NULL;
    struct reason reason = {0};
    assert_int_equal(
        pretokenizer_create((struct gguf_string){"tekken", 6}, "test.gguf", &pretokenizer, &reason),
        STATUS_UNSUPPORTED);
    assert_non_null(strstr(reason.text, "test.gguf: the pre-tokenizer tekken is not supported"));
    assert_non_null(strstr(reason.text, "gpt-2, smollm, default"));
    assert_null(pretokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schemes),
        cmocka_unit_test(test_unicode),
        cmocka_unit_test(test_invalid_utf8_stands_alone),
        cmocka_unit_test(test_nothing_is_lost),
        cmocka_unit_test(test_failing_sink_ends_it),
        cmocka_unit_test(test_unknown_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
