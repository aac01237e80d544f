// SPDX-License-Identifier: Apache-2.0
// AVX-512 attention of up to 32 queries over one block (prefill): lanes are queries, so that
// maxima, sums and carries need no shuffles. Scores and output are the same small product C[i] +=
// A[k][i] * B[k], with A broadcast from the widened keys or values and B a row of queries or
// weights; 8 x 32 sums stay in registers. Every query's own sums run in the order of attention.c,
// so the bits are the same.

#include "gpud/kernels/cpu/avx512.h"
#include "gpud/kernels/cpu/cpu_kernels.h"

enum { VECTORS_MAX = 2, PRODUCT_ROWS = PANEL_DIMS };

// C [rows][width] = C * carry + A [depth][rows] transposed * B [depth][width], for 16 * vectors
// columns.
struct panel_product {
    const float *a;
    const float *b;
    float *c;
    const float *carry;     // [16 * vectors]; NULL: C starts from +0
    const uint32_t *counts; // from full_depth on, step k is for columns with counts > k
    size_t a_stride;
    size_t width;
    uint32_t rows; // a multiple of PRODUCT_ROWS
    uint32_t full_depth;
    uint32_t depth;
};

// Step k of 8 rows.
INLINE void product_step(const struct panel_product *product, const float *a, uint32_t k,
                         __m512 acc[PRODUCT_ROWS][VECTORS_MAX], const int vectors,
                         const bool masked)
{
    const float *b = product->b + k * product->width;
    __m512 right[VECTORS_MAX];
    __mmask16 mask[VECTORS_MAX];
    UNROLL
    for (int j = 0; j < vectors; j++) {
        right[j] = _mm512_loadu_ps(b + 16 * (size_t)j);
        if (masked) {
            __m512i counts = _mm512_loadu_si512(product->counts + 16 * (size_t)j);
            mask[j] = _mm512_cmpgt_epi32_mask(counts, _mm512_set1_epi32((int32_t)k));
        }
    }
    UNROLL
    for (int i = 0; i < PRODUCT_ROWS; i++) {
        __m512 left = _mm512_set1_ps(a[i]);
        UNROLL
        for (int j = 0; j < vectors; j++) {
            acc[i][j] = masked ? _mm512_mask3_fmadd_ps(left, right[j], acc[i][j], mask[j])
                               : _mm512_fmadd_ps(left, right[j], acc[i][j]);
        }
    }
}

// Rows first..first+7 of C.
INLINE void product_rows(const struct panel_product *product, size_t first, const int vectors)
{
    __m512 acc[PRODUCT_ROWS][VECTORS_MAX];
    float *c = product->c + first * product->width;
    UNROLL
    for (int i = 0; i < PRODUCT_ROWS; i++) {
        UNROLL
        for (int j = 0; j < vectors; j++) {
            const float *from = c + (size_t)i * product->width + 16 * (size_t)j;
            acc[i][j] = product->carry != NULL
                            ? _mm512_mul_ps(_mm512_loadu_ps(from),
                                            _mm512_loadu_ps(product->carry + 16 * (size_t)j))
                            : _mm512_setzero_ps();
        }
    }
    const float *a = product->a + first;
    const size_t a_stride = product->a_stride;
    uint32_t k = 0;
    for (; k < product->full_depth; k++, a += a_stride) {
        product_step(product, a, k, acc, vectors, false);
    }
    for (; k < product->depth; k++, a += a_stride) {
        product_step(product, a, k, acc, vectors, true);
    }
    UNROLL
    for (int i = 0; i < PRODUCT_ROWS; i++) {
        UNROLL
        for (int j = 0; j < vectors; j++) {
            _mm512_storeu_ps(c + (size_t)i * product->width + 16 * (size_t)j, acc[i][j]);
        }
    }
}

// Not inlined further up: among other code the compiler runs out of registers and spills sums.
static __attribute__((noinline)) void product_16(const struct panel_product *product)
{
    for (uint32_t first = 0; first < product->rows; first += PRODUCT_ROWS) {
        product_rows(product, first, 1);
    }
}

static __attribute__((noinline)) void product_32(const struct panel_product *product)
{
    for (uint32_t first = 0; first < product->rows; first += PRODUCT_ROWS) {
        product_rows(product, first, 2);
    }
}

// Sum over tokens of weights [block_tokens][width] for 16 queries: 16 virtual lanes, then the tree.
INLINE __m512 weights_sum(const float *weights, size_t width, uint32_t block_tokens)
{
    __m512 lanes[16];
    UNROLL
    for (size_t j = 0; j < 16; j++) {
        lanes[j] = _mm512_loadu_ps(weights + j * width);
    }
    for (uint32_t t = 16; t < block_tokens; t += 16) {
        UNROLL
        for (size_t j = 0; j < 16; j++) {
            lanes[j] = _mm512_add_ps(lanes[j], _mm512_loadu_ps(weights + (t + j) * width));
        }
    }
    UNROLL
    for (int half = 8; half >= 1; half /= 2) {
        UNROLL
        for (int j = 0; j < half; j++) {
            lanes[j] = _mm512_add_ps(lanes[j], lanes[j + half]);
        }
    }
    return lanes[0];
}

// Scores of 16 queries to weights, their max and sum updated; returns the factor for their output.
static __m512 weigh_lanes(const struct attention_panel *panel, size_t query, __m512i counts)
{
    float *scores = panel->scores + query;
    __m512 before = _mm512_loadu_ps(panel->max + query), max = before;
    for (uint32_t t = 0; t < panel->block_tokens; t++) {
        __mmask16 mask = _mm512_cmpgt_epi32_mask(counts, _mm512_set1_epi32((int32_t)t));
        // max(a, b) is b when a is a NaN: such a score is passed over here.
        max = _mm512_mask_max_ps(max, mask, _mm512_loadu_ps(scores + t * panel->width), max);
    }
    for (uint32_t t = 0; t < panel->block_tokens; t++) {
        __mmask16 mask = _mm512_cmpgt_epi32_mask(counts, _mm512_set1_epi32((int32_t)t));
        __m512 score = _mm512_sub_ps(_mm512_loadu_ps(scores + t * panel->width), max);
        _mm512_storeu_ps(scores + t * panel->width, _mm512_maskz_mov_ps(mask, exp_lanes(score)));
    }
    __mmask16 same = _mm512_cmp_ps_mask(before, max, _CMP_EQ_OQ);
    __m512 carry =
        _mm512_mask_mov_ps(exp_lanes(_mm512_sub_ps(before, max)), same, _mm512_set1_ps(1.0f));
    __m512 sum = weights_sum(scores, panel->width, panel->block_tokens);
    sum = _mm512_fmadd_ps(_mm512_loadu_ps(panel->sum + query), carry, sum);
    _mm512_storeu_ps(panel->sum + query, sum);
    _mm512_storeu_ps(panel->max + query, max);
    return carry;
}

// The fewest and the most tokens that a query attends.
struct token_range {
    uint32_t least, most;
};

static struct token_range token_range(const uint32_t *token_counts, uint32_t count)
{
    struct token_range range = {token_counts[0], token_counts[0]};
    for (uint32_t i = 1; i < count; i++) {
        range.least = token_counts[i] < range.least ? token_counts[i] : range.least;
        range.most = token_counts[i] > range.most ? token_counts[i] : range.most;
    }
    return range;
}

void attend_panel_avx512(const struct attention_panel *panel, const struct attention_block *block,
                         const uint32_t *token_counts)
{
    struct token_range range = token_range(token_counts, panel->width);
    if (range.most == 0) {
        return;
    }
    struct panel_product scores = {
        .a = block->wide_k,
        .b = panel->q,
        .c = panel->scores,
        .a_stride = panel->block_tokens,
        .width = panel->width,
        .rows = (range.most + PRODUCT_ROWS - 1) / PRODUCT_ROWS * PRODUCT_ROWS,
        .full_depth = panel->head_dim,
        .depth = panel->head_dim,
    };
    (panel->width == 32 ? product_32 : product_16)(&scores);
    float carry[PANEL_WIDTH_MAX];
    for (size_t i = 0; i < panel->width; i += 16) {
        _mm512_storeu_ps(carry + i, weigh_lanes(panel, i, _mm512_loadu_si512(token_counts + i)));
    }
    struct panel_product out = {
        .a = block->wide_v,
        .b = panel->scores,
        .c = panel->out,
        .carry = carry,
        .counts = token_counts,
        .a_stride = panel->head_dim,
        .width = panel->width,
        .rows = panel->head_dim,
        .full_depth = range.least,
        .depth = range.most,
    };
    (panel->width == 32 ? product_32 : product_16)(&out);
}

void merge_panel_avx512(const struct attention_panel *span, const struct attention_panel *state,
                        uint32_t first_query)
{
    size_t width = span->width;
    for (size_t query = first_query / 16 * 16; query < width; query += 16) {
        __mmask16 mask =
            query >= first_query ? (__mmask16)0xffff : (__mmask16)(0xffff << (first_query - query));
        __m512 left = _mm512_loadu_ps(state->max + query);
        __m512 right = _mm512_loadu_ps(span->max + query);
        __m512 max = _mm512_max_ps(right, left);
        __m512 a = exp_lanes(_mm512_sub_ps(left, max)), b = exp_lanes(_mm512_sub_ps(right, max));
        _mm512_mask_storeu_ps(state->max + query, mask, max);
        __m512 sum = _mm512_mul_ps(_mm512_loadu_ps(state->sum + query), a);
        sum = _mm512_fmadd_ps(_mm512_loadu_ps(span->sum + query), b, sum);
        _mm512_mask_storeu_ps(state->sum + query, mask, sum);
        for (size_t d = 0; d < span->head_dim; d++) {
            __m512 o = _mm512_mul_ps(_mm512_loadu_ps(state->out + d * width + query), a);
            o = _mm512_fmadd_ps(_mm512_loadu_ps(span->out + d * width + query), b, o);
            _mm512_mask_storeu_ps(state->out + d * width + query, mask, o);
        }
    }
}
