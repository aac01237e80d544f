// SPDX-License-Identifier: Apache-2.0
// At stake: that keys are not taken for values, and that one infinity does not hide the rest.
#include "kvstored/value_stats.h"
#include "tests/check.h"

#include <math.h>

enum { BLOCK_TOKENS = 16, HEAD = 16 * 16 };

static void keys_and_values_are_told_apart(void **state)
{
    (void)state;
    const struct kv_group group = {.layer_count = 2, .kv_heads = 3, .head_dim = 16};
    static uint16_t payload[2 * 3 * 2 * HEAD];
    struct kv_value_stats keys, values;
    for (size_t i = 0; i < sizeof(payload) / 2; i++) {
        payload[i] = i / HEAD % 2 == 0 ? 0x3c00 : 0xc000; // keys 1, values -2
    }
    payload[0] = 0x7c00;    // a key that is infinite
    payload[1] = 0x7e00;    // and one that is no number
    payload[2] = 0x0001;    // the smallest there is
    payload[HEAD] = 0x7bff; // the largest value, 65504
    value_stats_of(&group, BLOCK_TOKENS, payload, &keys, &values);
    assert_int_equal(keys.not_finite_count, 2);
    assert_true(keys.maximum == 1.0);
    assert_true(keys.minimum == 0x1p-24);
    assert_int_equal(values.not_finite_count, 0);
    assert_true(values.minimum == -2.0);
    assert_true(values.maximum == 65504.0);
    double count = 6 * HEAD;
    assert_true(fabs(values.mean - (65504.0 - 2 * (count - 1)) / count) < 1e-9);
    assert_true(fabs(values.rms - sqrt((65504.0 * 65504 + 4 * (count - 1)) / count)) < 1e-9);
}

static void other_formats_give_zeros(void **state)
{
    (void)state;
    const struct kv_group group = {
        .layer_count = 1, .kv_heads = 1, .head_dim = 16, .format = KV_FORMAT_INT8};
    struct kv_value_stats keys = {.mean = 1}, values = {.mean = 1};
    value_stats_of(&group, BLOCK_TOKENS, NULL, &keys, &values);
    assert_true(keys.mean == 0 && values.rms == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_and_values_are_told_apart),
        cmocka_unit_test(other_formats_give_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
