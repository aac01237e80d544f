// SPDX-License-Identifier: Apache-2.0
// At stake: every byte that comes from another process passes this reader. Hostile inputs end at an
// unmapped page, so reading one byte too many is a crash; every cut and many random damages of good
// messages must give an answer, and lengths that promise gigabytes must cost nothing.
#include "tests/check.h"

#include "proto/codec.h"
#include "proto/codec_reader.h"

// Parses `bytes` at the end of a mapped page and reads every field of every kind from it.
static enum status parse(const void *data, size_t bytes)
{
    struct check_edge edge = check_edge_create(bytes);
    if (bytes > 0) {
        memcpy(edge.data, data, bytes);
    }
    struct codec_reader reader;
    struct codec_map map;
    codec_reader_init(&reader, edge.data, bytes, &map);
    enum status status = codec_reader_status(&reader, NULL);
    static const char *const keys[] = {"a", "b", "c", "d", "e", "list", "map", "x", ""};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        uint64_t number;
        int64_t integer;
        double real;
        bool flag;
        char text[8];
        const char *view;
        const uint8_t *bin;
        size_t length;
        uint32_t *words = NULL;
        uint32_t count;
        struct codec_map inner;
        struct codec_array array;
        (void)codec_opt_u64(&map, keys[i], &number);
        reader.status = STATUS_OK; // go on after an error: more is read that way
        (void)codec_opt_i64(&map, keys[i], &integer);
        reader.status = STATUS_OK;
        (void)codec_opt_f64(&map, keys[i], &real);
        reader.status = STATUS_OK;
        (void)codec_opt_bool(&map, keys[i], &flag);
        reader.status = STATUS_OK;
        (void)codec_opt_text(&map, keys[i], text, sizeof(text));
        reader.status = STATUS_OK;
        (void)codec_opt_text_bytes(&map, keys[i], SIZE_MAX, &view, &length);
        reader.status = STATUS_OK;
        (void)codec_opt_bin(&map, keys[i], SIZE_MAX, &bin, &length);
        reader.status = STATUS_OK;
        if (codec_get_u32s(&map, keys[i], SIZE_MAX, &words, &count)) {
            free(words);
        }
        reader.status = STATUS_OK;
        (void)codec_opt_map(&map, keys[i], &inner);
        reader.status = STATUS_OK;
        if (codec_opt_array(&map, keys[i], UINT32_MAX, &array)) {
            while (codec_next_map(&array, &inner) || array.count > 0) {
                reader.status = STATUS_OK;
            }
        }
        reader.status = STATUS_OK;
    }
    check_edge_destroy(&edge);
    return status;
}

static void write_example(struct codec_writer *writer)
{
    codec_writer_init(writer, 1 << 20);
    codec_put_u64(writer, "a", UINT64_MAX);
    codec_put_i64(writer, "b", INT64_MIN);
    codec_put_f64(writer, "c", 0.1);
    codec_put_bool(writer, "d", true);
    codec_put_text(writer, "e", "h\xc3\xa9llo");
    const uint32_t words[] = {1, 2, 0xffffffff};
    codec_put_u32s(writer, "words", words, 3);
    codec_put_array(writer, "list");
    for (uint64_t i = 0; i < 20; i++) {
        codec_put_map(writer, NULL);
        codec_put_u64(writer, "i", i);
        codec_end(writer);
    }
    codec_end(writer);
    codec_put_map(writer, "map");
    codec_put_bin(writer, "x", "\0\1\2", 3);
    codec_put_array(writer, "numbers");
    codec_put_f64(writer, NULL, 1.5);
    codec_put_i64(writer, NULL, -3);
    codec_end(writer);
    codec_end(writer);
    codec_put_array(writer, "texts");
    codec_put_text(writer, NULL, "");
    codec_put_text(writer, NULL, "two");
    codec_end(writer);
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    struct codec_writer writer;
    const uint8_t *data;
    size_t bytes;
    write_example(&writer);
    CHECK_OK(codec_writer_finish(&writer, &data, &bytes));
    struct codec_reader reader;
    struct codec_map map;
    codec_reader_init(&reader, data, bytes, &map);
    uint64_t a = 0;
    int64_t b = 0;
    double c = 0;
    bool d = false;
    char e[7];
    assert_true(codec_get_u64(&map, "a", &a) && a == UINT64_MAX);
    assert_true(codec_get_i64(&map, "b", &b) && b == INT64_MIN);
    assert_true(codec_get_f64(&map, "c", &c) && c == 0.1);
    assert_true(codec_get_bool(&map, "d", &d) && d);
    assert_true(codec_get_text(&map, "e", e, sizeof(e)));
    assert_string_equal(e, "h\xc3\xa9llo");
    uint32_t *words;
    uint32_t count;
    assert_true(codec_get_u32s(&map, "words", 3, &words, &count));
    assert_true(count == 3 && words[2] == 0xffffffff);
    free(words);
    struct codec_array list;
    struct codec_map row;
    assert_true(codec_get_array(&map, "list", 20, &list));
    for (uint64_t i = 0; i < 20; i++) {
        uint64_t value = 99;
        assert_true(codec_next_map(&list, &row) && codec_get_u64(&row, "i", &value) && value == i);
    }
    assert_false(codec_next_map(&list, &row));
    struct codec_map inner;
    const uint8_t *bin;
    size_t bin_bytes;
    uint8_t fixed[3];
    assert_true(codec_get_map(&map, "map", &inner));
    assert_true(codec_get_bin(&inner, "x", 3, &bin, &bin_bytes) && bin_bytes == 3 && bin[2] == 2);
    assert_true(codec_get_fixed(&inner, "x", fixed, 3) && fixed[1] == 1);
    assert_true(codec_get_array(&inner, "numbers", 2, &list));
    assert_true(codec_next_f64(&list, &c) && c == 1.5);
    assert_true(codec_next_f64(&list, &c) && c == -3);
    const char *text;
    size_t text_bytes;
    assert_true(codec_get_array(&map, "texts", 2, &list));
    assert_true(codec_next_text(&list, 3, &text, &text_bytes) && text_bytes == 0);
    assert_true(codec_next_text(&list, 3, &text, &text_bytes) && text_bytes == 3);
    assert_true(codec_has(&map, "d") && !codec_has(&map, "dd") && !codec_has(&map, ""));
    CHECK_OK(codec_reader_status(&reader, NULL));
    codec_writer_free(&writer);
}

static void every_width_of_integer_is_read(void **state)
{
    (void)state;
    static const int64_t values[] = {
        0,         1,  127, 128, 255,  256,  65535,  65536,  INT32_MAX, UINT32_MAX,
        INT64_MAX, -1, -32, -33, -128, -129, -32768, -32769, INT32_MIN, (int64_t)INT32_MIN - 1,
        INT64_MIN};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        struct codec_writer writer;
        const uint8_t *data;
        size_t bytes;
        codec_writer_init(&writer, 100);
        codec_put_i64(&writer, "v", values[i]);
        CHECK_OK(codec_writer_finish(&writer, &data, &bytes));
        struct codec_reader reader;
        struct codec_map map;
        codec_reader_init(&reader, data, bytes, &map);
        int64_t value = 42;
        uint64_t number = 42;
        assert_true(codec_get_i64(&map, "v", &value));
        assert_true(value == values[i]);
        assert_int_equal(codec_get_u64(&map, "v", &number), values[i] >= 0);
        assert_true(number == (values[i] >= 0 ? (uint64_t)values[i] : 42));
        codec_writer_free(&writer);
    }
}

static void every_cut_is_refused(void **state)
{
    (void)state;
    struct codec_writer writer;
    const uint8_t *data;
    size_t bytes;
    write_example(&writer);
    CHECK_OK(codec_writer_finish(&writer, &data, &bytes));
    for (size_t length = 0; length < bytes; length++) {
        assert_int_equal(parse(data, length), STATUS_INVALID);
    }
    CHECK_OK(parse(data, bytes));
    uint8_t *longer = calloc(1, bytes + 1); // and anything behind the map
    memcpy(longer, data, bytes);
    assert_int_equal(parse(longer, bytes + 1), STATUS_INVALID);
    free(longer);
    codec_writer_free(&writer);
}

static void damaged_messages_never_crash(void **state)
{
    (void)state;
    struct codec_writer writer;
    const uint8_t *data;
    size_t bytes;
    write_example(&writer);
    CHECK_OK(codec_writer_finish(&writer, &data, &bytes));
    uint8_t *copy = malloc(bytes);
    uint64_t seed = check_seed();
    for (int round = 0; round < 20000; round++) {
        memcpy(copy, data, bytes);
        for (uint64_t flips = 1 + check_random(&seed) % 4; flips > 0; flips--) {
            copy[check_random(&seed) % bytes] = (uint8_t)check_random(&seed);
        }
        (void)parse(copy, bytes);
    }
    free(copy);
    codec_writer_free(&writer);
}

struct hostile {
    const char *name;
    const char *data;
    size_t bytes;
};

static void hostile_inputs_are_refused(void **state)
{
    (void)state;
#define HOSTILE(name, text)                                                                        \
    {                                                                                              \
        name, text, sizeof(text) - 1                                                               \
    }
    static const struct hostile inputs[] = {
        HOSTILE("nothing", ""),
        HOSTILE("nil", "\xc0"),
        HOSTILE("never used", "\xc1"),
        HOSTILE("array", "\x90"),
        HOSTILE("map of 2^32-1", "\xdf\xff\xff\xff\xff"),
        HOSTILE("array of 2^32-1 in a map", "\x81\xa1x\xdd\xff\xff\xff\xff"),
        HOSTILE("text of 4 GiB", "\x81\xa1x\xdb\xff\xff\xff\xff"
                                 "abc"),
        HOSTILE("binary of 4 GiB", "\x81\xa1x\xc6\xff\xff\xff\xff"
                                   "abc"),
        HOSTILE("extension of 4 GiB", "\x81\xa1x\xc9\xff\xff\xff\xff\x01"
                                      "abc"),
        HOSTILE("map of 65,535 in 3 bytes", "\xde\xff\xff"),
        HOSTILE("key is a number", "\x81\x01\x01"),
        HOSTILE("key is a binary", "\x81\xc4\x01x\x01"),
        HOSTILE("key without value", "\x81\xa1x"),
        HOSTILE("cut number", "\x81\xa1x\xcf\0\0\0\0\0\0\0"),
        HOSTILE("cut real", "\x81\xa1x\xcb\0\0\0\0\0\0\0"),
        HOSTILE("cut extension", "\x81\xa1x\xd8\x01"
                                 "0123456789abcde"),
        HOSTILE("two maps", "\x80\x80"),
        HOSTILE("number inside with a bad key", "\x81\xa1x\x81\x01\x01"),
    };
    for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++) {
        if (parse(inputs[i].data, inputs[i].bytes) != STATUS_INVALID) {
            fail_msg("%s was accepted", inputs[i].name);
        }
    }
    CHECK_OK(parse("\x80", 1));
    CHECK_OK(parse("\x81\xa1x\xd6\x01"
                   "0123",
                   9)); // an extension is skipped like any unknown field
}

static void depth_is_bounded(void **state)
{
    (void)state;
    for (size_t depth = 1; depth <= 100000; depth = depth < 12 ? depth + 1 : depth * 10) {
        // depth maps inside one another: {"x": {"x": ... {} }}
        size_t bytes = 3 * (depth - 1) + 1;
        char *data = malloc(bytes);
        for (size_t i = 0; i + 1 < depth; i++) {
            memcpy(data + 3 * i, "\x81\xa1x", 3);
        }
        data[bytes - 1] = (char)0x80;
        assert_int_equal(parse(data, bytes), depth <= CODEC_DEPTH_MAX ? STATUS_OK : STATUS_INVALID);
        free(data);
        char *arrays = malloc(depth + 3); // {"x": [[[...]]]}
        memcpy(arrays, "\x81\xa1x", 3);
        memset(arrays + 3, 0x91, depth);
        arrays[depth + 2] = (char)0x90;
        assert_int_equal(parse(arrays, depth + 3),
                         depth + 1 <= CODEC_DEPTH_MAX ? STATUS_OK : STATUS_INVALID);
        free(arrays);
    }
}

static void wrong_types_and_ranges_are_named(void **state)
{
    (void)state;
    struct codec_writer writer;
    const uint8_t *data;
    size_t bytes;
    codec_writer_init(&writer, 1000);
    codec_put_u64(&writer, "number", 10);
    codec_put_i64(&writer, "negative", -1);
    codec_put_text(&writer, "text", "12345");
    codec_put_f64(&writer, "nan", __builtin_nan(""));
    codec_put_bin(&writer, "bin", "12345", 5);
    codec_put_array(&writer, "array");
    codec_put_u64(&writer, NULL, 1);
    codec_end(&writer);
    CHECK_OK(codec_writer_finish(&writer, &data, &bytes));
    struct codec_reader reader;
    struct codec_map map;
    struct reason reason;
    uint32_t number = 7;
    uint64_t wide = 7;
    char text[8];
    double real;
    const uint8_t *bin;
    size_t length;
    uint32_t *words;
    struct codec_array array;
    struct codec_map inner;
#define EXPECT_PROBLEM(call, problem)                                                              \
    do {                                                                                           \
        codec_reader_init(&reader, data, bytes, &map);                                             \
        assert_false(call);                                                                        \
        assert_int_equal(codec_reader_status(&reader, &reason), STATUS_INVALID);                   \
        assert_string_equal(reason.text, "malformed message: " problem);                           \
    } while (0)
    EXPECT_PROBLEM(codec_get_u32(&map, "number", 11, 20, &number), "number: is out of range");
    EXPECT_PROBLEM(codec_get_u32(&map, "number", 0, 9, &number), "number: is out of range");
    EXPECT_PROBLEM(codec_opt_u32(&map, "number", 0, 9, &number), "number: is out of range");
    EXPECT_PROBLEM(codec_get_u64(&map, "negative", &wide),
                   "negative: is not a number of 0 or more");
    EXPECT_PROBLEM(codec_get_u64(&map, "text", &wide), "text: is not a number of 0 or more");
    EXPECT_PROBLEM(codec_get_u64(&map, "absent", &wide), "absent: is missing");
    EXPECT_PROBLEM(codec_get_text(&map, "text", text, 5), "text: is too long");
    EXPECT_PROBLEM(codec_get_text(&map, "bin", text, 8), "bin: is not text in UTF-8 without NUL");
    EXPECT_PROBLEM(codec_get_f64(&map, "nan", &real), "nan: is not finite");
    EXPECT_PROBLEM(codec_get_bin(&map, "bin", 4, &bin, &length), "bin: is too long");
    EXPECT_PROBLEM(codec_get_bin(&map, "text", 9, &bin, &length), "text: is not binary");
    EXPECT_PROBLEM(codec_get_fixed(&map, "bin", text, 6), "bin: is too short");
    EXPECT_PROBLEM(codec_get_u32s(&map, "bin", 9, &words, &number),
                   "bin: is not a whole number of words");
    EXPECT_PROBLEM(codec_get_u32s(&map, "bin", 1, &words, &number), "bin: is too long");
    EXPECT_PROBLEM(codec_get_array(&map, "array", 0, &array), "array: has too many elements");
    EXPECT_PROBLEM(codec_get_map(&map, "array", &inner), "array: is not a map");
    EXPECT_PROBLEM(codec_get_array(&map, "bin", 9, &array), "bin: is not an array");
    EXPECT_PROBLEM(codec_get_array(&map, "array", 1, &array) && codec_next_map(&array, &inner),
                   "an array's element is not a map");
    assert_true(number == 7 && wide == 7); // nothing was written
    codec_reader_init(&reader, data, bytes, &map);
    assert_false(codec_opt_u64(&map, "absent", &wide)); // no error
    CHECK_OK(codec_reader_status(&reader, NULL));
    codec_reader_fail(&reader, "chosen: is bad"); // the first error stays, and ends all reading
    assert_false(codec_get_u64(&map, "number", &wide));
    assert_int_equal(codec_reader_status(&reader, &reason), STATUS_INVALID);
    assert_string_equal(reason.text, "malformed message: chosen: is bad");
    codec_writer_free(&writer);
}

static bool text_accepted(const char *text, size_t bytes)
{
    struct codec_writer writer;
    const uint8_t *data;
    size_t data_bytes;
    codec_writer_init(&writer, 1000);
    codec_put_text_bytes(&writer, "t", text, bytes);
    CHECK_OK(codec_writer_finish(&writer, &data, &data_bytes));
    struct codec_reader reader;
    struct codec_map map;
    const char *view;
    size_t length;
    codec_reader_init(&reader, data, data_bytes, &map);
    bool accepted = codec_get_text_bytes(&map, "t", 100, &view, &length);
    assert_true(!accepted || (length == bytes && memcmp(view, text, bytes) == 0));
    codec_writer_free(&writer);
    return accepted;
}

static void text_is_utf8_without_nul(void **state)
{
    (void)state;
    static const char *const good[] = {"",
                                       "plain",
                                       "\xc2\x80",
                                       "\xdf\xbf",
                                       "\xe0\xa0\x80",
                                       "\xed\x9f\xbf",
                                       "\xee\x80\x80",
                                       "\xef\xbf\xbf",
                                       "\xf0\x90\x80\x80",
                                       "\xf4\x8f\xbf\xbf",
                                       "a\xf0\x9f\x98\x80z"};
    static const char *const bad[] = {"\x80",
                                      "\xbf",
                                      "\xc0\x80",
                                      "\xc1\xbf",
                                      "\xc2",
                                      "\xc2z",
                                      "\xe0\x9f\xbf",
                                      "\xe0\xa0",
                                      "\xed\xa0\x80",
                                      "\xed\xbf\xbf",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf0\x90\x80",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xff",
                                      "ok\xfe"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_true(text_accepted(good[i], strlen(good[i])));
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_false(text_accepted(bad[i], strlen(bad[i])));
    }
    assert_false(text_accepted("a\0b", 3));
}

static void a_message_is_bounded(void **state)
{
    (void)state;
    struct codec_writer writer;
    const uint8_t *data;
    size_t bytes;
    char text[200] = {0};
    memset(text, 'x', sizeof(text) - 1);
    for (size_t max_bytes = 0; max_bytes < 220; max_bytes++) {
        codec_writer_init(&writer, max_bytes);
        codec_put_text(&writer, "key", text);
        codec_put_array(&writer, "list");
        codec_end(&writer);
        enum status status = codec_writer_finish(&writer, &data, &bytes);
        // 5 map + 4 key + 2 + 199 text + 5 key + 5 array
        assert_int_equal(status, max_bytes < 220 ? STATUS_REFUSED : STATUS_OK);
        codec_writer_free(&writer);
    }
    codec_writer_init(&writer, 220);
    codec_put_text(&writer, "key", text);
    codec_put_array(&writer, "list");
    codec_end(&writer);
    CHECK_OK(codec_writer_finish(&writer, &data, &bytes));
    assert_int_equal(bytes, 220);
    codec_writer_free(&writer);
    codec_writer_free(&(struct codec_writer){0});
}

static void unknown_and_repeated_fields(void **state)
{
    (void)state;
    // {"a": 1, "new": [{}, nil], "a": 2}
    static const char message[] = "\x83\xa1"
                                  "a\x01\xa3new\x92\x80\xc0\xa1"
                                  "a\x02";
    struct codec_reader reader;
    struct codec_map map;
    uint64_t a = 0;
    codec_reader_init(&reader, message, sizeof(message) - 1, &map);
    assert_true(codec_get_u64(&map, "a", &a));
    assert_int_equal(a, 1);
    CHECK_OK(codec_reader_status(&reader, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(every_width_of_integer_is_read),
        cmocka_unit_test(every_cut_is_refused),
        cmocka_unit_test(damaged_messages_never_crash),
        cmocka_unit_test(hostile_inputs_are_refused),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(wrong_types_and_ranges_are_named),
        cmocka_unit_test(text_is_utf8_without_nul),
        cmocka_unit_test(a_message_is_bounded),
        cmocka_unit_test(unknown_and_repeated_fields),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
