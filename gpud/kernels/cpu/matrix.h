// SPDX-License-Identifier: Apache-2.0
// Packed weights: memory, packing from GGUF form, and single rows back as f32. The layout is the
// one of kernels_backend.h, the same for every set. A matrix owns its memory; filling is for one
// thread (or several, on different groups of 16 rows), reading for any.
#ifndef KVTIER_GPUD_KERNELS_CPU_MATRIX_H
#define KVTIER_GPUD_KERNELS_CPU_MATRIX_H

#include "gpud/kernels/kernels_backend.h"

struct matrix {
    enum tensor_type type;
    enum matrix_kind kind;
    uint32_t rows;
    uint32_t columns;
    uint32_t group_count; // ceil(rows / 16)
    size_t group_bytes;   // of one packed row group
    uint8_t *data;        // [group_count][group_bytes]
};

// Whether activations are quantized for it.
static inline bool matrix_is_quantized(const struct matrix *matrix)
{
    return matrix->kind >= MATRIX_KIND_Q8_0;
}

// out [columns] = row `row`, dequantized as docs/NUMERICS.md §3 says.
void matrix_row(const struct matrix *matrix, uint32_t row, float *out);

#endif
