// SPDX-License-Identifier: Apache-2.0
// kvstored's settings: from defaults, config file and command line to checked values. The one file
// of kvstored that reads the environment. Called by main before any thread.
#ifndef KVTIER_KVSTORED_CONFIG_H
#define KVTIER_KVSTORED_CONFIG_H

#include "proto/limits.h"
#include "proto/log.h"
#include "proto/runtime_dir.h"
#include "proto/status.h"

#include <stdint.h>

enum store_config_action {
    STORE_CONFIG_RUN,
    STORE_CONFIG_DONE, // --help, --version or --print-config was answered on stdout
};

struct store_config {
    struct runtime_paths paths;
    char data_dir[RUNTIME_PATH_BYTES];
    char url[LIMIT_URL_BYTES];
    uint64_t swap_bytes; // KV payload in memory
    uint64_t disk_bytes;
    enum log_level log_level;
    char notify_socket[RUNTIME_PATH_BYTES]; // of the service manager; empty = none
};

// STATUS_INVALID: the user's input; STATUS_REFUSED: a budget this machine does not have, with both
// numbers; STATUS_IO: the config file cannot be read; STATUS_PERMISSION. Makes the runtime and data
// folders.
enum status store_config_load(int argc, char **argv, struct store_config *out_config,
                              enum store_config_action *out_action,
                              struct reason *reason) KV_MUST_CHECK;

#endif
