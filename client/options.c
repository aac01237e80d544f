// SPDX-License-Identifier: Apache-2.0
// Built on getopt_long. Long options get numbers from LONG_BASE on, so that an option without a
// letter is told from one with; abbreviations of long names are refused, since a new option must
// not change what an old command line means.
#include "client/options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LONG_BASE = 1000, HELP_COLUMN = 30 };

struct tables {
    struct option longs[OPTIONS_MAX + 2];
    char letters[2 * OPTIONS_MAX + 4];
};

enum status option_integer_parse(const char *text, int64_t minimum, int64_t maximum, int64_t *out)
{
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    bool signed_digit = text[0] == '-' && text[1] >= '0' && text[1] <= '9';
    if (!(signed_digit || (text[0] >= '0' && text[0] <= '9')) || *end != 0 || errno != 0 ||
        value < minimum || value > maximum) {
        return STATUS_INVALID;
    }
    *out = value;
    return STATUS_OK;
}

enum status option_real_parse(const char *text, double minimum, double maximum, double *out)
{
    char *end = NULL;
    double value = strtod(text, &end);
    bool starts_well = text[0] == '-' || text[0] == '.' || (text[0] >= '0' && text[0] <= '9');
    if (!starts_well || *end != 0 || !isfinite(value) || value < minimum || value > maximum) {
        return STATUS_INVALID;
    }
    *out = value;
    return STATUS_OK;
}

static void tables_build(const struct options_command *command, struct tables *out)
{
    *out = (struct tables){0};
    char *letter = out->letters;
    *letter++ = ':'; // a missing value is told from an unknown option
    for (size_t i = 0; i < command->spec_count; i++) {
        const struct option_spec *spec = &command->specs[i];
        bool takes_value = spec->kind != OPTION_FLAG;
        out->longs[i] = (struct option){spec->name, takes_value ? required_argument : no_argument,
                                        NULL, LONG_BASE + (int)i};
        if (spec->letter != 0) {
            *letter++ = spec->letter;
            if (takes_value) {
                *letter++ = ':';
            }
        }
    }
    *letter++ = 'h';
    out->longs[command->spec_count] = (struct option){"help", no_argument, NULL, 'h'};
}

static const struct option_spec *spec_find(const struct options_command *command, int code)
{
    if (code >= LONG_BASE) {
        return &command->specs[code - LONG_BASE];
    }
    for (size_t i = 0; i < command->spec_count; i++) {
        if (command->specs[i].letter == code) {
            return &command->specs[i];
        }
    }
    return NULL;
}

static enum status store_number(const struct option_spec *spec, const char *text,
                                struct reason *reason)
{
    enum status status;
    if (spec->kind == OPTION_INTEGER) {
        status = option_integer_parse(text, (int64_t)spec->minimum, (int64_t)spec->maximum,
                                      spec->target);
    } else {
        status = option_real_parse(text, spec->minimum, spec->maximum, spec->target);
    }
    if (status == STATUS_OK) {
        return STATUS_OK;
    }
    return reason_set(
        reason, STATUS_INVALID, NULL, "--%s %s: not %s from %.16g to %.16g", spec->name, text,
        spec->kind == OPTION_INTEGER ? "a whole number" : "a number", spec->minimum, spec->maximum);
}

static enum status store(const struct option_spec *spec, const char *text, struct reason *reason)
{
    if (spec->given != NULL) {
        *spec->given = true;
    }
    switch (spec->kind) {
    case OPTION_FLAG:
        *(bool *)spec->target = true;
        return STATUS_OK;
    case OPTION_TEXT:
        *(const char **)spec->target = text;
        return STATUS_OK;
    case OPTION_LIST: {
        struct option_list *list = spec->target;
        if (list->count == OPTION_LIST_MAX) {
            return reason_set(reason, STATUS_INVALID, NULL, "--%s: given more than %d times",
                              spec->name, OPTION_LIST_MAX);
        }
        list->items[list->count++] = text;
        return STATUS_OK;
    }
    case OPTION_INTEGER:
    case OPTION_REAL:
        return store_number(spec, text, reason);
    }
    return STATUS_INVALID;
}

// getopt_long accepts unambiguous abbreviations; the argument just read says whether it was one.
static bool abbreviated(const struct option_spec *spec, int code, int argc, char **argv)
{
    if (code < LONG_BASE) {
        return false;
    }
    size_t length = strlen(spec->name);
    for (int i = 1; i <= 2 && optind - i > 0 && optind - i < argc; i++) {
        const char *word = argv[optind - i];
        if (strncmp(word, "--", 2) == 0 && strncmp(word + 2, spec->name, length) == 0 &&
            (word[2 + length] == 0 || word[2 + length] == '=')) {
            return false;
        }
    }
    return true;
}

static enum options_result bad(const struct options_command *command, struct reason *reason,
                               const char *word, const char *why)
{
    char hint[REASON_HINT_BYTES];
    snprintf(hint, sizeof(hint), "see %s --help", command->name);
    (void)reason_set(reason, STATUS_INVALID, hint, "%s: %s", word, why);
    return OPTIONS_BAD;
}

static enum options_result unknown(const struct options_command *command, char **argv,
                                   struct reason *reason)
{
    char word[3] = {'-', (char)optopt, 0};
    bool is_letter = optopt > 0 && optopt < LONG_BASE && optopt != 'h';
    return bad(command, reason, is_letter ? word : argv[optind - 1], "no such option");
}

static enum options_result check_positional(const struct options_command *command, int argc,
                                            char **argv, int first, struct reason *reason)
{
    int count = argc - first;
    if (count < command->positional_min) {
        return bad(command, reason, command->arguments, "missing");
    }
    if (count > command->positional_max) {
        return bad(command, reason, argv[first + command->positional_max], "one argument too many");
    }
    return OPTIONS_RUN;
}

enum options_result options_parse(const struct options_command *command, int argc, char **argv,
                                  int *out_first, struct reason *reason)
{
    struct tables tables;
    tables_build(command, &tables);
    optind = 0; // glibc: start afresh, whatever was parsed before
    opterr = 0;
    for (;;) {
        int code = getopt_long(argc, argv, tables.letters, tables.longs, NULL);
        if (code == -1) {
            break;
        }
        if (code == 'h') {
            return OPTIONS_HELP;
        }
        if (code == '?') {
            return unknown(command, argv, reason);
        }
        if (code == ':') {
            return bad(command, reason, argv[optind - 1], "needs a value");
        }
        const struct option_spec *spec = spec_find(command, code);
        if (abbreviated(spec, code, argc, argv)) {
            return bad(command, reason, argv[optind - 1], "no such option");
        }
        if (store(spec, optarg, reason) != STATUS_OK) {
            snprintf(reason->hint, sizeof(reason->hint), "see %s --help", command->name);
            return OPTIONS_BAD;
        }
    }
    *out_first = optind;
    return check_positional(command, argc, argv, optind, reason);
}

static void help_line(const struct option_spec *spec, FILE *out)
{
    char left[80];
    char letter[8] = "    ";
    if (spec->letter != 0) {
        snprintf(letter, sizeof(letter), "-%c, ", spec->letter);
    }
    snprintf(left, sizeof(left), "  %s--%s%s%s", letter, spec->name, spec->value != NULL ? " " : "",
             spec->value != NULL ? spec->value : "");
    if (strlen(left) >= HELP_COLUMN) {
        fprintf(out, "%s\n%*s%s\n", left, HELP_COLUMN, "", spec->help);
    } else {
        fprintf(out, "%-*s%s\n", HELP_COLUMN, left, spec->help);
    }
}

void options_help(const struct options_command *command, FILE *out)
{
    fprintf(out, "usage: %s [options]%s%s\n%s\n\n", command->name,
            command->arguments[0] != 0 ? " " : "", command->arguments, command->summary);
    for (size_t i = 0; i < command->spec_count; i++) {
        if (command->specs[i].help != NULL) {
            help_line(&command->specs[i], out);
        }
    }
    const struct option_spec help = {.name = "help", .letter = 'h', .help = "show this"};
    help_line(&help, out);
}
