// SPDX-License-Identifier: Apache-2.0
// Where things are (INTERFACE "Files") and the lock that makes an instance the only one there. The
// environment's values come in as arguments: only config.c reads it. Any thread.
#ifndef KVTIER_PROTO_RUNTIME_DIR_H
#define KVTIER_PROTO_RUNTIME_DIR_H

#include "proto/status.h"

#include <stdint.h>

enum { DIR_PATH_BYTES = 512, DIR_ARENA_NAME_BYTES = 64, DIR_URL_BYTES = 640 };

// Values of the environment; NULL or "" where unset.
struct dir_environment {
    const char *kvtier_runtime_dir, *kvtier_data_dir, *kvtier_config_dir;
    const char *xdg_runtime_dir, *xdg_data_home, *xdg_config_home, *xdg_state_home;
    const char *home;
};

struct dirs {
    char runtime[DIR_PATH_BYTES]; // sockets, locks
    char data[DIR_PATH_BYTES];    // models/, store/
    char config[DIR_PATH_BYTES];
    char state[DIR_PATH_BYTES];   // logs; inside data when KVTIER_DATA_DIR is set
    char kvstored_url[DIR_URL_BYTES];
    char gpud_url[DIR_URL_BYTES];
};

// Fills in the paths; creates nothing. STATUS_INVALID when one is too long, or nothing names a home.
enum status dirs_resolve(const struct dir_environment *environment, struct dirs *out_dirs,
                         struct reason *reason) KV_MUST_CHECK;
// "/kvtier-UID-H" of a runtime folder that exists; H: 16 hex digits of a hash of its device and inode.
enum status dirs_arena_name(const char *runtime, char out_name[DIR_ARENA_NAME_BYTES],
                            struct reason *reason) KV_MUST_CHECK;

// The lock of `NAME.lock` in a folder; held from before listening until after closing, since an old
// listener's late close removes the socket file of a new one. Ends with the process.
struct instance_lock {
    int fd; // -1: not held
};

// STATUS_BUSY names the holder's process id (information only).
enum status instance_lock_acquire(const char *folder, const char *name,
                                  struct instance_lock *out_lock, struct reason *reason) KV_MUST_CHECK;
void instance_lock_release(struct instance_lock *lock);
// Whether some instance holds it: process id, else 0.
uint64_t instance_lock_holder(const char *folder, const char *name);

#endif
