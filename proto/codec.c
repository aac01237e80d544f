// SPDX-License-Identifier: Apache-2.0
// The writer: msgpack-c's packer over a bounded buffer. The count of a map or array is not known
// when it is opened, so its header always takes the 5-byte form (map 32, array 32: valid msgpack)
// and is filled in when it is closed; callers never count fields. The one place of msgpack.h.
#include "proto/codec.h"

#include <assert.h>
#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

enum { CONTAINER_HEADER_BYTES = 5, FIRST_CAPACITY = 512 };

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "arrays of words travel as they are");

static void fail(struct codec_writer *writer, enum status status)
{
    if (writer->status == STATUS_OK) {
        writer->status = status;
    }
}

// Room for `bytes` more; false, and the error kept, when there is none.
static bool make_room(struct codec_writer *writer, size_t bytes)
{
    if (writer->status != STATUS_OK) {
        return false;
    }
    if (bytes > writer->max_bytes - writer->bytes) {
        fail(writer, STATUS_REFUSED);
        return false;
    }
    size_t needed = writer->bytes + bytes;
    if (needed <= writer->capacity) {
        return true;
    }
    size_t capacity = writer->capacity * 2 > needed ? writer->capacity * 2 : needed;
    capacity = capacity > FIRST_CAPACITY ? capacity : FIRST_CAPACITY;
    uint8_t *data = realloc(writer->data, capacity);
    if (data == NULL) {
        fail(writer, STATUS_NO_MEMORY);
        return false;
    }
    writer->data = data;
    writer->capacity = capacity;
    return true;
}

// msgpack-c's output function.
static int append(void *context, const char *data, size_t bytes)
{
    struct codec_writer *writer = context;
    if (!make_room(writer, bytes)) {
        return -1;
    }
    if (bytes > 0) {
        memcpy(writer->data + writer->bytes, data, bytes);
    }
    writer->bytes += bytes;
    return 0;
}

static msgpack_packer packer_of(struct codec_writer *writer)
{
    msgpack_packer packer;
    msgpack_packer_init(&packer, writer, append);
    return packer;
}

// Counts the field or element that follows, and writes its key.
static void begin_value(struct codec_writer *writer, const char *key)
{
    assert(writer->depth > 0);
    bool in_map = writer->open[writer->depth - 1].is_map;
    assert(in_map == (key != NULL));
    writer->open[writer->depth - 1].count++;
    if (in_map) {
        size_t length = strlen(key);
        assert(length > 0 && length <= CODEC_KEY_BYTES_MAX);
        msgpack_packer packer = packer_of(writer);
        msgpack_pack_str_with_body(&packer, key, length);
    }
}

static void open_container(struct codec_writer *writer, bool is_map)
{
    assert(writer->depth < CODEC_DEPTH_MAX);
    writer->open[writer->depth].header_offset = writer->bytes;
    writer->open[writer->depth].count = 0;
    writer->open[writer->depth].is_map = is_map;
    writer->depth++;
    const char header[CONTAINER_HEADER_BYTES] = {(char)(is_map ? 0xdf : 0xdd), 0, 0, 0, 0};
    (void)append(writer, header, sizeof(header)); // the error is kept
}

void codec_writer_init(struct codec_writer *writer, size_t max_bytes)
{
    *writer = (struct codec_writer){.max_bytes = max_bytes};
    open_container(writer, true);
}

void codec_end(struct codec_writer *writer)
{
    assert(writer->depth > 0);
    writer->depth--;
    if (writer->status != STATUS_OK) {
        return;
    }
    uint32_t count = writer->open[writer->depth].count;
    uint8_t *header = writer->data + writer->open[writer->depth].header_offset;
    for (unsigned i = 0; i < 4; i++) {
        header[1 + i] = (uint8_t)(count >> (24 - 8 * i)); // msgpack is big-endian
    }
}

enum status codec_writer_finish(struct codec_writer *writer, const uint8_t **out_data,
                                size_t *out_bytes)
{
    assert(writer->depth == 1); // every inner map and array was ended
    codec_end(writer);
    if (writer->status != STATUS_OK) {
        return writer->status;
    }
    *out_data = writer->data;
    *out_bytes = writer->bytes;
    return STATUS_OK;
}

void codec_writer_free(struct codec_writer *writer)
{
    free(writer->data);
    *writer = (struct codec_writer){0};
}

void codec_put_u64(struct codec_writer *writer, const char *key, uint64_t value)
{
    begin_value(writer, key);
    msgpack_packer packer = packer_of(writer);
    msgpack_pack_uint64(&packer, value);
}

void codec_put_i64(struct codec_writer *writer, const char *key, int64_t value)
{
    begin_value(writer, key);
    msgpack_packer packer = packer_of(writer);
    msgpack_pack_int64(&packer, value);
}

void codec_put_f64(struct codec_writer *writer, const char *key, double value)
{
    begin_value(writer, key);
    msgpack_packer packer = packer_of(writer);
    msgpack_pack_double(&packer, value);
}

void codec_put_bool(struct codec_writer *writer, const char *key, bool value)
{
    begin_value(writer, key);
    msgpack_packer packer = packer_of(writer);
    if (value) {
        msgpack_pack_true(&packer);
    } else {
        msgpack_pack_false(&packer);
    }
}

// msgpack's lengths have 32 bits.
static bool length_valid(struct codec_writer *writer, size_t bytes)
{
    if (bytes > UINT32_MAX) {
        fail(writer, STATUS_REFUSED);
        return false;
    }
    return true;
}

void codec_put_text_bytes(struct codec_writer *writer, const char *key, const char *text,
                          size_t bytes)
{
    begin_value(writer, key);
    if (length_valid(writer, bytes)) {
        msgpack_packer packer = packer_of(writer);
        msgpack_pack_str(&packer, bytes);
        (void)append(writer, text, bytes);
    }
}

void codec_put_text(struct codec_writer *writer, const char *key, const char *text)
{
    codec_put_text_bytes(writer, key, text, strlen(text));
}

void codec_put_bin(struct codec_writer *writer, const char *key, const void *data, size_t bytes)
{
    begin_value(writer, key);
    if (length_valid(writer, bytes)) {
        msgpack_packer packer = packer_of(writer);
        msgpack_pack_bin(&packer, bytes);
        (void)append(writer, data, bytes);
    }
}

void codec_put_u32s(struct codec_writer *writer, const char *key, const uint32_t *values,
                    size_t count)
{
    assert(count <= SIZE_MAX / sizeof(*values));
    codec_put_bin(writer, key, values, count * sizeof(*values));
}

void codec_put_u64s(struct codec_writer *writer, const char *key, const uint64_t *values,
                    size_t count)
{
    assert(count <= SIZE_MAX / sizeof(*values));
    codec_put_bin(writer, key, values, count * sizeof(*values));
}

void codec_put_map(struct codec_writer *writer, const char *key)
{
    begin_value(writer, key);
    open_container(writer, true);
}

void codec_put_array(struct codec_writer *writer, const char *key)
{
    begin_value(writer, key);
    open_container(writer, false);
}
