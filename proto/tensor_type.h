// SPDX-License-Identifier: Apache-2.0
// How the values of a weight tensor are stored in a GGUF file: the one list that the model library
// (which checks files) and the kernels (which pack weights) share. Pure functions, any thread.
#ifndef KVTIER_PROTO_TENSOR_TYPE_H
#define KVTIER_PROTO_TENSOR_TYPE_H

#include <stddef.h>
#include <stdint.h>

// Numbers are GGUF's tensor types.
enum tensor_type {
    TENSOR_TYPE_F32 = 0,
    TENSOR_TYPE_F16 = 1,
    TENSOR_TYPE_Q4_0 = 2, // 32 values: f16 scale, 16 bytes of nibbles
    TENSOR_TYPE_Q4_1 = 3, // 32 values: f16 scale, f16 minimum, 16 bytes of nibbles
    TENSOR_TYPE_Q8_0 = 8, // 32 values: f16 scale, 32 int8
    TENSOR_TYPE_BF16 = 30,
};

// A run of `values` consecutive values takes `bytes` bytes; {0, 0} for a type we do not read.
struct tensor_type_block {
    uint32_t values;
    uint32_t bytes;
};

// The block of a type.
static inline struct tensor_type_block tensor_type_block(enum tensor_type type)
{
    switch (type) {
    case TENSOR_TYPE_F32:
        return (struct tensor_type_block){1, 4};
    case TENSOR_TYPE_F16:
    case TENSOR_TYPE_BF16:
        return (struct tensor_type_block){1, 2};
    case TENSOR_TYPE_Q4_0:
        return (struct tensor_type_block){32, 18};
    case TENSOR_TYPE_Q4_1:
        return (struct tensor_type_block){32, 20};
    case TENSOR_TYPE_Q8_0:
        return (struct tensor_type_block){32, 34};
    }
    return (struct tensor_type_block){0, 0};
}

// Bytes of one row of `columns` values as GGUF stores it; 0 when the type is unknown, `columns` is
// not a multiple of the type's block, or the size does not fit.
static inline size_t tensor_row_bytes(enum tensor_type type, uint64_t columns)
{
    struct tensor_type_block block = tensor_type_block(type);
    if (block.values == 0 || columns % block.values != 0) {
        return 0;
    }
    uint64_t blocks = columns / block.values;
    return blocks > SIZE_MAX / block.bytes ? 0 : (size_t)(blocks * block.bytes);
}

#endif
