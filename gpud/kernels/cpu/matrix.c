// SPDX-License-Identifier: Apache-2.0
// Packing interleaves 16 rows so that one load brings the same values of K for 16 outputs: every
// float sum then runs in one lane, in order of K, which is what makes results equal over
// instruction sets.

#include "gpud/kernels/cpu/matrix.h"

#include "gpud/kernels/cpu/f16.h"
#include "gpud/kernels/kernels_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE_BYTES = 2 << 20, CACHE_LINE_BYTES = 64 };

// How each tensor type is packed; 0 bytes for types that are not.
struct packing {
    enum matrix_kind kind;
    uint32_t values;      // of K in one packed unit
    uint32_t group_bytes; // of that unit for 16 rows
};

static struct packing packing_of(enum tensor_type type)
{
    switch (type) {
    case TENSOR_TYPE_F32:
        return (struct packing){MATRIX_KIND_F32, 1, 4 * MATRIX_LANES};
    case TENSOR_TYPE_F16:
        return (struct packing){MATRIX_KIND_F16, 1, 2 * MATRIX_LANES};
    case TENSOR_TYPE_BF16:
        return (struct packing){MATRIX_KIND_BF16, 1, 2 * MATRIX_LANES};
    case TENSOR_TYPE_Q8_0:
        return (struct packing){MATRIX_KIND_Q8_0, QUANT_VALUES, Q8_0_GROUP_BLOCK_BYTES};
    case TENSOR_TYPE_Q4_0:
        return (struct packing){MATRIX_KIND_Q4_0, QUANT_VALUES, Q4_0_GROUP_BLOCK_BYTES};
    case TENSOR_TYPE_Q4_1:
        return (struct packing){MATRIX_KIND_Q4_1, QUANT_VALUES, Q4_1_GROUP_BLOCK_BYTES};
    }
    return (struct packing){0};
}

// Zeroed memory; large matrices ask for huge pages, since a decode step walks through all of them.
static uint8_t *weights_allocate(size_t bytes)
{
    size_t alignment = bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : CACHE_LINE_BYTES;
    size_t padded = (bytes + alignment - 1) / alignment * alignment;
    uint8_t *data = aligned_alloc(alignment, padded);
    if (data == NULL) {
        return NULL;
    }
    if (alignment == HUGE_PAGE_BYTES) {
        (void)madvise(data, padded, MADV_HUGEPAGE); // a hint; without it only slower
    }
    memset(data, 0, padded);
    return data;
}

enum status matrix_create(struct kernels *kernels, enum tensor_type type, uint32_t rows,
                          uint32_t columns, struct matrix **out_matrix)
{
    struct packing packing = packing_of(type);
    if (packing.group_bytes == 0) {
        return STATUS_UNSUPPORTED;
    }
    if (rows == 0 || columns == 0 || columns % packing.values != 0 ||
        columns > kernels->options.column_count_max) {
        return STATUS_INVALID;
    }
    struct matrix *matrix = malloc(sizeof(*matrix));
    if (matrix == NULL) {
        return STATUS_NO_MEMORY;
    }
    uint32_t groups = rows / MATRIX_LANES + (rows % MATRIX_LANES != 0);
    *matrix = (struct matrix){
        .type = type,
        .kind = packing.kind,
        .rows = rows,
        .columns = columns,
        .group_count = groups,
        .group_bytes = (size_t)columns / packing.values * packing.group_bytes,
    };
    matrix->data = weights_allocate(matrix_bytes(matrix));
    if (matrix->data == NULL) {
        free(matrix);
        return STATUS_NO_MEMORY;
    }
    *out_matrix = matrix;
    return STATUS_OK;
}

void matrix_destroy(struct matrix *matrix)
{
    if (matrix != NULL) {
        free(matrix->data);
        free(matrix);
    }
}

size_t matrix_bytes(const struct matrix *matrix)
{
    return matrix->group_bytes * matrix->group_count;
}

// One row of floats of `bytes` each into its lane.
static void pack_floats(uint8_t *group, uint32_t lane, const uint8_t *row, uint32_t columns,
                        size_t bytes)
{
    for (size_t k = 0; k < columns; k++) {
        memcpy(group + (k * MATRIX_LANES + lane) * bytes, row + k * bytes, bytes);
    }
}

// GGUF block: f16 scale, 32 int8.
static void pack_q8_0(uint8_t *group, uint32_t lane, const uint8_t *row, uint32_t columns)
{
    for (uint32_t b = 0; b < columns / QUANT_VALUES; b++, row += 34) {
        uint8_t *block = group + (size_t)b * Q8_0_GROUP_BLOCK_BYTES;
        for (uint32_t k = 0; k < QUANT_VALUES; k++) {
            block[(k / 4 * MATRIX_LANES + lane) * 4 + k % 4] = row[2 + k] ^ 0x80; // w + 128
        }
        memcpy(block + Q8_0_GROUP_QUANT_BYTES + 2 * (size_t)lane, row, 2);
    }
}

// GGUF block: f16 scale [, f16 minimum], 16 bytes whose low nibbles are values 0..15.
static void pack_q4(uint8_t *group, uint32_t lane, const uint8_t *row, const struct matrix *matrix)
{
    bool minimum = matrix->kind == MATRIX_KIND_Q4_1;
    size_t source_bytes = minimum ? 20 : 18;
    size_t block_bytes = minimum ? Q4_1_GROUP_BLOCK_BYTES : Q4_0_GROUP_BLOCK_BYTES;
    for (uint32_t b = 0; b < matrix->columns / QUANT_VALUES; b++, row += source_bytes) {
        uint8_t *block = group + b * block_bytes;
        uint8_t *scales = block + Q4_GROUP_QUANT_BYTES + 2 * (size_t)lane;
        const uint8_t *nibbles = row + (minimum ? 4 : 2);
        for (uint32_t s = 0; s < 4; s++) {
            memcpy(block + (s * MATRIX_LANES + lane) * 4, nibbles + 4 * (size_t)s, 4);
        }
        memcpy(scales, row, 2);
        if (minimum) {
            memcpy(scales + GROUP_SCALE_BYTES, row + 2, 2);
        }
    }
}

void matrix_fill(struct matrix *matrix, uint32_t first_row, uint32_t row_count, const void *source)
{
    assert(row_count <= matrix->rows && first_row <= matrix->rows - row_count);
    const uint8_t *row = source;
    for (uint32_t r = first_row; r < first_row + row_count; r++) {
        uint8_t *group = matrix->data + r / MATRIX_LANES * matrix->group_bytes;
        uint32_t lane = r % MATRIX_LANES;
        switch (matrix->kind) {
        case MATRIX_KIND_F32:
            pack_floats(group, lane, row, matrix->columns, 4);
            break;
        case MATRIX_KIND_F16:
        case MATRIX_KIND_BF16:
            pack_floats(group, lane, row, matrix->columns, 2);
            break;
        case MATRIX_KIND_Q8_0:
            pack_q8_0(group, lane, row, matrix->columns);
            break;
        case MATRIX_KIND_Q4_0:
        case MATRIX_KIND_Q4_1:
            pack_q4(group, lane, row, matrix);
            break;
        }
        row += tensor_row_bytes(matrix->type, matrix->columns);
    }
}

static uint16_t half_at(const uint8_t *bytes, size_t index)
{
    uint16_t half;
    memcpy(&half, bytes + 2 * index, sizeof(half));
    return half;
}

static void row_q8_0(const uint8_t *group, uint32_t lane, uint32_t columns, float *out)
{
    for (uint32_t k = 0; k < columns; k++) {
        const uint8_t *block = group + (size_t)(k / QUANT_VALUES) * Q8_0_GROUP_BLOCK_BYTES;
        uint32_t i = k % QUANT_VALUES;
        int32_t value = block[(i / 4 * MATRIX_LANES + lane) * 4 + i % 4] - 128;
        out[k] = f32_from_f16(half_at(block + Q8_0_GROUP_QUANT_BYTES, lane)) * (float)value;
    }
}

static void row_q4(const uint8_t *group, uint32_t lane, const struct matrix *matrix, float *out)
{
    bool minimum = matrix->kind == MATRIX_KIND_Q4_1;
    size_t block_bytes = minimum ? Q4_1_GROUP_BLOCK_BYTES : Q4_0_GROUP_BLOCK_BYTES;
    for (uint32_t k = 0; k < matrix->columns; k++) {
        const uint8_t *block = group + k / QUANT_VALUES * block_bytes;
        const uint8_t *scales = block + Q4_GROUP_QUANT_BYTES;
        uint32_t i = k % (QUANT_VALUES / 2);
        uint8_t byte = block[(i / 4 * MATRIX_LANES + lane) * 4 + i % 4];
        int32_t nibble = k % QUANT_VALUES < QUANT_VALUES / 2 ? byte & 15 : byte >> 4;
        float scale = f32_from_f16(half_at(scales, lane));
        if (minimum) {
            float product = scale * (float)nibble;
            out[k] = product + f32_from_f16(half_at(scales + GROUP_SCALE_BYTES, lane));
        } else {
            out[k] = scale * (float)(nibble - 8);
        }
    }
}

static void row_floats(const uint8_t *group, uint32_t lane, const struct matrix *matrix, float *out)
{
    for (size_t k = 0; k < matrix->columns; k++) {
        size_t index = k * MATRIX_LANES + lane;
        if (matrix->kind == MATRIX_KIND_F32) {
            memcpy(&out[k], group + index * sizeof(float), sizeof(float));
        } else if (matrix->kind == MATRIX_KIND_F16) {
            out[k] = f32_from_f16(half_at(group, index));
        } else {
            out[k] = f32_from_bf16(half_at(group, index));
        }
    }
}

void matrix_row(const struct matrix *matrix, uint32_t row, float *out)
{
    assert(row < matrix->rows);
    const uint8_t *group = matrix->data + row / MATRIX_LANES * matrix->group_bytes;
    uint32_t lane = row % MATRIX_LANES;
    switch (matrix->kind) {
    case MATRIX_KIND_F32:
    case MATRIX_KIND_F16:
    case MATRIX_KIND_BF16:
        row_floats(group, lane, matrix, out);
        break;
    case MATRIX_KIND_Q8_0:
        row_q8_0(group, lane, matrix->columns, out);
        break;
    case MATRIX_KIND_Q4_0:
    case MATRIX_KIND_Q4_1:
        row_q4(group, lane, matrix, out);
        break;
    }
}
