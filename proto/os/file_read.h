// SPDX-License-Identifier: Apache-2.0
// Reading a regular file at 64-bit offsets, the same on every system: file_read_posix.c, and later
// its Windows twin. Short reads are looped. Any thread may read; open and close belong to the
// owner.
#ifndef KVTIER_PROTO_OS_FILE_READ_H
#define KVTIER_PROTO_OS_FILE_READ_H

#include "proto/status.h"

#include <stddef.h>
#include <stdint.h>

struct file_read {
    int fd;
};

// STATUS_NOT_FOUND (no such file), STATUS_PERMISSION, STATUS_INVALID (not a regular file),
// STATUS_IO.
enum status file_read_open(const char *path, struct file_read *out_file,
                           struct reason *reason) KV_MUST_CHECK;
void file_read_close(struct file_read *file);

// The file's size now. STATUS_IO.
enum status file_read_size(const struct file_read *file, uint64_t *out_bytes) KV_MUST_CHECK;

// Exactly `bytes` bytes from `offset` on; STATUS_DAMAGED when the file ends before, STATUS_IO.
// Blocks.
enum status file_read_at(const struct file_read *file, uint64_t offset, void *out,
                         size_t bytes) KV_MUST_CHECK;

#endif
