// SPDX-License-Identifier: Apache-2.0
// Only the engine calls stats_step, so its rates need no compare-and-swap.
#include "gpud/stats.h"

static uint64_t load(const atomic_uint_fast64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static void add(atomic_uint_fast64_t *counter, uint64_t value)
{
    atomic_fetch_add_explicit(counter, value, memory_order_relaxed);
}

void stats_read(const struct stats *stats, struct stats_view *out_view)
{
    *out_view = (struct stats_view){
        .request_count = load(&stats->request_count),
        .done_count = load(&stats->done_count),
        .cancelled_count = load(&stats->cancelled_count),
        .failed_count = load(&stats->failed_count),
        .prefill_tokens = load(&stats->prefill_tokens),
        .cached_tokens = load(&stats->cached_tokens),
        .decode_tokens = load(&stats->decode_tokens),
        .step_count = load(&stats->step_count),
        .step_ns = load(&stats->step_ns),
        .prefill_tokens_per_s = (double)load(&stats->prefill_micro_per_s) * 1e-6,
        .decode_tokens_per_s = (double)load(&stats->decode_micro_per_s) * 1e-6,
        .last_step_ns = load(&stats->last_step_ns),
        .running_count =
            (uint32_t)atomic_load_explicit(&stats->running_count, memory_order_relaxed),
        .queued_count = (uint32_t)atomic_load_explicit(&stats->queued_count, memory_order_relaxed),
    };
}

static void move_rate(atomic_uint_fast64_t *rate, uint32_t tokens, uint64_t elapsed_ns)
{
    double now = (double)tokens * 1e9 / (double)elapsed_ns * 1e6;
    double before = (double)load(rate);
    double after = before == 0 ? now : before + (now - before) / 8;
    atomic_store_explicit(rate, (uint64_t)after, memory_order_relaxed);
}

void stats_step(struct stats *stats, uint32_t prefill_tokens, uint32_t decode_tokens,
                uint64_t elapsed_ns)
{
    add(&stats->step_count, 1);
    add(&stats->step_ns, elapsed_ns);
    add(&stats->prefill_tokens, prefill_tokens);
    add(&stats->decode_tokens, decode_tokens);
    if (elapsed_ns == 0) {
        return;
    }
    if (prefill_tokens > 8 * decode_tokens) {
        move_rate(&stats->prefill_micro_per_s, prefill_tokens, elapsed_ns);
    } else if (decode_tokens > 0 && prefill_tokens == 0) {
        move_rate(&stats->decode_micro_per_s, decode_tokens, elapsed_ns);
    }
}
