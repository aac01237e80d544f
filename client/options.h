// SPDX-License-Identifier: Apache-2.0
// Command lines of gpuctl and kvctl: one table an option, one way to parse, one look of --help, so
// that every command behaves alike. Reads argv, writes the targets of the table; never prints but
// for options_help, never exits. One thread (getopt_long has state).
#ifndef KVTIER_CLIENT_OPTIONS_H
#define KVTIER_CLIENT_OPTIONS_H

#include "proto/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { OPTION_LIST_MAX = 64, OPTIONS_MAX = 48 };

enum option_kind {
    OPTION_FLAG,    // target: bool *, set to true
    OPTION_TEXT,    // target: const char **, points into argv
    OPTION_INTEGER, // target: int64_t *, within minimum..maximum
    OPTION_REAL,    // target: double *, within minimum..maximum
    OPTION_LIST,    // target: struct option_list *, may be given several times
};

struct option_list {
    const char *items[OPTION_LIST_MAX];
    size_t count;
};

// `help` NULL: accepted, not listed (an alias of the line before).
struct option_spec {
    const char *name; // without "--"
    char letter;      // or 0
    enum option_kind kind;
    const char *value; // name of the value in --help; NULL for flags
    const char *help;
    void *target;
    double minimum, maximum; // numbers only
    bool *given;             // set to true when it was given; may be NULL
};

struct options_command {
    const char *name;      // "gpuctl generate"
    const char *arguments; // after the options in the usage line: "NAME"; "" for none
    const char *summary;   // one sentence
    const struct option_spec *specs;
    size_t spec_count; // <= OPTIONS_MAX
    int positional_min, positional_max;
};

enum options_result {
    OPTIONS_RUN,  // go on; positional arguments are argv[*out_first..argc)
    OPTIONS_HELP, // --help was given
    OPTIONS_BAD,  // `reason` says why, in one line
};

// argv[0] is the command's own name. Options and arguments may mix; "--" ends the options.
enum options_result options_parse(const struct options_command *command, int argc, char **argv,
                                  int *out_first, struct reason *reason);

// Usage, summary and the listed options.
void options_help(const struct options_command *command, FILE *out);

// Whole decimal numbers within a range; nothing before or after.
enum status option_integer_parse(const char *text, int64_t minimum, int64_t maximum,
                                 int64_t *out) KV_MUST_CHECK;
enum status option_real_parse(const char *text, double minimum, double maximum,
                              double *out) KV_MUST_CHECK;

#endif
