// SPDX-License-Identifier: Apache-2.0
// Everything that both programs say in the same words, so that no command has a form of its own.
#include "client/console.h"

#include "client/json.h"
#include "proto/limits.h"
#include "proto/os/clock.h"
#include "proto/os/terminal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BAR_CELLS = 24, BAR_INTERVAL_MS = 100, ID_DIGITS_MAX = 10, IDS_FILE_BYTES_MAX = 16 << 20 };

int console_fail(const char *program, bool json, enum status status, const struct reason *reason)
{
    const char *text = reason->text[0] != 0 ? reason->text : status_name(status);
    fprintf(stderr, "%s: %s%s%s\n", program, text, reason->hint[0] != 0 ? "; " : "", reason->hint);
    if (json) {
        struct json out;
        json_begin(&out, stdout);
        json_object(&out, NULL);
        json_object(&out, "error");
        json_text(&out, "code", status_name(status));
        json_text(&out, "message", text);
        json_text(&out, "hint", reason->hint);
        json_end(&out);
        json_end(&out);
        json_line(&out);
    }
    return status_exit_code(status);
}

int console_finish(const char *program, int exit_code)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) {
        return exit_code;
    }
    fprintf(stderr, "%s: output: cannot be written; check the disk, or the program that reads it\n",
            program);
    return 1;
}

struct console_bar console_bar_start(const char *label)
{
    return (struct console_bar){
        .label = label, .shown = os_terminal_errors(), .started_ms = os_clock_ms()};
}

void console_bar_set(struct console_bar *bar, uint64_t done, uint64_t total, const char *unit)
{
    uint64_t now = os_clock_ms();
    if (!bar->shown || total == 0 || (bar->drawn && now - bar->drawn_ms < BAR_INTERVAL_MS)) {
        return;
    }
    if (done > total) {
        done = total;
    }
    char cells[BAR_CELLS + 1];
    size_t filled = (size_t)((double)done / (double)total * BAR_CELLS);
    memset(cells, '#', filled);
    memset(cells + filled, '.', BAR_CELLS - filled);
    cells[BAR_CELLS] = 0;
    double seconds = (double)(now - bar->started_ms) / 1000.0;
    double left = done > 0 ? seconds / (double)done * (double)(total - done) : 0;
    fprintf(stderr, "\r%s [%s] %3.0f %%  %llu of %llu %s, %.0f s left\033[K", bar->label, cells,
            100.0 * (double)done / (double)total, (unsigned long long)done,
            (unsigned long long)total, unit, left);
    fflush(stderr);
    bar->drawn = true;
    bar->drawn_ms = now;
}

void console_bar_finish(struct console_bar *bar)
{
    if (bar->drawn) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
    bar->drawn = false;
    bar->shown = false;
}

struct console_text console_size(uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        value /= 1024;
        unit++;
    }
    struct console_text out;
    snprintf(out.text, sizeof(out.text), unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return out;
}

struct console_text console_age(uint64_t age_ms)
{
    static const struct {
        uint64_t ms;
        const char *unit;
    } steps[] = {{86400000, "d"}, {3600000, "h"}, {60000, "min"}, {1000, "s"}};
    struct console_text out = {"0 s"};
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        if (age_ms >= steps[i].ms) {
            snprintf(out.text, sizeof(out.text), "%llu %s",
                     (unsigned long long)(age_ms / steps[i].ms), steps[i].unit);
            break;
        }
    }
    return out;
}

// ---- files

static enum status read_stream(FILE *file, const char *path, size_t limit_bytes, char **out_text,
                               size_t *out_bytes, struct reason *reason)
{
    char *text = NULL;
    size_t used = 0;
    size_t capacity = 0;
    for (;;) {
        if (used + 1 >= capacity) {
            capacity = capacity == 0 ? 65536 : capacity * 2;
            char *grown = realloc(text, capacity);
            if (grown == NULL) {
                free(text);
                return reason_set(reason, STATUS_NO_MEMORY, NULL, "%s: out of memory", path);
            }
            text = grown;
        }
        size_t got = fread(text + used, 1, capacity - used - 1, file);
        used += got;
        if (used > limit_bytes) {
            free(text);
            return reason_set(reason, STATUS_REFUSED, "give a shorter one",
                              "%s: longer than %zu bytes", path, limit_bytes);
        }
        if (got == 0) {
            break;
        }
    }
    if (ferror(file)) {
        free(text);
        return reason_set(reason, STATUS_IO, NULL, "%s: %s", path, strerror(errno));
    }
    text[used] = 0;
    *out_text = text;
    *out_bytes = used;
    return STATUS_OK;
}

enum status console_read_file(const char *path, size_t limit_bytes, char **out_text,
                              size_t *out_bytes, struct reason *reason)
{
    if (strcmp(path, "-") == 0) {
        return read_stream(stdin, "standard input", limit_bytes, out_text, out_bytes, reason);
    }
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return reason_set(reason, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, NULL, "%s: %s",
                          path, strerror(errno));
    }
    enum status status = read_stream(file, path, limit_bytes, out_text, out_bytes, reason);
    fclose(file);
    return status;
}

static bool separates(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ',' || c == '[' || c == ']';
}

// One id at text[*io_at]; STATUS_INVALID when the word is not one.
static enum status parse_id(const char *text, size_t bytes, size_t *io_at, uint32_t *out_id)
{
    uint64_t id = 0;
    size_t start = *io_at;
    size_t at = start;
    for (; at < bytes && text[at] >= '0' && text[at] <= '9'; at++) {
        if (at - start >= ID_DIGITS_MAX) {
            return STATUS_INVALID;
        }
        id = id * 10 + (uint64_t)(text[at] - '0');
    }
    if (at == start || (at < bytes && !separates(text[at])) || id > UINT32_MAX) {
        return STATUS_INVALID;
    }
    *io_at = at;
    *out_id = (uint32_t)id;
    return STATUS_OK;
}

static size_t line_of(const char *text, size_t at)
{
    size_t line = 1;
    for (size_t i = 0; i < at; i++) {
        line += text[i] == '\n';
    }
    return line;
}

// Brackets stand around all ids or nowhere: half of a list is not taken for a whole one.
static bool brackets_match(const char *text, size_t bytes)
{
    static const char space[] = " \t\n\r,";
    while (bytes > 0 && memchr(space, text[bytes - 1], sizeof(space) - 1) != NULL) {
        bytes--;
    }
    while (bytes > 0 && memchr(space, *text, sizeof(space) - 1) != NULL) {
        text++;
        bytes--;
    }
    if (bytes >= 2 && text[0] == '[' && text[bytes - 1] == ']') {
        text++;
        bytes -= 2;
    }
    return memchr(text, '[', bytes) == NULL && memchr(text, ']', bytes) == NULL;
}

enum status console_parse_ids(const char *name, const char *text, size_t bytes, uint32_t **out_ids,
                              size_t *out_count, struct reason *reason)
{
    if (!brackets_match(text, bytes)) {
        return reason_set(reason, STATUS_INVALID, "give one array, or ids without brackets",
                          "%s: its brackets do not match", name);
    }
    // Every id but the last takes a digit and a separator.
    uint32_t *ids = malloc((bytes / 2 + 1) * sizeof(*ids));
    if (ids == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, NULL, "%s: out of memory", name);
    }
    size_t count = 0;
    for (size_t at = 0; at < bytes;) {
        if (separates(text[at])) {
            at++;
        } else if (parse_id(text, bytes, &at, &ids[count]) == STATUS_OK) {
            count++;
        } else {
            free(ids);
            return reason_set(reason, STATUS_INVALID,
                              "give decimal ids, separated by white space or commas",
                              "%s: line %zu: not a token id", name, line_of(text, at));
        }
    }
    *out_ids = ids;
    *out_count = count;
    return STATUS_OK;
}

enum status console_read_ids(const char *path, uint32_t **out_ids, size_t *out_count,
                             struct reason *reason)
{
    char *text = NULL;
    size_t bytes = 0;
    enum status status = console_read_file(path, IDS_FILE_BYTES_MAX, &text, &bytes, reason);
    if (status != STATUS_OK) {
        return status;
    }
    status = console_parse_ids(path, text, bytes, out_ids, out_count, reason);
    free(text);
    return status;
}
