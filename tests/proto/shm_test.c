// SPDX-License-Identifier: Apache-2.0
// At stake: memory that two processes map: what one writes the other sees, memory that cannot be
// had is an error and never a signal, another user's object is refused.
#include "tests/check.h"

#include "proto/os/shm.h"

#include <sys/stat.h>

static void shm_name(char *out, size_t bytes)
{
    snprintf(out, bytes, "/kvtier-test-%ld", (long)getpid());
}

static void shm_is_shared_and_exclusive(void **state)
{
    (void)state;
    char name[64];
    shm_name(name, sizeof(name));
    struct os_shm one;
    struct os_shm two;
    struct reason reason = {0};
    assert_int_equal(os_shm_open(name, &two, &reason), STATUS_NOT_FOUND);
    assert_true(strstr(reason.text, name) != NULL);
    CHECK_OK(os_shm_create(name, 1 << 20, &one, &reason));
    assert_int_equal(os_shm_create(name, 1 << 20, &two, &reason), STATUS_EXISTS);
    CHECK_OK(os_shm_open(name, &two, &reason));
    assert_int_equal(two.bytes, 1 << 20);
    uint64_t backed = 1;
    CHECK_OK(os_shm_backed_bytes(&one, &backed));
    assert_int_equal(backed, 0); // sparse
    CHECK_OK(os_shm_reserve(&one, 4096, 8192));
    CHECK_OK(os_shm_backed_bytes(&two, &backed));
    assert_int_equal(backed, 8192);
    ((uint8_t *)one.base)[5000] = 42;
    assert_int_equal(((uint8_t *)two.base)[5000], 42);
    CHECK_OK(os_shm_reserve(&one, 0, 1 << 20)); // what is there stays
    assert_int_equal(((uint8_t *)two.base)[5000], 42);
    CHECK_OK(os_shm_reserve(&one, 0, 0));
    CHECK_OK(os_shm_unlink(name));
    assert_int_equal(os_shm_unlink(name), STATUS_NOT_FOUND);
    ((uint8_t *)one.base)[6000] = 43; // mappings outlive the name
    assert_int_equal(((uint8_t *)two.base)[6000], 43);
    os_shm_close(&one);
    os_shm_close(&two);
    os_shm_close(&(struct os_shm){0});
}

static void shm_of_others_or_empty_is_refused(void **state)
{
    (void)state;
    char name[64];
    shm_name(name, sizeof(name));
    struct os_shm shm;
    struct reason reason = {0};
    CHECK_OK(os_shm_create(name, 4096, &shm, &reason));
    struct stat info;
    assert_int_equal(fstat(shm.handle, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    struct os_shm other;
    assert_int_equal(fchmod(shm.handle, 0640), 0);
    assert_int_equal(os_shm_open(name, &other, &reason), STATUS_PERMISSION);
    assert_int_equal(fchmod(shm.handle, 0600), 0);
    assert_int_equal(ftruncate(shm.handle, 0), 0);
    assert_int_equal(os_shm_open(name, &other, &reason), STATUS_DAMAGED);
    os_shm_close(&shm);
    CHECK_OK(os_shm_unlink(name));
}

static void shm_that_cannot_be_had_is_an_error(void **state)
{
    (void)state;
    char name[64];
    shm_name(name, sizeof(name));
    uint64_t free_bytes;
    uint64_t total_bytes;
    CHECK_OK(os_shm_capacity(&free_bytes, &total_bytes));
    assert_true(free_bytes <= total_bytes && total_bytes > 0);
    if (total_bytes > (UINT64_C(1) << 40)) {
        print_message("/dev/shm has no bound here: skipped\n");
        skip();
    }
    struct os_shm shm;
    size_t bytes = (size_t)total_bytes * 2;
    CHECK_OK(os_shm_create(name, bytes, &shm, NULL)); // a promise of nothing
    enum status status = os_shm_reserve(&shm, 0, bytes);
    os_shm_close(&shm);
    CHECK_OK(os_shm_unlink(name));
    assert_int_equal(status, STATUS_NO_MEMORY);
    CHECK_OK(os_shm_capacity(&total_bytes, &total_bytes)); // and the part it got is given back
}

static void private_memory_has_the_same_shape(void **state)
{
    (void)state;
    struct os_shm shm;
    CHECK_OK(os_shm_create_private(1 << 20, &shm, NULL));
    uint64_t backed = 1;
    CHECK_OK(os_shm_backed_bytes(&shm, &backed));
    assert_int_equal(backed, 0);
    CHECK_OK(os_shm_reserve(&shm, 0, 4096));
    ((uint8_t *)shm.base)[4095] = 1;
    CHECK_OK(os_shm_lock(&shm, 0));
    bool held = true;
    CHECK_OK(os_shm_lock_held(&shm, 0, &held)); // by ourselves does not count
    assert_false(held);
    os_shm_unlock(&shm, 0);
    os_shm_close(&shm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shm_is_shared_and_exclusive),
        cmocka_unit_test(shm_of_others_or_empty_is_refused),
        cmocka_unit_test(shm_that_cannot_be_had_is_an_error),
        cmocka_unit_test(private_memory_has_the_same_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
