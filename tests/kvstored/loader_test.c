// SPDX-License-Identifier: Apache-2.0
// At stake: serving what was read and not verified. Sound, damaged, misplaced and missing blocks
// through the thread, and a stop with work left.
#include "kvstored/loader.h"
#include "tests/kvstored/disk_rig.h"

enum { BLOCKS = 60 };

static struct loader_result take(struct loader *loader, struct bell *bell)
{
    struct loader_result result;
    uint64_t deadline = os_clock_ms() + 10000;
    while (!loader_next_result(loader, &result)) {
        assert_true(os_clock_ms() < deadline);
        bell_wait(bell, 100);
    }
    return result;
}

static void loads_what_is_whole_and_nothing_else(void **state)
{
    (void)state;
    static struct rig_block places[BLOCKS];
    struct disk_rig rig;
    struct bell bell;
    struct loader *loader;
    struct disk_writer *writer;
    struct rig_block block, other;
    disk_rig_init(&rig);
    bell_init(&bell, NULL, NULL);
    disk_rig_put_chain(&rig, 1, 50);
    disk_rig_put_damaged(&rig, 1, 50);
    rig_block_make(&rig.name_space, 2, 0, &block); // a whole block under another's id
    rig_block_make(&rig.name_space, 1, 51, &other);
    CHECK_OK(disk_writer_begin(rig.disk, &writer));
    CHECK_OK(disk_writer_put_block(writer, &other.header.id, &block.header, block.payload));
    CHECK_OK(disk_writer_commit(writer));
    CHECK_OK(loader_start(rig.disk, &bell, BLOCKS, &loader));
    for (uint32_t i = 0; i < BLOCKS; i++) {
        rig_block_make(&rig.name_space, 1, i, &block);
        loader_submit(loader, &(struct loader_block){.slot = i,
                                                     .id = block.header.id,
                                                     .header = &places[i].header,
                                                     .payload = places[i].payload});
    }
    for (uint32_t i = 0; i < BLOCKS; i++) {
        struct loader_result result = take(loader, &bell);
        assert_int_equal(result.slot, i);
        assert_int_equal(result.status, i < 50   ? STATUS_OK
                                        : i < 52 ? STATUS_DAMAGED
                                                 : STATUS_NOT_FOUND);
        if (i < 50) {
            rig_block_make(&rig.name_space, 1, i, &block);
            assert_memory_equal(&places[i], &block, sizeof(block));
        }
    }
    loader_stop(loader);
    loader_destroy(loader);
    loader_destroy(NULL);
    bell_finish(&bell);
    disk_rig_finish(&rig);
}

static void a_stop_answers_everything(void **state)
{
    (void)state;
    static struct rig_block places[BLOCKS];
    struct disk_rig rig;
    struct bell bell;
    struct loader *loader;
    struct loader_result result;
    struct rig_block block;
    uint32_t answered = 0;
    disk_rig_init(&rig);
    bell_init(&bell, NULL, NULL);
    disk_rig_put_chain(&rig, 1, BLOCKS);
    CHECK_OK(loader_start(rig.disk, &bell, BLOCKS, &loader));
    for (uint32_t i = 0; i < BLOCKS; i++) {
        rig_block_make(&rig.name_space, 1, i, &block);
        loader_submit(loader, &(struct loader_block){.slot = i,
                                                     .id = block.header.id,
                                                     .header = &places[i].header,
                                                     .payload = places[i].payload});
    }
    loader_stop(loader);
    while (loader_next_result(loader, &result)) {
        assert_true(result.status == STATUS_OK || result.status == STATUS_CANCELLED);
        answered++;
    }
    assert_int_equal(answered, BLOCKS);
    loader_destroy(loader);
    bell_finish(&bell);
    disk_rig_finish(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loads_what_is_whole_and_nothing_else),
        cmocka_unit_test(a_stop_answers_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
