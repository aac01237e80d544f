// SPDX-License-Identifier: Apache-2.0
// kvstored's endpoint over nng's REP protocol, one context a request in progress. nng's threads run
// the callbacks below; they put what happened into tables that the owner's poll reads.
//
// The mutex guards every field of struct endpoint_server and of its tables. It is a leaf: no call
// into nng is made while it is held, except those that only read.
//
// A connection's row is taken when its pipe is added and given back when its CLOSED was told, so no
// request can follow that: a request of a pipe without a row is dropped.
#include "proto/endpoint_server.h"

#include "proto/endpoint.h"
#include "proto/endpoint_internal.h"
#include "proto/limits.h"
#include "proto/os/clock.h"
#include "proto/os/thread.h"

#include <assert.h>
#include <nng/nng.h>
#include <nng/protocol/reqrep0/rep.h>
#include <stdlib.h>

enum {
    REPLY_TIMEOUT_MS = 10000, // for a client that does not read its replies
    SOCKET_MODE = 0600,
    REQUESTS_PER_CONNECTION = 4,
};

enum request_state {
    REQUEST_RECEIVING, // nng's
    REQUEST_READY,     // in the ready list
    REQUEST_OWNED,     // handed out by poll
    REQUEST_SENDING,   // nng's
};

struct endpoint_request {
    struct endpoint_server *server;
    struct endpoint_request *next; // in the ready list
    enum request_state state;
    uint64_t connection_id; // once handed out
    nng_ctx context;
    nng_aio *aio;
    nng_msg *message; // READY, OWNED
};

struct connection {
    uint64_t id; // 0: the row is free
    uint64_t peer_uid;
    int pipe_id;
    nng_pipe pipe;
    bool opened; // the pipe is up
    bool told;   // OPENED was delivered
    bool ended;  // the pipe is gone
    uint32_t waiting_count;
};

struct endpoint_server {
    struct os_mutex mutex;
    struct os_condition changed;
    nng_socket socket;
    bool socket_open;
    bool woken;
    uint64_t last_connection_id;
    uint32_t connections_max;
    uint32_t requests_max;
    struct connection *connections;    // [connections_max]
    struct endpoint_request *requests; // [requests_max]
    struct endpoint_request *ready_first;
    struct endpoint_request *ready_last;
};

static struct connection *row_of_pipe(struct endpoint_server *server, int pipe_id)
{
    for (uint32_t i = 0; i < server->connections_max; i++) {
        if (server->connections[i].id != 0 && server->connections[i].pipe_id == pipe_id) {
            return &server->connections[i];
        }
    }
    return NULL;
}

static struct connection *row_of_id(struct endpoint_server *server, uint64_t connection_id)
{
    for (uint32_t i = 0; i < server->connections_max; i++) {
        if (server->connections[i].id == connection_id) {
            return &server->connections[i];
        }
    }
    return NULL;
}

// ---- nng's callbacks

static bool add_connection(struct endpoint_server *server, nng_pipe pipe)
{
    uint64_t peer_uid;
    if (nng_pipe_get_uint64(pipe, NNG_OPT_IPC_PEER_UID, &peer_uid) != 0) {
        peer_uid = ENDPOINT_UID_UNKNOWN;
    }
    os_mutex_lock(&server->mutex);
    struct connection *row = row_of_id(server, 0);
    if (row != NULL) {
        *row = (struct connection){.id = ++server->last_connection_id,
                                   .peer_uid = peer_uid,
                                   .pipe_id = nng_pipe_id(pipe),
                                   .pipe = pipe};
    }
    os_mutex_unlock(&server->mutex);
    return row != NULL;
}

static void pipe_changed(nng_pipe pipe, nng_pipe_ev event, void *context)
{
    struct endpoint_server *server = context;
    if (event == NNG_PIPE_EV_ADD_PRE) {
        if (!add_connection(server, pipe)) {
            nng_pipe_close(pipe);
        }
        return;
    }
    os_mutex_lock(&server->mutex);
    struct connection *row = row_of_pipe(server, nng_pipe_id(pipe));
    if (row != NULL) { // else it was turned away above
        row->opened = row->opened || event == NNG_PIPE_EV_ADD_POST;
        row->ended = row->ended || event == NNG_PIPE_EV_REM_POST;
        if (row->ended && !row->opened) {
            *row = (struct connection){0}; // never came up: nobody is told
        }
        os_condition_signal(&server->changed);
    }
    os_mutex_unlock(&server->mutex);
}

static void start_receive(struct endpoint_request *request)
{
    nng_aio_set_timeout(request->aio, NNG_DURATION_INFINITE);
    nng_ctx_recv(request->context, request->aio);
}

static void append_ready(struct endpoint_server *server, struct endpoint_request *request)
{
    request->state = REQUEST_READY;
    request->message = nng_aio_get_msg(request->aio);
    request->next = NULL;
    if (server->ready_last != NULL) {
        server->ready_last->next = request;
    } else {
        server->ready_first = request;
    }
    server->ready_last = request;
    os_condition_signal(&server->changed);
}

// A receive or a send of a request ended.
static void request_done(void *context)
{
    struct endpoint_request *request = context;
    struct endpoint_server *server = request->server;
    int error = nng_aio_result(request->aio);
    bool again = error != NNG_ECLOSED && error != NNG_ECANCELED;
    os_mutex_lock(&server->mutex);
    if (request->state == REQUEST_SENDING) {
        if (error != 0) { // the reply was not taken, so it is still ours
            nng_msg_free(nng_aio_get_msg(request->aio));
        }
        nng_aio_set_msg(request->aio, NULL);
        request->state = REQUEST_RECEIVING;
    } else if (error == 0) {
        append_ready(server, request);
        again = false;
    }
    os_mutex_unlock(&server->mutex);
    if (again) {
        start_receive(request);
    }
}

// ---- opening and closing

static enum status create_tables(struct endpoint_server *server,
                                 const struct endpoint_server_options *options)
{
    server->connections_max =
        options->connections_max != 0 ? options->connections_max : LIMIT_CLIENTS;
    server->requests_max = options->requests_max != 0
                               ? options->requests_max
                               : server->connections_max * REQUESTS_PER_CONNECTION;
    server->connections = calloc(server->connections_max, sizeof(*server->connections));
    server->requests = calloc(server->requests_max, sizeof(*server->requests));
    return server->connections != NULL && server->requests != NULL ? STATUS_OK : STATUS_NO_MEMORY;
}

static int listen_on(struct endpoint_server *server, const struct endpoint_server_options *options)
{
    size_t max_bytes =
        options->message_bytes_max != 0 ? options->message_bytes_max : LIMIT_FRAME_BYTES;
    int error = nng_rep0_open(&server->socket);
    if (error != 0) {
        return error;
    }
    server->socket_open = true;
    static const nng_pipe_ev events[] = {NNG_PIPE_EV_ADD_PRE, NNG_PIPE_EV_ADD_POST,
                                         NNG_PIPE_EV_REM_POST};
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]) && error == 0; i++) {
        error = nng_pipe_notify(server->socket, events[i], pipe_changed, server);
    }
    nng_listener listener;
    if (error == 0) {
        error = nng_listener_create(&listener, server->socket, options->url);
    }
    if (error == 0) {
        error = nng_listener_set_size(listener, NNG_OPT_RECVMAXSZ, max_bytes);
    }
    if (error == 0) {
        error = nng_listener_set_int(listener, NNG_OPT_IPC_PERMISSIONS, SOCKET_MODE);
    }
    return error != 0 ? error : nng_listener_start(listener, 0);
}

static int start_requests(struct endpoint_server *server)
{
    int error = 0;
    for (uint32_t i = 0; i < server->requests_max && error == 0; i++) {
        struct endpoint_request *request = &server->requests[i];
        request->server = server;
        error = nng_aio_alloc(&request->aio, request_done, request);
        if (error == 0) {
            error = nng_ctx_open(&request->context, server->socket);
        }
        if (error == 0) {
            start_receive(request);
        }
    }
    return error;
}

enum status endpoint_server_open(const struct endpoint_server_options *options,
                                 struct endpoint_server **out_server, struct reason *reason)
{
    assert(options->lock != NULL && options->lock->file.handle >= 0);
    enum status status = endpoint_url_check(options->url, reason);
    if (status != STATUS_OK) {
        return status;
    }
    struct endpoint_server *server = calloc(1, sizeof(*server));
    if (server == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "%s: no memory", options->url);
    }
    os_mutex_init(&server->mutex);
    os_condition_init(&server->changed);
    if (create_tables(server, options) != STATUS_OK) {
        status = reason_set(reason, STATUS_NO_MEMORY, "", "%s: no memory", options->url);
        goto failed;
    }
    int error = listen_on(server, options);
    if (error == 0) {
        error = start_requests(server);
    }
    if (error != 0) {
        status = endpoint_listen_failed(options->url, error, reason);
        goto failed;
    }
    *out_server = server;
    return STATUS_OK;
failed:
    endpoint_server_close(server);
    return status;
}

void endpoint_server_close(struct endpoint_server *server)
{
    if (server == NULL) {
        return;
    }
    if (server->socket_open) {
        nng_close(server->socket); // ends every pipe and context; their callbacks have run
    }
    for (uint32_t i = 0; server->requests != NULL && i < server->requests_max; i++) {
        struct endpoint_request *request = &server->requests[i];
        if (request->aio != NULL) {
            nng_aio_stop(request->aio);
            nng_aio_free(request->aio);
            nng_msg_free(request->message);
        }
    }
    os_condition_finish(&server->changed);
    os_mutex_finish(&server->mutex);
    free(server->requests);
    free(server->connections);
    free(server);
}

// ---- polling

static bool has_ready_request(const struct endpoint_server *server, int pipe_id)
{
    for (struct endpoint_request *r = server->ready_first; r != NULL; r = r->next) {
        if (nng_pipe_id(nng_msg_get_pipe(r->message)) == pipe_id) {
            return true;
        }
    }
    return false;
}

static struct endpoint_event connection_event(enum endpoint_event_kind kind,
                                              const struct connection *row)
{
    return (struct endpoint_event){
        .kind = kind, .connection_id = row->id, .peer_uid = row->peer_uid};
}

// OPENED before anything of that connection, CLOSED after its last request.
static bool take_connection_event(struct endpoint_server *server, struct endpoint_event *out)
{
    for (uint32_t i = 0; i < server->connections_max; i++) {
        struct connection *row = &server->connections[i];
        if (row->id == 0 || !row->opened) {
            continue;
        }
        if (!row->told) {
            row->told = true;
            *out = connection_event(ENDPOINT_EVENT_OPENED, row);
            return true;
        }
        if (row->ended && !has_ready_request(server, row->pipe_id)) {
            *out = connection_event(ENDPOINT_EVENT_CLOSED, row);
            *row = (struct connection){0};
            return true;
        }
    }
    return false;
}

static bool take_request(struct endpoint_server *server, struct endpoint_event *out,
                         struct endpoint_request **out_orphan)
{
    struct endpoint_request *request = server->ready_first;
    if (request == NULL) {
        return false;
    }
    server->ready_first = request->next;
    if (server->ready_first == NULL) {
        server->ready_last = NULL;
    }
    struct connection *row = row_of_pipe(server, nng_pipe_id(nng_msg_get_pipe(request->message)));
    request->state = REQUEST_OWNED;
    request->connection_id = row != NULL ? row->id : 0;
    if (row == NULL) { // its CLOSED was told
        *out_orphan = request;
        return false;
    }
    row->waiting_count++;
    *out = connection_event(ENDPOINT_EVENT_REQUEST, row);
    out->request = request;
    out->data = nng_msg_body(request->message);
    out->bytes = nng_msg_len(request->message);
    out->waiting_count = row->waiting_count;
    return true;
}

static bool take_wake(struct endpoint_server *server, struct endpoint_event *out)
{
    if (!server->woken) {
        return false;
    }
    server->woken = false;
    *out = (struct endpoint_event){.kind = ENDPOINT_EVENT_WOKEN};
    return true;
}

enum status endpoint_server_poll(struct endpoint_server *server, uint32_t timeout_ms,
                                 struct endpoint_event *out_event)
{
    uint64_t deadline_ms = os_clock_deadline(timeout_ms);
    bool in_time = true;
    for (;;) {
        struct endpoint_request *orphan = NULL;
        os_mutex_lock(&server->mutex);
        bool found = take_wake(server, out_event) || take_connection_event(server, out_event) ||
                     take_request(server, out_event, &orphan);
        if (!found && orphan == NULL && in_time) {
            in_time = os_condition_wait(&server->changed, &server->mutex, deadline_ms);
            os_mutex_unlock(&server->mutex);
            continue;
        }
        os_mutex_unlock(&server->mutex);
        if (orphan != NULL) {
            endpoint_server_drop(server, orphan);
        } else {
            return found ? STATUS_OK : STATUS_TIMEOUT;
        }
    }
}

void endpoint_server_wake(struct endpoint_server *server)
{
    os_mutex_lock(&server->mutex);
    server->woken = true;
    os_condition_signal(&server->changed);
    os_mutex_unlock(&server->mutex);
}

// ---- replying

// Takes the request back from the owner.
static void take_back(struct endpoint_server *server, struct endpoint_request *request,
                      enum request_state next_state)
{
    os_mutex_lock(&server->mutex);
    assert(request->state == REQUEST_OWNED);
    request->state = next_state;
    struct connection *row = row_of_id(server, request->connection_id);
    if (row != NULL && request->connection_id != 0) {
        row->waiting_count--;
    }
    nng_msg_free(request->message);
    request->message = NULL;
    os_mutex_unlock(&server->mutex);
}

void endpoint_server_reply(struct endpoint_server *server, struct endpoint_request *request,
                           const void *data, size_t bytes)
{
    nng_msg *reply;
    if (nng_msg_alloc(&reply, 0) != 0) {
        endpoint_server_drop(server, request);
        return;
    }
    if (nng_msg_append(reply, data, bytes) != 0) {
        nng_msg_free(reply);
        endpoint_server_drop(server, request);
        return;
    }
    take_back(server, request, REQUEST_SENDING);
    nng_aio_set_msg(request->aio, reply);
    nng_aio_set_timeout(request->aio, REPLY_TIMEOUT_MS);
    nng_ctx_send(request->context, request->aio);
}

void endpoint_server_drop(struct endpoint_server *server, struct endpoint_request *request)
{
    take_back(server, request, REQUEST_RECEIVING);
    start_receive(request); // a new receive forgets whom the last request came from
}

void endpoint_server_disconnect(struct endpoint_server *server, uint64_t connection_id)
{
    nng_pipe pipe = NNG_PIPE_INITIALIZER;
    os_mutex_lock(&server->mutex);
    struct connection *row = connection_id != 0 ? row_of_id(server, connection_id) : NULL;
    if (row != NULL) {
        pipe = row->pipe;
    }
    os_mutex_unlock(&server->mutex);
    if (row != NULL) {
        nng_pipe_close(pipe);
    }
}
