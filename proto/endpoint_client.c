// SPDX-License-Identifier: Apache-2.0
// A client's endpoint over nng's REQ protocol with one dialer, so one pipe, and a context a call.
// Resending is off: a request that was sent may have been carried out. nng would keep a request
// that meets no pipe for the next one; ours must not reach another kvstored than the caller meant,
// so each call belongs to the connection it began on and ends with it.
//
// The mutex guards every field of struct endpoint_client below it. nng_aio_abort is called under
// it; nothing that holds nng's locks waits for it but the pipe callback, which nng runs outside
// its protocol locks.
#include "proto/endpoint_client.h"

#include "proto/endpoint.h"
#include "proto/endpoint_internal.h"
#include "proto/limits.h"
#include "proto/os/clock.h"
#include "proto/os/thread.h"

#include <nng/nng.h>
#include <nng/protocol/reqrep0/req.h>
#include <stdbool.h>
#include <stdlib.h>

enum { RECONNECT_MIN_MS = 100, RECONNECT_MAX_MS = 1000 };

// One call in progress, on its caller's stack.
struct call {
    struct call *next;
    struct call *previous;
    uint64_t connection; // that it began on
    nng_ctx context;
    nng_aio *aio;
};

struct endpoint_client {
    nng_socket socket;
    bool socket_open;
    struct os_mutex mutex;
    struct os_condition changed;
    bool connected;
    uint64_t connections; // so far
    struct call calls;    // head of the list of calls in progress
};

static void pipe_changed(nng_pipe pipe, nng_pipe_ev event, void *context)
{
    (void)pipe; // there is only one at a time
    struct endpoint_client *client = context;
    os_mutex_lock(&client->mutex);
    client->connected = event == NNG_PIPE_EV_ADD_POST;
    if (client->connected) {
        client->connections++;
    } else {
        for (struct call *call = client->calls.next; call != &client->calls; call = call->next) {
            nng_aio_abort(call->aio, NNG_ECONNRESET);
        }
    }
    os_condition_broadcast(&client->changed);
    os_mutex_unlock(&client->mutex);
}

// Sends or receives all of `bytes` on a stream, by the deadline.
static int transfer(nng_stream *stream, void (*start)(nng_stream *, nng_aio *), void *data,
                    size_t bytes, nng_aio *aio, uint64_t deadline_ms)
{
    int error = 0;
    for (size_t done = 0; done < bytes && error == 0;) {
        nng_iov rest = {.iov_buf = (uint8_t *)data + done, .iov_len = bytes - done};
        nng_aio_set_iov(aio, 1, &rest); // one part: cannot fail
        nng_aio_set_timeout(aio, (nng_duration)os_clock_left(deadline_ms));
        start(stream, aio);
        nng_aio_wait(aio);
        error = nng_aio_result(aio);
        done += error == 0 ? nng_aio_count(aio) : 0;
    }
    return error;
}

// Whether anybody listens, at once: the dialer proper would go on trying. The greeting of nng's
// transport is exchanged too, since nng 1.5's listener stops accepting for good when a peer goes
// away before that.
static int probe(const char *url, uint64_t deadline_ms)
{
    uint8_t ours[8] = {0, 'S', 'P', 0, 0, NNG_REQ0_SELF, 0, 0};
    uint8_t theirs[8];
    nng_stream_dialer *dialer;
    nng_aio *aio;
    int error = nng_stream_dialer_alloc(&dialer, url);
    if (error != 0) {
        return error;
    }
    error = nng_aio_alloc(&aio, NULL, NULL);
    if (error == 0) {
        nng_aio_set_timeout(aio, (nng_duration)os_clock_left(deadline_ms));
        nng_stream_dialer_dial(dialer, aio);
        nng_aio_wait(aio);
        error = nng_aio_result(aio);
        if (error == 0) {
            nng_stream *stream = nng_aio_get_output(aio, 0);
            error = transfer(stream, nng_stream_send, ours, sizeof(ours), aio, deadline_ms);
            if (error == 0) {
                error = transfer(stream, nng_stream_recv, theirs, sizeof(theirs), aio, deadline_ms);
            }
            nng_stream_free(stream);
        }
        nng_aio_free(aio);
    }
    nng_stream_dialer_free(dialer);
    return error;
}

static int start_dialer(struct endpoint_client *client, const char *url)
{
    int error = nng_req0_open(&client->socket);
    if (error != 0) {
        return error;
    }
    client->socket_open = true;
    nng_dialer dialer;
    error = nng_pipe_notify(client->socket, NNG_PIPE_EV_ADD_POST, pipe_changed, client);
    if (error == 0) {
        error = nng_pipe_notify(client->socket, NNG_PIPE_EV_REM_POST, pipe_changed, client);
    }
    if (error == 0) {
        error = nng_dialer_create(&dialer, client->socket, url);
    }
    if (error == 0) {
        error = nng_dialer_set_size(dialer, NNG_OPT_RECVMAXSZ, LIMIT_FRAME_BYTES);
    }
    if (error == 0) {
        error = nng_dialer_set_ms(dialer, NNG_OPT_RECONNMINT, RECONNECT_MIN_MS);
    }
    if (error == 0) {
        error = nng_dialer_set_ms(dialer, NNG_OPT_RECONNMAXT, RECONNECT_MAX_MS);
    }
    return error != 0 ? error : nng_dialer_start(dialer, NNG_FLAG_NONBLOCK);
}

static int wait_connected(struct endpoint_client *client, uint64_t deadline_ms)
{
    bool in_time = true;
    os_mutex_lock(&client->mutex);
    while (client->connections == 0 && in_time) {
        in_time = os_condition_wait(&client->changed, &client->mutex, deadline_ms);
    }
    int error = client->connections == 0 ? NNG_ETIMEDOUT : 0;
    os_mutex_unlock(&client->mutex);
    return error;
}

enum status endpoint_client_open(const char *url, uint32_t timeout_ms,
                                 struct endpoint_client **out_client, struct reason *reason)
{
    enum status status = endpoint_url_check(url, reason);
    if (status != STATUS_OK) {
        return status;
    }
    uint64_t deadline_ms = os_clock_deadline(timeout_ms);
    struct endpoint_client *client = calloc(1, sizeof(*client));
    if (client == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "%s: no memory", url);
    }
    os_mutex_init(&client->mutex);
    os_condition_init(&client->changed);
    client->calls.next = &client->calls;
    client->calls.previous = &client->calls;
    int error = probe(url, deadline_ms);
    if (error == 0) {
        error = start_dialer(client, url);
    }
    if (error == 0) {
        error = wait_connected(client, deadline_ms);
    }
    if (error != 0) {
        endpoint_client_close(client);
        return endpoint_dial_failed(url, error, reason);
    }
    *out_client = client;
    return STATUS_OK;
}

void endpoint_client_close(struct endpoint_client *client)
{
    if (client == NULL) {
        return;
    }
    if (client->socket_open) {
        nng_close(client->socket);
    }
    os_condition_finish(&client->changed);
    os_mutex_finish(&client->mutex);
    free(client);
}

// Enters the call into the list of its connection; false when there is none.
static bool begin_call(struct endpoint_client *client, struct call *call)
{
    os_mutex_lock(&client->mutex);
    bool connected = client->connected;
    if (connected) {
        call->connection = client->connections;
        call->next = client->calls.next;
        call->previous = &client->calls;
        call->next->previous = call;
        client->calls.next = call;
    }
    os_mutex_unlock(&client->mutex);
    return connected;
}

static void end_call(struct endpoint_client *client, struct call *call)
{
    os_mutex_lock(&client->mutex);
    call->next->previous = call->previous;
    call->previous->next = call->next;
    os_mutex_unlock(&client->mutex);
}

// Runs one operation to its end. The check after the start closes the gap in which the connection
// went before there was anything to abort.
static int run(struct endpoint_client *client, struct call *call, void (*start)(nng_ctx, nng_aio *),
               uint64_t deadline_ms)
{
    uint32_t left_ms = os_clock_left(deadline_ms);
    nng_aio_set_timeout(call->aio, deadline_ms == OS_DEADLINE_NEVER ? NNG_DURATION_INFINITE
                                                                    : (nng_duration)left_ms);
    start(call->context, call->aio);
    os_mutex_lock(&client->mutex);
    if (!client->connected || client->connections != call->connection) {
        nng_aio_abort(call->aio, NNG_ECONNRESET);
    }
    os_mutex_unlock(&client->mutex);
    nng_aio_wait(call->aio);
    return nng_aio_result(call->aio);
}

static int exchange(struct endpoint_client *client, struct call *call, nng_msg *request,
                    uint64_t deadline_ms, nng_msg **out_reply)
{
    nng_aio_set_msg(call->aio, request);
    int error = run(client, call, nng_ctx_send, deadline_ms);
    if (error != 0) {
        nng_msg_free(request);
        return error;
    }
    error = run(client, call, nng_ctx_recv, deadline_ms);
    if (error == 0) {
        *out_reply = nng_aio_get_msg(call->aio);
    }
    return error;
}

static enum status call_status(int error)
{
    enum status status = endpoint_status(error);
    return status == STATUS_CLOSED ? STATUS_UNREACHABLE : status;
}

static int make_request(const void *data, size_t bytes, nng_msg **out_request)
{
    int error = nng_msg_alloc(out_request, 0);
    if (error == 0) {
        error = nng_msg_append(*out_request, data, bytes);
        if (error != 0) {
            nng_msg_free(*out_request);
        }
    }
    return error;
}

enum status endpoint_client_call(struct endpoint_client *client, const void *data, size_t bytes,
                                 uint32_t timeout_ms, struct endpoint_reply *out_reply)
{
    if (bytes > LIMIT_FRAME_BYTES) {
        return STATUS_REFUSED;
    }
    uint64_t deadline_ms = os_clock_deadline(timeout_ms);
    struct call call;
    int error = nng_ctx_open(&call.context, client->socket);
    if (error != 0) {
        return call_status(error);
    }
    error = nng_ctx_set_ms(call.context, NNG_OPT_REQ_RESENDTIME, NNG_DURATION_INFINITE);
    nng_msg *request = NULL;
    nng_msg *reply = NULL;
    if (error == 0) {
        error = nng_aio_alloc(&call.aio, NULL, NULL);
    }
    if (error != 0) {
        goto close_context;
    }
    error = make_request(data, bytes, &request);
    if (error != 0) {
        goto free_aio;
    }
    if (begin_call(client, &call)) {
        error = exchange(client, &call, request, deadline_ms, &reply);
        end_call(client, &call);
    } else {
        nng_msg_free(request);
        error = NNG_ECONNRESET;
    }
free_aio:
    nng_aio_free(call.aio);
close_context:
    nng_ctx_close(call.context);
    if (error == 0) {
        *out_reply = (struct endpoint_reply){
            .data = nng_msg_body(reply), .bytes = nng_msg_len(reply), .message = reply};
    }
    return call_status(error);
}

void endpoint_reply_free(struct endpoint_reply *reply)
{
    nng_msg_free(reply->message);
    *reply = (struct endpoint_reply){0};
}

uint64_t endpoint_client_connection(struct endpoint_client *client)
{
    os_mutex_lock(&client->mutex);
    uint64_t connection = client->connected ? client->connections : 0;
    os_mutex_unlock(&client->mutex);
    return connection;
}
