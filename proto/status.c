// SPDX-License-Identifier: Apache-2.0
// Names and words of results. Keep the table in the order of enum status.
#include "proto/status.h"

#include "proto/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const status_names[STATUS_COUNT] = {
    "ok",      "invalid",     "no_memory",   "no_space",   "not_found", "busy",    "refused",
    "damaged", "unreachable", "timeout",     "closed",     "cancelled", "version", "stale",
    "io",      "exists",      "unsupported", "permission", "mismatch",
};

const char *status_name(enum status status)
{
    if ((unsigned)status >= STATUS_COUNT) {
        return "unknown";
    }
    return status_names[status];
}

int status_exit_code(enum status status)
{
    switch (status) {
    case STATUS_OK:
        return 0;
    case STATUS_INVALID:
        return 2;
    case STATUS_UNREACHABLE:
    case STATUS_TIMEOUT:
    case STATUS_CLOSED:
        return 3;
    case STATUS_NOT_FOUND:
        return 4;
    case STATUS_BUSY:
    case STATUS_NO_SPACE:
    case STATUS_EXISTS:
        return 5;
    case STATUS_REFUSED:
        return 6;
    case STATUS_DAMAGED:
        return 7;
    default:
        return 1;
    }
}

enum status status_from_wire(long long value)
{
    if (value < 0 || value >= STATUS_COUNT) {
        return STATUS_INVALID;
    }
    return (enum status)value;
}

void text_clean(char *text)
{
    size_t left = strlen(text);
    while (left > 0) {
        size_t bytes = utf8_length(text, left);
        if (bytes == 0 || (unsigned char)*text < 0x20 || *text == 0x7f) {
            *text = '?';
            bytes = 1;
        }
        text += bytes;
        left -= bytes;
    }
}

enum status reason_set(struct reason *reason, enum status status, const char *hint,
                       const char *format, ...)
{
    if (reason == NULL) {
        return status;
    }
    va_list args;
    va_start(args, format);
    vsnprintf(reason->text, sizeof(reason->text), format, args);
    va_end(args);
    snprintf(reason->hint, sizeof(reason->hint), "%s", hint != NULL ? hint : "");
    text_clean(reason->text);
    text_clean(reason->hint);
    return status;
}
