// SPDX-License-Identifier: Apache-2.0
// Plain C reference of the matrix products: one row group (16 outputs) for some activation rows.
// docs/NUMERICS.md §3 is what it states; layouts stand in kernels_backend.h.

#include "gpud/kernels/cpu/cpu_kernels.h"
#include "gpud/kernels/cpu/f16.h"

#include <math.h>
#include <string.h>

static float lane_f16(const uint8_t *scales, uint32_t lane)
{
    uint16_t half;
    memcpy(&half, scales + 2 * (size_t)lane, sizeof(half));
    return f32_from_f16(half);
}

// Sum of (w + 128) * q over a block, for one lane of [8][16][4] bytes.
static int32_t dot_bytes(const uint8_t *weights, uint32_t lane, const int8_t *values)
{
    int32_t dot = 0;
    for (uint32_t k = 0; k < QUANT_VALUES; k++) {
        dot += weights[(k / 4 * MATRIX_LANES + lane) * 4 + k % 4] * values[k];
    }
    return dot;
}

// Sum of nibble * q over a block, for one lane of [4][16][4] bytes.
static int32_t dot_nibbles(const uint8_t *weights, uint32_t lane, const int8_t *values)
{
    int32_t dot = 0;
    for (uint32_t k = 0; k < QUANT_VALUES / 2; k++) {
        uint8_t byte = weights[(k / 4 * MATRIX_LANES + lane) * 4 + k % 4];
        dot += (byte & 15) * values[k] + (byte >> 4) * values[k + QUANT_VALUES / 2];
    }
    return dot;
}

void matmul_q8_0_c(const struct matmul_tile *tile)
{
    uint32_t blocks = tile->columns / QUANT_VALUES;
    for (uint32_t row = 0; row < tile->rows; row++) {
        const struct quant_block *quant = tile->quant + (size_t)row * blocks;
        for (uint32_t lane = 0; lane < tile->lanes; lane++) {
            float acc = 0.0f;
            for (uint32_t b = 0; b < blocks; b++) {
                const uint8_t *weights = tile->weights + (size_t)b * Q8_0_GROUP_BLOCK_BYTES;
                int32_t dot = dot_bytes(weights, lane, quant[b].values) + quant[b].minus_128_sum;
                float dw = lane_f16(weights + Q8_0_GROUP_QUANT_BYTES, lane);
                acc = fmaf((float)dot, dw * quant[b].scale, acc);
            }
            tile->out[row * tile->out_stride + lane] = acc;
        }
    }
}

void matmul_q4_0_c(const struct matmul_tile *tile)
{
    uint32_t blocks = tile->columns / QUANT_VALUES;
    for (uint32_t row = 0; row < tile->rows; row++) {
        const struct quant_block *quant = tile->quant + (size_t)row * blocks;
        for (uint32_t lane = 0; lane < tile->lanes; lane++) {
            float acc = 0.0f;
            for (uint32_t b = 0; b < blocks; b++) {
                const uint8_t *weights = tile->weights + (size_t)b * Q4_0_GROUP_BLOCK_BYTES;
                int32_t dot = dot_nibbles(weights, lane, quant[b].values) + quant[b].minus_8_sum;
                float dw = lane_f16(weights + Q4_GROUP_QUANT_BYTES, lane);
                acc = fmaf((float)dot, dw * quant[b].scale, acc);
            }
            tile->out[row * tile->out_stride + lane] = acc;
        }
    }
}

void matmul_q4_1_c(const struct matmul_tile *tile)
{
    uint32_t blocks = tile->columns / QUANT_VALUES;
    for (uint32_t row = 0; row < tile->rows; row++) {
        const struct quant_block *quant = tile->quant + (size_t)row * blocks;
        for (uint32_t lane = 0; lane < tile->lanes; lane++) {
            float acc = 0.0f;
            for (uint32_t b = 0; b < blocks; b++) {
                const uint8_t *weights = tile->weights + (size_t)b * Q4_1_GROUP_BLOCK_BYTES;
                const uint8_t *scales = weights + Q4_GROUP_QUANT_BYTES;
                int32_t dot = dot_nibbles(weights, lane, quant[b].values);
                acc = fmaf((float)dot, lane_f16(scales, lane) * quant[b].scale, acc);
                acc = fmaf(lane_f16(scales + GROUP_SCALE_BYTES, lane), quant[b].scale_sum, acc);
            }
            tile->out[row * tile->out_stride + lane] = acc;
        }
    }
}

static float weight_f32(const uint8_t *weights, size_t index)
{
    float value;
    memcpy(&value, weights + index * sizeof(value), sizeof(value));
    return value;
}

static float weight_f16(const uint8_t *weights, size_t index)
{
    uint16_t half;
    memcpy(&half, weights + index * sizeof(half), sizeof(half));
    return f32_from_f16(half);
}

static float weight_bf16(const uint8_t *weights, size_t index)
{
    uint16_t half;
    memcpy(&half, weights + index * sizeof(half), sizeof(half));
    return f32_from_bf16(half);
}

// Inlined with a constant `weight`, so that each type gets its own loop.
static inline void matmul_floats(const struct matmul_tile *tile,
                                 float (*weight)(const uint8_t *, size_t))
{
    for (uint32_t row = 0; row < tile->rows; row++) {
        const float *x = tile->x + (size_t)row * tile->columns;
        for (uint32_t lane = 0; lane < tile->lanes; lane++) {
            float acc = 0.0f;
            for (uint32_t k = 0; k < tile->columns; k++) {
                acc = fmaf(weight(tile->weights, (size_t)k * MATRIX_LANES + lane), x[k], acc);
            }
            tile->out[row * tile->out_stride + lane] = acc;
        }
    }
}

void matmul_f32_c(const struct matmul_tile *tile)
{
    matmul_floats(tile, weight_f32);
}

void matmul_f16_c(const struct matmul_tile *tile)
{
    matmul_floats(tile, weight_f16);
}

void matmul_bf16_c(const struct matmul_tile *tile)
{
    matmul_floats(tile, weight_bf16);
}
