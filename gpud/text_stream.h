// SPDX-License-Identifier: Apache-2.0
// The bytes of tokens to the text an app sees: whole characters only, always valid UTF-8, nothing
// of a stop string. What comes out depends on the bytes alone, not on how tokens split them. Owner:
// the engine thread. Fixed size: no call allocates. Rules:
//  - The bytes of a character are held back until it is whole; an incomplete tail at the end is
//    dropped. Each maximal part that cannot become a character is U+FFFD (Unicode 15, 3.9).
//  - The stop string that is complete first wins; of several that end together, the longest.
//  - Text that may be the start of a stop string is held back until that is decided.
#ifndef KVTIER_GPUD_TEXT_STREAM_H
#define KVTIER_GPUD_TEXT_STREAM_H

#include "proto/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// How much of one stop string the text ends with (Knuth, Morris, Pratt).
struct text_stop {
    const char *text;
    uint16_t bytes;
    uint16_t matched;
    uint16_t fallback[LIMIT_STOP_BYTES]; // [i]: longest proper border of the first i + 1 bytes
};

// Embedded by value; fields are the stream's own.
struct text_stream {
    uint32_t stop_count;
    struct text_stop stops[LIMIT_STOP_STRINGS];
    uint8_t partial[4]; // bytes of a character so far
    uint8_t partial_bytes, missing_bytes;
    uint8_t tail_min, tail_max; // what the next byte of it may be
    char held[LIMIT_STOP_BYTES + 4];
    uint32_t held_bytes;
    bool stopped;
};

// `stops`: [stop_count] C strings of valid UTF-8 of 1..LIMIT_STOP_BYTES bytes, which must outlive
// the stream.
void text_stream_init(struct text_stream *stream, const char *const *stops, uint32_t stop_count);

// Most bytes that a push of `bytes` bytes, and a finish after it, write together.
static inline size_t text_stream_bound(size_t bytes)
{
    return 3 * (bytes + 1) + LIMIT_STOP_BYTES + 4;
}

// Goes on behind text whose last bytes are these (a session that was cut within a character): their
// incomplete tail counts as read.
void text_stream_resume(struct text_stream *stream, const uint8_t *bytes, size_t count);

// Takes the bytes of a token and writes the text that is decided now; returns its length. Nothing
// once stopped.
size_t text_stream_push(struct text_stream *stream, const uint8_t *bytes, size_t count, char *out);
bool text_stream_stopped(const struct text_stream *stream); // a stop string is complete
// The end: writes what was held back (nothing when stopped); returns its length.
size_t text_stream_finish(struct text_stream *stream, char *out);

#endif
