// SPDX-License-Identifier: Apache-2.0
// What gpuctl and kvctl say to people: errors in one form (INTERFACE "Conventions"), progress bars
// on a terminal only, sizes and times in words. Results go to stdout elsewhere; this writes to
// stderr, but for JSON errors. One thread.
#ifndef KVTIER_CLIENT_CONSOLE_H
#define KVTIER_CLIENT_CONSOLE_H

#include "proto/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Prints "PROGRAM: WHAT: WHY; WHAT TO DO" to stderr, and with `json` {"error":{...}} to stdout.
// Returns the exit code of `status`.
int console_fail(const char *program, bool json, enum status status, const struct reason *reason);
// The end of a program: `exit_code`, or a line on stderr and 1 when not all of stdout was written.
int console_finish(const char *program, int exit_code);

// A bar on stderr that is redrawn in place, at most ten times a second; nothing when stderr is no
// terminal. Zeroed memory is a bar that is not shown.
struct console_bar {
    const char *label;
    bool shown;
    bool drawn;
    uint64_t started_ms;
    uint64_t drawn_ms;
};

// A bar of nothing done; the bar is drawn at its first set, as `done` of `total`.
struct console_bar console_bar_start(const char *label);
void console_bar_set(struct console_bar *bar, uint64_t done, uint64_t total, const char *unit);
void console_bar_finish(struct console_bar *bar); // wipes it

enum { CONSOLE_TEXT_BYTES = 32 };
struct console_text {
    char text[CONSOLE_TEXT_BYTES];
};
struct console_text console_size(uint64_t bytes); // "1.5 GiB"
struct console_text console_age(uint64_t age_ms); // "3 min"

// The whole of a file ("-": stdin), malloc'ed and NUL-ended, *out_bytes long without the NUL, at
// most `limit_bytes`. STATUS_NOT_FOUND, STATUS_REFUSED (longer), STATUS_IO, STATUS_NO_MEMORY.
enum status console_read_file(const char *path, size_t limit_bytes, char **out_text,
                              size_t *out_bytes, struct reason *reason) KV_MUST_CHECK;

// Token ids of a file ("-": stdin): decimal, separated by white space or commas, or a JSON array.
// *out_ids [*out_count] for free(). STATUS_INVALID names line and word.
enum status console_read_ids(const char *path, uint32_t **out_ids, size_t *out_count,
                             struct reason *reason) KV_MUST_CHECK;
// The same from text.
enum status console_parse_ids(const char *name, const char *text, size_t bytes, uint32_t **out_ids,
                              size_t *out_count, struct reason *reason) KV_MUST_CHECK;

#endif
