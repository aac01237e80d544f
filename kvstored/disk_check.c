// SPDX-License-Identifier: Apache-2.0
// The first look at a database file. LMDB 0.9 keeps two meta pages at the start of the file and
// uses the one of the later transaction; their layout is fixed by its data format 1 (mdb.c:
// MDB_page, MDB_meta).

#include "kvstored/disk_internal.h"

#include "proto/os/disk_file.h"
#include "proto/os/file_read.h"

#include <string.h>

enum {
    META_MAGIC = (int)0xbeefc0de,
    META_VERSION = 1,
    META_OFFSET = 16,              // after the page's header
    META_PAGE_SIZE_OFFSET = 24,    // in the meta: the pad field of its first database
    META_LAST_PAGE_OFFSET = 120,   // u64
    META_TRANSACTION_OFFSET = 128, // u64
    META_BYTES = 136,
};

struct meta {
    uint64_t last_page;
    uint64_t transaction;
    uint32_t page_bytes;
};

static enum status read_meta(const struct file_read *file, uint64_t page_offset,
                             struct meta *out_meta)
{
    uint8_t bytes[META_BYTES];
    uint32_t magic, version;
    enum status status = file_read_at(file, page_offset + META_OFFSET, bytes, sizeof(bytes));
    if (status != STATUS_OK) {
        return status;
    }
    memcpy(&magic, bytes, sizeof(magic));
    memcpy(&version, bytes + 4, sizeof(version));
    memcpy(&out_meta->page_bytes, bytes + META_PAGE_SIZE_OFFSET, sizeof(out_meta->page_bytes));
    memcpy(&out_meta->last_page, bytes + META_LAST_PAGE_OFFSET, sizeof(out_meta->last_page));
    memcpy(&out_meta->transaction, bytes + META_TRANSACTION_OFFSET, sizeof(out_meta->transaction));
    if (magic != (uint32_t)META_MAGIC) {
        return STATUS_DAMAGED;
    }
    return version == META_VERSION ? STATUS_OK : STATUS_VERSION;
}

// The meta page that LMDB will use.
static enum status read_newer_meta(const struct file_read *file, struct meta *out_meta)
{
    struct meta first, second;
    enum status status = read_meta(file, 0, &first);
    if (status != STATUS_OK) {
        return status;
    }
    if (first.page_bytes < 512 || first.page_bytes > 65536 ||
        (first.page_bytes & (first.page_bytes - 1)) != 0) {
        return STATUS_DAMAGED;
    }
    status = read_meta(file, first.page_bytes, &second);
    if (status != STATUS_OK) {
        return status;
    }
    *out_meta = second.transaction > first.transaction ? second : first;
    return first.page_bytes == second.page_bytes ? STATUS_OK : STATUS_DAMAGED;
}

static enum status damaged(const char *path, enum status status, struct reason *reason)
{
    return reason_set(reason, status,
                      status == STATUS_VERSION ? "use the kvtier that wrote it, or move it away"
                                               : "move it away to start anew",
                      "%.200s: %s", path,
                      status == STATUS_VERSION   ? "written by another version of LMDB"
                      : status == STATUS_DAMAGED ? "not a database, or its first pages are damaged"
                                                 : "cannot be read");
}

enum status disk_file_check(const char *path, struct reason *reason)
{
    struct file_read file;
    struct meta meta = {0};
    uint64_t bytes = 0;
    enum status status = file_read_open(path, &file, NULL);
    if (status != STATUS_OK) {
        return status == STATUS_NOT_FOUND ? status : damaged(path, status, reason);
    }
    status = file_read_size(&file, &bytes);
    if (status == STATUS_OK && bytes > 0) {
        status = read_newer_meta(&file, &meta);
    }
    file_read_close(&file);
    if (status != STATUS_OK) {
        return damaged(path, status, reason);
    }
    if (bytes == 0) {
        return STATUS_NOT_FOUND;
    }
    // Not every lacking page is damage (LMDB does not write pages freed before they were used), so
    // the file is completed: a page of zeros is refused by every reader, one past the end is a
    // SIGBUS.
    if (meta.last_page > (UINT64_C(1) << 46) / meta.page_bytes) {
        return damaged(path, STATUS_DAMAGED, reason);
    }
    status = os_file_extend(path, (meta.last_page + 1) * meta.page_bytes);
    return status == STATUS_OK ? status : damaged(path, status, reason);
}
