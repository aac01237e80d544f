// SPDX-License-Identifier: Apache-2.0
// Writes JSON to a stream, one value after the other, with commas and escapes where they belong.
// What is not UTF-8 becomes U+FFFD. One thread an object. Never fails: a full disk shows in ferror.
//
//     json_begin(&json, stdout);            {"tokens":12,"name":"a"}
//     json_object(&json, NULL);
//     json_number(&json, "tokens", 12);
//     json_text(&json, "name", "a");
//     json_end(&json);                      and json_line(&json) ends the line and flushes
#ifndef KVTIER_CLIENT_JSON_H
#define KVTIER_CLIENT_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { JSON_DEPTH_MAX = 16 };

struct json {
    FILE *out;
    int depth;
    bool filled[JSON_DEPTH_MAX]; // this level holds a value already
    char closer[JSON_DEPTH_MAX];
};

// Starts on `out`; json_line ends the line of one whole value.
void json_begin(struct json *json, FILE *out);
void json_line(struct json *json);

// `key` is NULL inside arrays and at the top.
void json_object(struct json *json, const char *key);
void json_array(struct json *json, const char *key);
void json_end(struct json *json); // of the innermost object or array

// Values. A byte that is not UTF-8 becomes U+FFFD; numbers are plain.
void json_text(struct json *json, const char *key, const char *text);
void json_bytes(struct json *json, const char *key, const char *text, size_t bytes);
void json_number(struct json *json, const char *key, uint64_t number);
void json_real(struct json *json, const char *key, double number, int digits); // significant ones
void json_bool(struct json *json, const char *key, bool value);
void json_null(struct json *json, const char *key);
void json_hex64(struct json *json, const char *key, uint64_t number); // "0123456789abcdef"

#endif
