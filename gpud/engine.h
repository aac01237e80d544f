// SPDX-License-Identifier: Apache-2.0
// The engine: one thread that owns the device (forward), the KV cache and every running request,
// and runs step after step while there are any; without, it sleeps on its queue. A step computes
// tokens of several requests at once (scheduler_plan); then each of them gets its events and, at
// its end, goes back to the worker. Never: allocates in a step, talks to a store, waits for a slow
// reader.
//
//     scheduler_create -> worker_start(ready = scheduler_queue) -> engine_start
//     ... engine_stop -> worker_stop -> scheduler_destroy
//
// A request ends within one step of its cancelling; when all of a step's requests are cancelled, or
// the engine stops, the step itself ends between two layers.
#ifndef KVTIER_GPUD_ENGINE_H
#define KVTIER_GPUD_ENGINE_H

#include "gpud/forward.h"
#include "gpud/kv_cache.h"
#include "gpud/model/tokenizer.h"
#include "gpud/scheduler.h"
#include "gpud/stats.h"
#include "gpud/worker.h"
#include "proto/status.h"

#include <stdint.h>

struct engine;

// All must outlive the engine; forward and kv_cache belong to its thread until engine_stop.
struct engine_options {
    struct forward *forward;
    struct kv_cache *kv_cache;
    const struct tokenizer *tokenizer;
    struct scheduler *scheduler;
    struct worker *worker;
    struct stats *stats;
    uint32_t vocab_count;
    uint32_t running_max;      // as the worker's; at most the KV cache's sequence_count_max
    uint32_t batch_tokens_max; // as the scheduler's
};

// STATUS_NO_MEMORY. The thread begins to take requests at once.
enum status engine_start(const struct engine_options *options, struct engine **out_engine,
                         struct reason *reason) KV_MUST_CHECK;
// Ends every running request as cancelled (a named session keeps prompt and what was delivered) and
// the thread. NULL is fine.
void engine_stop(struct engine *engine);

// The KV cache's counters as of the last step. Any thread.
void engine_cache_status(struct engine *engine, struct kv_cache_status *out_status);

#endif
