// SPDX-License-Identifier: Apache-2.0
// At stake: every logit. A product that differs by one bit between sets, thread counts or batch
// shapes breaks resume, prefix reuse and speculation, all of which rely on equality. Plain C is
// compared with binary64, then every set with plain C by equality, over types, odd shapes, extreme
// scales, and memory that ends at an unmapped page.

#include "gpud/kernels/kernels_backend.h"
#include "tests/kernels/kernels_check.h"

#include "gpud/kernels/cpu/f16.h"

#include <math.h>

static enum kernel_set set_under_test;

static const enum tensor_type TYPES[] = {TENSOR_TYPE_F32,  TENSOR_TYPE_F16,  TENSOR_TYPE_BF16,
                                         TENSOR_TYPE_Q8_0, TENSOR_TYPE_Q4_0, TENSOR_TYPE_Q4_1};
enum { TYPE_COUNT = sizeof(TYPES) / sizeof(TYPES[0]) };

static bool quantized(enum tensor_type type)
{
    return tensor_type_block(type).values == QUANT_VALUES;
}

static void put_half(uint8_t *at, uint16_t half)
{
    memcpy(at, &half, sizeof(half));
}

// `values` random weights in GGUF form; quants take every value, scales are about `scale`.
static uint8_t *random_weights(uint64_t *state, enum tensor_type type, size_t values, float scale)
{
    struct tensor_type_block block = tensor_type_block(type);
    size_t bytes = values / block.values * block.bytes;
    uint8_t *weights = malloc(bytes + 1);
    for (size_t i = 0; i < bytes; i++) {
        weights[i] = (uint8_t)check_random(state);
    }
    for (size_t at = 0; at < bytes; at += block.bytes) {
        float value = check_float(state, scale);
        if (type == TENSOR_TYPE_F32) {
            memcpy(weights + at, &value, sizeof(value));
        } else if (type == TENSOR_TYPE_BF16) {
            put_half(weights + at, (uint16_t)(float_bits(value) >> 16));
        } else {
            put_half(weights + at, f16_from_f32(value));
            if (type == TENSOR_TYPE_Q4_1) {
                put_half(weights + at + 2, f16_from_f32(check_float(state, scale)));
            }
        }
    }
    return weights;
}

struct shape {
    uint32_t rows, columns, x_rows;
};

static struct kernels *kernels_for(enum kernel_set set, uint32_t threads, uint32_t rows)
{
    return check_kernels_create((struct kernels_options){.set = set,
                                                         .thread_count = threads,
                                                         .row_count_max = rows,
                                                         .column_count_max = 2048,
                                                         .heads_max = 1,
                                                         .head_dim_max = 8,
                                                         .block_tokens = 16,
                                                         .block_count_max = 1});
}

static struct matrix *matrix_from(struct kernels *kernels, enum tensor_type type,
                                  const struct shape *shape, const uint8_t *weights)
{
    struct matrix *matrix = NULL;
    CHECK_OK(matrix_create(kernels, type, shape->rows, shape->columns, &matrix));
    size_t row_bytes = tensor_row_bytes(type, shape->columns);
    uint32_t half = shape->rows / 2; // in two calls, as a loader does
    matrix_fill(matrix, 0, half, weights);
    matrix_fill(matrix, half, shape->rows - half, weights + half * row_bytes);
    return matrix;
}

// out [x_rows, rows], in one call.
static float *product(struct kernels *kernels, enum tensor_type type, const struct shape *shape,
                      const uint8_t *weights, const float *x)
{
    struct matrix *matrix = matrix_from(kernels, type, shape, weights);
    float *out = malloc(((size_t)shape->x_rows * shape->rows + 1) * sizeof(*out));
    out[(size_t)shape->x_rows * shape->rows] = 7.0f;
    kernels_matmul(kernels, (const struct matrix *const[]){matrix}, 1, x, shape->x_rows,
                   (float *const[]){out});
    assert_true(out[(size_t)shape->x_rows * shape->rows] == 7.0f);
    matrix_destroy(matrix);
    return out;
}

// The bound on the error of one output: rounding of x to 1/127 of its block's largest, and of the
// sums.
static double error_bound(const float *w, const float *x, uint32_t columns, bool rounded)
{
    double bound = 0;
    for (uint32_t first = 0; first < columns; first += QUANT_VALUES) {
        uint32_t count = columns - first < QUANT_VALUES ? columns - first : QUANT_VALUES;
        double amax = 0, weights = 0;
        for (uint32_t i = first; i < first + count; i++) {
            amax = fmax(amax, fabs((double)x[i]));
            weights += fabs((double)w[i]);
        }
        bound += weights * amax * ((rounded ? 1.01 / 254 : 0) + columns * 0x1p-23);
    }
    return bound;
}

static void test_plain_c_is_near_binary64(void **unused)
{
    (void)unused;
    uint64_t state = check_seed();
    struct kernels *kernels = kernels_for(KERNEL_SET_C, 1, 3);
    struct shape shape = {.rows = 19, .columns = 160, .x_rows = 3};
    float *w = malloc(shape.columns * sizeof(*w));
    for (int t = 0; t < TYPE_COUNT; t++) {
        uint8_t *weights =
            random_weights(&state, TYPES[t], (size_t)shape.rows * shape.columns, 0.05f);
        float *x = check_floats(&state, (size_t)shape.x_rows * shape.columns, 3.0f);
        float *out = product(kernels, TYPES[t], &shape, weights, x);
        struct matrix *matrix = matrix_from(kernels, TYPES[t], &shape, weights);
        for (uint32_t r = 0; r < shape.rows; r++) {
            kernels_embed(kernels, matrix, &r, 1, w);
            for (uint32_t i = 0; i < shape.x_rows; i++) {
                const float *row = x + (size_t)i * shape.columns;
                double exact = 0;
                for (uint32_t k = 0; k < shape.columns; k++) {
                    exact += (double)w[k] * (double)row[k];
                }
                double error = fabs((double)out[i * shape.rows + r] - exact);
                assert_true(error <= error_bound(w, row, shape.columns, quantized(TYPES[t])));
            }
        }
        matrix_destroy(matrix);
        free(weights), free(x), free(out);
    }
    free(w);
    kernels_destroy(kernels);
}

static void check_shape(uint64_t *state, enum tensor_type type, struct shape shape, float scale)
{
    if (quantized(type)) {
        shape.columns = (shape.columns + 31) / 32 * 32;
    }
    uint8_t *weights = random_weights(state, type, (size_t)shape.rows * shape.columns, scale);
    float *x = check_floats(state, (size_t)shape.x_rows * shape.columns, scale * 100.0f);
    struct kernels *reference = kernels_for(KERNEL_SET_C, 1, shape.x_rows);
    float *want = product(reference, type, &shape, weights, x);
    for (uint32_t threads = 1; threads <= 3; threads++) {
        // A smaller row_count_max makes the call go in passes.
        struct kernels *kernels = kernels_for(set_under_test, threads, shape.x_rows / threads + 1);
        float *got = product(kernels, type, &shape, weights, x);
        check_floats_equal(got, want, (size_t)shape.x_rows * shape.rows, "product");
        free(got);
        struct shape alone = {shape.rows, shape.columns, 1};
        got =
            product(kernels, type, &alone, weights, x + (size_t)(shape.x_rows - 1) * shape.columns);
        check_floats_equal(got, want + (size_t)(shape.x_rows - 1) * shape.rows, shape.rows,
                           "a row alone");
        free(got);
        kernels_destroy(kernels);
    }
    kernels_destroy(reference);
    free(weights), free(x), free(want);
}

static void test_equals_plain_c(void **unused)
{
    (void)unused;
    static const struct shape shapes[] = {
        {1, 1, 1},    {1, 32, 9},  {16, 64, 2},   {17, 33, 3},  {31, 577, 4},  {33, 96, 5},
        {48, 100, 6}, {64, 31, 7}, {15, 2048, 8}, {80, 224, 1}, {100, 65, 13}, {40, 64, 300}};
    uint64_t state = check_seed();
    for (int t = 0; t < TYPE_COUNT; t++) {
        for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
            check_shape(&state, TYPES[t], shapes[s], 0.05f);
        }
        for (int i = 0; i < 20; i++) {
            struct shape shape = {(uint32_t)(check_random(&state) % 70 + 1),
                                  (uint32_t)(check_random(&state) % 400 + 1),
                                  (uint32_t)(check_random(&state) % 20 + 1)};
            check_shape(&state, TYPES[t], shape, 0.05f);
        }
    }
}

static void test_extreme_scales(void **unused)
{
    (void)unused;
    uint64_t state = check_seed();
    static const float scales[] = {1e-38f, 1e-30f, 1e-7f, 6e4f, 1e30f, 3e36f};
    for (int t = 0; t < TYPE_COUNT; t++) {
        for (size_t s = 0; s < sizeof(scales) / sizeof(scales[0]); s++) {
            check_shape(&state, TYPES[t], (struct shape){20, 96, 3}, scales[s]);
        }
    }
}

// Blocks that are zero, denormal, infinite or NaN, and the largest magnitudes of both signs.
static void test_special_activations(void **unused)
{
    (void)unused;
    uint64_t state = check_seed();
    static const float specials[] = {0.0f, -0.0f,   1e-40f,   1e-45f,   INFINITY, -INFINITY,
                                     NAN,  3.4e38f, -3.4e38f, 1.2e-38f, 1.5e-36f};
    struct kernels *reference = kernels_for(KERNEL_SET_C, 1, 4);
    struct kernels *kernels = kernels_for(set_under_test, 2, 4);
    struct shape shape = {.rows = 33, .columns = 96, .x_rows = 4};
    for (int t = 0; t < TYPE_COUNT; t++) {
        for (size_t s = 0; s < sizeof(specials) / sizeof(specials[0]); s++) {
            uint8_t *weights = random_weights(&state, TYPES[t], 33 * 96, 0.1f);
            float *x = check_floats(&state, 4 * 96, 1.0f);
            x[40] = specials[s];
            for (int i = 96; i < 192; i++) {
                x[i] = i % 3 != 0 ? specials[s] : 0.0f;
            }
            float *want = product(reference, TYPES[t], &shape, weights, x);
            float *got = product(kernels, TYPES[t], &shape, weights, x);
            check_floats_equal(got, want, 4 * 33, "special activations");
            if (isnan(specials[s]) || isinf(specials[s])) {
                assert_false(isfinite(got[0])); // never hidden
            }
            free(weights), free(x), free(want), free(got);
        }
    }
    kernels_destroy(reference);
    kernels_destroy(kernels);
}

// Sums at their integer limits: all weights -128 or 15 against all activations +-127.
static void test_integer_dots_do_not_saturate(void **unused)
{
    (void)unused;
    struct kernels *kernels = kernels_for(set_under_test, 1, 2);
    struct shape shape = {.rows = 16, .columns = 64, .x_rows = 2};
    float x[2 * 64];
    for (int i = 0; i < 128; i++) {
        x[i] = i < 64 ? 127.0f : -127.0f;
    }
    uint8_t q8[16 * 2 * 34], q4[16 * 2 * 18];
    memset(q8, 0x80, sizeof(q8));
    memset(q4, 0xff, sizeof(q4));
    for (int b = 0; b < 32; b++) {
        put_half(q8 + b * 34, f16_from_f32(1.0f));
        put_half(q4 + b * 18, f16_from_f32(1.0f));
    }
    float *got = product(kernels, TENSOR_TYPE_Q8_0, &shape, q8, x);
    assert_true(got[3] == -128.0f * 127.0f * 64.0f && got[19] == 128.0f * 127.0f * 64.0f);
    free(got);
    got = product(kernels, TENSOR_TYPE_Q4_0, &shape, q4, x);
    assert_true(got[3] == 7.0f * 127.0f * 64.0f && got[19] == -7.0f * 127.0f * 64.0f);
    free(got);
    kernels_destroy(kernels);
}

static void test_three_matrices_share_their_input(void **unused)
{
    (void)unused;
    uint64_t state = check_seed();
    struct kernels *kernels = kernels_for(set_under_test, 2, 40);
    const struct shape shapes[3] = {{33, 64, 37}, {16, 64, 37}, {50, 64, 37}};
    const enum tensor_type types[3] = {TENSOR_TYPE_Q4_1, TENSOR_TYPE_Q8_0, TENSOR_TYPE_F16};
    float *x = check_floats(&state, 37 * 64, 2.0f);
    struct matrix *matrices[3];
    float *want[3], *got[3];
    for (int m = 0; m < 3; m++) {
        uint8_t *weights = random_weights(&state, types[m], (size_t)shapes[m].rows * 64, 0.1f);
        matrices[m] = matrix_from(kernels, types[m], &shapes[m], weights);
        want[m] = product(kernels, types[m], &shapes[m], weights, x);
        got[m] = malloc((size_t)shapes[m].rows * 37 * sizeof(float));
        free(weights);
    }
    kernels_matmul(kernels, (const struct matrix *const *)matrices, 3, x, 37, got);
    for (int m = 0; m < 3; m++) {
        check_floats_equal(got[m], want[m], (size_t)shapes[m].rows * 37, "shared input");
        matrix_destroy(matrices[m]);
        free(want[m]), free(got[m]);
    }
    free(x);
    kernels_destroy(kernels);
}

// One leaf call whose weights, activations and output each end at an unmapped page.
static void test_reads_and_writes_stay_inside(void **unused)
{
    (void)unused;
    static const size_t unit_bytes[MATRIX_KIND_COUNT] = {
        64, 32, 32, Q8_0_GROUP_BLOCK_BYTES, Q4_0_GROUP_BLOCK_BYTES, Q4_1_GROUP_BLOCK_BYTES};
    const struct kernels_backend *backend = kernels_backend_find(set_under_test);
    for (uint32_t rows = 1; rows <= 9; rows++) {
        for (uint32_t kind = 0; kind < MATRIX_KIND_COUNT; kind++) {
            uint32_t columns = kind < MATRIX_KIND_Q8_0 ? 37 : 96, lanes = rows % 2 == 0 ? 16 : 5;
            size_t units = kind < MATRIX_KIND_Q8_0 ? columns : columns / QUANT_VALUES;
            struct check_edge weights = check_edge_create(units * unit_bytes[kind]);
            struct check_edge quant = check_edge_create(rows * units * sizeof(struct quant_block));
            struct check_edge x = check_edge_create((size_t)rows * columns * sizeof(float));
            struct check_edge out =
                check_edge_create((16 * (size_t)(rows - 1) + lanes) * sizeof(float));
            struct matmul_tile tile = {.weights = weights.data,
                                       .quant = (const struct quant_block *)quant.data,
                                       .x = (const float *)x.data,
                                       .out = (float *)out.data,
                                       .out_stride = 16,
                                       .columns = columns,
                                       .rows = rows,
                                       .lanes = lanes};
            backend->matmul[kind](&tile);
            if (kind >= MATRIX_KIND_Q8_0) {
                backend->quantize((const float *)x.data, columns, (struct quant_block *)quant.data);
            }
            check_edge_destroy(&weights), check_edge_destroy(&quant);
            check_edge_destroy(&x), check_edge_destroy(&out);
        }
    }
}

static void test_quantize_equals_plain_c(void **unused)
{
    (void)unused;
    uint64_t state = check_seed();
    const struct kernels_backend *backend = kernels_backend_find(set_under_test);
    const struct kernels_backend *plain = kernels_backend_find(KERNEL_SET_C);
    for (int i = 0; i < 2000; i++) {
        float *x = check_floats(&state, 64, ldexpf(1.0f, (int)(check_random(&state) % 250) - 125));
        if (i % 3 == 0) { // exact ties: multiples of half a step
            x[0] = 127.0f;
            for (int j = 1; j < 32; j++) {
                x[j] = (float)((int)(check_random(&state) % 509) - 254) / 2;
            }
        }
        struct quant_block got[2], want[2];
        backend->quantize(x, 64, got);
        plain->quantize(x, 64, want);
        assert_memory_equal(got, want, sizeof(want));
        free(x);
    }
}

int main(int count, char **arguments)
{
    set_under_test = check_set_from_arguments(count, arguments);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_c_is_near_binary64),
        cmocka_unit_test(test_equals_plain_c),
        cmocka_unit_test(test_extreme_scales),
        cmocka_unit_test(test_special_activations),
        cmocka_unit_test(test_integer_dots_do_not_saturate),
        cmocka_unit_test(test_three_matrices_share_their_input),
        cmocka_unit_test(test_reads_and_writes_stay_inside),
        cmocka_unit_test(test_quantize_equals_plain_c),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
