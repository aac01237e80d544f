// SPDX-License-Identifier: Apache-2.0
// An app's side of a connection to gpud: blocking frames (see endpoint_stream_server.h). One thread
// sends, one (the same or another) receives, and any may abort. Closing the connection is how a
// request is cancelled. Prefix `stream_client_`; the file name says where nng is used.
#ifndef KVTIER_PROTO_ENDPOINT_STREAM_CLIENT_H
#define KVTIER_PROTO_ENDPOINT_STREAM_CLIENT_H

#include "proto/endpoint.h"
#include "proto/status.h"

#include <stddef.h>
#include <stdint.h>

struct stream_client;

// STATUS_UNREACHABLE at once when nobody listens, STATUS_INVALID (URL), STATUS_PERMISSION,
// STATUS_TIMEOUT, STATUS_NO_MEMORY.
enum status stream_client_open(const char *url, uint32_t timeout_ms,
                               struct stream_client **out_client,
                               struct reason *reason) KV_MUST_CHECK;
// No call may be in progress. NULL is fine.
void stream_client_close(struct stream_client *client);

// Sends one frame, 1..LIMIT_FRAME_BYTES (else STATUS_REFUSED). STATUS_CLOSED; STATUS_TIMEOUT (the
// connection is of no use then: part of the frame may be sent); STATUS_CANCELLED after abort.
enum status stream_client_send(struct stream_client *client, const void *data, size_t bytes,
                               uint32_t timeout_ms) KV_MUST_CHECK;
// The same, with the frame's bytes in several parts.
enum status stream_client_send_parts(struct stream_client *client, const struct stream_part *parts,
                                     uint32_t part_count, uint32_t timeout_ms) KV_MUST_CHECK;
// Waits for one frame; *out_data stays the client's until the next receive or close.
// STATUS_TIMEOUT (call again: nothing is lost), STATUS_CLOSED, STATUS_CANCELLED after abort,
// STATUS_DAMAGED (a frame over the limit), STATUS_NO_MEMORY.
enum status stream_client_receive(struct stream_client *client, uint32_t timeout_ms,
                                  const uint8_t **out_data, size_t *out_bytes) KV_MUST_CHECK;

// Ends the connection and every call in progress, now. Any thread, but no signal handler: give
// os_service_wait (proto/os/service.h) a thread and abort from there.
void stream_client_abort(struct stream_client *client);

#endif
