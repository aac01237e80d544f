// SPDX-License-Identifier: Apache-2.0
// AVX2 matrix products of one row group, as two halves of 8 outputs: a lane is an output. Without
// VNNI the integer dots go through 16-bit pairs, in ways that cannot saturate: nibbles (0..15)
// times -127..127 may even be added up over a block (8 * 2 * 15 * 127 = 30480), bytes go as |w|
// times x with w's sign (2 * 128 * 127 = 32512). Each equals its namesake in matmul.c bit for bit.

#include "gpud/kernels/cpu/avx2.h"
#include "gpud/kernels/cpu/cpu_kernels.h"

enum {
    ROWS_MAX = 4,          // rows of activations at a time
    PREFETCH_BYTES = 2048, // hardware prefetchers stop at page ends; decode reads straight on
    CACHE_LINE_BYTES = 64,
    STEPS = QUANT_VALUES / 4, // groups of four values in a block
    HALF_LANES = MATRIX_LANES / 2,
    STEP_BYTES = 4 * MATRIX_LANES,
};

INLINE __m256i broadcast_4(const int8_t *values)
{
    int32_t four;
    memcpy(&four, values, sizeof(four));
    return _mm256_set1_epi32(four);
}

INLINE size_t block_bytes_of(enum matrix_kind kind)
{
    return kind == MATRIX_KIND_Q8_0   ? Q8_0_GROUP_BLOCK_BYTES
           : kind == MATRIX_KIND_Q4_0 ? Q4_0_GROUP_BLOCK_BYTES
                                      : Q4_1_GROUP_BLOCK_BYTES;
}

// w [8]: step s holds values 4s..4s+3 of 8 lanes; signed bytes for Q8_0, nibbles 0..15 else.
INLINE void load_quants(const uint8_t *block, enum matrix_kind kind, __m256i w[STEPS])
{
    if (kind == MATRIX_KIND_Q8_0) {
        const __m256i offset = _mm256_set1_epi8((char)0x80);
        UNROLL
        for (int s = 0; s < STEPS; s++) {
            w[s] = _mm256_loadu_si256((const __m256i *)(block + (size_t)s * STEP_BYTES));
            w[s] = _mm256_xor_si256(w[s], offset);
        }
        return;
    }
    const __m256i nibble = _mm256_set1_epi8(15);
    UNROLL
    for (int s = 0; s < STEPS / 2; s++) {
        __m256i both = _mm256_loadu_si256((const __m256i *)(block + (size_t)s * STEP_BYTES));
        w[s] = _mm256_and_si256(both, nibble);
        w[s + STEPS / 2] = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
    }
}

// The exact integer sum of w * q of a block, as the type means w.
INLINE __m256i dot_of(const __m256i w[STEPS], const struct quant_block *quant,
                      enum matrix_kind kind)
{
    const __m256i ones = _mm256_set1_epi16(1);
    if (kind == MATRIX_KIND_Q8_0) {
        __m256i dot = _mm256_setzero_si256();
        UNROLL
        for (int s = 0; s < STEPS; s++) {
            __m256i x = broadcast_4(quant->values + (size_t)s * 4);
            __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w[s]), _mm256_sign_epi8(x, w[s]));
            dot = _mm256_add_epi32(dot, _mm256_madd_epi16(pairs, ones));
        }
        return dot;
    }
    __m256i pairs = _mm256_setzero_si256();
    UNROLL
    for (int s = 0; s < STEPS; s++) {
        __m256i x = broadcast_4(quant->values + (size_t)s * 4);
        pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(w[s], x));
    }
    __m256i dot = _mm256_madd_epi16(pairs, ones);
    return kind == MATRIX_KIND_Q4_0 ? _mm256_add_epi32(dot, _mm256_set1_epi32(quant->minus_8_sum))
                                    : dot;
}

// Lanes half*8..half*8+7 of `rows` (a constant) rows of the output.
INLINE void store_half(const struct matmul_tile *tile, uint32_t first, const int rows,
                       const uint32_t half, const __m256 *acc)
{
    uint32_t lane = half * HALF_LANES;
    if (tile->lanes <= lane) {
        return;
    }
    __m256i mask = lanes_mask(tile->lanes - lane);
    UNROLL
    for (int r = 0; r < rows; r++) {
        float *out = tile->out + (first + (size_t)r) * tile->out_stride + lane;
        _mm256_maskstore_ps(out, mask, acc[r]);
    }
}

// One half of the lanes for `rows` (a constant) rows of activations from `first`.
INLINE void multiply_quants(const struct matmul_tile *tile, uint32_t first, const int rows,
                            const uint32_t half, const enum matrix_kind kind)
{
    const size_t block_bytes = block_bytes_of(kind);
    const size_t scale_offset =
        kind == MATRIX_KIND_Q8_0 ? Q8_0_GROUP_QUANT_BYTES : Q4_GROUP_QUANT_BYTES;
    uint32_t blocks = tile->columns / QUANT_VALUES;
    const struct quant_block *quant = tile->quant + (size_t)first * blocks;
    const uint8_t *weights = tile->weights;
    __m256 acc[ROWS_MAX];
    UNROLL
    for (int r = 0; r < rows; r++) {
        acc[r] = _mm256_setzero_ps();
    }
    for (uint32_t b = 0; b < blocks; b++, weights += block_bytes, quant++) {
        if (rows == 1 && half == 0) {
            UNROLL
            for (size_t line = 0; line < block_bytes; line += CACHE_LINE_BYTES) {
                _mm_prefetch((const char *)weights + PREFETCH_BYTES + line, _MM_HINT_T0);
            }
        }
        __m256i w[STEPS];
        load_quants(weights + (size_t)half * HALF_LANES * 4, kind, w);
        const uint16_t *scales = (const uint16_t *)(weights + scale_offset) + half * HALF_LANES;
        __m256 scale = load_f16(scales, HALF_LANES);
        __m256 minimum = kind == MATRIX_KIND_Q4_1 ? load_f16(scales + MATRIX_LANES, HALF_LANES)
                                                  : _mm256_setzero_ps();
        UNROLL
        for (int r = 0; r < rows; r++) {
            const struct quant_block *x = quant + (size_t)r * blocks;
            __m256 dot = _mm256_cvtepi32_ps(dot_of(w, x, kind));
            __m256 factor = _mm256_mul_ps(scale, _mm256_set1_ps(x->scale));
            acc[r] = _mm256_fmadd_ps(dot, factor, acc[r]);
            if (kind == MATRIX_KIND_Q4_1) {
                acc[r] = _mm256_fmadd_ps(minimum, _mm256_set1_ps(x->scale_sum), acc[r]);
            }
        }
    }
    store_half(tile, first, rows, half, acc);
}

// Weights of 8 lanes; index counts lanes from the start of the row group.
INLINE __m256 load_weights(const uint8_t *weights, size_t index, enum matrix_kind kind)
{
    if (kind == MATRIX_KIND_F32) {
        return _mm256_loadu_ps((const float *)weights + index);
    }
    if (kind == MATRIX_KIND_F16) {
        return load_f16((const uint16_t *)weights + index, HALF_LANES);
    }
    __m128i half = _mm_loadu_si128((const __m128i *)((const uint16_t *)weights + index));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

INLINE void multiply_floats(const struct matmul_tile *tile, uint32_t first, const int rows,
                            const enum matrix_kind kind)
{
    const float *x = tile->x + (size_t)first * tile->columns;
    __m256 low[ROWS_MAX], high[ROWS_MAX];
    UNROLL
    for (int r = 0; r < rows; r++) {
        low[r] = _mm256_setzero_ps();
        high[r] = _mm256_setzero_ps();
    }
    for (size_t k = 0; k < tile->columns; k++) {
        __m256 w_low = load_weights(tile->weights, k * MATRIX_LANES, kind);
        __m256 w_high = load_weights(tile->weights, k * MATRIX_LANES + HALF_LANES, kind);
        UNROLL
        for (int r = 0; r < rows; r++) {
            __m256 value = _mm256_set1_ps(x[(size_t)r * tile->columns + k]);
            low[r] = _mm256_fmadd_ps(w_low, value, low[r]);
            high[r] = _mm256_fmadd_ps(w_high, value, high[r]);
        }
    }
    store_half(tile, first, rows, 0, low);
    store_half(tile, first, rows, 1, high);
}

INLINE void multiply(const struct matmul_tile *tile, uint32_t first, const int rows,
                     const enum matrix_kind kind)
{
    if (kind >= MATRIX_KIND_Q8_0) {
        multiply_quants(tile, first, rows, 0, kind);
        multiply_quants(tile, first, rows, 1, kind);
    } else {
        multiply_floats(tile, first, rows, kind);
    }
}

// All rows, in fixed sizes so that sums stay in registers.
INLINE void multiply_rows(const struct matmul_tile *tile, const enum matrix_kind kind)
{
    uint32_t first = 0;
    for (; first + ROWS_MAX <= tile->rows; first += ROWS_MAX) {
        multiply(tile, first, ROWS_MAX, kind);
    }
    if (first + 2 <= tile->rows) {
        multiply(tile, first, 2, kind);
        first += 2;
    }
    if (first < tile->rows) {
        multiply(tile, first, 1, kind);
    }
}

void matmul_f32_avx2(const struct matmul_tile *tile)
{
    multiply_rows(tile, MATRIX_KIND_F32);
}

void matmul_f16_avx2(const struct matmul_tile *tile)
{
    multiply_rows(tile, MATRIX_KIND_F16);
}

void matmul_bf16_avx2(const struct matmul_tile *tile)
{
    multiply_rows(tile, MATRIX_KIND_BF16);
}

void matmul_q8_0_avx2(const struct matmul_tile *tile)
{
    multiply_rows(tile, MATRIX_KIND_Q8_0);
}

void matmul_q4_0_avx2(const struct matmul_tile *tile)
{
    multiply_rows(tile, MATRIX_KIND_Q4_0);
}

void matmul_q4_1_avx2(const struct matmul_tile *tile)
{
    multiply_rows(tile, MATRIX_KIND_Q4_1);
}
