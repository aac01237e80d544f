// SPDX-License-Identifier: Apache-2.0
// The disk tier's calls on POSIX systems.

#include "proto/os/disk_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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
    case ENOMEM:
        return STATUS_NO_MEMORY;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return STATUS_NO_SPACE;
    case EEXIST:
    case ENOTEMPTY:
        return STATUS_EXISTS;
    default:
        return STATUS_IO;
    }
}

// Adds one name to a list that doubles as it grows.
static enum status add_name(struct os_name **names, uint32_t *count, const char *text)
{
    if ((*count & (*count - 1)) == 0) {
        size_t capacity = *count == 0 ? 1 : 2 * (size_t)*count;
        struct os_name *larger = realloc(*names, capacity * sizeof(**names));
        if (larger == NULL) {
            return STATUS_NO_MEMORY;
        }
        *names = larger;
    }
    strcpy((*names)[*count].text, text);
    (*count)++;
    return STATUS_OK;
}

enum status os_folder_list(const char *path, uint32_t max_count, struct os_name **out_names,
                           uint32_t *out_count)
{
    DIR *folder = opendir(path);
    if (folder == NULL) {
        return status_of_errno(errno);
    }
    struct os_name *names = NULL;
    uint32_t count = 0;
    enum status status = STATUS_OK;
    const struct dirent *entry;
    while (status == STATUS_OK && (entry = readdir(folder)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            strlen(entry->d_name) >= OS_NAME_BYTES) {
            continue;
        }
        status = count < max_count ? add_name(&names, &count, entry->d_name) : STATUS_REFUSED;
    }
    closedir(folder);
    if (status != STATUS_OK) {
        free(names);
        return status;
    }
    *out_names = names;
    *out_count = count;
    return STATUS_OK;
}

enum status os_file_usage(const char *path, uint64_t *out_bytes, uint64_t *out_disk_bytes)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        return status_of_errno(errno);
    }
    *out_bytes = (uint64_t)info.st_size;
    *out_disk_bytes = (uint64_t)info.st_blocks * 512; // POSIX: st_blocks counts 512 bytes
    return STATUS_OK;
}

enum status os_file_extend(const char *path, uint64_t bytes)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        return status_of_errno(errno);
    }
    if ((uint64_t)info.st_size >= bytes) {
        return STATUS_OK;
    }
    return truncate(path, (off_t)bytes) == 0 ? STATUS_OK : status_of_errno(errno);
}

enum status os_file_rename(const char *from, const char *to)
{
    return rename(from, to) == 0 ? STATUS_OK : status_of_errno(errno);
}

void os_prefetch(const void *at, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t start = (uintptr_t)at & ~(page - 1);
    (void)madvise((void *)start, bytes + ((uintptr_t)at - start), MADV_WILLNEED);
}
