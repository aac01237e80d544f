// SPDX-License-Identifier: Apache-2.0
// At stake: that the hot pool never gives up memory that is being written, finds exactly the copies
// it holds, and gives up copies in the order that keeps the hot set still. Checked step by step,
// and by a random walk against a list kept by the test.
#include "gpud/hot_pool.h"
#include "tests/check.h"

enum { PAYLOAD_BYTES = 256 };

static struct block_id id_of(uint32_t number)
{
    struct block_id id = {{0}};
    memcpy(id.bytes, &number, sizeof(number));
    return id;
}

static struct hot_pool *pool_create(uint32_t slots)
{
    struct hot_pool *pool = NULL;
    struct reason reason = {0};
    CHECK_OK(
        hot_pool_create(slots * PAYLOAD_BYTES + PAYLOAD_BYTES / 2, PAYLOAD_BYTES, &pool, &reason));
    assert_int_equal(hot_pool_slot_count(pool), slots);
    return pool;
}

// Takes a slot and makes it the copy of block `number`.
static uint32_t add_copy(struct hot_pool *pool, uint32_t number)
{
    struct hot_victim victim;
    uint32_t slot = hot_pool_take(pool, &victim);
    assert_int_not_equal(slot, HOT_SLOT_NONE);
    struct block_id id = id_of(number);
    return hot_pool_name(pool, slot, &id, number);
}

static bool is_hot(struct hot_pool *pool, uint32_t number)
{
    struct block_id id = id_of(number);
    uint32_t slot = hot_pool_acquire(pool, &id);
    if (slot != HOT_SLOT_NONE) {
        hot_pool_release(pool, slot);
    }
    return slot != HOT_SLOT_NONE;
}

static void too_small_is_refused_with_the_numbers(void **state)
{
    (void)state;
    struct hot_pool *pool = NULL;
    struct reason reason = {0};
    assert_int_equal(hot_pool_create(PAYLOAD_BYTES - 1, PAYLOAD_BYTES, &pool, &reason),
                     STATUS_REFUSED);
    assert_null(pool);
    assert_non_null(strstr(reason.text, "255"));
    assert_non_null(strstr(reason.text, "256"));
}

static void written_slots_are_never_taken(void **state)
{
    (void)state;
    struct hot_pool *pool = pool_create(2);
    struct hot_victim victim;
    uint32_t a = hot_pool_take(pool, &victim);
    uint32_t b = hot_pool_take(pool, &victim);
    assert_int_not_equal(a, b);
    assert_int_equal(hot_pool_take(pool, &victim), HOT_SLOT_NONE);
    assert_int_equal(hot_pool_used_count(pool), 2);
    hot_pool_release(pool, a);
    assert_int_equal(hot_pool_used_count(pool), 1);
    assert_int_equal(hot_pool_take(pool, &victim), a);
    assert_false(victim.dropped);
    hot_pool_destroy(pool);
}

static void newest_resident_goes_first(void **state)
{
    (void)state;
    struct hot_pool *pool = pool_create(3);
    for (uint32_t i = 0; i < 3; i++) {
        add_copy(pool, i);
    }
    struct hot_victim victim;
    uint32_t slot = hot_pool_take(pool, &victim);
    assert_true(victim.dropped && victim.resident);
    assert_int_equal(victim.block_index, 2);
    assert_false(is_hot(pool, 2));
    hot_pool_release(pool, slot);
    assert_true(is_hot(pool, 0));
    hot_pool_destroy(pool);
}

static void oldest_idle_goes_before_residents(void **state)
{
    (void)state;
    struct hot_pool *pool = pool_create(3);
    uint32_t slots[3];
    for (uint32_t i = 0; i < 3; i++) {
        slots[i] = add_copy(pool, i);
    }
    hot_pool_release(pool, slots[1]);
    hot_pool_release(pool, slots[0]);
    assert_int_equal(hot_pool_spare_count(pool), 2);
    struct hot_victim victim;
    assert_int_equal(hot_pool_take(pool, &victim), slots[1]);
    assert_true(victim.dropped);
    assert_false(victim.resident);
    struct block_id id = id_of(0);
    assert_int_equal(hot_pool_acquire(pool, &id), slots[0]); // resident again, and the newest
    assert_int_equal(hot_pool_take(pool, &victim), slots[0]);
    assert_true(victim.resident);
    hot_pool_destroy(pool);
}

static void twin_shares_the_first_copy(void **state)
{
    (void)state;
    struct hot_pool *pool = pool_create(3);
    uint32_t first = add_copy(pool, 7);
    assert_int_equal(add_copy(pool, 7), first);
    assert_int_equal(hot_pool_used_count(pool), 1);
    hot_pool_release(pool, first);
    assert_int_equal(hot_pool_spare_count(pool), 2); // still one user
    hot_pool_release(pool, first);
    assert_int_equal(hot_pool_spare_count(pool), 3);
    hot_pool_destroy(pool);
}

static void payloads_are_apart_and_copied_whole(void **state)
{
    (void)state;
    struct hot_pool *pool = pool_create(2);
    struct hot_victim victim;
    uint8_t in[2][PAYLOAD_BYTES];
    uint32_t slots[2];
    for (int i = 0; i < 2; i++) {
        slots[i] = hot_pool_take(pool, &victim);
        memset(in[i], 'a' + i, PAYLOAD_BYTES);
        hot_pool_load(pool, slots[i], in[i]);
    }
    for (int i = 0; i < 2; i++) {
        struct check_edge out = check_edge_create(PAYLOAD_BYTES);
        hot_pool_store(pool, slots[i], out.data);
        assert_memory_equal(out.data, in[i], PAYLOAD_BYTES);
        check_edge_destroy(&out);
    }
    hot_pool_destroy(pool);
}

// Random takes, names, acquires and releases; the payload of each copy carries its number, so a
// copy that was overwritten while named shows.
static void random_walk_keeps_every_copy_true(void **state)
{
    (void)state;
    enum { SLOTS = 9, NUMBERS = 20, STEPS = 20000 };
    uint64_t seed = check_seed();
    struct hot_pool *pool = pool_create(SLOTS);
    uint32_t users[SLOTS] = {0};
    for (int step = 0; step < STEPS; step++) {
        uint32_t number = (uint32_t)(check_random(&seed) % NUMBERS);
        struct block_id id = id_of(number);
        uint32_t slot = hot_pool_acquire(pool, &id);
        if (slot == HOT_SLOT_NONE) {
            struct hot_victim victim;
            slot = hot_pool_take(pool, &victim);
            assert_true(victim.resident == (users[slot] > 0));
            users[slot] = 0;
            memcpy(hot_pool_payload(pool, slot), &number, sizeof(number));
            assert_int_equal(hot_pool_name(pool, slot, &id, number), slot);
        }
        users[slot]++;
        assert_memory_equal(hot_pool_payload(pool, slot), &number, sizeof(number));
        uint32_t other = (uint32_t)(check_random(&seed) % SLOTS);
        while (users[other] > 0 && check_random(&seed) % 3 > 0) {
            hot_pool_release(pool, other);
            users[other]--;
        }
    }
    hot_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(too_small_is_refused_with_the_numbers),
        cmocka_unit_test(written_slots_are_never_taken),
        cmocka_unit_test(newest_resident_goes_first),
        cmocka_unit_test(oldest_idle_goes_before_residents),
        cmocka_unit_test(twin_shares_the_first_copy),
        cmocka_unit_test(payloads_are_apart_and_copied_whole),
        cmocka_unit_test(random_walk_keeps_every_copy_true),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
