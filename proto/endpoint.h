// SPDX-License-Identifier: Apache-2.0
// What the endpoints share. The transport is docs/PROTOCOL.md; nng.h is included in endpoint*.c
// only:
//   endpoint_server.h         kvstored's side: requests of clients, replied to when ready
//   endpoint_client.h         its clients' side
//   endpoint_stream_server.h  gpud's side: frames to and from apps
//   endpoint_stream_client.h  an app's side
// Pure functions, any thread.
#ifndef KVTIER_PROTO_ENDPOINT_H
#define KVTIER_PROTO_ENDPOINT_H

#include "proto/limits.h"
#include "proto/status.h"

#include <stddef.h>
#include <stdint.h>

#define ENDPOINT_UID_UNKNOWN UINT64_MAX // the system did not say who the peer is

enum {
    ENDPOINT_NUMBER_BYTES = 8, // of the request number before each message to and from kvstored
    ENDPOINT_MESSAGE_BYTES_MAX = LIMIT_FRAME_BYTES - ENDPOINT_NUMBER_BYTES,
    ENDPOINT_REQUESTS_MAX = 64, // of one connection, waiting for replies
};

// A piece of a frame that is sent in one go.
struct stream_part {
    const void *data;
    size_t bytes;
};

// STATUS_INVALID, with the URL in the reason, unless it is "ipc://" and an absolute path of at most
// LIMIT_SOCKET_PATH_BYTES (a longer one would be cut off by the system, or refused without a name).
enum status endpoint_url_check(const char *url, struct reason *reason) KV_MUST_CHECK;

// "ipc://PATH" for the socket `name`.sock in `directory`: out [LIMIT_URL_BYTES]. The same checks.
enum status endpoint_url_make(const char *directory, const char *name, char *out,
                              struct reason *reason) KV_MUST_CHECK;

#endif
