// SPDX-License-Identifier: Apache-2.0
// Where things lie (INTERFACE "Files"): from the environment's values, which config.c reads, to
// checked paths. Any thread; only runtime_dir_prepare and the arena name touch the file system.
#ifndef KVTIER_PROTO_RUNTIME_DIR_H
#define KVTIER_PROTO_RUNTIME_DIR_H

#include "proto/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { RUNTIME_PATH_BYTES = 512, RUNTIME_ARENA_NAME_BYTES = 64 };

// Values of environment variables; NULL or "" = not set.
struct runtime_environment {
    const char *kvtier_runtime_dir; // KVTIER_RUNTIME_DIR
    const char *kvtier_data_dir;    // KVTIER_DATA_DIR
    const char *kvtier_config_dir;  // KVTIER_CONFIG_DIR
    const char *xdg_runtime_dir;    // XDG_RUNTIME_DIR
    const char *home;               // HOME
    bool system_service;            // use /run, /var/lib, /etc instead of the user's folders
};

// Absolute paths without a slash at the end.
struct runtime_paths {
    char runtime_dir[RUNTIME_PATH_BYTES]; // sockets, locks
    char data_dir[RUNTIME_PATH_BYTES];    // holds store/
    char config_dir[RUNTIME_PATH_BYTES];  // {gpud,kvstored}.conf
    char state_dir[RUNTIME_PATH_BYTES];   // logs of `gpuctl up`
};

// STATUS_INVALID when a value is not an absolute path or too long, or HOME is needed and not set.
enum status runtime_dir_resolve(const struct runtime_environment *environment,
                                struct runtime_paths *out_paths,
                                struct reason *reason) KV_MUST_CHECK;

// Creates the runtime folder (0700) or checks the one that is there: STATUS_PERMISSION when another
// user made it or may enter it; STATUS_INVALID when its sockets' paths would be too long.
enum status runtime_dir_prepare(const char *runtime_dir, struct reason *reason) KV_MUST_CHECK;

// "/kvtier-UID-H" for an existing runtime folder: out [RUNTIME_ARENA_NAME_BYTES]. H is 16 hex
// digits of a hash of the folder's device and inode, so two instances never meet, and a folder made
// anew is a new instance. STATUS_NOT_FOUND, STATUS_IO.
enum status runtime_dir_arena_name(const char *runtime_dir, char *out) KV_MUST_CHECK;

#endif
