// SPDX-License-Identifier: Apache-2.0
// At stake: a daemon that dies is started again, but one that cannot live does not burn the
// machine; and `down` stops whoever really runs. Whole lives of daemons are tested end to end.
#include "tests/check.h"

#include "client/supervisor.h"
#include "proto/instance_lock.h"
#include "proto/os/file.h"

// At once, then 1, 2, 4 ... 30 s.
static void test_delays_grow(void **state)
{
    (void)state;
    static const uint64_t expected_ms[] = {0, 1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000};
    uint64_t delay_ms = 0;
    for (size_t i = 0; i < sizeof(expected_ms) / sizeof(expected_ms[0]); i++) {
        assert_int_equal(supervisor_delay(&delay_ms, i % 2 == 0 ? 0 : 9999), expected_ms[i]);
    }
}

// 10 s of health begin it anew.
static void test_health_resets(void **state)
{
    (void)state;
    uint64_t delay_ms = 0;
    for (int i = 0; i < 5; i++) {
        (void)supervisor_delay(&delay_ms, 0);
    }
    assert_int_equal(supervisor_delay(&delay_ms, 10000), 0);
    assert_int_equal(supervisor_delay(&delay_ms, 0), 1000);
}

static void test_holder(void **state)
{
    (void)state;
    char folder[256];
    struct instance_lock lock;
    check_folder_create(folder);
    assert_int_equal(supervisor_holder(folder, "gpud"), 0);
    CHECK_OK(instance_lock_acquire(folder, "gpud", &lock, NULL));
    assert_int_equal(supervisor_holder(folder, "gpud"), getpid());
    assert_int_equal(supervisor_holder(folder, "kvstored"), 0);
    instance_lock_release(&lock);
    assert_int_equal(supervisor_holder(folder, "gpud"), 0); // a left-over file is nobody
    check_folder_remove(folder);
    assert_int_equal(supervisor_holder(folder, "gpud"), 0);
}

static void test_restarts(void **state)
{
    (void)state;
    char folder[256];
    char path[300];
    check_folder_create(folder);
    snprintf(path, sizeof(path), "%s/supervisor.restarts", folder);
    assert_int_equal(supervisor_restarts_read(folder).counts[SUPERVISOR_GPUD], 0);
    CHECK_OK(os_file_write_atomic(path, "3 12\n", 5));
    assert_int_equal(supervisor_restarts_read(folder).counts[SUPERVISOR_KVSTORED], 3);
    assert_int_equal(supervisor_restarts_read(folder).counts[SUPERVISOR_GPUD], 12);
    CHECK_OK(os_file_write_atomic(path, "x", 1));
    assert_int_equal(supervisor_restarts_read(folder).counts[SUPERVISOR_GPUD], 0);
    check_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_delays_grow),
        cmocka_unit_test(test_health_resets),
        cmocka_unit_test(test_holder),
        cmocka_unit_test(test_restarts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
