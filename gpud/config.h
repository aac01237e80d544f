// SPDX-License-Identifier: Apache-2.0
// gpud's settings: from defaults, config file and command line to checked values. The one file of
// gpud that reads the environment. Called by main before any thread.
#ifndef KVTIER_GPUD_CONFIG_H
#define KVTIER_GPUD_CONFIG_H

#include "gpud/kernels/kernels.h"
#include "proto/limits.h"
#include "proto/log.h"
#include "proto/runtime_dir.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stdint.h>

enum gpu_config_action {
    GPU_CONFIG_RUN,
    GPU_CONFIG_DONE, // --help, --version or --print-config was answered on stdout
};

struct gpu_config {
    struct runtime_paths paths;
    char model[RUNTIME_PATH_BYTES * 2];
    char url[LIMIT_URL_BYTES];       // apps connect here
    char store_url[LIMIT_URL_BYTES]; // of kvstored; "" = private only
    char chat_template[64];          // "" = the model file's own
    uint32_t context_tokens;         // 0 = auto
    uint64_t vram_bytes;             // 0 = unified
    uint32_t block_tokens;
    bool prefix_caching;
    uint32_t sequences_max;
    uint32_t batch_tokens_max;
    enum kernel_set kernel_set;
    uint32_t thread_count;
    enum log_level log_level;
    char notify_socket[RUNTIME_PATH_BYTES]; // of the service manager; "" = none
};

// STATUS_INVALID: the user's input; STATUS_UNSUPPORTED: known, but not of this build or machine;
// STATUS_IO: the config file cannot be read; STATUS_PERMISSION. Makes the runtime folder.
enum status gpu_config_load(int argc, char **argv, struct gpu_config *out_config,
                            enum gpu_config_action *out_action,
                            struct reason *reason) KV_MUST_CHECK;

#endif
