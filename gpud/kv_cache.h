// SPDX-License-Identifier: Apache-2.0
// The KV of running sequences over the tiers: which memory each block of each sequence lies in, and
// every move between hot pool and arena. On a unified device every block lies in the arena and open
// blocks are written there in place; on a discrete one blocks are written in the hot pool, written
// through to the arena when they close, and dropped from the hot pool at will. Decisions here,
// copies in hot_pool. Owner: the engine thread. A step calls, for each sequence:
//     ready -> next_range -> prepare -> (forward writes and attends kv_cache_blocks) -> commit
// Never: talks to kvstored, runs kernels other than copies, allocates between open and close.
#ifndef KVTIER_GPUD_KV_CACHE_H
#define KVTIER_GPUD_KV_CACHE_H

#include "gpud/cold_store.h"
#include "proto/block.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stdint.h>

struct kv_cache;
struct kv_sequence;

struct kv_cache_options {
    const struct kv_namespace *name_space;
    struct cold_store *cold_store;
    uint64_t hot_bytes; // memory of the hot pool; 0 = unified device
    uint32_t sequence_count_max;
    uint32_t context_tokens_max;
};

struct kv_cache_status {
    bool unified;
    uint32_t hot_slot_count;
    uint32_t hot_used_count;
    uint64_t hot_hit_count;    // blocks attended in the hot pool, summed over steps
    uint64_t cold_hit_count;   // blocks attended in the arena
    uint64_t evicted_count;    // hot copies dropped
    uint64_t recalled_count;   // blocks copied back into the hot pool
    uint64_t closed_count;     // blocks written through
    uint64_t write_through_ns; // time spent closing blocks
};

// STATUS_REFUSED with both numbers when hot_bytes holds less than one block per group.
enum status kv_cache_create(const struct kv_cache_options *options, struct kv_cache **out_cache,
                            struct reason *reason) KV_MUST_CHECK;
void kv_cache_destroy(struct kv_cache *cache);
void kv_cache_status(const struct kv_cache *cache, struct kv_cache_status *out_status);

// A sequence over a lease: `tokens` [token_count] is its context; the caller keeps `lease` and the
// chain's root alive until close. STATUS_BUSY when sequence_count_max are open.
enum status kv_sequence_open(struct kv_cache *cache, struct cold_lease *lease,
                             const struct block_id *root, const uint32_t *tokens,
                             uint32_t token_count, struct kv_sequence **out_sequence) KV_MUST_CHECK;
// Drops the open block; hot copies of closed ones stay, to be found by the next sequence or given
// up first. NULL is fine.
void kv_sequence_close(struct kv_sequence *sequence);

// STATUS_OK when no leased block is still loading, else STATUS_BUSY. A load that failed has become
// a hole.
enum status kv_sequence_ready(struct kv_sequence *sequence) KV_MUST_CHECK;

// How the context stood when it became ready: tokens found in each tier (a block that is hot counts
// as hot only), and tokens to compute. hot + ram + disk + computed = token_count.
struct kv_sequence_hits {
    uint32_t hot_tokens, ram_tokens, disk_tokens, computed_tokens;
};
void kv_sequence_hits(const struct kv_sequence *sequence, struct kv_sequence_hits *out_hits);

// The next run of positions without KV below `token_count`: holes first, in order; a run ends at
// the next cached block. *out_count = 0 when the context is complete.
void kv_sequence_next_range(const struct kv_sequence *sequence, uint32_t token_count_max,
                            uint32_t *out_first, uint32_t *out_count);

// Makes blocks for positions [first, first + count) writable; *out_count <= count says how many
// could be had now (at least 1 unless STATUS_BUSY: the hot pool is taken by other sequences of this
// step).
enum status kv_sequence_prepare(struct kv_sequence *sequence, uint32_t first, uint32_t count,
                                uint32_t *out_count) KV_MUST_CHECK;

// Addresses of the payloads of a group, block 0 first, up to the last prepared one. Valid until the
// next kv_* call of any sequence that prepares or closes.
void *const *kv_sequence_blocks(const struct kv_sequence *sequence, uint32_t group);

// After a step wrote KV for `tokens` [count] at positions first..: closes each block that became
// full (header, checksum, write-through, publish).
void kv_sequence_commit(struct kv_sequence *sequence, const uint32_t *tokens, uint32_t first,
                        uint32_t count);

#endif
