// SPDX-License-Identifier: Apache-2.0
// Asks the store for its levels on a thread of its own, so that `gpuctl status` never holds up the
// ipc thread when kvstored is slow or stopped. One asker thread; reading the store happens on the
// watch's own thread. Never: keeps more than the newest answer, polls when nobody asked.
#ifndef KVTIER_GPUD_STORE_WATCH_H
#define KVTIER_GPUD_STORE_WATCH_H

#include "proto/kv_message.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stdint.h>

struct store_watch;

struct store_watch_options {
    // The store's levels; may block up to its deadline. Called by the watch's thread.
    enum status (*read)(void *context, struct kv_status *out_state);
    void *read_context;
    // Called by the watch's thread after each answer; must be cheap.
    void (*wake)(void *context);
    void *wake_context;
};

// STATUS_NO_MEMORY.
enum status store_watch_start(const struct store_watch_options *options,
                              struct store_watch **out_watch, struct reason *reason) KV_MUST_CHECK;
// Waits for a read in progress. NULL is fine.
void store_watch_stop(struct store_watch *watch);

// Asks for levels that are read after this call. The number returned grows with each ask.
uint64_t store_watch_ask(struct store_watch *watch);
// Whether the ask of this number was answered; then *out_known says whether the store answered,
// and only if so *out_state is written. Never blocks.
bool store_watch_answered(struct store_watch *watch, uint64_t ask, bool *out_known,
                          struct kv_status *out_state);

#endif
