// SPDX-License-Identifier: Apache-2.0
// At stake: an orderly stop begins with a signal that reaches the thread that waits for it, and a
// service manager waits to be told that we are ready.
#include "tests/check.h"

#include "proto/os/clock.h"
#include "proto/os/service.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

static void signals_wait_for_their_thread(void **state)
{
    (void)state;
    os_service_init();
    assert_int_equal(os_service_wait(0), OS_SIGNAL_NONE);
    uint64_t begin = os_clock_ms();
    assert_int_equal(os_service_wait(30), OS_SIGNAL_NONE);
    assert_in_range(os_clock_ms() - begin, 25, 1000);
    kill(getpid(), SIGTERM);
    assert_int_equal(os_service_wait(1000), OS_SIGNAL_STOP);
    kill(getpid(), SIGINT);
    assert_int_equal(os_service_wait(1000), OS_SIGNAL_INTERRUPT);
    kill(getpid(), SIGHUP);
    assert_int_equal(os_service_wait(1000), OS_SIGNAL_RELOAD);
    assert_int_equal(os_service_wait(0), OS_SIGNAL_NONE);
}

static void the_service_manager_is_told(void **state)
{
    (void)state;
    char base[256];
    check_folder_create(base);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%.90s/notify", base);
    int handle = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(handle, (struct sockaddr *)&address, sizeof(address)), 0);
    CHECK_OK(os_service_notify(address.sun_path, "READY=1"));
    char text[64] = {0};
    assert_int_equal(recv(handle, text, sizeof(text) - 1, 0), 7);
    assert_string_equal(text, "READY=1");
    close(handle);
    assert_int_equal(os_service_notify(address.sun_path, "READY=1"), STATUS_UNREACHABLE);
    CHECK_OK(os_service_notify(NULL, "READY=1"));
    CHECK_OK(os_service_notify("", "READY=1"));
    assert_int_equal(os_service_notify("relative", "READY=1"), STATUS_INVALID);
    check_folder_remove(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signals_wait_for_their_thread),
        cmocka_unit_test(the_service_manager_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
