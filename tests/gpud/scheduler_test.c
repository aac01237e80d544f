// SPDX-License-Identifier: Apache-2.0
// At stake: no request starves another, and a plan never exceeds what a step can hold. Random
// demands against the rules as invariants; then the cases that users notice, with their numbers.
#include "gpud/scheduler.h"

#include "tests/check.h"

enum { DEMANDS_MAX = 8 };

static struct scheduler *make(uint32_t batch_tokens_max, uint32_t logit_rows_max)
{
    const struct scheduler_options options = {.queue_capacity = 4,
                                              .batch_tokens_max = batch_tokens_max,
                                              .logit_rows_max = logit_rows_max};
    struct scheduler *scheduler = NULL;
    CHECK_OK(scheduler_create(&options, &scheduler));
    return scheduler;
}

static uint32_t rows(const struct scheduler_demand *demand)
{
    return demand->row_per_token ? demand->granted_tokens : demand->granted_tokens > 0;
}

static void plans_fit_the_step(void **state)
{
    (void)state;
    uint64_t seed = check_seed();
    for (int round = 0; round < 5000; round++) {
        uint32_t batch = 1 + (uint32_t)(check_random(&seed) % 40);
        uint32_t logit_rows = 1 + (uint32_t)(check_random(&seed) % 12);
        struct scheduler *scheduler = make(batch, logit_rows);
        struct scheduler_demand demands[DEMANDS_MAX] = {{0}};
        uint32_t count = (uint32_t)(check_random(&seed) % (DEMANDS_MAX + 1));
        for (uint32_t i = 0; i < count; i++) {
            demands[i].decode = check_random(&seed) % 2;
            demands[i].wanted_tokens = demands[i].decode ? 1 : (uint32_t)(check_random(&seed) % 60);
            demands[i].row_per_token = !demands[i].decode && check_random(&seed) % 3 == 0;
        }
        scheduler_plan(scheduler, demands, count, false);
        uint32_t tokens = 0;
        uint32_t used_rows = 0;
        uint32_t unmet = 0;
        for (uint32_t i = 0; i < count; i++) {
            assert_true(demands[i].granted_tokens <= demands[i].wanted_tokens);
            tokens += demands[i].granted_tokens;
            used_rows += rows(&demands[i]);
            unmet += demands[i].granted_tokens < demands[i].wanted_tokens;
        }
        assert_true(tokens <= batch && used_rows <= logit_rows);
        // Nothing is left on the table: someone unmet means that tokens or rows are used up.
        assert_true(unmet == 0 || tokens == batch || used_rows == logit_rows);
        scheduler_destroy(scheduler);
    }
}

static void everyone_gets_a_turn_when_steps_are_small(void **state)
{
    (void)state;
    struct scheduler *scheduler = make(1, 8);
    uint32_t got[5] = {0};
    for (int step = 0; step < 50; step++) {
        struct scheduler_demand demands[5] = {{.wanted_tokens = 1, .decode = true},
                                              {.wanted_tokens = 1, .decode = true},
                                              {.wanted_tokens = 900},
                                              {.wanted_tokens = 1, .decode = true},
                                              {.wanted_tokens = 40, .row_per_token = true}};
        scheduler_plan(scheduler, demands, 5, false);
        for (int i = 0; i < 5; i++) {
            got[i] += demands[i].granted_tokens;
        }
    }
    for (int i = 0; i < 5; i++) {
        assert_int_equal(got[i], 10);
    }
    scheduler_destroy(scheduler);
}

static void short_prompt_passes_a_long_one(void **state)
{
    (void)state;
    struct scheduler *scheduler = make(512, 16);
    struct scheduler_demand demands[3] = {
        {.wanted_tokens = 512}, {.wanted_tokens = 100}, {.wanted_tokens = 1, .decode = true}};
    scheduler_plan(scheduler, demands, 3, false);
    assert_int_equal(demands[2].granted_tokens, 1);
    assert_int_equal(demands[1].granted_tokens, 100);
    assert_int_equal(demands[0].granted_tokens, 411);
    scheduler_destroy(scheduler);
}

static void slow_prefill_is_cut_while_others_wait(void **state)
{
    (void)state;
    struct scheduler *scheduler = make(512, 16);
    struct scheduler_demand demands[2] = {{.wanted_tokens = 512},
                                          {.wanted_tokens = 1, .decode = true}};
    scheduler_measure(scheduler, 512, 0, 512 * 1000000ull); // 1 ms a token
    scheduler_plan(scheduler, demands, 2, false);
    assert_int_equal(demands[0].granted_tokens, PREFILL_MS_MAX);
    assert_int_equal(demands[1].granted_tokens, 1);
    scheduler_plan(scheduler, demands, 1, false);
    assert_int_equal(demands[0].granted_tokens, 512); // alone
    scheduler_plan(scheduler, demands, 1, true);
    assert_int_equal(demands[0].granted_tokens, PREFILL_MS_MAX); // someone stands in line
    for (int i = 0; i < 50; i++) {
        scheduler_measure(scheduler, 100, 1, 101 * 100000000ull); // 100 ms a token
    }
    scheduler_plan(scheduler, demands, 2, false);
    assert_int_equal(demands[0].granted_tokens, PREFILL_TOKENS_MIN);
    scheduler_destroy(scheduler);
}

static void queue_is_bounded(void **state)
{
    (void)state;
    struct scheduler *scheduler = make(1, 1);
    struct request *request = NULL;
    for (int i = 0; i < 4; i++) {
        CHECK_OK(os_queue_try_push(scheduler_queue(scheduler), &request));
    }
    assert_int_equal(os_queue_try_push(scheduler_queue(scheduler), &request), STATUS_BUSY);
    scheduler_destroy(scheduler);
    scheduler_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_fit_the_step),
        cmocka_unit_test(everyone_gets_a_turn_when_steps_are_small),
        cmocka_unit_test(short_prompt_passes_a_long_one),
        cmocka_unit_test(slow_prefill_is_cut_while_others_wait),
        cmocka_unit_test(queue_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
