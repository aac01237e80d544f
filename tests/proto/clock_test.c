// SPDX-License-Identifier: Apache-2.0
// At stake: every deadline is made of these numbers, and every log line begins with this text.
#include "tests/check.h"

#include "proto/os/clock.h"
#include "proto/os/thread.h"

static void clocks_and_deadlines(void **state)
{
    (void)state;
    char text[OS_CLOCK_TEXT_BYTES];
    os_clock_text(0, text);
    assert_string_equal(text, "1970-01-01T00:00:00.000Z");
    os_clock_text(951827696789, text); // a 29th of February
    assert_string_equal(text, "2000-02-29T12:34:56.789Z");
    assert_true(os_clock_wall_ms() > 1700000000000);
    assert_true(os_clock_deadline(OS_WAIT_FOREVER) == OS_DEADLINE_NEVER);
    assert_int_equal(os_clock_left(OS_DEADLINE_NEVER), OS_WAIT_FOREVER);
    assert_int_equal(os_clock_left(0), 0);
    assert_in_range(os_clock_left(os_clock_deadline(1000)), 900, 1000);
    uint64_t begin = os_clock_ns();
    os_sleep_ms(20);
    assert_in_range((os_clock_ns() - begin) / 1000000, 20, 1000);
    uint8_t random[2][16];
    os_random(random[0], 16);
    os_random(random[1], 16);
    assert_memory_not_equal(random[0], random[1], 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clocks_and_deadlines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
