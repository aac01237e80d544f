// SPDX-License-Identifier: Apache-2.0
// Between the layers and the kernels: which rows of a step belong to which sequence, and where the
// blocks of each group lie. Built once a step, used by every layer. Owner: the engine thread.
// Never: moves blocks, allocates in a step, does arithmetic.
#ifndef KVTIER_GPUD_ATTENTION_H
#define KVTIER_GPUD_ATTENTION_H

#include "gpud/kernels/kernels.h"
#include "gpud/kv_cache.h"
#include "proto/block.h"
#include "proto/status.h"

#include <stdint.h>

// The shape of a model's attention; groups share heads and scale.
struct attention_options {
    uint32_t heads;
    uint32_t group_count;
    const struct kv_group *groups; // [group_count], copied
    uint32_t block_tokens;
    float scale;
    uint32_t sequence_count_max; // of one step
};

struct attention_batch {
    struct attention_options options;
    struct kv_group groups[BLOCK_GROUP_MAX];
    uint32_t sequence_count;
    struct attention_sequence *sequences[BLOCK_GROUP_MAX]; // [group_count][sequence_count_max]
};

// Queries, keys and values of a layer, rows = tokens of the step.
struct attention_rows {
    const float *q; // [rows, heads, head_dim], turned
    const float *k; // [rows, kv_heads, head_dim], turned
    const float *v; // [rows, kv_heads, head_dim]
    float *out;     // [rows, heads, head_dim]
};

// Takes the memory of a batch. STATUS_NO_MEMORY.
enum status attention_batch_init(struct attention_batch *batch,
                                 const struct attention_options *options) KV_MUST_CHECK;
void attention_batch_finish(struct attention_batch *batch); // zeroed memory is fine

// Starts a step without sequences.
void attention_batch_clear(struct attention_batch *batch);
// The next `row_count` rows are positions first_position.. of a prepared sequence.
void attention_batch_add(struct attention_batch *batch, const struct kv_sequence *sequence,
                         uint32_t first_position, uint32_t row_count);

// One layer, at position `group_layer` of its group: writes keys and values into the blocks, then
// attends.
void attention_layer(const struct attention_batch *batch, struct kernels *kernels, uint32_t group,
                     uint32_t group_layer, const struct attention_rows *rows);

#endif
