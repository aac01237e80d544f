// SPDX-License-Identifier: Apache-2.0
// Opening and closing an environment, its levels, and errors. The record of a namespace is the
// hello request that would ask for it (proto/kv_message.h), so that it is checked on reading as any
// message, with its BLAKE2b-256 after it.

#include "kvstored/disk.h"

#include "kvstored/disk_internal.h"
#include "proto/hash.h"
#include "proto/os/folder.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DATABASES = 3,
    READERS_MAX = 16,           // loader, inspector, their successors, and some to spare
    OVERFLOW_HEADER_BYTES = 16, // LMDB's, before a value that has pages of its own
};

static const char about_key[] = "namespace";

enum status disk_status(int result)
{
    switch (result) {
    case MDB_SUCCESS:
        return STATUS_OK;
    case MDB_NOTFOUND:
    case ENOENT:
        return STATUS_NOT_FOUND;
    case MDB_KEYEXIST:
        return STATUS_EXISTS;
    case MDB_MAP_FULL:
        return STATUS_REFUSED; // the map is as large as the budget
    case MDB_READERS_FULL:
        return STATUS_BUSY;
    case MDB_VERSION_MISMATCH:
        return STATUS_VERSION;
    case EINVAL: // LMDB's answer to tables that contradict themselves
        return STATUS_DAMAGED;
    case ENOMEM:
        return STATUS_NO_MEMORY;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return STATUS_NO_SPACE;
    case EACCES:
    case EPERM:
    case EROFS:
        return STATUS_PERMISSION;
    default: // its own codes are negative; what is not told apart above is a table it cannot use
        return result < 0 ? STATUS_DAMAGED : STATUS_IO;
    }
}

static size_t value_bytes_of(uint64_t payload_bytes)
{
    uint64_t whole = sizeof(struct block_header) + payload_bytes + OVERFLOW_HEADER_BYTES;
    return (whole + BLOCK_PAGE_BYTES - 1) / BLOCK_PAGE_BYTES * BLOCK_PAGE_BYTES -
           OVERFLOW_HEADER_BYTES;
}

static enum status open_failed(const struct disk_options *options, enum status status,
                               const char *what, struct reason *reason)
{
    return reason_set(reason, status, "check the folder, its permissions and its disk",
                      "store %.200s: %s (%s)", options->folder, what, status_name(status));
}

// The map: all of the budget, or all of a file that is larger already.
static uint64_t map_bytes_for(const struct disk_options *options)
{
    uint64_t bytes = options->bytes_max < DISK_BYTES_MIN ? DISK_BYTES_MIN : options->bytes_max;
    return bytes / BLOCK_PAGE_BYTES * BLOCK_PAGE_BYTES;
}

static enum status open_environment(struct disk *disk, const struct disk_options *options,
                                    struct reason *reason)
{
    int result = mdb_env_create(&disk->env);
    if (result != MDB_SUCCESS) {
        return open_failed(options, disk_status(result), "cannot be opened", reason);
    }
    mdb_env_set_maxdbs(disk->env, DATABASES);
    mdb_env_set_maxreaders(disk->env, READERS_MAX);
    result = mdb_env_set_mapsize(disk->env, map_bytes_for(options));
    if (result == MDB_SUCCESS) {
        // NOTLS: readers belong to their objects. NORDAHEAD: the loader reads ahead itself.
        result = mdb_env_open(disk->env, options->folder,
                              MDB_NOTLS | MDB_NORDAHEAD | MDB_NOMETASYNC, 0600);
    }
    if (result != MDB_SUCCESS) {
        return open_failed(options, disk_status(result), "cannot be opened", reason);
    }
    int dead = 0;
    result = mdb_reader_check(disk->env, &dead); // of processes that died
    return result == MDB_SUCCESS
               ? STATUS_OK
               : open_failed(options, disk_status(result), "its readers cannot be checked", reason);
}

static int open_databases(struct disk *disk, MDB_txn *transaction, unsigned int flags)
{
    int result = mdb_dbi_open(transaction, "block", flags, &disk->blocks);
    if (result == MDB_SUCCESS) {
        result = mdb_dbi_open(transaction, "session", flags, &disk->sessions);
    }
    if (result == MDB_SUCCESS) {
        result = mdb_dbi_open(transaction, "namespace", flags, &disk->about);
    }
    return result;
}

static void about_sum(const void *data, size_t bytes, uint8_t *out_sum)
{
    struct hash hash;
    hash_init(&hash);
    hash_field(&hash, data, bytes);
    hash_final(&hash, out_sum);
}

static enum status write_about(struct disk *disk, MDB_txn *transaction,
                               const struct kv_namespace *name_space)
{
    struct kv_request request = {.op = KV_OP_HELLO};
    request.hello = (struct kv_hello_request){.version = KV_PROTOCOL_VERSION,
                                              .program = "kvstored",
                                              .has_namespace = true,
                                              .name_space = *name_space};
    void *data = NULL;
    size_t bytes = 0;
    enum status status = kv_request_encode(&request, &data, &bytes);
    if (status != STATUS_OK) {
        return status;
    }
    MDB_val key = {sizeof(about_key) - 1, (void *)about_key};
    MDB_val value = {bytes + HASH_BYTES, NULL};
    int result = mdb_put(transaction, disk->about, &key, &value, MDB_RESERVE);
    if (result == MDB_SUCCESS) {
        memcpy(value.mv_data, data, bytes);
        about_sum(data, bytes, (uint8_t *)value.mv_data + bytes);
    }
    free(data);
    return disk_status(result);
}

static enum status read_about(struct disk *disk, MDB_txn *transaction,
                              struct kv_namespace *out_namespace)
{
    MDB_val key = {sizeof(about_key) - 1, (void *)about_key};
    MDB_val value;
    enum status status = disk_status(mdb_get(transaction, disk->about, &key, &value));
    if (status != STATUS_OK) {
        return status;
    }
    if (value.mv_size <= HASH_BYTES) {
        return STATUS_DAMAGED;
    }
    size_t bytes = value.mv_size - HASH_BYTES;
    uint8_t sum[HASH_BYTES];
    about_sum(value.mv_data, bytes, sum);
    if (memcmp(sum, (const uint8_t *)value.mv_data + bytes, HASH_BYTES) != 0) {
        return STATUS_DAMAGED;
    }
    struct kv_request request;
    status = kv_request_decode(value.mv_data, bytes, &request, NULL);
    if (status != STATUS_OK) {
        return STATUS_DAMAGED;
    }
    bool whole = request.op == KV_OP_HELLO && request.hello.has_namespace;
    if (whole) {
        *out_namespace = request.hello.name_space;
    }
    kv_request_finish(&request);
    return whole ? STATUS_OK : STATUS_DAMAGED;
}

static bool same_namespace(const struct kv_namespace *a, const struct kv_namespace *b)
{
    if (memcmp(a->fingerprint, b->fingerprint, sizeof(a->fingerprint)) != 0 ||
        a->block_tokens != b->block_tokens || a->group_count != b->group_count) {
        return false;
    }
    return memcmp(a->groups, b->groups, a->group_count * sizeof(a->groups[0])) == 0;
}

// Reads whose folder it is, or makes it that of options->name_space when it is nobody's.
static enum status settle_namespace(struct disk *disk, const struct disk_options *options,
                                    MDB_txn *transaction)
{
    enum status status = read_about(disk, transaction, &disk->name_space);
    if (status == STATUS_NOT_FOUND && options->name_space != NULL) {
        disk->name_space = *options->name_space;
        return write_about(disk, transaction, options->name_space);
    }
    if (status == STATUS_OK && options->name_space != NULL &&
        !same_namespace(&disk->name_space, options->name_space)) {
        return STATUS_MISMATCH;
    }
    return status;
}

static enum status open_tables(struct disk *disk, const struct disk_options *options)
{
    MDB_txn *transaction = NULL;
    unsigned int flags = options->name_space != NULL ? MDB_CREATE : 0;
    int result = mdb_txn_begin(disk->env, NULL, 0, &transaction);
    if (result != MDB_SUCCESS) {
        return disk_status(result);
    }
    enum status status = disk_status(open_databases(disk, transaction, flags));
    if (status == STATUS_OK) {
        status = settle_namespace(disk, options, transaction);
    }
    if (status != STATUS_OK) {
        mdb_txn_abort(transaction);
        return status;
    }
    return disk_status(mdb_txn_commit(transaction));
}

static enum status prepare_folder(const struct disk_options *options, struct reason *reason)
{
    enum status status = STATUS_OK;
    if (options->name_space != NULL) {
        status = os_folder_create(options->folder, reason);
        if (status != STATUS_OK) {
            return status;
        }
    }
    char path[DISK_PATH_BYTES];
    int length = snprintf(path, sizeof(path), "%s/data.mdb", options->folder);
    if (length < 0 || (size_t)length >= sizeof(path)) {
        return reason_set(reason, STATUS_INVALID, "choose a shorter --data-dir",
                          "store: the path of its folder is too long");
    }
    status = disk_file_check(path, reason);
    if (status == STATUS_NOT_FOUND) {
        return options->name_space != NULL
                   ? STATUS_OK
                   : reason_set(reason, status, "", "store %.200s: is empty", options->folder);
    }
    return status;
}

enum status disk_open(const struct disk_options *options, struct disk **out_disk,
                      struct reason *reason)
{
    enum status status = prepare_folder(options, reason);
    if (status != STATUS_OK) {
        return status;
    }
    struct disk *disk = calloc(1, sizeof(*disk));
    if (disk == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "store: out of memory");
    }
    status = open_environment(disk, options, reason);
    if (status == STATUS_OK) {
        status = open_tables(disk, options);
        if (status != STATUS_OK) {
            status = open_failed(options, status,
                                 status == STATUS_MISMATCH ? "belongs to another namespace"
                                                           : "its tables cannot be read",
                                 reason);
        }
    }
    if (status != STATUS_OK) {
        disk_close(disk);
        return status;
    }
    MDB_stat stat;
    mdb_env_stat(disk->env, &stat);
    disk->page_bytes = stat.ms_psize;
    disk->budget_bytes = map_bytes_for(options);
    disk->payload_bytes =
        block_payload_bytes(&disk->name_space.groups[0], disk->name_space.block_tokens);
    disk->value_bytes = value_bytes_of(disk->payload_bytes);
    disk->freed = true; // perhaps, by whoever wrote last
    *out_disk = disk;
    return STATUS_OK;
}

void disk_close(struct disk *disk)
{
    if (disk != NULL) {
        mdb_env_close(disk->env); // NULL is fine
        free(disk);
    }
}

const struct kv_namespace *disk_namespace(const struct disk *disk)
{
    return &disk->name_space;
}

uint64_t disk_payload_bytes(const struct disk *disk)
{
    return disk->payload_bytes;
}

size_t disk_value_bytes(const struct disk *disk)
{
    return disk->value_bytes;
}

enum status disk_used_bytes(const struct disk *disk, MDB_txn *transaction, uint64_t *out_bytes)
{
    // 0 and 1 are LMDB's own: its free list and the table of databases.
    const MDB_dbi databases[] = {0, 1, disk->blocks, disk->sessions, disk->about};
    uint64_t pages = 2; // meta pages
    for (size_t i = 0; i < sizeof(databases) / sizeof(databases[0]); i++) {
        MDB_stat stat;
        int result = mdb_stat(transaction, databases[i], &stat);
        if (result != MDB_SUCCESS) {
            return disk_status(result);
        }
        pages += stat.ms_branch_pages + stat.ms_leaf_pages + stat.ms_overflow_pages;
    }
    *out_bytes = pages * disk->page_bytes;
    return STATUS_OK;
}

static enum status read_levels(struct disk *disk, MDB_txn *transaction, struct disk_levels *out)
{
    MDB_stat blocks, sessions;
    MDB_envinfo info;
    int result = mdb_stat(transaction, disk->blocks, &blocks);
    if (result == MDB_SUCCESS) {
        result = mdb_stat(transaction, disk->sessions, &sessions);
    }
    if (result == MDB_SUCCESS) {
        result = mdb_env_info(disk->env, &info);
    }
    if (result != MDB_SUCCESS) {
        return disk_status(result);
    }
    struct disk_levels levels = {
        .block_count = blocks.ms_entries,
        .session_count = sessions.ms_entries,
        .file_bytes = ((uint64_t)info.me_last_pgno + 1) * disk->page_bytes,
    };
    enum status status = disk_used_bytes(disk, transaction, &levels.used_bytes);
    if (status == STATUS_OK) {
        *out = levels;
    }
    return status;
}

enum status disk_levels(struct disk *disk, struct disk_levels *out_levels)
{
    MDB_txn *transaction = NULL;
    int result = mdb_txn_begin(disk->env, NULL, MDB_RDONLY, &transaction);
    if (result != MDB_SUCCESS) {
        return disk_status(result);
    }
    enum status status = read_levels(disk, transaction, out_levels);
    mdb_txn_abort(transaction);
    return status;
}

enum status disk_sync(struct disk *disk)
{
    return disk_status(mdb_env_sync(disk->env, 1));
}
