// SPDX-License-Identifier: Apache-2.0
// How the store's threads tell its owner that results wait: rung from any thread, waited for by the
// owner. Ringing twice before the owner looks is ringing once.
#ifndef KVTIER_KVSTORED_BELL_H
#define KVTIER_KVSTORED_BELL_H

#include "proto/os/thread.h"

#include <stdbool.h>
#include <stdint.h>

// Embedded by value; fields are the bell's own. The mutex guards `rung` and is a leaf.
struct bell {
    struct os_mutex mutex;
    struct os_condition condition;
    bool rung;
    void (*wake)(void *context); // called on every ring, outside the mutex; may be NULL
    void *context;
};

// `wake` is called on every ring, outside the mutex; may be NULL.
void bell_init(struct bell *bell, void (*wake)(void *context), void *context);
void bell_finish(struct bell *bell);

// From any thread. Never blocks for long.
void bell_ring(struct bell *bell);
// Waits for a ring at most `timeout_ms` and takes it.
void bell_wait(struct bell *bell, uint32_t timeout_ms);

#endif
