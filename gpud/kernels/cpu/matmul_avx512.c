// SPDX-License-Identifier: Apache-2.0
// AVX-512 VNNI matrix products of one row group: a lane is an output. Quantized: the block's
// weights (8 registers of u8) are unpacked once and multiplied with up to 8 rows of activations,
// whose four bytes are broadcast from memory; the sums stay in 8 registers over all of K.
// Memory-bound with one row, near the multipliers' rate with 8. Each equals its namesake in
// matmul.c bit for bit.

#include "gpud/kernels/cpu/avx512.h"
#include "gpud/kernels/cpu/cpu_kernels.h"

#include <string.h>

enum {
    ROWS_MAX = 8,          // rows of activations at a time
    PREFETCH_BYTES = 2048, // hardware prefetchers stop at page ends; decode reads straight on
    CACHE_LINE_BYTES = 64,
    STEPS = QUANT_VALUES / 4, // dot instructions of a block
};

INLINE __m512i broadcast_4(const int8_t *values)
{
    int32_t four;
    memcpy(&four, values, sizeof(four));
    return _mm512_set1_epi32(four);
}

INLINE size_t block_bytes_of(enum matrix_kind kind)
{
    return kind == MATRIX_KIND_Q8_0   ? Q8_0_GROUP_BLOCK_BYTES
           : kind == MATRIX_KIND_Q4_0 ? Q4_0_GROUP_BLOCK_BYTES
                                      : Q4_1_GROUP_BLOCK_BYTES;
}

// w [8]: step s holds values 4s..4s+3 of each lane as unsigned bytes.
INLINE void load_quants(const uint8_t *block, enum matrix_kind kind, __m512i w[STEPS])
{
    if (kind == MATRIX_KIND_Q8_0) {
        UNROLL
        for (int s = 0; s < STEPS; s++) {
            w[s] = _mm512_loadu_si512(block + (size_t)s * 64);
        }
        return;
    }
    const __m512i nibble = _mm512_set1_epi8(15);
    UNROLL
    for (int s = 0; s < STEPS / 2; s++) {
        __m512i both = _mm512_loadu_si512(block + (size_t)s * 64);
        w[s] = _mm512_and_si512(both, nibble);
        w[s + STEPS / 2] = _mm512_and_si512(_mm512_srli_epi16(both, 4), nibble);
    }
}

INLINE __m512 load_f16(const uint8_t *at)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)at));
}

// The exact integer sum of w * q of a block, as the type means w.
INLINE __m512i dot_of(const __m512i w[STEPS], const struct quant_block *quant,
                      enum matrix_kind kind)
{
    __m512i even = kind == MATRIX_KIND_Q8_0   ? _mm512_set1_epi32(quant->minus_128_sum)
                   : kind == MATRIX_KIND_Q4_0 ? _mm512_set1_epi32(quant->minus_8_sum)
                                              : _mm512_setzero_si512();
    __m512i odd = _mm512_setzero_si512(); // two chains: an instruction takes 5 cycles
    UNROLL
    for (int s = 0; s < STEPS; s += 2) {
        even = _mm512_dpbusd_epi32(even, w[s], broadcast_4(quant->values + (size_t)s * 4));
        odd = _mm512_dpbusd_epi32(odd, w[s + 1], broadcast_4(quant->values + (size_t)s * 4 + 4));
    }
    return _mm512_add_epi32(even, odd);
}

// `rows` (a constant) rows of activations from `first`.
INLINE void multiply_quants(const struct matmul_tile *tile, uint32_t first, const int rows,
                            const enum matrix_kind kind)
{
    const size_t block_bytes = block_bytes_of(kind);
    const size_t scale_offset =
        kind == MATRIX_KIND_Q8_0 ? Q8_0_GROUP_QUANT_BYTES : Q4_GROUP_QUANT_BYTES;
    uint32_t blocks = tile->columns / QUANT_VALUES;
    const struct quant_block *quant = tile->quant + (size_t)first * blocks;
    const uint8_t *weights = tile->weights;
    __m512 acc[ROWS_MAX];
    UNROLL
    for (int r = 0; r < rows; r++) {
        acc[r] = _mm512_setzero_ps();
    }
    for (uint32_t b = 0; b < blocks; b++, weights += block_bytes, quant++) {
        if (rows == 1) {
            UNROLL
            for (size_t line = 0; line < block_bytes; line += CACHE_LINE_BYTES) {
                _mm_prefetch((const char *)weights + PREFETCH_BYTES + line, _MM_HINT_T0);
            }
        }
        __m512i w[STEPS];
        load_quants(weights, kind, w);
        __m512 scale = load_f16(weights + scale_offset);
        __m512 minimum = kind == MATRIX_KIND_Q4_1
                             ? load_f16(weights + scale_offset + GROUP_SCALE_BYTES)
                             : _mm512_setzero_ps();
        UNROLL
        for (int r = 0; r < rows; r++) {
            const struct quant_block *x = quant + (size_t)r * blocks;
            __m512 dot = _mm512_cvtepi32_ps(dot_of(w, x, kind));
            __m512 factor = _mm512_mul_ps(scale, _mm512_set1_ps(x->scale));
            acc[r] = _mm512_fmadd_ps(dot, factor, acc[r]);
            if (kind == MATRIX_KIND_Q4_1) {
                acc[r] = _mm512_fmadd_ps(minimum, _mm512_set1_ps(x->scale_sum), acc[r]);
            }
        }
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        _mm512_mask_storeu_ps(tile->out + (first + (size_t)r) * tile->out_stride,
                              lanes_mask(tile->lanes), acc[r]);
    }
}

INLINE __m512 load_weights(const uint8_t *weights, size_t k, enum matrix_kind kind)
{
    if (kind == MATRIX_KIND_F32) {
        return _mm512_loadu_ps(weights + k * 64);
    }
    if (kind == MATRIX_KIND_F16) {
        return load_f16(weights + k * 32);
    }
    __m256i half = _mm256_loadu_si256((const __m256i *)(weights + k * 32));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

INLINE void multiply_floats(const struct matmul_tile *tile, uint32_t first, const int rows,
                            const enum matrix_kind kind)
{
    const float *x = tile->x + (size_t)first * tile->columns;
    __m512 acc[ROWS_MAX];
    UNROLL
    for (int r = 0; r < rows; r++) {
        acc[r] = _mm512_setzero_ps();
    }
    for (size_t k = 0; k < tile->columns; k++) {
        __m512 w = load_weights(tile->weights, k, kind);
        UNROLL
        for (int r = 0; r < rows; r++) {
            acc[r] = _mm512_fmadd_ps(w, _mm512_set1_ps(x[(size_t)r * tile->columns + k]), acc[r]);
        }
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        _mm512_mask_storeu_ps(tile->out + (first + (size_t)r) * tile->out_stride,
                              lanes_mask(tile->lanes), acc[r]);
    }
}

INLINE void multiply(const struct matmul_tile *tile, uint32_t first, const int rows,
                     const enum matrix_kind kind)
{
    if (kind >= MATRIX_KIND_Q8_0) {
        multiply_quants(tile, first, rows, kind);
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
    if (first + 4 <= tile->rows) {
        multiply(tile, first, 4, kind);
        first += 4;
    }
    if (first + 2 <= tile->rows) {
        multiply(tile, first, 2, kind);
        first += 2;
    }
    if (first < tile->rows) {
        multiply(tile, first, 1, kind);
    }
}

void matmul_f32_avx512(const struct matmul_tile *tile)
{
    multiply_rows(tile, MATRIX_KIND_F32);
}

void matmul_f16_avx512(const struct matmul_tile *tile)
{
    multiply_rows(tile, MATRIX_KIND_F16);
}

void matmul_bf16_avx512(const struct matmul_tile *tile)
{
    multiply_rows(tile, MATRIX_KIND_BF16);
}

void matmul_q8_0_avx512(const struct matmul_tile *tile)
{
    multiply_rows(tile, MATRIX_KIND_Q8_0);
}

void matmul_q4_0_avx512(const struct matmul_tile *tile)
{
    multiply_rows(tile, MATRIX_KIND_Q4_0);
}

void matmul_q4_1_avx512(const struct matmul_tile *tile)
{
    multiply_rows(tile, MATRIX_KIND_Q4_1);
}
