// SPDX-License-Identifier: Apache-2.0
// Small pieces that the _avx2.c files share: tails by mask, the fixed tree, exp. Equal bit for bit
// to their plain C twins (docs/NUMERICS.md). Include only from files compiled for AVX2, FMA and
// F16C.
#ifndef KVTIER_GPUD_KERNELS_CPU_AVX2_H
#define KVTIER_GPUD_KERNELS_CPU_AVX2_H

#include "gpud/kernels/cpu/exp.h"

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

// Loops over registers must unroll, or arrays of vectors end up in memory.
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

// All bits set in lanes 0..left-1, at most 8.
INLINE __m256i lanes_mask(size_t left)
{
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(left < 8 ? (int)left : 8), index);
}

// 8 f16 as f32, of which only the first `left` are read.
INLINE __m256 load_f16(const uint16_t *at, size_t left)
{
    if (left >= 8) {
        return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)at));
    }
    uint16_t halves[8] = {0};
    memcpy(halves, at, left * sizeof(*halves));
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)halves));
}

// Sum of 16 lanes, 0..7 and 8..15, by the tree 8, 4, 2, 1.
INLINE float lanes_sum(__m256 low, __m256 high)
{
    __m256 eight = _mm256_add_ps(low, high);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// exp_f32 of exp.h, 8 at a time.
INLINE __m256 exp_lanes(__m256 x)
{
    const __m256 round = _mm256_set1_ps(EXP_ROUND), one = _mm256_set1_ps(1.0f);
    __m256 t = _mm256_fmadd_ps(x, _mm256_set1_ps(EXP_LOG2E), round);
    __m256 n = _mm256_sub_ps(t, round);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(EXP_LN2_HIGH), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(EXP_LN2_LOW), r);
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(EXP_C6), r, _mm256_set1_ps(EXP_C5));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_C4));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_C3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_C2));
    p = _mm256_fmadd_ps(p, r, one);
    p = _mm256_fmadd_ps(p, r, one);
    __m256i power =
        _mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(t), 23), _mm256_castps_si256(one));
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(power));
    p = _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(EXP_LOWEST), _CMP_LT_OQ), p);
    return _mm256_blendv_ps(p, _mm256_set1_ps(INFINITY),
                            _mm256_cmp_ps(x, _mm256_set1_ps(EXP_HIGHEST), _CMP_GT_OQ));
}

#endif
