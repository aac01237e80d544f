// SPDX-License-Identifier: Apache-2.0
// At stake: two daemons writing one store, and files that are not ours being taken for a namespace.
#include "kvstored/catalog.h"
#include "proto/os/disk_file.h"
#include "tests/check.h"

#include <sys/stat.h>

static void shell(const char *format, const char *folder)
{
    char command[1024];
    snprintf(command, sizeof(command), format, folder, folder, folder);
    assert_int_equal(system(command), 0);
}

static void one_process_at_a_time(void **state)
{
    (void)state;
    char folder[256];
    struct catalog catalog, second;
    struct reason reason = {0};
    struct stat info;
    check_folder_create(folder);
    CHECK_OK(catalog_open(folder, &catalog, &reason));
    assert_int_equal(stat(catalog.folder, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    assert_int_equal(catalog_open(folder, &second, &reason), STATUS_BUSY);
    assert_true(reason.text[0] != '\0' && reason.hint[0] != '\0');
    catalog_close(&catalog);
    CHECK_OK(catalog_open(folder, &second, &reason));
    catalog_close(&second);
    check_folder_remove(folder);
}

static void lists_what_is_named_like_a_namespace(void **state)
{
    (void)state;
    char folder[256], path[CATALOG_PATH_BYTES], aside[OS_NAME_BYTES];
    struct catalog catalog;
    struct catalog_name *names, name;
    struct reason reason = {0};
    uint32_t count;
    uint64_t bytes;
    const uint8_t fingerprint[BLOCK_ID_BYTES] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 1};
    check_folder_create(folder);
    CHECK_OK(catalog_open(folder, &catalog, &reason));
    CHECK_OK(catalog_list(&catalog, &names, &count));
    assert_int_equal(count, 0);
    free(names);
    catalog_name_of(fingerprint, &name);
    assert_string_equal(name.text, "0123456789abcdef");
    shell("mkdir %s/store/0123456789abcdef %s/store/fedcba9876543210 %s/store/notes", folder);
    shell("mkdir %s/store/0123456789ABCDEF %s/store/0123456789abcdef.damaged-5 %s/store/01",
          folder);
    shell("head -c 10000 /dev/zero > %s/store/0123456789abcdef/data.mdb", folder);
    shell("head -c 70000 /dev/urandom > %s/store/fedcba9876543210/data.mdb", folder);
    CHECK_OK(catalog_list(&catalog, &names, &count));
    assert_int_equal(count, 2);
    free(names);
    CHECK_OK(catalog_usage(&catalog, &name, &bytes, &count));
    assert_int_equal(count, 1);
    assert_true(bytes >= 65536 && bytes < 100000);
    catalog_path(&catalog, &name, path);
    assert_non_null(strstr(path, "/store/0123456789abcdef"));
    CHECK_OK(catalog_set_aside(&catalog, &name, aside));
    assert_non_null(strstr(aside, "0123456789abcdef.damaged-"));
    CHECK_OK(catalog_list(&catalog, &names, &count));
    assert_int_equal(count, 1);
    free(names);
    assert_int_equal(catalog_set_aside(&catalog, &name, aside), STATUS_NOT_FOUND);
    catalog_close(&catalog);
    check_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_process_at_a_time),
        cmocka_unit_test(lists_what_is_named_like_a_namespace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
