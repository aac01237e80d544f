// SPDX-License-Identifier: Apache-2.0
// msgpack's format (github.com/msgpack/msgpack/spec.md), read by hand. Why not msgpack_unpack_next:
// it allocates an object of 24 bytes for every element that an array's header promises before one
// of them is seen, so five bytes can ask for 96 GiB. Here every length is compared with what is
// left.
#include "proto/codec_cursor.h"

#include "proto/codec.h"

#include <stddef.h>
#include <string.h>

static uint64_t big_endian(const uint8_t *at, unsigned bytes)
{
    uint64_t number = 0;
    for (unsigned i = 0; i < bytes; i++) {
        number = number << 8 | at[i];
    }
    return number;
}

static uint64_t sign_extend(uint64_t number, unsigned bytes)
{
    unsigned shift = 64 - 8 * bytes;
    return (uint64_t)((int64_t)(number << shift) >> shift);
}

static double real_of(uint64_t bits, unsigned bytes)
{
    if (bytes == 4) {
        uint32_t narrow = (uint32_t)bits;
        float value;
        memcpy(&value, &narrow, sizeof(value));
        return (double)value;
    }
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

// What the first byte of a value says: its kind, the size of the number after it (0: in the byte
// itself), and whether that number is the length of a body.
struct lead {
    enum codec_kind kind;
    uint8_t number_bytes;
    uint8_t extra_bytes; // that follow the length before the body: an extension's type
    uint64_t inline_number;
};

static bool read_fixed_lead(uint8_t byte, struct lead *out)
{
    if (byte <= 0x7f) {
        *out = (struct lead){CODEC_KIND_UNSIGNED, 0, 0, byte};
    } else if (byte <= 0x8f) {
        *out = (struct lead){CODEC_KIND_MAP, 0, 0, byte & 0x0f};
    } else if (byte <= 0x9f) {
        *out = (struct lead){CODEC_KIND_ARRAY, 0, 0, byte & 0x0f};
    } else if (byte <= 0xbf) {
        *out = (struct lead){CODEC_KIND_TEXT, 0, 0, byte & 0x1f};
    } else if (byte >= 0xe0) {
        *out = (struct lead){CODEC_KIND_NEGATIVE, 0, 0, sign_extend(byte, 1)};
    } else {
        return false;
    }
    return true;
}

// The table of the specification, 0xc0..0xdf.
static bool read_lead(uint8_t byte, struct lead *out)
{
    static const struct lead leads[0x20] = {
        [0x00] = {CODEC_KIND_NIL, 0, 0, 0},       [0x02] = {CODEC_KIND_BOOL, 0, 0, 0},
        [0x03] = {CODEC_KIND_BOOL, 0, 0, 1},      [0x04] = {CODEC_KIND_BIN, 1, 0, 0},
        [0x05] = {CODEC_KIND_BIN, 2, 0, 0},       [0x06] = {CODEC_KIND_BIN, 4, 0, 0},
        [0x07] = {CODEC_KIND_EXTENSION, 1, 1, 0}, [0x08] = {CODEC_KIND_EXTENSION, 2, 1, 0},
        [0x09] = {CODEC_KIND_EXTENSION, 4, 1, 0}, [0x0a] = {CODEC_KIND_REAL, 4, 0, 0},
        [0x0b] = {CODEC_KIND_REAL, 8, 0, 0},      [0x0c] = {CODEC_KIND_UNSIGNED, 1, 0, 0},
        [0x0d] = {CODEC_KIND_UNSIGNED, 2, 0, 0},  [0x0e] = {CODEC_KIND_UNSIGNED, 4, 0, 0},
        [0x0f] = {CODEC_KIND_UNSIGNED, 8, 0, 0},  [0x10] = {CODEC_KIND_NEGATIVE, 1, 0, 0},
        [0x11] = {CODEC_KIND_NEGATIVE, 2, 0, 0},  [0x12] = {CODEC_KIND_NEGATIVE, 4, 0, 0},
        [0x13] = {CODEC_KIND_NEGATIVE, 8, 0, 0},  [0x14] = {CODEC_KIND_EXTENSION, 0, 1, 1},
        [0x15] = {CODEC_KIND_EXTENSION, 0, 1, 2}, [0x16] = {CODEC_KIND_EXTENSION, 0, 1, 4},
        [0x17] = {CODEC_KIND_EXTENSION, 0, 1, 8}, [0x18] = {CODEC_KIND_EXTENSION, 0, 1, 16},
        [0x19] = {CODEC_KIND_TEXT, 1, 0, 0},      [0x1a] = {CODEC_KIND_TEXT, 2, 0, 0},
        [0x1b] = {CODEC_KIND_TEXT, 4, 0, 0},      [0x1c] = {CODEC_KIND_ARRAY, 2, 0, 0},
        [0x1d] = {CODEC_KIND_ARRAY, 4, 0, 0},     [0x1e] = {CODEC_KIND_MAP, 2, 0, 0},
        [0x1f] = {CODEC_KIND_MAP, 4, 0, 0},
    };
    if (read_fixed_lead(byte, out)) {
        return true;
    }
    if (byte == 0xc1) { // "never used"
        return false;
    }
    *out = leads[byte - 0xc0];
    return true;
}

bool codec_cursor_read(const uint8_t **at, const uint8_t *end, struct codec_value *out)
{
    struct lead lead;
    if (*at >= end || !read_lead(**at, &lead)) {
        return false;
    }
    const uint8_t *next = *at + 1;
    if ((size_t)(end - next) < lead.number_bytes) {
        return false;
    }
    uint64_t number =
        lead.number_bytes == 0 ? lead.inline_number : big_endian(next, lead.number_bytes);
    next += lead.number_bytes;
    struct codec_value value = {.kind = lead.kind, .number = number};
    switch (lead.kind) {
    case CODEC_KIND_NEGATIVE:
        if (lead.number_bytes != 0) {
            value.number = sign_extend(number, lead.number_bytes);
        }
        value.kind = (int64_t)value.number < 0 ? CODEC_KIND_NEGATIVE : CODEC_KIND_UNSIGNED;
        break;
    case CODEC_KIND_REAL:
        value.real = real_of(number, lead.number_bytes);
        break;
    case CODEC_KIND_TEXT:
    case CODEC_KIND_BIN:
    case CODEC_KIND_EXTENSION:
        if ((size_t)(end - next) < number + lead.extra_bytes) {
            return false;
        }
        value.body = next + lead.extra_bytes;
        next += lead.extra_bytes + number;
        break;
    case CODEC_KIND_ARRAY:
    case CODEC_KIND_MAP:
        // Each element takes a byte at least: what cannot be there is refused at once.
        if ((size_t)(end - next) < number * (lead.kind == CODEC_KIND_MAP ? 2 : 1)) {
            return false;
        }
        value.body = next;
        break;
    default:
        break;
    }
    value.length = (uint32_t)number;
    *at = next;
    *out = value;
    return true;
}

static bool key_valid(const struct codec_value *key)
{
    return key->kind == CODEC_KIND_TEXT && key->length <= CODEC_KEY_BYTES_MAX;
}

// Iterative, with a stack of CODEC_DEPTH_MAX counts: `left` is
// what is still to come of an array or map; in a map keys and values alternate.
bool codec_cursor_check(const uint8_t **at, const uint8_t *end)
{
    struct {
        uint64_t left;
        bool is_map;
    } stack[CODEC_DEPTH_MAX + 1] = {{.left = 1}};
    unsigned depth = 0;
    for (;;) {
        while (stack[depth].left == 0) {
            if (depth == 0) {
                return true;
            }
            depth--;
        }
        struct codec_value value;
        if (!codec_cursor_read(at, end, &value)) {
            return false;
        }
        bool is_key = stack[depth].is_map && stack[depth].left % 2 == 0;
        if (is_key && !key_valid(&value)) {
            return false;
        }
        stack[depth].left--;
        if (value.kind == CODEC_KIND_ARRAY || value.kind == CODEC_KIND_MAP) {
            if (depth == CODEC_DEPTH_MAX) {
                return false;
            }
            depth++;
            stack[depth].is_map = value.kind == CODEC_KIND_MAP;
            stack[depth].left = (uint64_t)value.length * (value.kind == CODEC_KIND_MAP ? 2 : 1);
        }
    }
}
