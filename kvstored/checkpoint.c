// SPDX-License-Identifier: Apache-2.0
// Record, little-endian: struct record_head, tokens u32 [token_count], settings [settings_bytes],
// BLAKE2b-256 of the key (length-prefixed) and of all that stands before. Name and salt are in the
// key alone.

#include "kvstored/checkpoint.h"

#include "proto/block_id.h"
#include "proto/hash.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    RECORD_MAGIC = 0x3153564b, // "KVS1" in little-endian
    RECORD_VERSION = 1,
};

struct record_head {
    uint32_t magic;
    uint32_t version;
    uint64_t created_ms;
    uint64_t updated_ms;
    uint32_t token_count;
    uint32_t settings_bytes;
    uint8_t mode; // enum attention_mode
    uint8_t keep;
    uint8_t reserved[6]; // 0
};

static_assert(sizeof(struct record_head) == 40, "frozen layout");

void checkpoint_key_make(const char *name, const void *salt, uint32_t salt_bytes,
                         struct checkpoint_key *out_key)
{
    size_t name_bytes = strlen(name);
    assert(salt_bytes <= LIMIT_SALT_BYTES && name_bytes <= LIMIT_SESSION_NAME_BYTES);
    out_key->bytes[0] = (uint8_t)salt_bytes;
    if (salt_bytes > 0) {
        memcpy(out_key->bytes + 1, salt, salt_bytes);
    }
    memcpy(out_key->bytes + 1 + salt_bytes, name, name_bytes);
    out_key->count = (uint32_t)(1 + salt_bytes + name_bytes);
}

static void record_sum(const struct checkpoint_key *key, const void *data, size_t bytes,
                       uint8_t *out_sum)
{
    struct hash hash;
    hash_init(&hash);
    hash_field(&hash, key->bytes, key->count);
    hash_field(&hash, data, bytes);
    hash_final(&hash, out_sum);
}

static size_t body_bytes(const struct record_head *head)
{
    return sizeof(*head) + (size_t)head->token_count * sizeof(uint32_t) + head->settings_bytes;
}

enum status checkpoint_encode(const struct checkpoint_key *key,
                              const struct checkpoint_record *record, void **out_data,
                              size_t *out_bytes)
{
    const struct kv_checkpoint *checkpoint = &record->checkpoint;
    if (checkpoint->token_count > LIMIT_CONTEXT_TOKENS ||
        checkpoint->settings_bytes > LIMIT_SETTINGS_BYTES) {
        return STATUS_INVALID;
    }
    const struct record_head head = {
        .magic = RECORD_MAGIC,
        .version = RECORD_VERSION,
        .created_ms = record->created_ms,
        .updated_ms = record->updated_ms,
        .token_count = checkpoint->token_count,
        .settings_bytes = checkpoint->settings_bytes,
        .mode = (uint8_t)checkpoint->mode,
        .keep = checkpoint->keep,
    };
    size_t body = body_bytes(&head);
    size_t token_bytes = (size_t)head.token_count * sizeof(uint32_t);
    uint8_t *data = malloc(body + HASH_BYTES);
    if (data == NULL) {
        return STATUS_NO_MEMORY;
    }
    memcpy(data, &head, sizeof(head));
    if (token_bytes > 0) {
        memcpy(data + sizeof(head), checkpoint->tokens, token_bytes);
    }
    if (head.settings_bytes > 0) {
        memcpy(data + sizeof(head) + token_bytes, checkpoint->settings, head.settings_bytes);
    }
    record_sum(key, data, body, data + body);
    *out_data = data;
    *out_bytes = body + HASH_BYTES;
    return STATUS_OK;
}

// Checks head, lengths and checksum of a record.
static enum status record_check(const struct checkpoint_key *key, const void *data, size_t bytes,
                                struct record_head *out_head)
{
    if (key->count < 2 || key->bytes[0] > LIMIT_SALT_BYTES || key->bytes[0] + 2u > key->count ||
        bytes < sizeof(*out_head) + HASH_BYTES) {
        return STATUS_DAMAGED;
    }
    memcpy(out_head, data, sizeof(*out_head));
    if (out_head->magic != RECORD_MAGIC) {
        return STATUS_DAMAGED;
    }
    if (out_head->version != RECORD_VERSION) {
        return STATUS_VERSION;
    }
    if (out_head->mode > ATTENTION_MODE_SPARSE || out_head->token_count > LIMIT_CONTEXT_TOKENS ||
        out_head->settings_bytes > LIMIT_SETTINGS_BYTES ||
        bytes != body_bytes(out_head) + HASH_BYTES) {
        return STATUS_DAMAGED;
    }
    uint8_t sum[HASH_BYTES];
    record_sum(key, data, bytes - HASH_BYTES, sum);
    bool equal = memcmp(sum, (const uint8_t *)data + bytes - HASH_BYTES, HASH_BYTES) == 0;
    return equal ? STATUS_OK : STATUS_DAMAGED;
}

enum status checkpoint_decode(const struct checkpoint_key *key, const void *data, size_t bytes,
                              struct checkpoint_record *out_record)
{
    struct record_head head;
    enum status status = record_check(key, data, bytes, &head);
    if (status != STATUS_OK) {
        return status;
    }
    size_t token_bytes = (size_t)head.token_count * sizeof(uint32_t);
    size_t salt_bytes = key->bytes[0];
    size_t name_bytes = key->count - 1 - salt_bytes;
    uint8_t *memory = malloc(token_bytes + head.settings_bytes + salt_bytes + name_bytes + 1);
    if (memory == NULL) {
        return STATUS_NO_MEMORY;
    }
    const uint8_t *from = (const uint8_t *)data + sizeof(head);
    memcpy(memory, from, token_bytes + head.settings_bytes);
    uint8_t *identity = memory + token_bytes + head.settings_bytes;
    memcpy(identity, key->bytes + 1, salt_bytes + name_bytes);
    identity[salt_bytes + name_bytes] = '\0';
    *out_record = (struct checkpoint_record){
        .checkpoint = {.name = (char *)identity + salt_bytes,
                       .tokens = (uint32_t *)memory,
                       .token_count = head.token_count,
                       .salt = identity,
                       .salt_bytes = (uint32_t)salt_bytes,
                       .mode = (enum attention_mode)head.mode,
                       .settings = memory + token_bytes,
                       .settings_bytes = head.settings_bytes,
                       .keep = head.keep != 0},
        .created_ms = head.created_ms,
        .updated_ms = head.updated_ms,
        .memory = memory,
    };
    return STATUS_OK;
}

void checkpoint_record_finish(struct checkpoint_record *record)
{
    free(record->memory);
    memset(record, 0, sizeof(*record));
}

static void *copy_bytes(const void *data, size_t bytes)
{
    void *copy = malloc(bytes + 1);
    if (copy != NULL && bytes > 0) {
        memcpy(copy, data, bytes);
    }
    return copy;
}

enum status checkpoint_copy(const struct kv_checkpoint *from, struct kv_checkpoint *out)
{
    struct kv_checkpoint copy = *from;
    copy.name = strdup(from->name);
    copy.tokens = copy_bytes(from->tokens, (size_t)from->token_count * sizeof(uint32_t));
    copy.salt = copy_bytes(from->salt, from->salt_bytes);
    copy.settings = copy_bytes(from->settings, from->settings_bytes);
    if (copy.name == NULL || copy.tokens == NULL || copy.salt == NULL || copy.settings == NULL) {
        checkpoint_copy_finish(&copy);
        return STATUS_NO_MEMORY;
    }
    *out = copy;
    return STATUS_OK;
}

void checkpoint_copy_finish(struct kv_checkpoint *copy)
{
    free((void *)copy->name);
    free((void *)copy->tokens);
    free((void *)copy->salt);
    free((void *)copy->settings);
    memset(copy, 0, sizeof(*copy));
}

enum status checkpoint_chain(const struct kv_checkpoint *checkpoint, const uint8_t *fingerprint,
                             uint32_t block_tokens, struct block_id **out_ids, uint32_t *out_count)
{
    uint32_t count = checkpoint->token_count / block_tokens;
    struct block_id *ids = NULL;
    if (count > 0) {
        ids = malloc(count * sizeof(*ids));
        if (ids == NULL) {
            return STATUS_NO_MEMORY;
        }
        struct block_id root;
        block_id_root(fingerprint, checkpoint->salt, checkpoint->salt_bytes, checkpoint->mode,
                      &root);
        block_id_chain(&root, checkpoint->tokens, block_tokens, count, ids);
    }
    *out_ids = ids;
    *out_count = count;
    return STATUS_OK;
}
