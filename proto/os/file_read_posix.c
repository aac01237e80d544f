// SPDX-License-Identifier: Apache-2.0
// file_read.h over open and pread.
#include "proto/os/file_read.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum status open_failed(const char *path, int error, struct reason *reason)
{
    enum status status = STATUS_IO;
    if (error == ENOENT || error == ENOTDIR) {
        status = STATUS_NOT_FOUND;
    } else if (error == EACCES || error == EPERM) {
        status = STATUS_PERMISSION;
    }
    return reason_set(reason, status, "check the path", "%s: cannot be opened: %s", path,
                      strerror(error));
}

enum status file_read_open(const char *path, struct file_read *out_file, struct reason *reason)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return open_failed(path, errno, reason);
    }
    struct stat info;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        return reason_set(reason, STATUS_INVALID, "give the path of a file",
                          "%s: is not a regular file", path);
    }
    out_file->fd = fd;
    return STATUS_OK;
}

void file_read_close(struct file_read *file)
{
    close(file->fd);
    file->fd = -1;
}

enum status file_read_size(const struct file_read *file, uint64_t *out_bytes)
{
    struct stat info;
    if (fstat(file->fd, &info) != 0) {
        return STATUS_IO;
    }
    *out_bytes = (uint64_t)info.st_size;
    return STATUS_OK;
}

enum status file_read_at(const struct file_read *file, uint64_t offset, void *out, size_t bytes)
{
    uint8_t *target = out;
    while (bytes > 0) {
        ssize_t got = pread(file->fd, target, bytes, (off_t)offset);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return got == 0 ? STATUS_DAMAGED : STATUS_IO;
        }
        target += got;
        offset += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return STATUS_OK;
}
