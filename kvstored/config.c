// SPDX-License-Identifier: Apache-2.0
// Defaults adapt to the machine, explicit values do not: what was asked for and cannot be had is
// refused.

#include "kvstored/config.h"

#include "proto/config_file.h"
#include "proto/endpoint.h"
#include "proto/os/disk_file.h"
#include "proto/os/folder.h"
#include "proto/os/machine.h"
#include "proto/os/shm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SWAP_BYTES_MIN = 64 << 20,
    STORE_BYTES_MIN = 64 << 20,
};

#define GIB (UINT64_C(1) << 30)

static const struct config_spec specs[] = {
    {.name = "swap-space",
     .value_name = "SIZE",
     .fallback = "auto",
     .help = "KV payload kept in memory; a bare number is GiB; auto: at most half of RAM"},
    {.name = "disk-space",
     .value_name = "SIZE",
     .fallback = "auto",
     .help = "bytes of the store on disk; auto: at most half of the free disk"},
    {.name = "data-dir", .value_name = "DIR", .help = "holds store/"},
    {.name = "listen", .value_name = "URL", .help = "ipc:// and an absolute path"},
    {.name = "log-level",
     .value_name = "LEVEL",
     .fallback = "info",
     .help = "error, warning, info or debug"},
    {.name = "config",
     .value_name = "FILE",
     .help = "read settings from FILE",
     .command_only = true},
    {.name = "print-config",
     .help = "print the settings and where they come from",
     .command_only = true},
    {.name = "version", .help = "print the version", .command_only = true},
    {.name = "help", .help = "print this", .command_only = true},
};

static void print_help(const struct config *config)
{
    printf("usage: kvstored [options]\n"
           "Holds the KV blocks of gpud in shared memory and on disk.\n\n");
    config_help(config, stdout);
}

static enum status resolve_paths(struct store_config *out, struct reason *reason)
{
    const struct runtime_environment environment = {
        .kvtier_runtime_dir = getenv("KVTIER_RUNTIME_DIR"),
        .kvtier_data_dir = getenv("KVTIER_DATA_DIR"),
        .kvtier_config_dir = getenv("KVTIER_CONFIG_DIR"),
        .xdg_runtime_dir = getenv("XDG_RUNTIME_DIR"),
        .home = getenv("HOME"),
    };
    const char *notify = getenv("NOTIFY_SOCKET");
    if (notify != NULL && strlen(notify) < sizeof(out->notify_socket)) {
        strcpy(out->notify_socket, notify);
    }
    return runtime_dir_resolve(&environment, &out->paths, reason);
}

// The file that --config names, which must exist, or the usual one, which need not.
static enum status read_file(struct config *config, const struct store_config *out,
                             struct reason *reason)
{
    char path[RUNTIME_PATH_BYTES + 32];
    const char *given = config_text(config, "config");
    snprintf(path, sizeof(path), "%s/kvstored.conf", out->paths.config_dir);
    enum status status = config_read_file(config, given != NULL ? given : path, reason);
    if (status != STATUS_NOT_FOUND) {
        return status;
    }
    return given == NULL ? STATUS_OK
                         : reason_set(reason, STATUS_INVALID, "check --config",
                                      "%.200s: no such file", given);
}

static enum status over_budget(struct reason *reason, const char *name, uint64_t wanted,
                               uint64_t had, const char *what)
{
    char wanted_text[32], had_text[32];
    size_format(wanted, wanted_text);
    size_format(had, had_text);
    return reason_set(reason, STATUS_REFUSED, "lower it, or use auto",
                      "--%s: %s is more than %s (%s)", name, wanted_text, what, had_text);
}

static enum status too_small(struct reason *reason, const char *name, uint64_t wanted,
                             uint64_t least)
{
    char wanted_text[32], least_text[32];
    size_format(wanted, wanted_text);
    size_format(least, least_text);
    return reason_set(reason, STATUS_REFUSED, "raise it, or use auto",
                      "--%s: %s is less than the least that works (%s)", name, wanted_text,
                      least_text);
}

static enum status settle_swap(const struct config *config, struct store_config *out,
                               struct reason *reason)
{
    struct os_memory memory;
    uint64_t shm_free = 0, shm_total = 0;
    enum status status = os_machine_memory(&memory);
    if (status == STATUS_OK) {
        status = os_shm_capacity(&shm_free, &shm_total);
    }
    if (status != STATUS_OK) {
        return reason_set(reason, status, "check /proc and /dev/shm",
                          "memory: cannot tell how much there is");
    }
    // A tenth of /dev/shm is left to headers and to others.
    uint64_t automatic = memory.total_bytes / 2;
    automatic = automatic < shm_total / 10 * 9 ? automatic : shm_total / 10 * 9;
    status = config_size(config, "swap-space", GIB, automatic, &out->swap_bytes, reason);
    if (status != STATUS_OK) {
        return status;
    }
    if (out->swap_bytes > memory.total_bytes) {
        return over_budget(reason, "swap-space", out->swap_bytes, memory.total_bytes,
                           "this machine's RAM");
    }
    if (out->swap_bytes > shm_total) {
        return over_budget(reason, "swap-space", out->swap_bytes, shm_total,
                           "the size of /dev/shm");
    }
    if (out->swap_bytes < SWAP_BYTES_MIN) {
        return too_small(reason, "swap-space", out->swap_bytes, SWAP_BYTES_MIN);
    }
    return STATUS_OK;
}

// What the store takes already may be used again.
static uint64_t store_bytes(const char *data_dir)
{
    char folder[RUNTIME_PATH_BYTES + 8];
    struct os_name *names;
    uint32_t count;
    uint64_t sum = 0;
    snprintf(folder, sizeof(folder), "%s/store", data_dir);
    if (os_folder_list(folder, 4096, &names, &count) != STATUS_OK) {
        return 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        char path[sizeof(folder) + OS_NAME_BYTES + 16];
        uint64_t bytes, disk_bytes;
        snprintf(path, sizeof(path), "%s/%s/data.mdb", folder, names[i].text);
        if (os_file_usage(path, &bytes, &disk_bytes) == STATUS_OK) {
            sum += disk_bytes;
        }
    }
    free(names);
    return sum;
}

static enum status settle_disk(const struct config *config, struct store_config *out,
                               struct reason *reason)
{
    uint64_t free_bytes = 0, total_bytes = 0;
    enum status status = os_folder_space(out->data_dir, &free_bytes, &total_bytes);
    if (status != STATUS_OK) {
        return reason_set(reason, status, "check --data-dir", "%.200s: cannot tell its free space",
                          out->data_dir);
    }
    uint64_t available = free_bytes + store_bytes(out->data_dir);
    status = config_size(config, "disk-space", GIB, available / 2, &out->disk_bytes, reason);
    if (status != STATUS_OK) {
        return status;
    }
    if (out->disk_bytes > available) {
        return over_budget(reason, "disk-space", out->disk_bytes, available,
                           "what the store has and the disk has free");
    }
    if (config_given(config, "disk-space") && out->disk_bytes < STORE_BYTES_MIN) {
        return too_small(reason, "disk-space", out->disk_bytes, STORE_BYTES_MIN);
    }
    return STATUS_OK;
}

static enum status settle_paths(const struct config *config, struct store_config *out,
                                struct reason *reason)
{
    const char *data_dir = config_text(config, "data-dir");
    const char *url = config_text(config, "listen");
    snprintf(out->data_dir, sizeof(out->data_dir), "%s",
             data_dir != NULL ? data_dir : out->paths.data_dir);
    if (out->data_dir[0] != '/') {
        return reason_set(reason, STATUS_INVALID, "give an absolute path",
                          "--data-dir: %.200s is not absolute", out->data_dir);
    }
    if (url != NULL) {
        snprintf(out->url, sizeof(out->url), "%s", url);
        return endpoint_url_check(url, reason);
    }
    return endpoint_url_make(out->paths.runtime_dir, "kvstored", out->url, reason);
}

// Only store/ holds what others must not read; the data folder may be one that was there before.
static enum status make_store_folder(const char *data_dir, struct reason *reason)
{
    char folder[RUNTIME_PATH_BYTES + 8];
    snprintf(folder, sizeof(folder), "%s/store", data_dir);
    return os_folder_create(folder, reason);
}

static enum status settle(const struct config *config, struct store_config *out,
                          struct reason *reason)
{
    const char *level = config_text(config, "log-level");
    if (!log_level_parse(level, &out->log_level)) {
        return reason_set(reason, STATUS_INVALID, "use error, warning, info or debug",
                          "--log-level: %.64s is not a level", level);
    }
    enum status status = settle_paths(config, out, reason);
    if (status == STATUS_OK) {
        status = runtime_dir_prepare(out->paths.runtime_dir, reason);
    }
    if (status == STATUS_OK) {
        status = make_store_folder(out->data_dir, reason);
    }
    if (status == STATUS_OK) {
        status = settle_swap(config, out, reason);
    }
    return status == STATUS_OK ? settle_disk(config, out, reason) : status;
}

static enum status load(struct config *config, int argc, char **argv, struct store_config *out,
                        enum store_config_action *out_action, struct reason *reason)
{
    enum status status = config_read_options(config, argc, argv, reason);
    if (status != STATUS_OK) {
        return status;
    }
    *out_action = STORE_CONFIG_DONE;
    if (config_flag(config, "help")) {
        print_help(config);
        return STATUS_OK;
    }
    if (config_flag(config, "version")) {
        printf("kvstored %s\n", KVTIER_VERSION);
        return STATUS_OK;
    }
    status = resolve_paths(out, reason);
    if (status == STATUS_OK) {
        status = read_file(config, out, reason);
    }
    if (status != STATUS_OK) {
        return status;
    }
    if (config_flag(config, "print-config")) {
        config_print(config, stdout);
        return STATUS_OK;
    }
    *out_action = STORE_CONFIG_RUN;
    return settle(config, out, reason);
}

enum status store_config_load(int argc, char **argv, struct store_config *out_config,
                              enum store_config_action *out_action, struct reason *reason)
{
    struct config *config;
    enum status status = config_create(specs, sizeof(specs) / sizeof(specs[0]), &config);
    if (status != STATUS_OK) {
        return reason_set(reason, status, "", "kvstored: out of memory");
    }
    memset(out_config, 0, sizeof(*out_config));
    status = load(config, argc, argv, out_config, out_action, reason);
    config_destroy(config);
    return status;
}
