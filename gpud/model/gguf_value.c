// SPDX-License-Identifier: Apache-2.0
// Typed reading of metadata values: each call checks type and range and says what is wrong, so that
// users of a gguf write one line a value.
#include "gpud/model/gguf.h"

#include <math.h>
#include <string.h>

#define HINT_AGAIN "download the file again, or ask its maker"

static const char *const TYPE_NAMES[GGUF_TYPE_COUNT] = {
    "uint8", "int8", "uint16", "int16",  "uint32", "int32",  "float32",
    "bool",  "text", "array",  "uint64", "int64",  "float64"};

static uint64_t load_le(const uint8_t *data, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++) {
        value |= (uint64_t)data[i] << (8 * i);
    }
    return value;
}

static struct gguf_label key_label(const char *key)
{
    return gguf_label((struct gguf_string){key, strlen(key)});
}

static enum status wrong_type(const struct gguf *gguf, const struct gguf_value *value,
                              const char *wanted, struct reason *reason)
{
    bool array = value->type == GGUF_TYPE_ARRAY;
    return reason_set(reason, STATUS_INVALID, HINT_AGAIN, "%s: metadata %s is %s%s, must be %s",
                      gguf_name(gguf), gguf_label(value->key).text, array ? "an array of " : "",
                      TYPE_NAMES[value->element_type], wanted);
}

// The value as an unsigned number; false when it is negative or not an integer.
static bool value_integer(const struct gguf_value *value, uint64_t *out)
{
    bool is_signed = value->type == GGUF_TYPE_INT8 || value->type == GGUF_TYPE_INT16 ||
                     value->type == GGUF_TYPE_INT32 || value->type == GGUF_TYPE_INT64;
    bool is_unsigned = value->type == GGUF_TYPE_UINT8 || value->type == GGUF_TYPE_UINT16 ||
                       value->type == GGUF_TYPE_UINT32 || value->type == GGUF_TYPE_UINT64;
    if (!is_signed && !is_unsigned) {
        return false;
    }
    size_t bytes = value->data_bytes;
    *out = load_le(value->data, bytes);
    return is_unsigned || (value->data[bytes - 1] & 0x80) == 0;
}

enum status gguf_read_number(const struct gguf *gguf, const struct gguf_number *number,
                             uint64_t *out, struct reason *reason)
{
    const struct gguf_value *value = gguf_find(gguf, number->key);
    if (value == NULL && number->required) {
        return reason_set(reason, STATUS_INVALID, HINT_AGAIN, "%s: metadata %s is missing",
                          gguf_name(gguf), key_label(number->key).text);
    }
    uint64_t integer = number->fallback;
    if (value != NULL && !value_integer(value, &integer)) {
        return wrong_type(gguf, value, "a whole number of 0 or more", reason);
    }
    if (value != NULL && (integer < number->minimum || integer > number->maximum)) {
        return reason_set(reason, STATUS_INVALID, HINT_AGAIN,
                          "%s: metadata %s is %llu, must be %llu..%llu", gguf_name(gguf),
                          key_label(number->key).text, (unsigned long long)integer,
                          (unsigned long long)number->minimum, (unsigned long long)number->maximum);
    }
    *out = integer;
    return STATUS_OK;
}

enum status gguf_read_float(const struct gguf *gguf, const char *key, double fallback, double *out,
                            struct reason *reason)
{
    const struct gguf_value *value = gguf_find(gguf, key);
    double number = fallback;
    if (value != NULL && value->type == GGUF_TYPE_FLOAT32) {
        float single = 0;
        memcpy(&single, value->data, sizeof(single));
        number = single;
    } else if (value != NULL && value->type == GGUF_TYPE_FLOAT64) {
        memcpy(&number, value->data, sizeof(number));
    } else if (value != NULL) {
        return wrong_type(gguf, value, "float32 or float64", reason);
    }
    if (value != NULL && !isfinite(number)) {
        return reason_set(reason, STATUS_INVALID, HINT_AGAIN, "%s: metadata %s is not finite",
                          gguf_name(gguf), key_label(key).text);
    }
    *out = number;
    return STATUS_OK;
}

enum status gguf_read_bool(const struct gguf *gguf, const char *key, bool fallback, bool *out,
                           struct reason *reason)
{
    const struct gguf_value *value = gguf_find(gguf, key);
    if (value == NULL) {
        *out = fallback;
        return STATUS_OK;
    }
    if (value->type != GGUF_TYPE_BOOL || value->data[0] > 1) {
        return wrong_type(gguf, value, "a bool of 0 or 1", reason);
    }
    *out = value->data[0] == 1;
    return STATUS_OK;
}

enum status gguf_read_text(const struct gguf *gguf, const char *key, struct gguf_string *out,
                           struct reason *reason)
{
    const struct gguf_value *value = gguf_find(gguf, key);
    if (value == NULL) {
        *out = (struct gguf_string){NULL, 0};
        return STATUS_OK;
    }
    if (value->type != GGUF_TYPE_STRING) {
        return wrong_type(gguf, value, "text", reason);
    }
    size_t cursor = 0;
    *out = gguf_string_next(value, &cursor);
    return STATUS_OK;
}

enum status gguf_read_array(const struct gguf *gguf, const char *key, enum gguf_type element_type,
                            const struct gguf_value **out, struct reason *reason)
{
    const struct gguf_value *value = gguf_find(gguf, key);
    if (value != NULL && (value->type != GGUF_TYPE_ARRAY || value->element_type != element_type)) {
        char wanted[40] = "an array of ";
        strcat(wanted, TYPE_NAMES[element_type]);
        return wrong_type(gguf, value, wanted, reason);
    }
    *out = value;
    return STATUS_OK;
}

struct gguf_string gguf_string_next(const struct gguf_value *array, size_t *cursor)
{
    size_t bytes = (size_t)load_le(array->data + *cursor, 8);
    struct gguf_string string = {(const char *)array->data + *cursor + 8, bytes};
    *cursor += 8 + bytes;
    return string;
}
