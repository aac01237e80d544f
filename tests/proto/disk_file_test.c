// SPDX-License-Identifier: Apache-2.0
// At stake: the disk tier's picture of its folder. Listing, sizes, extending and renaming, with
// every status.
#include "proto/os/disk_file.h"
#include "tests/check.h"

#include <sys/stat.h>

static void run(const char *format, const char *folder)
{
    char command[600];
    snprintf(command, sizeof(command), format, folder, folder);
    assert_int_equal(system(command), 0);
}

static void listing(void **state)
{
    (void)state;
    char folder[256];
    struct os_name *names;
    uint32_t count;
    check_folder_create(folder);
    CHECK_OK(os_folder_list(folder, 10, &names, &count));
    assert_int_equal(count, 0);
    free(names);
    run("touch %s/a %s/b; ", folder);
    run("mkdir %s/c && touch %s/$(head -c 64 /dev/zero | tr '\\0' x)", folder);
    CHECK_OK(os_folder_list(folder, 10, &names, &count));
    assert_int_equal(count, 3); // the long name is left out
    free(names);
    assert_int_equal(os_folder_list(folder, 2, &names, &count), STATUS_REFUSED);
    check_folder_remove(folder);
    assert_int_equal(os_folder_list(folder, 10, &names, &count), STATUS_NOT_FOUND);
}

static void sizes_and_extending(void **state)
{
    (void)state;
    char folder[256], path[300];
    uint64_t bytes, disk_bytes;
    check_folder_create(folder);
    snprintf(path, sizeof(path), "%s/a", folder);
    assert_int_equal(os_file_usage(path, &bytes, &disk_bytes), STATUS_NOT_FOUND);
    assert_int_equal(os_file_extend(path, 10), STATUS_NOT_FOUND);
    run("printf abc > %s/a", folder);
    CHECK_OK(os_file_extend(path, 2)); // never shorter
    CHECK_OK(os_file_usage(path, &bytes, &disk_bytes));
    assert_int_equal(bytes, 3);
    CHECK_OK(os_file_extend(path, 1 << 20));
    CHECK_OK(os_file_usage(path, &bytes, &disk_bytes));
    assert_int_equal(bytes, 1 << 20);
    assert_true(disk_bytes < 1 << 20); // sparse
    FILE *file = fopen(path, "r");
    assert_int_equal(fgetc(file), 'a');
    fseek(file, 1 << 19, SEEK_SET);
    assert_int_equal(fgetc(file), 0);
    fclose(file);
    check_folder_remove(folder);
}

static void renaming(void **state)
{
    (void)state;
    char folder[256], from[300], to[300];
    struct stat info;
    check_folder_create(folder);
    snprintf(from, sizeof(from), "%s/a", folder);
    snprintf(to, sizeof(to), "%s/b", folder);
    assert_int_equal(os_file_rename(from, to), STATUS_NOT_FOUND);
    run("mkdir %s/a && touch %s/a/x", folder);
    CHECK_OK(os_file_rename(from, to));
    assert_int_equal(stat(to, &info), 0);
    run("mkdir %s/a && touch %s/a/x", folder);
    assert_int_equal(os_file_rename(from, to), STATUS_EXISTS); // a folder that is not empty
    check_folder_remove(folder);
}

// A hint about any memory is harmless.
static void prefetching(void **state)
{
    (void)state;
    struct check_edge edge = check_edge_create(5000);
    os_prefetch(edge.data, 5000);
    os_prefetch(edge.data + 4999, 1);
    os_prefetch(edge.data, 0);
    assert_int_equal(edge.data[4999], 0);
    check_edge_destroy(&edge);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(listing),
        cmocka_unit_test(sizes_and_extending),
        cmocka_unit_test(renaming),
        cmocka_unit_test(prefetching),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
