// SPDX-License-Identifier: Apache-2.0
// A cursor over msgpack's format: what codec_reader.c is made of, and only it includes this. Pure
// functions on untrusted bytes: nothing behind `end` is read, nothing is allocated.
#ifndef KVTIER_PROTO_CODEC_CURSOR_H
#define KVTIER_PROTO_CODEC_CURSOR_H

#include <stdbool.h>
#include <stdint.h>

enum codec_kind {
    CODEC_KIND_NIL,
    CODEC_KIND_BOOL,
    CODEC_KIND_UNSIGNED,
    CODEC_KIND_NEGATIVE, // an integer below 0
    CODEC_KIND_REAL,
    CODEC_KIND_TEXT,
    CODEC_KIND_BIN,
    CODEC_KIND_ARRAY,
    CODEC_KIND_MAP,
    CODEC_KIND_EXTENSION,
};

// One value. For texts and binaries `body` and `length` are its bytes; for arrays and maps `body`
// is the first element and `length` the number of elements or fields.
struct codec_value {
    enum codec_kind kind;
    uint64_t number; // of BOOL, UNSIGNED; of NEGATIVE as two's complement
    double real;
    const uint8_t *body;
    uint32_t length;
};

// Reads the value at *at without the elements of an array or map, and moves *at behind it (to its
// first element). False when it does not end before `end`, or is no value.
bool codec_cursor_read(const uint8_t **at, const uint8_t *end, struct codec_value *out);

// Walks one value and all inside it, and moves *at behind it. False when it does not end before
// `end`, a key is no text of at most CODEC_KEY_BYTES_MAX bytes, or it is deeper than
// CODEC_DEPTH_MAX. What was checked once, read and check accept again.
bool codec_cursor_check(const uint8_t **at, const uint8_t *end);

#endif
