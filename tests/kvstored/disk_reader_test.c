// SPDX-License-Identifier: Apache-2.0
// At stake: a walk that skips or repeats what is on disk would leave blocks unverified and
// unindexed for ever.
#include "kvstored/disk_reader.h"
#include "tests/kvstored/disk_rig.h"

static void walks_see_everything_once_in_order(void **state)
{
    (void)state;
    struct disk_rig rig;
    struct disk_reader *reader;
    struct block_id id, last = {{0}};
    const uint8_t *value;
    uint32_t count = 0;
    disk_rig_init(&rig);
    disk_rig_put_chain(&rig, 1, 50);
    CHECK_OK(disk_reader_begin(rig.disk, &reader));
    enum status status = disk_reader_block_after(reader, NULL, &id, &value);
    while (status == STATUS_OK) {
        assert_true(count == 0 || memcmp(id.bytes, last.bytes, BLOCK_ID_BYTES) > 0);
        assert_non_null(value);
        struct block_header header;
        memcpy(&header, value, sizeof(header));
        assert_true(block_id_equal(&header.id, &id));
        CHECK_OK(block_verify(&header, value + sizeof(header), RIG_PAYLOAD_BYTES));
        last = id;
        count++;
        status = disk_reader_block_after(reader, &last, &id, &value);
    }
    assert_int_equal(status, STATUS_NOT_FOUND);
    assert_int_equal(count, 50);
    // From an id that is not there: the next one.
    memset(last.bytes, 0, sizeof(last.bytes));
    CHECK_OK(disk_reader_block_after(reader, &last, &id, &value));
    memset(last.bytes, 0xff, sizeof(last.bytes));
    assert_int_equal(disk_reader_block_after(reader, &last, &id, &value), STATUS_NOT_FOUND);
    assert_int_equal(disk_reader_block(reader, &last, &value), STATUS_NOT_FOUND);
    disk_reader_end(reader);
    disk_rig_finish(&rig);
}

static void sessions_are_walked_too(void **state)
{
    (void)state;
    struct disk_rig rig;
    struct disk_reader *reader;
    struct checkpoint_key key, after;
    struct checkpoint_record record;
    const void *data;
    size_t bytes;
    disk_rig_init(&rig);
    CHECK_OK(disk_reader_begin(rig.disk, &reader));
    assert_int_equal(disk_reader_session_after(reader, NULL, &key, &data, &bytes),
                     STATUS_NOT_FOUND);
    disk_reader_end(reader);
    disk_rig_put_session(&rig, "b", 1, 2, false, 7);
    disk_rig_put_session(&rig, "a", 2, 3, true, 8);
    CHECK_OK(disk_reader_begin(rig.disk, &reader));
    CHECK_OK(disk_reader_session_after(reader, NULL, &key, &data, &bytes));
    CHECK_OK(checkpoint_decode(&key, data, bytes, &record));
    assert_string_equal(record.checkpoint.name, "a");
    assert_int_equal(record.updated_ms, 8);
    checkpoint_record_finish(&record);
    after = key;
    CHECK_OK(disk_reader_session_after(reader, &after, &key, &data, &bytes));
    CHECK_OK(checkpoint_decode(&key, data, bytes, &record));
    assert_string_equal(record.checkpoint.name, "b");
    checkpoint_record_finish(&record);
    after = key;
    assert_int_equal(disk_reader_session_after(reader, &after, &key, &data, &bytes),
                     STATUS_NOT_FOUND);
    disk_reader_end(reader);
    disk_rig_finish(&rig);
}

// What a view shows does not change while it is open.
static void a_view_stands_still(void **state)
{
    (void)state;
    struct disk_rig rig;
    struct disk_reader *reader;
    struct disk_writer *writer;
    struct rig_block block;
    const uint8_t *value;
    disk_rig_init(&rig);
    disk_rig_put_chain(&rig, 1, 10);
    rig_block_make(&rig.name_space, 1, 3, &block);
    CHECK_OK(disk_reader_begin(rig.disk, &reader));
    CHECK_OK(disk_reader_block(reader, &block.header.id, &value));
    CHECK_OK(disk_writer_begin(rig.disk, &writer));
    CHECK_OK(disk_writer_remove_block(writer, &block.header.id));
    CHECK_OK(disk_writer_commit(writer));
    disk_rig_put_chain(&rig, 2, 30); // would like the freed pages
    disk_rig_put_chain(&rig, 3, 30);
    assert_memory_equal(value + sizeof(struct block_header), block.payload, RIG_PAYLOAD_BYTES);
    disk_reader_end(reader);
    assert_false(disk_rig_has(&rig, 1, 3));
    disk_rig_finish(&rig);
}

static void readers_are_bounded(void **state)
{
    (void)state;
    struct disk_rig rig;
    struct disk_reader *readers[64];
    int count = 0;
    enum status status = STATUS_OK;
    disk_rig_init(&rig);
    while (count < 64 && (status = disk_reader_begin(rig.disk, &readers[count])) == STATUS_OK) {
        count++;
    }
    assert_int_equal(status, STATUS_BUSY);
    for (int i = 0; i < count; i++) {
        disk_reader_end(readers[i]);
    }
    disk_reader_end(NULL);
    disk_rig_finish(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(walks_see_everything_once_in_order),
        cmocka_unit_test(sessions_are_walked_too),
        cmocka_unit_test(a_view_stands_still),
        cmocka_unit_test(readers_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
