// SPDX-License-Identifier: Apache-2.0
// At stake: --logits-hash tells equal bits from unequal ones, and score's rows are what a naive
// computation in long double gives, ties included.
#include "gpud/logits.h"

#include "tests/check.h"

#include <math.h>

enum { VOCAB = 500 };

static void hash_sees_every_bit(void **state)
{
    (void)state;
    float logits[64] = {0};
    uint64_t zero = logits_hash(logits, 64);
    assert_int_equal(zero, logits_hash(logits, 64));
    assert_true(zero != logits_hash(logits, 63));
    for (int i = 0; i < 64; i++) {
        logits[i] = -0.0f; // equal as a number
        assert_true(zero != logits_hash(logits, 64));
        logits[i] = 0.0f;
    }
    // XXH3-64 of no bytes, as its specification has it.
    assert_int_equal(logits_hash(logits, 0), 0x2d06800538d394c2u);
}

static void random_logits(float *logits, uint64_t *seed)
{
    for (int i = 0; i < VOCAB; i++) {
        logits[i] = (float)(int)(check_random(seed) % 400) / 8 - 25;
    }
}

static void lse_is_the_log_of_the_sum(void **state)
{
    (void)state;
    uint64_t seed = check_seed();
    float logits[VOCAB];
    for (int round = 0; round < 100; round++) {
        random_logits(logits, &seed);
        long double sum = 0;
        for (int i = 0; i < VOCAB; i++) {
            sum += expl(logits[i]);
        }
        assert_true(fabs(logits_lse(logits, VOCAB) - (double)logl(sum)) < 1e-12);
    }
    for (int i = 0; i < VOCAB; i++) {
        logits[i] = 3e38f; // no overflow on the way
    }
    assert_true(isfinite(logits_lse(logits, VOCAB)));
}

static void top_is_sorted_with_low_ids_first(void **state)
{
    (void)state;
    uint64_t seed = check_seed();
    float logits[VOCAB];
    uint32_t ids[VOCAB];
    float values[VOCAB];
    for (int round = 0; round < 100; round++) {
        random_logits(logits, &seed);
        uint32_t count = (uint32_t)(check_random(&seed) % (VOCAB + 1));
        logits_top(logits, VOCAB, count, ids, values);
        for (uint32_t i = 0; i < count; i++) {
            assert_true(values[i] == logits[ids[i]]);
            uint32_t before = 0; // how many belong in front of it
            for (uint32_t id = 0; id < VOCAB; id++) {
                before += logits[id] > values[i] || (logits[id] == values[i] && id < ids[i]);
            }
            assert_int_equal(before, i);
        }
    }
}

static void not_finite_is_seen(void **state)
{
    (void)state;
    float logits[3] = {1, 2, 3};
    assert_true(logits_finite(logits, 3));
    logits[2] = NAN;
    assert_false(logits_finite(logits, 3));
    logits[2] = -INFINITY;
    assert_false(logits_finite(logits, 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hash_sees_every_bit),
        cmocka_unit_test(lse_is_the_log_of_the_sum),
        cmocka_unit_test(top_is_sorted_with_low_ids_first),
        cmocka_unit_test(not_finite_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
