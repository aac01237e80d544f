// SPDX-License-Identifier: Apache-2.0
// Both daemons take the same kinds of settings from the same two places; this is the one
// implementation, and the one place that includes ini.h. Rules: a value is stored with its source,
// a weaker source never replaces a stronger one, and nothing is converted before it is asked for.

#include "proto/config_file.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum config_source { CONFIG_SOURCE_DEFAULT, CONFIG_SOURCE_FILE, CONFIG_SOURCE_OPTION };

struct config_value {
    bool set;
    enum config_source source;
    char text[CONFIG_VALUE_BYTES];
};

struct config {
    const struct config_spec *specs;
    size_t count;
    char file[CONFIG_VALUE_BYTES]; // that was read; empty = none
    struct config_value values[];
};

// State of one pass over an ini file.
struct file_pass {
    struct config *config;
    struct reason *reason;
    const char *path;
    int line; // of the entry that was refused; 0 = none
};

static bool is_flag(const struct config_spec *spec)
{
    return spec->value_name == NULL;
}

// The index of a setting, or `count` when there is none.
static size_t find(const struct config *config, const char *name, size_t length)
{
    for (size_t i = 0; i < config->count; i++) {
        if (strlen(config->specs[i].name) == length &&
            memcmp(config->specs[i].name, name, length) == 0) {
            return i;
        }
    }
    return config->count;
}

// A name in our own code that is not in the table is our own mistake.
static size_t find_known(const struct config *config, const char *name)
{
    size_t index = find(config, name, strlen(name));
    assert(index < config->count);
    return index;
}

static bool flag_parse(const char *text, bool *out)
{
    if (strcmp(text, "true") == 0 || strcmp(text, "yes") == 0 || strcmp(text, "on") == 0 ||
        strcmp(text, "1") == 0) {
        *out = true;
        return true;
    }
    if (strcmp(text, "false") == 0 || strcmp(text, "no") == 0 || strcmp(text, "off") == 0 ||
        strcmp(text, "0") == 0) {
        *out = false;
        return true;
    }
    return false;
}

// Stores a value unless a stronger source has set it.
static enum status store_value(struct config *config, size_t index, const char *text,
                               enum config_source source, struct reason *reason)
{
    struct config_value *value = &config->values[index];
    const struct config_spec *spec = &config->specs[index];
    bool flag = false;
    if (strlen(text) >= CONFIG_VALUE_BYTES) {
        return reason_set(reason, STATUS_INVALID, "shorten it", "%s: value longer than %d bytes",
                          spec->name, CONFIG_VALUE_BYTES - 1);
    }
    if (is_flag(spec) && !flag_parse(text, &flag)) {
        return reason_set(reason, STATUS_INVALID, "use true or false",
                          "%s: %.64s is not a truth value", spec->name, text);
    }
    if (value->set && value->source > source) {
        return STATUS_OK;
    }
    value->set = true;
    value->source = source;
    strcpy(value->text, is_flag(spec) ? (flag ? "true" : "false") : text);
    return STATUS_OK;
}

enum status config_create(const struct config_spec *specs, size_t count, struct config **out_config)
{
    assert(count <= CONFIG_SETTINGS_MAX);
    struct config *config = calloc(1, sizeof(*config) + count * sizeof(config->values[0]));
    if (config == NULL) {
        return STATUS_NO_MEMORY;
    }
    config->specs = specs;
    config->count = count;
    for (size_t i = 0; i < count; i++) {
        const char *fallback = specs[i].fallback;
        if (fallback == NULL && is_flag(&specs[i])) {
            fallback = "false";
        }
        if (fallback != NULL) {
            assert(strlen(fallback) < CONFIG_VALUE_BYTES);
            config->values[i].set = true;
            strcpy(config->values[i].text, fallback);
        }
    }
    *out_config = config;
    return STATUS_OK;
}

void config_destroy(struct config *config)
{
    free(config);
}

// One option that stands at argv[*at]; moves *at over a value of its own.
static enum status read_option(struct config *config, int argc, char **argv, int *at,
                               struct reason *reason)
{
    const char *name = argv[*at] + 2;
    const char *equals = strchr(name, '=');
    size_t length = equals != NULL ? (size_t)(equals - name) : strlen(name);
    size_t index = find(config, name, length);
    if (index < config->count && is_flag(&config->specs[index])) {
        return store_value(config, index, equals != NULL ? equals + 1 : "true",
                           CONFIG_SOURCE_OPTION, reason);
    }
    if (index == config->count && equals == NULL && strncmp(name, "no-", 3) == 0) {
        index = find(config, name + 3, length - 3);
        if (index < config->count && is_flag(&config->specs[index])) {
            return store_value(config, index, "false", CONFIG_SOURCE_OPTION, reason);
        }
        index = config->count;
    }
    if (index == config->count) {
        return reason_set(reason, STATUS_INVALID, "see --help", "--%.*s: no such option",
                          (int)(length < 64 ? length : 64), name);
    }
    if (equals != NULL) {
        return store_value(config, index, equals + 1, CONFIG_SOURCE_OPTION, reason);
    }
    if (*at + 1 >= argc) {
        return reason_set(reason, STATUS_INVALID, "see --help", "--%s: needs a value (%s)",
                          config->specs[index].name, config->specs[index].value_name);
    }
    *at += 1;
    return store_value(config, index, argv[*at], CONFIG_SOURCE_OPTION, reason);
}

enum status config_read_options(struct config *config, int argc, char **argv, struct reason *reason)
{
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) != 0 || argv[i][2] == '\0') {
            return reason_set(reason, STATUS_INVALID, "see --help", "%.64s: not an option",
                              argv[i]);
        }
        enum status status = read_option(config, argc, argv, &i, reason);
        if (status != STATUS_OK) {
            return status;
        }
    }
    return STATUS_OK;
}

// inih's callback, once an entry: 1 = fine, 0 = this line is an error.
static int read_entry(void *user, const char *section, const char *name, const char *value)
{
    struct file_pass *pass = user;
    (void)section;
    if (pass->reason->text[0] != '\0') {
        return 1; // only the first refusal is told
    }
    size_t index = find(pass->config, name, strlen(name));
    if (index == pass->config->count || pass->config->specs[index].command_only) {
        (void)reason_set(pass->reason, STATUS_INVALID, "see --help for the settings",
                         "%.64s: no such setting", name);
        return 0;
    }
    return store_value(pass->config, index, value, CONFIG_SOURCE_FILE, pass->reason) == STATUS_OK;
}

enum status config_read_file(struct config *config, const char *path, struct reason *reason)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return errno == ENOENT || errno == ENOTDIR
                   ? STATUS_NOT_FOUND
                   : reason_set(reason, STATUS_IO, "check its permissions", "%.200s: %s", path,
                                strerror(errno));
    }
    struct reason entry = {0};
    struct file_pass pass = {.config = config, .reason = &entry, .path = path};
    int line = ini_parse_file(file, read_entry, &pass);
    bool unreadable = ferror(file) != 0;
    fclose(file);
    if (unreadable || line < 0) {
        return reason_set(reason, STATUS_IO, "check the disk", "%.200s: cannot be read", path);
    }
    if (line > 0) {
        return reason_set(reason, STATUS_INVALID,
                          entry.hint[0] != '\0' ? entry.hint : "use name = value",
                          "%.200s line %d: %.120s", path, line,
                          entry.text[0] != '\0' ? entry.text : "neither a setting nor a comment");
    }
    snprintf(config->file, sizeof(config->file), "%s", path);
    return STATUS_OK;
}

const char *config_text(const struct config *config, const char *name)
{
    const struct config_value *value = &config->values[find_known(config, name)];
    return value->set ? value->text : NULL;
}

bool config_flag(const struct config *config, const char *name)
{
    size_t index = find_known(config, name);
    assert(is_flag(&config->specs[index]));
    return strcmp(config->values[index].text, "true") == 0;
}

bool config_given(const struct config *config, const char *name)
{
    return config->values[find_known(config, name)].source != CONFIG_SOURCE_DEFAULT;
}

static const char *source_text(const struct config *config, const struct config_value *value)
{
    switch (value->source) {
    case CONFIG_SOURCE_OPTION:
        return "command line";
    case CONFIG_SOURCE_FILE:
        return config->file[0] != '\0' ? config->file : "config file";
    default:
        return "default";
    }
}

// The error of a value that a typed getter could not take.
static enum status bad_value(const struct config *config, const char *name, const char *expected,
                             struct reason *reason)
{
    const struct config_value *value = &config->values[find_known(config, name)];
    return reason_set(reason, STATUS_INVALID, expected,
                      "%s = %.64s (%.128s): not a value it can have", name, value->text,
                      source_text(config, value));
}

enum status config_integer(const struct config *config, const char *name, int64_t minimum,
                           int64_t maximum, int64_t *out, struct reason *reason)
{
    const char *text = config_text(config, name);
    char *end = NULL;
    errno = 0;
    long long number = text != NULL ? strtoll(text, &end, 10) : 0;
    if (text == NULL || end == text || *end != '\0' || isspace((unsigned char)text[0]) ||
        errno != 0 || number < minimum || number > maximum) {
        char expected[96];
        snprintf(expected, sizeof(expected), "give a whole number from %lld to %lld",
                 (long long)minimum, (long long)maximum);
        return bad_value(config, name, expected, reason);
    }
    *out = number;
    return STATUS_OK;
}

enum status config_real(const struct config *config, const char *name, double minimum,
                        double maximum, double *out, struct reason *reason)
{
    const char *text = config_text(config, name);
    char *end = NULL;
    double number = text != NULL ? strtod(text, &end) : 0;
    if (text == NULL || end == text || *end != '\0' || isspace((unsigned char)text[0]) ||
        !(number >= minimum && number <= maximum)) {
        char expected[96];
        snprintf(expected, sizeof(expected), "give a number from %g to %g", minimum, maximum);
        return bad_value(config, name, expected, reason);
    }
    *out = number;
    return STATUS_OK;
}

enum status config_size(const struct config *config, const char *name, uint64_t bare_unit,
                        uint64_t automatic, uint64_t *out, struct reason *reason)
{
    const char *text = config_text(config, name);
    if (text != NULL && strcmp(text, "auto") == 0) {
        *out = automatic;
        return STATUS_OK;
    }
    uint64_t bytes;
    if (text == NULL || size_parse(text, bare_unit, &bytes) != STATUS_OK) {
        return bad_value(config, name, "give a size such as 512M or 12G, or auto", reason);
    }
    *out = bytes;
    return STATUS_OK;
}

void config_print(const struct config *config, FILE *out)
{
    for (size_t i = 0; i < config->count; i++) {
        const struct config_value *value = &config->values[i];
        if (!config->specs[i].command_only && value->set) {
            fprintf(out, "%s = %s  ; %s\n", config->specs[i].name, value->text,
                    source_text(config, value));
        }
    }
}

void config_help(const struct config *config, FILE *out)
{
    for (size_t i = 0; i < config->count; i++) {
        const struct config_spec *spec = &config->specs[i];
        char option[80];
        snprintf(option, sizeof(option), "--%s%s%s", spec->name, is_flag(spec) ? "" : " ",
                 is_flag(spec) ? "" : spec->value_name);
        fprintf(out, "  %-28s %s", option, spec->help);
        if (spec->fallback != NULL && spec->fallback[0] != '\0') {
            fprintf(out, " (default %s)", spec->fallback);
        }
        fputc('\n', out);
    }
}

// Power of 1024 of a unit ("", B, K, KiB ...), or -1.
static int unit_power(const char *unit)
{
    static const char letters[] = "KMGT";
    if (unit[0] == '\0' || ((unit[0] == 'B' || unit[0] == 'b') && unit[1] == '\0')) {
        return 0;
    }
    const char *letter = strchr(letters, toupper((unsigned char)unit[0]));
    if (letter == NULL ||
        (unit[1] != '\0' && strcasecmp(unit + 1, "iB") != 0 && strcasecmp(unit + 1, "B") != 0)) {
        return -1;
    }
    return (int)(letter - letters) + 1;
}

enum status size_parse(const char *text, uint64_t bare_unit, uint64_t *out_bytes)
{
    size_t digits = strspn(text, "0123456789");
    size_t length = digits;
    if (digits > 0 && text[length] == '.') {
        size_t fraction = strspn(text + length + 1, "0123456789");
        if (fraction == 0) {
            return STATUS_INVALID;
        }
        length += 1 + fraction;
    }
    int power = unit_power(text + length);
    if (digits == 0 || digits > 19 || length > 40 || power < 0) {
        return STATUS_INVALID;
    }
    long double unit = text[length] == '\0' ? (long double)bare_unit : powl(1024, power);
    long double bytes = strtold(text, NULL) * unit;
    if (!(bytes >= 0 && bytes <= 0x1p62L)) {
        return STATUS_INVALID;
    }
    *out_bytes = (uint64_t)bytes;
    return STATUS_OK;
}

void size_format(uint64_t bytes, char *text)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    while (unit < 4 && bytes >> (10 * (unit + 1)) != 0) {
        unit++;
    }
    double number = (double)bytes / (double)(1ull << (10 * unit));
    bool whole = (bytes & ((1ull << (10 * unit)) - 1)) == 0;
    snprintf(text, 32, whole ? "%.0f %s" : "%.1f %s", number, units[unit]);
}
