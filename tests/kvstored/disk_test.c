// SPDX-License-Identifier: Apache-2.0
// At stake: opening what belongs to another namespace, or taking levels that are not true. Opening
// and closing, by the right and the wrong namespace, and errors of the database told apart.
#include "kvstored/disk.h"
#include "kvstored/disk_internal.h"
#include "tests/kvstored/disk_rig.h"

#include <errno.h>

static void a_folder_belongs_to_its_namespace(void **state)
{
    (void)state;
    struct disk_rig rig;
    struct disk *disk = NULL;
    struct reason reason = {0};
    disk_rig_init(&rig);
    rig.name_space.fingerprint[31] ^= 1; // the folder's name would be the same
    disk_close(rig.disk);
    rig.disk = NULL;
    assert_int_equal(disk_rig_open(&rig, 32 << 20), STATUS_MISMATCH);
    rig.name_space.fingerprint[31] ^= 1;
    rig.name_space.groups[0].layer_count--;
    assert_int_equal(disk_rig_open(&rig, 32 << 20), STATUS_MISMATCH);
    rig.name_space.groups[0].layer_count++;
    CHECK_OK(disk_rig_open(&rig, 32 << 20));
    disk_close(rig.disk);
    rig.disk = NULL;
    const struct disk_options any = {.folder = rig.folder, .bytes_max = 1};
    CHECK_OK(disk_open(&any, &disk, &reason)); // whichever it holds
    assert_memory_equal(disk_namespace(disk)->fingerprint, rig.name_space.fingerprint, 32);
    assert_string_equal(disk_namespace(disk)->fields[0].value, "rig");
    assert_int_equal(disk_payload_bytes(disk), RIG_PAYLOAD_BYTES);
    disk_close(disk);
    disk_rig_finish(&rig);
}

static void without_a_namespace_nothing_is_made(void **state)
{
    (void)state;
    char folder[256];
    struct disk *disk = NULL;
    struct reason reason = {0};
    check_folder_create(folder);
    const struct disk_options options = {.folder = folder, .bytes_max = 32 << 20};
    assert_int_equal(disk_open(&options, &disk, &reason), STATUS_NOT_FOUND);
    char command[300];
    snprintf(command, sizeof(command), "test -z \"$(ls -A '%s')\"", folder);
    assert_int_equal(system(command), 0);
    check_folder_remove(folder);
}

static void levels_are_true(void **state)
{
    (void)state;
    struct disk_rig rig;
    struct disk_levels empty, levels;
    disk_rig_init(&rig);
    CHECK_OK(disk_levels(rig.disk, &empty));
    assert_int_equal(empty.block_count, 0);
    disk_rig_put_chain(&rig, 1, 60);
    disk_rig_put_session(&rig, "one", 1, 60, false, 5);
    CHECK_OK(disk_levels(rig.disk, &levels));
    assert_int_equal(levels.block_count, 60);
    assert_int_equal(levels.session_count, 1);
    // A value is whole pages with LMDB's 16 bytes before it.
    assert_int_equal((disk_value_bytes(rig.disk) + 16) % 4096, 0);
    assert_true(levels.used_bytes >= empty.used_bytes + 60 * disk_value_bytes(rig.disk));
    assert_true(levels.used_bytes <= empty.used_bytes + 60 * disk_value_bytes(rig.disk) + 100000);
    assert_true(levels.file_bytes >= levels.used_bytes);
    CHECK_OK(disk_sync(rig.disk));
    disk_rig_finish(&rig);
}

static void errors_are_told_apart(void **state)
{
    (void)state;
    assert_int_equal(disk_status(0), STATUS_OK);
    assert_int_equal(disk_status(MDB_NOTFOUND), STATUS_NOT_FOUND);
    assert_int_equal(disk_status(MDB_KEYEXIST), STATUS_EXISTS);
    assert_int_equal(disk_status(MDB_MAP_FULL), STATUS_REFUSED);
    assert_int_equal(disk_status(MDB_CORRUPTED), STATUS_DAMAGED);
    assert_int_equal(disk_status(MDB_PANIC), STATUS_DAMAGED);
    assert_int_equal(disk_status(MDB_VERSION_MISMATCH), STATUS_VERSION);
    assert_int_equal(disk_status(MDB_READERS_FULL), STATUS_BUSY);
    assert_int_equal(disk_status(ENOSPC), STATUS_NO_SPACE);
    assert_int_equal(disk_status(EDQUOT), STATUS_NO_SPACE);
    assert_int_equal(disk_status(EROFS), STATUS_PERMISSION);
    assert_int_equal(disk_status(ENOMEM), STATUS_NO_MEMORY);
    assert_int_equal(disk_status(EIO), STATUS_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_belongs_to_its_namespace),
        cmocka_unit_test(without_a_namespace_nothing_is_made),
        cmocka_unit_test(levels_are_true),
        cmocka_unit_test(errors_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
