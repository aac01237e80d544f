// SPDX-License-Identifier: Apache-2.0
// A flag with a condition: whoever waits by bell_wait sees the flag, whoever polls elsewhere is
// woken by the function it gave.

#include "kvstored/bell.h"

#include "proto/os/clock.h"

void bell_init(struct bell *bell, void (*wake)(void *context), void *context)
{
    os_mutex_init(&bell->mutex);
    os_condition_init(&bell->condition);
    bell->rung = false;
    bell->wake = wake;
    bell->context = context;
}

void bell_finish(struct bell *bell)
{
    os_condition_finish(&bell->condition);
    os_mutex_finish(&bell->mutex);
}

void bell_ring(struct bell *bell)
{
    os_mutex_lock(&bell->mutex);
    bell->rung = true;
    os_condition_signal(&bell->condition);
    os_mutex_unlock(&bell->mutex);
    if (bell->wake != NULL) {
        bell->wake(bell->context);
    }
}

void bell_wait(struct bell *bell, uint32_t timeout_ms)
{
    uint64_t deadline = os_clock_deadline(timeout_ms);
    os_mutex_lock(&bell->mutex);
    while (!bell->rung && os_condition_wait(&bell->condition, &bell->mutex, deadline)) {
    }
    bell->rung = false;
    os_mutex_unlock(&bell->mutex);
}
