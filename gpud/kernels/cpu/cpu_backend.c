// SPDX-License-Identifier: Apache-2.0
// The tables of the CPU's instruction sets and the choice among them by what this CPU reports.

#include "gpud/kernels/cpu/cpu_kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

// The entries that every set has.
#define CPU_BACKEND(id, name)                                                                      \
    .set = id, .quantize = quantize_##name,                                                        \
    .matmul = {[MATRIX_KIND_F32] = matmul_f32_##name,   [MATRIX_KIND_F16] = matmul_f16_##name,     \
               [MATRIX_KIND_BF16] = matmul_bf16_##name, [MATRIX_KIND_Q8_0] = matmul_q8_0_##name,   \
               [MATRIX_KIND_Q4_0] = matmul_q4_0_##name, [MATRIX_KIND_Q4_1] = matmul_q4_1_##name},  \
    .rms_norm = rms_norm_##name, .rope = rope_##name, .silu_mul = silu_mul_##name,                 \
    .add = add_##name, .narrow = narrow_##name, .widen = widen_##name, .attend = attend_##name,    \
    .merge = merge_##name, .finish = finish_##name

static const struct kernels_backend BACKEND_C = {CPU_BACKEND(KERNEL_SET_C, c)};

#if defined(__x86_64__)
static const struct kernels_backend BACKEND_AVX2 = {
    CPU_BACKEND(KERNEL_SET_AVX2, avx2),
    .attend_panel = attend_panel_avx2,
    .merge_panel = merge_panel_avx2,
};

static const struct kernels_backend BACKEND_AVX512 = {
    CPU_BACKEND(KERNEL_SET_AVX512, avx512),
    .attend_panel = attend_panel_avx512,
    .merge_panel = merge_panel_avx512,
};

// From CPUID itself: clang 14's __builtin_cpu_supports does not know the name.
static bool cpu_has_f16c(void)
{
    unsigned int a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}

static bool cpu_has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && cpu_has_f16c();
}

static bool cpu_has_avx512(void)
{
    return cpu_has_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}
#endif

const struct kernels_backend *kernels_backend_find(enum kernel_set set)
{
    switch (set) {
    case KERNEL_SET_C:
        return &BACKEND_C;
#if defined(__x86_64__)
    case KERNEL_SET_AVX2:
        return cpu_has_avx2() ? &BACKEND_AVX2 : NULL;
    case KERNEL_SET_AVX512:
        return cpu_has_avx512() ? &BACKEND_AVX512 : NULL;
#endif
    default:
        return NULL;
    }
}
