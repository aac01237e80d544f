// SPDX-License-Identifier: Apache-2.0
// The tables of the CPU's instruction sets and the choice among them by what this CPU reports.

#include "gpud/kernels/cpu/cpu_kernels.h"

static const struct kernels_backend BACKEND_C = {
    .set = KERNEL_SET_C,
    .quantize = quantize_c,
    .matmul = {[MATRIX_KIND_F32] = matmul_f32_c,
               [MATRIX_KIND_F16] = matmul_f16_c,
               [MATRIX_KIND_BF16] = matmul_bf16_c,
               [MATRIX_KIND_Q8_0] = matmul_q8_0_c,
               [MATRIX_KIND_Q4_0] = matmul_q4_0_c,
               [MATRIX_KIND_Q4_1] = matmul_q4_1_c},
    .rms_norm = rms_norm_c,
    .rope = rope_c,
    .silu_mul = silu_mul_c,
    .add = add_c,
    .narrow = narrow_c,
    .widen = widen_c,
    .attend = attend_c,
    .merge = merge_c,
    .finish = finish_c,
};

const struct kernels_backend *kernels_backend_find(enum kernel_set set)
{
    return set == KERNEL_SET_C ? &BACKEND_C : NULL;
}
