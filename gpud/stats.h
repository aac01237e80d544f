// SPDX-License-Identifier: Apache-2.0
// What gpud did so far, as plain counters that its threads add to and anyone may read: `gpuctl
// status`. Relaxed atomics, because each is a number for people and orders nothing. Embedded by
// value, zeroed at start. Any thread.
#ifndef KVTIER_GPUD_STATS_H
#define KVTIER_GPUD_STATS_H

#include <stdatomic.h>
#include <stdint.h>

struct stats {
    atomic_uint_fast64_t request_count;   // taken in, of any kind
    atomic_uint_fast64_t done_count;      // ended well
    atomic_uint_fast64_t cancelled_count; // ended by their app
    atomic_uint_fast64_t failed_count;    // ended with an error
    atomic_uint_fast64_t prefill_tokens;  // computed
    atomic_uint_fast64_t cached_tokens;   // of prompts, found in a tier
    atomic_uint_fast64_t decode_tokens;   // generated
    atomic_uint_fast64_t step_count;
    atomic_uint_fast64_t step_ns;             // time in steps
    atomic_uint_fast64_t prefill_micro_per_s; // of late, in millionths of a token; 0 = nothing yet
    atomic_uint_fast64_t decode_micro_per_s;
    atomic_uint_fast64_t last_step_ns;  // os_clock_ns() of the last step's end; 0 = none
    atomic_uint_fast32_t running_count; // in the engine
    atomic_uint_fast32_t queued_count;  // taken in, not yet in the engine
};

// The same at one moment, as plain numbers.
struct stats_view {
    uint64_t request_count, done_count, cancelled_count, failed_count;
    uint64_t prefill_tokens, cached_tokens, decode_tokens;
    uint64_t step_count, step_ns;
    double prefill_tokens_per_s, decode_tokens_per_s; // of late; 0 = nothing yet
    uint64_t last_step_ns;
    uint32_t running_count, queued_count;
};
void stats_read(const struct stats *stats, struct stats_view *out_view);

// After a step that took `elapsed_ns`: tokens of prompts computed, and tokens generated. Engine
// only. The rate of decoding moves by an eighth towards that of each step that only decodes, the
// rate of prefill towards that of each step that is more than eight parts in nine prefill.
void stats_step(struct stats *stats, uint32_t prefill_tokens, uint32_t decode_tokens,
                uint64_t elapsed_ns);

#endif
