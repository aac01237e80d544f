// SPDX-License-Identifier: Apache-2.0
// Every operation is one kv_client_call: encode, send, wait, decode, compare the epoch. A client
// has no lock: the endpoint lets calls overlap, and all that changes after open is one flag.
#include "client/kv_client.h"

#include "proto/endpoint_client.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct kv_client {
    struct endpoint_client *endpoint;
    struct kv_hello_reply hello;
    uint32_t timeout_ms;
    // Set once, by whichever call finds the other side gone; order does not matter, each call finds
    // out by itself.
    atomic_bool dead;
};

static enum status fail_peer(struct kv_client *client, enum status status, struct reason *reason,
                             const char *what)
{
    atomic_store_explicit(&client->dead, true, memory_order_relaxed);
    return reason_set(reason, status, "is it running? see `kvctl status`", "kvstored: %s", what);
}

static enum status explain_call(struct kv_client *client, enum status status, struct reason *reason)
{
    switch (status) {
    case STATUS_UNREACHABLE:
        return fail_peer(client, status, reason, "not reachable");
    case STATUS_TIMEOUT:
        return fail_peer(client, status, reason, "did not answer in time");
    default:
        return reason_set(reason, status, "", "kvstored: request could not be sent (%s)",
                          status_name(status));
    }
}

// Sends encoded bytes and decodes the answer to `op`.
static enum status exchange(struct kv_client *client, enum kv_op op, const void *data, size_t bytes,
                            uint32_t timeout_ms, struct kv_reply *out_reply, struct reason *reason)
{
    struct endpoint_reply answer = {0};
    enum status status = endpoint_client_call(client->endpoint, data, bytes, timeout_ms, &answer);
    if (status != STATUS_OK) {
        return explain_call(client, status, reason);
    }
    status = kv_reply_decode(answer.data, answer.bytes, op, out_reply, reason);
    endpoint_reply_free(&answer);
    if (status == STATUS_DAMAGED) {
        atomic_store_explicit(&client->dead, true, memory_order_relaxed);
    }
    return status;
}

// The answer must come from the instance that said hello. A refusal becomes our result.
static enum status check_reply(struct kv_client *client, struct kv_reply *reply,
                               struct reason *reason)
{
    bool stale = reply->status == STATUS_STALE ||
                 (reply->op != KV_OP_HELLO && reply->epoch != client->hello.epoch);
    if (stale) {
        return fail_peer(client, STATUS_STALE, reason, "was restarted");
    }
    if (reply->status != STATUS_OK && reason != NULL) {
        *reason = reply->reason;
    }
    return reply->status;
}

// Operations that wait for the disk get the long deadline.
static uint32_t timeout_of(const struct kv_client *client, const struct kv_request *request)
{
    bool is_long = request->op == KV_OP_VERIFY ||
                   (request->op == KV_OP_CHECKPOINT && request->checkpoint.sync);
    return is_long ? KV_CLIENT_SAVE_TIMEOUT_MS : client->timeout_ms;
}

enum status kv_client_call(struct kv_client *client, const struct kv_request *request,
                           struct kv_reply *out_reply, struct reason *reason)
{
    struct kv_request message = *request;
    message.epoch = client->hello.epoch;
    void *data = NULL;
    size_t bytes = 0;
    enum status status = kv_request_encode(&message, &data, &bytes);
    if (status != STATUS_OK) {
        return reason_set(reason, status, "", "kvstored: request %s could not be encoded",
                          kv_op_name(request->op));
    }
    struct kv_reply reply = {0};
    status =
        exchange(client, request->op, data, bytes, timeout_of(client, request), &reply, reason);
    free(data);
    if (status != STATUS_OK) {
        return status;
    }
    status = check_reply(client, &reply, reason);
    if (status != STATUS_OK) {
        kv_reply_finish(&reply);
        return status;
    }
    *out_reply = reply;
    return STATUS_OK;
}

static enum status say_hello(struct kv_client *client, const struct kv_client_options *options,
                             struct reason *reason)
{
    struct kv_request request = {.op = KV_OP_HELLO};
    request.hello = (struct kv_hello_request){
        .version = KV_PROTOCOL_VERSION,
        .program = options->program,
        .has_namespace = options->name_space != NULL,
        .arena_bytes_min = options->arena_bytes_min,
    };
    if (options->name_space != NULL) {
        request.hello.name_space = *options->name_space;
    }
    struct kv_reply reply;
    enum status status = kv_client_call(client, &request, &reply, reason);
    if (status != STATUS_OK) {
        return status;
    }
    client->hello = reply.hello;
    kv_reply_finish(&reply);
    if (client->hello.version != KV_PROTOCOL_VERSION) {
        return reason_set(reason, STATUS_VERSION, "install both programs from one version",
                          "kvstored: speaks protocol %u, this program %u", client->hello.version,
                          KV_PROTOCOL_VERSION);
    }
    return STATUS_OK;
}

enum status kv_client_open(const struct kv_client_options *options, struct kv_client **out_client,
                           struct reason *reason)
{
    struct kv_client *client = calloc(1, sizeof(*client));
    if (client == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "kvstored: out of memory");
    }
    client->timeout_ms = options->timeout_ms > 0 ? options->timeout_ms : KV_CLIENT_TIMEOUT_MS;
    enum status status =
        endpoint_client_open(options->url, client->timeout_ms, &client->endpoint, reason);
    if (status == STATUS_OK) {
        status = say_hello(client, options, reason);
    }
    if (status != STATUS_OK) {
        kv_client_close(client);
        return status;
    }
    *out_client = client;
    return STATUS_OK;
}

void kv_client_close(struct kv_client *client)
{
    if (client == NULL) {
        return;
    }
    endpoint_client_close(client->endpoint);
    free(client);
}

const struct kv_hello_reply *kv_client_hello(const struct kv_client *client)
{
    return &client->hello;
}

bool kv_client_alive(const struct kv_client *client)
{
    return !atomic_load_explicit(&client->dead, memory_order_relaxed) &&
           endpoint_client_alive(client->endpoint);
}

// ---- copies

struct kv_checkpoint *kv_checkpoint_copy(const struct kv_checkpoint *from)
{
    size_t name_bytes = strlen(from->name) + 1;
    size_t token_bytes = from->token_count * sizeof(*from->tokens);
    // Tokens first, directly after the struct, since they alone need alignment.
    struct kv_checkpoint *copy =
        malloc(sizeof(*copy) + token_bytes + name_bytes + from->salt_bytes + from->settings_bytes);
    if (copy == NULL) {
        return NULL;
    }
    *copy = *from;
    uint8_t *next = (uint8_t *)(copy + 1);
    copy->tokens =
        memcpy(next, from->token_count > 0 ? (const void *)from->tokens : "", token_bytes);
    next += token_bytes;
    copy->name = memcpy(next, from->name, name_bytes);
    next += name_bytes;
    copy->salt = memcpy(next, from->salt_bytes > 0 ? from->salt : "", from->salt_bytes);
    next += from->salt_bytes;
    copy->settings =
        memcpy(next, from->settings_bytes > 0 ? from->settings : "", from->settings_bytes);
    return copy;
}

enum status kv_session_list_copy(const struct kv_session_list *list,
                                 struct kv_session_info **out_sessions, uint32_t *out_count)
{
    struct kv_session_info *rows = NULL;
    if (list->count > 0) {
        rows = malloc(list->count * sizeof(*rows));
        if (rows == NULL) {
            return STATUS_NO_MEMORY;
        }
        memcpy(rows, list->rows, list->count * sizeof(*rows));
    }
    *out_sessions = rows;
    *out_count = list->count;
    return STATUS_OK;
}

// ---- inspection

enum status kv_client_session_list(struct kv_client *client, const void *salt, uint32_t salt_bytes,
                                   struct kv_session_info **out_sessions, uint32_t *out_count,
                                   struct reason *reason)
{
    struct kv_request message = {.op = KV_OP_SESSION_LIST,
                                 .session = {.salt = salt, .salt_bytes = salt_bytes}};
    struct kv_reply reply;
    enum status status = kv_client_call(client, &message, &reply, reason);
    if (status != STATUS_OK) {
        return status;
    }
    status = kv_session_list_copy(&reply.session_list, out_sessions, out_count);
    kv_reply_finish(&reply);
    return status == STATUS_OK ? status : reason_set(reason, status, "", "sessions: out of memory");
}

enum status kv_client_status(struct kv_client *client, struct kv_status *out_status,
                             struct reason *reason)
{
    struct kv_request message = {.op = KV_OP_STATUS};
    struct kv_reply reply;
    enum status status = kv_client_call(client, &message, &reply, reason);
    if (status == STATUS_OK) {
        *out_status = reply.state;
        kv_reply_finish(&reply);
    }
    return status;
}

enum status kv_client_blocks(struct kv_client *client, const struct kv_blocks_request *request,
                             struct kv_reply *out_reply, struct reason *reason)
{
    struct kv_request message = {.op = KV_OP_BLOCKS, .blocks = *request};
    return kv_client_call(client, &message, out_reply, reason);
}

enum status kv_client_block(struct kv_client *client, const struct kv_block_request *request,
                            struct kv_reply *out_reply, struct reason *reason)
{
    struct kv_request message = {.op = KV_OP_BLOCK, .block = *request};
    return kv_client_call(client, &message, out_reply, reason);
}

enum status kv_client_verify(struct kv_client *client, const struct kv_verify_request *request,
                             struct kv_reply *out_reply, struct reason *reason)
{
    struct kv_request message = {.op = KV_OP_VERIFY, .verify = *request};
    return kv_client_call(client, &message, out_reply, reason);
}
