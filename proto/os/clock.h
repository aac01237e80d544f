// SPDX-License-Identifier: Apache-2.0
// Time and randomness. Any thread.
#ifndef KVTIER_PROTO_OS_CLOCK_H
#define KVTIER_PROTO_OS_CLOCK_H

#include <stddef.h>
#include <stdint.h>

#define OS_DEADLINE_NEVER UINT64_MAX

enum { OS_CLOCK_TEXT_BYTES = 25 }; // "2026-01-31T12:34:56.789Z" and its NUL

// Monotonic; the origin means nothing.
uint64_t os_clock_ms(void);
uint64_t os_clock_us(void);
uint64_t os_clock_ns(void);
// os_clock_ms() + timeout_ms, or OS_DEADLINE_NEVER for OS_WAIT_FOREVER (proto/os/thread.h).
uint64_t os_clock_deadline(uint32_t timeout_ms);
// What is left until a deadline, in ms, 0 when past; OS_WAIT_FOREVER for OS_DEADLINE_NEVER.
uint32_t os_clock_left(uint64_t deadline_ms);

// Unix time in ms.
uint64_t os_clock_wall_ms(void);
// UTC, ISO 8601: out [OS_CLOCK_TEXT_BYTES].
void os_clock_text(uint64_t wall_ms, char *out);

// At least so long.
void os_sleep_ms(uint32_t ms);

// Bytes from the system's random generator.
void os_random(void *out, size_t bytes);

#endif
