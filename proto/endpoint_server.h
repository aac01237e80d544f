// SPDX-License-Identifier: Apache-2.0
// kvstored's side of the control path: whole request messages in, one reply each, at any time and
// in any order. A connection is one client process; its end is an event, so that its leases can be
// given back. One owner thread (the dispatcher) makes every call, except endpoint_server_wake.
// Bounded by its options: connections, requests in progress and bytes of a connection. A client
// that does not read its replies loses its connection and stops nobody.
//
// Frames of proto/endpoint_stream_server.h: a request number (u64, little-endian, chosen by the
// client), then the message; a reply carries the number of its request. docs/PROTOCOL.md says why
// this is not nng's REQ/REP.
#ifndef KVTIER_PROTO_ENDPOINT_SERVER_H
#define KVTIER_PROTO_ENDPOINT_SERVER_H

#include "proto/endpoint.h"
#include "proto/instance_lock.h"
#include "proto/status.h"

#include <stddef.h>
#include <stdint.h>

struct endpoint_server;
struct endpoint_request; // one request that waits for its reply

struct endpoint_server_options {
    const char *url;                  // "ipc://..."
    const struct instance_lock *lock; // held from before open until after close
    uint32_t connections_max;         // further ones are closed; 0 = LIMIT_CLIENTS
    size_t
        message_bytes_max; // a longer message ends its connection; 0 = ENDPOINT_MESSAGE_BYTES_MAX
};

enum endpoint_event_kind {
    ENDPOINT_EVENT_WOKEN,   // endpoint_server_wake was called
    ENDPOINT_EVENT_OPENED,  // the first event of a connection
    ENDPOINT_EVENT_REQUEST, // between its OPENED and its CLOSED
    ENDPOINT_EVENT_CLOSED,  // the last one; requests of it are still to be replied to or dropped
};

struct endpoint_event {
    enum endpoint_event_kind kind;
    uint64_t connection_id; // never used again
    uint64_t peer_uid;      // of the process that connected, or ENDPOINT_UID_UNKNOWN
    // REQUEST only:
    struct endpoint_request *request; // to be given to endpoint_server_reply or _drop, once
    const uint8_t *data;              // the message, until then
    size_t bytes;
    uint32_t waiting_count; // requests of this connection without a reply, this one included
};

// Listens. STATUS_INVALID (URL), STATUS_BUSY (someone listens there), STATUS_PERMISSION,
// STATUS_NOT_FOUND (no such folder), STATUS_NO_MEMORY, STATUS_IO. A socket file that a dead daemon
// left is replaced.
enum status endpoint_server_open(const struct endpoint_server_options *options,
                                 struct endpoint_server **out_server,
                                 struct reason *reason) KV_MUST_CHECK;
// Ends every connection and request and removes the socket file. NULL is fine.
void endpoint_server_close(struct endpoint_server *server);

// Waits at most `timeout_ms` for the next event. STATUS_TIMEOUT. A connection that has more than
// ENDPOINT_REQUESTS_MAX requests, or more than two times message_bytes_max of them, waiting for
// replies is ended: a well-behaved client never has.
enum status endpoint_server_poll(struct endpoint_server *server, uint32_t timeout_ms,
                                 struct endpoint_event *out_event) KV_MUST_CHECK;
// Makes endpoint_server_poll return WOKEN, now or at its next call. Any thread, until close.
void endpoint_server_wake(struct endpoint_server *server);

// Sends the reply (copied) and ends the request. Never blocks; nothing is sent when the connection
// is gone, when the client lets 64 MiB of replies lie unread (it is ended) or when memory is out
// (the same: a client that waits for a lost reply would wait in vain).
void endpoint_server_reply(struct endpoint_server *server, struct endpoint_request *request,
                           const void *data, size_t bytes);
// Ends the request without a reply: its client waits until its deadline.
void endpoint_server_drop(struct endpoint_server *server, struct endpoint_request *request);
// Ends a connection (misbehaviour) after its replies are sent; CLOSED follows.
void endpoint_server_disconnect(struct endpoint_server *server, uint64_t connection_id);

#endif
