// SPDX-License-Identifier: Apache-2.0
// Requests and replies over the frames of a stream server. All state belongs to the owner thread:
// what needs a lock is inside the stream server.
#include "proto/endpoint_server.h"

#include "proto/endpoint_stream_server.h"
#include "proto/limits.h"
#include "proto/os/clock.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct endpoint_request {
    struct endpoint_request *next; // in the list of requests that the owner holds
    struct endpoint_request *previous;
    uint64_t connection_id;
    uint8_t number[ENDPOINT_NUMBER_BYTES]; // as the client sent it
    size_t bytes;
    uint8_t data[];
};

// Requests that a connection waits for replies to.
struct waiting {
    uint64_t connection_id; // 0: the row is free
    uint32_t count;
    size_t bytes;
};

struct endpoint_server {
    struct stream_server *stream;
    size_t message_bytes_max;
    uint32_t connections_max;
    struct waiting *rows;          // [connections_max]
    struct endpoint_request *held; // by the owner, in no order
};

static struct waiting *row_of(struct endpoint_server *server, uint64_t connection_id)
{
    for (uint32_t i = 0; i < server->connections_max; i++) {
        if (server->rows[i].connection_id == connection_id) {
            return &server->rows[i];
        }
    }
    return NULL;
}

enum status endpoint_server_open(const struct endpoint_server_options *options,
                                 struct endpoint_server **out_server, struct reason *reason)
{
    uint32_t connections_max =
        options->connections_max != 0 ? options->connections_max : LIMIT_CLIENTS;
    size_t message_bytes_max =
        options->message_bytes_max != 0 ? options->message_bytes_max : ENDPOINT_MESSAGE_BYTES_MAX;
    const struct stream_server_options stream_options = {
        .url = options->url,
        .lock = options->lock,
        .connections_max = connections_max,
        .frame_bytes_max = message_bytes_max + ENDPOINT_NUMBER_BYTES,
        .send_bytes_max = LIMIT_FRAME_BYTES,
    };
    struct endpoint_server *server = calloc(1, sizeof(*server));
    if (server == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "%s: no memory", options->url);
    }
    server->message_bytes_max = message_bytes_max;
    server->connections_max = connections_max;
    server->rows = calloc(connections_max, sizeof(*server->rows));
    enum status status =
        server->rows == NULL
            ? reason_set(reason, STATUS_NO_MEMORY, "", "%s: no memory", options->url)
            : stream_server_open(&stream_options, &server->stream, reason);
    if (status != STATUS_OK) {
        free(server->rows);
        free(server);
        return status;
    }
    *out_server = server;
    return STATUS_OK;
}

void endpoint_server_close(struct endpoint_server *server)
{
    if (server == NULL) {
        return;
    }
    while (server->held != NULL) {
        endpoint_server_drop(server, server->held);
    }
    stream_server_close(server->stream);
    free(server->rows);
    free(server);
}

// Makes the request of a frame; false, and the connection ended, when it breaks a rule.
static bool take_request(struct endpoint_server *server, const struct stream_event *frame,
                         struct endpoint_event *out)
{
    struct waiting *row = row_of(server, frame->connection_id);
    assert(row != NULL);
    if (frame->bytes < ENDPOINT_NUMBER_BYTES || row->count == ENDPOINT_REQUESTS_MAX ||
        frame->bytes > 2 * server->message_bytes_max - row->bytes) {
        stream_server_disconnect(server->stream, frame->connection_id);
        return false;
    }
    size_t bytes = frame->bytes - ENDPOINT_NUMBER_BYTES;
    struct endpoint_request *request = malloc(sizeof(*request) + bytes);
    if (request == NULL) {
        stream_server_disconnect(server->stream, frame->connection_id);
        return false;
    }
    request->connection_id = frame->connection_id;
    request->bytes = bytes;
    memcpy(request->number, frame->data, ENDPOINT_NUMBER_BYTES);
    memcpy(request->data, frame->data + ENDPOINT_NUMBER_BYTES, bytes);
    row->count++;
    row->bytes += bytes;
    request->previous = NULL;
    request->next = server->held;
    if (server->held != NULL) {
        server->held->previous = request;
    }
    server->held = request;
    *out = (struct endpoint_event){.kind = ENDPOINT_EVENT_REQUEST,
                                   .connection_id = frame->connection_id,
                                   .peer_uid = frame->peer_uid,
                                   .request = request,
                                   .data = request->data,
                                   .bytes = bytes,
                                   .waiting_count = row->count};
    return true;
}

// Turns an event of the stream server into ours; false when there is nothing to tell.
static bool take_event(struct endpoint_server *server, const struct stream_event *event,
                       struct endpoint_event *out)
{
    *out =
        (struct endpoint_event){.connection_id = event->connection_id, .peer_uid = event->peer_uid};
    struct waiting *row;
    switch (event->kind) {
    case STREAM_EVENT_FRAME:
        return take_request(server, event, out);
    case STREAM_EVENT_OPENED:
        out->kind = ENDPOINT_EVENT_OPENED;
        row = row_of(server, 0);
        assert(row != NULL); // the stream server has as many
        *row = (struct waiting){.connection_id = event->connection_id};
        break;
    case STREAM_EVENT_CLOSED:
        out->kind = ENDPOINT_EVENT_CLOSED;
        row = row_of(server, event->connection_id);
        assert(row != NULL);
        *row = (struct waiting){0};
        break;
    case STREAM_EVENT_WOKEN:
        out->kind = ENDPOINT_EVENT_WOKEN;
        break;
    }
    return true;
}

enum status endpoint_server_poll(struct endpoint_server *server, uint32_t timeout_ms,
                                 struct endpoint_event *out_event)
{
    uint64_t deadline_ms = os_clock_deadline(timeout_ms);
    for (;;) {
        struct stream_event event;
        enum status status = stream_server_poll(server->stream, os_clock_left(deadline_ms), &event);
        if (status != STATUS_OK || take_event(server, &event, out_event)) {
            return status;
        }
    }
}

void endpoint_server_wake(struct endpoint_server *server)
{
    stream_server_wake(server->stream);
}

void endpoint_server_reply(struct endpoint_server *server, struct endpoint_request *request,
                           const void *data, size_t bytes)
{
    const struct stream_part parts[] = {{request->number, sizeof(request->number)}, {data, bytes}};
    enum status status = stream_server_send_parts(server->stream, request->connection_id, parts, 2);
    if (status == STATUS_NO_MEMORY || status == STATUS_REFUSED) {
        stream_server_disconnect(server->stream, request->connection_id);
    }
    endpoint_server_drop(server, request);
}

void endpoint_server_drop(struct endpoint_server *server, struct endpoint_request *request)
{
    if (request->next != NULL) {
        request->next->previous = request->previous;
    }
    if (request->previous != NULL) {
        request->previous->next = request->next;
    } else {
        assert(server->held == request);
        server->held = request->next;
    }
    struct waiting *row = row_of(server, request->connection_id);
    if (row != NULL) { // else its CLOSED was told
        row->count--;
        row->bytes -= request->bytes;
    }
    free(request);
}

void endpoint_server_disconnect(struct endpoint_server *server, uint64_t connection_id)
{
    stream_server_disconnect(server->stream, connection_id);
}
