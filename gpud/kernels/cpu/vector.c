// SPDX-License-Identifier: Apache-2.0
// Plain C reference of the vector operations: norms, RoPE, SiLU, conversions, quantization of
// activations. Written for clarity; docs/NUMERICS.md §1, 2, 4, 5 is what it states.

#include "gpud/kernels/cpu/cpu_kernels.h"
#include "gpud/kernels/cpu/exp.h"
#include "gpud/kernels/cpu/f16.h"

#include <float.h>
#include <math.h>

// Largest |x| by bit pattern, so that NaN and infinity win.
static float largest_magnitude(const float *x, uint32_t count)
{
    uint32_t largest = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bits = float_bits(x[i]) & 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
    return float_from_bits(largest);
}

static void quantize_block(const float *x, struct quant_block *out)
{
    float scale = largest_magnitude(x, QUANT_VALUES) / 127.0f;
    float inverse = scale >= FLT_MIN && scale <= FLT_MAX ? 1.0f / scale : 0.0f;
    int32_t sum = 0;
    for (uint32_t i = 0; i < QUANT_VALUES; i++) {
        float scaled = inverse != 0.0f ? x[i] * inverse : 0.0f;
        out->values[i] = (int8_t)((scaled + EXP_ROUND) - EXP_ROUND); // nearest, ties to even
        sum += out->values[i];
    }
    out->scale = scale;
    out->scale_sum = scale * (float)sum;
    out->minus_8_sum = -8 * sum;
    out->minus_128_sum = -128 * sum;
}

void quantize_c(const float *x, uint32_t columns, struct quant_block *out)
{
    for (uint32_t block = 0; block < columns / QUANT_VALUES; block++) {
        quantize_block(x + (size_t)block * QUANT_VALUES, &out[block]);
    }
}

void rms_norm_c(const float *x, const float *weight, uint32_t columns, float epsilon, float *out)
{
    float lanes[16] = {0};
    for (uint32_t i = 0; i < columns; i++) {
        lanes[i % 16] = fmaf(x[i], x[i], lanes[i % 16]);
    }
    for (uint32_t width = 8; width >= 1; width /= 2) {
        for (uint32_t j = 0; j < width; j++) {
            lanes[j] += lanes[j + width];
        }
    }
    float scale = 1.0f / sqrtf(lanes[0] / (float)columns + epsilon);
    for (uint32_t i = 0; i < columns; i++) {
        out[i] = (x[i] * scale) * weight[i];
    }
}

void rope_c(float *head, const float *angles, uint32_t pair_count, enum rope_kind kind)
{
    uint32_t step = kind == ROPE_KIND_NEOX ? 1 : 2;
    uint32_t distance = kind == ROPE_KIND_NEOX ? pair_count : 1;
    for (uint32_t i = 0; i < pair_count; i++) {
        float cosine = angles[2 * (size_t)i], sine = angles[2 * (size_t)i + 1];
        float *first = head + (size_t)i * step, *second = first + distance;
        float x0 = *first, x1 = *second;
        *first = fmaf(x0, cosine, -(x1 * sine));
        *second = fmaf(x0, sine, x1 * cosine);
    }
}

void silu_mul_c(const float *gate, const float *up, size_t count, float *out)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = gate[i] / (1.0f + exp_f32(-gate[i])) * up[i];
    }
}

void add_c(float *x, const float *y, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        x[i] += y[i];
    }
}

void narrow_c(const float *x, size_t count, uint16_t *out)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = f16_from_f32(x[i]);
    }
}

void widen_c(const uint16_t *x, size_t count, float *out)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = f32_from_f16(x[i]);
    }
}
