// SPDX-License-Identifier: Apache-2.0
// What the files of this folder share: the kernels object and its workspace. Private to
// gpud/kernels.
#ifndef KVTIER_GPUD_KERNELS_INTERNAL_H
#define KVTIER_GPUD_KERNELS_INTERNAL_H

#include "gpud/kernels/cpu/thread_pool.h"
#include "gpud/kernels/kernels_backend.h"

#include <stdatomic.h>

enum {
    // Rows of activations quantized at once; longer calls go in passes, which bounds the workspace.
    MATMUL_PASS_ROWS = 512,
    // Queries (rows x heads of one KV head) that share widened keys and values.
    ATTENTION_TILE_QUERIES = 64,
    // From so many queries on a tile is laid out as panels (lanes are queries).
    ATTENTION_PANEL_QUERIES = 12,
    // Partial states per thread when one query's spans are split over threads.
    ATTENTION_PARTS_PER_THREAD = 64,
    // Vector operations below so many values stay on the calling thread: a hand-over costs about 1
    // us.
    VECTOR_INLINE_VALUES = 16384,
};

// Consecutive rows of one sequence that are attended together.
struct attention_cut {
    const struct attention_sequence *sequence;
    uint32_t first_row; // counted from the sequence's first_row
    uint32_t row_count;
    uint32_t span_count; // up to the last row's position
};

// State of the queries of one tile over some tokens; arrays as in struct attention_tile, or those
// of its panels one after another.
struct attention_state {
    float *max;
    float *sum;
    float *out;
};

// Scratch of one thread.
struct attention_scratch {
    float *q;
    float *scores;
    float *wide_k;
    float *wide_v;
    uint32_t *token_counts; // [PANEL_WIDTH_MAX]
    struct attention_state span;
    struct attention_state total;
};

struct kernels {
    struct kernels_options options;
    const struct kernels_backend *backend;
    struct thread_pool *pool;
    size_t workspace_bytes;
    void *workspace; // everything below lies in it

    struct quant_block *quant;  // [min(row_count_max, MATMUL_PASS_ROWS)][column_count_max/32]
    struct attention_cut *cuts; // [row_count_max]
    struct attention_scratch *scratch; // [thread_count]
    uint32_t part_count;               // thread_count * ATTENTION_PARTS_PER_THREAD
    uint32_t tile_queries;             // max(ATTENTION_TILE_QUERIES, heads_max)
    struct attention_state *parts;     // [part_count] spans of the current round
    struct attention_state *totals;    // [part_count] merged states of split units
    _Atomic uint32_t *parts_left;      // [part_count] spans of a unit that are not finished
};

#endif
