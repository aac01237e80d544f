// SPDX-License-Identifier: Apache-2.0
// Sine and cosine of RoPE angles in binary64 with plain products and sums, so that no libm enters
// the bits (docs/NUMERICS.md §5). Cody-Waite reduction: pi/2 in parts of 33 bits makes n * part
// exact for n below 2^20, which covers positions up to LIMIT_CONTEXT_TOKENS at frequencies up
// to 1.5.

#include "gpud/kernels/kernels.h"

#include <stdint.h>
#include <string.h>

#define TWO_OVER_PI 0x1.45f306dc9c883p-1
#define HALF_PI_1 0x1.921fb544p+0       // bits 1..33 of pi/2
#define HALF_PI_2 0x1.0b4611a6p-34      // bits 34..66
#define HALF_PI_3 0x1.3198a2e037073p-69 // the next 53
#define ROUND_F64 6755399441055744.0    // 1.5 * 2^52

// Taylor series: at |r| <= pi/4 the first term left out is below 2^-54.
static double sine_of(double r)
{
    static const double terms[] = {
        -1.0 / 6,        1.0 / 120,          -1.0 / 5040,           1.0 / 362880,
        -1.0 / 39916800, 1.0 / 6227020800.0, -1.0 / 1307674368000.0};
    double square = r * r;
    double sum = 1.0 / 355687428096000.0;
    for (int i = 6; i >= 0; i--) {
        sum = sum * square + terms[i];
    }
    return r + r * (square * sum);
}

static double cosine_of(double r)
{
    static const double terms[] = {
        -1.0 / 2,       1.0 / 24,        -1.0 / 720,          1.0 / 40320,
        -1.0 / 3628800, 1.0 / 479001600, -1.0 / 87178291200.0};
    double square = r * r;
    double sum = 1.0 / 20922789888000.0;
    for (int i = 6; i >= 0; i--) {
        sum = sum * square + terms[i];
    }
    return 1.0 + square * sum;
}

void kernels_rope_angles(uint32_t position, const double *frequency, uint32_t pair_count,
                         float *out)
{
    for (uint32_t i = 0; i < pair_count; i++) {
        double angle = (double)position * frequency[i];
        double n = (angle * TWO_OVER_PI + ROUND_F64) - ROUND_F64;
        double r = ((angle - n * HALF_PI_1) - n * HALF_PI_2) - n * HALF_PI_3;
        double sine = sine_of(r), cosine = cosine_of(r);
        switch ((uint64_t)(int64_t)n & 3) { // quarter turns
        case 0:
            out[2 * i] = (float)cosine, out[2 * i + 1] = (float)sine;
            break;
        case 1:
            out[2 * i] = (float)-sine, out[2 * i + 1] = (float)cosine;
            break;
        case 2:
            out[2 * i] = (float)-cosine, out[2 * i + 1] = (float)-sine;
            break;
        default:
            out[2 * i] = (float)sine, out[2 * i + 1] = (float)-cosine;
            break;
        }
    }
}
