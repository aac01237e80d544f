// SPDX-License-Identifier: Apache-2.0
// Where client programs find and put things: sockets, logs and daemons. The only file of client/
// that reads the environment. One thread.
#ifndef KVTIER_CLIENT_CONFIG_H
#define KVTIER_CLIENT_CONFIG_H

#include "proto/runtime_dir.h"
#include "proto/status.h"

#include <stddef.h>

enum { CONFIG_PATH_BYTES = 1024 };

struct config_path {
    char text[CONFIG_PATH_BYTES];
};

// The folders of this user's daemons; creates nothing. STATUS_INVALID as runtime_dir_resolve.
enum status config_paths(struct runtime_paths *out_paths, struct reason *reason) KV_MUST_CHECK;

// The URL of the user's `daemon` ("gpud", "kvstored"): out [LIMIT_URL_BYTES].
enum status config_url(const char *daemon, char *out, struct reason *reason) KV_MUST_CHECK;

// The log file of `program`, its folder made: KVTIER_DATA_DIR/log when set, else
// XDG_STATE_HOME/kvtier, else ~/.local/state/kvtier. STATUS_IO with the reason.
enum status config_log_path(const char *program, struct config_path *out_path,
                            struct reason *reason) KV_MUST_CHECK;

// A daemon's program: beside this one, then ../NAME/NAME (the build tree), then in PATH.
// STATUS_NOT_FOUND with the reason.
enum status config_find_program(const char *name, struct config_path *out_path,
                                struct reason *reason) KV_MUST_CHECK;

#endif
