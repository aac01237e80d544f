// SPDX-License-Identifier: Apache-2.0
// At stake: damage that verify does not see. Sound, damaged and misplaced blocks, damaged sessions,
// more damage than is listed, and stopping.
#include "kvstored/verify.h"
#include "tests/kvstored/disk_rig.h"

static struct kv_verify_reply run(struct disk_rig *rig, struct verify_damage *damage)
{
    struct kv_verify_reply reply = {0};
    const atomic_bool stop = false;
    CHECK_OK(verify_disk(rig->disk, &stop, &reply, damage));
    return reply;
}

static void counts_what_is_sound(void **state)
{
    (void)state;
    struct disk_rig rig;
    struct verify_damage damage = {0};
    disk_rig_init(&rig);
    disk_rig_put_chain(&rig, 1, 60);
    disk_rig_put_chain(&rig, 2, 41); // not a whole number of steps
    disk_rig_put_session(&rig, "a", 1, 60, false, 1);
    struct kv_verify_reply reply = run(&rig, &damage);
    assert_int_equal(reply.block_count, 101);
    assert_int_equal(reply.payload_bytes, 101 * RIG_PAYLOAD_BYTES);
    assert_int_equal(reply.session_count, 1);
    assert_int_equal(reply.namespace_count, 1);
    assert_int_equal(reply.damaged_count, 0);
    assert_null(reply.rows);
    disk_rig_finish(&rig);
}

static void finds_damage_and_repairs_it(void **state)
{
    (void)state;
    struct disk_rig rig;
    struct verify_damage damage = {0};
    struct rig_block block, other;
    struct disk_writer *writer;
    uint64_t repaired = 0;
    disk_rig_init(&rig);
    disk_rig_put_chain(&rig, 1, 5);
    disk_rig_put_damaged(&rig, 2, 0);
    rig_block_make(&rig.name_space, 3, 0, &block); // a whole block under another's id
    rig_block_make(&rig.name_space, 3, 1, &other);
    CHECK_OK(disk_writer_begin(rig.disk, &writer));
    CHECK_OK(disk_writer_put_block(writer, &other.header.id, &block.header, block.payload));
    CHECK_OK(disk_writer_commit(writer));
    disk_rig_spoil_session(&rig, "bad");
    disk_rig_put_session(&rig, "good", 1, 5, false, 1);
    struct kv_verify_reply reply = run(&rig, &damage);
    assert_int_equal(reply.damaged_count, 3);
    assert_int_equal(reply.count, 3);
    assert_true(reply.rows[0].is_session);
    assert_string_equal(reply.rows[0].name, "bad");
    assert_int_equal(damage.blocks.count, 2);
    assert_int_equal(damage.key_count, 1);
    free(reply.rows);
    CHECK_OK(verify_repair(rig.disk, &damage, &repaired));
    assert_int_equal(repaired, 3);
    verify_damage_finish(&damage);
    reply = run(&rig, &damage);
    assert_int_equal(reply.damaged_count, 0);
    assert_int_equal(reply.block_count, 5);
    assert_int_equal(reply.session_count, 1);
    disk_rig_finish(&rig);
}

static void lists_are_bounded_and_counts_are_not(void **state)
{
    (void)state;
    struct disk_rig rig;
    struct verify_damage damage = {0};
    struct disk_writer *writer;
    disk_rig_init(&rig);
    CHECK_OK(disk_writer_begin(rig.disk, &writer));
    for (uint32_t i = 0; i < KV_DAMAGED_MAX + 20; i++) {
        struct rig_block block = {{0}, {0}};
        memcpy(block.header.id.bytes, &i, sizeof(i));
        CHECK_OK(disk_writer_put_block(writer, &block.header.id, &block.header, block.payload));
    }
    CHECK_OK(disk_writer_commit(writer));
    struct kv_verify_reply reply = run(&rig, &damage);
    assert_int_equal(reply.damaged_count, KV_DAMAGED_MAX + 20);
    assert_int_equal(reply.count, KV_DAMAGED_MAX);
    assert_int_equal(damage.blocks.count, KV_DAMAGED_MAX + 20);
    free(reply.rows);
    verify_damage_finish(&damage);
    disk_rig_finish(&rig);
}

static void stops_when_told(void **state)
{
    (void)state;
    struct disk_rig rig;
    struct verify_damage damage = {0};
    struct kv_verify_reply reply = {0};
    const atomic_bool stop = true;
    disk_rig_init(&rig);
    disk_rig_put_chain(&rig, 1, 5);
    assert_int_equal(verify_disk(rig.disk, &stop, &reply, &damage), STATUS_CANCELLED);
    disk_rig_finish(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_what_is_sound),
        cmocka_unit_test(finds_damage_and_repairs_it),
        cmocka_unit_test(lists_are_bounded_and_counts_are_not),
        cmocka_unit_test(stops_when_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
