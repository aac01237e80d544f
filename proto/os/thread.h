// SPDX-License-Identifier: Apache-2.0
// Threads, mutexes and condition variables. Locking mistakes (unlocking what is not held, joining
// twice) are asserts: they are ours. Data moves between threads through proto/os/queue.h; a mutex
// of your own needs a comment that lists what it guards (STYLE 22).
#ifndef KVTIER_PROTO_OS_THREAD_H
#define KVTIER_PROTO_OS_THREAD_H

#include "proto/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { OS_WAIT_FOREVER = 0x7fffffff }; // as a timeout_ms, everywhere in proto

struct os_thread;

// Storage for the system's own type; a *_posix.c checks that it fits.
struct os_mutex {
    _Alignas(16) uint8_t opaque[64];
};
struct os_condition {
    _Alignas(16) uint8_t opaque[64];
};

// Runs `body(argument)` on a new thread called `name` (cut to 15 bytes) that blocks every signal
// of proto/os/service.h. STATUS_NO_MEMORY. *out_thread is given back by os_thread_join.
enum status os_thread_start(const char *name, void (*body)(void *argument), void *argument,
                            struct os_thread **out_thread) KV_MUST_CHECK;
// Waits for the thread's end and frees it. NULL is fine.
void os_thread_join(struct os_thread *thread);
void os_thread_yield(void);

// Not recursive. Misuse is our own mistake and aborts.
void os_mutex_init(struct os_mutex *mutex);
void os_mutex_finish(struct os_mutex *mutex);
void os_mutex_lock(struct os_mutex *mutex);
void os_mutex_unlock(struct os_mutex *mutex);

// Waits by the monotonic clock.
void os_condition_init(struct os_condition *condition);
void os_condition_finish(struct os_condition *condition);
void os_condition_signal(struct os_condition *condition);
void os_condition_broadcast(struct os_condition *condition);
// Waits with `mutex` held until signalled or until os_clock_ms() reaches `deadline_ms`
// (OS_DEADLINE_NEVER: no deadline); false at the deadline. May wake without a signal.
bool os_condition_wait(struct os_condition *condition, struct os_mutex *mutex,
                       uint64_t deadline_ms);

#endif
