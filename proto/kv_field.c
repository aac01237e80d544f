// SPDX-License-Identifier: Apache-2.0
// Why one walk for all messages: a field that is written is read back by the same description.
// Rules: an array is taken in whole or not at all; counts are checked before memory is taken.

#include "proto/kv_field.h"

#include "proto/kv_message.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static_assert(sizeof(enum attention_mode) == sizeof(uint32_t), "enums are read as u32");

static uint32_t get_count(const struct kv_field_spec *spec, const void *base)
{
    uint32_t count;
    memcpy(&count, (const uint8_t *)base + spec->count_offset, sizeof(count));
    return count;
}

static void set_count(const struct kv_field_spec *spec, void *base, uint32_t count)
{
    memcpy((uint8_t *)base + spec->count_offset, &count, sizeof(count));
}

static void *get_pointer(const struct kv_field_spec *spec, const void *base)
{
    void *pointer;
    memcpy(&pointer, (const uint8_t *)base + spec->offset, sizeof(pointer));
    return pointer;
}

static void set_pointer(const struct kv_field_spec *spec, void *base, void *pointer)
{
    memcpy((uint8_t *)base + spec->offset, &pointer, sizeof(pointer));
}

static bool is_present(const struct kv_field_spec *spec, const void *base)
{
    return *(const bool *)((const uint8_t *)base + spec->count_offset);
}

// ---- freeing

// Frees what the pointers of a struct own, and zeroes them.
void kv_table_free(const struct kv_table *table, void *base)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct kv_field_spec *spec = &table->fields[i];
        switch (spec->kind) {
        case FIELD_TEXT:
        case FIELD_BIN:
        case FIELD_U32S:
        case FIELD_SLOTS:
        case FIELD_ROWS: // rows of rows do not exist
            free(get_pointer(spec, base));
            set_pointer(spec, base, NULL);
            break;
        default:
            break;
        }
    }
}

// ---- encoding

static void encode_slots(struct codec_writer *writer, const struct kv_slot_ref *slots,
                         uint32_t count)
{
    codec_put_array(writer, "slots");
    for (uint32_t i = 0; i < count; i++) {
        codec_put_u64(writer, NULL, slots[i].slot_index);
        codec_put_u64(writer, NULL, slots[i].source);
        codec_put_u64(writer, NULL, slots[i].generation);
    }
    codec_end(writer);
}

static enum status encode_structs(const struct kv_field_spec *spec, const void *base,
                                  const void *items, struct codec_writer *writer)
{
    uint32_t count = get_count(spec, base);
    codec_put_array(writer, spec->key);
    for (uint32_t i = 0; i < count; i++) {
        codec_put_map(writer, NULL);
        enum status result =
            kv_table_encode(spec->nested, (const uint8_t *)items + i * spec->nested->bytes, writer);
        if (result != STATUS_OK) {
            return result;
        }
        codec_end(writer);
    }
    codec_end(writer);
    return STATUS_OK;
}

static enum status encode_text(const struct kv_field_spec *spec, const void *base,
                               struct codec_writer *writer)
{
    const char *text = get_pointer(spec, base);
    if (text == NULL) {
        return spec->optional ? STATUS_OK : STATUS_INVALID;
    }
    if (strlen(text) > spec->max) {
        return STATUS_INVALID;
    }
    codec_put_text(writer, spec->key, text);
    return STATUS_OK;
}

static enum status encode_array(const struct kv_field_spec *spec, const void *base,
                                struct codec_writer *writer)
{
    uint32_t count = get_count(spec, base);
    void *items = get_pointer(spec, base);
    if (count > spec->max || (count > 0 && items == NULL)) {
        return STATUS_INVALID;
    }
    switch (spec->kind) {
    case FIELD_BIN:
        codec_put_bin(writer, spec->key, items, count);
        return STATUS_OK;
    case FIELD_U32S:
        codec_put_u32s(writer, spec->key, items, count);
        return STATUS_OK;
    case FIELD_SLOTS:
        encode_slots(writer, items, count);
        return STATUS_OK;
    default:
        return encode_structs(spec, base, items, writer);
    }
}

static enum status encode_nested(const struct kv_field_spec *spec, const void *base,
                                 struct codec_writer *writer)
{
    if (spec->kind == FIELD_PRESENT && !is_present(spec, base)) {
        return STATUS_OK;
    }
    codec_put_map(writer, spec->key);
    enum status result =
        kv_table_encode(spec->nested, (const uint8_t *)base + spec->offset, writer);
    codec_end(writer);
    return result;
}

static enum status encode_u32(const struct kv_field_spec *spec, const void *member,
                              struct codec_writer *writer)
{
    uint32_t value;
    memcpy(&value, member, sizeof(value));
    if (value < spec->min || value > spec->max) {
        return STATUS_INVALID;
    }
    codec_put_u64(writer, spec->key, value);
    return STATUS_OK;
}

static enum status encode_field(const struct kv_field_spec *spec, const void *base,
                                struct codec_writer *writer)
{
    const void *member = (const uint8_t *)base + spec->offset;
    switch (spec->kind) {
    case FIELD_U32:
        return encode_u32(spec, member, writer);
    case FIELD_U64:
        codec_put_u64(writer, spec->key, *(const uint64_t *)member);
        return STATUS_OK;
    case FIELD_F64:
        codec_put_f64(writer, spec->key, *(const double *)member);
        return STATUS_OK;
    case FIELD_BOOL:
        codec_put_bool(writer, spec->key, *(const bool *)member);
        return STATUS_OK;
    case FIELD_FIXED:
        codec_put_bin(writer, spec->key, member, spec->size);
        return STATUS_OK;
    case FIELD_CHARS:
        codec_put_text(writer, spec->key, member);
        return STATUS_OK;
    case FIELD_TEXT:
        return encode_text(spec, base, writer);
    case FIELD_STRUCT:
    case FIELD_PRESENT:
        return encode_nested(spec, base, writer);
    case FIELD_ITEMS:
        return get_count(spec, base) <= spec->max ? encode_structs(spec, base, member, writer)
                                                  : STATUS_INVALID;
    default:
        return encode_array(spec, base, writer);
    }
}

enum status kv_table_encode(const struct kv_table *table, const void *base,
                            struct codec_writer *writer)
{
    for (size_t i = 0; i < table->count; i++) {
        enum status result = encode_field(&table->fields[i], base, writer);
        if (result != STATUS_OK) {
            return result;
        }
    }
    return STATUS_OK;
}

// ---- decoding: false means that the reader holds the error

static bool out_of_memory(struct codec_reader *reader)
{
    codec_reader_fail(reader, "out of memory");
    reader->status = STATUS_NO_MEMORY;
    return false;
}

static bool decode_slots(const struct kv_field_spec *spec, const struct codec_map *map, void *base)
{
    struct codec_array array;
    if (!codec_get_array(map, spec->key, 3 * spec->max, &array)) {
        return false;
    }
    if (array.count % 3 != 0) {
        codec_reader_fail(map->reader, "slots: not whole");
        return false;
    }
    uint32_t count = array.count / 3;
    struct kv_slot_ref *slots = calloc(count > 0 ? count : 1, sizeof(*slots));
    if (slots == NULL) {
        return out_of_memory(map->reader);
    }
    set_pointer(spec, base, slots);
    set_count(spec, base, count);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t index, source;
        if (!codec_next_u64(&array, &index) || !codec_next_u64(&array, &source) ||
            !codec_next_u64(&array, &slots[i].generation)) {
            return false;
        }
        if (index > UINT32_MAX || source > KV_SOURCE_DISK) {
            codec_reader_fail(map->reader, "slots: out of range");
            return false;
        }
        slots[i].slot_index = (uint32_t)index;
        slots[i].source = (enum kv_source)source;
    }
    return true;
}

static bool decode_structs(const struct kv_field_spec *spec, struct codec_array *array, void *items)
{
    uint32_t count = array->count;
    for (uint32_t i = 0; i < count; i++) {
        struct codec_map row;
        if (!codec_next_map(array, &row) ||
            !kv_table_decode(spec->nested, &row, (uint8_t *)items + i * spec->nested->bytes)) {
            return false;
        }
    }
    return true;
}

static bool decode_items(const struct kv_field_spec *spec, const struct codec_map *map, void *base)
{
    struct codec_array array;
    if (!codec_get_array(map, spec->key, spec->max, &array)) {
        return false;
    }
    set_count(spec, base, array.count);
    return decode_structs(spec, &array, (uint8_t *)base + spec->offset);
}

static bool decode_rows(const struct kv_field_spec *spec, const struct codec_map *map, void *base)
{
    struct codec_array array;
    if (!codec_get_array(map, spec->key, spec->max, &array)) {
        return false;
    }
    void *rows = calloc(array.count > 0 ? array.count : 1, spec->nested->bytes);
    if (rows == NULL) {
        return out_of_memory(map->reader);
    }
    set_pointer(spec, base, rows);
    set_count(spec, base, array.count);
    return decode_structs(spec, &array, rows);
}

// A copy of `bytes` bytes with a NUL after them, owned by the field.
static bool keep_copy(const struct kv_field_spec *spec, const struct codec_map *map, void *base,
                      const void *data, size_t bytes)
{
    char *copy = malloc(bytes + 1);
    if (copy == NULL) {
        return out_of_memory(map->reader);
    }
    memcpy(copy, data, bytes);
    copy[bytes] = '\0';
    set_pointer(spec, base, copy);
    return true;
}

static bool decode_text(const struct kv_field_spec *spec, const struct codec_map *map, void *base)
{
    const char *text;
    size_t bytes;
    if (spec->optional && !codec_has(map, spec->key)) {
        return true;
    }
    return codec_get_text_bytes(map, spec->key, spec->max, &text, &bytes) &&
           keep_copy(spec, map, base, text, bytes);
}

static bool decode_bin(const struct kv_field_spec *spec, const struct codec_map *map, void *base)
{
    const uint8_t *data;
    size_t bytes;
    if (!codec_get_bin(map, spec->key, spec->max, &data, &bytes)) {
        return false;
    }
    set_count(spec, base, (uint32_t)bytes);
    return keep_copy(spec, map, base, data, bytes);
}

static bool decode_u32s(const struct kv_field_spec *spec, const struct codec_map *map, void *base)
{
    uint32_t *values, count;
    if (!codec_get_u32s(map, spec->key, spec->max, &values, &count)) {
        return false;
    }
    set_pointer(spec, base, values);
    set_count(spec, base, count);
    return true;
}

static bool decode_nested(const struct kv_field_spec *spec, const struct codec_map *map, void *base)
{
    struct codec_map inner;
    if (spec->kind == FIELD_PRESENT) {
        bool present = codec_has(map, spec->key);
        *(bool *)((uint8_t *)base + spec->count_offset) = present;
        if (!present) {
            return true;
        }
    }
    return codec_get_map(map, spec->key, &inner) &&
           kv_table_decode(spec->nested, &inner, (uint8_t *)base + spec->offset);
}

static bool decode_field(const struct kv_field_spec *spec, const struct codec_map *map, void *base)
{
    void *member = (uint8_t *)base + spec->offset;
    switch (spec->kind) {
    case FIELD_U32:
        return codec_get_u32(map, spec->key, spec->min, spec->max, member);
    case FIELD_U64:
        return codec_get_u64(map, spec->key, member);
    case FIELD_F64:
        return codec_get_f64(map, spec->key, member);
    case FIELD_BOOL:
        return codec_get_bool(map, spec->key, member);
    case FIELD_FIXED:
        return codec_get_fixed(map, spec->key, member, spec->size);
    case FIELD_CHARS:
        return codec_get_text(map, spec->key, member, spec->size);
    case FIELD_TEXT:
        return decode_text(spec, map, base);
    case FIELD_BIN:
        return decode_bin(spec, map, base);
    case FIELD_U32S:
        return decode_u32s(spec, map, base);
    case FIELD_SLOTS:
        return decode_slots(spec, map, base);
    case FIELD_STRUCT:
    case FIELD_PRESENT:
        return decode_nested(spec, map, base);
    case FIELD_ITEMS:
        return decode_items(spec, map, base);
    case FIELD_ROWS:
        return decode_rows(spec, map, base);
    }
    return false;
}

// Fills in a zeroed struct. What it came to own before an error is freed by the caller.
bool kv_table_decode(const struct kv_table *table, const struct codec_map *map, void *base)
{
    for (size_t i = 0; i < table->count; i++) {
        if (!decode_field(&table->fields[i], map, base)) {
            return false;
        }
    }
    return true;
}
