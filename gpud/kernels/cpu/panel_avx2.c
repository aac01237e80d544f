// SPDX-License-Identifier: Apache-2.0
// AVX2 attention of up to 32 queries over one block (prefill): lanes are queries, as in
// panel_avx512.c, with 4 x 16 sums in registers. Every query's own sums run in the order of
// attention.c, so the bits are the same.

#include "gpud/kernels/cpu/avx2.h"
#include "gpud/kernels/cpu/cpu_kernels.h"

enum { VECTORS = 2, COLUMNS = 8 * VECTORS, PRODUCT_ROWS = 4 };

// C [rows][width] = C * carry + A [depth][rows] transposed * B [depth][width], for 16 columns.
struct panel_product {
    const float *a;
    const float *b;
    float *c;
    const float *carry;    // [16]; NULL: C starts from +0
    const int32_t *counts; // from full_depth on, step k is for columns with counts > k
    size_t a_stride;
    size_t width;
    uint32_t rows; // a multiple of PRODUCT_ROWS
    uint32_t full_depth;
    uint32_t depth;
};

// Columns with counts > k.
INLINE __m256 counts_above(const int32_t *counts, uint32_t k)
{
    return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_loadu_si256((const __m256i *)counts),
                                                  _mm256_set1_epi32((int32_t)k)));
}

// Step k of 4 rows.
INLINE void product_step(const struct panel_product *product, const float *a, uint32_t k,
                         __m256 acc[PRODUCT_ROWS][VECTORS], const bool masked)
{
    const float *b = product->b + k * product->width;
    __m256 right[VECTORS], mask[VECTORS];
    UNROLL
    for (int j = 0; j < VECTORS; j++) {
        right[j] = _mm256_loadu_ps(b + 8 * (size_t)j);
        if (masked) {
            mask[j] = counts_above(product->counts + 8 * (size_t)j, k);
        }
    }
    UNROLL
    for (int i = 0; i < PRODUCT_ROWS; i++) {
        __m256 left = _mm256_set1_ps(a[i]);
        UNROLL
        for (int j = 0; j < VECTORS; j++) {
            __m256 sum = _mm256_fmadd_ps(left, right[j], acc[i][j]);
            acc[i][j] = masked ? _mm256_blendv_ps(acc[i][j], sum, mask[j]) : sum;
        }
    }
}

// Rows first..first+3 of C.
INLINE void product_rows(const struct panel_product *product, size_t first)
{
    __m256 acc[PRODUCT_ROWS][VECTORS];
    float *c = product->c + first * product->width;
    UNROLL
    for (int i = 0; i < PRODUCT_ROWS; i++) {
        UNROLL
        for (int j = 0; j < VECTORS; j++) {
            const float *from = c + (size_t)i * product->width + 8 * (size_t)j;
            acc[i][j] = product->carry != NULL
                            ? _mm256_mul_ps(_mm256_loadu_ps(from),
                                            _mm256_loadu_ps(product->carry + 8 * (size_t)j))
                            : _mm256_setzero_ps();
        }
    }
    const float *a = product->a + first;
    const size_t a_stride = product->a_stride;
    uint32_t k = 0;
    for (; k < product->full_depth; k++, a += a_stride) {
        product_step(product, a, k, acc, false);
    }
    for (; k < product->depth; k++, a += a_stride) {
        product_step(product, a, k, acc, true);
    }
    UNROLL
    for (int i = 0; i < PRODUCT_ROWS; i++) {
        UNROLL
        for (int j = 0; j < VECTORS; j++) {
            _mm256_storeu_ps(c + (size_t)i * product->width + 8 * (size_t)j, acc[i][j]);
        }
    }
}

// Not inlined further up: among other code the compiler runs out of registers and spills sums.
static __attribute__((noinline)) void product_16(const struct panel_product *product)
{
    for (uint32_t first = 0; first < product->rows; first += PRODUCT_ROWS) {
        product_rows(product, first);
    }
}

// Sum over tokens of weights [block_tokens][width] for 8 queries: 16 virtual lanes, then the tree.
static __m256 weights_sum(const float *weights, size_t width, uint32_t block_tokens)
{
    __m256 lanes[16];
    for (size_t j = 0; j < 16; j++) {
        lanes[j] = _mm256_loadu_ps(weights + j * width);
        for (size_t t = j + 16; t < block_tokens; t += 16) {
            lanes[j] = _mm256_add_ps(lanes[j], _mm256_loadu_ps(weights + t * width));
        }
    }
    for (int half = 8; half >= 1; half /= 2) {
        for (int j = 0; j < half; j++) {
            lanes[j] = _mm256_add_ps(lanes[j], lanes[j + half]);
        }
    }
    return lanes[0];
}

// Scores of 8 queries to weights, their max and sum updated; returns the factor for their output.
static __m256 weigh_lanes(const struct attention_panel *panel, size_t query, const int32_t *counts)
{
    float *scores = panel->scores + query;
    __m256 before = _mm256_loadu_ps(panel->max + query), max = before;
    for (uint32_t t = 0; t < panel->block_tokens; t++) {
        // max(a, b) is b when a is a NaN: such a score is passed over here.
        __m256 more = _mm256_max_ps(_mm256_loadu_ps(scores + t * panel->width), max);
        max = _mm256_blendv_ps(max, more, counts_above(counts, t));
    }
    for (uint32_t t = 0; t < panel->block_tokens; t++) {
        __m256 score = _mm256_sub_ps(_mm256_loadu_ps(scores + t * panel->width), max);
        _mm256_storeu_ps(scores + t * panel->width,
                         _mm256_and_ps(exp_lanes(score), counts_above(counts, t)));
    }
    __m256 carry = _mm256_blendv_ps(exp_lanes(_mm256_sub_ps(before, max)), _mm256_set1_ps(1.0f),
                                    _mm256_cmp_ps(before, max, _CMP_EQ_OQ));
    __m256 sum = weights_sum(scores, panel->width, panel->block_tokens);
    sum = _mm256_fmadd_ps(_mm256_loadu_ps(panel->sum + query), carry, sum);
    _mm256_storeu_ps(panel->sum + query, sum);
    _mm256_storeu_ps(panel->max + query, max);
    return carry;
}

// Queries query..query+15 of the panel.
static void attend_columns(const struct attention_panel *panel, const struct attention_block *block,
                           const uint32_t *token_counts, size_t query)
{
    int32_t counts[COLUMNS];
    uint32_t least = panel->block_tokens, most = 0;
    for (size_t i = 0; i < COLUMNS; i++) {
        uint32_t count = token_counts[query + i];
        counts[i] = (int32_t)count;
        least = count < least ? count : least;
        most = count > most ? count : most;
    }
    if (most == 0) {
        return;
    }
    struct panel_product scores = {
        .a = block->wide_k,
        .b = panel->q + query,
        .c = panel->scores + query,
        .a_stride = panel->block_tokens,
        .width = panel->width,
        .rows = (most + PRODUCT_ROWS - 1) / PRODUCT_ROWS * PRODUCT_ROWS,
        .full_depth = panel->head_dim,
        .depth = panel->head_dim,
    };
    product_16(&scores);
    float carry[COLUMNS];
    for (size_t i = 0; i < COLUMNS; i += 8) {
        _mm256_storeu_ps(carry + i, weigh_lanes(panel, query + i, counts + i));
    }
    struct panel_product out = {
        .a = block->wide_v,
        .b = panel->scores + query,
        .c = panel->out + query,
        .carry = carry,
        .counts = counts,
        .a_stride = panel->head_dim,
        .width = panel->width,
        .rows = panel->head_dim,
        .full_depth = least,
        .depth = most,
    };
    product_16(&out);
}

void attend_panel_avx2(const struct attention_panel *panel, const struct attention_block *block,
                       const uint32_t *token_counts)
{
    for (size_t query = 0; query < panel->width; query += COLUMNS) {
        attend_columns(panel, block, token_counts, query);
    }
}

void merge_panel_avx2(const struct attention_panel *span, const struct attention_panel *state,
                      uint32_t first_query)
{
    size_t width = span->width;
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    for (size_t query = first_query / 8 * 8; query < width; query += 8) {
        int32_t skip = query < first_query ? (int32_t)(first_query - query) : 0;
        __m256i mask = _mm256_cmpgt_epi32(index, _mm256_set1_epi32(skip - 1));
        __m256 left = _mm256_loadu_ps(state->max + query);
        __m256 right = _mm256_loadu_ps(span->max + query);
        __m256 max = _mm256_max_ps(right, left);
        __m256 a = exp_lanes(_mm256_sub_ps(left, max)), b = exp_lanes(_mm256_sub_ps(right, max));
        _mm256_maskstore_ps(state->max + query, mask, max);
        __m256 sum = _mm256_mul_ps(_mm256_loadu_ps(state->sum + query), a);
        sum = _mm256_fmadd_ps(_mm256_loadu_ps(span->sum + query), b, sum);
        _mm256_maskstore_ps(state->sum + query, mask, sum);
        for (size_t d = 0; d < span->head_dim; d++) {
            __m256 o = _mm256_mul_ps(_mm256_loadu_ps(state->out + d * width + query), a);
            o = _mm256_fmadd_ps(_mm256_loadu_ps(span->out + d * width + query), b, o);
            _mm256_maskstore_ps(state->out + d * width + query, mask, o);
        }
    }
}
