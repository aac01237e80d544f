// SPDX-License-Identifier: Apache-2.0
// Writing one msgpack map into a buffer that grows up to a limit. Errors are kept: put what you
// have, ask once at the end (codec_writer_finish). Reading is proto/codec_reader.h. Any thread, one
// at a time per writer.
//
//     struct codec_writer writer;
//     codec_writer_init(&writer, LIMIT_FRAME_BYTES);      // opens the message's map
//     codec_put_u64(&writer, "epoch", epoch);
//     codec_put_array(&writer, "stop");                   // elements have no key: NULL
//     codec_put_text(&writer, NULL, "\n\n");
//     codec_end(&writer);
//     status = codec_writer_finish(&writer, &data, &bytes);
//     codec_writer_free(&writer);
#ifndef KVTIER_PROTO_CODEC_H
#define KVTIER_PROTO_CODEC_H

#include "proto/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CODEC_DEPTH_MAX = 8, // maps and arrays inside one another, the message's map included
    CODEC_KEY_BYTES_MAX = 64,
};

// Embedded by value; fields are the codec's own.
struct codec_writer {
    uint8_t *data;
    size_t bytes;
    size_t capacity;
    size_t max_bytes;
    enum status status; // first error: STATUS_NO_MEMORY, STATUS_REFUSED (over max_bytes)
    uint32_t depth;
    struct {
        size_t header_offset; // of the map's or array's header, whose count is filled in at its end
        uint32_t count;
        bool is_map;
    } open[CODEC_DEPTH_MAX];
};

// Starts a message of at most `max_bytes`. Storage is taken as it is needed.
void codec_writer_init(struct codec_writer *writer, size_t max_bytes);
// Ends the message's map. *out_data stays the writer's, until codec_writer_free.
// STATUS_NO_MEMORY, STATUS_REFUSED when it did not fit.
enum status codec_writer_finish(struct codec_writer *writer, const uint8_t **out_data,
                                size_t *out_bytes) KV_MUST_CHECK;
void codec_writer_free(struct codec_writer *writer); // zeroed memory is fine

// Each adds one field to the map that is open, or, with key NULL, one element to the open array.
void codec_put_u64(struct codec_writer *writer, const char *key, uint64_t value);
void codec_put_i64(struct codec_writer *writer, const char *key, int64_t value);
void codec_put_f64(struct codec_writer *writer, const char *key, double value);
void codec_put_bool(struct codec_writer *writer, const char *key, bool value);
void codec_put_text(struct codec_writer *writer, const char *key,
                    const char *text); // C string, UTF-8
void codec_put_text_bytes(struct codec_writer *writer, const char *key, const char *text,
                          size_t bytes); // UTF-8, no NUL needed
void codec_put_bin(struct codec_writer *writer, const char *key, const void *data, size_t bytes);
// Numbers as one binary of little-endian words: how thousands of tokens, ids and slots travel.
void codec_put_u32s(struct codec_writer *writer, const char *key, const uint32_t *values,
                    size_t count);
void codec_put_u64s(struct codec_writer *writer, const char *key, const uint64_t *values,
                    size_t count);
// Open a map or array inside; codec_end closes the innermost one.
void codec_put_map(struct codec_writer *writer, const char *key);
void codec_put_array(struct codec_writer *writer, const char *key);
void codec_end(struct codec_writer *writer);

#endif
