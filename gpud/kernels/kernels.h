// SPDX-License-Identifier: Apache-2.0
// The user's side of the kernels: the operations of one step of a transformer, run by a chosen set
// (plain C, AVX2, AVX-512) on a thread pool of its own. Owns packed weights, the pool and all
// workspace, taken at creation; no call after creation allocates, locks (beyond the pool's
// hand-over) or logs. One owner thread (the engine) makes all calls. Results are bit-identical for
// every set, thread count and number of rows: docs/NUMERICS.md is the contract. Never: reads files,
// knows models, decides placement.
#ifndef KVTIER_GPUD_KERNELS_H
#define KVTIER_GPUD_KERNELS_H

#include "proto/block.h"
#include "proto/status.h"
#include "proto/tensor_type.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KERNELS_NUMERICS_VERSION = 1 }; // N of the numerics id `cpu-N` in the fingerprint

enum kernel_set {
    KERNEL_SET_AUTO = 0, // the fastest this CPU has
    KERNEL_SET_C,
    KERNEL_SET_AVX2,   // needs AVX2, FMA, F16C
    KERNEL_SET_AVX512, // needs AVX-512 F, BW, DQ, VL, VNNI
    KERNEL_SET_NEON,   // not built yet
};

enum rope_kind {
    ROPE_KIND_NORMAL = 0, // pairs (2i, 2i+1), architecture `llama`
    ROPE_KIND_NEOX = 1,   // pairs (i, i + dim/2)
};

struct kernels; // a set bound to a pool and workspace
struct matrix;  // packed weights [rows (outputs), columns (K)]

// The largest shapes that calls will use; workspace is sized by them.
struct kernels_options {
    enum kernel_set set;
    uint32_t thread_count;     // >= 1
    uint32_t row_count_max;    // tokens in one step
    uint32_t column_count_max; // longest K of any product
    uint32_t heads_max;        // query heads
    uint32_t head_dim_max;
    uint32_t block_tokens;
    uint32_t block_count_max; // blocks of one sequence
};

// STATUS_UNSUPPORTED when this CPU lacks the set (reason names what is missing), STATUS_NO_MEMORY.
enum status kernels_create(const struct kernels_options *options, struct kernels **out_kernels,
                           struct reason *reason) KV_MUST_CHECK;
void kernels_destroy(struct kernels *kernels); // NULL is fine

// Whether this CPU can run `set`.
bool kernels_set_supported(enum kernel_set set);
// "c", "avx2", "avx512", "neon", "auto"; and back (false when unknown).
const char *kernels_set_name(enum kernel_set set);
bool kernels_set_parse(const char *name, enum kernel_set *out_set);
// The set in use (never AUTO), and the workspace held, in bytes.
enum kernel_set kernels_set(const struct kernels *kernels);
size_t kernels_workspace_bytes(const struct kernels *kernels);

// ---- weights

// An empty packed matrix; fill every row with matrix_fill before use. Owned by the caller, who
// destroys it before `kernels`.
enum status matrix_create(struct kernels *kernels, enum tensor_type type, uint32_t rows,
                          uint32_t columns, struct matrix **out_matrix) KV_MUST_CHECK;
void matrix_destroy(struct matrix *matrix);
// Packs `row_count` rows that lie one after another at `source` in GGUF form.
void matrix_fill(struct matrix *matrix, uint32_t first_row, uint32_t row_count, const void *source);
size_t matrix_bytes(const struct matrix *matrix);

// ---- one step; x, y and every activation are f32, row-major, rows = tokens

// out [count, columns] = rows `tokens[i]` of the matrix, dequantized.
void kernels_embed(struct kernels *kernels, const struct matrix *matrix, const uint32_t *tokens,
                   uint32_t count, float *out);

// out[m] [rows, matrices[m]->rows] = x [rows, columns] * matrices[m] transposed, for 1..3 matrices
// that share their input: activations are quantized once. Every output adds its terms in order of
// K.
void kernels_matmul(struct kernels *kernels, const struct matrix *const *matrices,
                    uint32_t matrix_count, const float *x, uint32_t rows, float *const *out);

// out [rows, columns] = x * weight / sqrt(mean(x^2) + epsilon), row by row; out may be x.
void kernels_rms_norm(struct kernels *kernels, const float *x, const float *weight, uint32_t rows,
                      uint32_t columns, float epsilon, float *out);

// Angles of one position: out [dim/2][2] = cos, sin of position * frequency[i] (own polynomial in
// double, so that no libm enters the bits).
void kernels_rope_angles(uint32_t position, const double *frequency, uint32_t pair_count,
                         float *out);

// Turns the first 2*pair_count values of each head of x [rows, heads, head_dim] in place by
// angles [rows, pair_count, 2].
void kernels_rope(struct kernels *kernels, float *x, uint32_t rows, uint32_t heads,
                  uint32_t head_dim, const float *angles, uint32_t pair_count, enum rope_kind kind);

// out = silu(gate) * up, `count` values; out may be gate.
void kernels_silu_mul(struct kernels *kernels, const float *gate, const float *up, size_t count,
                      float *out);

// x += y, `count` values.
void kernels_add(struct kernels *kernels, float *x, const float *y, size_t count);

// The consecutive query rows of one sequence within a step.
struct attention_sequence {
    void *const *blocks; // [last position / block_tokens + 1] payloads of the group, block 0
                         // first, wherever they lie (hot pool, arena); never NULL up to there
    uint32_t first_row;  // of q, k, v and out
    uint32_t row_count;
    uint32_t first_position; // position of first_row in the sequence
};

struct attention_shape {
    uint32_t heads; // query heads, a multiple of kv_heads
    uint32_t kv_heads;
    uint32_t head_dim;
    uint32_t block_tokens;
    size_t layer_offset; // block_layer_offset of the layer within a payload
    float scale;         // of scores, 1 / sqrt(head_dim) as a rule
};

// Writes k, v [rows, kv_heads, head_dim] into the blocks of their positions, rounded to f16.
void kernels_kv_write(struct kernels *kernels, const struct attention_shape *shape,
                      const struct attention_sequence *sequences, uint32_t sequence_count,
                      const float *k, const float *v);

// out [rows, heads, head_dim]: causal attention of q [rows, heads, head_dim]; the row at position p
// attends positions 0..p. Blocks fold left to right within spans of ATTENTION_SPAN_BLOCKS blocks
// (by block index), spans merge left to right, whatever the split over threads.
enum { ATTENTION_SPAN_BLOCKS = 16 };
void kernels_attention(struct kernels *kernels, const struct attention_shape *shape,
                       const struct attention_sequence *sequences, uint32_t sequence_count,
                       const float *q, float *out);

#endif
