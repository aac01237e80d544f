// SPDX-License-Identifier: Apache-2.0
// At stake: norms, RoPE, SiLU, exp and the f16 conversions sit between every two products; a bit
// that differs between sets spreads over the whole step. exp, angles and conversions are compared
// with libm or exhaustively, then every set with plain C by equality, at edges of pages.

#include "gpud/kernels/cpu/exp.h"
#include "gpud/kernels/kernels_backend.h"
#include "tests/kernels/kernels_check.h"

#include <math.h>

static enum kernel_set set_under_test;
static const struct kernels_backend *backend, *plain;

static const size_t COUNTS[] = {1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 576, 1000};
enum { COUNT_COUNT = sizeof(COUNTS) / sizeof(COUNTS[0]) };

static void test_f16_round_trip(void **unused)
{
    (void)unused;
    for (uint32_t half = 0; half < 0x10000; half++) {
        float value = f32_from_f16((uint16_t)half);
        bool nan = (half & 0x7fffu) > 0x7c00u;
        assert_int_equal(f16_from_f32(value), nan ? half | 0x200u : half);
        float wide;
        backend->widen(&(uint16_t){(uint16_t)half}, 1, &wide);
        assert_int_equal(float_bits(wide), float_bits(value));
        if ((half & 0x7fffu) < 0x7c00u) { // halves around the middle to the next one round to even
            float next = f32_from_f16((uint16_t)(half + 1));
            double middle =
                ((double)value + (isinf(next) ? copysign(65536.0, (double)value) : (double)next)) /
                2;
            uint16_t even = (uint16_t)(half + (half & 1));
            assert_int_equal(f16_from_f32((float)middle), even);
            assert_int_equal(f16_from_f32(nextafterf((float)middle, value)), half);
        }
    }
}

static void test_narrow_equals_plain_c(void **unused)
{
    (void)unused;
    uint64_t state = check_seed();
    for (int round = 0; round < 20000; round++) {
        float x[17];
        uint16_t got[18] = {[17] = 7}, want[17];
        for (int i = 0; i < 17; i++) {
            x[i] = float_from_bits((uint32_t)check_random(&state));
        }
        backend->narrow(x, 17, got);
        plain->narrow(x, 17, want);
        assert_memory_equal(got, want, sizeof(want));
        assert_int_equal(got[17], 7);
    }
}

static void test_exp_is_within_2_ulp(void **unused)
{
    (void)unused;
    double worst = 0;
    for (uint32_t bits = 0; bits < 0x42b00001u; bits += 97) { // 0..88 and back
        for (int sign = 0; sign < 2; sign++) {
            float x = float_from_bits(bits | (uint32_t)sign << 31);
            if (x < EXP_LOWEST) {
                continue;
            }
            double exact = exp((double)x);
            double ulp = ldexp(1.0, ilogb(exact) - 23);
            worst = fmax(worst, fabs((double)exp_f32(x) - exact) / ulp);
        }
    }
    print_message("exp: largest error %.3f ulp\n", worst);
    assert_true(worst < 2.0);
    assert_true(exp_f32(0.0f) == 1.0f && exp_f32(-0.0f) == 1.0f);
    assert_true(exp_f32(-87.1f) == 0.0f && exp_f32(-INFINITY) == 0.0f);
    assert_true(isinf(exp_f32(88.1f)) && isinf(exp_f32(INFINITY)) && isnan(exp_f32(NAN)));
}

static void test_silu_mul_equals_plain_c(void **unused)
{
    (void)unused;
    uint64_t state = check_seed();
    for (int round = 0; round < 50; round++) {
        for (int c = 0; c < COUNT_COUNT; c++) {
            size_t count = COUNTS[c];
            struct check_edge gate = check_edge_create(count * sizeof(float));
            struct check_edge up = check_edge_create(count * sizeof(float));
            struct check_edge out = check_edge_create(count * sizeof(float));
            float *g = (float *)gate.data, *u = (float *)up.data, *o = (float *)out.data;
            for (size_t i = 0; i < count; i++) {
                g[i] = round == 0 ? float_from_bits((uint32_t)check_random(&state))
                                  : check_float(&state, (float)(round * round) / 10);
                u[i] = check_float(&state, 5.0f);
            }
            float *want = malloc(count * sizeof(*want));
            plain->silu_mul(g, u, count, want);
            backend->silu_mul(g, u, count, o);
            check_floats_equal(o, want, count, "silu_mul");
            for (size_t i = 0; i < count && round != 0; i++) {
                double exact = (double)g[i] / (1 + exp(-(double)g[i])) * (double)u[i];
                assert_true(fabs((double)o[i] - exact) <= 1e-6 * fabs(exact) + 1e-30);
            }
            backend->silu_mul(g, u, count, g); // in place
            check_floats_equal(g, want, count, "silu_mul in place");
            free(want);
            check_edge_destroy(&gate), check_edge_destroy(&up), check_edge_destroy(&out);
        }
    }
}

static void test_rms_norm_equals_plain_c(void **unused)
{
    (void)unused;
    uint64_t state = check_seed();
    static const float scales[] = {1.0f, 1e-25f, 1e18f, 1e25f};
    for (int round = 0; round < 20; round++) {
        for (int c = 0; c < COUNT_COUNT; c++) {
            uint32_t count = (uint32_t)COUNTS[c];
            struct check_edge x_edge = check_edge_create(count * sizeof(float));
            struct check_edge w_edge = check_edge_create(count * sizeof(float));
            float *x = (float *)x_edge.data, *w = (float *)w_edge.data;
            double squares = 0;
            for (uint32_t i = 0; i < count; i++) {
                x[i] = check_float(&state, scales[round % 4]);
                w[i] = check_float(&state, 2.0f);
                squares += (double)x[i] * (double)x[i];
            }
            float *want = malloc(count * sizeof(*want));
            plain->rms_norm(x, w, count, 1e-5f, want);
            for (uint32_t i = 0; i < count && round % 4 == 0; i++) {
                double exact = (double)x[i] / sqrt(squares / count + 1e-5) * (double)w[i];
                assert_true(fabs((double)want[i] - exact) <= 2e-6 * fabs(exact) + 1e-30);
            }
            backend->rms_norm(x, w, count, 1e-5f, x);
            check_floats_equal(x, want, count, "rms_norm");
            free(want);
            check_edge_destroy(&x_edge), check_edge_destroy(&w_edge);
        }
    }
}

static void test_rope_equals_plain_c(void **unused)
{
    (void)unused;
    uint64_t state = check_seed();
    for (uint32_t pairs = 1; pairs <= 128; pairs++) {
        for (int kind = 0; kind < 2; kind++) {
            struct check_edge head_edge = check_edge_create(2 * pairs * sizeof(float));
            struct check_edge angles_edge = check_edge_create(2 * pairs * sizeof(float));
            float *head = (float *)head_edge.data, *angles = (float *)angles_edge.data;
            float *want = check_floats(&state, 2 * pairs, 3.0f);
            memcpy(head, want, 2 * pairs * sizeof(float));
            for (uint32_t i = 0; i < pairs; i++) {
                double angle = (double)check_float(&state, 3.0f);
                angles[2 * i] = (float)cos(angle), angles[2 * i + 1] = (float)sin(angle);
            }
            plain->rope(want, angles, pairs, (enum rope_kind)kind);
            backend->rope(head, angles, pairs, (enum rope_kind)kind);
            check_floats_equal(head, want, 2 * pairs, "rope");
            free(want);
            check_edge_destroy(&head_edge), check_edge_destroy(&angles_edge);
        }
    }
}

static void test_rope_turns_the_right_pairs(void **unused)
{
    (void)unused;
    float quarter[4] = {0.0f, 1.0f, 1.0f, 0.0f}; // pair 0 by 90 degrees, pair 1 by none
    float normal[4] = {1, 2, 3, 4}, neox[4] = {1, 2, 3, 4};
    backend->rope(normal, quarter, 2, ROPE_KIND_NORMAL);
    backend->rope(neox, quarter, 2, ROPE_KIND_NEOX);
    check_floats_equal(normal, (float[]){-2, 1, 3, 4}, 4, "normal pairs");
    check_floats_equal(neox, (float[]){-3, 2, 1, 4}, 4, "neox pairs");
}

static void test_add_equals_plain_c(void **unused)
{
    (void)unused;
    uint64_t state = check_seed();
    for (int c = 0; c < COUNT_COUNT; c++) {
        struct check_edge edge = check_edge_create(COUNTS[c] * sizeof(float));
        float *want = check_floats(&state, COUNTS[c], 3.0f);
        float *y = check_floats(&state, COUNTS[c], 1e-3f);
        memcpy(edge.data, want, COUNTS[c] * sizeof(float));
        plain->add(want, y, COUNTS[c]);
        backend->add((float *)edge.data, y, COUNTS[c]);
        check_floats_equal((float *)edge.data, want, COUNTS[c], "add");
        free(want), free(y);
        check_edge_destroy(&edge);
    }
}

static void test_widen_stays_inside(void **unused)
{
    (void)unused;
    for (int c = 0; c < COUNT_COUNT; c++) {
        struct check_edge half = check_edge_create(COUNTS[c] * 2);
        struct check_edge wide = check_edge_create(COUNTS[c] * 4);
        backend->widen((const uint16_t *)half.data, COUNTS[c], (float *)wide.data);
        backend->narrow((const float *)wide.data, COUNTS[c], (uint16_t *)half.data);
        check_edge_destroy(&half), check_edge_destroy(&wide);
    }
}

// The public calls: large enough to be split over threads, compared with the leaf on one row.
static void test_public_calls_split_over_threads(void **unused)
{
    (void)unused;
    uint64_t state = check_seed();
    enum { ROWS = 70, HEADS = 5, DIM = 64, COLUMNS = HEADS * DIM };
    struct kernels *kernels = check_kernels_create((struct kernels_options){.set = set_under_test,
                                                                            .thread_count = 3,
                                                                            .row_count_max = ROWS,
                                                                            .column_count_max = 32,
                                                                            .heads_max = HEADS,
                                                                            .head_dim_max = DIM,
                                                                            .block_tokens = 16,
                                                                            .block_count_max = 1});
    float *x = check_floats(&state, ROWS * COLUMNS, 2.0f);
    float *y = check_floats(&state, ROWS * COLUMNS, 2.0f);
    float *angles = check_floats(&state, ROWS * DIM, 1.0f);
    float *got = malloc(ROWS * COLUMNS * sizeof(float)), *want = malloc(ROWS * COLUMNS * 4);
    for (int r = 0; r < ROWS; r++) {
        plain->rms_norm(x + r * COLUMNS, y, COLUMNS, 1e-6f, want + r * COLUMNS);
        for (int h = 0; h < HEADS; h++) {
            plain->rope(want + r * COLUMNS + h * DIM, angles + r * DIM, DIM / 2, ROPE_KIND_NEOX);
        }
    }
    plain->silu_mul(want, y, ROWS * COLUMNS, want);
    plain->add(want, x, ROWS * COLUMNS);
    kernels_rms_norm(kernels, x, y, ROWS, COLUMNS, 1e-6f, got);
    kernels_rope(kernels, got, ROWS, HEADS, DIM, angles, DIM / 2, ROPE_KIND_NEOX);
    kernels_silu_mul(kernels, got, y, ROWS * COLUMNS, got);
    kernels_add(kernels, got, x, ROWS * COLUMNS);
    check_floats_equal(got, want, ROWS * COLUMNS, "public calls");
    kernels_rms_norm(kernels, x, y, 0, COLUMNS, 1e-6f, got);
    kernels_add(kernels, got, x, 0);
    free(x), free(y), free(angles), free(got), free(want);
    kernels_destroy(kernels);
}

int main(int count, char **arguments)
{
    set_under_test = check_set_from_arguments(count, arguments);
    backend = kernels_backend_find(set_under_test);
    plain = kernels_backend_find(KERNEL_SET_C);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f16_round_trip),
        cmocka_unit_test(test_narrow_equals_plain_c),
        cmocka_unit_test(test_exp_is_within_2_ulp),
        cmocka_unit_test(test_silu_mul_equals_plain_c),
        cmocka_unit_test(test_rms_norm_equals_plain_c),
        cmocka_unit_test(test_rope_equals_plain_c),
        cmocka_unit_test(test_rope_turns_the_right_pairs),
        cmocka_unit_test(test_add_equals_plain_c),
        cmocka_unit_test(test_widen_stays_inside),
        cmocka_unit_test(test_public_calls_split_over_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
