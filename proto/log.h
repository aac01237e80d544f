// SPDX-License-Identifier: Apache-2.0
// One line an event on stderr: `TIME LEVEL MODULE-EVENT key=value ...`. Called by thread loops and main
// only; modules return a status instead. Never per token. Any thread; a line is one write.
#ifndef KVTIER_PROTO_LOG_H
#define KVTIER_PROTO_LOG_H

#include "proto/status.h"

#include <stdbool.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

void log_set_level(enum log_level level);
bool log_level_parse(const char *name, enum log_level *out_level); // "error" .. "debug"
// `event` as "KVSTORED-START"; `format` makes the key=value part.
void log_line(enum log_level level, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// A status that ends something: status=NAME why="..." hint="...".
void log_reason(enum log_level level, const char *event, enum status status,
                const struct reason *reason);

#endif
