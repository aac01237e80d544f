// SPDX-License-Identifier: Apache-2.0
// Reads the head of a GGUF file (versions 2 and 3, little-endian: magic, metadata, tensor table)
// into memory we own and checks all of it: counts, lengths, types, alignment, names, offsets. What
// it accepts is safe to use without further checks of form; meaning is checked by its users.
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md Reads through a callback, never
// maps: a file that shrinks is a short read, not a SIGBUS. Holds at most GGUF_HEAD_BYTES_MAX and
// the tables, under 64 MiB whatever the file says. One thread at a time while opening; the opened
// object never changes, so any thread may read it.
#ifndef KVTIER_GPUD_MODEL_GGUF_H
#define KVTIER_GPUD_MODEL_GGUF_H

#include "proto/status.h"
#include "proto/tensor_type.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GGUF_HEAD_BYTES_MAX =
        32 << 20,           // metadata and tensor table; real vocabularies need up to 16 MiB
    GGUF_VALUES_MAX = 4096, // metadata entries
    GGUF_TENSORS_MAX = 16384,
    GGUF_DIMENSIONS_MAX = 4,
    GGUF_KEY_BYTES_MAX = 65535, // of a metadata key; the format's own limit
    GGUF_NAME_BYTES_MAX = 64,   // of a tensor name; the format's own limit
};

enum gguf_type {
    GGUF_TYPE_UINT8 = 0,
    GGUF_TYPE_INT8 = 1,
    GGUF_TYPE_UINT16 = 2,
    GGUF_TYPE_INT16 = 3,
    GGUF_TYPE_UINT32 = 4,
    GGUF_TYPE_INT32 = 5,
    GGUF_TYPE_FLOAT32 = 6,
    GGUF_TYPE_BOOL = 7,
    GGUF_TYPE_STRING = 8,
    GGUF_TYPE_ARRAY = 9,
    GGUF_TYPE_UINT64 = 10,
    GGUF_TYPE_INT64 = 11,
    GGUF_TYPE_FLOAT64 = 12,
    GGUF_TYPE_COUNT
};

// Where the bytes come from. `read` fills exactly `bytes` bytes from `offset` on or fails:
// STATUS_IO, or STATUS_DAMAGED when the source ends before.
struct gguf_source {
    const char *name; // for messages; copied
    uint64_t bytes;   // size of the whole file
    void *context;
    enum status (*read)(void *context, uint64_t offset, void *out, size_t bytes);
};

// Bytes inside the head, not ending in NUL; live as long as the gguf.
struct gguf_string {
    const char *text;
    size_t bytes;
};

struct gguf_value {
    struct gguf_string key;
    enum gguf_type type;         // GGUF_TYPE_ARRAY: see element_type
    enum gguf_type element_type; // of an array, else = type; never GGUF_TYPE_ARRAY
    uint64_t count;              // elements of an array, else 1
    const uint8_t *data; // unaligned, little-endian; strings: u64 length and bytes, one by one
    size_t data_bytes;
};

struct gguf_tensor {
    struct gguf_string name;
    uint32_t type; // as in the file; types we do not read have bytes 0
    uint32_t dimension_count;
    uint64_t dimensions[GGUF_DIMENSIONS_MAX]; // fastest first; unused ones are 1
    uint64_t offset;                          // from the start of the file
    uint64_t bytes;
};

struct gguf;

// STATUS_INVALID (malformed: reason names file, what, why), STATUS_UNSUPPORTED (a version or byte
// order we do not read), STATUS_NO_MEMORY, or what `read` gave. Blocks in `read`.
enum status gguf_open(const struct gguf_source *source, struct gguf **out_gguf,
                      struct reason *reason) KV_MUST_CHECK;
// The same from a file, which is closed again: the head is all that is needed of a vocabulary.
enum status gguf_open_path(const char *path, struct gguf **out_gguf,
                           struct reason *reason) KV_MUST_CHECK;
void gguf_close(struct gguf *gguf); // NULL is fine

// As given, for messages; how many tensors; and one of them, index < count.
const char *gguf_name(const struct gguf *gguf);
uint32_t gguf_tensor_count(const struct gguf *gguf);
// The tensor at `index` below the count.
const struct gguf_tensor *gguf_tensor(const struct gguf *gguf, uint32_t index);
// The head as read, from the start of the file, and its length.
const uint8_t *gguf_head(const struct gguf *gguf, size_t *out_bytes);

// NULL when there is no such key.
const struct gguf_value *gguf_find(const struct gguf *gguf, const char *key);

// What a number must be. `required`: absent is STATUS_INVALID, else `fallback` is the answer.
struct gguf_number {
    const char *key;
    uint64_t minimum;
    uint64_t maximum;
    uint64_t fallback;
    bool required;
};

// Each reads one value, or gives the fallback when the key is absent; the wrong type, or a number
// out of range, is STATUS_INVALID with a reason. Integers of any width are accepted when not
// negative.
enum status gguf_read_number(const struct gguf *gguf, const struct gguf_number *number,
                             uint64_t *out, struct reason *reason) KV_MUST_CHECK;
enum status gguf_read_float(const struct gguf *gguf, const char *key, double fallback, double *out,
                            struct reason *reason) KV_MUST_CHECK;
enum status gguf_read_bool(const struct gguf *gguf, const char *key, bool fallback, bool *out,
                           struct reason *reason) KV_MUST_CHECK;
// An absent text is {NULL, 0}.
enum status gguf_read_text(const struct gguf *gguf, const char *key, struct gguf_string *out,
                           struct reason *reason) KV_MUST_CHECK;
// *out is NULL when absent; an array of another element type is STATUS_INVALID.
enum status gguf_read_array(const struct gguf *gguf, const char *key, enum gguf_type element_type,
                            const struct gguf_value **out, struct reason *reason) KV_MUST_CHECK;

// The string at *cursor of an array of strings; start with *cursor = 0, call at most `count` times.
struct gguf_string gguf_string_next(const struct gguf_value *array, size_t *cursor);

// Whether the string is exactly `text`; an absent one is "".
bool gguf_string_equal(struct gguf_string string, const char *text);

// Text of a file made fit for a message: at most 60 bytes, printable ASCII, the rest as '?'.
struct gguf_label {
    char text[64];
};
struct gguf_label gguf_label(struct gguf_string string);

#endif
