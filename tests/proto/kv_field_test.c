// SPDX-License-Identifier: Apache-2.0
// At stake: a field that is written one way and read another, or a range that only one side keeps.
// A struct with one field of each kind goes there and back, then each field out of its range, in
// both directions.
#include "proto/kv_field.h"
#include "proto/kv_message.h"
#include "tests/check.h"

struct inner {
    uint32_t number;
};

struct sample {
    uint32_t number; // 2..9
    uint64_t large;
    double real;
    bool flag;
    uint8_t fixed[4];
    char chars[8];
    const char *text;     // at most 5
    const char *may_lack; // at most 5
    const void *bin;      // at most 6
    uint32_t bin_bytes;
    const uint32_t *words; // at most 3
    uint32_t word_count;
    struct kv_slot_ref *slots; // at most 2
    uint32_t slot_count;
    struct inner nested;
    bool has_maybe;
    struct inner maybe;
    uint32_t item_count;
    struct inner items[2];
    struct inner *rows; // at most 2
    uint32_t row_count;
};

static const struct kv_field_spec inner_fields[] = {
    {.key = "number", .kind = FIELD_U32, .offset = 0, .size = 4, .min = 0, .max = 100},
};
static const struct kv_table inner_table = {inner_fields, 1, sizeof(struct inner)};

#define AT(member)                                                                                 \
    .offset = offsetof(struct sample, member), .size = sizeof(((struct sample *)0)->member)
#define COUNT(member) .count_offset = offsetof(struct sample, member)

static const struct kv_field_spec fields[] = {
    {.key = "number", .kind = FIELD_U32, AT(number), .min = 2, .max = 9},
    {.key = "large", .kind = FIELD_U64, AT(large)},
    {.key = "real", .kind = FIELD_F64, AT(real)},
    {.key = "flag", .kind = FIELD_BOOL, AT(flag)},
    {.key = "fixed", .kind = FIELD_FIXED, AT(fixed)},
    {.key = "chars", .kind = FIELD_CHARS, AT(chars)},
    {.key = "text", .kind = FIELD_TEXT, AT(text), .max = 5},
    {.key = "may_lack", .kind = FIELD_TEXT, .optional = true, AT(may_lack), .max = 5},
    {.key = "bin", .kind = FIELD_BIN, AT(bin), COUNT(bin_bytes), .max = 6},
    {.key = "words", .kind = FIELD_U32S, AT(words), COUNT(word_count), .max = 3},
    {.key = "slots", .kind = FIELD_SLOTS, AT(slots), COUNT(slot_count), .max = 2},
    {.key = "nested", .kind = FIELD_STRUCT, AT(nested), .nested = &inner_table},
    {.key = "maybe", .kind = FIELD_PRESENT, AT(maybe), COUNT(has_maybe), .nested = &inner_table},
    {.key = "items",
     .kind = FIELD_ITEMS,
     AT(items),
     COUNT(item_count),
     .max = 2,
     .nested = &inner_table},
    {.key = "rows",
     .kind = FIELD_ROWS,
     AT(rows),
     COUNT(row_count),
     .max = 2,
     .nested = &inner_table},
};
static const struct kv_table table = {fields, sizeof(fields) / sizeof(*fields),
                                      sizeof(struct sample)};

static const uint32_t words[] = {1, 0xffffffff, 3, 4};
static struct kv_slot_ref slots[] = {{4, KV_SOURCE_DISK, UINT64_MAX}, {5, KV_SOURCE_NEW, 0}, {0}};
static struct inner rows[] = {{7}, {8}, {9}};

static struct sample sample_make(void)
{
    return (struct sample){
        .number = 5,
        .large = UINT64_MAX,
        .real = -1.5,
        .flag = true,
        .fixed = {1, 2, 3, 4},
        .chars = "seven77",
        .text = "12345",
        .bin = "ab\0cd",
        .bin_bytes = 5,
        .words = words,
        .word_count = 3,
        .slots = slots,
        .slot_count = 2,
        .nested = {1},
        .has_maybe = true,
        .maybe = {2},
        .item_count = 2,
        .items = {{3}, {4}},
        .rows = rows,
        .row_count = 2,
    };
}

// Encodes with one table and decodes with another.
static bool pass(const struct kv_table *write, const struct kv_table *read,
                 const struct sample *from, struct sample *to)
{
    struct codec_writer writer;
    struct codec_reader reader;
    struct codec_map map;
    const uint8_t *data;
    size_t bytes;
    codec_writer_init(&writer, 1 << 20);
    CHECK_OK(kv_table_encode(write, from, &writer));
    CHECK_OK(codec_writer_finish(&writer, &data, &bytes));
    codec_reader_init(&reader, data, bytes, &map);
    memset(to, 0, sizeof(*to));
    bool good = kv_table_decode(read, &map, to);
    assert_int_equal(codec_reader_status(&reader, NULL) == STATUS_OK, good);
    codec_writer_free(&writer);
    return good;
}

static void every_kind_goes_there_and_back(void **state)
{
    (void)state;
    struct sample from = sample_make(), to;
    assert_true(pass(&table, &table, &from, &to));
    assert_int_equal(to.number, 5);
    assert_true(to.large == UINT64_MAX);
    assert_true(to.real == -1.5);
    assert_true(to.flag);
    assert_memory_equal(to.fixed, from.fixed, 4);
    assert_string_equal(to.chars, "seven77");
    assert_string_equal(to.text, "12345");
    assert_null(to.may_lack);
    assert_int_equal(to.bin_bytes, 5);
    assert_memory_equal(to.bin, "ab\0cd", 5);
    assert_int_equal(to.word_count, 3);
    assert_memory_equal(to.words, words, 12);
    assert_int_equal(to.slot_count, 2);
    assert_memory_equal(to.slots, slots, sizeof(slots[0]) * 2);
    assert_int_equal(to.nested.number, 1);
    assert_true(to.has_maybe);
    assert_int_equal(to.maybe.number, 2);
    assert_int_equal(to.item_count, 2);
    assert_int_equal(to.items[1].number, 4);
    assert_int_equal(to.row_count, 2);
    assert_int_equal(to.rows[1].number, 8);
    kv_table_free(&table, &to);
    assert_null(to.text);
    kv_table_free(&table, &to); // twice is fine
    from.has_maybe = false;
    from.may_lack = "abc";
    from.word_count = from.slot_count = from.item_count = from.row_count = from.bin_bytes = 0;
    assert_true(pass(&table, &table, &from, &to));
    assert_false(to.has_maybe);
    assert_string_equal(to.may_lack, "abc");
    assert_int_equal(to.row_count + to.word_count + to.slot_count + to.bin_bytes, 0);
    kv_table_free(&table, &to);
}

static void a_writer_keeps_the_ranges(void **state)
{
    (void)state;
    for (int fault = 0; fault < 10; fault++) {
        struct sample sample = sample_make();
        struct codec_writer writer;
        switch (fault) {
        case 0:
            sample.number = 1;
            break;
        case 1:
            sample.number = 10;
            break;
        case 2:
            sample.text = "123456";
            break;
        case 3:
            sample.text = NULL;
            break;
        case 4:
            sample.bin_bytes = 7;
            break;
        case 5:
            sample.word_count = 4;
            break;
        case 6:
            sample.slot_count = 3;
            break;
        case 7:
            sample.item_count = 3;
            break;
        case 8:
            sample.row_count = 3;
            break;
        default:
            sample.nested.number = 101;
            break;
        }
        codec_writer_init(&writer, 1 << 20);
        assert_int_equal(kv_table_encode(&table, &sample, &writer), STATUS_INVALID);
        codec_writer_free(&writer);
    }
}

// What a writer with wider ranges says is refused by a reader with these.
static void a_reader_keeps_the_ranges(void **state)
{
    (void)state;
    struct sample from = sample_make(), to;
    for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
        struct kv_field_spec narrow[sizeof(fields) / sizeof(*fields)];
        memcpy(narrow, fields, sizeof(fields));
        switch (fields[i].kind) {
        case FIELD_U32:
            narrow[i].max = 4;
            break;
        case FIELD_FIXED:
            narrow[i].size = 3;
            break;
        case FIELD_CHARS:
            narrow[i].size = 7; // no room for the NUL
            break;
        case FIELD_TEXT:
        case FIELD_BIN:
            narrow[i].max = 4;
            break;
        case FIELD_U32S:
        case FIELD_SLOTS:
        case FIELD_ITEMS:
        case FIELD_ROWS:
            narrow[i].max = 1;
            break;
        default: // of another name: it is missing
            narrow[i].key = "other";
            break;
        }
        const struct kv_table read = {narrow, table.count, table.bytes};
        from.may_lack = "abcde";
        bool good = pass(&table, &read, &from, &to);
        // What may be absent is absent under another name.
        assert_int_equal(good, fields[i].kind == FIELD_PRESENT);
        kv_table_free(&read, &to);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_goes_there_and_back),
        cmocka_unit_test(a_writer_keeps_the_ranges),
        cmocka_unit_test(a_reader_keeps_the_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
