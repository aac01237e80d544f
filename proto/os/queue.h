// SPDX-License-Identifier: Apache-2.0
// A bounded queue of fixed-size items, copied in and out: the way data moves between threads.
// Pointers in an item move ownership with it. Any number of threads on either side; items leave in
// the order they came. Storage is taken at init; push and pop do not allocate.
#ifndef KVTIER_PROTO_OS_QUEUE_H
#define KVTIER_PROTO_OS_QUEUE_H

#include "proto/os/thread.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Embedded by value; fields are the queue's own. The mutex guards all that follows it; it is a
// leaf: nothing else is locked while it is held.
struct os_queue {
    struct os_mutex mutex;
    struct os_condition not_empty;
    struct os_condition not_full;
    uint8_t *items; // [capacity * item_bytes], a ring
    size_t item_bytes;
    size_t capacity;
    size_t head; // index of the oldest item
    size_t count;
    bool closed;
};

// item_bytes and capacity > 0. STATUS_NO_MEMORY.
enum status os_queue_init(struct os_queue *queue, size_t item_bytes, size_t capacity) KV_MUST_CHECK;
// No thread may use it any more. Items still inside are forgotten: pop them first if they own
// anything. Zeroed memory is fine.
void os_queue_finish(struct os_queue *queue);

// Waits while full. STATUS_CLOSED.
enum status os_queue_push(struct os_queue *queue, const void *item) KV_MUST_CHECK;
// STATUS_BUSY when full, STATUS_CLOSED.
enum status os_queue_try_push(struct os_queue *queue, const void *item) KV_MUST_CHECK;
// Waits for an item at most `timeout_ms` (0: not at all). STATUS_TIMEOUT; STATUS_CLOSED when closed
// and empty (what was pushed before the close is still handed out).
enum status os_queue_pop(struct os_queue *queue, void *out_item, uint32_t timeout_ms) KV_MUST_CHECK;
// Every waiting and later push ends with STATUS_CLOSED. May be called more than once.
void os_queue_close(struct os_queue *queue);
// Items in it at this moment.
size_t os_queue_count(struct os_queue *queue);

#endif
