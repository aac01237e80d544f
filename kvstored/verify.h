// SPDX-License-Identifier: Apache-2.0
// Reads everything that one namespace holds on disk and compares checksums, ids and tokens. In
// steps with a view each, so that pages freed meanwhile can be used again. Any one thread beside
// the writer.
#ifndef KVTIER_KVSTORED_VERIFY_H
#define KVTIER_KVSTORED_VERIFY_H

#include "kvstored/checkpoint.h"
#include "kvstored/disk.h"
#include "kvstored/sweep.h"
#include "proto/kv_message.h"

#include <stdatomic.h>

// What was found damaged, beside the rows of the reply. Zeroed memory is nothing.
struct verify_damage {
    struct sweep_removed blocks;
    struct checkpoint_key *keys; // [key_count] of sessions
    uint32_t key_count;
};
void verify_damage_finish(struct verify_damage *damage);

// Whether `value` (disk_value_bytes long) is the whole, right block of this id and namespace.
bool verify_block(const struct disk *disk, const struct block_id *id, const uint8_t *value);

// Adds what it read and found to *reply (rows up to KV_DAMAGED_MAX; its memory is the caller's) and
// *damage. STATUS_CANCELLED when *stop became true; STATUS_NO_MEMORY; STATUS_DAMAGED when the
// tables cannot be walked.
enum status verify_disk(struct disk *disk, const atomic_bool *stop, struct kv_verify_reply *reply,
                        struct verify_damage *damage) KV_MUST_CHECK;

// Removes what is damaged; the writing thread of the namespace. Returns how many in *out_count.
enum status verify_repair(struct disk *disk, const struct verify_damage *damage,
                          uint64_t *out_count) KV_MUST_CHECK;

#endif
