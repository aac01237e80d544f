// SPDX-License-Identifier: Apache-2.0
// The store's folder: a folder a namespace inside, named by the first 16 hex digits of its
// fingerprint, and a lock, so that one process at a time uses it. After open it is only read: any
// thread. Blocks on disk.
#ifndef KVTIER_KVSTORED_CATALOG_H
#define KVTIER_KVSTORED_CATALOG_H

#include "proto/block.h"
#include "proto/os/file_lock.h"
#include "proto/status.h"

#include <stdint.h>

enum {
    CATALOG_NAME_BYTES = 17, // 16 hex digits and a NUL
    CATALOG_PATH_BYTES = 560,
    CATALOG_NAMESPACES_MAX = 1024,
};

// Embedded by value; fields are the catalog's own.
struct catalog {
    char folder[CATALOG_PATH_BYTES - 32];
    struct os_file_lock lock;
};

struct catalog_name {
    char text[CATALOG_NAME_BYTES];
};

// Creates data_dir/store (0700) when it is not there, and locks it. STATUS_BUSY when another
// process uses it, STATUS_INVALID (path too long), STATUS_PERMISSION, STATUS_NO_SPACE, STATUS_IO.
enum status catalog_open(const char *data_dir, struct catalog *out_catalog,
                         struct reason *reason) KV_MUST_CHECK;
void catalog_close(struct catalog *catalog);

// The folder name of a namespace.
void catalog_name_of(const uint8_t *fingerprint, struct catalog_name *out_name);
// The namespace's folder: out [CATALOG_PATH_BYTES].
void catalog_path(const struct catalog *catalog, const struct catalog_name *name, char *out);

// The namespaces that have a folder, for the caller to free(). STATUS_NO_MEMORY, STATUS_IO,
// STATUS_REFUSED when there are more than CATALOG_NAMESPACES_MAX.
enum status catalog_list(const struct catalog *catalog, struct catalog_name **out_names,
                         uint32_t *out_count) KV_MUST_CHECK;
// Bytes on disk of all namespaces but `except` (NULL: none), and their count.
enum status catalog_usage(const struct catalog *catalog, const struct catalog_name *except,
                          uint64_t *out_bytes, uint32_t *out_count) KV_MUST_CHECK;

// Moves a damaged namespace out of the way; `out_name` [OS_NAME_BYTES] is what it is called now.
enum status catalog_set_aside(const struct catalog *catalog, const struct catalog_name *name,
                              char *out_name) KV_MUST_CHECK;

#endif
