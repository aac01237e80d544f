// SPDX-License-Identifier: Apache-2.0
// The ipc thread: takes in apps' frames, makes requests of them and hands them to the worker, and
// sends the events that come back. One request at a time a connection; closing it cancels. The
// identity of a user is the uid that the system names for the connection. Never: tokenizes, waits
// for a slow app, blocks on the store.
#ifndef KVTIER_GPUD_IPC_H
#define KVTIER_GPUD_IPC_H

#include "gpud/cold_store.h"
#include "gpud/engine.h"
#include "gpud/stats.h"
#include "gpud/worker.h"
#include "proto/gpu_message.h"
#include "proto/instance_lock.h"
#include "proto/status.h"

#include <stdint.h>

struct ipc;

// All must outlive the thread.
struct ipc_options {
    const char *url;
    const struct instance_lock *lock;
    struct worker *worker;
    struct engine *engine;
    struct cold_store *cold_store;
    const struct stats *stats;
    // What status and hello say that never changes; levels are filled in at each status.
    const struct gpu_status *fixed;
    uint32_t vocab_count;
};

// Listens and starts the thread. What stream_server_open answers, STATUS_NO_MEMORY.
enum status ipc_start(const struct ipc_options *options, struct ipc **out_ipc,
                      struct reason *reason) KV_MUST_CHECK;
// Takes in nothing new and cancels what runs: call it before engine_stop. NULL is fine.
void ipc_close_intake(struct ipc *ipc);
// After worker_stop: sends what is left for at most a second, then ends the thread. NULL is fine.
void ipc_stop(struct ipc *ipc);

#endif
