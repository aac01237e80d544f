// SPDX-License-Identifier: Apache-2.0
// Small files read and written whole. Any thread; blocks on disk.
#ifndef KVTIER_PROTO_OS_FILE_H
#define KVTIER_PROTO_OS_FILE_H

#include "proto/status.h"

#include <stddef.h>
#include <stdint.h>

// All of a file of at most `max_bytes`, and a NUL after it that is not counted, for the caller to
// free(). STATUS_NOT_FOUND, STATUS_PERMISSION, STATUS_REFUSED (larger), STATUS_NO_MEMORY,
// STATUS_IO.
enum status os_file_read_all(const char *path, size_t max_bytes, uint8_t **out_data,
                             size_t *out_bytes) KV_MUST_CHECK;

// Replaces `path` (0600) so that after a crash it holds the old or the new content, never a part:
// temporary file beside it, sync, rename, sync of the folder. STATUS_NOT_FOUND (no such folder),
// STATUS_PERMISSION, STATUS_NO_SPACE, STATUS_IO.
enum status os_file_write_atomic(const char *path, const void *data, size_t bytes) KV_MUST_CHECK;

// STATUS_NOT_FOUND, STATUS_PERMISSION, STATUS_IO.
enum status os_file_remove(const char *path) KV_MUST_CHECK;

#endif
