// SPDX-License-Identifier: Apache-2.0
// file_lock.h over flock, which belongs to the open file and ends with it.
#include "proto/os/file_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

enum { PID_TEXT_BYTES = 24 };

static uint64_t read_pid(int handle)
{
    char text[PID_TEXT_BYTES] = {0};
    ssize_t got = pread(handle, text, sizeof(text) - 1, 0);
    return got > 0 ? strtoull(text, NULL, 10) : 0;
}

static enum status write_pid(int handle)
{
    char text[PID_TEXT_BYTES];
    int length = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
    if (ftruncate(handle, 0) != 0 || pwrite(handle, text, (size_t)length, 0) != length) {
        return STATUS_IO;
    }
    return STATUS_OK;
}

enum status os_file_lock_acquire(const char *path, struct os_file_lock *out_lock,
                                 uint64_t *out_holder_pid)
{
    int handle = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (handle < 0) {
        if (errno == ENOENT || errno == ENOTDIR) {
            return STATUS_NOT_FOUND;
        }
        return errno == EACCES || errno == EPERM || errno == ELOOP ? STATUS_PERMISSION : STATUS_IO;
    }
    enum status status = STATUS_OK;
    if (flock(handle, LOCK_EX | LOCK_NB) != 0) {
        status = errno == EWOULDBLOCK ? STATUS_BUSY : STATUS_IO;
        if (status == STATUS_BUSY) {
            *out_holder_pid = read_pid(handle);
        }
    } else {
        status = write_pid(handle);
    }
    if (status != STATUS_OK) {
        close(handle);
        return status;
    }
    out_lock->handle = handle;
    return STATUS_OK;
}

void os_file_lock_release(struct os_file_lock *lock)
{
    if (lock->handle >= 0) {
        close(lock->handle);
        lock->handle = -1;
    }
}
