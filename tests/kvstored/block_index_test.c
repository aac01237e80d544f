// SPDX-License-Identifier: Apache-2.0
// At stake: a lookup that misses a block wastes its computation, one that finds the wrong one would
// serve it. Against a plain array as the model, over random insertions and removals that make long
// probe chains and wrap around the table's end.
#include "kvstored/block_index.h"
#include "proto/block_id.h"
#include "tests/check.h"

enum { IDS = 3000, STEPS = 60000 };

static struct block_id id_of(uint32_t number)
{
    struct block_id id = {{0}};
    uint64_t state = number;
    for (int i = 0; i < BLOCK_ID_BYTES; i += 8) {
        uint64_t word = check_random(&state);
        memcpy(id.bytes + i, &word, 8);
    }
    return id;
}

static void check_all(const struct block_index *index, const bool *present, const uint32_t *values)
{
    uint32_t count = 0, cursor = 0, seen = 0, value;
    for (uint32_t i = 0; i < IDS; i++) {
        struct block_id id = id_of(i);
        assert_int_equal(block_index_find(index, &id, &value), present[i]);
        if (present[i]) {
            assert_int_equal(value, values[i]);
        }
        count += present[i];
    }
    assert_int_equal(index->count, count);
    while (block_index_next(index, &cursor) != NULL) {
        seen++;
    }
    assert_int_equal(seen, count);
}

static void agrees_with_a_model(void **state)
{
    (void)state;
    static bool present[IDS];
    static uint32_t values[IDS];
    struct block_index index;
    uint64_t random = check_seed();
    CHECK_OK(block_index_init(&index, 10));
    for (uint32_t step = 0; step < STEPS; step++) {
        uint32_t number = (uint32_t)(check_random(&random) % IDS);
        struct block_id id = id_of(number);
        // Phases of growing and of shrinking.
        if (check_random(&random) % 100 < (step / 10000 % 2 == 0 ? 70u : 30u)) {
            enum status status = block_index_insert(&index, &id, step);
            assert_int_equal(status, present[number] ? STATUS_EXISTS : STATUS_OK);
            values[number] = present[number] ? values[number] : step;
            present[number] = true;
        } else {
            assert_int_equal(block_index_remove(&index, &id), present[number]);
            present[number] = false;
        }
        if (step % 5000 == 0) {
            check_all(&index, present, values);
        }
    }
    check_all(&index, present, values);
    block_index_finish(&index);
}

static void empty_and_zeroed_find_nothing(void **state)
{
    (void)state;
    struct block_index index = {0};
    struct block_id id = id_of(1);
    uint32_t value, cursor = 0;
    assert_false(block_index_find(&index, &id, &value));
    assert_false(block_index_remove(&index, &id));
    assert_null(block_index_next(&index, &cursor));
    block_index_finish(&index);
}

// Made for n ids, it takes n without growing: the store relies on that.
static void takes_what_it_was_made_for(void **state)
{
    (void)state;
    for (uint32_t count = 1; count < 600; count += 37) {
        struct block_index index;
        CHECK_OK(block_index_init(&index, count));
        uint32_t capacity = index.capacity;
        for (uint32_t i = 0; i < count; i++) {
            struct block_id id = id_of(i);
            CHECK_OK(block_index_insert(&index, &id, i));
        }
        assert_int_equal(index.capacity, capacity);
        block_index_finish(&index);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_a_model),
        cmocka_unit_test(empty_and_zeroed_find_nothing),
        cmocka_unit_test(takes_what_it_was_made_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
