// SPDX-License-Identifier: Apache-2.0
// gpud's side of the app connections: frames (u32 little-endian length, then that many bytes) both
// ways over byte streams, so that replies can be pushed and an app's end is seen at once. One owner
// thread makes every call, except stream_server_wake. Prefix `stream_server_`; the file name says
// where nng is used. Bounded: connections, bytes of a frame, one received frame a connection (the
// next is read from the socket when the owner has seen this one), bytes waiting to be sent.
#ifndef KVTIER_PROTO_ENDPOINT_STREAM_SERVER_H
#define KVTIER_PROTO_ENDPOINT_STREAM_SERVER_H

#include "proto/endpoint.h"
#include "proto/instance_lock.h"
#include "proto/status.h"

#include <stddef.h>
#include <stdint.h>

struct stream_server;

struct stream_server_options {
    const char *url;                  // "ipc://..."
    const struct instance_lock *lock; // held from before open until after close
    uint32_t connections_max;         // further ones are closed; 0 = LIMIT_APPS
    size_t frame_bytes_max;           // of a received frame; a longer one ends its connection;
                                      // 0 = LIMIT_FRAME_BYTES
    size_t send_bytes_max;            // frames waiting to be sent, a connection; 0 = 8 MiB
};

enum stream_event_kind {
    STREAM_EVENT_WOKEN,  // stream_server_wake was called
    STREAM_EVENT_OPENED, // the first event of a connection
    STREAM_EVENT_FRAME,  // between its OPENED and its CLOSED
    STREAM_EVENT_CLOSED, // the last one, whichever side ended it
};

// Why a connection ended, for the log.
enum stream_close_cause {
    STREAM_CLOSE_PEER,      // the app closed or died
    STREAM_CLOSE_LOCAL,     // stream_server_disconnect
    STREAM_CLOSE_OVERSIZED, // a frame over frame_bytes_max, or of length 0
    STREAM_CLOSE_SLOW,      // more than send_bytes_max waited to be sent
    STREAM_CLOSE_NO_MEMORY,
};

struct stream_event {
    enum stream_event_kind kind;
    uint64_t connection_id;        // never used again
    uint64_t peer_uid;             // or ENDPOINT_UID_UNKNOWN
    enum stream_close_cause cause; // CLOSED only
    const uint8_t *data;           // FRAME only; until the next stream_server_poll
    size_t bytes;
};

// As endpoint_server_open.
enum status stream_server_open(const struct stream_server_options *options,
                               struct stream_server **out_server,
                               struct reason *reason) KV_MUST_CHECK;
// Ends every connection and removes the socket file. NULL is fine.
void stream_server_close(struct stream_server *server);

// Waits at most `timeout_ms` for the next event. STATUS_TIMEOUT.
enum status stream_server_poll(struct stream_server *server, uint32_t timeout_ms,
                               struct stream_event *out_event) KV_MUST_CHECK;
// Makes stream_server_poll return WOKEN, now or at its next call. Any thread, until close.
void stream_server_wake(struct stream_server *server);

// Queues a frame (copied); never blocks. STATUS_CLOSED when the connection is gone or is ending,
// STATUS_BUSY when it had not read what was sent before (it is closed then: CLOSED follows),
// STATUS_REFUSED over LIMIT_FRAME_BYTES, STATUS_NO_MEMORY. A frame larger than send_bytes_max is
// taken when nothing else waits.
enum status stream_server_send(struct stream_server *server, uint64_t connection_id,
                               const void *data, size_t bytes) KV_MUST_CHECK;
// The same, with the frame's bytes in several parts.
enum status stream_server_send_parts(struct stream_server *server, uint64_t connection_id,
                                     const struct stream_part *parts,
                                     uint32_t part_count) KV_MUST_CHECK;
// Ends a connection after what is queued was sent (but at most 2 s later); no further frame is
// received. CLOSED follows.
void stream_server_disconnect(struct stream_server *server, uint64_t connection_id);

#endif
