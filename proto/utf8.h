// SPDX-License-Identifier: Apache-2.0
// Where characters of UTF-8 begin and end, strictly (no overlong forms, no surrogates, at most
// U+10FFFF): as strict as PCRE2, whose own check is then left out. Pure.
#ifndef KVTIER_PROTO_UTF8_H
#define KVTIER_PROTO_UTF8_H

#include <stddef.h>
#include <stdint.h>

// Whether `byte` continues a character.
static inline int utf8_is_tail(uint8_t byte)
{
    return (byte & 0xc0) == 0x80;
}

// Bytes of the well-formed character at `text`, of which `bytes` >= 1 are there; 0 when there is
// none.
static inline size_t utf8_length(const char *text, size_t bytes)
{
    const uint8_t *c = (const uint8_t *)text;
    if (c[0] < 0x80) {
        return 1;
    }
    if (c[0] >= 0xc2 && c[0] <= 0xdf) {
        return bytes >= 2 && utf8_is_tail(c[1]) ? 2 : 0;
    }
    if (c[0] >= 0xe0 && c[0] <= 0xef) {
        if (bytes < 3 || !utf8_is_tail(c[1]) || !utf8_is_tail(c[2])) {
            return 0;
        }
        int overlong = c[0] == 0xe0 && c[1] < 0xa0;
        int surrogate = c[0] == 0xed && c[1] > 0x9f;
        return overlong || surrogate ? 0 : 3;
    }
    if (c[0] >= 0xf0 && c[0] <= 0xf4) {
        if (bytes < 4 || !utf8_is_tail(c[1]) || !utf8_is_tail(c[2]) || !utf8_is_tail(c[3])) {
            return 0;
        }
        int overlong = c[0] == 0xf0 && c[1] < 0x90;
        int too_high = c[0] == 0xf4 && c[1] > 0x8f;
        return overlong || too_high ? 0 : 4;
    }
    return 0;
}

#endif
