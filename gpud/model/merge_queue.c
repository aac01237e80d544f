// SPDX-License-Identifier: Apache-2.0
// A binary heap in an array: children of i stand at 2i + 1 and 2i + 2.
#include "gpud/model/merge_queue.h"

#include <stdlib.h>

void merge_queue_finish(struct merge_queue *queue)
{
    free(queue->heap);
    *queue = (struct merge_queue){0};
}

enum status merge_queue_push(struct merge_queue *queue, struct merge_candidate candidate)
{
    if (queue->count == queue->capacity) {
        size_t capacity = queue->capacity == 0 ? 256 : 2 * queue->capacity;
        struct merge_candidate *heap = realloc(queue->heap, capacity * sizeof(*heap));
        if (heap == NULL) {
            return STATUS_NO_MEMORY;
        }
        queue->heap = heap;
        queue->capacity = capacity;
    }
    size_t hole = queue->count++;
    while (hole > 0 && queue->heap[(hole - 1) / 2].key > candidate.key) {
        queue->heap[hole] = queue->heap[(hole - 1) / 2];
        hole = (hole - 1) / 2;
    }
    queue->heap[hole] = candidate;
    return STATUS_OK;
}

bool merge_queue_pop(struct merge_queue *queue, struct merge_candidate *out)
{
    if (queue->count == 0) {
        return false;
    }
    *out = queue->heap[0];
    struct merge_candidate last = queue->heap[--queue->count];
    size_t hole = 0;
    for (size_t child = 1; child < queue->count; child = 2 * hole + 1) {
        if (child + 1 < queue->count && queue->heap[child + 1].key < queue->heap[child].key) {
            child++;
        }
        if (last.key <= queue->heap[child].key) {
            break;
        }
        queue->heap[hole] = queue->heap[child];
        hole = child;
    }
    queue->heap[hole] = last;
    return true;
}
