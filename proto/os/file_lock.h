// SPDX-License-Identifier: Apache-2.0
// A lock on a whole file that dies with its holder, however that dies: whether someone is there is
// asked of the system, never of a pid. Owner thread only.
#ifndef KVTIER_PROTO_OS_FILE_LOCK_H
#define KVTIER_PROTO_OS_FILE_LOCK_H

#include "proto/status.h"

#include <stdint.h>

struct os_file_lock {
    int handle; // -1: not held
};

// Opens or creates `path` (0600, not through a symbolic link), locks it and writes our pid into it,
// for people. STATUS_BUSY when another open of the file holds the lock: *out_holder_pid is then the
// pid in it, 0 when it has none. STATUS_PERMISSION, STATUS_NOT_FOUND (no such folder), STATUS_IO.
// The file is never removed: removing a lock file lets two processes lock two files of one name.
enum status os_file_lock_acquire(const char *path, struct os_file_lock *out_lock,
                                 uint64_t *out_holder_pid) KV_MUST_CHECK;
void os_file_lock_release(struct os_file_lock *lock);

#endif
