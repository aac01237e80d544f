// SPDX-License-Identifier: Apache-2.0
// What is not named like a namespace is not ours and is left alone.

#include "kvstored/catalog.h"

#include "proto/os/clock.h"
#include "proto/os/disk_file.h"
#include "proto/os/folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum status lock_folder(struct catalog *catalog, struct reason *reason)
{
    char path[CATALOG_PATH_BYTES];
    uint64_t holder = 0;
    snprintf(path, sizeof(path), "%s/lock", catalog->folder);
    enum status status = os_file_lock_acquire(path, &catalog->lock, &holder);
    if (status == STATUS_BUSY) {
        return reason_set(reason, status, "stop it, or choose another --data-dir",
                          "store %.200s: in use by process %llu", catalog->folder,
                          (unsigned long long)holder);
    }
    if (status != STATUS_OK) {
        return reason_set(reason, status, "check its permissions",
                          "store %.200s: cannot be locked (%s)", catalog->folder,
                          status_name(status));
    }
    return STATUS_OK;
}

enum status catalog_open(const char *data_dir, struct catalog *out_catalog, struct reason *reason)
{
    struct catalog catalog = {.lock = {.handle = -1}};
    int length = snprintf(catalog.folder, sizeof(catalog.folder), "%s/store", data_dir);
    if (length < 0 || (size_t)length >= sizeof(catalog.folder)) {
        return reason_set(reason, STATUS_INVALID, "choose a shorter one",
                          "data folder: its path is too long");
    }
    enum status status = os_folder_create(catalog.folder, reason);
    if (status == STATUS_OK) {
        status = lock_folder(&catalog, reason);
    }
    if (status == STATUS_OK) {
        *out_catalog = catalog;
    }
    return status;
}

void catalog_close(struct catalog *catalog)
{
    os_file_lock_release(&catalog->lock);
}

void catalog_name_of(const uint8_t *fingerprint, struct catalog_name *out_name)
{
    for (int i = 0; i < (CATALOG_NAME_BYTES - 1) / 2; i++) {
        snprintf(out_name->text + 2 * i, 3, "%02x", fingerprint[i]);
    }
}

void catalog_path(const struct catalog *catalog, const struct catalog_name *name, char *out)
{
    snprintf(out, CATALOG_PATH_BYTES, "%s/%s", catalog->folder, name->text);
}

enum status catalog_list(const struct catalog *catalog, struct catalog_name **out_names,
                         uint32_t *out_count)
{
    struct os_name *found;
    uint32_t found_count;
    enum status status =
        os_folder_list(catalog->folder, 2 * CATALOG_NAMESPACES_MAX, &found, &found_count);
    if (status != STATUS_OK) {
        return status;
    }
    struct catalog_name *names = calloc(found_count + 1, sizeof(*names));
    uint32_t count = 0;
    for (uint32_t i = 0; names != NULL && i < found_count; i++) {
        if (strlen(found[i].text) == CATALOG_NAME_BYTES - 1 &&
            strspn(found[i].text, "0123456789abcdef") == CATALOG_NAME_BYTES - 1) {
            memcpy(names[count++].text, found[i].text, CATALOG_NAME_BYTES);
        }
    }
    free(found);
    if (names == NULL || count > CATALOG_NAMESPACES_MAX) {
        free(names);
        return names == NULL ? STATUS_NO_MEMORY : STATUS_REFUSED;
    }
    *out_names = names;
    *out_count = count;
    return STATUS_OK;
}

enum status catalog_usage(const struct catalog *catalog, const struct catalog_name *except,
                          uint64_t *out_bytes, uint32_t *out_count)
{
    struct catalog_name *names;
    uint32_t count, others = 0;
    uint64_t bytes = 0;
    enum status status = catalog_list(catalog, &names, &count);
    if (status != STATUS_OK) {
        return status;
    }
    for (uint32_t i = 0; i < count; i++) {
        char path[CATALOG_PATH_BYTES + 16];
        uint64_t length, disk_bytes;
        if (except != NULL && strcmp(names[i].text, except->text) == 0) {
            continue;
        }
        snprintf(path, sizeof(path), "%s/%s/data.mdb", catalog->folder, names[i].text);
        if (os_file_usage(path, &length, &disk_bytes) == STATUS_OK) {
            bytes += disk_bytes;
            others++;
        }
    }
    free(names);
    *out_bytes = bytes;
    *out_count = others;
    return STATUS_OK;
}

enum status catalog_set_aside(const struct catalog *catalog, const struct catalog_name *name,
                              char *out_name)
{
    char from[CATALOG_PATH_BYTES], to[CATALOG_PATH_BYTES + OS_NAME_BYTES];
    char aside[OS_NAME_BYTES];
    snprintf(aside, sizeof(aside), "%s.damaged-%llu", name->text,
             (unsigned long long)os_clock_wall_ms());
    catalog_path(catalog, name, from);
    snprintf(to, sizeof(to), "%s/%s", catalog->folder, aside);
    enum status status = os_file_rename(from, to);
    if (status == STATUS_OK) {
        strcpy(out_name, aside);
    }
    return status;
}
