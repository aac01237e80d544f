// SPDX-License-Identifier: Apache-2.0
// Small pieces that the _avx512.c files share: tails by mask, the fixed tree, exp. Equal bit for
// bit to their plain C twins (docs/NUMERICS.md). Include only from files compiled for AVX-512.
#ifndef KVTIER_GPUD_KERNELS_CPU_AVX512_H
#define KVTIER_GPUD_KERNELS_CPU_AVX512_H

#include "gpud/kernels/cpu/exp.h"

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))

// Loops over registers must unroll, or arrays of vectors end up in memory.
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

// Lanes 0..left-1, at most 16.
INLINE __mmask16 lanes_mask(size_t left)
{
    return left >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << left) - 1);
}

// Sum of 16 lanes by the tree 8, 4, 2, 1.
INLINE float lanes_sum(__m512 lanes)
{
    __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(lanes), _mm512_extractf32x8_ps(lanes, 1));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// exp_f32 of exp.h, 16 at a time.
INLINE __m512 exp_lanes(__m512 x)
{
    const __m512 round = _mm512_set1_ps(EXP_ROUND), one = _mm512_set1_ps(1.0f);
    __m512 t = _mm512_fmadd_ps(x, _mm512_set1_ps(EXP_LOG2E), round);
    __m512 n = _mm512_sub_ps(t, round);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(EXP_LN2_HIGH), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(EXP_LN2_LOW), r);
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(EXP_C6), r, _mm512_set1_ps(EXP_C5));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C4));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C3));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C2));
    p = _mm512_fmadd_ps(p, r, one);
    p = _mm512_fmadd_ps(p, r, one);
    __m512i power =
        _mm512_add_epi32(_mm512_slli_epi32(_mm512_castps_si512(t), 23), _mm512_castps_si512(one));
    p = _mm512_mul_ps(p, _mm512_castsi512_ps(power));
    __mmask16 low = _mm512_cmp_ps_mask(x, _mm512_set1_ps(EXP_LOWEST), _CMP_LT_OQ);
    __mmask16 high = _mm512_cmp_ps_mask(x, _mm512_set1_ps(EXP_HIGHEST), _CMP_GT_OQ);
    p = _mm512_mask_mov_ps(p, low, _mm512_setzero_ps());
    return _mm512_mask_mov_ps(p, high, _mm512_set1_ps(INFINITY));
}

#endif
