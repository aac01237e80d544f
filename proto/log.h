// SPDX-License-Identifier: Apache-2.0
// The log: one line an event on stderr, "time level MODULE-EVENT key=value key=value". Called only
// by mains and thread loops (STYLE 19), never per token. Any thread; lines do not mix.
#ifndef KVTIER_PROTO_LOG_H
#define KVTIER_PROTO_LOG_H

#include "proto/status.h"

#include <stdbool.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

enum { LOG_LINE_BYTES = 1024 }; // longer lines are cut

// Lines above `level` are dropped. Default: LOG_LEVEL_INFO.
void log_level_set(enum log_level level);
// "error", "warning", "info", "debug"; false for any other text.
bool log_level_parse(const char *text, enum log_level *out_level);

// `event` is MODULE-EVENT in capitals; `format` gives "key=value key=\"two words\"", "" for none.
// Control characters in values are written as '?', so that a value never makes a second line.
void log_event(enum log_level level, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// A failed call: status=NAME why="text; hint".
void log_failure(enum log_level level, const char *event, enum status status,
                 const struct reason *reason);

#endif
