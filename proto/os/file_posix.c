// SPDX-License-Identifier: Apache-2.0
// file.h over open, read, write, fsync and rename; short reads and writes are looped.
#include "proto/os/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { READ_STEP_BYTES = 1 << 16 };

static enum status status_of_errno(int error)
{
    switch (error) {
    case ENOENT:
    case ENOTDIR:
        return STATUS_NOT_FOUND;
    case EACCES:
    case EPERM:
    case EROFS:
        return STATUS_PERMISSION;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return STATUS_NO_SPACE;
    default:
        return STATUS_IO;
    }
}

// Reads to the end in steps: the size a file claims is not trusted (/proc, a file that grows).
static enum status read_all(int handle, size_t max_bytes, uint8_t **out_data, size_t *out_bytes)
{
    uint8_t *data = NULL;
    size_t bytes = 0;
    size_t capacity = 0;
    for (;;) {
        if (capacity - bytes < READ_STEP_BYTES) {
            capacity = capacity * 2 + READ_STEP_BYTES + 1;
            uint8_t *grown = realloc(data, capacity);
            if (grown == NULL) {
                free(data);
                return STATUS_NO_MEMORY;
            }
            data = grown;
        }
        ssize_t got = read(handle, data + bytes, READ_STEP_BYTES - 1);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        bytes += got > 0 ? (size_t)got : 0;
        if (got < 0 || bytes > max_bytes) {
            free(data);
            return got < 0 ? STATUS_IO : STATUS_REFUSED;
        }
        if (got == 0) {
            data[bytes] = '\0';
            *out_data = data;
            *out_bytes = bytes;
            return STATUS_OK;
        }
    }
}

enum status os_file_read_all(const char *path, size_t max_bytes, uint8_t **out_data,
                             size_t *out_bytes)
{
    int handle = open(path, O_RDONLY | O_CLOEXEC);
    if (handle < 0) {
        return status_of_errno(errno);
    }
    enum status status = read_all(handle, max_bytes, out_data, out_bytes);
    close(handle);
    return status;
}

static enum status write_all(int handle, const uint8_t *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t done = write(handle, data, bytes);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done < 0) {
            return status_of_errno(errno);
        }
        data += done;
        bytes -= (size_t)done;
    }
    return fsync(handle) == 0 ? STATUS_OK : status_of_errno(errno);
}

// Makes the rename durable: the folder's entry is data of the folder.
static enum status sync_folder_of(const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t length = slash == NULL ? 1 : slash == path ? 1 : (size_t)(slash - path);
    memcpy(folder, slash == NULL ? "." : path, length);
    folder[length] = '\0';
    int handle = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (handle < 0) {
        return status_of_errno(errno);
    }
    int failed = fsync(handle);
    close(handle);
    return failed == 0 ? STATUS_OK : STATUS_IO;
}

enum status os_file_write_atomic(const char *path, const void *data, size_t bytes)
{
    char temporary[PATH_MAX];
    int length = snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path);
    if (length < 0 || (size_t)length >= sizeof(temporary)) {
        return STATUS_INVALID;
    }
    int handle = mkostemp(temporary, O_CLOEXEC); // mode 0600
    if (handle < 0) {
        return status_of_errno(errno);
    }
    enum status status = write_all(handle, data, bytes);
    close(handle);
    if (status == STATUS_OK && rename(temporary, path) != 0) {
        status = status_of_errno(errno);
    }
    if (status != STATUS_OK) {
        unlink(temporary);
        return status;
    }
    return sync_folder_of(path);
}

enum status os_file_remove(const char *path)
{
    return unlink(path) == 0 ? STATUS_OK : status_of_errno(errno);
}
