// SPDX-License-Identifier: Apache-2.0
// The record of a session as it lies on disk (docs/STORE.md), and the key it lies under. Everything
// in it, and its key, is under a cryptographic checksum: a flipped byte, or the value of another
// key, is damage. Pure functions, any thread.
#ifndef KVTIER_KVSTORED_CHECKPOINT_H
#define KVTIER_KVSTORED_CHECKPOINT_H

#include "proto/block.h"
#include "proto/kv_message.h"
#include "proto/limits.h"
#include "proto/status.h"

#include <stddef.h>
#include <stdint.h>

enum { CHECKPOINT_KEY_BYTES_MAX = 1 + LIMIT_SALT_BYTES + LIMIT_SESSION_NAME_BYTES };

// salt length, salt, name: two users' sessions of one name are two.
struct checkpoint_key {
    uint8_t bytes[CHECKPOINT_KEY_BYTES_MAX];
    uint32_t count;
};

// A session as stored. `checkpoint` points into memory owned by this struct.
struct checkpoint_record {
    struct kv_checkpoint checkpoint; // `sync` false
    uint64_t created_ms, updated_ms; // Unix
    void *memory;
};

// name and salt must have been checked (session_name_check, LIMIT_SALT_BYTES).
void checkpoint_key_make(const char *name, const void *salt, uint32_t salt_bytes,
                         struct checkpoint_key *out_key);

// The record as bytes for the caller to free(). STATUS_NO_MEMORY; STATUS_INVALID when a length is
// over its limit.
enum status checkpoint_encode(const struct checkpoint_key *key,
                              const struct checkpoint_record *record, void **out_data,
                              size_t *out_bytes) KV_MUST_CHECK;
// STATUS_DAMAGED, STATUS_VERSION, STATUS_NO_MEMORY. The bytes may go after the call.
enum status checkpoint_decode(const struct checkpoint_key *key, const void *data, size_t bytes,
                              struct checkpoint_record *out_record) KV_MUST_CHECK;
void checkpoint_record_finish(struct checkpoint_record *record); // zeroed memory is fine

// A copy with pointers of its own (as kv_reply_finish frees them). STATUS_NO_MEMORY.
enum status checkpoint_copy(const struct kv_checkpoint *from,
                            struct kv_checkpoint *out) KV_MUST_CHECK;
void checkpoint_copy_finish(struct kv_checkpoint *copy); // zeroed memory is fine

// Ids of the whole blocks of a session, for the caller to free(); NULL with *out_count 0 when it
// has none.
enum status checkpoint_chain(const struct kv_checkpoint *checkpoint, const uint8_t *fingerprint,
                             uint32_t block_tokens, struct block_id **out_ids,
                             uint32_t *out_count) KV_MUST_CHECK;

#endif
