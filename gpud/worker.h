// SPDX-License-Identifier: Apache-2.0
// The worker: one thread through which every request passes twice. Before the engine it turns input
// into tokens (session), leases their blocks and queues what has to wait; after it, it writes the
// session's checkpoint, releases the lease and ends the reply. Commands on sessions and tokens are
// served here alone. So the engine never tokenizes and never talks to a store.
//
//     ipc --submit--> [inbox] worker --ready queue--> engine --complete--> [inbox] worker --> reply
//
// Bounds: at most WORKER_REQUESTS_MAX requests are inside (submit answers STATUS_BUSY), so no queue
// can fill up and no thread waits for another. Never: logs per token, touches KV.
#ifndef KVTIER_GPUD_WORKER_H
#define KVTIER_GPUD_WORKER_H

#include "gpud/cold_store.h"
#include "gpud/model/chat_template.h"
#include "gpud/model/tokenizer.h"
#include "gpud/request.h"
#include "gpud/stats.h"
#include "proto/os/queue.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { WORKER_REQUESTS_MAX = 128 };

struct worker;

// All must outlive the worker.
struct worker_options {
    const struct tokenizer *tokenizer;
    const struct chat_template *chat;
    const struct kv_namespace *name_space;
    struct cold_store *cold_store;
    struct os_queue *ready; // of struct request *, to the engine (scheduler_queue)
    struct stats *stats;
    uint32_t vocab_count; // of the model's logits
    uint32_t context_tokens_max;
    uint32_t running_max; // leases at once, --max-num-seqs
    bool prefix_caching;  // false: only named sessions reuse KV
};

// STATUS_NO_MEMORY. The thread begins to take requests at once.
enum status worker_start(const struct worker_options *options, struct worker **out_worker,
                         struct reason *reason) KV_MUST_CHECK;
// Stop the engine first. Ends every request still inside (those that ran keep their sessions, the
// others are cancelled), then the thread. NULL is fine.
void worker_stop(struct worker *worker);

// ipc: hands a request over; it needs kind, connection_id, salt, input and reply (accepted_ns is
// set here). Never blocks. On STATUS_BUSY (too many requests) and STATUS_CLOSED (stopping) the
// caller still owns it.
enum status worker_submit(struct worker *worker, struct request *request) KV_MUST_CHECK;
// engine: gives back a request that has ended.
void worker_complete(struct worker *worker, struct request *request);

#endif
