// SPDX-License-Identifier: Apache-2.0
// service.h over sigtimedwait and the datagram protocol of sd_notify(3), which is one send: no
// library is needed for it.
#include "proto/os/service.h"

#include "proto/os/clock.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static sigset_t service_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    return set;
}

void os_service_init(void)
{
    sigset_t set = service_signals();
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); // a file that may not grow is an error of the write
}

enum os_signal os_service_wait(uint32_t timeout_ms)
{
    sigset_t set = service_signals();
    uint64_t deadline_ms = os_clock_deadline(timeout_ms);
    for (;;) {
        uint32_t left_ms = os_clock_left(deadline_ms);
        struct timespec left = {.tv_sec = left_ms / 1000,
                                .tv_nsec = (long)(left_ms % 1000) * 1000000L};
        switch (sigtimedwait(&set, NULL, &left)) {
        case SIGINT:
            return OS_SIGNAL_INTERRUPT;
        case SIGTERM:
            return OS_SIGNAL_STOP;
        case SIGHUP:
            return OS_SIGNAL_RELOAD;
        default:
            if (left_ms == 0 || errno != EINTR) { // EINTR: a handler of someone else ran
                return OS_SIGNAL_NONE;
            }
        }
    }
}

enum status os_service_notify(const char *notify_socket, const char *state)
{
    if (notify_socket == NULL || notify_socket[0] == '\0') {
        return STATUS_OK;
    }
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(notify_socket);
    if ((notify_socket[0] != '/' && notify_socket[0] != '@') ||
        length >= sizeof(address.sun_path)) {
        return STATUS_INVALID;
    }
    memcpy(address.sun_path, notify_socket, length);
    if (address.sun_path[0] == '@') {
        address.sun_path[0] = '\0'; // Linux's abstract namespace
    }
    int handle = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (handle < 0) {
        return STATUS_UNREACHABLE;
    }
    socklen_t address_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    ssize_t sent = sendto(handle, state, strlen(state), MSG_NOSIGNAL,
                          (const struct sockaddr *)&address, address_bytes);
    close(handle);
    return sent == (ssize_t)strlen(state) ? STATUS_OK : STATUS_UNREACHABLE;
}
