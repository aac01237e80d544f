// SPDX-License-Identifier: Apache-2.0
// The implementer's side of the kernels: one const table of leaf operations. Each entry computes
// one small piece (a row, 16 outputs, a block of tokens) and touches no shared state; kernels_*.c
// decides the splitting over threads and calls them from the pool's threads, on disjoint outputs.
// Plain C is complete and the reference; the other sets override entries and equal it bit for bit
// (docs/NUMERICS.md). Never: allocate, lock, start threads, keep state between calls.
#ifndef KVTIER_GPUD_KERNELS_BACKEND_H
#define KVTIER_GPUD_KERNELS_BACKEND_H

#include "gpud/kernels/kernels.h"

#include <stddef.h>
#include <stdint.h>

enum {
    MATRIX_LANES = 16,     // rows of a matrix that are packed interleaved: a *row group*
    QUANT_VALUES = 32,     // values of K that share a scale
    MATRIX_KIND_COUNT = 6, // enum matrix_kind
    PANEL_WIDTH_MAX = 32,  // queries of a panel
    PANEL_DIMS = 8,        // dimensions of a head that uses panels are a multiple of it
};

// How packed weights are computed with; index of kernels_backend.matmul.
enum matrix_kind {
    MATRIX_KIND_F32 = 0,
    MATRIX_KIND_F16,
    MATRIX_KIND_BF16,
    MATRIX_KIND_Q8_0,
    MATRIX_KIND_Q4_0,
    MATRIX_KIND_Q4_1,
};

// Packed weights: row groups one after another, rows beyond the last are zero. A row group is, in
// order of K,
//   F32, F16, BF16  [columns][16] values
//   Q8_0            [columns/32] of { [8][16][4] u8 = w + 128; [16] f16 scale }
//   Q4_0            [columns/32] of { [4][16][4] u8 nibbles; [16] f16 scale }
//   Q4_1            [columns/32] of { [4][16][4] u8 nibbles; [16] f16 scale; [16] f16 minimum }
// [s][16 rows][4]: four consecutive values of K of each row, as one lane of an integer dot product.
// In a byte of nibbles (s, row, j) the low one is value 4s + j of the block, the high one value 16
// + 4s + j.
enum {
    Q8_0_GROUP_QUANT_BYTES = QUANT_VALUES * MATRIX_LANES,
    Q4_GROUP_QUANT_BYTES = QUANT_VALUES * MATRIX_LANES / 2,
    GROUP_SCALE_BYTES = MATRIX_LANES * 2,
    Q8_0_GROUP_BLOCK_BYTES = Q8_0_GROUP_QUANT_BYTES + GROUP_SCALE_BYTES,
    Q4_0_GROUP_BLOCK_BYTES = Q4_GROUP_QUANT_BYTES + GROUP_SCALE_BYTES,
    Q4_1_GROUP_BLOCK_BYTES = Q4_GROUP_QUANT_BYTES + 2 * GROUP_SCALE_BYTES,
};

// 32 quantized activations of one row.
struct quant_block {
    float scale;           // d
    float scale_sum;       // d * sum
    int32_t minus_8_sum;   // corrects nibbles that stand for nibble - 8
    int32_t minus_128_sum; // corrects weights kept as w + 128
    int8_t values[QUANT_VALUES];
};

// 16 outputs (one row group) for `rows` activation rows.
struct matmul_tile {
    const uint8_t *weights;          // the row group
    const struct quant_block *quant; // [rows][columns/32], or NULL for float weights
    const float *x;                  // [rows][columns], float weights only
    float *out;                      // [rows][out_stride], lanes at its start
    size_t out_stride;               // floats between two rows of out
    uint32_t columns;                // K
    uint32_t rows;                   // >= 1
    uint32_t lanes;                  // outputs to write, 1..16
};

// Queries of one KV head that attend the same tokens of a block, and their running state.
struct attention_tile {
    uint32_t query_count;
    uint32_t head_dim;
    uint32_t block_tokens;
    const float *q; // [query_count][head_dim], times the scale
    float *max;     // [query_count]
    float *sum;     // [query_count]
    float *out;     // [query_count][head_dim], not yet divided by sum
    float *scores;  // [query_count][block_tokens], scratch
};

// Keys and values of one block and KV head; the wide pair is used when it is not NULL.
struct attention_block {
    const uint16_t *k;   // [head_dim][block_tokens] f16
    const uint16_t *v;   // [block_tokens][head_dim] f16
    const float *wide_k; // the same in f32, or NULL
    const float *wide_v;
    const uint16_t *next_k; // of the block that follows (its v too), worth prefetching; or NULL
    const uint16_t *next_v;
    uint32_t token_count; // 1..block_tokens of them are attended
};

// The same for many queries, laid out so that lanes are queries: `width` is a multiple of 16, lanes
// that stand for no query have token count 0.
struct attention_panel {
    uint32_t width;    // 16 or 32
    uint32_t head_dim; // a multiple of PANEL_DIMS
    uint32_t block_tokens;
    const float *q; // [head_dim][width], times the scale
    float *max;     // [width]
    float *sum;     // [width]
    float *out;     // [head_dim][width], not yet divided by sum
    float *scores;  // [block_tokens][width], scratch
};

struct kernels_backend {
    enum kernel_set set;

    // out [columns/32] = the quantized form of x [columns].
    void (*quantize)(const float *x, uint32_t columns, struct quant_block *out);
    // Products of one row group, by enum matrix_kind.
    void (*matmul[MATRIX_KIND_COUNT])(const struct matmul_tile *tile);

    // out [columns] = x / sqrt(mean(x^2) + epsilon) * weight; out may be x.
    void (*rms_norm)(const float *x, const float *weight, uint32_t columns, float epsilon,
                     float *out);
    // Turns pair_count pairs of one head in place; angles [pair_count][2] = cos, sin.
    void (*rope)(float *head, const float *angles, uint32_t pair_count, enum rope_kind kind);
    // out = silu(gate) * up; out may be gate.
    void (*silu_mul)(const float *gate, const float *up, size_t count, float *out);
    // x += y.
    void (*add)(float *x, const float *y, size_t count);
    // f32 to f16, and f16 to f32.
    void (*narrow)(const float *x, size_t count, uint16_t *out);
    void (*widen)(const uint16_t *x, size_t count, float *out);

    // Folds one block into the state of every query of the tile.
    void (*attend)(const struct attention_tile *tile, const struct attention_block *block);
    // Merges the state of a finished span into `state`, query by query.
    void (*merge)(const struct attention_tile *span, const struct attention_tile *state);
    // out [head_dim] = o / sum.
    void (*finish)(const float *o, float sum, uint32_t head_dim, float *out);

    // attend and merge for panels: query i attends token_counts[i] tokens (0..block_tokens) of a
    // widened block; spans merge for queries from `first_query` on. Both NULL: the row-wise entries
    // are used.
    void (*attend_panel)(const struct attention_panel *panel, const struct attention_block *block,
                         const uint32_t *token_counts);
    void (*merge_panel)(const struct attention_panel *span, const struct attention_panel *state,
                        uint32_t first_query);
};

// The table of a set that this CPU can run (never AUTO); NULL when it cannot, or when it is not
// built.
const struct kernels_backend *kernels_backend_find(enum kernel_set set);

#endif
