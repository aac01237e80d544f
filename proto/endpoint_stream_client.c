// SPDX-License-Identifier: Apache-2.0
// An app's endpoint over an nng byte stream: every call starts one operation after the other and
// waits for each. A receive that times out keeps what has come, so the next one goes on from there.
#include "proto/endpoint_stream_client.h"

#include "proto/endpoint.h"
#include "proto/endpoint_internal.h"
#include "proto/limits.h"
#include "proto/os/clock.h"

#include <nng/nng.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH_BYTES = 4, RECEIVE_STEP_BYTES = 1 << 16 };

struct stream_client {
    nng_stream *stream;
    nng_aio *send_aio;    // of the sending thread
    nng_aio *receive_aio; // of the receiving thread, like all that follows
    uint8_t length[LENGTH_BYTES];
    size_t length_got;
    uint8_t *body;
    size_t body_bytes;
    size_t body_got;
    size_t body_capacity;
    bool whole;          // the frame in `body` was handed out
    atomic_bool aborted; // sequentially consistent, see run()
};

static int dial(const char *url, uint64_t deadline_ms, nng_aio *aio, nng_stream **out_stream)
{
    nng_stream_dialer *dialer;
    int error = nng_stream_dialer_alloc(&dialer, url);
    if (error != 0) {
        return error;
    }
    nng_aio_set_timeout(aio, (nng_duration)os_clock_left(deadline_ms));
    nng_stream_dialer_dial(dialer, aio);
    nng_aio_wait(aio);
    error = nng_aio_result(aio);
    if (error == 0) {
        *out_stream = nng_aio_get_output(aio, 0);
    }
    nng_stream_dialer_free(dialer);
    return error;
}

enum status stream_client_open(const char *url, uint32_t timeout_ms,
                               struct stream_client **out_client, struct reason *reason)
{
    enum status status = endpoint_url_check(url, reason);
    if (status != STATUS_OK) {
        return status;
    }
    struct stream_client *client = calloc(1, sizeof(*client));
    if (client == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "%s: no memory", url);
    }
    int error = nng_aio_alloc(&client->send_aio, NULL, NULL);
    if (error == 0) {
        error = nng_aio_alloc(&client->receive_aio, NULL, NULL);
    }
    if (error == 0) {
        error = dial(url, os_clock_deadline(timeout_ms), client->send_aio, &client->stream);
    }
    if (error != 0) {
        stream_client_close(client);
        return endpoint_dial_failed(url, error, reason);
    }
    *out_client = client;
    return STATUS_OK;
}

void stream_client_close(struct stream_client *client)
{
    if (client == NULL) {
        return;
    }
    if (client->stream != NULL) {
        nng_stream_close(client->stream);
        nng_stream_free(client->stream);
    }
    nng_aio_free(client->send_aio);
    nng_aio_free(client->receive_aio);
    free(client->body);
    free(client);
}

static enum status client_status(const struct stream_client *client, int error)
{
    enum status status = endpoint_status(error);
    if (status != STATUS_OK && atomic_load(&client->aborted)) {
        return STATUS_CANCELLED;
    }
    return status == STATUS_UNREACHABLE ? STATUS_CLOSED : status;
}

// Runs one operation on a range of bytes and waits for it.
static int run(struct stream_client *client, nng_aio *aio, void (*start)(nng_stream *, nng_aio *),
               nng_iov range, uint64_t deadline_ms)
{
    nng_aio_set_timeout(aio, deadline_ms == OS_DEADLINE_NEVER
                                 ? NNG_DURATION_INFINITE
                                 : (nng_duration)os_clock_left(deadline_ms));
    nng_aio_set_iov(aio, 1, &range);
    start(client->stream, aio);
    // nng never ends an operation that begins on a closed stream. An abort before this line is seen
    // here; one after it finds the operation there to cancel.
    if (atomic_load(&client->aborted)) {
        nng_aio_cancel(aio);
    }
    nng_aio_wait(aio);
    return nng_aio_result(aio);
}

static int send_all(struct stream_client *client, const void *data, size_t bytes,
                    uint64_t deadline_ms)
{
    const uint8_t *at = data;
    while (bytes > 0) {
        // nng's iov is not const; a send does not write to it.
        nng_iov range = {.iov_buf = (void *)(uintptr_t)at, .iov_len = bytes};
        int error = run(client, client->send_aio, nng_stream_send, range, deadline_ms);
        if (error != 0) {
            return error;
        }
        size_t sent = nng_aio_count(client->send_aio);
        at += sent;
        bytes -= sent;
    }
    return 0;
}

enum status stream_client_send_parts(struct stream_client *client, const struct stream_part *parts,
                                     uint32_t part_count, uint32_t timeout_ms)
{
    size_t bytes = endpoint_parts_bytes(parts, part_count);
    if (bytes == 0 || bytes > LIMIT_FRAME_BYTES) {
        return STATUS_REFUSED;
    }
    uint64_t deadline_ms = os_clock_deadline(timeout_ms);
    uint8_t length[LENGTH_BYTES];
    for (unsigned i = 0; i < LENGTH_BYTES; i++) {
        length[i] = (uint8_t)(bytes >> (8 * i));
    }
    int error = send_all(client, length, sizeof(length), deadline_ms);
    for (uint32_t i = 0; i < part_count && error == 0; i++) {
        error = send_all(client, parts[i].data, parts[i].bytes, deadline_ms);
    }
    return client_status(client, error);
}

enum status stream_client_send(struct stream_client *client, const void *data, size_t bytes,
                               uint32_t timeout_ms)
{
    const struct stream_part part = {data, bytes};
    return stream_client_send_parts(client, &part, 1, timeout_ms);
}

// Room for what comes next; memory follows what has come, not what the length says.
static bool make_room(struct stream_client *client)
{
    if (client->body_got < client->body_capacity) {
        return true;
    }
    size_t capacity = client->body_capacity * 2 > RECEIVE_STEP_BYTES ? client->body_capacity * 2
                                                                     : RECEIVE_STEP_BYTES;
    uint8_t *body = realloc(client->body, capacity);
    if (body == NULL) {
        return false;
    }
    client->body = body;
    client->body_capacity = capacity;
    return true;
}

// Receives at least a byte, at most `room`, and adds it to *got, which outlives a timeout.
static enum status receive_some(struct stream_client *client, uint8_t *target, size_t room,
                                size_t *got, uint64_t deadline_ms)
{
    nng_iov range = {.iov_buf = target, .iov_len = room};
    int error = run(client, client->receive_aio, nng_stream_recv, range, deadline_ms);
    if (error == 0) {
        *got += nng_aio_count(client->receive_aio);
    }
    return client_status(client, error);
}

static enum status receive_length(struct stream_client *client, uint64_t deadline_ms)
{
    while (client->length_got < LENGTH_BYTES) {
        enum status status =
            receive_some(client, client->length + client->length_got,
                         LENGTH_BYTES - client->length_got, &client->length_got, deadline_ms);
        if (status != STATUS_OK) {
            return status;
        }
    }
    client->body_bytes = (size_t)client->length[0] | (size_t)client->length[1] << 8 |
                         (size_t)client->length[2] << 16 | (size_t)client->length[3] << 24;
    bool valid = client->body_bytes > 0 && client->body_bytes <= LIMIT_FRAME_BYTES;
    return valid ? STATUS_OK : STATUS_DAMAGED;
}

static enum status receive_body(struct stream_client *client, uint64_t deadline_ms)
{
    while (client->body_got < client->body_bytes) {
        if (!make_room(client)) {
            return STATUS_NO_MEMORY;
        }
        size_t end =
            client->body_bytes < client->body_capacity ? client->body_bytes : client->body_capacity;
        enum status status = receive_some(client, client->body + client->body_got,
                                          end - client->body_got, &client->body_got, deadline_ms);
        if (status != STATUS_OK) {
            return status;
        }
    }
    return STATUS_OK;
}

enum status stream_client_receive(struct stream_client *client, uint32_t timeout_ms,
                                  const uint8_t **out_data, size_t *out_bytes)
{
    uint64_t deadline_ms = os_clock_deadline(timeout_ms);
    if (client->whole) {
        client->whole = false;
        client->length_got = 0;
        client->body_got = 0;
    }
    enum status status = receive_length(client, deadline_ms);
    if (status == STATUS_OK) {
        status = receive_body(client, deadline_ms);
    }
    if (status != STATUS_OK) {
        return status;
    }
    client->whole = true;
    *out_data = client->body;
    *out_bytes = client->body_bytes;
    return STATUS_OK;
}

void stream_client_abort(struct stream_client *client)
{
    atomic_store(&client->aborted, true);
    nng_stream_close(client->stream);
    nng_aio_cancel(client->send_aio);
    nng_aio_cancel(client->receive_aio);
}
