// SPDX-License-Identifier: Apache-2.0
// Connections between processes over nng (docs/PROTOCOL.md). Two kinds:
//  - calls: requests and replies to kvstored (REQ/REP contexts). endpoint_call.c
//  - streams: frames between apps and gpud, pushed both ways (byte streams). endpoint_stream.c
// URLs are "ipc://" + a path of at most LIMIT_SOCKET_PATH_BYTES. nng.h is included in endpoint*.c only.
#ifndef KVTIER_PROTO_ENDPOINT_H
#define KVTIER_PROTO_ENDPOINT_H

#include "proto/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// STATUS_INVALID with the reason unless `url` is an ipc:// URL whose path fits a socket address.
enum status endpoint_url_check(const char *url, struct reason *reason) KV_MUST_CHECK;

// ---- calls, server side: one owner thread calls everything

struct call_server;

enum call_event_kind { CALL_EVENT_REQUEST, CALL_EVENT_CLOSED };

struct call_event {
    enum call_event_kind kind;
    uint64_t connection_id; // of the client process; never used again after CLOSED
    uint64_t user_id;       // of the peer; REQUEST only
    uint32_t call_id;       // names the request until it is answered; REQUEST only
    const void *data;       // REQUEST only: valid until the request is answered
    size_t bytes;
};

// Listens at `url`, replacing a socket file that a dead instance left: hold the instance lock. At
// most `call_count` requests are held unanswered; further ones wait in their clients.
enum status call_server_create(const char *url, uint32_t call_count, size_t request_bytes_max,
                               struct call_server **out_server, struct reason *reason) KV_MUST_CHECK;
void call_server_destroy(struct call_server *server); // closes; NULL is fine
// The next event, or STATUS_TIMEOUT after timeout_ms. A connection's CLOSED comes after its last REQUEST.
enum status call_server_poll(struct call_server *server, int64_t timeout_ms,
                             struct call_event *out_event) KV_MUST_CHECK;
// Makes a poll, now or next, return STATUS_TIMEOUT at once. Any thread.
void call_server_wake(struct call_server *server);
// Answers a request, now or later; the bytes are copied. A client that went away is no error.
void call_server_reply(struct call_server *server, uint32_t call_id, const void *data, size_t bytes);

// ---- calls, client side: one connection that is remade when it breaks; any thread

struct call_client;

enum status call_client_create(const char *url, size_t reply_bytes_max,
                               struct call_client **out_client, struct reason *reason) KV_MUST_CHECK;
void call_client_destroy(struct call_client *client); // NULL is fine; no call may be running
// One request and its reply, malloc'd for the caller to free(). STATUS_UNREACHABLE when nobody is
// connected within min(timeout, 200 ms) or the connection ends, STATUS_TIMEOUT. Never sent twice.
enum status call_client_call(struct call_client *client, const void *request, size_t request_bytes,
                             uint32_t timeout_ms, void **out_reply, size_t *out_reply_bytes) KV_MUST_CHECK;
// Grows by one with each connection made; a change means that the server may be another instance.
uint64_t call_client_connection_count(const struct call_client *client);

// ---- streams: frames are a length (u32 little-endian) and that many bytes

struct stream_server;

enum stream_event_kind { STREAM_EVENT_OPENED, STREAM_EVENT_FRAME, STREAM_EVENT_CLOSED };

struct stream_event {
    enum stream_event_kind kind;
    uint64_t connection_id; // never used twice
    uint64_t user_id;       // OPENED only
    const void *data;       // FRAME only: valid until the next poll
    size_t bytes;
};

struct stream_server_options {
    const char *url;
    uint32_t connection_count_max;
    size_t frame_bytes_max; // a longer one closes its connection
    size_t send_bytes_max;  // queued to one reader; a slower one is closed
};

// As call_server_create. One owner thread calls everything but stream_server_wake.
enum status stream_server_create(const struct stream_server_options *options,
                                 struct stream_server **out_server, struct reason *reason) KV_MUST_CHECK;
void stream_server_destroy(struct stream_server *server); // NULL is fine
enum status stream_server_poll(struct stream_server *server, int64_t timeout_ms,
                               struct stream_event *out_event) KV_MUST_CHECK;
// Makes a poll, now or next, return STATUS_TIMEOUT at once. Any thread.
void stream_server_wake(struct stream_server *server);
// Queues a frame (copied). STATUS_CLOSED when the connection is gone, or is closed for its full queue.
enum status stream_server_send(struct stream_server *server, uint64_t connection_id,
                               const void *data, size_t bytes) KV_MUST_CHECK;
// Bytes queued and not yet sent.
size_t stream_server_pending(struct stream_server *server, uint64_t connection_id);
// Closes once what is queued was sent; CLOSED follows.
void stream_server_close(struct stream_server *server, uint64_t connection_id);

struct stream_client; // one owner thread; stream_client_abort from any

enum status stream_client_connect(const char *url, uint32_t timeout_ms, size_t frame_bytes_max,
                                  struct stream_client **out_client, struct reason *reason) KV_MUST_CHECK;
void stream_client_close(struct stream_client *client); // NULL is fine
enum status stream_client_send(struct stream_client *client, const void *data, size_t bytes,
                               uint32_t timeout_ms) KV_MUST_CHECK;
// The next frame, valid until the next call. STATUS_TIMEOUT loses nothing: a later call goes on.
enum status stream_client_receive(struct stream_client *client, int64_t timeout_ms,
                                  const void **out_data, size_t *out_bytes) KV_MUST_CHECK;
// Makes a running or later call end with STATUS_CANCELLED.
void stream_client_abort(struct stream_client *client);

#endif
