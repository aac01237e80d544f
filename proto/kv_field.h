// SPDX-License-Identifier: Apache-2.0
// A message as a table of its fields, and the walks over such a table that encode, decode and free
// a struct, so that the two sides of a message cannot disagree. A field is range-checked in both
// directions. Used by kv_message.c alone. Pure functions, any thread.
#ifndef KVTIER_PROTO_KV_FIELD_H
#define KVTIER_PROTO_KV_FIELD_H

#include "proto/codec.h"
#include "proto/codec_reader.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kv_field_kind {
    FIELD_U32,     // uint32_t or an enum, min..max
    FIELD_U64,     // uint64_t
    FIELD_F64,     // double, finite
    FIELD_BOOL,    // bool
    FIELD_FIXED,   // byte array of `size`
    FIELD_CHARS,   // char array of `size` with a C string
    FIELD_TEXT,    // const char *, at most `max` bytes; NULL when optional
    FIELD_BIN,     // const void * and its length, at most `max` bytes
    FIELD_U32S,    // const uint32_t * and its count, at most `max`
    FIELD_SLOTS,   // struct kv_slot_ref * and its count, at most `max`
    FIELD_STRUCT,  // a struct in place
    FIELD_PRESENT, // the same; a bool at `count_offset` says whether it is there
    FIELD_ITEMS,   // array of structs in place, count at `count_offset`, at most `max`
    FIELD_ROWS,    // pointer to an array of structs, count at `count_offset`, at most `max`
};

struct kv_field_spec {
    const char *key;
    enum kv_field_kind kind;
    bool optional;
    size_t offset;
    size_t size;         // of the member
    size_t count_offset; // of a uint32_t, or of the bool of FIELD_PRESENT
    uint32_t min, max;
    const struct kv_table *nested;
};

struct kv_table {
    const struct kv_field_spec *fields;
    size_t count;
    size_t bytes; // of the struct
};

// Adds the fields of `base` to the map that is open. STATUS_INVALID when one is out of its range;
// other errors are kept in the writer.
enum status kv_table_encode(const struct kv_table *table, const void *base,
                            struct codec_writer *writer) KV_MUST_CHECK;

// Fills in `base`, which must be zeroed. False: the reader holds the error, and what `base` came to
// own is still to be freed.
bool kv_table_decode(const struct kv_table *table, const struct codec_map *map, void *base);

// Frees what the pointers of `base` own, and zeroes them.
void kv_table_free(const struct kv_table *table, void *base);

#endif
