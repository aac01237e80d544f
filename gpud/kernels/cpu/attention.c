// SPDX-License-Identifier: Apache-2.0
// Plain C reference of attention over one block, of the merge of spans and of the final division.
// docs/NUMERICS.md §6 is what it states.

#include "gpud/kernels/cpu/cpu_kernels.h"
#include "gpud/kernels/cpu/exp.h"
#include "gpud/kernels/cpu/f16.h"

#include <math.h>

static float block_key(const struct attention_block *block, size_t index)
{
    return block->wide_k != NULL ? block->wide_k[index] : f32_from_f16(block->k[index]);
}

static float block_value(const struct attention_block *block, size_t index)
{
    return block->wide_v != NULL ? block->wide_v[index] : f32_from_f16(block->v[index]);
}

// scores [token_count] = q . k.
static void scores_of(const struct attention_tile *tile, const struct attention_block *block,
                      const float *q, float *scores)
{
    for (uint32_t t = 0; t < block->token_count; t++) {
        float score = 0.0f;
        for (uint32_t d = 0; d < tile->head_dim; d++) {
            score = fmaf(q[d], block_key(block, (size_t)d * tile->block_tokens + t), score);
        }
        scores[t] = score;
    }
}

// Turns scores into weights exp(score - max); returns their sum by 16 lanes and the tree.
static float weights_of(float *scores, uint32_t count, float max)
{
    float lanes[16] = {0};
    for (uint32_t t = 0; t < count; t++) {
        scores[t] = exp_f32(scores[t] - max);
        lanes[t % 16] += scores[t];
    }
    for (uint32_t width = 8; width >= 1; width /= 2) {
        for (uint32_t j = 0; j < width; j++) {
            lanes[j] += lanes[j + width];
        }
    }
    return lanes[0];
}

static void attend_query(const struct attention_tile *tile, const struct attention_block *block,
                         uint32_t query)
{
    float *out = tile->out + (size_t)query * tile->head_dim;
    float *scores = tile->scores + (size_t)query * tile->block_tokens;
    scores_of(tile, block, tile->q + (size_t)query * tile->head_dim, scores);
    float max = tile->max[query];
    for (uint32_t t = 0; t < block->token_count; t++) {
        max = scores[t] > max ? scores[t] : max;
    }
    float carry = exp_f32(tile->max[query] - max);
    tile->sum[query] = fmaf(tile->sum[query], carry, weights_of(scores, block->token_count, max));
    tile->max[query] = max;
    for (uint32_t d = 0; d < tile->head_dim; d++) {
        float o = out[d] * carry;
        for (uint32_t t = 0; t < block->token_count; t++) {
            o = fmaf(scores[t], block_value(block, (size_t)t * tile->head_dim + d), o);
        }
        out[d] = o;
    }
}

void attend_c(const struct attention_tile *tile, const struct attention_block *block)
{
    for (uint32_t query = 0; query < tile->query_count; query++) {
        attend_query(tile, block, query);
    }
}

void merge_c(const struct attention_tile *span, const struct attention_tile *state)
{
    for (uint32_t query = 0; query < span->query_count; query++) {
        float max = span->max[query] > state->max[query] ? span->max[query] : state->max[query];
        float a = exp_f32(state->max[query] - max);
        float b = exp_f32(span->max[query] - max);
        state->max[query] = max;
        state->sum[query] = fmaf(span->sum[query], b, state->sum[query] * a);
        const float *from = span->out + (size_t)query * span->head_dim;
        float *to = state->out + (size_t)query * span->head_dim;
        for (uint32_t d = 0; d < span->head_dim; d++) {
            to[d] = fmaf(from[d], b, to[d] * a);
        }
    }
}

void finish_c(const float *o, float sum, uint32_t head_dim, float *out)
{
    for (uint32_t d = 0; d < head_dim; d++) {
        out[d] = o[d] / sum;
    }
}
