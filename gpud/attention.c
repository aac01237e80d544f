// SPDX-License-Identifier: Apache-2.0
// Turns spans of sequences into the kernels' arrays. On the CPU device every block, hot or cold, is
// attended in place, so one call covers all tiers and its (m, s, o) merge is the kernels' own.
#include "gpud/attention.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum status attention_batch_init(struct attention_batch *batch,
                                 const struct attention_options *options)
{
    assert(options->group_count > 0 && options->group_count <= BLOCK_GROUP_MAX);
    *batch = (struct attention_batch){.options = *options};
    memcpy(batch->groups, options->groups, options->group_count * sizeof(*batch->groups));
    batch->options.groups = batch->groups;
    for (uint32_t group = 0; group < options->group_count; group++) {
        batch->sequences[group] =
            calloc(options->sequence_count_max, sizeof(*batch->sequences[group]));
        if (batch->sequences[group] == NULL) {
            attention_batch_finish(batch);
            return STATUS_NO_MEMORY;
        }
    }
    return STATUS_OK;
}

void attention_batch_finish(struct attention_batch *batch)
{
    for (uint32_t group = 0; group < BLOCK_GROUP_MAX; group++) {
        free(batch->sequences[group]);
    }
    *batch = (struct attention_batch){0};
}

void attention_batch_clear(struct attention_batch *batch)
{
    batch->sequence_count = 0;
}

void attention_batch_add(struct attention_batch *batch, const struct kv_sequence *sequence,
                         uint32_t first_position, uint32_t row_count)
{
    assert(batch->sequence_count < batch->options.sequence_count_max && row_count > 0);
    uint32_t index = batch->sequence_count++;
    for (uint32_t group = 0; group < batch->options.group_count; group++) {
        struct attention_sequence *sequences = batch->sequences[group];
        uint32_t first_row =
            index == 0 ? 0 : sequences[index - 1].first_row + sequences[index - 1].row_count;
        sequences[index] = (struct attention_sequence){
            .blocks = kv_sequence_blocks(sequence, group),
            .first_row = first_row,
            .row_count = row_count,
            .first_position = first_position,
        };
    }
}

void attention_layer(const struct attention_batch *batch, struct kernels *kernels, uint32_t group,
                     uint32_t group_layer, const struct attention_rows *rows)
{
    const struct kv_group *shape_group = &batch->groups[group];
    const struct attention_shape shape = {
        .heads = batch->options.heads,
        .kv_heads = shape_group->kv_heads,
        .head_dim = shape_group->head_dim,
        .block_tokens = batch->options.block_tokens,
        .layer_offset = block_layer_offset(shape_group, batch->options.block_tokens, group_layer),
        .scale = batch->options.scale,
    };
    kernels_kv_write(kernels, &shape, batch->sequences[group], batch->sequence_count, rows->k,
                     rows->v);
    kernels_attention(kernels, &shape, batch->sequences[group], batch->sequence_count, rows->q,
                      rows->out);
}
