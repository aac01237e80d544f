// SPDX-License-Identifier: Apache-2.0
// AVX2 vector operations: two registers hold the 16 lanes of docs/NUMERICS.md §4, tails go by mask.
// Each equals its namesake in vector.c bit for bit.

#include "gpud/kernels/cpu/avx2.h"
#include "gpud/kernels/cpu/cpu_kernels.h"

#include <float.h>
#include <math.h>

// Largest of 8 unsigned integers.
static uint32_t largest_lane(__m256i lanes)
{
    __m128i four = _mm_max_epu32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
    __m128i two = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(two, _mm_shuffle_epi32(two, 0xb1)));
}

static int32_t sum_lanes(__m256i lanes)
{
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
    __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

static void quantize_block(const float *x, struct quant_block *out)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256 value[4];
    __m256i largest = _mm256_setzero_si256(), q[4], sum = _mm256_setzero_si256();
    for (int i = 0; i < 4; i++) {
        value[i] = _mm256_loadu_ps(x + 8 * i);
        __m256i bits = _mm256_and_si256(_mm256_castps_si256(value[i]), magnitude);
        largest = _mm256_max_epu32(largest, bits);
    }
    float scale = float_from_bits(largest_lane(largest)) / 127.0f;
    float inverse = scale >= FLT_MIN && scale <= FLT_MAX ? 1.0f / scale : 0.0f;
    __m256i keep = _mm256_set1_epi32(inverse != 0.0f ? -1 : 0);
    for (int i = 0; i < 4; i++) {
        q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(value[i], _mm256_set1_ps(inverse)));
        q[i] = _mm256_and_si256(q[i], keep);
        sum = _mm256_add_epi32(sum, q[i]);
    }
    __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7); // undoes packing by halves
    _mm256_storeu_si256((__m256i *)out->values, _mm256_permutevar8x32_epi32(bytes, order));
    int32_t total = sum_lanes(sum);
    out->scale = scale;
    out->scale_sum = scale * (float)total;
    out->minus_8_sum = -8 * total;
    out->minus_128_sum = -128 * total;
}

void quantize_avx2(const float *x, uint32_t columns, struct quant_block *out)
{
    for (uint32_t block = 0; block < columns / QUANT_VALUES; block++) {
        quantize_block(x + (size_t)block * QUANT_VALUES, &out[block]);
    }
}

void rms_norm_avx2(const float *x, const float *weight, uint32_t columns, float epsilon, float *out)
{
    __m256 lanes[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (uint32_t i = 0; i < columns; i += 8) {
        __m256 value = _mm256_maskload_ps(x + i, lanes_mask(columns - i));
        lanes[i / 8 % 2] = _mm256_fmadd_ps(value, value, lanes[i / 8 % 2]);
    }
    float mean = lanes_sum(lanes[0], lanes[1]) / (float)columns;
    __m256 scale = _mm256_set1_ps(1.0f / sqrtf(mean + epsilon));
    for (uint32_t i = 0; i < columns; i += 8) {
        __m256i mask = lanes_mask(columns - i);
        __m256 value = _mm256_mul_ps(_mm256_maskload_ps(x + i, mask), scale);
        value = _mm256_mul_ps(value, _mm256_maskload_ps(weight + i, mask));
        _mm256_maskstore_ps(out + i, mask, value);
    }
}

// Pairs (2i, 2i+1): 4 pairs a register; even lanes x0 cos - x1 sin, odd lanes x0 sin + x1 cos.
static void rope_normal(float *head, const float *angles, uint32_t pair_count)
{
    for (size_t i = 0; i < 2 * (size_t)pair_count; i += 8) {
        __m256i mask = lanes_mask(2 * (size_t)pair_count - i);
        __m256 x = _mm256_maskload_ps(head + i, mask);
        __m256 angle = _mm256_maskload_ps(angles + i, mask);
        __m256 turned = _mm256_mul_ps(_mm256_movehdup_ps(x), _mm256_permute_ps(angle, 0xb1));
        _mm256_maskstore_ps(head + i, mask,
                            _mm256_fmaddsub_ps(_mm256_moveldup_ps(x), angle, turned));
    }
}

// Even or odd lanes of 16 values in a and b, in order.
INLINE __m256 every_other(__m256 a, __m256 b, const int odd)
{
    __m256 mixed = odd ? _mm256_shuffle_ps(a, b, 0xdd) : _mm256_shuffle_ps(a, b, 0x88);
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(mixed), 0xd8));
}

// Pairs (i, i + pair_count): 8 pairs at a time.
static void rope_neox(float *head, const float *angles, uint32_t pair_count)
{
    float *second = head + pair_count;
    for (size_t i = 0; i < pair_count; i += 8) {
        size_t left = pair_count - i;
        __m256i mask = lanes_mask(left);
        __m256 a = _mm256_maskload_ps(angles + 2 * i, lanes_mask(2 * left));
        __m256 b = left > 4 ? _mm256_maskload_ps(angles + 2 * i + 8, lanes_mask(2 * left - 8))
                            : _mm256_setzero_ps();
        __m256 cosine = every_other(a, b, 0), sine = every_other(a, b, 1);
        __m256 x0 = _mm256_maskload_ps(head + i, mask);
        __m256 x1 = _mm256_maskload_ps(second + i, mask);
        __m256 y0 = _mm256_fmsub_ps(x0, cosine, _mm256_mul_ps(x1, sine));
        __m256 y1 = _mm256_fmadd_ps(x0, sine, _mm256_mul_ps(x1, cosine));
        _mm256_maskstore_ps(head + i, mask, y0);
        _mm256_maskstore_ps(second + i, mask, y1);
    }
}

void rope_avx2(float *head, const float *angles, uint32_t pair_count, enum rope_kind kind)
{
    if (kind == ROPE_KIND_NEOX) {
        rope_neox(head, angles, pair_count);
    } else {
        rope_normal(head, angles, pair_count);
    }
}

void silu_mul_avx2(const float *gate, const float *up, size_t count, float *out)
{
    const __m256 one = _mm256_set1_ps(1.0f), sign = _mm256_set1_ps(-0.0f);
    for (size_t i = 0; i < count; i += 8) {
        __m256i mask = lanes_mask(count - i);
        __m256 g = _mm256_maskload_ps(gate + i, mask);
        __m256 power = exp_lanes(_mm256_xor_ps(g, sign));
        __m256 silu = _mm256_div_ps(g, _mm256_add_ps(one, power));
        __m256 result = _mm256_mul_ps(silu, _mm256_maskload_ps(up + i, mask));
        _mm256_maskstore_ps(out + i, mask, result);
    }
}

void add_avx2(float *x, const float *y, size_t count)
{
    for (size_t i = 0; i < count; i += 8) {
        __m256i mask = lanes_mask(count - i);
        __m256 sum =
            _mm256_add_ps(_mm256_maskload_ps(x + i, mask), _mm256_maskload_ps(y + i, mask));
        _mm256_maskstore_ps(x + i, mask, sum);
    }
}

void narrow_avx2(const float *x, size_t count, uint16_t *out)
{
    for (size_t i = 0; i < count; i += 8) {
        __m256 value = _mm256_maskload_ps(x + i, lanes_mask(count - i));
        __m128i halves = _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
        if (count - i >= 8) {
            _mm_storeu_si128((__m128i *)(out + i), halves);
        } else {
            memcpy(out + i, &halves, (count - i) * sizeof(*out));
        }
    }
}

void widen_avx2(const uint16_t *x, size_t count, float *out)
{
    for (size_t i = 0; i < count; i += 8) {
        _mm256_maskstore_ps(out + i, lanes_mask(count - i), load_f16(x + i, count - i));
    }
}
