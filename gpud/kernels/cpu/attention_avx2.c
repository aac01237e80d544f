// SPDX-License-Identifier: Apache-2.0
// AVX2 attention over one block, query by query in small groups. Scores: a lane is a token. Output:
// a lane is a dimension. K and V come as f16 (decode) or already widened. Each equals its namesake
// in attention.c bit for bit.

#include "gpud/kernels/cpu/avx2.h"
#include "gpud/kernels/cpu/cpu_kernels.h"

enum {
    QUERIES_MAX = 4,
    VECTORS = 2, // 16 tokens or 16 dimensions at a time
};

INLINE __m256 load_key(const struct attention_block *block, size_t index, bool wide)
{
    return wide ? _mm256_loadu_ps(block->wide_k + index) : load_f16(block->k + index, 8);
}

INLINE __m256 load_value(const struct attention_block *block, size_t index, size_t left, bool wide)
{
    return wide ? _mm256_maskload_ps(block->wide_v + index, lanes_mask(left))
                : load_f16(block->v + index, left);
}

// Scores of `queries` (a constant) queries with the 16 tokens from `token`.
INLINE void score_part(const struct attention_tile *tile, const struct attention_block *block,
                       const uint32_t at[2], const int queries, bool wide)
{
    const float *q = tile->q + (size_t)at[0] * tile->head_dim;
    float *scores = tile->scores + (size_t)at[0] * tile->block_tokens + at[1];
    __m256 acc[QUERIES_MAX][VECTORS];
    UNROLL
    for (int i = 0; i < queries; i++) {
        acc[i][0] = acc[i][1] = _mm256_setzero_ps();
    }
    const uint16_t *next = at[0] == 0 ? block->next_k : NULL;
    for (size_t d = 0; d < tile->head_dim; d++) {
        size_t index = d * tile->block_tokens + at[1];
        if (next != NULL) {
            _mm_prefetch((const char *)(next + index), _MM_HINT_T0);
        }
        __m256 low = load_key(block, index, wide), high = load_key(block, index + 8, wide);
        UNROLL
        for (int i = 0; i < queries; i++) {
            __m256 value = _mm256_set1_ps(q[(size_t)i * tile->head_dim + d]);
            acc[i][0] = _mm256_fmadd_ps(value, low, acc[i][0]);
            acc[i][1] = _mm256_fmadd_ps(value, high, acc[i][1]);
        }
    }
    UNROLL
    for (int i = 0; i < queries; i++) {
        _mm256_storeu_ps(scores + (size_t)i * tile->block_tokens, acc[i][0]);
        _mm256_storeu_ps(scores + (size_t)i * tile->block_tokens + 8, acc[i][1]);
    }
}

INLINE void score_queries(const struct attention_tile *tile, const struct attention_block *block,
                          uint32_t query, const int queries, bool wide)
{
    for (uint32_t token = 0; token < block->token_count; token += 16) {
        score_part(tile, block, (const uint32_t[2]){query, token}, queries, wide);
    }
}

// Largest of `max` and the scores; a NaN is larger than nothing and so passed over here.
static float largest_score(const float *scores, uint32_t count, float max)
{
    __m256 largest = _mm256_set1_ps(max);
    for (uint32_t t = 0; t < count; t += 8) {
        __m256 score = _mm256_blendv_ps(largest, _mm256_loadu_ps(scores + t),
                                        _mm256_castsi256_ps(lanes_mask(count - t)));
        largest = _mm256_max_ps(score, largest);
    }
    float lanes[8];
    _mm256_storeu_ps(lanes, largest);
    for (int i = 0; i < 8; i++) {
        max = lanes[i] > max ? lanes[i] : max;
    }
    return max;
}

// Scores to weights, max and sum updated; returns the factor for what `out` holds so far.
static float weigh(const struct attention_tile *tile, uint32_t token_count, uint32_t query)
{
    float *scores = tile->scores + (size_t)query * tile->block_tokens;
    float before = tile->max[query];
    float max = largest_score(scores, token_count, before);
    __m256 lanes[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (uint32_t t = 0; t < token_count; t += 8) {
        __m256 score = _mm256_sub_ps(_mm256_loadu_ps(scores + t), _mm256_set1_ps(max));
        __m256 weight =
            _mm256_and_ps(exp_lanes(score), _mm256_castsi256_ps(lanes_mask(token_count - t)));
        lanes[t / 8 % 2] = _mm256_add_ps(lanes[t / 8 % 2], weight);
        _mm256_storeu_ps(scores + t, weight);
    }
    float carry = max == before ? 1.0f : exp_f32(before - max);
    tile->sum[query] = fmaf(tile->sum[query], carry, lanes_sum(lanes[0], lanes[1]));
    tile->max[query] = max;
    return carry;
}

// out = out * carry + weights * V for `queries` (a constant) queries and the 16 dimensions from
// at[1].
INLINE void value_part(const struct attention_tile *tile, const struct attention_block *block,
                       const uint32_t at[2], const float *carry, const int queries, bool wide)
{
    float *out = tile->out + (size_t)at[0] * tile->head_dim + at[1];
    const float *weights = tile->scores + (size_t)at[0] * tile->block_tokens;
    size_t left = tile->head_dim - at[1], left_high = left > 8 ? left - 8 : 0;
    size_t high = left_high != 0 ? 8 : 0; // never points past the end
    __m256i mask[VECTORS] = {lanes_mask(left), lanes_mask(left_high)};
    __m256 acc[QUERIES_MAX][VECTORS];
    UNROLL
    for (int i = 0; i < queries; i++) {
        float *from = out + (size_t)i * tile->head_dim;
        __m256 factor = _mm256_set1_ps(carry[i]);
        acc[i][0] = _mm256_mul_ps(_mm256_maskload_ps(from, mask[0]), factor);
        acc[i][1] = _mm256_mul_ps(_mm256_maskload_ps(from + high, mask[1]), factor);
    }
    const uint16_t *next = at[0] == 0 ? block->next_v : NULL;
    for (uint32_t t = 0; t < block->token_count; t++) {
        size_t index = (size_t)t * tile->head_dim + at[1];
        if (next != NULL) {
            _mm_prefetch((const char *)(next + index), _MM_HINT_T0);
        }
        __m256 value[VECTORS] = {load_value(block, index, left, wide),
                                 load_value(block, index + high, left_high, wide)};
        UNROLL
        for (int i = 0; i < queries; i++) {
            __m256 weight = _mm256_set1_ps(weights[(size_t)i * tile->block_tokens + t]);
            acc[i][0] = _mm256_fmadd_ps(weight, value[0], acc[i][0]);
            acc[i][1] = _mm256_fmadd_ps(weight, value[1], acc[i][1]);
        }
    }
    UNROLL
    for (int i = 0; i < queries; i++) {
        float *to = out + (size_t)i * tile->head_dim;
        _mm256_maskstore_ps(to, mask[0], acc[i][0]);
        _mm256_maskstore_ps(to + high, mask[1], acc[i][1]);
    }
}

// Scores, weights and values of `queries` (a constant) queries.
INLINE void attend_queries(const struct attention_tile *tile, const struct attention_block *block,
                           uint32_t query, const int queries, bool wide)
{
    score_queries(tile, block, query, queries, wide);
    float carry[QUERIES_MAX];
    for (int i = 0; i < queries; i++) {
        carry[i] = weigh(tile, block->token_count, query + (uint32_t)i);
    }
    for (uint32_t dim = 0; dim < tile->head_dim; dim += 8 * VECTORS) {
        value_part(tile, block, (const uint32_t[2]){query, dim}, carry, queries, wide);
    }
}

INLINE void attend_all(const struct attention_tile *tile, const struct attention_block *block,
                       bool wide)
{
    uint32_t query = 0;
    for (; query + QUERIES_MAX <= tile->query_count; query += QUERIES_MAX) {
        attend_queries(tile, block, query, QUERIES_MAX, wide);
    }
    if (query + 3 == tile->query_count) {
        attend_queries(tile, block, query, 3, wide);
        query += 3;
    }
    for (; query < tile->query_count; query++) {
        attend_queries(tile, block, query, 1, wide);
    }
}

void attend_avx2(const struct attention_tile *tile, const struct attention_block *block)
{
    if (block->wide_k != NULL) {
        attend_all(tile, block, true);
    } else {
        attend_all(tile, block, false);
    }
}

void merge_avx2(const struct attention_tile *span, const struct attention_tile *state)
{
    for (uint32_t query = 0; query < span->query_count; query++) {
        float max = span->max[query] > state->max[query] ? span->max[query] : state->max[query];
        float a = exp_f32(state->max[query] - max);
        float b = exp_f32(span->max[query] - max);
        state->max[query] = max;
        state->sum[query] = fmaf(span->sum[query], b, state->sum[query] * a);
        const float *from = span->out + (size_t)query * span->head_dim;
        float *to = state->out + (size_t)query * span->head_dim;
        for (size_t d = 0; d < span->head_dim; d += 8) {
            __m256i mask = lanes_mask(span->head_dim - d);
            __m256 o = _mm256_mul_ps(_mm256_maskload_ps(to + d, mask), _mm256_set1_ps(a));
            o = _mm256_fmadd_ps(_mm256_maskload_ps(from + d, mask), _mm256_set1_ps(b), o);
            _mm256_maskstore_ps(to + d, mask, o);
        }
    }
}

void finish_avx2(const float *o, float sum, uint32_t head_dim, float *out)
{
    for (size_t d = 0; d < head_dim; d += 8) {
        __m256i mask = lanes_mask(head_dim - d);
        __m256 value = _mm256_div_ps(_mm256_maskload_ps(o + d, mask), _mm256_set1_ps(sum));
        _mm256_maskstore_ps(out + d, mask, value);
    }
}
