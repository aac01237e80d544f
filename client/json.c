// SPDX-License-Identifier: Apache-2.0
// Each level remembers whether it holds a value, which is all that commas need.
#include "client/json.h"

#include "proto/utf8.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

void json_begin(struct json *json, FILE *out)
{
    *json = (struct json){.out = out};
}

void json_line(struct json *json)
{
    assert(json->depth == 0);
    json->filled[0] = false;
    fputc('\n', json->out);
    fflush(json->out);
}

static void put_escaped(FILE *out, unsigned char c)
{
    static const char from[] = "\"\\\b\f\n\r\t";
    static const char to[] = "\"\\bfnrt";
    const char *found = c != 0 ? strchr(from, c) : NULL;
    if (found != NULL) {
        fprintf(out, "\\%c", to[found - from]);
    } else {
        fprintf(out, "\\u%04x", c);
    }
}

static void put_string(FILE *out, const char *text, size_t bytes)
{
    fputc('"', out);
    const char *end = text + bytes;
    while (text < end) {
        size_t length = utf8_length(text, (size_t)(end - text));
        unsigned char first = (unsigned char)*text;
        if (length == 0) {
            fputs("\\ufffd", out);
            length = 1;
        } else if (length == 1 &&
                   (first < 0x20 || first == '"' || first == '\\' || first == 0x7f)) {
            put_escaped(out, first);
        } else {
            fwrite(text, 1, length, out);
        }
        text += length;
    }
    fputc('"', out);
}

static void put_key(struct json *json, const char *key)
{
    if (json->filled[json->depth]) {
        fputc(',', json->out);
    }
    json->filled[json->depth] = true;
    if (key != NULL) {
        put_string(json->out, key, strlen(key));
        fputc(':', json->out);
    }
}

static void open_level(struct json *json, const char *key, char opener, char closer)
{
    put_key(json, key);
    assert(json->depth + 1 < JSON_DEPTH_MAX);
    json->depth++;
    json->filled[json->depth] = false;
    json->closer[json->depth] = closer;
    fputc(opener, json->out);
}

void json_object(struct json *json, const char *key)
{
    open_level(json, key, '{', '}');
}

void json_array(struct json *json, const char *key)
{
    open_level(json, key, '[', ']');
}

void json_end(struct json *json)
{
    assert(json->depth > 0);
    fputc(json->closer[json->depth], json->out);
    json->depth--;
}

void json_text(struct json *json, const char *key, const char *text)
{
    json_bytes(json, key, text, strlen(text));
}

void json_bytes(struct json *json, const char *key, const char *text, size_t bytes)
{
    put_key(json, key);
    put_string(json->out, text, bytes);
}

void json_number(struct json *json, const char *key, uint64_t number)
{
    put_key(json, key);
    fprintf(json->out, "%" PRIu64, number);
}

void json_real(struct json *json, const char *key, double number, int digits)
{
    put_key(json, key);
    if (isfinite(number)) {
        fprintf(json->out, "%.*g", digits, number);
    } else {
        fputs("null", json->out); // JSON has no infinities
    }
}

void json_bool(struct json *json, const char *key, bool value)
{
    put_key(json, key);
    fputs(value ? "true" : "false", json->out);
}

void json_null(struct json *json, const char *key)
{
    put_key(json, key);
    fputs("null", json->out);
}

void json_hex64(struct json *json, const char *key, uint64_t number)
{
    put_key(json, key);
    fprintf(json->out, "\"%016" PRIx64 "\"", number);
}
