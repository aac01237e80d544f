// SPDX-License-Identifier: Apache-2.0
// The leaf operations of each instruction set, under one naming scheme, for the tables in
// cpu_backend.c. What each does: gpud/kernels/kernels_backend.h. The _avx2 and _avx512 ones may
// only run on CPUs that have those instructions.
#ifndef KVTIER_GPUD_KERNELS_CPU_KERNELS_H
#define KVTIER_GPUD_KERNELS_CPU_KERNELS_H

#include "gpud/kernels/kernels_backend.h"

#define CPU_KERNELS_DECLARE(set)                                                                   \
    void quantize_##set(const float *x, uint32_t columns, struct quant_block *out);                \
    void matmul_f32_##set(const struct matmul_tile *tile);                                         \
    void matmul_f16_##set(const struct matmul_tile *tile);                                         \
    void matmul_bf16_##set(const struct matmul_tile *tile);                                        \
    void matmul_q8_0_##set(const struct matmul_tile *tile);                                        \
    void matmul_q4_0_##set(const struct matmul_tile *tile);                                        \
    void matmul_q4_1_##set(const struct matmul_tile *tile);                                        \
    void rms_norm_##set(const float *x, const float *weight, uint32_t columns, float epsilon,      \
                        float *out);                                                               \
    void rope_##set(float *head, const float *angles, uint32_t pair_count, enum rope_kind kind);   \
    void silu_mul_##set(const float *gate, const float *up, size_t count, float *out);             \
    void add_##set(float *x, const float *y, size_t count);                                        \
    void narrow_##set(const float *x, size_t count, uint16_t *out);                                \
    void widen_##set(const uint16_t *x, size_t count, float *out);                                 \
    void attend_##set(const struct attention_tile *tile, const struct attention_block *block);     \
    void merge_##set(const struct attention_tile *span, const struct attention_tile *state);       \
    void finish_##set(const float *o, float sum, uint32_t head_dim, float *out);

// Plain C has none: its panels would be its rows.
#define CPU_PANELS_DECLARE(set)                                                                    \
    void attend_panel_##set(const struct attention_panel *panel,                                   \
                            const struct attention_block *block, const uint32_t *token_counts);    \
    void merge_panel_##set(const struct attention_panel *span,                                     \
                           const struct attention_panel *state, uint32_t first_query);

CPU_KERNELS_DECLARE(c)
CPU_KERNELS_DECLARE(avx2)
CPU_KERNELS_DECLARE(avx512)
CPU_PANELS_DECLARE(avx2)
CPU_PANELS_DECLARE(avx512)

#endif
