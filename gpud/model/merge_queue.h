// SPDX-License-Identifier: Apache-2.0
// The priority queue of a byte-pair merge: candidates leave it smallest key first. With it a merge
// takes O(n log n), whatever the text; scanning for the best pair each time would be quadratic.
// Scratch of one call, one thread.
#ifndef KVTIER_GPUD_MODEL_MERGE_QUEUE_H
#define KVTIER_GPUD_MODEL_MERGE_QUEUE_H

#include "proto/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The pair whose left symbol is `key`'s low 32 bits; `a` and `b` tell whether it still stands.
struct merge_candidate {
    uint64_t key; // rank << 32 | left symbol: equal ranks merge from the left
    uint32_t a;
    uint32_t b;
};

struct merge_queue {
    struct merge_candidate *heap; // [count] binary heap
    size_t count;
    size_t capacity;
};

void merge_queue_finish(struct merge_queue *queue); // zeroed memory is fine

// STATUS_NO_MEMORY.
enum status merge_queue_push(struct merge_queue *queue,
                             struct merge_candidate candidate) KV_MUST_CHECK;
// The candidate with the smallest key; false when the queue is empty.
bool merge_queue_pop(struct merge_queue *queue, struct merge_candidate *out);

#endif
