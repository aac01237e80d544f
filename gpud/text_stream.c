// SPDX-License-Identifier: Apache-2.0
// Two stages, byte by byte: bytes to characters, then characters through the stop strings. Held
// text is exactly the longest suffix that begins a stop string; since stop strings are whole
// characters, so is it.
#include "gpud/text_stream.h"

#include <assert.h>
#include <string.h>

static void stop_init(struct text_stop *stop, const char *text)
{
    size_t bytes = strlen(text);
    assert(bytes > 0 && bytes <= LIMIT_STOP_BYTES);
    *stop = (struct text_stop){.text = text, .bytes = (uint16_t)bytes};
    uint16_t border = 0;
    for (uint16_t i = 1; i < bytes; i++) {
        while (border > 0 && text[i] != text[border]) {
            border = stop->fallback[border - 1];
        }
        border += text[i] == text[border];
        stop->fallback[i] = border;
    }
}

// Whether the stop string is complete with this byte.
static bool stop_match(struct text_stop *stop, char byte)
{
    while (stop->matched > 0 && byte != stop->text[stop->matched]) {
        stop->matched = stop->fallback[stop->matched - 1];
    }
    stop->matched += byte == stop->text[stop->matched];
    return stop->matched == stop->bytes;
}

void text_stream_init(struct text_stream *stream, const char *const *stops, uint32_t stop_count)
{
    assert(stop_count <= LIMIT_STOP_STRINGS);
    *stream = (struct text_stream){.stop_count = stop_count};
    for (uint32_t i = 0; i < stop_count; i++) {
        stop_init(&stream->stops[i], stops[i]);
    }
}

// ---- characters through the stop strings

// Writes the held text but its last `keep` bytes to out; returns how much.
static size_t release_held(struct text_stream *stream, uint32_t keep, char *out)
{
    uint32_t bytes = stream->held_bytes - keep;
    memcpy(out, stream->held, bytes);
    memmove(stream->held, stream->held + bytes, keep);
    stream->held_bytes = keep;
    return bytes;
}

static size_t take_character(struct text_stream *stream, const void *character, size_t bytes,
                             char *out)
{
    memcpy(stream->held + stream->held_bytes, character, bytes);
    const char *text = stream->held + stream->held_bytes;
    stream->held_bytes += (uint32_t)bytes;
    uint32_t keep = 0;
    for (uint32_t i = 0; i < stream->stop_count; i++) {
        bool complete = false;
        for (size_t b = 0; b < bytes; b++) {
            complete = stop_match(&stream->stops[i], text[b]);
        }
        stream->stopped |= complete;
        keep = stream->stops[i].matched > keep ? stream->stops[i].matched : keep;
    }
    if (!stream->stopped) {
        return release_held(stream, keep, out);
    }
    uint32_t longest = 0; // of the stop strings that are complete
    for (uint32_t i = 0; i < stream->stop_count; i++) {
        const struct text_stop *stop = &stream->stops[i];
        if (stop->matched == stop->bytes && stop->bytes > longest) {
            longest = stop->bytes;
        }
    }
    return release_held(stream, longest, out);
}

// ---- bytes to characters

// Starts a character with its first byte; false when no character begins with it.
static bool begin_character(struct text_stream *stream, uint8_t byte)
{
    stream->tail_min = byte == 0xe0 ? 0xa0 : byte == 0xf0 ? 0x90 : 0x80;
    stream->tail_max = byte == 0xed ? 0x9f : byte == 0xf4 ? 0x8f : 0xbf;
    stream->partial[0] = byte;
    stream->partial_bytes = 1;
    if (byte >= 0xc2 && byte <= 0xdf) {
        stream->missing_bytes = 1;
    } else if (byte >= 0xe0 && byte <= 0xef) {
        stream->missing_bytes = 2;
    } else if (byte >= 0xf0 && byte <= 0xf4) {
        stream->missing_bytes = 3;
    } else {
        stream->missing_bytes = 0;
        return byte < 0x80;
    }
    return true;
}

static bool continue_character(struct text_stream *stream, uint8_t byte)
{
    if (byte < stream->tail_min || byte > stream->tail_max) {
        stream->missing_bytes = 0;
        return false;
    }
    stream->partial[stream->partial_bytes++] = byte;
    stream->missing_bytes--;
    stream->tail_min = 0x80;
    stream->tail_max = 0xbf;
    return true;
}

static size_t take_replacement(struct text_stream *stream, char *out)
{
    return take_character(stream, "\xef\xbf\xbd", 3, out);
}

static size_t take_byte(struct text_stream *stream, uint8_t byte, char *out)
{
    size_t written = 0;
    if (stream->missing_bytes > 0) {
        if (continue_character(stream, byte)) {
            return stream->missing_bytes > 0
                       ? 0
                       : take_character(stream, stream->partial, stream->partial_bytes, out);
        }
        written = take_replacement(stream, out);
        if (stream->stopped) {
            return written;
        }
    }
    if (!begin_character(stream, byte)) {
        return written + take_replacement(stream, out + written);
    }
    return stream->missing_bytes > 0 ? written
                                     : written + take_character(stream, &byte, 1, out + written);
}

void text_stream_resume(struct text_stream *stream, const uint8_t *bytes, size_t count)
{
    char ignored[8]; // no stop string has begun
    size_t first = count > 3 ? count - 3 : 0;
    uint32_t stop_count = stream->stop_count;
    stream->stop_count = 0; // text of before cannot be part of a stop string
    for (size_t i = first; i < count; i++) {
        take_byte(stream, bytes[i], ignored);
    }
    stream->stop_count = stop_count;
}

size_t text_stream_push(struct text_stream *stream, const uint8_t *bytes, size_t count, char *out)
{
    size_t written = 0;
    for (size_t i = 0; i < count && !stream->stopped; i++) {
        written += take_byte(stream, bytes[i], out + written);
    }
    return written;
}

bool text_stream_stopped(const struct text_stream *stream)
{
    return stream->stopped;
}

size_t text_stream_finish(struct text_stream *stream, char *out)
{
    return stream->stopped ? 0 : release_held(stream, 0, out);
}
