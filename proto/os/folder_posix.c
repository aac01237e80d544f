// SPDX-License-Identifier: Apache-2.0
// folder.h over mkdir and stat. The last folder is opened without following a symbolic link and
// checked through its handle: in /tmp another user may have put anything in our place.
#include "proto/os/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { FOLDER_PATH_BYTES = 4096 };

static enum status status_of_errno(int error)
{
    switch (error) {
    case ENOENT:
        return STATUS_NOT_FOUND;
    case EACCES:
    case EPERM:
    case EROFS:
        return STATUS_PERMISSION;
    case ENOSPC:
    case EDQUOT:
        return STATUS_NO_SPACE;
    case ENOTDIR:
    case ELOOP:
        return STATUS_INVALID;
    default:
        return STATUS_IO;
    }
}

static enum status folder_failed(const char *path, int error, struct reason *reason)
{
    return reason_set(reason, status_of_errno(error), "check the path and its permissions",
                      "folder %s: cannot be made: %s", path, strerror(error));
}

// Makes the parents that `path` lacks; the last name is left to the caller.
static enum status make_parents(const char *path, struct reason *reason)
{
    char parent[FOLDER_PATH_BYTES];
    size_t length = strlen(path);
    if (path[0] != '/' || length >= sizeof(parent)) {
        return reason_set(reason, STATUS_INVALID, "give an absolute path", "folder %s: %s", path,
                          path[0] != '/' ? "is not an absolute path" : "the path is too long");
    }
    for (size_t i = 1; i < length; i++) {
        if (path[i] != '/') {
            continue;
        }
        memcpy(parent, path, i);
        parent[i] = '\0';
        if (mkdir(parent, 0700) != 0 && errno != EEXIST && errno != EISDIR) {
            // A parent that is there but may not be written to answers EACCES or EROFS first.
            struct stat info;
            int error = errno;
            if (stat(parent, &info) != 0) {
                return folder_failed(parent, error, reason);
            }
        }
    }
    return STATUS_OK;
}

static enum status check_owner(const char *path, struct reason *reason)
{
    int handle = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (handle < 0) {
        enum status status = status_of_errno(errno);
        return reason_set(reason, status, "remove it or choose another folder",
                          "folder %s: cannot be opened: %s", path, strerror(errno));
    }
    struct stat info;
    int failed = fstat(handle, &info);
    close(handle);
    if (failed != 0) {
        return reason_set(reason, STATUS_IO, "", "folder %s: cannot be inspected", path);
    }
    if (info.st_uid != geteuid()) {
        return reason_set(reason, STATUS_PERMISSION, "remove it or choose another folder",
                          "folder %s: belongs to uid %u, not to us (uid %u)", path,
                          (unsigned)info.st_uid, (unsigned)geteuid());
    }
    if ((info.st_mode & 077) != 0) {
        return reason_set(reason, STATUS_PERMISSION, "chmod 700 it",
                          "folder %s: others may enter it (mode %o)", path,
                          (unsigned)info.st_mode & 0777u);
    }
    return STATUS_OK;
}

enum status os_folder_create(const char *path, struct reason *reason)
{
    enum status status = make_parents(path, reason);
    if (status != STATUS_OK) {
        return status;
    }
    if (mkdir(path, 0700) != 0 && errno != EEXIST) {
        return folder_failed(path, errno, reason);
    }
    return check_owner(path, reason);
}

enum status os_folder_identify(const char *path, struct os_folder_identity *out_identity)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        return errno == ENOENT || errno == ENOTDIR ? STATUS_NOT_FOUND : STATUS_IO;
    }
    *out_identity = (struct os_folder_identity){.device = (uint64_t)info.st_dev,
                                                .inode = (uint64_t)info.st_ino};
    return STATUS_OK;
}

enum status os_folder_space(const char *path, uint64_t *out_free_bytes, uint64_t *out_total_bytes)
{
    struct statvfs info;
    if (statvfs(path, &info) != 0) {
        return errno == ENOENT || errno == ENOTDIR ? STATUS_NOT_FOUND : STATUS_IO;
    }
    *out_free_bytes = (uint64_t)info.f_bavail * info.f_frsize;
    *out_total_bytes = (uint64_t)info.f_blocks * info.f_frsize;
    return STATUS_OK;
}
