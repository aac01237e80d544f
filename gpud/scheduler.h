// SPDX-License-Identifier: Apache-2.0
// What the next step computes: how many tokens of each running request. Owns the queue by which
// leased requests reach the engine, and the measured speed of prefill. Pure arithmetic otherwise:
// it sees demands, not requests. Owner: the engine thread; scheduler_queue is pushed to by the
// worker. Rules:
//  - Everyone gets one token before anyone gets two; who is first moves on by one each step.
//  - What is left of the step is shared equally among prefills (a short one ends soon, however long
//    its neighbour's prompt is).
//  - While others run or wait, a step's prefill is at most what takes PREFILL_MS_MAX at the
//  measured
//    speed, but never less than PREFILL_TOKENS_MIN.
// Bits do not depend on any of it (docs/NUMERICS.md).
#ifndef KVTIER_GPUD_SCHEDULER_H
#define KVTIER_GPUD_SCHEDULER_H

#include "proto/os/queue.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { PREFILL_MS_MAX = 250, PREFILL_TOKENS_MIN = 16 };

struct scheduler;

struct scheduler_options {
    uint32_t queue_capacity;   // requests between worker and engine
    uint32_t batch_tokens_max; // rows of a step, --max-num-batched-tokens
    uint32_t logit_rows_max;   // rows with logits of a step
};

// One running request's wish, and what it gets.
struct scheduler_demand {
    uint32_t wanted_tokens; // consecutive tokens it could compute now; 0: none
    bool decode;            // wants 1 token, at the head of the line
    bool row_per_token;     // each token's logits are needed (score), else one row a span at most
    uint32_t granted_tokens;
};

// logit_rows_max should be at least the requests that run at once. STATUS_NO_MEMORY.
enum status scheduler_create(const struct scheduler_options *options,
                             struct scheduler **out_scheduler) KV_MUST_CHECK;
void scheduler_destroy(struct scheduler *scheduler); // NULL is fine; the queue must be empty

struct os_queue *scheduler_queue(struct scheduler *scheduler); // of struct request *

// Fills in granted_tokens of every demand. `others_wait`: more requests run or wait than the
// demands show.
void scheduler_plan(struct scheduler *scheduler, struct scheduler_demand *demands, uint32_t count,
                    bool others_wait);

// After a step: notes how fast prompts are computed.
void scheduler_measure(struct scheduler *scheduler, uint32_t prefill_tokens, uint32_t decode_tokens,
                       uint64_t elapsed_ns);

#endif
