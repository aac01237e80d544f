// SPDX-License-Identifier: Apache-2.0
// gpud's endpoint over nng's byte streams. nng's threads run the callbacks below; they fill and
// drain the connections' buffers and leave the rest to the owner's poll.
//
// The mutex guards every field of struct stream_server and of its connections. It is a leaf: nng is
// called only after it was given back.
//
// A connection's row is FREE -> OPEN (accepted) -> ENDED (an error, the peer's close, or the owner)
// -> FREE (the owner's poll has stopped its operations, freed it and told CLOSED). Only an OPEN row
// starts operations, and only the owner frees, so a callback never meets a freed stream.
#include "proto/endpoint_stream_server.h"

#include "proto/endpoint.h"
#include "proto/endpoint_internal.h"
#include "proto/limits.h"
#include "proto/os/clock.h"
#include "proto/os/thread.h"

#include <assert.h>
#include <nng/nng.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    LENGTH_BYTES = 4,
    RECEIVE_STEP_BYTES = 1 << 16, // first size of a receive buffer, which then doubles: a length is
                                  // a claim, memory follows what has come
    SEND_DEFAULT_BYTES = 8 << 20,
    FLUSH_TIMEOUT_MS = 2000,
    ACCEPT_PAUSE_MS = 100, // after a failed accept (out of descriptors)
    SOCKET_MODE = 0600,
};

struct frame {
    struct frame *next;
    size_t bytes; // length prefix included
    size_t sent_bytes;
    uint8_t data[];
};

enum connection_state { CONNECTION_FREE, CONNECTION_OPEN, CONNECTION_ENDED };

struct connection {
    struct stream_server *server;
    enum connection_state state;
    uint64_t id;
    uint64_t peer_uid;
    enum stream_close_cause cause;
    bool told;     // OPENED was delivered
    bool starting; // the accepting thread is not done with it: the owner looks away
    nng_stream *stream;
    nng_aio *receive_aio;
    nng_aio *send_aio;
    // receiving: the length, then the body
    uint8_t length[LENGTH_BYTES];
    size_t length_got;
    uint8_t *body;
    size_t body_bytes; // by its length
    size_t body_got;
    size_t body_capacity;
    bool frame_ready; // a whole frame waits for the owner; nothing is received
    // sending
    struct frame *send_first;
    struct frame *send_last;
    size_t send_bytes; // waiting
    bool sending;
    bool closing; // ended when all is sent, or at flush_deadline_ms
    uint64_t flush_deadline_ms;
};

struct stream_server {
    struct os_mutex mutex;
    struct os_condition changed;
    nng_stream_listener *listener;
    nng_aio *accept_aio;
    bool accept_pausing;
    bool stopping;
    bool woken;
    size_t frame_bytes_max;
    size_t send_bytes_max;
    uint64_t last_connection_id;
    uint32_t connections_max;
    struct connection *connections; // [connections_max]
    uint32_t next_row;              // where poll looks first, so that no connection starves another
    struct connection *delivered;   // whose frame the owner holds until the next poll
};

static struct connection *find_row(struct stream_server *server, uint64_t connection_id)
{
    for (uint32_t i = 0; i < server->connections_max; i++) {
        struct connection *row = &server->connections[i];
        if (row->state != CONNECTION_FREE && row->id == connection_id) {
            return row;
        }
    }
    return NULL;
}

static void end_connection(struct connection *row, enum stream_close_cause cause)
{
    if (row->state == CONNECTION_OPEN) {
        row->state = CONNECTION_ENDED;
        row->cause = cause;
        os_condition_signal(&row->server->changed);
    }
}

// ---- receiving

// Room for more of the body; false without memory.
static bool grow_body(struct connection *row)
{
    size_t capacity =
        row->body_capacity * 2 > RECEIVE_STEP_BYTES ? row->body_capacity * 2 : RECEIVE_STEP_BYTES;
    capacity = capacity < row->body_bytes ? capacity : row->body_bytes;
    uint8_t *body = realloc(row->body, capacity);
    if (body == NULL) {
        return false;
    }
    row->body = body;
    row->body_capacity = capacity;
    return true;
}

// The length is whole: checks it. The body's buffer begins small whatever it says.
static void take_length(struct connection *row)
{
    row->body_bytes = (size_t)row->length[0] | (size_t)row->length[1] << 8 |
                      (size_t)row->length[2] << 16 | (size_t)row->length[3] << 24;
    if (row->body_bytes == 0 || row->body_bytes > row->server->frame_bytes_max) {
        end_connection(row, STREAM_CLOSE_OVERSIZED);
    }
}

// Books `bytes` that have come, and says where the next ones go. False when nothing is to be
// received: a frame is whole, or the connection ended.
static bool advance_receive(struct connection *row, size_t bytes, nng_iov *out_target)
{
    if (row->length_got < LENGTH_BYTES) {
        row->length_got += bytes;
        if (row->length_got == LENGTH_BYTES) {
            take_length(row);
        }
    } else {
        row->body_got += bytes;
        row->frame_ready = row->body_got == row->body_bytes;
    }
    if (row->state != CONNECTION_OPEN || row->frame_ready) {
        os_condition_signal(&row->server->changed);
        return false;
    }
    if (row->length_got < LENGTH_BYTES) {
        *out_target = (nng_iov){.iov_buf = row->length + row->length_got,
                                .iov_len = LENGTH_BYTES - row->length_got};
        return true;
    }
    if (row->body_got >= row->body_capacity && !grow_body(row)) {
        end_connection(row, STREAM_CLOSE_NO_MEMORY);
        return false;
    }
    size_t room = row->body_capacity < row->body_bytes ? row->body_capacity : row->body_bytes;
    *out_target = (nng_iov){.iov_buf = row->body + row->body_got, .iov_len = room - row->body_got};
    return true;
}

static void start_receive(struct connection *row, nng_iov target)
{
    nng_aio_set_iov(row->receive_aio, 1, &target);
    nng_stream_recv(row->stream, row->receive_aio);
}

static void receive_done(void *context)
{
    struct connection *row = context;
    int error = nng_aio_result(row->receive_aio);
    size_t bytes = error == 0 ? nng_aio_count(row->receive_aio) : 0;
    nng_iov target;
    bool more = false;
    os_mutex_lock(&row->server->mutex);
    if (error != 0) {
        end_connection(row, STREAM_CLOSE_PEER);
    } else if (row->state == CONNECTION_OPEN) {
        more = advance_receive(row, bytes, &target);
    }
    os_mutex_unlock(&row->server->mutex);
    if (more) {
        start_receive(row, target);
    }
}

// The owner is done with the frame it was given: receive the next one.
static void release_delivered(struct stream_server *server)
{
    struct connection *row = server->delivered;
    if (row == NULL) {
        return;
    }
    server->delivered = NULL;
    nng_iov target;
    os_mutex_lock(&server->mutex);
    row->frame_ready = false;
    row->length_got = 0;
    row->body_got = 0;
    if (row->body_capacity > RECEIVE_STEP_BYTES) { // idle connections keep little
        free(row->body);
        row->body = NULL;
        row->body_capacity = 0;
    }
    bool more = row->state == CONNECTION_OPEN && advance_receive(row, 0, &target);
    os_mutex_unlock(&server->mutex);
    if (more) {
        start_receive(row, target);
    }
}

// ---- sending

static nng_iov unsent(const struct connection *row)
{
    struct frame *frame = row->send_first;
    return (nng_iov){.iov_buf = frame->data + frame->sent_bytes,
                     .iov_len = frame->bytes - frame->sent_bytes};
}

static void start_send(struct connection *row, nng_iov source)
{
    nng_aio_set_iov(row->send_aio, 1, &source);
    nng_stream_send(row->stream, row->send_aio);
}

static void pop_frame(struct connection *row)
{
    struct frame *frame = row->send_first;
    row->send_first = frame->next;
    if (row->send_first == NULL) {
        row->send_last = NULL;
    }
    row->send_bytes -= frame->bytes;
    free(frame);
}

// Books `bytes` that were sent; false when nothing is left to send.
static bool advance_send(struct connection *row, size_t bytes, nng_iov *out_source)
{
    row->send_first->sent_bytes += bytes;
    if (row->send_first->sent_bytes == row->send_first->bytes) {
        pop_frame(row);
    }
    if (row->send_first == NULL) {
        if (row->closing) {
            end_connection(row, STREAM_CLOSE_LOCAL);
        }
        return false;
    }
    *out_source = unsent(row);
    return true;
}

static void send_done(void *context)
{
    struct connection *row = context;
    int error = nng_aio_result(row->send_aio);
    size_t bytes = error == 0 ? nng_aio_count(row->send_aio) : 0;
    nng_iov source;
    bool more = false;
    os_mutex_lock(&row->server->mutex);
    if (error != 0) {
        end_connection(row, STREAM_CLOSE_PEER);
    } else if (row->state == CONNECTION_OPEN) {
        more = advance_send(row, bytes, &source);
    }
    row->sending = more;
    os_mutex_unlock(&row->server->mutex);
    if (more) {
        start_send(row, source);
    }
}

static struct frame *make_frame(const struct stream_part *parts, uint32_t part_count, size_t bytes)
{
    struct frame *frame = malloc(sizeof(*frame) + LENGTH_BYTES + bytes);
    if (frame == NULL) {
        return NULL;
    }
    frame->next = NULL;
    frame->bytes = LENGTH_BYTES + bytes;
    frame->sent_bytes = 0;
    for (unsigned i = 0; i < LENGTH_BYTES; i++) {
        frame->data[i] = (uint8_t)(bytes >> (8 * i));
    }
    uint8_t *at = frame->data + LENGTH_BYTES;
    for (uint32_t i = 0; i < part_count; i++) {
        if (parts[i].bytes > 0) {
            memcpy(at, parts[i].data, parts[i].bytes);
            at += parts[i].bytes;
        }
    }
    return frame;
}

static void append_frame(struct connection *row, struct frame *frame)
{
    if (row->send_last != NULL) {
        row->send_last->next = frame;
    } else {
        row->send_first = frame;
    }
    row->send_last = frame;
    row->send_bytes += frame->bytes;
}

// Queues the frame, which becomes the connection's only with STATUS_OK.
static enum status send_frame(struct stream_server *server, uint64_t connection_id,
                              struct frame *frame)
{
    enum status status = STATUS_OK;
    bool start = false;
    nng_iov source;
    os_mutex_lock(&server->mutex);
    struct connection *row = find_row(server, connection_id);
    if (row == NULL || row->state != CONNECTION_OPEN || row->closing) {
        status = STATUS_CLOSED;
    } else if (row->send_bytes > 0 && row->send_bytes + frame->bytes > server->send_bytes_max) {
        status = STATUS_BUSY;
        end_connection(row, STREAM_CLOSE_SLOW);
    } else {
        append_frame(row, frame);
        start = !row->sending;
        row->sending = true;
        source = unsent(row);
    }
    os_mutex_unlock(&server->mutex);
    if (start) {
        start_send(row, source); // only the owner frees a row, and we are the owner
    }
    return status;
}

enum status stream_server_send_parts(struct stream_server *server, uint64_t connection_id,
                                     const struct stream_part *parts, uint32_t part_count)
{
    size_t bytes = endpoint_parts_bytes(parts, part_count);
    if (bytes == 0 || bytes > LIMIT_FRAME_BYTES) {
        return STATUS_REFUSED;
    }
    struct frame *frame = make_frame(parts, part_count, bytes);
    if (frame == NULL) {
        return STATUS_NO_MEMORY;
    }
    enum status status = send_frame(server, connection_id, frame);
    if (status != STATUS_OK) {
        free(frame);
    }
    return status;
}

enum status stream_server_send(struct stream_server *server, uint64_t connection_id,
                               const void *data, size_t bytes)
{
    const struct stream_part part = {data, bytes};
    return stream_server_send_parts(server, connection_id, &part, 1);
}

void stream_server_disconnect(struct stream_server *server, uint64_t connection_id)
{
    os_mutex_lock(&server->mutex);
    struct connection *row = find_row(server, connection_id);
    if (row != NULL && row->state == CONNECTION_OPEN && !row->closing) {
        row->closing = true;
        row->flush_deadline_ms = os_clock_deadline(FLUSH_TIMEOUT_MS);
        if (row->send_first == NULL) {
            end_connection(row, STREAM_CLOSE_LOCAL);
        }
    }
    os_mutex_unlock(&server->mutex);
}

// ---- accepting

static struct connection *claim_row(struct stream_server *server, nng_stream *stream)
{
    for (uint32_t i = 0; !server->stopping && i < server->connections_max; i++) {
        struct connection *row = &server->connections[i];
        if (row->state == CONNECTION_FREE) {
            *row = (struct connection){.server = server,
                                       .state = CONNECTION_OPEN,
                                       .starting = true,
                                       .id = ++server->last_connection_id,
                                       .stream = stream};
            return row;
        }
    }
    return NULL;
}

// Frees what a row holds; its operations are over.
static void free_row_contents(struct connection *row)
{
    nng_aio_free(row->receive_aio);
    nng_aio_free(row->send_aio);
    nng_stream_free(row->stream);
    while (row->send_first != NULL) {
        pop_frame(row);
    }
    free(row->body);
}

static void add_connection(struct stream_server *server, nng_stream *stream)
{
    uint64_t peer_uid;
    if (nng_stream_get_uint64(stream, NNG_OPT_IPC_PEER_UID, &peer_uid) != 0) {
        peer_uid = ENDPOINT_UID_UNKNOWN;
    }
    nng_iov target;
    bool ready = false;
    os_mutex_lock(&server->mutex);
    struct connection *row = claim_row(server, stream);
    if (row != NULL) {
        row->peer_uid = peer_uid;
        // Allocating is the one thing done with nng under the mutex: it starts nothing.
        ready = nng_aio_alloc(&row->receive_aio, receive_done, row) == 0 &&
                nng_aio_alloc(&row->send_aio, send_done, row) == 0;
        if (ready) {
            ready = advance_receive(row, 0, &target);
        } else {
            free_row_contents(row);
            *row = (struct connection){.state = CONNECTION_FREE};
        }
    }
    os_mutex_unlock(&server->mutex);
    if (row == NULL) { // full
        nng_stream_free(stream);
    } else if (ready) {
        start_receive(row, target);
        os_mutex_lock(&server->mutex);
        row->starting = false;
        os_condition_signal(&server->changed);
        os_mutex_unlock(&server->mutex);
    }
}

static void accept_done(void *context)
{
    struct stream_server *server = context;
    int error = nng_aio_result(server->accept_aio);
    bool was_pause = server->accept_pausing;
    if (error == NNG_ECLOSED || error == NNG_ECANCELED) {
        return;
    }
    server->accept_pausing = error != 0 && !was_pause;
    if (error == 0 && !was_pause) {
        add_connection(server, nng_aio_get_output(server->accept_aio, 0));
    }
    if (server->accept_pausing) {
        nng_sleep_aio(ACCEPT_PAUSE_MS, server->accept_aio);
    } else {
        nng_stream_listener_accept(server->listener, server->accept_aio);
    }
}

// ---- opening and closing

static int listen_on(struct stream_server *server, const char *url)
{
    int error = nng_stream_listener_alloc(&server->listener, url);
    if (error == 0) {
        error = nng_stream_listener_set_int(server->listener, NNG_OPT_IPC_PERMISSIONS, SOCKET_MODE);
    }
    if (error == 0) {
        error = nng_aio_alloc(&server->accept_aio, accept_done, server);
    }
    if (error == 0) {
        error = nng_stream_listener_listen(server->listener);
    }
    if (error == 0) {
        nng_stream_listener_accept(server->listener, server->accept_aio);
    }
    return error;
}

enum status stream_server_open(const struct stream_server_options *options,
                               struct stream_server **out_server, struct reason *reason)
{
    assert(options->lock != NULL && options->lock->file.handle >= 0);
    enum status status = endpoint_url_check(options->url, reason);
    if (status != STATUS_OK) {
        return status;
    }
    struct stream_server *server = calloc(1, sizeof(*server));
    if (server == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "%s: no memory", options->url);
    }
    os_mutex_init(&server->mutex);
    os_condition_init(&server->changed);
    server->frame_bytes_max =
        options->frame_bytes_max != 0 ? options->frame_bytes_max : LIMIT_FRAME_BYTES;
    server->send_bytes_max =
        options->send_bytes_max != 0 ? options->send_bytes_max : SEND_DEFAULT_BYTES;
    server->connections_max = options->connections_max != 0 ? options->connections_max : LIMIT_APPS;
    server->connections = calloc(server->connections_max, sizeof(*server->connections));
    int error = server->connections == NULL ? NNG_ENOMEM : listen_on(server, options->url);
    if (error != 0) {
        stream_server_close(server);
        return endpoint_listen_failed(options->url, error, reason);
    }
    *out_server = server;
    return STATUS_OK;
}

// Ends what runs on an ended connection and frees it. Without the mutex: callbacks need it to end.
static void reap(struct connection *row)
{
    nng_stream_close(row->stream);
    nng_aio_stop(row->receive_aio);
    nng_aio_stop(row->send_aio);
    free_row_contents(row);
}

void stream_server_close(struct stream_server *server)
{
    if (server == NULL) {
        return;
    }
    os_mutex_lock(&server->mutex);
    server->stopping = true;
    for (uint32_t i = 0; server->connections != NULL && i < server->connections_max; i++) {
        end_connection(&server->connections[i], STREAM_CLOSE_LOCAL);
    }
    os_mutex_unlock(&server->mutex);
    if (server->listener != NULL) {
        nng_stream_listener_close(server->listener);
    }
    if (server->accept_aio != NULL) {
        nng_aio_stop(server->accept_aio);
        nng_aio_free(server->accept_aio);
    }
    for (uint32_t i = 0; server->connections != NULL && i < server->connections_max; i++) {
        if (server->connections[i].state != CONNECTION_FREE) {
            reap(&server->connections[i]);
        }
    }
    if (server->listener != NULL) {
        nng_stream_listener_free(server->listener);
    }
    os_condition_finish(&server->changed);
    os_mutex_finish(&server->mutex);
    free(server->connections);
    free(server);
}

// ---- polling

static struct stream_event event_of(enum stream_event_kind kind, const struct connection *row)
{
    return (struct stream_event){
        .kind = kind, .connection_id = row->id, .peer_uid = row->peer_uid, .cause = row->cause};
}

// The next event of one connection, in the order OPENED, FRAME, CLOSED. *out_ended is set when it
// is CLOSED: the row is then the owner's to reap.
static bool take_row_event(struct connection *row, struct stream_event *out, bool *out_ended)
{
    if (row->state == CONNECTION_FREE || row->starting) {
        return false;
    }
    if (!row->told) {
        row->told = true;
        *out = event_of(STREAM_EVENT_OPENED, row);
        return true;
    }
    if (row->closing && os_clock_ms() >= row->flush_deadline_ms) {
        end_connection(row, STREAM_CLOSE_LOCAL);
    }
    if (row->frame_ready && !row->closing) {
        *out = event_of(STREAM_EVENT_FRAME, row);
        out->data = row->body;
        out->bytes = row->body_bytes;
        row->server->delivered = row;
        return true;
    }
    if (row->state == CONNECTION_ENDED) {
        *out = event_of(STREAM_EVENT_CLOSED, row);
        *out_ended = true;
        return true;
    }
    return false;
}

static bool take_event(struct stream_server *server, struct stream_event *out,
                       struct connection **out_ended)
{
    if (server->woken) {
        server->woken = false;
        *out = (struct stream_event){.kind = STREAM_EVENT_WOKEN};
        return true;
    }
    for (uint32_t i = 0; i < server->connections_max; i++) {
        uint32_t index = (server->next_row + i) % server->connections_max;
        bool ended = false;
        if (take_row_event(&server->connections[index], out, &ended)) {
            server->next_row = (index + 1) % server->connections_max;
            *out_ended = ended ? &server->connections[index] : NULL;
            return true;
        }
    }
    return false;
}

// When poll has to look again: at its own deadline or at that of a connection that is closing.
static uint64_t next_deadline(const struct stream_server *server, uint64_t deadline_ms)
{
    for (uint32_t i = 0; i < server->connections_max; i++) {
        const struct connection *row = &server->connections[i];
        if (row->state == CONNECTION_OPEN && row->closing && row->flush_deadline_ms < deadline_ms) {
            deadline_ms = row->flush_deadline_ms;
        }
    }
    return deadline_ms;
}

enum status stream_server_poll(struct stream_server *server, uint32_t timeout_ms,
                               struct stream_event *out_event)
{
    release_delivered(server);
    uint64_t deadline_ms = os_clock_deadline(timeout_ms);
    struct connection *ended = NULL;
    os_mutex_lock(&server->mutex);
    bool found = take_event(server, out_event, &ended);
    while (!found && (timeout_ms > 0 && os_clock_ms() < deadline_ms)) {
        os_condition_wait(&server->changed, &server->mutex, next_deadline(server, deadline_ms));
        found = take_event(server, out_event, &ended);
    }
    os_mutex_unlock(&server->mutex);
    if (ended != NULL) {
        reap(ended);
        os_mutex_lock(&server->mutex);
        *ended = (struct connection){.state = CONNECTION_FREE};
        os_mutex_unlock(&server->mutex);
    }
    return found ? STATUS_OK : STATUS_TIMEOUT;
}

void stream_server_wake(struct stream_server *server)
{
    os_mutex_lock(&server->mutex);
    server->woken = true;
    os_condition_signal(&server->changed);
    os_mutex_unlock(&server->mutex);
}
