// SPDX-License-Identifier: Apache-2.0
// One daemon of a kind in a runtime folder. The lock is held from before listening until after the
// listener is closed: closing a listener removes its socket file by name, so a late close of an old
// one would remove the socket of a new one. A lock that can be had proves that a socket file left
// behind belongs to nobody. Owner thread only.
#ifndef KVTIER_PROTO_INSTANCE_LOCK_H
#define KVTIER_PROTO_INSTANCE_LOCK_H

#include "proto/os/file_lock.h"
#include "proto/status.h"

struct instance_lock {
    struct os_file_lock file;
};

// Locks `name`.lock in `directory`. STATUS_BUSY when another `name` runs there, with its pid in the
// reason (information only); STATUS_NOT_FOUND (no such folder), STATUS_PERMISSION, STATUS_IO.
enum status instance_lock_acquire(const char *directory, const char *name,
                                  struct instance_lock *out_lock,
                                  struct reason *reason) KV_MUST_CHECK;
// After the listener was closed.
void instance_lock_release(struct instance_lock *lock);

#endif
