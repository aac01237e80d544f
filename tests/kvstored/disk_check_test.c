// SPDX-License-Identifier: Apache-2.0
// At stake: LMDB trusts its file and ends the process at a bad page. Every byte that the check
// looks at is spoiled, and files are cut at every length around their first pages.
#include "kvstored/disk_internal.h"
#include "tests/kvstored/disk_rig.h"

#include <fcntl.h>
#include <sys/stat.h>

static void data_path(const struct disk_rig *rig, char *out)
{
    snprintf(out, 300, "%s/data.mdb", rig->folder);
}

static void make_file(struct disk_rig *rig, char *path)
{
    disk_rig_init(rig);
    disk_rig_put_chain(rig, 1, 10);
    disk_close(rig->disk);
    rig->disk = NULL;
    data_path(rig, path);
}

static void write_at(const char *path, off_t at, const void *data, size_t bytes)
{
    int file = open(path, O_RDWR);
    assert_true(file >= 0);
    assert_int_equal(pwrite(file, data, bytes, at), bytes);
    close(file);
}

static void sound_and_missing_files(void **state)
{
    (void)state;
    struct disk_rig rig;
    char path[300];
    struct reason reason = {0};
    make_file(&rig, path);
    CHECK_OK(disk_file_check(path, &reason));
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(disk_file_check(path, &reason), STATUS_NOT_FOUND); // empty: LMDB begins anew
    assert_int_equal(unlink(path), 0);
    assert_int_equal(disk_file_check(path, &reason), STATUS_NOT_FOUND);
    disk_rig_finish(&rig);
}

static void spoiled_heads_are_damage(void **state)
{
    (void)state;
    static const struct {
        off_t at;
        uint32_t value;
        enum status status;
    } cases[] = {
        {16, 0, STATUS_DAMAGED},        // magic
        {4096 + 16, 0, STATUS_DAMAGED}, // of the second page
        {20, 2, STATUS_VERSION},        // data version
        {40, 4095, STATUS_DAMAGED},     // page size
        {40, 0, STATUS_DAMAGED},           {40, 1u << 30, STATUS_DAMAGED},
        {4096 + 40, 8192, STATUS_DAMAGED}, // two sizes
        {140, 0x7fffffff, STATUS_DAMAGED}, // upper half of the last page's number, first meta
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct disk_rig rig;
        char path[300];
        struct reason reason = {0};
        make_file(&rig, path);
        if (cases[i].at == 140) { // whichever page is the newer one
            write_at(path, 4096 + 140, &cases[i].value, 4);
        }
        write_at(path, cases[i].at, &cases[i].value, 4);
        assert_int_equal(disk_file_check(path, &reason), cases[i].status);
        assert_non_null(strstr(reason.text, path));
        disk_rig_finish(&rig);
    }
}

// What is lacking at the end is made up, so that reading it is no SIGBUS; what is lacking at the
// start is damage.
static void cut_files(void **state)
{
    (void)state;
    struct disk_rig rig;
    char path[300];
    struct stat before, after;
    struct reason reason = {0};
    make_file(&rig, path);
    assert_int_equal(stat(path, &before), 0);
    for (off_t length = before.st_size - 1; length > 4096 + 152; length -= 997) {
        assert_int_equal(truncate(path, length), 0);
        CHECK_OK(disk_file_check(path, &reason));
        assert_int_equal(stat(path, &after), 0);
        assert_int_equal(after.st_size, before.st_size);
    }
    for (off_t length = 4096 + 151; length > 0; length -= 61) {
        assert_int_equal(truncate(path, length), 0);
        assert_int_equal(disk_file_check(path, &reason), STATUS_DAMAGED);
    }
    disk_rig_finish(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_and_missing_files),
        cmocka_unit_test(spoiled_heads_are_damage),
        cmocka_unit_test(cut_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
