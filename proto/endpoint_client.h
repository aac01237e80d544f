// SPDX-License-Identifier: Apache-2.0
// A client's side of the control path to kvstored: one connection for the whole process (so that
// kvstored sees one peer, and its end), over which calls of several threads overlap. Nothing is
// ever sent twice, and nothing meant for one kvstored reaches another: a client whose connection is
// gone stays dead; open a new one and say hello again. Any thread, except close. Never: retries,
// interprets messages.
#ifndef KVTIER_PROTO_ENDPOINT_CLIENT_H
#define KVTIER_PROTO_ENDPOINT_CLIENT_H

#include "proto/endpoint.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct endpoint_client;

// A reply; free it with endpoint_reply_free.
struct endpoint_reply {
    uint8_t *data;
    size_t bytes;
};

// Connects. STATUS_UNREACHABLE at once when nobody listens, STATUS_INVALID (URL),
// STATUS_PERMISSION, STATUS_NO_MEMORY, STATUS_TIMEOUT. That a stopped kvstored does not answer is
// seen by the first call.
enum status endpoint_client_open(const char *url, uint32_t timeout_ms,
                                 struct endpoint_client **out_client,
                                 struct reason *reason) KV_MUST_CHECK;
// No call may be in progress. NULL is fine.
void endpoint_client_close(struct endpoint_client *client);

// Sends a request (copied) and waits for its reply. STATUS_UNREACHABLE at once when the connection
// is gone or goes while waiting (whether the request was carried out is then unknown);
// STATUS_TIMEOUT when no reply came in time (a late one is thrown away; when the request could not
// even be sent whole, the connection is ended); STATUS_REFUSED when the request is over
// ENDPOINT_MESSAGE_BYTES_MAX; STATUS_BUSY when ENDPOINT_REQUESTS_MAX calls are in progress;
// STATUS_NO_MEMORY.
enum status endpoint_client_call(struct endpoint_client *client, const void *data, size_t bytes,
                                 uint32_t timeout_ms,
                                 struct endpoint_reply *out_reply) KV_MUST_CHECK;
void endpoint_reply_free(struct endpoint_reply *reply); // zeroed memory is fine

// Whether the connection lives. Once false, it stays so.
bool endpoint_client_alive(struct endpoint_client *client);

#endif
