// SPDX-License-Identifier: Apache-2.0
// clock.h over clock_gettime and getrandom.
#include "proto/os/clock.h"

#include "proto/os/thread.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <sys/random.h>
#include <time.h>

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    int error = clock_gettime(clock, &now);
    assert(error == 0);
    (void)error;
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t os_clock_ms(void)
{
    return clock_ns(CLOCK_MONOTONIC) / 1000000u;
}

uint64_t os_clock_us(void)
{
    return clock_ns(CLOCK_MONOTONIC) / 1000u;
}

uint64_t os_clock_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

uint64_t os_clock_deadline(uint32_t timeout_ms)
{
    return timeout_ms >= OS_WAIT_FOREVER ? OS_DEADLINE_NEVER : os_clock_ms() + timeout_ms;
}

uint32_t os_clock_left(uint64_t deadline_ms)
{
    if (deadline_ms == OS_DEADLINE_NEVER) {
        return OS_WAIT_FOREVER;
    }
    uint64_t now = os_clock_ms();
    uint64_t left = now >= deadline_ms ? 0 : deadline_ms - now;
    return left >= OS_WAIT_FOREVER ? OS_WAIT_FOREVER - 1 : (uint32_t)left;
}

uint64_t os_clock_wall_ms(void)
{
    return clock_ns(CLOCK_REALTIME) / 1000000u;
}

void os_clock_text(uint64_t wall_ms, char *out)
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm date;
    gmtime_r(&seconds, &date);
    size_t length = strftime(out, OS_CLOCK_TEXT_BYTES, "%Y-%m-%dT%H:%M:%S", &date);
    snprintf(out + length, OS_CLOCK_TEXT_BYTES - length, ".%03uZ", (unsigned)(wall_ms % 1000));
}

void os_sleep_ms(uint32_t ms)
{
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000L};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

void os_random(void *out, size_t bytes)
{
    uint8_t *at = out;
    while (bytes > 0) {
        ssize_t got = getrandom(at, bytes, 0);
        if (got < 0) {
            assert(errno == EINTR); // the only failure with valid memory and flags 0
            continue;
        }
        at += got;
        bytes -= (size_t)got;
    }
}
