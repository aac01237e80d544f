// SPDX-License-Identifier: Apache-2.0
// A private cold store, a KV cache and a forward pass over one model, as gpud puts them together,
// with a loop that computes a whole context in chunks. Header only; one thread.
#ifndef KVTIER_TESTS_GPUD_RIG_H
#define KVTIER_TESTS_GPUD_RIG_H

#include "gpud/cold_store.h"
#include "gpud/forward.h"
#include "gpud/kv_cache.h"
#include "gpud/model/model_file.h"
#include "proto/block_id.h"
#include "tests/check.h"

enum { RIG_BLOCK_TOKENS = 32 };

struct rig_options {
    struct model_file *model;
    enum kernel_set kernel_set;
    uint32_t thread_count;
    uint32_t hot_blocks; // 0: unified
    uint32_t arena_blocks;
    uint32_t context_tokens;
};

struct rig {
    struct kv_namespace name_space;
    struct block_id root;
    struct cold_store *cold_store;
    struct kv_cache *cache;
    struct forward *forward; // NULL without a model's weights
    uint32_t vocab_count;
};

static inline void rig_check(enum status status, const struct reason *reason)
{
    if (status != STATUS_OK) {
        fail_msg("%s: %s", status_name(status), reason->text);
    }
}

// The store and the cache over a group; `rig` must not move afterwards.
static inline void rig_create_cache(struct rig *rig, const struct kv_group *group,
                                    uint32_t hot_blocks, uint32_t arena_blocks)
{
    *rig = (struct rig){.name_space = {.block_tokens = RIG_BLOCK_TOKENS, .group_count = 1}};
    rig->name_space.groups[0] = *group;
    memset(rig->name_space.fingerprint, 0x5a, BLOCK_ID_BYTES);
    block_id_root(rig->name_space.fingerprint, "user", 4, ATTENTION_MODE_EXACT, &rig->root);
    uint64_t payload_bytes = block_payload_bytes(group, RIG_BLOCK_TOKENS);
    struct reason reason = {0};
    bool attached = true;
    const struct cold_store_options store = {
        .name_space = &rig->name_space,
        .private_payload_bytes_max = arena_blocks * payload_bytes,
    };
    rig_check(cold_store_create(&store, &rig->cold_store, &attached, &reason), &reason);
    assert_false(attached);
    const struct kv_cache_options cache = {
        .name_space = &rig->name_space,
        .cold_store = rig->cold_store,
        .hot_bytes = hot_blocks * payload_bytes,
        .sequence_count_max = 4,
        .context_tokens_max = arena_blocks * RIG_BLOCK_TOKENS,
    };
    rig_check(kv_cache_create(&cache, &rig->cache, &reason), &reason);
}

static inline void rig_create(struct rig *rig, const struct rig_options *options)
{
    const struct model_config *config = model_file_config(options->model);
    rig_create_cache(rig, &config->groups[0], options->hot_blocks, options->arena_blocks);
    const struct forward_options forward = {
        .model = options->model,
        .kernel_set = options->kernel_set,
        .thread_count = options->thread_count,
        .batch_tokens_max = 512,
        .logit_rows_max = 512,
        .context_tokens_max = options->context_tokens,
        .block_tokens = RIG_BLOCK_TOKENS,
    };
    struct reason reason = {0};
    uint8_t digest[MODEL_DIGEST_BYTES];
    rig_check(forward_create(&forward, &rig->forward, digest, &reason), &reason);
    rig->vocab_count = config->vocab_count;
}

static inline void rig_destroy(struct rig *rig)
{
    forward_destroy(rig->forward);
    kv_cache_destroy(rig->cache);
    cold_store_destroy(rig->cold_store);
}

// A lease for `tokens` and `more` generated ones; whole blocks may be hits, but never the last
// token.
static inline struct cold_lease rig_lease(struct rig *rig, const uint32_t *tokens,
                                          uint32_t token_count, uint32_t more)
{
    const struct kv_lease_request request = {
        .tokens = tokens,
        .token_count = token_count,
        .hit_block_max = (token_count - 1) / RIG_BLOCK_TOKENS,
        .block_count = (token_count + more - 1) / RIG_BLOCK_TOKENS + 1,
        .salt = "user",
        .salt_bytes = 4,
        .mode = ATTENTION_MODE_EXACT,
    };
    struct cold_lease lease = {0};
    struct reason reason = {0};
    rig_check(cold_store_lease(rig->cold_store, &request, &lease, &reason), &reason);
    return lease;
}

// Computes positions first.. of a sequence; their logits go to `logits` [count, vocab].
static inline void rig_step(struct rig *rig, struct kv_sequence *sequence, const uint32_t *tokens,
                            uint32_t first, uint32_t count, float *logits)
{
    const float *step_logits = NULL;
    const struct forward_span span = {
        .sequence = sequence,
        .tokens = tokens,
        .token_count = count,
        .first_position = first,
        .logits = FORWARD_LOGITS_ALL,
    };
    CHECK_OK(forward_step(rig->forward, &span, 1, NULL, NULL, &step_logits));
    kv_sequence_commit(sequence, tokens, first, count);
    memcpy(logits, step_logits, (size_t)count * rig->vocab_count * sizeof(float));
}

// Computes whatever of the context has no KV yet, in chunks; logits [token_count, vocab] of what
// was computed, the rest is left alone. Returns how many positions were computed.
static inline uint32_t rig_run(struct rig *rig, const uint32_t *tokens, uint32_t token_count,
                               uint32_t chunk, float *logits)
{
    struct cold_lease lease = rig_lease(rig, tokens, token_count, 0);
    struct kv_sequence *sequence = NULL;
    CHECK_OK(kv_sequence_open(rig->cache, &lease, &rig->root, tokens, token_count, &sequence));
    CHECK_OK(kv_sequence_ready(sequence));
    uint32_t computed = 0;
    uint32_t first = 0;
    uint32_t count = 0;
    for (kv_sequence_next_range(sequence, chunk, &first, &count); count > 0;
         kv_sequence_next_range(sequence, chunk, &first, &count)) {
        CHECK_OK(kv_sequence_prepare(sequence, first, count, &count));
        rig_step(rig, sequence, tokens + first, first, count,
                 logits + (size_t)first * rig->vocab_count);
        computed += count;
    }
    kv_sequence_close(sequence);
    cold_store_release(rig->cold_store, &lease);
    return computed;
}

#endif
