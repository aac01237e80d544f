// SPDX-License-Identifier: Apache-2.0
// Reading one msgpack map out of untrusted bytes. codec_reader_init checks the whole structure once
// (lengths, depth, keys); then fields are looked up by key, with type and range checks. Nothing is
// copied or allocated except where a function says so, and never more than the input's size.
// Unknown fields are ignored; of two fields with one key the first counts.
// Errors are kept: read what you need, ask once at the end (codec_reader_status). After an error
// every read fails. Any thread, one at a time per reader.
//
//     struct codec_reader reader;
//     struct codec_map map;
//     codec_reader_init(&reader, data, bytes, &map);
//     codec_get_u32(&map, "token_count", 1, LIMIT_CONTEXT_TOKENS, &request->token_count);
//     codec_opt_bool(&map, "persist", &request->persist);      // keeps its value when absent
//     return codec_reader_status(&reader, reason);
//
// get: the field must be there. opt: when it is absent, nothing is written and false is returned
// without an error; of the wrong type or out of range is an error as with get. Results are written
// only when true is returned.
#ifndef KVTIER_PROTO_CODEC_READER_H
#define KVTIER_PROTO_CODEC_READER_H

#include "proto/codec.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CODEC_PROBLEM_BYTES = 128 };

struct codec_reader {
    enum status status;                // first error: STATUS_INVALID, or STATUS_NO_MEMORY
    char problem[CODEC_PROBLEM_BYTES]; // for people: "token_count: is missing"
};

// A map or array of a message that was checked; points into its bytes and lives as long.
struct codec_map {
    struct codec_reader *reader;
    const uint8_t *at;
    const uint8_t *end; // of the message
    uint32_t count;     // of fields
};
struct codec_array {
    struct codec_reader *reader;
    const uint8_t *at; // next element
    const uint8_t *end;
    uint32_t count; // elements left
};

// Checks that data is exactly one map and opens it. On error *out_map is an empty map.
void codec_reader_init(struct codec_reader *reader, const void *data, size_t bytes,
                       struct codec_map *out_map);
// STATUS_OK or the first error, with the problem in `reason` (may be NULL).
enum status codec_reader_status(const struct codec_reader *reader,
                                struct reason *reason) KV_MUST_CHECK;
// Reports an error found in values that were read well: "problem" as in struct codec_reader.
void codec_reader_fail(struct codec_reader *reader, const char *problem);

// Whether the map has the key, whatever its value.
bool codec_has(const struct codec_map *map, const char *key);

// A field that must be there.
bool codec_get_u64(const struct codec_map *map, const char *key, uint64_t *out);
bool codec_get_u32(const struct codec_map *map, const char *key, uint32_t min, uint32_t max,
                   uint32_t *out);
bool codec_get_i64(const struct codec_map *map, const char *key, int64_t *out);
bool codec_get_f64(const struct codec_map *map, const char *key,
                   double *out); // finite; or an integer
bool codec_get_bool(const struct codec_map *map, const char *key, bool *out);
// Text (msgpack str): UTF-8 without NUL. The first copies it as a C string into out [out_bytes] and
// fails when it does not fit; the second points into the message, at most max_bytes, no NUL after.
bool codec_get_text(const struct codec_map *map, const char *key, char *out, size_t out_bytes);
bool codec_get_text_bytes(const struct codec_map *map, const char *key, size_t max_bytes,
                          const char **out, size_t *out_bytes);
// Any bytes (msgpack bin), pointing into the message.
bool codec_get_bin(const struct codec_map *map, const char *key, size_t max_bytes,
                   const uint8_t **out, size_t *out_bytes);
// Exactly `bytes` bytes, copied to out.
bool codec_get_fixed(const struct codec_map *map, const char *key, void *out, size_t bytes);
// Little-endian words as codec_put_u32s wrote them, in memory for the caller to free() (NULL when
// there are none).
bool codec_get_u32s(const struct codec_map *map, const char *key, size_t max_count,
                    uint32_t **out_values, uint32_t *out_count);
bool codec_get_u64s(const struct codec_map *map, const char *key, size_t max_count,
                    uint64_t **out_values, uint32_t *out_count);
bool codec_get_map(const struct codec_map *map, const char *key, struct codec_map *out);
bool codec_get_array(const struct codec_map *map, const char *key, uint32_t max_count,
                     struct codec_array *out);

// A field that may be absent.
bool codec_opt_u64(const struct codec_map *map, const char *key, uint64_t *out);
bool codec_opt_u32(const struct codec_map *map, const char *key, uint32_t min, uint32_t max,
                   uint32_t *out);
bool codec_opt_i64(const struct codec_map *map, const char *key, int64_t *out);
bool codec_opt_f64(const struct codec_map *map, const char *key, double *out);
bool codec_opt_bool(const struct codec_map *map, const char *key, bool *out);
bool codec_opt_text(const struct codec_map *map, const char *key, char *out, size_t out_bytes);
bool codec_opt_text_bytes(const struct codec_map *map, const char *key, size_t max_bytes,
                          const char **out, size_t *out_bytes);
bool codec_opt_bin(const struct codec_map *map, const char *key, size_t max_bytes,
                   const uint8_t **out, size_t *out_bytes);
bool codec_opt_map(const struct codec_map *map, const char *key, struct codec_map *out);
bool codec_opt_array(const struct codec_map *map, const char *key, uint32_t max_count,
                     struct codec_array *out);

// The next element; false at the end (no error) or when it is of another type (error).
bool codec_next_map(struct codec_array *array, struct codec_map *out);
bool codec_next_u64(struct codec_array *array, uint64_t *out);
bool codec_next_f64(struct codec_array *array, double *out);
bool codec_next_text(struct codec_array *array, size_t max_bytes, const char **out,
                     size_t *out_bytes);

#endif
