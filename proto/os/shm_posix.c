// SPDX-License-Identifier: Apache-2.0
// shm.h over shm_open, memfd_create, posix_fallocate and OFD locks. OFD locks belong to the open
// file description, not to the process: every mapping (its own open) is a holder of its own, and
// the lock ends with the last descriptor of that open, so with the process.
#include "proto/os/shm.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static enum status status_of_errno(int error)
{
    switch (error) {
    case EEXIST:
        return STATUS_EXISTS;
    case ENOENT:
        return STATUS_NOT_FOUND;
    case EACCES:
    case EPERM:
        return STATUS_PERMISSION;
    case ENOMEM:
    case ENOSPC:
    case EFBIG:
    case EMFILE:
    case ENFILE:
        return STATUS_NO_MEMORY;
    default:
        return STATUS_IO;
    }
}

static enum status shm_failed(const char *name, const char *action, int error,
                              struct reason *reason)
{
    return reason_set(reason, status_of_errno(error), "see `df -h /dev/shm` and its permissions",
                      "shared memory %s: cannot %s: %s", name, action, strerror(error));
}

// Maps the whole of `handle`, which becomes the mapping's on success and is closed on failure.
static enum status map_handle(const char *name, int handle, size_t bytes, struct os_shm *out_shm,
                              struct reason *reason)
{
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, handle, 0);
    if (base == MAP_FAILED) {
        enum status status = shm_failed(name, "map it", errno, reason);
        close(handle);
        return status;
    }
    *out_shm = (struct os_shm){.base = base, .bytes = bytes, .handle = handle};
    return STATUS_OK;
}

enum status os_shm_create(const char *name, size_t bytes, struct os_shm *out_shm,
                          struct reason *reason)
{
    int handle = shm_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (handle < 0) {
        return shm_failed(name, "create it", errno, reason);
    }
    enum status status = STATUS_OK;
    if (fchmod(handle, 0600) != 0 || ftruncate(handle, (off_t)bytes) != 0) {
        status = shm_failed(name, "size it", errno, reason);
        close(handle);
    } else {
        status = map_handle(name, handle, bytes, out_shm, reason);
    }
    if (status != STATUS_OK) {
        shm_unlink(name);
    }
    return status;
}

enum status os_shm_create_private(size_t bytes, struct os_shm *out_shm, struct reason *reason)
{
    int handle = memfd_create("kvtier", MFD_CLOEXEC);
    if (handle < 0) {
        return shm_failed("(private)", "create it", errno, reason);
    }
    if (ftruncate(handle, (off_t)bytes) != 0) {
        enum status status = shm_failed("(private)", "size it", errno, reason);
        close(handle);
        return status;
    }
    return map_handle("(private)", handle, bytes, out_shm, reason);
}

enum status os_shm_open(const char *name, struct os_shm *out_shm, struct reason *reason)
{
    int handle = shm_open(name, O_RDWR | O_CLOEXEC, 0);
    if (handle < 0) {
        return shm_failed(name, "open it", errno, reason);
    }
    struct stat info;
    enum status status = STATUS_OK;
    if (fstat(handle, &info) != 0) {
        status = shm_failed(name, "inspect it", errno, reason);
    } else if (info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
        status = reason_set(reason, STATUS_PERMISSION, "run both daemons as one user",
                            "shared memory %s: belongs to uid %u with mode %o", name,
                            (unsigned)info.st_uid, (unsigned)info.st_mode & 0777u);
    } else if (info.st_size <= 0) {
        status = reason_set(reason, STATUS_DAMAGED, "restart kvstored",
                            "shared memory %s: is empty", name);
    }
    if (status != STATUS_OK) {
        close(handle);
        return status;
    }
    return map_handle(name, handle, (size_t)info.st_size, out_shm, reason);
}

void os_shm_close(struct os_shm *shm)
{
    if (shm->base == NULL) {
        return;
    }
    munmap(shm->base, shm->bytes);
    close(shm->handle);
    *shm = (struct os_shm){.handle = -1};
}

enum status os_shm_unlink(const char *name)
{
    return shm_unlink(name) == 0 ? STATUS_OK : status_of_errno(errno);
}

enum status os_shm_reserve(struct os_shm *shm, uint64_t offset, uint64_t bytes)
{
    assert(offset <= shm->bytes && bytes <= shm->bytes - offset);
    if (bytes == 0) {
        return STATUS_OK;
    }
    int error;
    do {
        error = posix_fallocate(shm->handle, (off_t)offset, (off_t)bytes);
    } while (error == EINTR);
    return error == 0 ? STATUS_OK : status_of_errno(error);
}

enum status os_shm_backed_bytes(const struct os_shm *shm, uint64_t *out_bytes)
{
    struct stat info;
    if (fstat(shm->handle, &info) != 0) {
        return STATUS_IO;
    }
    *out_bytes = (uint64_t)info.st_blocks * 512u; // st_blocks counts 512-byte units on Linux
    return STATUS_OK;
}

enum status os_shm_capacity(uint64_t *out_free_bytes, uint64_t *out_total_bytes)
{
    struct statvfs info;
    if (statvfs("/dev/shm", &info) != 0) {
        return STATUS_IO;
    }
    *out_free_bytes = (uint64_t)info.f_bavail * info.f_frsize;
    *out_total_bytes = (uint64_t)info.f_blocks * info.f_frsize;
    return STATUS_OK;
}

static struct flock byte_lock(short type, uint64_t offset)
{
    return (struct flock){
        .l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)offset, .l_len = 1};
}

enum status os_shm_lock(struct os_shm *shm, uint64_t offset)
{
    struct flock lock = byte_lock(F_WRLCK, offset);
    if (fcntl(shm->handle, F_OFD_SETLK, &lock) == 0) {
        return STATUS_OK;
    }
    return errno == EAGAIN || errno == EACCES ? STATUS_BUSY : STATUS_IO;
}

void os_shm_unlock(struct os_shm *shm, uint64_t offset)
{
    struct flock lock = byte_lock(F_UNLCK, offset);
    (void)fcntl(shm->handle, F_OFD_SETLK, &lock); // unlocking a byte of an open file cannot fail
}

enum status os_shm_lock_held(struct os_shm *shm, uint64_t offset, bool *out_held)
{
    struct flock lock = byte_lock(F_WRLCK, offset);
    if (fcntl(shm->handle, F_OFD_GETLK, &lock) != 0) {
        return STATUS_IO;
    }
    *out_held = lock.l_type != F_UNLCK;
    return STATUS_OK;
}
