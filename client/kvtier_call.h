// SPDX-License-Identifier: Apache-2.0
// One call of libkvtier: takes the client, connects when the connection has ended, sends, hands out
// events, gives the client back. What all public calls (kvtier.c, kvtier_requests.c) are made of;
// inside the library only.
#ifndef KVTIER_CLIENT_KVTIER_CALL_H
#define KVTIER_CLIENT_KVTIER_CALL_H

#include "client/gpu_client.h"
#include "client/kvtier.h"

#include <stdatomic.h>

struct kvtier_client {
    char url[LIMIT_URL_BYTES];
    atomic_flag in_use;            // acquire/release: hands the rest from thread to thread
    atomic_bool cancelled;         // relaxed: a flag alone
    struct gpu_client *connection; // NULL after it ended
    struct kvtier_info info;
    char model_name[GPU_NAME_BYTES];
};

// What a call knows while its events arrive.
struct call {
    struct kvtier_client *client;
    struct reason reason;
};

// Fills `error` (may be NULL) unless `status` is STATUS_OK; returns `status` as the public number.
int call_fail(struct kvtier_error *error, enum status status, const struct reason *reason);

// Opens the connection again when it has ended.
enum status call_connect(struct kvtier_client *client, struct reason *reason) KV_MUST_CHECK;

// Takes the client for one call, connects and sends. On success call_end must follow.
enum status call_begin(struct call *call, const struct gpu_request *request) KV_MUST_CHECK;
// Ends the connection too unless the call is `complete`: stopped before its last event.
void call_end(struct call *call, bool complete);
enum status call_next(struct call *call, const struct gpu_event **out_event) KV_MUST_CHECK;
// False when the call ended with its last event: an error event leaves the connection alive.
bool call_died(const struct call *call, enum status status);

// For requests that are answered by one event of `kind`, which stays valid until call_finish or
// call_end, one of which must follow on success.
enum status call_simple(struct call *call, const struct gpu_request *request,
                        enum gpu_event_kind kind, const struct gpu_event **out_event) KV_MUST_CHECK;
// Waits for DONE after the answer was used, and ends the call.
enum status call_finish(struct call *call) KV_MUST_CHECK;

// A C string as a message has it; NULL is "not given".
struct gpu_text call_text(const char *text);
// STATUS_REFUSED for more ids than a message can carry.
enum status call_ids(const uint32_t *ids, size_t count, struct gpu_request *request,
                     struct reason *reason) KV_MUST_CHECK;

#endif
