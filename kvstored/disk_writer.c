// SPDX-License-Identifier: Apache-2.0
// A write transaction. Values are reserved in the map and copied there once. The budget is checked
// before each put against the pages in use, a tenth of it left free: LMDB writes a changed page to
// a new place, also to remove something.

#include "kvstored/disk_writer.h"

#include "kvstored/disk_internal.h"

#include <stdlib.h>
#include <string.h>

struct disk_writer {
    struct disk *disk;
    MDB_txn *transaction;
    uint64_t used_bytes; // in use, with what this transaction added
    bool removed;        // something
};

static const char turn_key[] = "turn";

// LMDB gives the pages that a transaction freed not to the next one but to the one after. So a map
// that was full would refuse the next write although there is room, and as a refused one does not
// count, every later one too. Commits a transaction whose only effect is that it counts.
static enum status pass_turn(struct disk *disk)
{
    MDB_txn *transaction = NULL;
    int result = mdb_txn_begin(disk->env, NULL, 0, &transaction);
    if (result != MDB_SUCCESS) {
        return disk_status(result);
    }
    MDB_val key = {sizeof(turn_key) - 1, (void *)turn_key};
    MDB_val value = {0, NULL};
    result = mdb_put(transaction, disk->about, &key, &value, 0);
    if (result != MDB_SUCCESS) {
        mdb_txn_abort(transaction);
        return disk_status(result);
    }
    return disk_status(mdb_txn_commit(transaction));
}

enum status disk_writer_begin(struct disk *disk, struct disk_writer **out_writer)
{
    struct disk_writer *writer = calloc(1, sizeof(*writer));
    if (writer == NULL) {
        return STATUS_NO_MEMORY;
    }
    writer->disk = disk;
    enum status status = disk->freed ? pass_turn(disk) : STATUS_OK;
    if (status == STATUS_OK) {
        disk->freed = false;
        status = disk_status(mdb_txn_begin(disk->env, NULL, 0, &writer->transaction));
    }
    if (status == STATUS_OK) {
        status = disk_used_bytes(disk, writer->transaction, &writer->used_bytes);
        if (status != STATUS_OK) {
            mdb_txn_abort(writer->transaction);
        }
    }
    if (status != STATUS_OK) {
        free(writer);
        return status;
    }
    *out_writer = writer;
    return STATUS_OK;
}

enum status disk_writer_commit(struct disk_writer *writer)
{
    enum status status = disk_status(mdb_txn_commit(writer->transaction));
    if (status == STATUS_OK && writer->removed) {
        writer->disk->freed = true;
    }
    free(writer);
    return status;
}

void disk_writer_abort(struct disk_writer *writer)
{
    if (writer != NULL) {
        mdb_txn_abort(writer->transaction);
        free(writer);
    }
}

// Whether `bytes` more, in pages of their own, stay within the budget.
static bool fits(const struct disk_writer *writer, size_t bytes)
{
    uint64_t page = writer->disk->page_bytes;
    uint64_t added = (bytes / page + 2) * page;
    return writer->used_bytes + added <= writer->disk->budget_bytes / 10 * 9;
}

// Reserves room for a value, at *out_data.
static enum status reserve(struct disk_writer *writer, MDB_dbi database, MDB_val *key, size_t bytes,
                           unsigned int flags, uint8_t **out_data)
{
    MDB_val value = {bytes, NULL};
    if (!fits(writer, bytes)) {
        return STATUS_REFUSED;
    }
    int result = mdb_put(writer->transaction, database, key, &value, flags | MDB_RESERVE);
    if (result != MDB_SUCCESS) {
        return disk_status(result);
    }
    writer->used_bytes += bytes + writer->disk->page_bytes;
    *out_data = value.mv_data;
    return STATUS_OK;
}

enum status disk_writer_put_block(struct disk_writer *writer, const struct block_id *id,
                                  const struct block_header *header, const void *payload)
{
    uint8_t bytes[DISK_BLOCK_KEY_BYTES];
    disk_block_key(id, bytes);
    MDB_val key = {sizeof(bytes), bytes};
    uint8_t *value;
    const struct disk *disk = writer->disk;
    enum status status =
        reserve(writer, disk->blocks, &key, disk->value_bytes, MDB_NOOVERWRITE, &value);
    if (status != STATUS_OK) {
        return status;
    }
    memcpy(value, header, sizeof(*header));
    memcpy(value + sizeof(*header), payload, disk->payload_bytes);
    size_t written = sizeof(*header) + disk->payload_bytes;
    memset(value + written, 0, disk->value_bytes - written);
    return STATUS_OK;
}

static enum status removal(struct disk_writer *writer, int result)
{
    writer->removed = writer->removed || result == MDB_SUCCESS;
    return disk_status(result);
}

enum status disk_writer_remove_block(struct disk_writer *writer, const struct block_id *id)
{
    uint8_t bytes[DISK_BLOCK_KEY_BYTES];
    disk_block_key(id, bytes);
    MDB_val key = {sizeof(bytes), bytes};
    return removal(writer, mdb_del(writer->transaction, writer->disk->blocks, &key, NULL));
}

enum status disk_writer_put_session(struct disk_writer *writer,
                                    const struct checkpoint_key *session, const void *data,
                                    size_t bytes)
{
    MDB_val key = {session->count, (void *)session->bytes};
    uint8_t *value;
    enum status status = reserve(writer, writer->disk->sessions, &key, bytes, 0, &value);
    if (status == STATUS_OK) {
        memcpy(value, data, bytes);
    }
    return status;
}

enum status disk_writer_remove_session(struct disk_writer *writer,
                                       const struct checkpoint_key *session)
{
    MDB_val key = {session->count, (void *)session->bytes};
    return removal(writer, mdb_del(writer->transaction, writer->disk->sessions, &key, NULL));
}
