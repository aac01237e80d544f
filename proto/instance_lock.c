// SPDX-License-Identifier: Apache-2.0
// instance_lock.h over a lock file.
#include "proto/instance_lock.h"

#include <inttypes.h>
#include <stdio.h>

enum { LOCK_PATH_BYTES = 4096 };

enum status instance_lock_acquire(const char *directory, const char *name,
                                  struct instance_lock *out_lock, struct reason *reason)
{
    char path[LOCK_PATH_BYTES];
    int length = snprintf(path, sizeof(path), "%s/%s.lock", directory, name);
    if (length < 0 || (size_t)length >= sizeof(path)) {
        return reason_set(reason, STATUS_INVALID, "choose a shorter folder",
                          "%s: the path of its lock is too long", name);
    }
    uint64_t holder_pid = 0;
    enum status status = os_file_lock_acquire(path, &out_lock->file, &holder_pid);
    switch (status) {
    case STATUS_OK:
        return STATUS_OK;
    case STATUS_BUSY:
        return reason_set(reason, STATUS_BUSY, "stop it first, or use another KVTIER_RUNTIME_DIR",
                          "another %s runs in %s: process %" PRIu64, name, directory, holder_pid);
    case STATUS_NOT_FOUND:
        return reason_set(reason, status, "create the folder", "%s: no such folder", directory);
    default:
        return reason_set(reason, status, "check the folder's permissions",
                          "%s: cannot be locked (%s)", path, status_name(status));
    }
}

void instance_lock_release(struct instance_lock *lock)
{
    os_file_lock_release(&lock->file);
}
