// SPDX-License-Identifier: Apache-2.0
// A client's side of the conversation with kvstored (docs/PROTOCOL.md): one connection, its hello,
// and one call an operation. gpud's cold_store and kvctl are built on it. Any thread; calls of
// several threads may overlap, a long one (save, verify) does not hold up a short one. Every call
// blocks until the answer or its deadline: STATUS_TIMEOUT when kvstored did not answer in time,
// STATUS_UNREACHABLE when it is not there, STATUS_STALE when another instance answers (open a new
// client then), STATUS_DAMAGED when an answer is malformed, else what kvstored said, with its
// reason. After UNREACHABLE, TIMEOUT, STALE or DAMAGED the client is dead: kv_client_alive is
// false. Never: maps the arena, retries, logs.
#ifndef KVTIER_CLIENT_KV_CLIENT_H
#define KVTIER_CLIENT_KV_CLIENT_H

#include "proto/block.h"
#include "proto/kv_message.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    KV_CLIENT_TIMEOUT_MS = 5000,        // of an ordinary call
    KV_CLIENT_SAVE_TIMEOUT_MS = 120000, // of checkpoint with sync, and of verify
};

struct kv_client;

struct kv_client_options {
    const char *url;                       // of kvstored, "ipc://..."
    const char *program;                   // "gpud", "kvctl": shown by kvstored's log
    const struct kv_namespace *name_space; // NULL: inspect only, no arena, no leases
    uint64_t arena_bytes_min;              // KV payload needed at least; 0 = whatever there is
    uint32_t timeout_ms;                   // of ordinary calls; 0 = KV_CLIENT_TIMEOUT_MS
};

// Connects and says hello. STATUS_VERSION when the other side speaks another protocol,
// STATUS_REFUSED with both numbers when its budget is below arena_bytes_min.
enum status kv_client_open(const struct kv_client_options *options, struct kv_client **out_client,
                           struct reason *reason) KV_MUST_CHECK;
// Ends the connection, and with it every lease. NULL is fine. No call may be in progress.
void kv_client_close(struct kv_client *client);

// What kvstored said to hello: epoch, client id, arena. Lives as long as the client.
const struct kv_hello_reply *kv_client_hello(const struct kv_client *client);
bool kv_client_alive(const struct kv_client *client);

// Any operation but hello; the calls for kvctl below are this one with the request filled in. The
// epoch is set here. The timeout is that of ordinary calls, or the long one. After STATUS_OK the
// caller finishes *out_reply (kv_reply_finish).
enum status kv_client_call(struct kv_client *client, const struct kv_request *request,
                           struct kv_reply *out_reply, struct reason *reason) KV_MUST_CHECK;

// Copies out of a decoded reply, for the caller to free(): a checkpoint with all it points to in
// one allocation (NULL: no memory), the rows of a list (NULL when there are none).
struct kv_checkpoint *kv_checkpoint_copy(const struct kv_checkpoint *from);
enum status kv_session_list_copy(const struct kv_session_list *list,
                                 struct kv_session_info **out_sessions,
                                 uint32_t *out_count) KV_MUST_CHECK;

// ---- inspection, for kvctl

// *out_sessions for the caller to free(); NULL when there are none. Without a namespace `salt` is
// ignored.
enum status kv_client_session_list(struct kv_client *client, const void *salt, uint32_t salt_bytes,
                                   struct kv_session_info **out_sessions, uint32_t *out_count,
                                   struct reason *reason) KV_MUST_CHECK;
// Levels and counters of kvstored.
enum status kv_client_status(struct kv_client *client, struct kv_status *out_status,
                             struct reason *reason) KV_MUST_CHECK;
// The whole reply, whose rows live until kv_reply_finish: `blocks`, `block` and `verify` of
// kv_reply.
enum status kv_client_blocks(struct kv_client *client, const struct kv_blocks_request *request,
                             struct kv_reply *out_reply, struct reason *reason) KV_MUST_CHECK;
enum status kv_client_block(struct kv_client *client, const struct kv_block_request *request,
                            struct kv_reply *out_reply, struct reason *reason) KV_MUST_CHECK;
enum status kv_client_verify(struct kv_client *client, const struct kv_verify_request *request,
                             struct kv_reply *out_reply, struct reason *reason) KV_MUST_CHECK;

#endif
