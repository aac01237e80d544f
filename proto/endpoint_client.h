// SPDX-License-Identifier: Apache-2.0
// A client's side of the control path to kvstored: one connection for the whole process (so that
// kvstored sees one peer, and its end), over which calls of several threads overlap. Nothing is
// ever sent twice. Any thread, except close. Never: retries, interprets messages.
#ifndef KVTIER_PROTO_ENDPOINT_CLIENT_H
#define KVTIER_PROTO_ENDPOINT_CLIENT_H

#include "proto/status.h"

#include <stddef.h>
#include <stdint.h>

struct endpoint_client;

// A reply; free it with endpoint_reply_free.
struct endpoint_reply {
    const uint8_t *data;
    size_t bytes;
    void *message; // owns data
};

// Connects. STATUS_UNREACHABLE at once when nobody listens, STATUS_INVALID (URL),
// STATUS_PERMISSION, STATUS_NO_MEMORY, STATUS_TIMEOUT.
enum status endpoint_client_open(const char *url, uint32_t timeout_ms,
                                 struct endpoint_client **out_client,
                                 struct reason *reason) KV_MUST_CHECK;
// No call may be in progress. NULL is fine.
void endpoint_client_close(struct endpoint_client *client);

// Sends a request (copied) and waits for its reply. STATUS_UNREACHABLE at once when the connection
// is gone or goes while waiting (whether the request was carried out is then unknown);
// STATUS_TIMEOUT when no reply came in time; STATUS_REFUSED when the request is over
// LIMIT_FRAME_BYTES; STATUS_NO_MEMORY.
enum status endpoint_client_call(struct endpoint_client *client, const void *data, size_t bytes,
                                 uint32_t timeout_ms,
                                 struct endpoint_reply *out_reply) KV_MUST_CHECK;
void endpoint_reply_free(struct endpoint_reply *reply); // zeroed memory is fine

// Number of the connection: 1 for the first; 0 while there is none. A lost connection is dialled
// again behind the scenes (every 100 ms to 1 s); when the number has changed, the other side is a
// new kvstored or has forgotten us: say hello again, and go by the epoch it answers.
uint64_t endpoint_client_connection(struct endpoint_client *client);

#endif
