// SPDX-License-Identifier: Apache-2.0
// At stake: a queue out of order merges the wrong pair, which shows only in rare texts. Random
// pushes and pops are compared with sorting.
#include "gpud/model/merge_queue.h"
#include "tests/check.h"

static int compare_keys(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void check_sorted(uint64_t *random, size_t count)
{
    struct merge_queue queue = {0};
    struct merge_candidate candidate;
    uint64_t *keys = calloc(count + 1, sizeof(*keys));
    assert_non_null(keys);
    for (size_t i = 0; i < count; i++) {
        keys[i] = check_random(random) % (2 * count); // some are equal
        CHECK_OK(merge_queue_push(&queue, (struct merge_candidate){keys[i], (uint32_t)keys[i], 7}));
    }
    qsort(keys, count, sizeof(*keys), compare_keys);
    for (size_t i = 0; i < count; i++) {
        assert_true(merge_queue_pop(&queue, &candidate));
        assert_int_equal(candidate.key, keys[i]);
        assert_int_equal(candidate.a, (uint32_t)keys[i]);
        assert_int_equal(candidate.b, 7);
    }
    assert_false(merge_queue_pop(&queue, &candidate));
    free(keys);
    merge_queue_finish(&queue);
}

static void test_smallest_first(void **state)
{
    (void)state;
    uint64_t random = check_seed();
    for (size_t count = 0; count < 70; count++) {
        check_sorted(&random, count);
    }
    check_sorted(&random, 5000);
}

// Pushes and pops mixed, as a merge does: what leaves is never larger than what is left.
static void test_mixed(void **state)
{
    (void)state;
    uint64_t random = check_seed();
    struct merge_queue queue = {0};
    struct merge_candidate candidate;
    size_t held = 0;
    for (int i = 0; i < 20000; i++) {
        if (check_random(&random) % 3 != 0) {
            CHECK_OK(
                merge_queue_push(&queue, (struct merge_candidate){check_random(&random), 0, 0}));
            held++;
        } else if (merge_queue_pop(&queue, &candidate)) {
            held--;
            for (size_t k = 0; k < queue.count; k += 1 + queue.count / 16) {
                assert_true(candidate.key <= queue.heap[k].key);
            }
        }
        assert_int_equal(queue.count, held);
    }
    merge_queue_finish(&queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_smallest_first),
        cmocka_unit_test(test_mixed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
