// SPDX-License-Identifier: Apache-2.0
// What the disk_*.c files share. Includes lmdb.h: never include it elsewhere.
#ifndef KVTIER_KVSTORED_DISK_INTERNAL_H
#define KVTIER_KVSTORED_DISK_INTERNAL_H

#include "kvstored/disk.h"

#include <lmdb.h>

enum {
    DISK_PATH_BYTES = 600,
    DISK_BLOCK_KEY_BYTES = BLOCK_ID_BYTES + 1, // id, group
};

struct disk {
    MDB_env *env;
    MDB_dbi blocks, sessions, about;
    struct kv_namespace name_space;
    uint64_t payload_bytes;
    size_t value_bytes;
    uint64_t budget_bytes;
    uint32_t page_bytes;
    bool freed; // pages that the next transaction could not use yet; the writing thread's
};

// LMDB's result as ours.
enum status disk_status(int result);

// Pages in use of a transaction's view, in bytes.
enum status disk_used_bytes(const struct disk *disk, MDB_txn *transaction,
                            uint64_t *out_bytes) KV_MUST_CHECK;

// The key of a block: out [DISK_BLOCK_KEY_BYTES].
static inline void disk_block_key(const struct block_id *id, uint8_t *out_key)
{
    for (int i = 0; i < BLOCK_ID_BYTES; i++) {
        out_key[i] = id->bytes[i];
    }
    out_key[BLOCK_ID_BYTES] = 0; // the group: one until window groups are filled in
}

// Checks `path`, a database file, before LMDB opens it: LMDB would trust what it reads and end the
// process at a bad page. Missing pages at its end are made up with zeros, which no check takes for
// content. STATUS_NOT_FOUND when it does not exist or is empty, STATUS_DAMAGED, STATUS_VERSION,
// STATUS_IO.
enum status disk_file_check(const char *path, struct reason *reason) KV_MUST_CHECK;

#endif
