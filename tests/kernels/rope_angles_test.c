// SPDX-License-Identifier: Apache-2.0
// At stake: every key is stored turned by these angles; an error that grows with the position would
// spoil long contexts only. Compared with libm in binary64 for positions up to
// LIMIT_CONTEXT_TOKENS, where the reduction by pi/2 is hardest.

#include "gpud/kernels/kernels.h"
#include "proto/limits.h"
#include "tests/check.h"

#include <math.h>

static double error_at(uint32_t position, double frequency)
{
    float out[2];
    kernels_rope_angles(position, &frequency, 1, out);
    double angle = (double)position * frequency;
    return fmax(fabs((double)out[0] - cos(angle)), fabs((double)out[1] - sin(angle)));
}

static void test_near_libm_at_every_position(void **unused)
{
    (void)unused;
    double worst = 0;
    for (uint32_t position = 0; position <= LIMIT_CONTEXT_TOKENS; position++) {
        worst = fmax(worst, error_at(position, 1.0)); // the largest angles there are
    }
    print_message("largest error %.3g\n", worst);
    assert_true(worst <= 1e-7);
}

static void test_near_libm_at_random_frequencies(void **unused)
{
    (void)unused;
    uint64_t state = check_seed();
    double worst = 0;
    for (int i = 0; i < 300000; i++) {
        uint32_t position = (uint32_t)(check_random(&state) % (LIMIT_CONTEXT_TOKENS + 1));
        double fraction = (double)(check_random(&state) % 1000) / 1000;
        double base = i % 2 == 0 ? 10000.0 : 1e6;
        worst = fmax(worst, error_at(position, pow(base, -fraction)));
    }
    assert_true(worst <= 1e-7);
}

static void test_pairs_lie_side_by_side(void **unused)
{
    (void)unused;
    const double frequency[3] = {1.0, 0.5, 0.0};
    float out[6];
    kernels_rope_angles(3, frequency, 3, out);
    for (int i = 0; i < 3; i++) {
        assert_true(out[2 * i] == (float)cos(3 * frequency[i]));
        assert_true(out[2 * i + 1] == (float)sin(3 * frequency[i]));
    }
    assert_true(out[4] == 1.0f && out[5] == 0.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_near_libm_at_every_position),
        cmocka_unit_test(test_near_libm_at_random_frequencies),
        cmocka_unit_test(test_pairs_lie_side_by_side),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
