// SPDX-License-Identifier: Apache-2.0
// Folders that belong to this user alone. Any thread.
#ifndef KVTIER_PROTO_OS_FOLDER_H
#define KVTIER_PROTO_OS_FOLDER_H

#include "proto/status.h"

#include <stdint.h>

// Names a folder whatever its path (device and inode).
struct os_folder_identity {
    uint64_t device;
    uint64_t inode;
};

// Creates `path` and the parents it lacks (0700), or checks an existing one: STATUS_PERMISSION when
// it belongs to another user, or others may enter it; STATUS_INVALID when it is no folder or the
// path is not absolute; STATUS_NO_SPACE, STATUS_IO.
enum status os_folder_create(const char *path, struct reason *reason) KV_MUST_CHECK;

// STATUS_NOT_FOUND, STATUS_IO.
enum status os_folder_identify(const char *path,
                               struct os_folder_identity *out_identity) KV_MUST_CHECK;

// Bytes that this user can still write to the file system of `path`, and its size.
// STATUS_NOT_FOUND, STATUS_IO.
enum status os_folder_space(const char *path, uint64_t *out_free_bytes,
                            uint64_t *out_total_bytes) KV_MUST_CHECK;

#endif
