// SPDX-License-Identifier: Apache-2.0
// Our own exp, so that no libm enters the bits: the constants that every instruction set uses and
// the plain C function that they must equal (docs/NUMERICS.md §5). Coefficients: weighted minimax
// fit of degree 6 over |r| <= ln(2)/2 with the first two fixed to 1, error before rounding 0.06
// ulp.
#ifndef KVTIER_GPUD_KERNELS_CPU_EXP_H
#define KVTIER_GPUD_KERNELS_CPU_EXP_H

#include "gpud/kernels/cpu/f16.h"

#include <math.h>

#define EXP_LOG2E 0x1.715476p+0f
#define EXP_ROUND 12582912.0f     // 1.5 * 2^23: adding it rounds to an integer held in the low bits
#define EXP_LN2_HIGH 0x1.62e4p-1f // 17 bits, so n * EXP_LN2_HIGH is exact
#define EXP_LN2_LOW 0x1.7f7d1cp-20f
#define EXP_C6 0x1.6a244ap-10f
#define EXP_C5 0x1.1239d6p-7f
#define EXP_C4 0x1.5558f2p-5f
#define EXP_C3 0x1.555492p-3f
#define EXP_C2 0x1.fffffcp-2f
#define EXP_LOWEST -87.0f // below: 0
#define EXP_HIGHEST 88.0f // above: infinity

// e^x as docs/NUMERICS.md section 5 says; the same bits in every instruction set.
static inline float exp_f32(float x)
{
    if (x < EXP_LOWEST) {
        return 0.0f;
    }
    if (x > EXP_HIGHEST) {
        return INFINITY;
    }
    float t = fmaf(x, EXP_LOG2E, EXP_ROUND);
    float n = t - EXP_ROUND;
    float r = fmaf(n, -EXP_LN2_HIGH, x);
    r = fmaf(n, -EXP_LN2_LOW, r);
    float p = fmaf(EXP_C6, r, EXP_C5);
    p = fmaf(p, r, EXP_C4);
    p = fmaf(p, r, EXP_C3);
    p = fmaf(p, r, EXP_C2);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    // 2^n: the low bits of t hold n; the product keeps a NaN a NaN whatever this factor is.
    return p * float_from_bits((float_bits(t) << 23) + 0x3f800000u);
}

#endif
