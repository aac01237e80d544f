// SPDX-License-Identifier: Apache-2.0
// At stake: removing what another session still needs loses a user's work; not removing what nobody
// needs fills the disk. Sessions that share blocks, damaged records, and the order of eviction.
#include "kvstored/sweep.h"
#include "tests/kvstored/disk_rig.h"

static const struct block_index none;

static struct checkpoint_key key_of(const char *name)
{
    struct checkpoint_key key;
    checkpoint_key_make(name, "u", 1, &key);
    return key;
}

static void shared_blocks_stay(void **state)
{
    (void)state;
    struct disk_rig rig;
    struct sweep_removed removed = {0};
    struct checkpoint_key a, b;
    disk_rig_init(&rig);
    disk_rig_put_chain(&rig, 1, 8);
    disk_rig_put_session(&rig, "a", 1, 8, true, 1);
    disk_rig_put_session(&rig, "b", 1, 3, true, 2);
    a = key_of("a");
    b = key_of("b");
    CHECK_OK(sweep_remove_session(rig.disk, &a, &none, &removed));
    assert_int_equal(removed.count, 5);
    assert_int_equal(removed.session_count, 1);
    assert_true(disk_rig_has(&rig, 1, 2));
    assert_false(disk_rig_has(&rig, 1, 3));
    assert_int_equal(sweep_remove_session(rig.disk, &a, &none, &removed), STATUS_NOT_FOUND);
    CHECK_OK(sweep_remove_session(rig.disk, &b, &none, &removed));
    assert_int_equal(removed.count, 8);
    sweep_removed_finish(&removed);
    disk_rig_finish(&rig);
}

static void held_blocks_stay(void **state)
{
    (void)state;
    struct disk_rig rig;
    struct sweep_removed removed = {0};
    struct block_index held;
    struct rig_block block;
    struct checkpoint_key a = key_of("a");
    disk_rig_init(&rig);
    disk_rig_put_chain(&rig, 1, 4);
    disk_rig_put_session(&rig, "a", 1, 4, true, 1);
    rig_block_make(&rig.name_space, 1, 2, &block);
    CHECK_OK(block_index_init(&held, 1));
    CHECK_OK(block_index_insert(&held, &block.header.id, 0));
    CHECK_OK(sweep_remove_session(rig.disk, &a, &held, &removed));
    assert_int_equal(removed.count, 3);
    assert_true(disk_rig_has(&rig, 1, 2));
    block_index_finish(&held);
    sweep_removed_finish(&removed);
    disk_rig_finish(&rig);
}

static void damaged_records_go_too(void **state)
{
    (void)state;
    struct disk_rig rig;
    struct sweep_removed removed = {0};
    struct checkpoint_key a = key_of("a");
    disk_rig_init(&rig);
    disk_rig_put_chain(&rig, 1, 4);
    disk_rig_spoil_session(&rig, "a");
    CHECK_OK(sweep_remove_session(rig.disk, &a, &none, &removed));
    assert_int_equal(removed.session_count, 1);
    assert_int_equal(removed.count, 0);                  // nobody knows which were its blocks
    CHECK_OK(sweep_evict(rig.disk, 1, &none, &removed)); // they are nobody's now
    assert_true(removed.count > 0);
    sweep_removed_finish(&removed);
    disk_rig_finish(&rig);
}

static void evicts_orphans_then_the_oldest(void **state)
{
    (void)state;
    struct disk_rig rig;
    struct sweep_removed removed = {0};
    disk_rig_init(&rig);
    uint64_t value = disk_value_bytes(rig.disk);
    for (uint32_t seed = 1; seed <= 5; seed++) { // 5 has no session
        disk_rig_put_chain(&rig, seed, 10);
    }
    disk_rig_put_session(&rig, "keep", 1, 10, true, 1); // the oldest
    disk_rig_put_session(&rig, "old", 2, 10, false, 2);
    disk_rig_put_session(&rig, "new", 3, 10, false, 4);
    disk_rig_put_session(&rig, "mid", 4, 10, false, 3);
    CHECK_OK(sweep_evict(rig.disk, 9 * value, &none, &removed));
    assert_int_equal(removed.session_count, 0);
    assert_true(removed.count >= 9 && removed.count <= 10);
    sweep_removed_finish(&removed);
    CHECK_OK(sweep_evict(rig.disk, 12 * value, &none, &removed));
    assert_false(disk_rig_has_session(&rig, "old"));
    assert_false(disk_rig_has_session(&rig, "mid"));
    assert_true(disk_rig_has_session(&rig, "new"));
    sweep_removed_finish(&removed);
    CHECK_OK(sweep_evict(rig.disk, 1000 * value, &none, &removed));
    assert_false(disk_rig_has_session(&rig, "new"));
    assert_true(disk_rig_has_session(&rig, "keep"));
    assert_true(disk_rig_has(&rig, 1, 9));
    sweep_removed_finish(&removed);
    assert_int_equal(sweep_evict(rig.disk, value, &none, &removed), STATUS_REFUSED);
    sweep_removed_finish(&removed);
    disk_rig_finish(&rig);
}

// A session whose last block is held is at work: it is not evicted however old it is.
static void live_sessions_are_not_evicted(void **state)
{
    (void)state;
    struct disk_rig rig;
    struct sweep_removed removed = {0};
    struct block_index held;
    struct rig_block block;
    disk_rig_init(&rig);
    disk_rig_put_chain(&rig, 1, 10);
    disk_rig_put_session(&rig, "live", 1, 10, false, 1);
    rig_block_make(&rig.name_space, 1, 9, &block);
    CHECK_OK(block_index_init(&held, 1));
    CHECK_OK(block_index_insert(&held, &block.header.id, 0));
    assert_int_equal(sweep_evict(rig.disk, 1, &held, &removed), STATUS_REFUSED);
    assert_true(disk_rig_has(&rig, 1, 0));
    block_index_finish(&held);
    sweep_removed_finish(&removed);
    disk_rig_finish(&rig);
}

static void more_removals_than_a_transaction_holds(void **state)
{
    (void)state;
    struct disk_rig rig;
    struct sweep_removed removed = {0};
    static struct block_id ids[12 * 60];
    uint32_t count = 0;
    disk_rig_init(&rig);
    for (uint32_t seed = 1; seed <= 12; seed++) {
        disk_rig_put_chain(&rig, seed, 60);
        for (uint32_t i = 0; i < 60; i++) {
            struct rig_block block;
            rig_block_make(&rig.name_space, seed, i, &block);
            ids[count++] = block.header.id;
        }
    }
    ids[5] = ids[4]; // given twice: removed once
    CHECK_OK(sweep_remove_blocks(rig.disk, ids, count, &removed));
    assert_int_equal(removed.count, count - 1);
    assert_true(disk_rig_has(&rig, 1, 5));
    sweep_removed_finish(&removed);
    disk_rig_finish(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_blocks_stay),
        cmocka_unit_test(held_blocks_stay),
        cmocka_unit_test(damaged_records_go_too),
        cmocka_unit_test(evicts_orphans_then_the_oldest),
        cmocka_unit_test(live_sessions_are_not_evicted),
        cmocka_unit_test(more_removals_than_a_transaction_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
