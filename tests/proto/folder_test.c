// SPDX-License-Identifier: Apache-2.0
// At stake: sockets and stores lie in folders that nobody else may enter; one that another user
// made (in /tmp anyone can) is refused.
#include "tests/check.h"

#include "proto/os/file.h"
#include "proto/os/folder.h"

#include <sys/stat.h>

static void folders_are_ours_alone(void **state)
{
    (void)state;
    char base[256];
    char path[300];
    check_folder_create(base);
    struct reason reason = {0};
    snprintf(path, sizeof(path), "%s/a/b/c", base);
    CHECK_OK(os_folder_create(path, &reason));
    CHECK_OK(os_folder_create(path, &reason)); // again
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    assert_int_equal(chmod(path, 0750), 0);
    assert_int_equal(os_folder_create(path, &reason), STATUS_PERMISSION);
    assert_true(strstr(reason.text, path) != NULL);
    assert_int_equal(chmod(path, 0700), 0);
    char link_path[300];
    snprintf(link_path, sizeof(link_path), "%s/link", base);
    assert_int_equal(symlink(path, link_path), 0);
    assert_int_equal(os_folder_create(link_path, &reason), STATUS_INVALID);
    char file_path[300];
    snprintf(file_path, sizeof(file_path), "%s/file", base);
    CHECK_OK(os_file_write_atomic(file_path, "x", 1));
    assert_int_equal(os_folder_create(file_path, &reason), STATUS_INVALID);
    assert_int_equal(os_folder_create("relative", &reason), STATUS_INVALID);
    if (getuid() == 0) { // only root can make another user's folder
        assert_int_equal(chown(path, 1, 1), 0);
        assert_int_equal(os_folder_create(path, &reason), STATUS_PERMISSION);
    }
    struct os_folder_identity one;
    struct os_folder_identity two;
    CHECK_OK(os_folder_identify(base, &one));
    CHECK_OK(os_folder_identify(path, &two));
    assert_true(one.inode != two.inode);
    snprintf(path, sizeof(path), "%s/absent", base);
    assert_int_equal(os_folder_identify(path, &one), STATUS_NOT_FOUND);
    uint64_t free_bytes = 1;
    uint64_t total_bytes = 0;
    CHECK_OK(os_folder_space(base, &free_bytes, &total_bytes));
    assert_true(free_bytes <= total_bytes);
    assert_int_equal(os_folder_space(path, &free_bytes, &total_bytes), STATUS_NOT_FOUND);
    check_folder_remove(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders_are_ours_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
