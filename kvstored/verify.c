// SPDX-License-Identifier: Apache-2.0
// Blocks in the order of their ids, a few a view: a view that is open for long would keep the
// writer from using freed pages.

#include "kvstored/verify.h"

#include "kvstored/disk_reader.h"
#include "proto/block_id.h"
#include "proto/os/disk_file.h"

#include <stdlib.h>
#include <string.h>

enum { STEP_BLOCKS = 32 };

void verify_damage_finish(struct verify_damage *damage)
{
    sweep_removed_finish(&damage->blocks);
    free(damage->keys);
    memset(damage, 0, sizeof(*damage));
}

bool verify_block(const struct disk *disk, const struct block_id *id, const uint8_t *value)
{
    struct block_header header;
    memcpy(&header, value, sizeof(header));
    return block_id_equal(&header.id, id) &&
           memcmp(header.fingerprint, disk_namespace(disk)->fingerprint, BLOCK_ID_BYTES) == 0 &&
           block_verify(&header, value + sizeof(header), disk_payload_bytes(disk)) == STATUS_OK;
}

// Counts damage and lists it while there is room. STATUS_NO_MEMORY.
static enum status add_row(struct kv_verify_reply *reply, const struct kv_damaged *row)
{
    reply->damaged_count++;
    if (reply->count == KV_DAMAGED_MAX) {
        return STATUS_OK;
    }
    struct kv_damaged *larger = realloc(reply->rows, ((size_t)reply->count + 1) * sizeof(*larger));
    if (larger == NULL) {
        return STATUS_NO_MEMORY;
    }
    reply->rows = larger;
    larger[reply->count++] = *row;
    return STATUS_OK;
}

static enum status add_block(const struct disk *disk, const struct block_id *id,
                             struct kv_verify_reply *reply, struct verify_damage *damage)
{
    struct kv_damaged row = {0};
    memcpy(row.fingerprint, disk_namespace(disk)->fingerprint, sizeof(row.fingerprint));
    memcpy(row.id, id->bytes, sizeof(row.id));
    struct block_id *larger =
        realloc(damage->blocks.ids, ((size_t)damage->blocks.count + 1) * sizeof(*larger));
    if (larger == NULL) {
        return STATUS_NO_MEMORY;
    }
    damage->blocks.ids = larger;
    larger[damage->blocks.count++] = *id;
    damage->blocks.capacity = damage->blocks.count;
    return add_row(reply, &row);
}

static enum status add_session(const struct disk *disk, const struct checkpoint_key *key,
                               struct kv_verify_reply *reply, struct verify_damage *damage)
{
    struct kv_damaged row = {.is_session = true};
    memcpy(row.fingerprint, disk_namespace(disk)->fingerprint, sizeof(row.fingerprint));
    // The name stands in the key, which may be damaged as well: shown only when it is one.
    if (key->count > 1u + key->bytes[0]) {
        size_t bytes = key->count - 1u - key->bytes[0];
        char name[CHECKPOINT_KEY_BYTES_MAX + 1] = {0};
        memcpy(name, key->bytes + 1 + key->bytes[0], bytes);
        if (bytes <= LIMIT_SESSION_NAME_BYTES && session_name_check(name, NULL) == STATUS_OK) {
            memcpy(row.name, name, sizeof(row.name));
        }
    }
    struct checkpoint_key *larger =
        realloc(damage->keys, ((size_t)damage->key_count + 1) * sizeof(*larger));
    if (larger == NULL) {
        return STATUS_NO_MEMORY;
    }
    damage->keys = larger;
    larger[damage->key_count++] = *key;
    return add_row(reply, &row);
}

// How far a walk has come.
struct position {
    bool started;
    struct block_id last;
};

// Up to STEP_BLOCKS blocks after `position`, which moves on. STATUS_NOT_FOUND at the end.
static enum status verify_blocks(struct disk *disk, struct disk_reader *reader,
                                 struct position *position, struct kv_verify_reply *reply,
                                 struct verify_damage *damage)
{
    for (int i = 0; i < STEP_BLOCKS; i++) {
        struct block_id id;
        const uint8_t *value;
        enum status status = disk_reader_block_after(
            reader, position->started ? &position->last : NULL, &id, &value);
        if (status != STATUS_OK) {
            return status;
        }
        reply->block_count++;
        reply->payload_bytes += disk_payload_bytes(disk);
        if (value != NULL) {
            os_prefetch(value, disk_value_bytes(disk));
        }
        if (value == NULL || !verify_block(disk, &id, value)) {
            status = add_block(disk, &id, reply, damage);
            if (status != STATUS_OK) {
                return status;
            }
        }
        *position = (struct position){.started = true, .last = id};
    }
    return STATUS_OK;
}

static enum status verify_all_blocks(struct disk *disk, const atomic_bool *stop,
                                     struct kv_verify_reply *reply, struct verify_damage *damage)
{
    struct position position = {0};
    enum status status = STATUS_OK;
    while (status == STATUS_OK) {
        struct disk_reader *reader;
        // Relaxed: the flag only cuts work short.
        if (atomic_load_explicit(stop, memory_order_relaxed)) {
            return STATUS_CANCELLED;
        }
        status = disk_reader_begin(disk, &reader);
        if (status == STATUS_OK) {
            status = verify_blocks(disk, reader, &position, reply, damage);
            disk_reader_end(reader);
        }
    }
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

static enum status verify_sessions(struct disk *disk, struct kv_verify_reply *reply,
                                   struct verify_damage *damage)
{
    struct disk_reader *reader;
    struct checkpoint_key key;
    const struct checkpoint_key *after = NULL;
    const void *data;
    size_t bytes;
    enum status status = disk_reader_begin(disk, &reader);
    if (status != STATUS_OK) {
        return status;
    }
    while ((status = disk_reader_session_after(reader, after, &key, &data, &bytes)) == STATUS_OK) {
        struct checkpoint_record record;
        reply->session_count++;
        status = checkpoint_decode(&key, data, bytes, &record);
        if (status == STATUS_OK) {
            checkpoint_record_finish(&record);
        } else if (status != STATUS_NO_MEMORY) {
            status = add_session(disk, &key, reply, damage);
        }
        if (status != STATUS_OK) {
            break;
        }
        after = &key;
    }
    disk_reader_end(reader);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

enum status verify_disk(struct disk *disk, const atomic_bool *stop, struct kv_verify_reply *reply,
                        struct verify_damage *damage)
{
    reply->namespace_count++;
    enum status status = verify_sessions(disk, reply, damage);
    return status == STATUS_OK ? verify_all_blocks(disk, stop, reply, damage) : status;
}

enum status verify_repair(struct disk *disk, const struct verify_damage *damage,
                          uint64_t *out_count)
{
    struct sweep_removed removed = {0};
    const struct block_index none = {0};
    enum status status =
        sweep_remove_blocks(disk, damage->blocks.ids, damage->blocks.count, &removed);
    for (uint32_t i = 0; status == STATUS_OK && i < damage->key_count; i++) {
        status = sweep_remove_session(disk, &damage->keys[i], &none, &removed);
    }
    *out_count = (uint64_t)removed.count + removed.session_count;
    sweep_removed_finish(&removed);
    return status;
}
