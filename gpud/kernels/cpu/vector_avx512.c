// SPDX-License-Identifier: Apache-2.0
// AVX-512 vector operations: the lanes of a register are the 16 lanes of docs/NUMERICS.md §4, tails
// go by mask. Each equals its namesake in vector.c bit for bit.

#include "gpud/kernels/cpu/avx512.h"
#include "gpud/kernels/cpu/cpu_kernels.h"

#include <float.h>
#include <math.h>

static void quantize_block(const float *x, struct quant_block *out)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512 low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + 16);
    __m512i largest = _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(low), magnitude),
                                       _mm512_and_si512(_mm512_castps_si512(high), magnitude));
    float scale = float_from_bits(_mm512_reduce_max_epu32(largest)) / 127.0f;
    float inverse = scale >= FLT_MIN && scale <= FLT_MAX ? 1.0f / scale : 0.0f;
    __mmask16 keep = inverse != 0.0f ? 0xffff : 0;
    __m512 factor = _mm512_set1_ps(inverse);
    __m512i q_low = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(low, factor));
    __m512i q_high = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(high, factor));
    int32_t sum = _mm512_reduce_add_epi32(_mm512_add_epi32(q_low, q_high));
    _mm_storeu_si128((__m128i *)out->values, _mm512_cvtepi32_epi8(q_low));
    _mm_storeu_si128((__m128i *)(out->values + 16), _mm512_cvtepi32_epi8(q_high));
    out->scale = scale;
    out->scale_sum = scale * (float)sum;
    out->minus_8_sum = -8 * sum;
    out->minus_128_sum = -128 * sum;
}

void quantize_avx512(const float *x, uint32_t columns, struct quant_block *out)
{
    for (uint32_t block = 0; block < columns / QUANT_VALUES; block++) {
        quantize_block(x + (size_t)block * QUANT_VALUES, &out[block]);
    }
}

void rms_norm_avx512(const float *x, const float *weight, uint32_t columns, float epsilon,
                     float *out)
{
    __m512 lanes = _mm512_setzero_ps();
    for (uint32_t i = 0; i < columns; i += 16) {
        __m512 value = _mm512_maskz_loadu_ps(lanes_mask(columns - i), x + i);
        lanes = _mm512_fmadd_ps(value, value, lanes);
    }
    __m512 scale = _mm512_set1_ps(1.0f / sqrtf(lanes_sum(lanes) / (float)columns + epsilon));
    for (uint32_t i = 0; i < columns; i += 16) {
        __mmask16 mask = lanes_mask(columns - i);
        __m512 value = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + i), scale);
        value = _mm512_mul_ps(value, _mm512_maskz_loadu_ps(mask, weight + i));
        _mm512_mask_storeu_ps(out + i, mask, value);
    }
}

// Pairs (2i, 2i+1): 8 pairs a register; even lanes x0 cos - x1 sin, odd lanes x0 sin + x1 cos.
static void rope_normal(float *head, const float *angles, uint32_t pair_count)
{
    for (size_t i = 0; i < 2 * (size_t)pair_count; i += 16) {
        __mmask16 mask = lanes_mask(2 * (size_t)pair_count - i);
        __m512 x = _mm512_maskz_loadu_ps(mask, head + i);
        __m512 angle = _mm512_maskz_loadu_ps(mask, angles + i);
        __m512 turned = _mm512_mul_ps(_mm512_movehdup_ps(x), _mm512_permute_ps(angle, 0xb1));
        _mm512_mask_storeu_ps(head + i, mask,
                              _mm512_fmaddsub_ps(_mm512_moveldup_ps(x), angle, turned));
    }
}

// Pairs (i, i + pair_count): 16 pairs at a time.
static void rope_neox(float *head, const float *angles, uint32_t pair_count)
{
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    float *second = head + pair_count;
    for (size_t i = 0; i < pair_count; i += 16) {
        size_t left = pair_count - i;
        __mmask16 mask = lanes_mask(left);
        __m512 a = _mm512_maskz_loadu_ps(lanes_mask(2 * left), angles + 2 * i);
        __m512 b = left > 8 ? _mm512_maskz_loadu_ps(lanes_mask(2 * left - 16), angles + 2 * i + 16)
                            : _mm512_setzero_ps();
        __m512 cosine = _mm512_permutex2var_ps(a, even, b);
        __m512 sine = _mm512_permutex2var_ps(a, odd, b);
        __m512 x0 = _mm512_maskz_loadu_ps(mask, head + i);
        __m512 x1 = _mm512_maskz_loadu_ps(mask, second + i);
        __m512 y0 = _mm512_fmsub_ps(x0, cosine, _mm512_mul_ps(x1, sine));
        __m512 y1 = _mm512_fmadd_ps(x0, sine, _mm512_mul_ps(x1, cosine));
        _mm512_mask_storeu_ps(head + i, mask, y0);
        _mm512_mask_storeu_ps(second + i, mask, y1);
    }
}

void rope_avx512(float *head, const float *angles, uint32_t pair_count, enum rope_kind kind)
{
    if (kind == ROPE_KIND_NEOX) {
        rope_neox(head, angles, pair_count);
    } else {
        rope_normal(head, angles, pair_count);
    }
}

void silu_mul_avx512(const float *gate, const float *up, size_t count, float *out)
{
    const __m512 one = _mm512_set1_ps(1.0f), sign = _mm512_set1_ps(-0.0f);
    for (size_t i = 0; i < count; i += 16) {
        __mmask16 mask = lanes_mask(count - i);
        __m512 g = _mm512_maskz_loadu_ps(mask, gate + i);
        __m512 power = exp_lanes(_mm512_xor_ps(g, sign));
        __m512 silu = _mm512_div_ps(g, _mm512_add_ps(one, power));
        __m512 result = _mm512_mul_ps(silu, _mm512_maskz_loadu_ps(mask, up + i));
        _mm512_mask_storeu_ps(out + i, mask, result);
    }
}

void add_avx512(float *x, const float *y, size_t count)
{
    for (size_t i = 0; i < count; i += 16) {
        __mmask16 mask = lanes_mask(count - i);
        __m512 sum =
            _mm512_add_ps(_mm512_maskz_loadu_ps(mask, x + i), _mm512_maskz_loadu_ps(mask, y + i));
        _mm512_mask_storeu_ps(x + i, mask, sum);
    }
}

void narrow_avx512(const float *x, size_t count, uint16_t *out)
{
    for (size_t i = 0; i < count; i += 16) {
        __mmask16 mask = lanes_mask(count - i);
        __m512 value = _mm512_maskz_loadu_ps(mask, x + i);
        _mm256_mask_storeu_epi16(out + i, mask, _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
    }
}

void widen_avx512(const uint16_t *x, size_t count, float *out)
{
    for (size_t i = 0; i < count; i += 16) {
        __mmask16 mask = lanes_mask(count - i);
        __m512 value = _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, x + i));
        _mm512_mask_storeu_ps(out + i, mask, value);
    }
}
