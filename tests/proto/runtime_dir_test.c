// SPDX-License-Identifier: Apache-2.0
// At stake: two instances, and tests, never meet. Paths by the table of INTERFACE "Files".
#include "tests/check.h"

#include "proto/limits.h"
#include "proto/runtime_dir.h"

#include <sys/stat.h>

static void paths_follow_the_table(void **state)
{
    (void)state;
    struct runtime_paths paths;
    struct reason reason = {0};
    CHECK_OK(runtime_dir_resolve(
        &(struct runtime_environment){.xdg_runtime_dir = "/run/user/7/", .home = "/home/u"}, &paths,
        &reason));
    assert_string_equal(paths.runtime_dir, "/run/user/7/kvtier");
    assert_string_equal(paths.data_dir, "/home/u/.local/share/kvtier");
    assert_string_equal(paths.config_dir, "/home/u/.config/kvtier");
    assert_string_equal(paths.state_dir, "/home/u/.local/state/kvtier");
    char expected[64];
    snprintf(expected, sizeof(expected), "/tmp/kvtier-%u", (unsigned)geteuid());
    CHECK_OK(runtime_dir_resolve(
        &(struct runtime_environment){.xdg_runtime_dir = "", .home = "/home/u"}, &paths, &reason));
    assert_string_equal(paths.runtime_dir, expected);
    CHECK_OK(runtime_dir_resolve(&(struct runtime_environment){.system_service = true}, &paths,
                                 &reason));
    assert_string_equal(paths.runtime_dir, "/run/kvtier");
    assert_string_equal(paths.data_dir, "/var/lib/kvtier");
    assert_string_equal(paths.config_dir, "/etc/kvtier");
    const struct runtime_environment overridden = {.kvtier_runtime_dir = "/r",
                                                   .kvtier_data_dir = "/d/",
                                                   .kvtier_config_dir = "/c",
                                                   .xdg_runtime_dir = "/x",
                                                   .system_service = true};
    CHECK_OK(runtime_dir_resolve(&overridden, &paths, &reason));
    assert_string_equal(paths.runtime_dir, "/r");
    assert_string_equal(paths.data_dir, "/d");
    assert_string_equal(paths.config_dir, "/c");
    assert_string_equal(paths.state_dir, "/d");
}

static void bad_values_are_named(void **state)
{
    (void)state;
    struct runtime_paths paths;
    struct reason reason = {0};
    assert_int_equal(
        runtime_dir_resolve(&(struct runtime_environment){.home = ""}, &paths, &reason),
        STATUS_INVALID);
    assert_true(strstr(reason.text, "HOME") != NULL);
    assert_int_equal(runtime_dir_resolve(
                         &(struct runtime_environment){.kvtier_runtime_dir = "rel", .home = "/h"},
                         &paths, &reason),
                     STATUS_INVALID);
    assert_true(strstr(reason.text, "KVTIER_RUNTIME_DIR=rel") != NULL);
    char text[RUNTIME_PATH_BYTES + 1];
    memset(text, 'x', sizeof(text) - 1);
    text[0] = '/';
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(
        runtime_dir_resolve(&(struct runtime_environment){.home = text}, &paths, &reason),
        STATUS_INVALID);
    assert_int_equal(
        runtime_dir_resolve(&(struct runtime_environment){.kvtier_data_dir = "//", .home = "/h"},
                            &paths, &reason),
        STATUS_INVALID);
}

static void runtime_folders_are_checked(void **state)
{
    (void)state;
    char base[256];
    char path[400];
    struct reason reason = {0};
    check_folder_create(base);
    snprintf(path, sizeof(path), "%s/run", base);
    CHECK_OK(runtime_dir_prepare(path, &reason));
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    assert_int_equal(chmod(path, 0755), 0);
    assert_int_equal(runtime_dir_prepare(path, &reason), STATUS_PERMISSION);
    int length = snprintf(path, sizeof(path), "%s/", base);
    memset(path + length, 'y', sizeof(path) - (size_t)length);
    path[LIMIT_SOCKET_PATH_BYTES - strlen("/kvstored.sock") + 1] = '\0';
    assert_int_equal(runtime_dir_prepare(path, &reason), STATUS_INVALID);
    assert_true(strstr(reason.hint, "KVTIER_RUNTIME_DIR") != NULL);
    path[LIMIT_SOCKET_PATH_BYTES - strlen("/kvstored.sock")] = '\0';
    CHECK_OK(runtime_dir_prepare(path, &reason));
    check_folder_remove(base);
}

static void each_folder_has_an_arena_of_its_own(void **state)
{
    (void)state;
    char base[256];
    char names[3][RUNTIME_ARENA_NAME_BYTES];
    char path[300];
    check_folder_create(base);
    CHECK_OK(runtime_dir_arena_name(base, names[0]));
    snprintf(path, sizeof(path), "%s/.", base);
    CHECK_OK(runtime_dir_arena_name(path, names[1])); // the same folder, however it is written
    assert_string_equal(names[0], names[1]);
    snprintf(path, sizeof(path), "%s/other", base);
    assert_int_equal(runtime_dir_arena_name(path, names[2]), STATUS_NOT_FOUND);
    assert_int_equal(mkdir(path, 0700), 0);
    CHECK_OK(runtime_dir_arena_name(path, names[2]));
    assert_string_not_equal(names[0], names[2]);
    char prefix[32];
    int length = snprintf(prefix, sizeof(prefix), "/kvtier-%u-", (unsigned)geteuid());
    assert_memory_equal(names[0], prefix, (size_t)length);
    assert_int_equal(strlen(names[0]), length + 16);
    check_folder_remove(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_follow_the_table),
        cmocka_unit_test(bad_values_are_named),
        cmocka_unit_test(runtime_folders_are_checked),
        cmocka_unit_test(each_folder_has_an_arena_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
