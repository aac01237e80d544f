// SPDX-License-Identifier: Apache-2.0
// Calls over the frames of a stream client. A reader thread hands each reply to the call whose
// number it carries. Callers send one after the other; waiting for that turn is bounded by the
// call's own deadline.
//
// The mutex guards every field of struct endpoint_client below it, and the calls in its list. No
// sending or receiving is done while it is held.
#include "proto/endpoint_client.h"

#include "proto/endpoint_stream_client.h"
#include "proto/os/clock.h"
#include "proto/os/thread.h"

#include <stdlib.h>
#include <string.h>

// One call in progress, on its caller's stack while it is in the list.
struct call {
    struct call *next;
    struct call *previous;
    uint64_t number;
    bool answered; // then status is STATUS_OK and reply is set, or STATUS_NO_MEMORY
    enum status status;
    struct endpoint_reply reply;
};

struct endpoint_client {
    struct stream_client *stream;
    struct os_thread *reader;
    struct os_mutex mutex;
    struct os_condition changed; // an answer came, the turn to send is free, or all is over
    bool dead;
    bool sending; // some caller has the turn to send
    uint64_t last_number;
    uint32_t call_count;
    struct call calls; // head of the list
};

static uint64_t number_of(const uint8_t *bytes)
{
    uint64_t number = 0;
    for (unsigned i = 0; i < ENDPOINT_NUMBER_BYTES; i++) {
        number |= (uint64_t)bytes[i] << (8 * i);
    }
    return number;
}

// The reply to a call that has given up is thrown away.
static void deliver(struct endpoint_client *client, const uint8_t *data, size_t bytes)
{
    size_t body_bytes = bytes - ENDPOINT_NUMBER_BYTES;
    uint8_t *body = malloc(body_bytes + 1); // never NULL for an empty reply
    if (body != NULL) {
        memcpy(body, data + ENDPOINT_NUMBER_BYTES, body_bytes);
    }
    uint64_t number = number_of(data);
    os_mutex_lock(&client->mutex);
    for (struct call *call = client->calls.next; call != &client->calls; call = call->next) {
        if (call->number == number && !call->answered) {
            call->answered = true;
            call->status = body != NULL ? STATUS_OK : STATUS_NO_MEMORY;
            call->reply = (struct endpoint_reply){.data = body, .bytes = body_bytes};
            body = NULL;
            break;
        }
    }
    os_condition_broadcast(&client->changed);
    os_mutex_unlock(&client->mutex);
    free(body);
}

static void read_replies(void *context)
{
    struct endpoint_client *client = context;
    const uint8_t *data;
    size_t bytes;
    while (stream_client_receive(client->stream, OS_WAIT_FOREVER, &data, &bytes) == STATUS_OK &&
           bytes >= ENDPOINT_NUMBER_BYTES) {
        deliver(client, data, bytes);
    }
    stream_client_abort(client->stream); // after a reply that broke the rules it still stands
    os_mutex_lock(&client->mutex);
    client->dead = true;
    os_condition_broadcast(&client->changed);
    os_mutex_unlock(&client->mutex);
}

enum status endpoint_client_open(const char *url, uint32_t timeout_ms,
                                 struct endpoint_client **out_client, struct reason *reason)
{
    struct endpoint_client *client = calloc(1, sizeof(*client));
    if (client == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "%s: no memory", url);
    }
    os_mutex_init(&client->mutex);
    os_condition_init(&client->changed);
    client->calls.next = &client->calls;
    client->calls.previous = &client->calls;
    enum status status = stream_client_open(url, timeout_ms, &client->stream, reason);
    if (status == STATUS_OK) {
        status = os_thread_start("kv-replies", read_replies, client, &client->reader);
        if (status != STATUS_OK) {
            reason_set(reason, status, "", "%s: cannot start a thread", url);
        }
    }
    if (status != STATUS_OK) {
        endpoint_client_close(client);
        return status;
    }
    *out_client = client;
    return STATUS_OK;
}

void endpoint_client_close(struct endpoint_client *client)
{
    if (client == NULL) {
        return;
    }
    if (client->reader != NULL) {
        stream_client_abort(client->stream);
        os_thread_join(client->reader);
    }
    stream_client_close(client->stream);
    os_condition_finish(&client->changed);
    os_mutex_finish(&client->mutex);
    free(client);
}

// Enters the call and waits for the turn to send.
static enum status begin_call(struct endpoint_client *client, struct call *call,
                              uint64_t deadline_ms)
{
    bool in_time = true;
    while (client->sending && !client->dead && in_time) {
        in_time = os_condition_wait(&client->changed, &client->mutex, deadline_ms);
    }
    if (client->dead) {
        return STATUS_UNREACHABLE;
    }
    if (client->call_count == ENDPOINT_REQUESTS_MAX) {
        return STATUS_BUSY;
    }
    if (client->sending) {
        return STATUS_TIMEOUT;
    }
    client->sending = true;
    client->call_count++;
    *call = (struct call){
        .number = ++client->last_number, .next = client->calls.next, .previous = &client->calls};
    call->next->previous = call;
    client->calls.next = call;
    return STATUS_OK;
}

static void end_call(struct endpoint_client *client, struct call *call)
{
    call->next->previous = call->previous;
    call->previous->next = call->next;
    client->call_count--;
}

// Sends with the turn held. A frame that was sent in part leaves the connection without meaning.
static enum status send_request(struct endpoint_client *client, uint64_t number, const void *data,
                                size_t bytes, uint64_t deadline_ms)
{
    uint8_t number_bytes[ENDPOINT_NUMBER_BYTES];
    for (unsigned i = 0; i < ENDPOINT_NUMBER_BYTES; i++) {
        number_bytes[i] = (uint8_t)(number >> (8 * i));
    }
    const struct stream_part parts[] = {{number_bytes, sizeof(number_bytes)}, {data, bytes}};
    enum status status =
        stream_client_send_parts(client->stream, parts, 2, os_clock_left(deadline_ms));
    if (status != STATUS_OK) {
        stream_client_abort(client->stream);
    }
    bool as_is = status == STATUS_OK || status == STATUS_TIMEOUT || status == STATUS_NO_MEMORY;
    return as_is ? status : STATUS_UNREACHABLE;
}

static enum status wait_answer(struct endpoint_client *client, const struct call *call,
                               uint64_t deadline_ms)
{
    bool in_time = true;
    while (!call->answered && !client->dead && in_time) {
        in_time = os_condition_wait(&client->changed, &client->mutex, deadline_ms);
    }
    if (call->answered) {
        return call->status;
    }
    return client->dead ? STATUS_UNREACHABLE : STATUS_TIMEOUT;
}

enum status endpoint_client_call(struct endpoint_client *client, const void *data, size_t bytes,
                                 uint32_t timeout_ms, struct endpoint_reply *out_reply)
{
    if (bytes > ENDPOINT_MESSAGE_BYTES_MAX) {
        return STATUS_REFUSED;
    }
    uint64_t deadline_ms = os_clock_deadline(timeout_ms);
    struct call call;
    os_mutex_lock(&client->mutex);
    enum status status = begin_call(client, &call, deadline_ms);
    if (status != STATUS_OK) {
        os_mutex_unlock(&client->mutex);
        return status;
    }
    os_mutex_unlock(&client->mutex);
    status = send_request(client, call.number, data, bytes, deadline_ms);
    os_mutex_lock(&client->mutex);
    client->sending = false;
    os_condition_broadcast(&client->changed);
    if (status == STATUS_OK) {
        status = wait_answer(client, &call, deadline_ms);
    }
    end_call(client, &call);
    os_mutex_unlock(&client->mutex);
    if (status == STATUS_OK) {
        *out_reply = call.reply;
    } else if (call.answered) {
        free(call.reply.data);
    }
    return status;
}

void endpoint_reply_free(struct endpoint_reply *reply)
{
    free(reply->data);
    *reply = (struct endpoint_reply){0};
}

bool endpoint_client_alive(struct endpoint_client *client)
{
    os_mutex_lock(&client->mutex);
    bool alive = !client->dead;
    os_mutex_unlock(&client->mutex);
    return alive;
}
