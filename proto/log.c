// SPDX-License-Identifier: Apache-2.0
// A line is built in memory and written with one call, so that lines of several threads and of
// both daemons on one terminal do not mix.
#include "proto/log.h"

#include "proto/os/clock.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static const char *const level_names[] = {"error", "warning", "info", "debug"};

// Relaxed: a filter; which line is the first under a new level does not matter.
static _Atomic int current_level = LOG_LEVEL_INFO;

void log_level_set(enum log_level level)
{
    atomic_store_explicit(&current_level, (int)level, memory_order_relaxed);
}

bool log_level_parse(const char *text, enum log_level *out_level)
{
    for (int level = LOG_LEVEL_ERROR; level <= LOG_LEVEL_DEBUG; level++) {
        if (strcmp(text, level_names[level]) == 0) {
            *out_level = (enum log_level)level;
            return true;
        }
    }
    return false;
}

void log_event(enum log_level level, const char *event, const char *format, ...)
{
    if ((int)level > atomic_load_explicit(&current_level, memory_order_relaxed)) {
        return;
    }
    char time_text[OS_CLOCK_TEXT_BYTES];
    os_clock_text(os_clock_wall_ms(), time_text);
    char line[LOG_LINE_BYTES];
    size_t room = sizeof(line) - 1; // the last byte is for the line's end
    size_t length = (size_t)snprintf(line, room, "%s %s %s", time_text, level_names[level], event);
    length = length < room ? length : room - 1;
    if (format[0] != '\0' && length + 2 < room) {
        line[length++] = ' ';
        va_list args;
        va_start(args, format);
        int added = vsnprintf(line + length, room - length, format, args);
        va_end(args);
        length += added < 0 ? 0 : (size_t)added < room - length ? (size_t)added : room - length - 1;
    }
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)line[i];
        line[i] = c < 0x20 || c == 0x7f ? '?' : line[i];
    }
    line[length++] = '\n';
    fwrite(line, 1, length, stderr);
    fflush(stderr);
}

void log_failure(enum log_level level, const char *event, enum status status,
                 const struct reason *reason)
{
    if (reason == NULL || reason->text[0] == '\0') {
        log_event(level, event, "status=%s", status_name(status));
    } else {
        log_event(level, event, "status=%s why=\"%s%s%s\"", status_name(status), reason->text,
                  reason->hint[0] != '\0' ? "; " : "", reason->hint);
    }
}
