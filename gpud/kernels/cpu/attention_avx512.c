// SPDX-License-Identifier: Apache-2.0
// AVX-512 attention over one block. Scores: a lane is a token, sums run over dimensions in order.
// Output: a lane is a dimension, sums run over tokens in order. Up to 8 queries share a load of K,
// up to 4 one of V; K and V come as f16 (few queries: decode) or already widened (tiles of
// prefill). Each equals its namesake in attention.c bit for bit.

#include "gpud/kernels/cpu/avx512.h"
#include "gpud/kernels/cpu/cpu_kernels.h"

#include <math.h>

enum {
    SCORE_QUERIES = 8, // queries x vectors of tokens: sums in registers
    SCORE_VECTORS = 2,
    VALUE_QUERIES = 4,
    VALUE_VECTORS = 4,
};

INLINE __m512 load_key(const struct attention_block *block, size_t index, bool wide)
{
    return wide ? _mm512_loadu_ps(block->wide_k + index)
                : _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(block->k + index)));
}

INLINE __m512 load_value(const struct attention_block *block, size_t index, __mmask16 mask,
                         bool wide)
{
    return wide ? _mm512_maskz_loadu_ps(mask, block->wide_v + index)
                : _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, block->v + index));
}

// Scores of `queries` x 16 * `vectors` tokens from `token` (constants but for the positions).
INLINE void score_part(const struct attention_tile *tile, const struct attention_block *block,
                       const uint32_t at[2], const int queries, const int vectors, bool wide)
{
    const float *q = tile->q + (size_t)at[0] * tile->head_dim;
    float *scores = tile->scores + (size_t)at[0] * tile->block_tokens + at[1];
    __m512 acc[SCORE_QUERIES][SCORE_VECTORS];
    UNROLL
    for (int i = 0; i < queries; i++) {
        UNROLL
        for (int j = 0; j < vectors; j++) {
            acc[i][j] = _mm512_setzero_ps();
        }
    }
    const uint16_t *next = at[0] == 0 ? block->next_k : NULL;
    for (size_t d = 0; d < tile->head_dim; d++) {
        if (next != NULL) {
            _mm_prefetch((const char *)(next + d * tile->block_tokens + at[1]), _MM_HINT_T0);
        }
        __m512 key[SCORE_VECTORS];
        UNROLL
        for (int j = 0; j < vectors; j++) {
            key[j] = load_key(block, d * tile->block_tokens + at[1] + 16 * (size_t)j, wide);
        }
        UNROLL
        for (int i = 0; i < queries; i++) {
            __m512 value = _mm512_set1_ps(q[(size_t)i * tile->head_dim + d]);
            UNROLL
            for (int j = 0; j < vectors; j++) {
                acc[i][j] = _mm512_fmadd_ps(value, key[j], acc[i][j]);
            }
        }
    }
    UNROLL
    for (int i = 0; i < queries; i++) {
        UNROLL
        for (int j = 0; j < vectors; j++) {
            _mm512_storeu_ps(scores + (size_t)i * tile->block_tokens + 16 * (size_t)j, acc[i][j]);
        }
    }
}

// Scores of `queries` queries with every vector of tokens that has an attended one.
INLINE void score_queries(const struct attention_tile *tile, const struct attention_block *block,
                          uint32_t query, const int queries, bool wide)
{
    uint32_t token = 0;
    for (; token + 16 < block->token_count; token += 32) {
        score_part(tile, block, (const uint32_t[2]){query, token}, queries, 2, wide);
    }
    if (token < block->token_count) {
        score_part(tile, block, (const uint32_t[2]){query, token}, queries, 1, wide);
    }
}

INLINE void score_all(const struct attention_tile *tile, const struct attention_block *block,
                      bool wide)
{
    uint32_t query = 0;
    for (; query + SCORE_QUERIES <= tile->query_count; query += SCORE_QUERIES) {
        score_queries(tile, block, query, SCORE_QUERIES, wide);
    }
    for (; query + 4 <= tile->query_count; query += 4) {
        score_queries(tile, block, query, 4, wide);
    }
    if (query + 3 <= tile->query_count) {
        score_queries(tile, block, query, 3, wide);
        query += 3;
    }
    for (; query < tile->query_count; query++) {
        score_queries(tile, block, query, 1, wide);
    }
}

// Scores to weights, max and sum updated; returns the factor for what `out` holds so far.
static float weigh(const struct attention_tile *tile, uint32_t token_count, uint32_t query)
{
    float *scores = tile->scores + (size_t)query * tile->block_tokens;
    float max = tile->max[query], carry = 1.0f;
    __m512 largest = _mm512_set1_ps(max);
    __mmask16 above = 0; // a NaN is above nothing: it is passed over here
    for (uint32_t t = 0; t < token_count; t += 16) {
        __mmask16 more = _mm512_mask_cmp_ps_mask(lanes_mask(token_count - t),
                                                 _mm512_loadu_ps(scores + t), largest, _CMP_GT_OQ);
        largest = _mm512_mask_loadu_ps(largest, more, scores + t);
        above |= more;
    }
    if (above != 0) { // rare after the first blocks
        float before = max;
        max = _mm512_reduce_max_ps(largest);
        carry = exp_f32(before - max);
    }
    __m512 lanes = _mm512_setzero_ps();
    for (uint32_t t = 0; t < token_count; t += 16) {
        __m512 score = _mm512_sub_ps(_mm512_loadu_ps(scores + t), _mm512_set1_ps(max));
        __m512 weight = _mm512_maskz_mov_ps(lanes_mask(token_count - t), exp_lanes(score));
        lanes = _mm512_add_ps(lanes, weight);
        _mm512_storeu_ps(scores + t, weight);
    }
    tile->sum[query] = fmaf(tile->sum[query], carry, lanes_sum(lanes));
    tile->max[query] = max;
    return carry;
}

// out = out * carry + weights * V for `queries` x 16 * `vectors` dimensions from at[1].
INLINE void value_part(const struct attention_tile *tile, const struct attention_block *block,
                       const uint32_t at[2], const float *carry, const int queries,
                       const int vectors, bool wide)
{
    float *out = tile->out + (size_t)at[0] * tile->head_dim + at[1];
    const float *weights = tile->scores + (size_t)at[0] * tile->block_tokens;
    __mmask16 mask = vectors == 1 ? lanes_mask(tile->head_dim - at[1]) : (__mmask16)0xffff;
    __m512 acc[VALUE_QUERIES][VALUE_VECTORS];
    UNROLL
    for (int i = 0; i < queries; i++) {
        UNROLL
        for (int j = 0; j < vectors; j++) {
            const float *from = out + (size_t)i * tile->head_dim + 16 * (size_t)j;
            acc[i][j] = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, from), _mm512_set1_ps(carry[i]));
        }
    }
    const uint16_t *next = at[0] == 0 ? block->next_v : NULL;
    for (uint32_t t = 0; t < block->token_count; t++) {
        if (next != NULL) {
            const uint16_t *line = next + (size_t)t * tile->head_dim + at[1];
            _mm_prefetch((const char *)line, _MM_HINT_T0);
            _mm_prefetch((const char *)(line + 8 * vectors), _MM_HINT_T0);
        }
        __m512 value[VALUE_VECTORS];
        UNROLL
        for (int j = 0; j < vectors; j++) {
            value[j] =
                load_value(block, (size_t)t * tile->head_dim + at[1] + 16 * (size_t)j, mask, wide);
        }
        UNROLL
        for (int i = 0; i < queries; i++) {
            __m512 weight = _mm512_set1_ps(weights[(size_t)i * tile->block_tokens + t]);
            UNROLL
            for (int j = 0; j < vectors; j++) {
                acc[i][j] = _mm512_fmadd_ps(weight, value[j], acc[i][j]);
            }
        }
    }
    UNROLL
    for (int i = 0; i < queries; i++) {
        UNROLL
        for (int j = 0; j < vectors; j++) {
            _mm512_mask_storeu_ps(out + (size_t)i * tile->head_dim + 16 * (size_t)j, mask,
                                  acc[i][j]);
        }
    }
}

// Weighs `queries` queries and adds their values.
INLINE void value_queries(const struct attention_tile *tile, const struct attention_block *block,
                          uint32_t query, const int queries, bool wide)
{
    float carry[VALUE_QUERIES];
    for (int i = 0; i < queries; i++) {
        carry[i] = weigh(tile, block->token_count, query + (uint32_t)i);
    }
    uint32_t dim = 0;
    for (; dim + 16 * VALUE_VECTORS <= tile->head_dim; dim += 16 * VALUE_VECTORS) {
        value_part(tile, block, (const uint32_t[2]){query, dim}, carry, queries, VALUE_VECTORS,
                   wide);
    }
    for (; dim < tile->head_dim; dim += 16) {
        value_part(tile, block, (const uint32_t[2]){query, dim}, carry, queries, 1, wide);
    }
}

INLINE void value_all(const struct attention_tile *tile, const struct attention_block *block,
                      bool wide)
{
    uint32_t query = 0;
    for (; query + VALUE_QUERIES <= tile->query_count; query += VALUE_QUERIES) {
        value_queries(tile, block, query, VALUE_QUERIES, wide);
    }
    if (query + 3 <= tile->query_count) {
        value_queries(tile, block, query, 3, wide);
        query += 3;
    }
    for (; query < tile->query_count; query++) {
        value_queries(tile, block, query, 1, wide);
    }
}

void attend_avx512(const struct attention_tile *tile, const struct attention_block *block)
{
    if (block->wide_k != NULL) {
        score_all(tile, block, true);
        value_all(tile, block, true);
    } else {
        score_all(tile, block, false);
        value_all(tile, block, false);
    }
}

void merge_avx512(const struct attention_tile *span, const struct attention_tile *state)
{
    for (uint32_t query = 0; query < span->query_count; query++) {
        float max = span->max[query] > state->max[query] ? span->max[query] : state->max[query];
        float a = exp_f32(state->max[query] - max);
        float b = exp_f32(span->max[query] - max);
        state->max[query] = max;
        state->sum[query] = fmaf(span->sum[query], b, state->sum[query] * a);
        const float *from = span->out + (size_t)query * span->head_dim;
        float *to = state->out + (size_t)query * span->head_dim;
        for (size_t d = 0; d < span->head_dim; d += 16) {
            __mmask16 mask = lanes_mask(span->head_dim - d);
            __m512 old = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, to + d), _mm512_set1_ps(a));
            __m512 new =
                _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, from + d), _mm512_set1_ps(b), old);
            _mm512_mask_storeu_ps(to + d, mask, new);
        }
    }
}

void finish_avx512(const float *o, float sum, uint32_t head_dim, float *out)
{
    for (size_t d = 0; d < head_dim; d += 16) {
        __mmask16 mask = lanes_mask(head_dim - d);
        __m512 value = _mm512_div_ps(_mm512_maskz_loadu_ps(mask, o + d), _mm512_set1_ps(sum));
        _mm512_mask_storeu_ps(out + d, mask, value);
    }
}
