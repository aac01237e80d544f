// SPDX-License-Identifier: Apache-2.0
// A receive waits in short pieces, so that a cancel set by a signal handler or another thread is
// seen without that one having to touch the connection.
#include "client/gpu_client.h"

#include "proto/endpoint_stream_client.h"
#include "proto/os/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gpu_client {
    struct stream_client *stream;
    const atomic_bool *cancelled;
    bool alive;
    struct gpu_hello hello;
    char model_name[GPU_NAME_BYTES];
    char program_version[GPU_NAME_BYTES];
    struct gpu_event event; // the last one, finished at the next
};

static bool is_cancelled(const struct gpu_client *client)
{
    return client->cancelled != NULL &&
           atomic_load_explicit(client->cancelled, memory_order_relaxed);
}

static enum status dead(struct gpu_client *client, struct reason *reason, enum status status)
{
    client->alive = false;
    switch (status) {
    case STATUS_CLOSED:
        return reason_set(reason, STATUS_CLOSED, "see gpud's log, or gpuctl status",
                          "gpud: ended the connection");
    case STATUS_CANCELLED:
        return reason_set(reason, STATUS_CANCELLED, "", "request: cancelled");
    case STATUS_TIMEOUT:
        return reason_set(reason, STATUS_TIMEOUT, "see gpud's log, or gpuctl status",
                          "gpud: does not answer");
    default:
        return reason_set(reason, status, "see gpud's log", "gpud: the connection failed (%s)",
                          status_name(status));
    }
}

// The next frame; waits for ever when timeout_ms is 0.
static enum status next_frame(struct gpu_client *client, uint32_t timeout_ms, const uint8_t **out,
                              size_t *out_bytes, struct reason *reason)
{
    uint64_t started_ms = os_clock_ms();
    for (;;) {
        if (is_cancelled(client)) {
            return dead(client, reason, STATUS_CANCELLED);
        }
        enum status status =
            stream_client_receive(client->stream, GPU_CLIENT_POLL_MS, out, out_bytes);
        if (status == STATUS_OK) {
            return STATUS_OK;
        }
        bool late = timeout_ms != 0 && os_clock_ms() - started_ms >= timeout_ms;
        if (status != STATUS_TIMEOUT || late) {
            return dead(client, reason, status);
        }
    }
}

static enum status next_event(struct gpu_client *client, uint32_t timeout_ms, struct reason *reason)
{
    const uint8_t *data = NULL;
    size_t bytes = 0;
    gpu_event_finish(&client->event);
    enum status status = next_frame(client, timeout_ms, &data, &bytes, reason);
    if (status != STATUS_OK) {
        return status;
    }
    status = gpu_event_decode(data, bytes, &client->event, reason);
    if (status != STATUS_OK) {
        client->alive = false;
        return status == STATUS_NO_MEMORY ? status : STATUS_DAMAGED;
    }
    if (client->event.kind == GPU_EVENT_ERROR) {
        if (reason != NULL) {
            *reason = client->event.reason;
        }
        return client->event.error;
    }
    return STATUS_OK;
}

static void remember_hello(struct gpu_client *client)
{
    client->hello = client->event.hello;
    snprintf(client->model_name, sizeof(client->model_name), "%.*s",
             (int)client->hello.model_name.bytes, client->hello.model_name.text);
    snprintf(client->program_version, sizeof(client->program_version), "%.*s",
             (int)client->hello.program_version.bytes, client->hello.program_version.text);
    client->hello.model_name =
        (struct gpu_text){.text = client->model_name, .bytes = strlen(client->model_name)};
    client->hello.program_version = (struct gpu_text){.text = client->program_version,
                                                      .bytes = strlen(client->program_version)};
}

static enum status say_hello(struct gpu_client *client, const char *program, struct reason *reason)
{
    struct gpu_request request;
    gpu_request_init(&request, GPU_OP_HELLO);
    request.program = (struct gpu_text){.text = program, .bytes = strlen(program)};
    enum status status = gpu_client_send(client, &request, reason);
    if (status == STATUS_OK) {
        status = next_event(client, GPU_CLIENT_HELLO_TIMEOUT_MS, reason);
    }
    if (status == STATUS_OK && client->event.kind != GPU_EVENT_HELLO) {
        return reason_set(reason, STATUS_DAMAGED, "use programs of one version",
                          "gpud: answered hello with something else");
    }
    if (status == STATUS_OK) {
        remember_hello(client);
    }
    return status;
}

enum status gpu_client_open(const struct gpu_client_options *options,
                            struct gpu_client **out_client, struct reason *reason)
{
    struct gpu_client *client = calloc(1, sizeof(*client));
    if (client == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "client: out of memory");
    }
    client->cancelled = options->cancelled;
    client->alive = true;
    enum status status =
        stream_client_open(options->url, GPU_CLIENT_HELLO_TIMEOUT_MS, &client->stream, reason);
    if (status == STATUS_UNREACHABLE) {
        (void)reason_set(reason, status, "start it with gpuctl up",
                         "gpud: is not running at %.160s", options->url);
    }
    if (status == STATUS_OK) {
        status = say_hello(client, options->program, reason);
    }
    if (status != STATUS_OK) {
        gpu_client_close(client);
        return status;
    }
    *out_client = client;
    return STATUS_OK;
}

void gpu_client_close(struct gpu_client *client)
{
    if (client == NULL) {
        return;
    }
    gpu_event_finish(&client->event);
    stream_client_close(client->stream);
    free(client);
}

const struct gpu_hello *gpu_client_hello(const struct gpu_client *client)
{
    return &client->hello;
}

bool gpu_client_alive(const struct gpu_client *client)
{
    return client->alive;
}

enum status gpu_client_send(struct gpu_client *client, const struct gpu_request *request,
                            struct reason *reason)
{
    void *data = NULL;
    size_t bytes = 0;
    enum status status = gpu_request_encode(request, &data, &bytes);
    if (status == STATUS_REFUSED) {
        return reason_set(reason, status, "shorten it", "request: is longer than a frame, %d bytes",
                          LIMIT_FRAME_BYTES);
    }
    if (status != STATUS_OK) {
        return reason_set(reason, status, "", "request: out of memory");
    }
    status = stream_client_send(client->stream, data, bytes, GPU_CLIENT_SEND_TIMEOUT_MS);
    free(data);
    return status == STATUS_OK ? STATUS_OK : dead(client, reason, status);
}

enum status gpu_client_receive(struct gpu_client *client, const struct gpu_event **out_event,
                               struct reason *reason)
{
    enum status status = next_event(client, 0, reason);
    if (status == STATUS_OK) {
        *out_event = &client->event;
    }
    return status;
}
