// SPDX-License-Identifier: Apache-2.0
// At stake: packing moves every weight of the model; one that lands in a wrong lane or nibble makes
// a model that talks nonsense fluently. Every type is packed and read back row by row against
// values computed here from the GGUF form, whatever the order of filling, with the source ending at
// an unmapped page.

#include "gpud/kernels/cpu/f16.h"
#include "tests/kernels/kernels_check.h"

enum { ROWS = 37, COLUMNS = 96 };

static struct kernels *kernels;

static int create(void **unused)
{
    (void)unused;
    kernels = check_kernels_create((struct kernels_options){.set = KERNEL_SET_C,
                                                            .thread_count = 1,
                                                            .row_count_max = 1,
                                                            .column_count_max = COLUMNS,
                                                            .heads_max = 1,
                                                            .head_dim_max = 8,
                                                            .block_tokens = 16,
                                                            .block_count_max = 1});
    return 0;
}

static int destroy(void **unused)
{
    (void)unused;
    kernels_destroy(kernels);
    return 0;
}

static uint16_t half_of(const uint8_t *at)
{
    uint16_t half;
    memcpy(&half, at, sizeof(half));
    return half;
}

// Value k of a row in GGUF form, from the format's description.
static float value_of(enum tensor_type type, const uint8_t *row, uint32_t k)
{
    struct tensor_type_block layout = tensor_type_block(type);
    const uint8_t *block = row + k / layout.values * layout.bytes;
    uint32_t i = k % layout.values;
    float scale = f32_from_f16(half_of(block)), value;
    switch (type) {
    case TENSOR_TYPE_F32:
        memcpy(&value, block, sizeof(value));
        return value;
    case TENSOR_TYPE_F16:
        return scale;
    case TENSOR_TYPE_BF16:
        return f32_from_bf16(half_of(block));
    case TENSOR_TYPE_Q8_0:
        return scale * (float)(int8_t)block[2 + i];
    case TENSOR_TYPE_Q4_0:
        return scale * (float)((i < 16 ? block[2 + i] & 15 : block[2 + i - 16] >> 4) - 8);
    case TENSOR_TYPE_Q4_1:
        value = scale * (float)(i < 16 ? block[4 + i] & 15 : block[4 + i - 16] >> 4);
        return value + f32_from_f16(half_of(block + 2));
    }
    return 0.0f;
}

static void check_type(uint64_t *state, enum tensor_type type)
{
    size_t row_bytes = tensor_row_bytes(type, COLUMNS);
    struct check_edge source = check_edge_create(ROWS * row_bytes);
    for (size_t i = 0; i < ROWS * row_bytes; i++) {
        source.data[i] = (uint8_t)check_random(state);
    }
    struct matrix *matrix = NULL;
    CHECK_OK(matrix_create(kernels, type, ROWS, COLUMNS, &matrix));
    assert_true(matrix_bytes(matrix) >= ROWS * row_bytes);
    matrix_fill(matrix, 20, ROWS - 20, source.data + 20 * row_bytes); // later rows first
    matrix_fill(matrix, 0, 3, source.data);
    matrix_fill(matrix, 3, 17, source.data + 3 * row_bytes);
    float got[COLUMNS], want[COLUMNS];
    for (uint32_t row = 0; row < ROWS; row++) {
        kernels_embed(kernels, matrix, &row, 1, got);
        for (uint32_t k = 0; k < COLUMNS; k++) {
            want[k] = value_of(type, source.data + row * row_bytes, k);
        }
        check_floats_equal(got, want, COLUMNS, "a row read back");
    }
    matrix_destroy(matrix);
    check_edge_destroy(&source);
}

static void test_every_type_reads_back(void **unused)
{
    (void)unused;
    uint64_t state = check_seed();
    check_type(&state, TENSOR_TYPE_F32);
    check_type(&state, TENSOR_TYPE_F16);
    check_type(&state, TENSOR_TYPE_BF16);
    check_type(&state, TENSOR_TYPE_Q8_0);
    check_type(&state, TENSOR_TYPE_Q4_0);
    check_type(&state, TENSOR_TYPE_Q4_1);
}

static void test_embedding_takes_rows_in_any_order(void **unused)
{
    (void)unused;
    float source[4][32], out[3][32];
    for (int r = 0; r < 4; r++) {
        for (int k = 0; k < 32; k++) {
            source[r][k] = (float)(100 * r + k);
        }
    }
    struct matrix *matrix = NULL;
    CHECK_OK(matrix_create(kernels, TENSOR_TYPE_F32, 4, 32, &matrix));
    matrix_fill(matrix, 0, 4, source);
    kernels_embed(kernels, matrix, (const uint32_t[]){3, 0, 3}, 3, out[0]);
    assert_memory_equal(out[0], source[3], sizeof(out[0]));
    assert_memory_equal(out[1], source[0], sizeof(out[1]));
    assert_memory_equal(out[2], source[3], sizeof(out[2]));
    matrix_destroy(matrix);
}

static void test_create_refuses(void **unused)
{
    (void)unused;
    struct matrix *matrix = NULL;
    assert_int_equal(matrix_create(kernels, (enum tensor_type)99, 1, 32, &matrix),
                     STATUS_UNSUPPORTED);
    assert_int_equal(matrix_create(kernels, TENSOR_TYPE_Q8_0, 1, 33, &matrix), STATUS_INVALID);
    assert_int_equal(matrix_create(kernels, TENSOR_TYPE_F32, 0, 32, &matrix), STATUS_INVALID);
    assert_int_equal(matrix_create(kernels, TENSOR_TYPE_F32, 1, 4096, &matrix), STATUS_INVALID);
    assert_null(matrix);
    matrix_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type_reads_back),
        cmocka_unit_test(test_embedding_takes_rows_in_any_order),
        cmocka_unit_test(test_create_refuses),
    };
    return cmocka_run_group_tests(tests, create, destroy);
}
