// SPDX-License-Identifier: Apache-2.0
// At stake: a slot that is held must never be the victim, and the victim must be the least recently
// used. Against an array of time stamps as the model.
#include "kvstored/eviction.h"
#include "tests/check.h"

enum { SLOTS = 50, STEPS = 20000 };

static uint32_t model_victim(const uint64_t *stamps)
{
    uint32_t victim = EVICTION_NONE;
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (stamps[i] != 0 && (victim == EVICTION_NONE || stamps[i] < stamps[victim])) {
            victim = i;
        }
    }
    return victim;
}

static void agrees_with_a_model(void **state)
{
    (void)state;
    uint64_t stamps[SLOTS] = {0}; // 0: not listed
    struct eviction eviction;
    uint64_t random = check_seed();
    CHECK_OK(eviction_init(&eviction, SLOTS));
    for (uint64_t step = 1; step <= STEPS; step++) {
        uint32_t slot = (uint32_t)(check_random(&random) % SLOTS);
        if (check_random(&random) % 5 < 3) {
            eviction_touch(&eviction, slot);
            stamps[slot] = step;
        } else {
            eviction_remove(&eviction, slot);
            stamps[slot] = 0;
        }
        uint32_t count = 0;
        for (uint32_t i = 0; i < SLOTS; i++) {
            count += stamps[i] != 0;
            assert_int_equal(eviction_listed(&eviction, i), stamps[i] != 0);
        }
        assert_int_equal(eviction.count, count);
        assert_int_equal(eviction_victim(&eviction), model_victim(stamps));
    }
    eviction_finish(&eviction);
}

static void one_slot(void **state)
{
    (void)state;
    struct eviction eviction;
    CHECK_OK(eviction_init(&eviction, 1));
    assert_int_equal(eviction_victim(&eviction), EVICTION_NONE);
    eviction_remove(&eviction, 0);
    eviction_touch(&eviction, 0);
    eviction_touch(&eviction, 0);
    assert_int_equal(eviction_victim(&eviction), 0);
    eviction_remove(&eviction, 0);
    assert_int_equal(eviction_victim(&eviction), EVICTION_NONE);
    eviction_finish(&eviction);
    eviction_finish(&eviction); // zeroed
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_a_model),
        cmocka_unit_test(one_slot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
