// SPDX-License-Identifier: Apache-2.0
// At stake: the speeds that `gpuctl status` shows are those of the steps, each of its own kind.
#include "gpud/stats.h"

#include "tests/check.h"

#include <math.h>

static void rates_follow_the_steps(void **state)
{
    (void)state;
    struct stats stats = {0};
    struct stats_view view;
    stats_read(&stats, &view);
    assert_true(view.prefill_tokens_per_s == 0 && view.decode_tokens_per_s == 0);
    stats_step(&stats, 500, 1, 1000000000);
    stats_step(&stats, 0, 4, 100000000);
    stats_step(&stats, 3, 4, 1); // mixed: says nothing of either
    stats_step(&stats, 1, 0, 0); // no time: neither
    stats_read(&stats, &view);
    assert_true(fabs(view.prefill_tokens_per_s - 500) < 1e-3);
    assert_true(fabs(view.decode_tokens_per_s - 40) < 1e-3);
    for (int i = 0; i < 100; i++) {
        stats_step(&stats, 0, 1, 10000000);
    }
    stats_read(&stats, &view);
    assert_true(fabs(view.decode_tokens_per_s - 100) < 0.1);
    assert_int_equal(view.step_count, 104);
    assert_int_equal(view.prefill_tokens, 504);
    assert_int_equal(view.decode_tokens, 109);
}

static void counters_are_read_as_they_stand(void **state)
{
    (void)state;
    struct stats stats = {.request_count = 9,
                          .done_count = 4,
                          .cancelled_count = 2,
                          .failed_count = 1,
                          .running_count = 3,
                          .queued_count = 5,
                          .cached_tokens = 77,
                          .last_step_ns = 123};
    struct stats_view view;
    stats_read(&stats, &view);
    assert_int_equal(view.request_count, 9);
    assert_int_equal(view.done_count, 4);
    assert_int_equal(view.cancelled_count, 2);
    assert_int_equal(view.failed_count, 1);
    assert_int_equal(view.running_count, 3);
    assert_int_equal(view.queued_count, 5);
    assert_int_equal(view.cached_tokens, 77);
    assert_int_equal(view.last_step_ns, 123);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_follow_the_steps),
        cmocka_unit_test(counters_are_read_as_they_stand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
