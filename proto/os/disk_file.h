// SPDX-License-Identifier: Apache-2.0
// What the disk tier asks of the file system beside its database. Any thread; all but
// os_prefetch block on disk.
#ifndef KVTIER_PROTO_OS_DISK_FILE_H
#define KVTIER_PROTO_OS_DISK_FILE_H

#include "proto/status.h"

#include <stddef.h>
#include <stdint.h>

enum { OS_NAME_BYTES = 64 };

struct os_name {
    char text[OS_NAME_BYTES];
};

// Names of what lies in a folder, without "." and "..", in no order; longer names than
// OS_NAME_BYTES - 1 are left out. For the caller to free(). STATUS_NOT_FOUND, STATUS_PERMISSION,
// STATUS_NO_MEMORY, STATUS_IO, STATUS_REFUSED when there are more than `max_count`.
enum status os_folder_list(const char *path, uint32_t max_count, struct os_name **out_names,
                           uint32_t *out_count) KV_MUST_CHECK;

// Length of a file and the bytes it takes on disk. STATUS_NOT_FOUND, STATUS_IO.
enum status os_file_usage(const char *path, uint64_t *out_bytes,
                          uint64_t *out_disk_bytes) KV_MUST_CHECK;

// Makes a file longer; what is added reads as zeros. STATUS_NO_SPACE, STATUS_IO.
enum status os_file_extend(const char *path, uint64_t bytes) KV_MUST_CHECK;

// Renames a file or folder within one file system. STATUS_NOT_FOUND, STATUS_EXISTS, STATUS_IO.
enum status os_file_rename(const char *from, const char *to) KV_MUST_CHECK;

// Starts reading mapped file memory ahead of its use. A hint: what fails is not told.
void os_prefetch(const void *at, size_t bytes);

#endif
