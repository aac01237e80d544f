// SPDX-License-Identifier: Apache-2.0
// kvstored's thread: takes the requests of all clients one after another, calls the store, and
// replies, at once or when the store has an answer. Owns the store and the endpoint. Its loop is
// the one place that logs.
#ifndef KVTIER_KVSTORED_DISPATCHER_H
#define KVTIER_KVSTORED_DISPATCHER_H

#include "kvstored/store.h"
#include "proto/instance_lock.h"
#include "proto/status.h"

#include <stdint.h>

struct dispatcher;

struct dispatcher_options {
    const char *url;                  // to listen at
    const struct instance_lock *lock; // held from before start until after stop
    uint64_t payload_bytes_max;       // RAM budget for KV payload
    const char *arena_name;
    const char *data_dir;
    uint64_t disk_bytes_max;
};

// Opens the store and the endpoint and starts the thread. Errors of either (store.h,
// endpoint_server.h), with the reason.
enum status dispatcher_start(const struct dispatcher_options *options,
                             struct dispatcher **out_dispatcher,
                             struct reason *reason) KV_MUST_CHECK;
// Ends the thread, finishes what is queued for disk within `timeout_ms`, and closes everything.
// NULL is fine.
void dispatcher_stop(struct dispatcher *dispatcher, uint32_t timeout_ms);

#endif
