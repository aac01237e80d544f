// SPDX-License-Identifier: Apache-2.0
// f16 and bf16 conversions in plain C, bit for bit what F16C computes (round to nearest even,
// denormals kept, NaN quieted). Pure functions, any thread.
#ifndef KVTIER_GPUD_KERNELS_CPU_F16_H
#define KVTIER_GPUD_KERNELS_CPU_F16_H

#include <stdint.h>
#include <string.h>

// The float that has these bits.
static inline float float_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

// The bits of a float.
static inline uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

// Exact.
static inline float f32_from_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = (half >> 10) & 31u;
    uint32_t fraction = half & 0x3ffu;
    if (exponent == 31u) { // infinity, or a NaN that becomes quiet
        return float_from_bits(sign | 0x7f800000u | fraction << 13 |
                               (fraction != 0 ? 0x400000u : 0));
    }
    if (exponent == 0) { // zero and denormals: fraction * 2^-24, exact
        return float_from_bits(sign | float_bits((float)fraction * 0x1p-24f));
    }
    return float_from_bits(sign | (exponent + 112u) << 23 | fraction << 13);
}

// Rounds to nearest even, with denormals; too large becomes infinity.
static inline uint16_t f16_from_f32(float value)
{
    uint32_t bits = float_bits(value);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u) { // NaN: keeps the top of its payload, quiet
        return (uint16_t)(sign | 0x7e00u | (bits >> 13 & 0x3ffu));
    }
    if (bits >= 0x477ff000u) { // 65520 and up round to infinity
        return (uint16_t)(sign | 0x7c00u);
    }
    if (bits < 0x38800000u) {
        // Below 2^-14. Adding 0.5 puts the unit of the f16 denormals (2^-24) at the last bit of the
        // sum, so the addition rounds to nearest even.
        return (uint16_t)(sign | (float_bits(float_from_bits(bits) + 0.5f) - 0x3f000000u));
    }
    uint32_t odd = bits >> 13 & 1u;
    return (uint16_t)(sign | ((bits - (112u << 23) + 0xfffu + odd) >> 13));
}

// Exact: 16 zero bits are appended.
static inline float f32_from_bf16(uint16_t half)
{
    return float_from_bits((uint32_t)half << 16);
}

#endif
