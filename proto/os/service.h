// SPDX-License-Identifier: Apache-2.0
// How a program is stopped and says that it is ready: signals taken by one waiting thread instead
// of handlers, and the service manager's notify socket.
#ifndef KVTIER_PROTO_OS_SERVICE_H
#define KVTIER_PROTO_OS_SERVICE_H

#include "proto/status.h"

#include <stdint.h>

enum os_signal {
    OS_SIGNAL_NONE,      // the timeout passed
    OS_SIGNAL_INTERRUPT, // SIGINT: Ctrl-C
    OS_SIGNAL_STOP,      // SIGTERM
    OS_SIGNAL_RELOAD,    // SIGHUP
};

// First call of main, before any thread: blocks the signals above, so that they wait for
// os_service_wait, and ignores SIGPIPE.
void os_service_init(void);
// Waits for a signal at most `timeout_ms`. One thread. A client that must act on Ctrl-C while it is
// blocked elsewhere gives this call a thread of its own.
enum os_signal os_service_wait(uint32_t timeout_ms);

// Sends `state` ("READY=1", "STOPPING=1", "STATUS=…") to the service manager. `notify_socket` is
// the value of $NOTIFY_SOCKET; NULL or "" means there is none: STATUS_OK, nothing is done.
// STATUS_INVALID (not a socket address), STATUS_UNREACHABLE.
enum status os_service_notify(const char *notify_socket, const char *state) KV_MUST_CHECK;

#endif
