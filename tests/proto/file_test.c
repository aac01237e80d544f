// SPDX-License-Identifier: Apache-2.0
// At stake: a small file is read and written whole or not at all, and a file lock dies with its
// holder: a process is killed that holds one.
#include "tests/check.h"

#include "proto/os/file.h"
#include "proto/os/file_lock.h"
#include "proto/os/file_read.h"

#include <signal.h>
#include <sys/wait.h>

static void files_are_read_and_written_whole(void **state)
{
    (void)state;
    char base[256];
    char path[300];
    check_folder_create(base);
    snprintf(path, sizeof(path), "%s/file", base);
    uint8_t *data = NULL;
    size_t bytes = 0;
    assert_int_equal(os_file_read_all(path, 100, &data, &bytes), STATUS_NOT_FOUND);
    static const size_t sizes[] = {0, 1, 65534, 65535, 65536, 65537, 300000};
    char *content = malloc(300000);
    for (size_t i = 0; i < 300000; i++) {
        content[i] = (char)(i * 31 >> 3);
    }
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        CHECK_OK(os_file_write_atomic(path, content, sizes[i]));
        CHECK_OK(os_file_read_all(path, sizes[i], &data, &bytes));
        assert_int_equal(bytes, sizes[i]);
        assert_memory_equal(data, content, bytes);
        assert_int_equal(data[bytes], 0);
        free(data);
        if (sizes[i] > 0) {
            assert_int_equal(os_file_read_all(path, sizes[i] - 1, &data, &bytes), STATUS_REFUSED);
        }
    }
    free(content);
    char other[300];
    snprintf(other, sizeof(other), "%s/absent/file", base);
    assert_int_equal(os_file_write_atomic(other, "x", 1), STATUS_NOT_FOUND);
    CHECK_OK(os_file_remove(path));
    assert_int_equal(os_file_remove(path), STATUS_NOT_FOUND);
    assert_int_equal(rmdir(base), 0); // nothing else was left there
}

static void a_file_lock_dies_with_its_holder(void **state)
{
    (void)state;
    char base[256];
    char path[300];
    check_folder_create(base);
    snprintf(path, sizeof(path), "%s/x.lock", base);
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct os_file_lock lock;
        uint64_t holder;
        char byte = os_file_lock_acquire(path, &lock, &holder) == STATUS_OK;
        (void)!write(ready[1], &byte, 1);
        pause();
        _exit(0);
    }
    char byte = 0;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 1);
    struct os_file_lock lock;
    struct os_file_lock second;
    uint64_t holder = 0;
    assert_int_equal(os_file_lock_acquire(path, &lock, &holder), STATUS_BUSY);
    assert_int_equal(holder, pid);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    CHECK_OK(os_file_lock_acquire(path, &lock, &holder));
    assert_int_equal(os_file_lock_acquire(path, &second, &holder), STATUS_BUSY); // of one process
    assert_int_equal(holder, getpid());
    os_file_lock_release(&lock);
    os_file_lock_release(&lock);
    CHECK_OK(os_file_lock_acquire(path, &second, &holder));
    os_file_lock_release(&second);
    snprintf(path, sizeof(path), "%s/absent/x.lock", base);
    assert_int_equal(os_file_lock_acquire(path, &lock, &holder), STATUS_NOT_FOUND);
    char target[300];
    snprintf(target, sizeof(target), "%s/target", base);
    snprintf(path, sizeof(path), "%s/link.lock", base);
    assert_int_equal(symlink(target, path), 0);
    assert_int_equal(os_file_lock_acquire(path, &lock, &holder), STATUS_PERMISSION);
    check_folder_remove(base);
}

static void parts_of_a_file_are_read(void **state)
{
    (void)state;
    char base[256];
    char path[300];
    check_folder_create(base);
    snprintf(path, sizeof(path), "%s/file", base);
    struct file_read file;
    struct reason reason = {0};
    assert_int_equal(file_read_open(path, &file, &reason), STATUS_NOT_FOUND);
    assert_int_equal(file_read_open(base, &file, &reason), STATUS_INVALID);
    CHECK_OK(os_file_write_atomic(path, "0123456789", 10));
    CHECK_OK(file_read_open(path, &file, &reason));
    uint64_t bytes = 0;
    CHECK_OK(file_read_size(&file, &bytes));
    assert_int_equal(bytes, 10);
    char part[4] = {0};
    CHECK_OK(file_read_at(&file, 7, part, 3));
    assert_string_equal(part, "789");
    assert_int_equal(file_read_at(&file, 8, part, 3), STATUS_DAMAGED);
    CHECK_OK(file_read_at(&file, 10, part, 0));
    file_read_close(&file);
    check_folder_remove(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_read_and_written_whole),
        cmocka_unit_test(a_file_lock_dies_with_its_holder),
        cmocka_unit_test(parts_of_a_file_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
