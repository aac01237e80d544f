// SPDX-License-Identifier: Apache-2.0
// Only settings that work are listed. What depends on the model or on free memory is settled by
// main, which knows them.
#include "gpud/config.h"

#include "proto/config_file.h"
#include "proto/endpoint.h"
#include "proto/os/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct config_spec specs[] = {
    {.name = "model", .value_name = "FILE", .help = "the model, a GGUF file; must be given"},
    {.name = "max-model-len",
     .value_name = "N",
     .fallback = "auto",
     .help = "longest prompt plus answer in tokens; auto: what the model was trained for, lowered "
             "to what memory holds"},
    {.name = "vram",
     .value_name = "SIZE",
     .help = "hard budget of device memory for weights, hot pool and workspace; without it the CPU "
             "device is unified: blocks are attended in the arena"},
    {.name = "block-size",
     .value_name = "N",
     .fallback = "32",
     .help = "tokens of a block: 16, 32, 64 or 128"},
    {.name = "kv-cache-dtype", .value_name = "TYPE", .fallback = "auto", .help = "auto or f16"},
    {.name = "enable-prefix-caching",
     .fallback = "true",
     .help = "reuse the KV of equal beginnings (--no-enable-prefix-caching: only named sessions)"},
    {.name = "max-num-seqs",
     .value_name = "N",
     .fallback = "8",
     .help = "requests that run at once"},
    {.name = "max-num-batched-tokens",
     .value_name = "N",
     .fallback = "512",
     .help = "tokens computed in one step"},
    {.name = "device", .value_name = "NAME", .fallback = "auto", .help = "auto or cpu"},
    {.name = "kernels",
     .value_name = "SET",
     .fallback = "auto",
     .help = "auto, c, avx2 or avx512; the bits are the same"},
    {.name = "threads", .value_name = "N", .fallback = "auto", .help = "auto: one for each CPU"},
    {.name = "chat-template", .value_name = "NAME", .help = "chatml, instead of the model's own"},
    {.name = "store", .value_name = "URL", .help = "of kvstored; \"none\": a private arena only"},
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

static enum status resolve_paths(struct gpu_config *out, struct reason *reason)
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
static enum status read_file(struct config *config, const struct gpu_config *out,
                             struct reason *reason)
{
    char path[RUNTIME_PATH_BYTES + 32];
    const char *given = config_text(config, "config");
    snprintf(path, sizeof(path), "%s/gpud.conf", out->paths.config_dir);
    enum status status = config_read_file(config, given != NULL ? given : path, reason);
    if (status != STATUS_NOT_FOUND) {
        return status;
    }
    return given == NULL ? STATUS_OK
                         : reason_set(reason, STATUS_INVALID, "check --config",
                                      "%.200s: no such file", given);
}

static bool is_auto(const struct config *config, const char *name)
{
    return strcmp(config_text(config, name), "auto") == 0;
}

static enum status take_count(const struct config *config, const char *name, int64_t minimum,
                              int64_t maximum, uint32_t *out, struct reason *reason)
{
    int64_t value = 0;
    enum status status = config_integer(config, name, minimum, maximum, &value, reason);
    if (status == STATUS_OK) {
        *out = (uint32_t)value;
    }
    return status;
}

static enum status settle_counts(const struct config *config, struct gpu_config *out,
                                 struct reason *reason)
{
    enum status status = STATUS_OK;
    if (!is_auto(config, "max-model-len")) {
        status = take_count(config, "max-model-len", 1, LIMIT_CONTEXT_TOKENS, &out->context_tokens,
                            reason);
    }
    if (status == STATUS_OK) {
        status =
            take_count(config, "max-num-seqs", 1, LIMIT_SEQUENCES, &out->sequences_max, reason);
    }
    if (status == STATUS_OK) {
        status = take_count(config, "max-num-batched-tokens", 1, LIMIT_BATCH_TOKENS,
                            &out->batch_tokens_max, reason);
    }
    out->thread_count = os_machine_cpu_count();
    if (status == STATUS_OK && !is_auto(config, "threads")) {
        status = take_count(config, "threads", 1, LIMIT_THREADS, &out->thread_count, reason);
    }
    return status;
}

static enum status settle_block_tokens(const struct config *config, struct gpu_config *out,
                                       struct reason *reason)
{
    enum status status = take_count(config, "block-size", BLOCK_TOKENS_MIN, BLOCK_TOKENS_MAX,
                                    &out->block_tokens, reason);
    if (status == STATUS_OK && !block_tokens_valid(out->block_tokens)) {
        return reason_set(reason, STATUS_INVALID, "use 16, 32, 64 or 128",
                          "--block-size: %u is not a size of blocks", out->block_tokens);
    }
    return status;
}

// One of two words, of which the first is "auto".
static enum status settle_word(const struct config *config, const char *name, const char *word,
                               struct reason *reason)
{
    const char *value = config_text(config, name);
    if (strcmp(value, "auto") == 0 || strcmp(value, word) == 0) {
        return STATUS_OK;
    }
    char hint[64];
    snprintf(hint, sizeof(hint), "use auto or %s", word);
    return reason_set(reason, STATUS_UNSUPPORTED, hint, "--%s: %.64s is not supported", name,
                      value);
}

static enum status settle_kernels(const struct config *config, struct gpu_config *out,
                                  struct reason *reason)
{
    const char *name = config_text(config, "kernels");
    if (!kernels_set_parse(name, &out->kernel_set)) {
        return reason_set(reason, STATUS_INVALID, "use auto, c, avx2 or avx512",
                          "--kernels: %.64s is not a kernel set", name);
    }
    if (!kernels_set_supported(out->kernel_set)) {
        return reason_set(reason, STATUS_UNSUPPORTED, "use auto",
                          "--kernels: this CPU cannot run %s", name);
    }
    return STATUS_OK;
}

static enum status settle_device(const struct config *config, struct gpu_config *out,
                                 struct reason *reason)
{
    enum status status = settle_word(config, "device", "cpu", reason);
    if (status == STATUS_OK) {
        status = settle_word(config, "kv-cache-dtype", "f16", reason);
    }
    if (status == STATUS_OK) {
        status = settle_kernels(config, out, reason);
    }
    if (status == STATUS_OK && config_text(config, "vram") != NULL) {
        status = config_size(config, "vram", 1, 0, &out->vram_bytes, reason);
        if (status == STATUS_OK && out->vram_bytes == 0) {
            return reason_set(reason, STATUS_INVALID, "leave it out for a unified device",
                              "--vram: must be a size above 0");
        }
    }
    return status;
}

static enum status settle_url(const char *given, const char *runtime_dir, const char *name,
                              char *out, struct reason *reason)
{
    if (given == NULL) {
        return endpoint_url_make(runtime_dir, name, out, reason);
    }
    enum status status = endpoint_url_check(given, reason);
    if (status == STATUS_OK) {
        snprintf(out, LIMIT_URL_BYTES, "%s", given);
    }
    return status;
}

static enum status settle_paths(const struct config *config, struct gpu_config *out,
                                struct reason *reason)
{
    const char *model = config_text(config, "model");
    const char *store = config_text(config, "store");
    const char *chat = config_text(config, "chat-template");
    if (model == NULL) {
        return reason_set(reason, STATUS_INVALID, "give --model FILE.gguf", "--model: is not set");
    }
    snprintf(out->model, sizeof(out->model), "%s", model);
    snprintf(out->chat_template, sizeof(out->chat_template), "%s", chat != NULL ? chat : "");
    enum status status =
        settle_url(config_text(config, "listen"), out->paths.runtime_dir, "gpud", out->url, reason);
    if (status == STATUS_OK && (store == NULL || strcmp(store, "none") != 0)) {
        status = settle_url(store, out->paths.runtime_dir, "kvstored", out->store_url, reason);
    }
    return status == STATUS_OK ? runtime_dir_prepare(out->paths.runtime_dir, reason) : status;
}

static enum status settle(const struct config *config, struct gpu_config *out,
                          struct reason *reason)
{
    const char *level = config_text(config, "log-level");
    if (!log_level_parse(level, &out->log_level)) {
        return reason_set(reason, STATUS_INVALID, "use error, warning, info or debug",
                          "--log-level: %.64s is not a level", level);
    }
    out->prefix_caching = config_flag(config, "enable-prefix-caching");
    enum status status = settle_counts(config, out, reason);
    if (status == STATUS_OK) {
        status = settle_block_tokens(config, out, reason);
    }
    if (status == STATUS_OK) {
        status = settle_device(config, out, reason);
    }
    return status == STATUS_OK ? settle_paths(config, out, reason) : status;
}

static enum status load(struct config *config, int argc, char **argv, struct gpu_config *out,
                        enum gpu_config_action *out_action, struct reason *reason)
{
    enum status status = config_read_options(config, argc, argv, reason);
    if (status != STATUS_OK) {
        return status;
    }
    *out_action = GPU_CONFIG_DONE;
    if (config_flag(config, "help")) {
        printf("usage: gpud --model FILE [options]\n"
               "Runs a model for the apps of this user.\n\n");
        config_help(config, stdout);
        return STATUS_OK;
    }
    if (config_flag(config, "version")) {
        printf("gpud %s\n", KVTIER_VERSION);
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
    *out_action = GPU_CONFIG_RUN;
    return settle(config, out, reason);
}

enum status gpu_config_load(int argc, char **argv, struct gpu_config *out_config,
                            enum gpu_config_action *out_action, struct reason *reason)
{
    struct config *config;
    enum status status = config_create(specs, sizeof(specs) / sizeof(specs[0]), &config);
    if (status != STATUS_OK) {
        return reason_set(reason, status, "", "gpud: out of memory");
    }
    memset(out_config, 0, sizeof(*out_config));
    status = load(config, argc, argv, out_config, out_action, reason);
    config_destroy(config);
    return status;
}
