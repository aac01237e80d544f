// SPDX-License-Identifier: Apache-2.0
// Settings of a daemon: one table a program, read from its ini file and its command line with the
// same names, where the command line beats the file and the file beats the default, and each value
// knows where it came from. Values are text until a typed getter checks them, so that an error
// names the setting and its source. One thread. Never: prints but where a FILE is passed, exits,
// reads the environment.
#ifndef KVTIER_PROTO_CONFIG_FILE_H
#define KVTIER_PROTO_CONFIG_FILE_H

#include "proto/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { CONFIG_SETTINGS_MAX = 64, CONFIG_VALUE_BYTES = 1024 };

struct config_spec {
    const char *name;       // option without "--", and ini key
    const char *value_name; // of the value in --help ("SIZE"); NULL: a flag, "true" or "false"
    const char *fallback;   // default as text; NULL = not set ("false" for a flag)
    const char *help;
    bool command_only; // not taken from the file, not shown by config_print (--help, --config)
};

struct config;

// `specs` [count <= CONFIG_SETTINGS_MAX] must outlive the object. STATUS_NO_MEMORY.
enum status config_create(const struct config_spec *specs, size_t count,
                          struct config **out_config) KV_MUST_CHECK;
void config_destroy(struct config *config);

// Takes in argv[1..argc): `--name value`, `--name=value`, `--flag`, `--no-flag`. STATUS_INVALID
// with the reason for what is unknown, lacks its value, is too long or stands alone.
enum status config_read_options(struct config *config, int argc, char **argv,
                                struct reason *reason) KV_MUST_CHECK;
// Takes in `name = value` lines (sections are allowed and ignored), never over what an option
// set. STATUS_NOT_FOUND without a reason when there is no file; STATUS_INVALID with file and line;
// STATUS_IO.
enum status config_read_file(struct config *config, const char *path,
                             struct reason *reason) KV_MUST_CHECK;

// Value as text, or NULL when not set; lives until the next read.
const char *config_text(const struct config *config, const char *name);
bool config_flag(const struct config *config, const char *name);
bool config_given(const struct config *config, const char *name); // not the default

// Typed values of settings that are set. STATUS_INVALID with name, value, source and what is
// expected.
enum status config_integer(const struct config *config, const char *name, int64_t minimum,
                           int64_t maximum, int64_t *out, struct reason *reason) KV_MUST_CHECK;
enum status config_real(const struct config *config, const char *name, double minimum,
                        double maximum, double *out, struct reason *reason) KV_MUST_CHECK;
// Bytes, see size_parse. "auto" gives `automatic`.
enum status config_size(const struct config *config, const char *name, uint64_t bare_unit,
                        uint64_t automatic, uint64_t *out, struct reason *reason) KV_MUST_CHECK;

// `name = value  # source` lines, which config_read_file would read back.
void config_print(const struct config *config, FILE *out);
// The options of --help, one or two lines each.
void config_help(const struct config *config, FILE *out);

// A size: digits with an optional fraction and an optional unit K, M, G, T or KiB, MiB, GiB, TiB
// (powers of 1024, in either case) or B. A bare number counts in `bare_unit` bytes. STATUS_INVALID
// for anything else, negative or over 2^62.
enum status size_parse(const char *text, uint64_t bare_unit, uint64_t *out_bytes) KV_MUST_CHECK;
// "12.0 GiB", "512 MiB", "17 bytes": exact when it can be; `text` holds 32 bytes.
void size_format(uint64_t bytes, char *text);

#endif
