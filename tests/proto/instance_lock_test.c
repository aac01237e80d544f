// SPDX-License-Identifier: Apache-2.0
// At stake: two daemons of a kind on one set of sockets is refused, by name.
#include "tests/check.h"

#include "proto/instance_lock.h"

static void a_second_instance_is_refused_by_name(void **state)
{
    (void)state;
    char base[256];
    check_folder_create(base);
    struct instance_lock one;
    struct instance_lock two;
    struct reason reason = {0};
    CHECK_OK(instance_lock_acquire(base, "gpud", &one, &reason));
    CHECK_OK(instance_lock_acquire(base, "kvstored", &two, &reason)); // another kind may run
    instance_lock_release(&two);
    assert_int_equal(instance_lock_acquire(base, "gpud", &two, &reason), STATUS_BUSY);
    char pid[32];
    snprintf(pid, sizeof(pid), "process %ld", (long)getpid());
    assert_true(strstr(reason.text, "gpud") != NULL && strstr(reason.text, base) != NULL &&
                strstr(reason.text, pid) != NULL);
    instance_lock_release(&one);
    CHECK_OK(instance_lock_acquire(base, "gpud", &two, &reason));
    instance_lock_release(&two);
    check_folder_remove(base);
    assert_int_equal(instance_lock_acquire(base, "gpud", &two, &reason), STATUS_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_instance_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
