// SPDX-License-Identifier: Apache-2.0
// A read transaction. LMDB gives addresses inside its map, so nothing is copied; a value with pages
// of its own is found without touching them.

#include "kvstored/disk_reader.h"

#include "kvstored/disk_internal.h"

#include <stdlib.h>
#include <string.h>

struct disk_reader {
    struct disk *disk;
    MDB_txn *transaction;
};

enum status disk_reader_begin(struct disk *disk, struct disk_reader **out_reader)
{
    struct disk_reader *reader = calloc(1, sizeof(*reader));
    if (reader == NULL) {
        return STATUS_NO_MEMORY;
    }
    reader->disk = disk;
    int result = mdb_txn_begin(disk->env, NULL, MDB_RDONLY, &reader->transaction);
    if (result != MDB_SUCCESS) {
        free(reader);
        return disk_status(result);
    }
    *out_reader = reader;
    return STATUS_OK;
}

void disk_reader_end(struct disk_reader *reader)
{
    if (reader != NULL) {
        mdb_txn_abort(reader->transaction);
        free(reader);
    }
}

enum status disk_reader_block(struct disk_reader *reader, const struct block_id *id,
                              const uint8_t **out_value)
{
    uint8_t bytes[DISK_BLOCK_KEY_BYTES];
    disk_block_key(id, bytes);
    MDB_val key = {sizeof(bytes), bytes};
    MDB_val value;
    enum status status =
        disk_status(mdb_get(reader->transaction, reader->disk->blocks, &key, &value));
    if (status != STATUS_OK) {
        return status;
    }
    if (value.mv_size != reader->disk->value_bytes) {
        return STATUS_DAMAGED;
    }
    *out_value = value.mv_data;
    return STATUS_OK;
}

// The entry whose key follows `after` [after_bytes] (0: the first). Result as disk_status.
static enum status next_entry(struct disk_reader *reader, MDB_dbi database, const void *after,
                              size_t after_bytes, MDB_val *out_key, MDB_val *out_value)
{
    MDB_cursor *cursor;
    int result = mdb_cursor_open(reader->transaction, database, &cursor);
    if (result != MDB_SUCCESS) {
        return disk_status(result);
    }
    MDB_val key = {after_bytes, (void *)after};
    result = mdb_cursor_get(cursor, &key, out_value, after_bytes == 0 ? MDB_FIRST : MDB_SET_RANGE);
    if (result == MDB_SUCCESS && after_bytes != 0 && key.mv_size == after_bytes &&
        memcmp(key.mv_data, after, after_bytes) == 0) {
        result = mdb_cursor_get(cursor, &key, out_value, MDB_NEXT);
    }
    mdb_cursor_close(cursor);
    *out_key = key;
    return disk_status(result);
}

enum status disk_reader_block_after(struct disk_reader *reader, const struct block_id *after,
                                    struct block_id *out_id, const uint8_t **out_value)
{
    uint8_t bytes[DISK_BLOCK_KEY_BYTES];
    if (after != NULL) {
        disk_block_key(after, bytes);
        bytes[BLOCK_ID_BYTES] = UINT8_MAX; // past every group of it
    }
    MDB_val key, value;
    enum status status = next_entry(reader, reader->disk->blocks, bytes,
                                    after != NULL ? sizeof(bytes) : 0, &key, &value);
    if (status != STATUS_OK) {
        return status;
    }
    if (key.mv_size != DISK_BLOCK_KEY_BYTES) {
        return STATUS_DAMAGED;
    }
    memcpy(out_id->bytes, key.mv_data, BLOCK_ID_BYTES);
    *out_value = value.mv_size == reader->disk->value_bytes ? value.mv_data : NULL;
    return STATUS_OK;
}

enum status disk_reader_session(struct disk_reader *reader, const struct checkpoint_key *session,
                                const void **out_data, size_t *out_bytes)
{
    MDB_val key = {session->count, (void *)session->bytes};
    MDB_val value;
    enum status status =
        disk_status(mdb_get(reader->transaction, reader->disk->sessions, &key, &value));
    if (status == STATUS_OK) {
        *out_data = value.mv_data;
        *out_bytes = value.mv_size;
    }
    return status;
}

enum status disk_reader_session_after(struct disk_reader *reader,
                                      const struct checkpoint_key *after,
                                      struct checkpoint_key *out_key, const void **out_data,
                                      size_t *out_bytes)
{
    MDB_val key, value;
    enum status status =
        next_entry(reader, reader->disk->sessions, after != NULL ? after->bytes : NULL,
                   after != NULL ? after->count : 0, &key, &value);
    if (status != STATUS_OK) {
        return status;
    }
    if (key.mv_size > CHECKPOINT_KEY_BYTES_MAX) {
        return STATUS_DAMAGED;
    }
    struct checkpoint_key found = {.count = (uint32_t)key.mv_size};
    memcpy(found.bytes, key.mv_data, key.mv_size);
    *out_key = found;
    *out_data = value.mv_data;
    *out_bytes = value.mv_size;
    return STATUS_OK;
}
