// SPDX-License-Identifier: Apache-2.0
// An app's side of the conversation with gpud: one connection, its hello, one request at a time and
// its events (proto/gpu_message.h). libkvtier's public calls are built on it. One thread at a time.
// Never: retries, logs, calls back.
#ifndef KVTIER_CLIENT_GPU_CLIENT_H
#define KVTIER_CLIENT_GPU_CLIENT_H

#include "proto/gpu_message.h"
#include "proto/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    GPU_CLIENT_HELLO_TIMEOUT_MS = 5000,
    GPU_CLIENT_SEND_TIMEOUT_MS = 30000,
    GPU_CLIENT_POLL_MS = 50, // how soon a cancel is seen
};

struct gpu_client;

struct gpu_client_options {
    const char *url;     // of gpud, "ipc://..."
    const char *program; // for gpud's log
    // Set by any thread or signal handler to end gpu_client_receive with STATUS_CANCELLED; asked
    // every GPU_CLIENT_POLL_MS. May be NULL; must outlive the client.
    const atomic_bool *cancelled;
};

// Connects and says hello. STATUS_UNREACHABLE, STATUS_VERSION, STATUS_TIMEOUT, STATUS_CANCELLED.
enum status gpu_client_open(const struct gpu_client_options *options,
                            struct gpu_client **out_client, struct reason *reason) KV_MUST_CHECK;
void gpu_client_close(struct gpu_client *client); // NULL is fine

// gpud's answer to hello; texts live as long as the client.
const struct gpu_hello *gpu_client_hello(const struct gpu_client *client);
bool gpu_client_alive(const struct gpu_client *client);

// Sends a request; the events of the one before must be over. After anything but STATUS_OK the
// client is dead, but for STATUS_REFUSED: longer than a frame can be.
enum status gpu_client_send(struct gpu_client *client, const struct gpu_request *request,
                            struct reason *reason) KV_MUST_CHECK;
// Waits for the next event, which stays valid until the next call. An error event is returned as
// its status and reason. STATUS_CANCELLED when asked to, STATUS_CLOSED when gpud went away,
// STATUS_DAMAGED when it said something malformed: the client is dead after these three.
enum status gpu_client_receive(struct gpu_client *client, const struct gpu_event **out_event,
                               struct reason *reason) KV_MUST_CHECK;

#endif
