// SPDX-License-Identifier: Apache-2.0
// A connection that ended is opened anew by the next call, so that a client outlives a restart of
// gpud and a cancel.
#include "client/kvtier_call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static_assert(KVTIER_MISMATCH == (int)STATUS_MISMATCH, "one numbering");
static_assert(sizeof(((struct kvtier_error *)0)->message) >= REASON_TEXT_BYTES, "reasons fit");
static_assert(sizeof(((struct kvtier_error *)0)->hint) >= REASON_HINT_BYTES, "hints fit");

int call_fail(struct kvtier_error *error, enum status status, const struct reason *reason)
{
    if (error != NULL && status != STATUS_OK) {
        error->status = (int)status;
        snprintf(error->message, sizeof(error->message), "%s",
                 reason->text[0] != 0 ? reason->text : status_name(status));
        snprintf(error->hint, sizeof(error->hint), "%s", reason->hint);
    }
    return (int)status;
}

static void remember(struct kvtier_client *client)
{
    const struct gpu_hello *hello = gpu_client_hello(client->connection);
    snprintf(client->model_name, sizeof(client->model_name), "%.*s", (int)hello->model_name.bytes,
             hello->model_name.text);
    client->info = (struct kvtier_info){
        .model_name = client->model_name,
        .context_tokens = hello->context_tokens,
        .vocab_tokens = hello->vocab_tokens,
        .block_tokens = hello->block_tokens,
        .epoch = hello->epoch,
    };
}

enum status call_connect(struct kvtier_client *client, struct reason *reason)
{
    if (client->connection != NULL && gpu_client_alive(client->connection)) {
        return STATUS_OK;
    }
    gpu_client_close(client->connection);
    client->connection = NULL;
    const struct gpu_client_options options = {
        .url = client->url, .program = "libkvtier", .cancelled = &client->cancelled};
    enum status status = gpu_client_open(&options, &client->connection, reason);
    if (status == STATUS_OK) {
        remember(client);
    }
    return status;
}

enum status call_begin(struct call *call, const struct gpu_request *request)
{
    struct kvtier_client *client = call->client;
    if (atomic_flag_test_and_set_explicit(&client->in_use, memory_order_acquire)) {
        return reason_set(&call->reason, STATUS_BUSY, "open a client for each thread",
                          "client: another call is in progress");
    }
    atomic_store_explicit(&client->cancelled, false, memory_order_relaxed);
    enum status status = call_connect(client, &call->reason);
    if (status == STATUS_OK) {
        status = gpu_client_send(client->connection, request, &call->reason);
    }
    if (status != STATUS_OK) {
        atomic_flag_clear_explicit(&client->in_use, memory_order_release);
    }
    return status;
}

void call_end(struct call *call, bool complete)
{
    struct kvtier_client *client = call->client;
    if (!complete) {
        gpu_client_close(client->connection);
        client->connection = NULL;
    }
    atomic_flag_clear_explicit(&client->in_use, memory_order_release);
}

enum status call_next(struct call *call, const struct gpu_event **out_event)
{
    return gpu_client_receive(call->client->connection, out_event, &call->reason);
}

bool call_died(const struct call *call, enum status status)
{
    return status == STATUS_DAMAGED || status == STATUS_NO_MEMORY ||
           !gpu_client_alive(call->client->connection);
}

enum status call_simple(struct call *call, const struct gpu_request *request,
                        enum gpu_event_kind kind, const struct gpu_event **out_event)
{
    enum status status = call_begin(call, request);
    if (status != STATUS_OK) {
        return status;
    }
    status = call_next(call, out_event);
    if (status == STATUS_OK && (*out_event)->kind != kind) {
        status =
            reason_set(&call->reason, STATUS_DAMAGED, NULL, "gpud: an answer to another question");
        call_end(call, false);
    } else if (status != STATUS_OK) {
        call_end(call, !call_died(call, status));
    }
    return status;
}

enum status call_finish(struct call *call)
{
    const struct gpu_event *event = NULL;
    enum status status = call_next(call, &event);
    if (status == STATUS_OK && event->kind != GPU_EVENT_DONE) {
        status = STATUS_DAMAGED;
    }
    call_end(call, status == STATUS_OK);
    return status;
}

struct gpu_text call_text(const char *text)
{
    return text == NULL ? (struct gpu_text){0} : (struct gpu_text){text, strlen(text)};
}

enum status call_ids(const uint32_t *ids, size_t count, struct gpu_request *request,
                     struct reason *reason)
{
    if (count > LIMIT_CONTEXT_TOKENS) {
        return reason_set(reason, STATUS_REFUSED, "give fewer", "ids: %zu, at most %d can be sent",
                          count, LIMIT_CONTEXT_TOKENS);
    }
    request->ids = gpu_ids_of(ids, (uint32_t)count);
    return STATUS_OK;
}
