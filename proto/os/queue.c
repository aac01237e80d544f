// SPDX-License-Identifier: Apache-2.0
// A ring of items under one mutex: simple, and fast enough where items are commands and not bytes.
#include "proto/os/queue.h"

#include "proto/os/clock.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum status os_queue_init(struct os_queue *queue, size_t item_bytes, size_t capacity)
{
    assert(item_bytes > 0 && capacity > 0);
    uint8_t *items = calloc(capacity, item_bytes);
    if (items == NULL) {
        return STATUS_NO_MEMORY;
    }
    *queue = (struct os_queue){.items = items, .item_bytes = item_bytes, .capacity = capacity};
    os_mutex_init(&queue->mutex);
    os_condition_init(&queue->not_empty);
    os_condition_init(&queue->not_full);
    return STATUS_OK;
}

void os_queue_finish(struct os_queue *queue)
{
    if (queue->items == NULL) {
        return;
    }
    os_condition_finish(&queue->not_full);
    os_condition_finish(&queue->not_empty);
    os_mutex_finish(&queue->mutex);
    free(queue->items);
    queue->items = NULL;
}

static uint8_t *item_at(struct os_queue *queue, size_t position)
{
    return queue->items + (queue->head + position) % queue->capacity * queue->item_bytes;
}

static enum status push_until(struct os_queue *queue, const void *item, uint64_t deadline_ms)
{
    enum status status = STATUS_OK;
    os_mutex_lock(&queue->mutex);
    while (!queue->closed && queue->count == queue->capacity && status == STATUS_OK) {
        if (!os_condition_wait(&queue->not_full, &queue->mutex, deadline_ms)) {
            status = STATUS_BUSY;
        }
    }
    if (queue->closed) {
        status = STATUS_CLOSED;
    } else if (queue->count < queue->capacity) {
        memcpy(item_at(queue, queue->count), item, queue->item_bytes);
        queue->count++;
        os_condition_signal(&queue->not_empty);
        status = STATUS_OK;
    }
    os_mutex_unlock(&queue->mutex);
    return status;
}

enum status os_queue_push(struct os_queue *queue, const void *item)
{
    return push_until(queue, item, OS_DEADLINE_NEVER);
}

enum status os_queue_try_push(struct os_queue *queue, const void *item)
{
    return push_until(queue, item, 0);
}

enum status os_queue_pop(struct os_queue *queue, void *out_item, uint32_t timeout_ms)
{
    uint64_t deadline_ms = os_clock_deadline(timeout_ms);
    bool in_time = true;
    enum status status = STATUS_OK;
    os_mutex_lock(&queue->mutex);
    while (queue->count == 0 && !queue->closed && in_time) {
        in_time = os_condition_wait(&queue->not_empty, &queue->mutex, deadline_ms);
    }
    if (queue->count > 0) {
        memcpy(out_item, item_at(queue, 0), queue->item_bytes);
        queue->head = (queue->head + 1) % queue->capacity;
        queue->count--;
        os_condition_signal(&queue->not_full);
    } else {
        status = queue->closed ? STATUS_CLOSED : STATUS_TIMEOUT;
    }
    os_mutex_unlock(&queue->mutex);
    return status;
}

void os_queue_close(struct os_queue *queue)
{
    os_mutex_lock(&queue->mutex);
    queue->closed = true;
    os_condition_broadcast(&queue->not_empty);
    os_condition_broadcast(&queue->not_full);
    os_mutex_unlock(&queue->mutex);
}

size_t os_queue_count(struct os_queue *queue)
{
    os_mutex_lock(&queue->mutex);
    size_t count = queue->count;
    os_mutex_unlock(&queue->mutex);
    return count;
}
