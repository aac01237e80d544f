// SPDX-License-Identifier: Apache-2.0
// The reader: typed look-ups over a message whose structure codec_cursor.c has checked as a whole,
// so that values are known to be there and an index is not needed: maps are small and read once.
#include "proto/codec_reader.h"

#include "proto/codec_cursor.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void reader_fail(struct codec_reader *reader, enum status status, const char *key,
                        const char *what)
{
    if (reader->status != STATUS_OK) {
        return;
    }
    reader->status = status;
    snprintf(reader->problem, sizeof(reader->problem), "%s%s%s", key, key[0] != '\0' ? ": " : "",
             what);
}

void codec_reader_fail(struct codec_reader *reader, const char *problem)
{
    reader_fail(reader, STATUS_INVALID, "", problem);
}

static struct codec_map map_of(struct codec_reader *reader, const struct codec_value *value,
                               const uint8_t *end)
{
    return (struct codec_map){
        .reader = reader, .at = value->body, .end = end, .count = value->length};
}

void codec_reader_init(struct codec_reader *reader, const void *data, size_t bytes,
                       struct codec_map *out_map)
{
    *reader = (struct codec_reader){.status = STATUS_OK};
    *out_map = (struct codec_map){.reader = reader};
    const uint8_t *at = data;
    const uint8_t *end = bytes > 0 ? at + bytes : at;
    const uint8_t *behind = at;
    struct codec_value root;
    if (!codec_cursor_check(&behind, end)) {
        reader_fail(reader, STATUS_INVALID, "", "the message is not well-formed msgpack");
        return;
    }
    bool whole = codec_cursor_read(&at, end, &root);
    assert(whole); // codec_cursor_check saw it
    if (root.kind != CODEC_KIND_MAP || behind != end) {
        reader_fail(reader, STATUS_INVALID, "", "the message is not one map");
        return;
    }
    *out_map = map_of(reader, &root, end);
}

enum status codec_reader_status(const struct codec_reader *reader, struct reason *reason)
{
    if (reader->status != STATUS_OK) {
        return reason_set(reason, reader->status, "", "malformed message: %s", reader->problem);
    }
    return STATUS_OK;
}

// Moves behind a value of a checked message.
static const uint8_t *skip_value(const uint8_t *at, const uint8_t *end)
{
    bool whole = codec_cursor_check(&at, end);
    assert(whole);
    (void)whole;
    return at;
}

static bool find(const struct codec_map *map, const char *key, struct codec_value *out)
{
    if (map->reader->status != STATUS_OK) {
        return false;
    }
    size_t key_bytes = strlen(key);
    const uint8_t *at = map->at;
    for (uint32_t i = 0; i < map->count; i++) {
        struct codec_value name;
        bool whole = codec_cursor_read(&at, map->end, &name);
        assert(whole);
        (void)whole;
        if (name.length == key_bytes && memcmp(name.body, key, key_bytes) == 0) {
            whole = codec_cursor_read(&at, map->end, out);
            assert(whole);
            return true;
        }
        at = skip_value(at, map->end);
    }
    return false;
}

// find, and an error when the field must be there.
static bool require(const struct codec_map *map, const char *key, struct codec_value *out)
{
    if (find(map, key, out)) {
        return true;
    }
    reader_fail(map->reader, STATUS_INVALID, key, "is missing");
    return false;
}

static bool wrong(struct codec_reader *reader, const char *key, const char *what)
{
    reader_fail(reader, STATUS_INVALID, key, what);
    return false;
}

// RFC 3629: shortest encodings only, no surrogates, at most U+10FFFF; and no NUL.
static bool utf8_valid(const uint8_t *at, size_t bytes)
{
    size_t i = 0;
    while (i < bytes) {
        uint8_t lead = at[i];
        if (lead == 0) {
            return false;
        }
        if (lead < 0x80) {
            i++;
            continue;
        }
        size_t more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
        if (lead < 0xc2 || lead > 0xf4 || bytes - i <= more) {
            return false;
        }
        uint32_t code = lead & (0x3fu >> more);
        for (size_t k = 1; k <= more; k++) {
            if ((at[i + k] & 0xc0) != 0x80) {
                return false;
            }
            code = code << 6 | (at[i + k] & 0x3fu);
        }
        bool overlong = (more == 2 && code < 0x800) || (more == 3 && code < 0x10000);
        if (overlong || (code >= 0xd800 && code <= 0xdfff) || code > 0x10ffff) {
            return false;
        }
        i += more + 1;
    }
    return true;
}

// ---- values to results; each is false, with the error kept, when the value does not fit

static bool take_u64(struct codec_reader *reader, const char *key, const struct codec_value *value,
                     uint64_t *out)
{
    if (value->kind != CODEC_KIND_UNSIGNED) {
        return wrong(reader, key, "is not a number of 0 or more");
    }
    *out = value->number;
    return true;
}

static bool take_u32(const struct codec_map *map, const char *key, const struct codec_value *value,
                     const uint32_t *range, uint32_t *out)
{
    uint64_t number;
    if (!take_u64(map->reader, key, value, &number)) {
        return false;
    }
    if (number < range[0] || number > range[1]) {
        return wrong(map->reader, key, "is out of range");
    }
    *out = (uint32_t)number;
    return true;
}

static bool take_i64(const struct codec_map *map, const char *key, const struct codec_value *value,
                     int64_t *out)
{
    bool fits = value->kind == CODEC_KIND_NEGATIVE ||
                (value->kind == CODEC_KIND_UNSIGNED && value->number <= INT64_MAX);
    if (!fits) {
        return wrong(map->reader, key, "is not an integer of 64 bits");
    }
    *out = (int64_t)value->number;
    return true;
}

static bool take_f64(struct codec_reader *reader, const char *key, const struct codec_value *value,
                     double *out)
{
    double number = value->real;
    if (value->kind == CODEC_KIND_UNSIGNED) {
        number = (double)value->number;
    } else if (value->kind == CODEC_KIND_NEGATIVE) {
        number = (double)(int64_t)value->number;
    } else if (value->kind != CODEC_KIND_REAL) {
        return wrong(reader, key, "is not a number");
    }
    if (!isfinite(number)) {
        return wrong(reader, key, "is not finite");
    }
    *out = number;
    return true;
}

static bool take_bool(const struct codec_map *map, const char *key, const struct codec_value *value,
                      bool *out)
{
    if (value->kind != CODEC_KIND_BOOL) {
        return wrong(map->reader, key, "is not true or false");
    }
    *out = value->number != 0;
    return true;
}

static bool take_text(struct codec_reader *reader, const char *key, const struct codec_value *value,
                      size_t max_bytes, const char **out, size_t *out_bytes)
{
    if (value->kind != CODEC_KIND_TEXT || !utf8_valid(value->body, value->length)) {
        return wrong(reader, key, "is not text in UTF-8 without NUL");
    }
    if (value->length > max_bytes) {
        return wrong(reader, key, "is too long");
    }
    *out = (const char *)value->body;
    *out_bytes = value->length;
    return true;
}

static bool copy_text(const struct codec_map *map, const char *key, const struct codec_value *value,
                      char *out, size_t out_bytes)
{
    assert(out_bytes > 0);
    const char *text;
    size_t length;
    if (!take_text(map->reader, key, value, out_bytes - 1, &text, &length)) {
        return false;
    }
    memcpy(out, text, length);
    out[length] = '\0';
    return true;
}

static bool take_bin(const struct codec_map *map, const char *key, const struct codec_value *value,
                     size_t max_bytes, const uint8_t **out, size_t *out_bytes)
{
    if (value->kind != CODEC_KIND_BIN) {
        return wrong(map->reader, key, "is not binary");
    }
    if (value->length > max_bytes) {
        return wrong(map->reader, key, "is too long");
    }
    *out = value->body;
    *out_bytes = value->length;
    return true;
}

static bool take_map(const struct codec_map *map, const char *key, const struct codec_value *value,
                     struct codec_map *out)
{
    if (value->kind != CODEC_KIND_MAP) {
        return wrong(map->reader, key, "is not a map");
    }
    *out = map_of(map->reader, value, map->end);
    return true;
}

static bool take_array(const struct codec_map *map, const char *key,
                       const struct codec_value *value, uint32_t max_count, struct codec_array *out)
{
    if (value->kind != CODEC_KIND_ARRAY) {
        return wrong(map->reader, key, "is not an array");
    }
    if (value->length > max_count) {
        return wrong(map->reader, key, "has too many elements");
    }
    *out = (struct codec_array){
        .reader = map->reader, .at = value->body, .end = map->end, .count = value->length};
    return true;
}

// Words of `word_bytes`, copied out: in the message they are not aligned.
static bool copy_words(const struct codec_map *map, const char *key, size_t word_bytes,
                       size_t max_count, void **out_words, uint32_t *out_count)
{
    struct codec_value value;
    const uint8_t *body;
    size_t bytes;
    size_t max_bytes = max_count > UINT32_MAX / word_bytes ? UINT32_MAX : max_count * word_bytes;
    if (!require(map, key, &value) || !take_bin(map, key, &value, max_bytes, &body, &bytes)) {
        return false;
    }
    if (bytes % word_bytes != 0) {
        return wrong(map->reader, key, "is not a whole number of words");
    }
    void *words = NULL;
    if (bytes > 0) {
        words = malloc(bytes);
        if (words == NULL) {
            reader_fail(map->reader, STATUS_NO_MEMORY, key, "no memory for it");
            return false;
        }
        memcpy(words, body, bytes);
    }
    *out_words = words;
    *out_count = (uint32_t)(bytes / word_bytes);
    return true;
}

bool codec_has(const struct codec_map *map, const char *key)
{
    struct codec_value value;
    return find(map, key, &value);
}

bool codec_get_u64(const struct codec_map *map, const char *key, uint64_t *out)
{
    struct codec_value value;
    return require(map, key, &value) && take_u64(map->reader, key, &value, out);
}

bool codec_get_u32(const struct codec_map *map, const char *key, uint32_t min, uint32_t max,
                   uint32_t *out)
{
    struct codec_value value;
    return require(map, key, &value) &&
           take_u32(map, key, &value, (const uint32_t[]){min, max}, out);
}

bool codec_get_i64(const struct codec_map *map, const char *key, int64_t *out)
{
    struct codec_value value;
    return require(map, key, &value) && take_i64(map, key, &value, out);
}

bool codec_get_f64(const struct codec_map *map, const char *key, double *out)
{
    struct codec_value value;
    return require(map, key, &value) && take_f64(map->reader, key, &value, out);
}

bool codec_get_bool(const struct codec_map *map, const char *key, bool *out)
{
    struct codec_value value;
    return require(map, key, &value) && take_bool(map, key, &value, out);
}

bool codec_get_text(const struct codec_map *map, const char *key, char *out, size_t out_bytes)
{
    struct codec_value value;
    return require(map, key, &value) && copy_text(map, key, &value, out, out_bytes);
}

bool codec_get_text_bytes(const struct codec_map *map, const char *key, size_t max_bytes,
                          const char **out, size_t *out_bytes)
{
    struct codec_value value;
    return require(map, key, &value) &&
           take_text(map->reader, key, &value, max_bytes, out, out_bytes);
}

bool codec_get_bin(const struct codec_map *map, const char *key, size_t max_bytes,
                   const uint8_t **out, size_t *out_bytes)
{
    struct codec_value value;
    return require(map, key, &value) && take_bin(map, key, &value, max_bytes, out, out_bytes);
}

bool codec_get_fixed(const struct codec_map *map, const char *key, void *out, size_t bytes)
{
    const uint8_t *body;
    size_t body_bytes;
    if (!codec_get_bin(map, key, bytes, &body, &body_bytes)) {
        return false;
    }
    if (body_bytes != bytes) {
        return wrong(map->reader, key, "is too short");
    }
    memcpy(out, body, bytes);
    return true;
}

bool codec_get_u32s(const struct codec_map *map, const char *key, size_t max_count,
                    uint32_t **out_values, uint32_t *out_count)
{
    void *words;
    if (!copy_words(map, key, sizeof(uint32_t), max_count, &words, out_count)) {
        return false;
    }
    *out_values = words;
    return true;
}

bool codec_get_u64s(const struct codec_map *map, const char *key, size_t max_count,
                    uint64_t **out_values, uint32_t *out_count)
{
    void *words;
    if (!copy_words(map, key, sizeof(uint64_t), max_count, &words, out_count)) {
        return false;
    }
    *out_values = words;
    return true;
}

bool codec_get_map(const struct codec_map *map, const char *key, struct codec_map *out)
{
    struct codec_value value;
    return require(map, key, &value) && take_map(map, key, &value, out);
}

bool codec_get_array(const struct codec_map *map, const char *key, uint32_t max_count,
                     struct codec_array *out)
{
    struct codec_value value;
    return require(map, key, &value) && take_array(map, key, &value, max_count, out);
}

bool codec_opt_u64(const struct codec_map *map, const char *key, uint64_t *out)
{
    struct codec_value value;
    return find(map, key, &value) && take_u64(map->reader, key, &value, out);
}

bool codec_opt_u32(const struct codec_map *map, const char *key, uint32_t min, uint32_t max,
                   uint32_t *out)
{
    struct codec_value value;
    return find(map, key, &value) && take_u32(map, key, &value, (const uint32_t[]){min, max}, out);
}

bool codec_opt_i64(const struct codec_map *map, const char *key, int64_t *out)
{
    struct codec_value value;
    return find(map, key, &value) && take_i64(map, key, &value, out);
}

bool codec_opt_f64(const struct codec_map *map, const char *key, double *out)
{
    struct codec_value value;
    return find(map, key, &value) && take_f64(map->reader, key, &value, out);
}

bool codec_opt_bool(const struct codec_map *map, const char *key, bool *out)
{
    struct codec_value value;
    return find(map, key, &value) && take_bool(map, key, &value, out);
}

bool codec_opt_text(const struct codec_map *map, const char *key, char *out, size_t out_bytes)
{
    struct codec_value value;
    return find(map, key, &value) && copy_text(map, key, &value, out, out_bytes);
}

bool codec_opt_text_bytes(const struct codec_map *map, const char *key, size_t max_bytes,
                          const char **out, size_t *out_bytes)
{
    struct codec_value value;
    return find(map, key, &value) && take_text(map->reader, key, &value, max_bytes, out, out_bytes);
}

bool codec_opt_bin(const struct codec_map *map, const char *key, size_t max_bytes,
                   const uint8_t **out, size_t *out_bytes)
{
    struct codec_value value;
    return find(map, key, &value) && take_bin(map, key, &value, max_bytes, out, out_bytes);
}

bool codec_opt_map(const struct codec_map *map, const char *key, struct codec_map *out)
{
    struct codec_value value;
    return find(map, key, &value) && take_map(map, key, &value, out);
}

bool codec_opt_array(const struct codec_map *map, const char *key, uint32_t max_count,
                     struct codec_array *out)
{
    struct codec_value value;
    return find(map, key, &value) && take_array(map, key, &value, max_count, out);
}

// The next element, whatever it is, moving behind it and all inside it.
static bool next_element(struct codec_array *array, struct codec_value *out)
{
    if (array->count == 0 || array->reader->status != STATUS_OK) {
        return false;
    }
    const uint8_t *at = array->at;
    bool whole = codec_cursor_read(&at, array->end, out);
    assert(whole);
    (void)whole;
    array->at = skip_value(array->at, array->end);
    array->count--;
    return true;
}

bool codec_next_map(struct codec_array *array, struct codec_map *out)
{
    struct codec_value value;
    if (!next_element(array, &value)) {
        return false;
    }
    if (value.kind != CODEC_KIND_MAP) {
        return wrong(array->reader, "", "an array's element is not a map");
    }
    *out = map_of(array->reader, &value, array->end);
    return true;
}

bool codec_next_u64(struct codec_array *array, uint64_t *out)
{
    struct codec_value value;
    return next_element(array, &value) &&
           take_u64(array->reader, "an array's element", &value, out);
}

bool codec_next_f64(struct codec_array *array, double *out)
{
    struct codec_value value;
    return next_element(array, &value) &&
           take_f64(array->reader, "an array's element", &value, out);
}

bool codec_next_text(struct codec_array *array, size_t max_bytes, const char **out,
                     size_t *out_bytes)
{
    struct codec_value value;
    return next_element(array, &value) &&
           take_text(array->reader, "an array's element", &value, max_bytes, out, out_bytes);
}
