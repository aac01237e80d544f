// SPDX-License-Identifier: Apache-2.0
// Rules: a client is a connection that said hello; its leases end with it, unless its process still
// holds its row of the arena: then they end when that is released, so that nobody writes into
// another's slot. A request that the store answers later is remembered under a ticket.

#include "kvstored/dispatcher.h"

#include "proto/endpoint_server.h"
#include "proto/limits.h"
#include "proto/log.h"
#include "proto/os/clock.h"
#include "proto/os/machine.h"
#include "proto/os/thread.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TICK_MS = 200,      // how soon a client that died is noticed, and persistence is tried again
    WAITING_MAX = 64,   // requests of one client without an answer
    TICKETS_MAX = 1024, // of all clients
};

// A connection, in the row that its index is. One that is gone but whose process still uses the
// arena keeps its row.
struct client {
    bool used;
    bool gone;
    bool said_hello;
    bool malformed; // sent what is no message: told once
    bool has_namespace;
    uint64_t connection_id; // its client id as well
    char program[KV_PROGRAM_BYTES + 1];
};

struct ticket {
    uint64_t number; // 0: free
    struct endpoint_request *request;
};

struct dispatcher {
    struct endpoint_server *server;
    struct store *store;
    struct os_thread *thread;
    atomic_bool stopping; // relaxed: the wake that follows it orders nothing else
    uint64_t epoch;
    uint64_t started_ms;
    char arena_name[128];
    struct client clients[LIMIT_CLIENTS];
    struct ticket tickets[TICKETS_MAX];
    uint64_t next_ticket;
    char persistence_state[160]; // as it was last logged
};

// One request while it is handled.
struct call {
    struct dispatcher *dispatcher;
    struct client *client;
    const struct kv_request *request;
    struct endpoint_request *origin;
    struct kv_reply reply;
    bool later; // the store has taken it under a ticket
};

// ---- clients

static struct client *find_client(struct dispatcher *dispatcher, uint64_t connection_id)
{
    for (int i = 0; i < LIMIT_CLIENTS; i++) {
        struct client *client = &dispatcher->clients[i];
        if (client->used && client->connection_id == connection_id) {
            return client;
        }
    }
    return NULL;
}

static uint32_t row_of(const struct dispatcher *dispatcher, const struct client *client)
{
    return (uint32_t)(client - dispatcher->clients);
}

// Our own user and root may speak to us.
static bool peer_allowed(uint64_t uid)
{
    return uid == 0 || uid == os_machine_user_id();
}

static void client_opened(struct dispatcher *dispatcher, const struct endpoint_event *event)
{
    struct client *client = NULL;
    for (int i = 0; client == NULL && i < LIMIT_CLIENTS; i++) {
        if (!dispatcher->clients[i].used) {
            client = &dispatcher->clients[i];
        }
    }
    if (client == NULL || !peer_allowed(event->peer_uid)) {
        log_event(LOG_LEVEL_WARNING, "DISPATCHER-REFUSED", "connection=%llu uid=%llu why=\"%s\"",
                  (unsigned long long)event->connection_id, (unsigned long long)event->peer_uid,
                  client == NULL ? "too many clients" : "another user");
        endpoint_server_disconnect(dispatcher->server, event->connection_id);
        return;
    }
    *client = (struct client){.used = true, .connection_id = event->connection_id};
}

// Ends a client's leases when its process no longer uses the arena.
static void bury_client(struct dispatcher *dispatcher, struct client *client)
{
    if (client->has_namespace && store_row_held(dispatcher->store, row_of(dispatcher, client))) {
        return;
    }
    store_release_client(dispatcher->store, client->connection_id);
    *client = (struct client){0};
}

static void client_closed(struct dispatcher *dispatcher, uint64_t connection_id)
{
    struct client *client = find_client(dispatcher, connection_id);
    if (client == NULL) {
        return;
    }
    if (client->said_hello) {
        log_event(client->has_namespace ? LOG_LEVEL_INFO : LOG_LEVEL_DEBUG, "DISPATCHER-BYE",
                  "client=%llu program=%s", (unsigned long long)connection_id, client->program);
    }
    client->gone = true;
    bury_client(dispatcher, client);
}

static void bury_the_dead(struct dispatcher *dispatcher)
{
    for (int i = 0; i < LIMIT_CLIENTS; i++) {
        if (dispatcher->clients[i].used && dispatcher->clients[i].gone) {
            bury_client(dispatcher, &dispatcher->clients[i]);
        }
    }
}

static uint32_t client_count(const struct dispatcher *dispatcher)
{
    uint32_t count = 0;
    for (int i = 0; i < LIMIT_CLIENTS; i++) {
        count += dispatcher->clients[i].said_hello && !dispatcher->clients[i].gone;
    }
    return count;
}

// ---- replies

static void send_reply(struct dispatcher *dispatcher, struct endpoint_request *origin,
                       struct kv_reply *reply)
{
    void *data;
    size_t bytes;
    reply->epoch = dispatcher->epoch;
    enum status status = kv_reply_encode(reply, &data, &bytes);
    if (status != STATUS_OK) {
        // What cannot be said as it is, is said as an error.
        struct kv_reply error = {.op = reply->op, .epoch = dispatcher->epoch};
        error.status = reason_set(&error.reason, status, "ask for less", "%s: no answer (%s)",
                                  kv_op_name(reply->op), status_name(status));
        status = kv_reply_encode(&error, &data, &bytes);
    }
    if (status == STATUS_OK) {
        endpoint_server_reply(dispatcher->server, origin, data, bytes);
        free(data);
    } else {
        endpoint_server_drop(dispatcher->server, origin);
    }
    kv_reply_finish(reply);
}

static struct ticket *find_ticket(struct dispatcher *dispatcher, uint64_t number)
{
    for (int i = 0; i < TICKETS_MAX; i++) {
        if (dispatcher->tickets[i].number == number) {
            return &dispatcher->tickets[i];
        }
    }
    return NULL;
}

static void take_completions(struct dispatcher *dispatcher)
{
    struct store_completion completion;
    while (store_next_completion(dispatcher->store, &completion)) {
        struct ticket *ticket = find_ticket(dispatcher, completion.ticket);
        assert(ticket != NULL); // every ticket of ours is answered once
        send_reply(dispatcher, ticket->request, &completion.reply);
        *ticket = (struct ticket){0};
    }
}

// ---- operations

// Another client that works in another namespace; NULL when there is none.
static const struct client *other_namespace(const struct call *call)
{
    const struct dispatcher *dispatcher = call->dispatcher;
    const struct kv_namespace *in_use = store_namespace(dispatcher->store);
    const uint8_t *wanted = call->request->hello.name_space.fingerprint;
    if (in_use == NULL || memcmp(in_use->fingerprint, wanted, BLOCK_ID_BYTES) == 0) {
        return NULL;
    }
    for (int i = 0; i < LIMIT_CLIENTS; i++) {
        const struct client *client = &dispatcher->clients[i];
        if (client != call->client && client->used && client->has_namespace) {
            return client;
        }
    }
    return NULL;
}

static enum status enter_namespace(struct call *call, struct reason *reason)
{
    struct dispatcher *dispatcher = call->dispatcher;
    const struct kv_hello_request *hello = &call->request->hello;
    const struct client *other = other_namespace(call);
    if (other != NULL) {
        return reason_set(reason, STATUS_BUSY, "stop it, or use another kvstored",
                          "namespace: %s (client %llu) works with another model or format",
                          other->program, (unsigned long long)other->connection_id);
    }
    enum status status =
        store_use_namespace(dispatcher->store, &hello->name_space, hello->arena_bytes_min, reason);
    call->client->has_namespace = status == STATUS_OK;
    return status;
}

static enum status do_hello(struct call *call, struct reason *reason)
{
    struct dispatcher *dispatcher = call->dispatcher;
    struct client *client = call->client;
    const struct kv_hello_request *hello = &call->request->hello;
    if (hello->version != KV_PROTOCOL_VERSION) {
        return reason_set(reason, STATUS_VERSION, "install both programs from one version",
                          "hello: protocol %u, this kvstored speaks %u", hello->version,
                          KV_PROTOCOL_VERSION);
    }
    store_release_client(dispatcher->store, client->connection_id);
    client->has_namespace = false;
    snprintf(client->program, sizeof(client->program), "%s", hello->program);
    enum status status = hello->has_namespace ? enter_namespace(call, reason) : STATUS_OK;
    if (status != STATUS_OK) {
        return status;
    }
    client->said_hello = true;
    struct kv_hello_reply *reply = &call->reply.hello;
    reply->version = KV_PROTOCOL_VERSION;
    reply->epoch = dispatcher->epoch;
    reply->client_id = client->connection_id;
    if (hello->has_namespace) {
        snprintf(reply->arena_name, sizeof(reply->arena_name), "%s", dispatcher->arena_name);
        reply->arena_bytes = store_arena_bytes(dispatcher->store);
        reply->slot_count = store_slot_count(dispatcher->store);
        reply->arena_row = row_of(dispatcher, client);
    }
    log_event(hello->has_namespace ? LOG_LEVEL_INFO : LOG_LEVEL_DEBUG, "DISPATCHER-HELLO",
              "client=%llu program=%s namespace=%s", (unsigned long long)client->connection_id,
              client->program, hello->has_namespace ? "yes" : "no");
    return STATUS_OK;
}

static enum status do_status(struct call *call)
{
    struct dispatcher *dispatcher = call->dispatcher;
    struct os_process_memory memory = {0};
    store_status(dispatcher->store, &call->reply.state);
    call->reply.state.client_count = client_count(dispatcher);
    call->reply.state.uptime_ms = os_clock_ms() - dispatcher->started_ms;
    if (os_machine_process(&memory) == STATUS_OK) {
        call->reply.state.anonymous_bytes = memory.anonymous_bytes;
    }
    return STATUS_OK;
}

// Operations that the store answers under a ticket.
static enum status submit(struct call *call, uint64_t ticket, struct reason *reason)
{
    struct store *store = call->dispatcher->store;
    const struct kv_request *request = call->request;
    bool scoped = call->client->has_namespace;
    switch (request->op) {
    case KV_OP_CHECKPOINT:
        return store_checkpoint(store, &request->checkpoint, ticket, reason);
    case KV_OP_SESSION_GET:
        return store_session_get(store, &request->session, scoped, ticket, reason);
    case KV_OP_SESSION_LIST:
        return store_session_list(store, &request->session, scoped, ticket, reason);
    case KV_OP_SESSION_DELETE:
        return scoped ? store_session_delete(store, &request->session, ticket, reason)
                      : reason_set(reason, STATUS_UNSUPPORTED, "use gpuctl session delete",
                                   "session_delete: needs a namespace");
    case KV_OP_BLOCKS:
        return store_blocks(store, &request->blocks, ticket, reason);
    case KV_OP_BLOCK:
        return store_block(store, &request->block, ticket, reason);
    case KV_OP_VERIFY:
        return store_verify(store, &request->verify, ticket, reason);
    default:
        return reason_set(reason, STATUS_UNSUPPORTED, "", "%s: not known here",
                          kv_op_name(request->op));
    }
}

static enum status do_later(struct call *call, struct reason *reason)
{
    struct dispatcher *dispatcher = call->dispatcher;
    struct ticket *ticket = find_ticket(dispatcher, 0);
    if (ticket == NULL) {
        return reason_set(reason, STATUS_BUSY, "try again", "%s: too many requests wait",
                          kv_op_name(call->request->op));
    }
    *ticket = (struct ticket){.number = ++dispatcher->next_ticket, .request = call->origin};
    enum status status = submit(call, ticket->number, reason);
    call->later = status == STATUS_OK;
    if (!call->later) {
        *ticket = (struct ticket){0};
    }
    return status;
}

static enum status do_op(struct call *call, struct reason *reason)
{
    struct store *store = call->dispatcher->store;
    const struct kv_request *request = call->request;
    uint64_t client_id = call->client->connection_id;
    switch (request->op) {
    case KV_OP_HELLO:
        return do_hello(call, reason);
    case KV_OP_STATUS:
        return do_status(call);
    case KV_OP_LEASE:
    case KV_OP_PUBLISH:
    case KV_OP_CHECKPOINT:
        if (!call->client->has_namespace) {
            return reason_set(reason, STATUS_INVALID, "say hello with a namespace",
                              "%s: needs a namespace", kv_op_name(request->op));
        }
        break;
    default:
        break;
    }
    switch (request->op) {
    case KV_OP_LEASE:
        return store_lease(store, client_id, &request->lease, &call->reply.lease, reason);
    case KV_OP_PUBLISH:
        return store_publish(store, client_id, &request->publish, reason);
    case KV_OP_RELEASE:
        return store_release(store, client_id, request->release.lease_id) == STATUS_OK
                   ? STATUS_OK
                   : reason_set(reason, STATUS_NOT_FOUND, "", "release: no such lease");
    default:
        return do_later(call, reason);
    }
}

static enum status check_call(const struct call *call, struct reason *reason)
{
    if (call->request->op == KV_OP_HELLO) {
        return STATUS_OK;
    }
    if (!call->client->said_hello) {
        return reason_set(reason, STATUS_INVALID, "say hello first", "%s: nobody said hello",
                          kv_op_name(call->request->op));
    }
    if (call->request->epoch != call->dispatcher->epoch) {
        return reason_set(reason, STATUS_STALE, "say hello again", "%s: meant for another kvstored",
                          kv_op_name(call->request->op));
    }
    return STATUS_OK;
}

static void handle_call(struct call *call)
{
    struct reason reason = {0};
    call->reply = (struct kv_reply){.op = call->request->op};
    enum status status = check_call(call, &reason);
    if (status == STATUS_OK) {
        status = do_op(call, &reason);
    }
    if (call->later) {
        return;
    }
    if (status != STATUS_OK) {
        call->reply =
            (struct kv_reply){.op = call->request->op, .status = status, .reason = reason};
    }
    send_reply(call->dispatcher, call->origin, &call->reply);
}

static void refuse(struct dispatcher *dispatcher, struct endpoint_request *origin,
                   enum status status, const struct reason *reason)
{
    struct kv_reply reply = {.status = status, .reason = *reason};
    send_reply(dispatcher, origin, &reply);
}

static void handle_request(struct dispatcher *dispatcher, const struct endpoint_event *event)
{
    struct kv_request request;
    struct reason reason = {0};
    struct client *client = find_client(dispatcher, event->connection_id);
    if (client == NULL) {
        endpoint_server_drop(dispatcher->server, event->request);
        return;
    }
    if (event->waiting_count > WAITING_MAX) {
        reason_set(&reason, STATUS_BUSY, "wait for the answers", "request: too many at a time");
        refuse(dispatcher, event->request, STATUS_BUSY, &reason);
        return;
    }
    enum status status = kv_request_decode(event->data, event->bytes, &request, &reason);
    if (status != STATUS_OK) {
        log_failure(client->malformed ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARNING, "DISPATCHER-MALFORMED",
                    status, &reason);
        client->malformed = true;
        refuse(dispatcher, event->request, status, &reason);
        return;
    }
    handle_call(&(struct call){
        .dispatcher = dispatcher, .client = client, .request = &request, .origin = event->request});
    kv_request_finish(&request);
}

// ---- the loop

// Persistence that stops or comes back is told once.
static void log_persistence(struct dispatcher *dispatcher)
{
    struct store_persistence_state state;
    store_persistence(dispatcher->store, &state);
    if (strcmp(state.text, dispatcher->persistence_state) != 0) {
        snprintf(dispatcher->persistence_state, sizeof(dispatcher->persistence_state), "%s",
                 state.text);
        log_event(state.ok ? LOG_LEVEL_INFO : LOG_LEVEL_ERROR, "STORE-PERSISTENCE", "state=\"%s\"",
                  state.text);
    }
}

static void dispatcher_body(void *argument)
{
    struct dispatcher *dispatcher = argument;
    while (!atomic_load_explicit(&dispatcher->stopping, memory_order_relaxed)) {
        struct endpoint_event event = {0};
        enum status status = endpoint_server_poll(dispatcher->server, TICK_MS, &event);
        if (status == STATUS_OK) {
            switch (event.kind) {
            case ENDPOINT_EVENT_OPENED:
                client_opened(dispatcher, &event);
                break;
            case ENDPOINT_EVENT_REQUEST:
                handle_request(dispatcher, &event);
                break;
            case ENDPOINT_EVENT_CLOSED:
                client_closed(dispatcher, event.connection_id);
                break;
            case ENDPOINT_EVENT_WOKEN:
                break;
            }
        }
        store_poll(dispatcher->store);
        take_completions(dispatcher);
        bury_the_dead(dispatcher);
        log_persistence(dispatcher);
    }
}

static void wake(void *context)
{
    struct dispatcher *dispatcher = context;
    endpoint_server_wake(dispatcher->server);
}

static enum status open_all(struct dispatcher *dispatcher, const struct dispatcher_options *options,
                            struct reason *reason)
{
    const struct endpoint_server_options server = {.url = options->url, .lock = options->lock};
    const struct store_options store = {
        .payload_bytes_max = options->payload_bytes_max,
        .arena_name = options->arena_name,
        .data_dir = options->data_dir,
        .disk_bytes_max = options->disk_bytes_max,
        .epoch = dispatcher->epoch,
        .wake = wake,
        .wake_context = dispatcher,
    };
    enum status status = endpoint_server_open(&server, &dispatcher->server, reason);
    if (status == STATUS_OK) {
        status = store_create(&store, &dispatcher->store, reason);
    }
    if (status == STATUS_OK) {
        status = os_thread_start("dispatcher", dispatcher_body, dispatcher, &dispatcher->thread);
        if (status != STATUS_OK) {
            reason_set(reason, status, "", "kvstored: its thread cannot be started");
        }
    }
    return status;
}

enum status dispatcher_start(const struct dispatcher_options *options,
                             struct dispatcher **out_dispatcher, struct reason *reason)
{
    struct dispatcher *dispatcher = calloc(1, sizeof(*dispatcher));
    if (dispatcher == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "kvstored: out of memory");
    }
    os_random(&dispatcher->epoch, sizeof(dispatcher->epoch));
    dispatcher->started_ms = os_clock_ms();
    atomic_init(&dispatcher->stopping, false);
    snprintf(dispatcher->arena_name, sizeof(dispatcher->arena_name), "%s", options->arena_name);
    snprintf(dispatcher->persistence_state, sizeof(dispatcher->persistence_state), "ok");
    enum status status = open_all(dispatcher, options, reason);
    if (status != STATUS_OK) {
        dispatcher_stop(dispatcher, 0);
        return status;
    }
    *out_dispatcher = dispatcher;
    return STATUS_OK;
}

void dispatcher_stop(struct dispatcher *dispatcher, uint32_t timeout_ms)
{
    if (dispatcher == NULL) {
        return;
    }
    if (dispatcher->thread != NULL) {
        atomic_store_explicit(&dispatcher->stopping, true, memory_order_relaxed);
        endpoint_server_wake(dispatcher->server);
        os_thread_join(dispatcher->thread);
    }
    store_destroy(dispatcher->store, timeout_ms); // its threads wake the server until here
    for (int i = 0; i < TICKETS_MAX; i++) {
        if (dispatcher->tickets[i].number != 0) {
            endpoint_server_drop(dispatcher->server, dispatcher->tickets[i].request);
        }
    }
    endpoint_server_close(dispatcher->server);
    free(dispatcher);
}
