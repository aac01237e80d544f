// SPDX-License-Identifier: Apache-2.0
// At stake: budgets are checked against these numbers, and `status` shows them.
#include "tests/check.h"

#include "proto/os/machine.h"

static void the_machine_says_what_it_has(void **state)
{
    (void)state;
    struct os_memory memory;
    struct os_process_memory before;
    struct os_process_memory after;
    CHECK_OK(os_machine_memory(&memory));
    assert_true(memory.total_bytes > 64u << 20 && memory.available_bytes <= memory.total_bytes);
    CHECK_OK(os_machine_process(&before));
    size_t bytes = 32u << 20;
    volatile char *data = malloc(bytes);
    for (size_t i = 0; i < bytes; i += 512) {
        data[i] = 1;
    }
    CHECK_OK(os_machine_process(&after));
    assert_in_range(after.anonymous_bytes - before.anonymous_bytes, bytes - (1 << 20), 16 * bytes);
    assert_true(after.resident_bytes >= after.anonymous_bytes);
    free((void *)(uintptr_t)data);
    assert_true(os_machine_cpu_count() >= 1);
    assert_int_equal(os_machine_user_id(), geteuid());
    assert_int_equal(os_machine_process_id(), getpid());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_machine_says_what_it_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
