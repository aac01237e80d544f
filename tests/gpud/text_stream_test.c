// SPDX-License-Identifier: Apache-2.0
// At stake: an app never sees half a character, a byte that is no UTF-8, or any part of a stop
// string, however tokens split the text; and joined pieces are the whole text. Random bytes and
// stop strings of a small alphabet are compared with a reference that sees all bytes at once.
#include "gpud/text_stream.h"

#include "proto/utf8.h"
#include "tests/check.h"

enum { BYTES_MAX = 400, TEXT_MAX = 3 * BYTES_MAX + 1 };

// ---- the reference: all bytes at once

// Length of the longest prefix of `bytes` that could begin a character, at least 1.
static size_t maximal_part(const uint8_t *bytes, size_t count)
{
    static const char tails[4] = "\x80\x90\xa0\xbf";
    size_t longest = 1;
    for (size_t taken = 2; taken <= 3 && taken <= count; taken++) {
        for (int i = 0; i < 64; i++) { // is it the start of a character, for some tail?
            char candidate[4];
            memcpy(candidate, bytes, taken);
            candidate[taken] = tails[i % 4];
            candidate[3] = taken == 3 ? tails[i % 4] : tails[i / 4 % 4];
            size_t length = utf8_length(candidate, 4);
            if (length > taken) {
                longest = taken;
            }
        }
    }
    return longest;
}

static int could_begin(const uint8_t *bytes, size_t count)
{
    if (count > 3 || bytes[0] < 0xc2 || bytes[0] > 0xf4) {
        return 0;
    }
    return count == 1 || maximal_part(bytes, count) == count;
}

// Replaces what is no UTF-8; the incomplete tail is dropped.
static size_t reference_decode(const uint8_t *bytes, size_t count, char *out)
{
    size_t written = 0;
    for (size_t i = 0; i < count;) {
        size_t length = utf8_length((const char *)bytes + i, count - i);
        if (length > 0) {
            memcpy(out + written, bytes + i, length);
            written += length;
            i += length;
        } else if (could_begin(bytes + i, count - i)) {
            return written;
        } else {
            memcpy(out + written, "\xef\xbf\xbd", 3);
            written += 3;
            i += maximal_part(bytes + i, count - i);
        }
    }
    return written;
}

// Cuts at the stop string that ends first, the longest of those.
static size_t reference_stop(const char *text, size_t bytes, const char *const *stops,
                             uint32_t stop_count, int *out_stopped)
{
    *out_stopped = 0;
    for (size_t end = 1; end <= bytes; end++) {
        size_t longest = 0;
        for (uint32_t i = 0; i < stop_count; i++) {
            size_t length = strlen(stops[i]);
            if (length <= end && length > longest &&
                memcmp(text + end - length, stops[i], length) == 0) {
                longest = length;
            }
        }
        if (longest > 0) {
            *out_stopped = 1;
            return end - longest;
        }
    }
    return bytes;
}

// ---- the stream

static void check_valid(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes;) {
        size_t length = utf8_length(text + i, bytes - i);
        assert_true(length > 0);
        i += length;
    }
}

// Pushes bytes in pieces of 1..piece_max (random), checking each; returns the whole text's length.
static size_t stream_all(struct text_stream *stream, const uint8_t *bytes, size_t count,
                         size_t piece_max, uint64_t *seed, char *out)
{
    char piece[3 * (BYTES_MAX + 1) + LIMIT_STOP_BYTES + 4];
    size_t written = 0;
    for (size_t i = 0; i < count;) {
        size_t taken = 1 + check_random(seed) % piece_max;
        taken = taken > count - i ? count - i : taken;
        size_t made = text_stream_push(stream, bytes + i, taken, piece);
        assert_true(made <= text_stream_bound(taken));
        check_valid(piece, made);
        memcpy(out + written, piece, made);
        written += made;
        i += taken;
    }
    size_t made = text_stream_finish(stream, piece);
    check_valid(piece, made);
    memcpy(out + written, piece, made);
    return written + made;
}

static void check_case(const uint8_t *bytes, size_t count, const char *const *stops,
                       uint32_t stop_count, uint64_t *seed)
{
    char expected[TEXT_MAX];
    int stopped = 0;
    size_t decoded = reference_decode(bytes, count, expected);
    size_t expected_bytes = reference_stop(expected, decoded, stops, stop_count, &stopped);
    static const size_t piece_maxes[] = {1, 2, 5, BYTES_MAX};
    for (int i = 0; i < 4; i++) {
        struct text_stream stream;
        char text[TEXT_MAX];
        text_stream_init(&stream, stops, stop_count);
        size_t text_bytes = stream_all(&stream, bytes, count, piece_maxes[i], seed, text);
        assert_int_equal(text_bytes, expected_bytes);
        assert_memory_equal(text, expected, expected_bytes);
        assert_int_equal(text_stream_stopped(&stream), stopped);
    }
}

static void random_bytes_equal_the_reference(void **state)
{
    (void)state;
    // Leads and tails of every kind beside a few letters.
    static const uint8_t alphabet[] = {'a',  'b',  'a',  'b',  0xc3, 0xa9, 0xe2, 0x82, 0xac, 0xf0,
                                       0x9f, 0x98, 0x80, 0xed, 0xa0, 0xe0, 0xf4, 0x90, 0xc0, 0xff};
    static const char *const stop_texts[] = {"ab", "abab", "aab", "b",  "é",   "aé",
                                             "€€", "bb",   "aba", "😀b", "abba"};
    uint64_t seed = check_seed();
    for (int round = 0; round < 3000; round++) {
        uint8_t bytes[BYTES_MAX];
        size_t count = check_random(&seed) % 60;
        size_t letters = check_random(&seed) % 2 ? 4 : sizeof(alphabet);
        for (size_t i = 0; i < count; i++) {
            bytes[i] = alphabet[check_random(&seed) % letters];
        }
        const char *stops[3];
        uint32_t stop_count = (uint32_t)(check_random(&seed) % 4);
        for (uint32_t i = 0; i < stop_count; i++) {
            stops[i] = stop_texts[check_random(&seed) % 11];
        }
        check_case(bytes, count, stops, stop_count, &seed);
    }
}

static void whole_text_comes_through_at_every_split(void **state)
{
    (void)state;
    static const char text[] = "naïve — 数学 😀 e\xcc\x81!";
    uint64_t seed = 1;
    check_case((const uint8_t *)text, sizeof(text) - 1, NULL, 0, &seed);
    for (size_t split = 0; split < sizeof(text); split++) {
        struct text_stream stream;
        char out[200];
        text_stream_init(&stream, NULL, 0);
        size_t made = text_stream_push(&stream, (const uint8_t *)text, split, out);
        made += text_stream_push(&stream, (const uint8_t *)text + split, sizeof(text) - 1 - split,
                                 out + made);
        assert_int_equal(made, sizeof(text) - 1); // without stop strings nothing whole is held
        assert_memory_equal(out, text, made);
        assert_int_equal(text_stream_finish(&stream, out), 0);
    }
}

static void stop_string_is_found_at_every_split(void **state)
{
    (void)state;
    static const char text[] = "one\n\nUser: two";
    static const char *const stops[] = {"\n\nUser:"};
    for (size_t split = 0; split < sizeof(text); split++) {
        struct text_stream stream;
        char out[600];
        text_stream_init(&stream, stops, 1);
        size_t made = text_stream_push(&stream, (const uint8_t *)text, split, out);
        made += text_stream_push(&stream, (const uint8_t *)text + split, sizeof(text) - 1 - split,
                                 out + made);
        made += text_stream_finish(&stream, out + made);
        assert_int_equal(made, 3);
        assert_memory_equal(out, "one", 3);
        assert_true(text_stream_stopped(&stream));
    }
}

static void held_back_text_comes_when_no_match_completes(void **state)
{
    (void)state;
    static const char *const stops[] = {"<end>"};
    struct text_stream stream;
    char out[600];
    text_stream_init(&stream, stops, 1);
    assert_int_equal(text_stream_push(&stream, (const uint8_t *)"a<en", 4, out), 1);
    assert_int_equal(text_stream_push(&stream, (const uint8_t *)"<e", 2, out), 3);
    assert_memory_equal(out, "<en", 3);
    assert_int_equal(text_stream_finish(&stream, out), 2);
    assert_memory_equal(out, "<e", 2);
    assert_false(text_stream_stopped(&stream));
}

static void longest_stop_strings_fit(void **state)
{
    (void)state;
    char long_stop[LIMIT_STOP_BYTES + 1];
    memset(long_stop, 'x', LIMIT_STOP_BYTES);
    long_stop[LIMIT_STOP_BYTES] = '\0';
    const char *stops[LIMIT_STOP_STRINGS];
    for (int i = 0; i < LIMIT_STOP_STRINGS; i++) {
        stops[i] = long_stop;
    }
    uint8_t bytes[BYTES_MAX];
    memset(bytes, 'x', sizeof(bytes));
    bytes[LIMIT_STOP_BYTES - 1] = 0xc3; // one short, then a character
    bytes[LIMIT_STOP_BYTES] = 0xa9;
    uint64_t seed = 2;
    check_case(bytes, LIMIT_STOP_BYTES + 1, stops, LIMIT_STOP_STRINGS, &seed);
    bytes[LIMIT_STOP_BYTES - 1] = 'x';
    check_case(bytes, LIMIT_STOP_BYTES, stops, LIMIT_STOP_STRINGS, &seed);
}

static void resume_goes_on_within_a_character(void **state)
{
    (void)state;
    static const char text[] = "a😀é";
    for (size_t cut = 0; cut < sizeof(text); cut++) {
        struct text_stream stream;
        char out[600];
        text_stream_init(&stream, NULL, 0);
        size_t made = text_stream_push(&stream, (const uint8_t *)text, cut, out);
        text_stream_init(&stream, NULL, 0); // the session ends here and is taken up again
        text_stream_resume(&stream, (const uint8_t *)text, cut);
        made += text_stream_push(&stream, (const uint8_t *)text + cut, sizeof(text) - 1 - cut,
                                 out + made);
        assert_int_equal(made, sizeof(text) - 1);
        assert_memory_equal(out, text, made);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_bytes_equal_the_reference),
        cmocka_unit_test(whole_text_comes_through_at_every_split),
        cmocka_unit_test(stop_string_is_found_at_every_split),
        cmocka_unit_test(held_back_text_comes_when_no_match_completes),
        cmocka_unit_test(longest_stop_strings_fit),
        cmocka_unit_test(resume_goes_on_within_a_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
