// SPDX-License-Identifier: Apache-2.0
// Each connection is a row: greeted or not, and the reply of its running request. Putting threads
// mark the row's tag in a small set of bits and wake the thread, which drains that reply into
// frames. An app that does not read what it asked for is closed by the stream server once too much
// waits for it. A status waits for the store's levels on another thread, but not long.
#include "gpud/ipc.h"

#include "gpud/intake.h"
#include "gpud/store_watch.h"
#include "proto/endpoint_stream_server.h"
#include "proto/log.h"
#include "proto/os/clock.h"
#include "proto/os/machine.h"
#include "proto/os/thread.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    POLL_MS = 1000,
    POLL_STATUS_MS = 50,  // while a status waits for the store
    STATUS_WAIT_MS = 500, // then it is answered without the store's levels
    LINGER_MS = 1000,     // for what is left to send when stopping
    STAGE_OPEN = 0,
    STAGE_NO_INTAKE,
    STAGE_STOPPING,
};

struct connection {
    uint64_t id; // 0: the row is free
    uint64_t user_id;
    bool greeted;
    struct reply *reply; // of the running request, or NULL
    uint64_t status_ask; // of the status request that waits for the store, or 0
    uint64_t status_deadline_ms;
};

struct ipc {
    struct ipc_options options;
    struct stream_server *server;
    struct os_thread *thread;
    struct store_watch *store_watch;
    uint64_t started_ms;
    atomic_int stage;
    atomic_bool pending[LIMIT_APPS]; // row has events; release by who puts, acquire here

    // ---- ipc thread only
    struct connection connections[LIMIT_APPS];
};

// ---- sending

static void send_event(struct ipc *ipc, struct connection *connection,
                       const struct gpu_event *event)
{
    void *data = NULL;
    size_t bytes = 0;
    enum status status = gpu_event_encode(event, &data, &bytes);
    if (status == STATUS_OK) {
        status = stream_server_send(ipc->server, connection->id, data, bytes);
        free(data);
    }
    if (status != STATUS_OK && status != STATUS_CLOSED) {
        stream_server_disconnect(ipc->server, connection->id);
    }
}

static void send_error(struct ipc *ipc, struct connection *connection, enum status status,
                       const struct reason *reason)
{
    struct gpu_event event = {.kind = GPU_EVENT_ERROR, .error = status, .reason = *reason};
    send_event(ipc, connection, &event);
}

static struct gpu_text text_of(const char *text)
{
    return (struct gpu_text){.text = text, .bytes = strlen(text)};
}

// ---- events of a request

static void score_event(const struct reply_score *from, struct gpu_event *out)
{
    out->kind = GPU_EVENT_SCORE;
    out->score = (struct gpu_score_row){
        .position = from->position,
        .id = from->id,
        .lse = from->lse,
        .top_ids = gpu_ids_of(from->top_ids, from->top_count),
        .top_logits = (const uint8_t *)from->top_logits,
        .has_next = from->has_next,
        .next_logprob = from->next_logprob,
        .has_logits_hash = from->has_logits_hash,
        .logits_hash = from->logits_hash,
    };
}

static void token_event(const struct reply_token *from, struct gpu_event *out)
{
    out->kind = GPU_EVENT_TOKEN;
    out->token = (struct gpu_token){
        .id = from->id,
        .text = {.text = from->text, .bytes = from->text_bytes},
        .has_logits_hash = from->has_logits_hash,
        .logits_hash = from->logits_hash,
    };
}

static void done_event(const struct reply_done *from, struct gpu_event *out)
{
    out->kind = GPU_EVENT_DONE;
    out->done = (struct gpu_done){
        .finish_reason = text_of(finish_reason_name(from->finish_reason)),
        .completion_tokens = from->completion_tokens,
        .ttft_ms = from->ttft_ms,
        .prefill_ms = from->prefill_ms,
        .decode_ms = from->decode_ms,
        .session = text_of(from->session),
    };
}

static void start_event(const struct reply_start *from, struct gpu_event *out)
{
    out->kind = GPU_EVENT_START;
    out->start = (struct gpu_hits){
        .prompt_tokens = from->prompt_tokens,
        .hot_tokens = from->hot_tokens,
        .ram_tokens = from->ram_tokens,
        .disk_tokens = from->disk_tokens,
        .computed_tokens = from->computed_tokens,
    };
}

// The wire's form of an event; it points into `from`.
static void event_of(const struct reply_event *from, struct gpu_event *out)
{
    memset(out, 0, sizeof(*out));
    switch (from->kind) {
    case REPLY_EVENT_IDS:
        out->kind = GPU_EVENT_IDS;
        out->ids = gpu_ids_of(from->ids.ids, from->ids.count);
        out->vocab_tokens = from->ids.vocab_count;
        break;
    case REPLY_EVENT_START:
        start_event(&from->start, out);
        break;
    case REPLY_EVENT_PROGRESS:
        out->kind = GPU_EVENT_PROGRESS;
        out->progress_done = from->progress.done_tokens;
        out->progress_total = from->progress.total_tokens;
        break;
    case REPLY_EVENT_TOKEN:
        token_event(&from->token, out);
        break;
    case REPLY_EVENT_SCORE:
        score_event(&from->score, out);
        break;
    case REPLY_EVENT_SESSIONS:
        out->kind = GPU_EVENT_SESSIONS;
        out->sessions.count = from->sessions.count;
        out->sessions.rows = (struct kv_session_info *)from->sessions.rows; // only read
        break;
    case REPLY_EVENT_SAVED:
        out->kind = GPU_EVENT_SAVED;
        out->saved = from->saved;
        break;
    case REPLY_EVENT_TEXT:
        out->kind = GPU_EVENT_TEXT;
        out->text = (struct gpu_text){.text = from->text.text, .bytes = from->text.bytes};
        break;
    case REPLY_EVENT_DONE:
        done_event(&from->done, out);
        break;
    case REPLY_EVENT_ERROR:
        out->kind = GPU_EVENT_ERROR;
        out->error = from->error.status;
        out->reason = from->error.reason;
        break;
    }
}

// Sends every event that waits; after the last one the connection may ask again.
static void drain(struct ipc *ipc, struct connection *connection)
{
    struct reply_event event;
    struct gpu_event out;
    while (connection->reply != NULL && reply_pop(connection->reply, &event)) {
        event_of(&event, &out);
        send_event(ipc, connection, &out);
        if (event.kind == REPLY_EVENT_DONE || event.kind == REPLY_EVENT_ERROR) {
            reply_drop(connection->reply);
            connection->reply = NULL;
        }
    }
}

static void drain_pending(struct ipc *ipc)
{
    for (size_t row = 0; row < LIMIT_APPS; row++) {
        if (atomic_exchange_explicit(&ipc->pending[row], false, memory_order_acquire)) {
            drain(ipc, &ipc->connections[row]);
        }
    }
}

// Called by the engine and the worker.
static void wake(void *context, uint64_t tag)
{
    struct ipc *ipc = context;
    atomic_store_explicit(&ipc->pending[tag], true, memory_order_release);
    stream_server_wake(ipc->server);
}

// ---- requests

static enum status submit(struct ipc *ipc, struct connection *connection,
                          const struct gpu_request *from, struct reason *reason)
{
    struct request *request = NULL;
    enum status status = intake_request(from, connection->user_id, &request, reason);
    if (status != STATUS_OK) {
        return status;
    }
    uint64_t row = (uint64_t)(connection - ipc->connections);
    request->connection_id = connection->id;
    status = reply_create(wake, ipc, row, &request->reply);
    if (status != STATUS_OK) {
        request_destroy(request);
        return reason_set(reason, status, "", "request: out of memory");
    }
    connection->reply = request->reply;
    status = worker_submit(ipc->options.worker, request);
    if (status != STATUS_OK) {
        reply_drop(connection->reply);
        connection->reply = NULL;
        request_destroy(request);
        return reason_set(reason, status, "try again later",
                          status == STATUS_BUSY ? "request: %d are waiting already"
                                                : "request: gpud is stopping (%d)",
                          WORKER_REQUESTS_MAX);
    }
    return STATUS_OK;
}

// ---- hello and status, which ipc answers itself

static void answer_hello(struct ipc *ipc, struct connection *connection,
                         const struct gpu_request *request)
{
    const struct gpu_status *fixed = ipc->options.fixed;
    struct gpu_event event = {.kind = GPU_EVENT_HELLO};
    event.hello = (struct gpu_hello){
        .version = GPU_PROTOCOL_VERSION,
        .epoch = fixed->epoch,
        .program_version = text_of(KVTIER_VERSION),
        .model_name = text_of(fixed->model_name),
        .context_tokens = fixed->context_tokens,
        .vocab_tokens = ipc->options.vocab_count,
        .block_tokens = fixed->block_tokens,
    };
    if (request->version != GPU_PROTOCOL_VERSION) {
        struct reason reason;
        enum status status = reason_set(&reason, STATUS_VERSION, "use programs of one version",
                                        "hello: the client speaks protocol %u, gpud %d",
                                        request->version, GPU_PROTOCOL_VERSION);
        send_error(ipc, connection, status, &reason);
        stream_server_disconnect(ipc->server, connection->id);
        return;
    }
    connection->greeted = true;
    send_event(ipc, connection, &event);
}

static void fill_levels(struct ipc *ipc, struct gpu_status *out)
{
    struct kv_cache_status cache;
    struct stats_view view;
    engine_cache_status(ipc->options.engine, &cache);
    stats_read(ipc->options.stats, &view);
    out->uptime_ms = os_clock_ms() - ipc->started_ms;
    out->hot_slot_count = cache.hot_slot_count;
    out->hot_used_count = cache.hot_used_count;
    out->hot_bytes = cache.hot_slot_count * out->payload_bytes;
    out->hot_hit_count = cache.hot_hit_count;
    out->cold_hit_count = cache.cold_hit_count;
    out->evicted_count = cache.evicted_count;
    out->recalled_count = cache.recalled_count;
    out->closed_count = cache.closed_count;
    out->write_through_ms = cache.write_through_ns / 1000000;
    out->running_count = view.running_count;
    out->queued_count = view.queued_count;
    out->request_count = view.request_count;
    out->failed_count = view.failed_count;
    out->cancelled_count = view.cancelled_count;
    out->prefill_tokens = view.prefill_tokens;
    out->decode_tokens = view.decode_tokens;
    out->prefill_tokens_per_s = view.prefill_tokens_per_s;
    out->decode_tokens_per_s = view.decode_tokens_per_s;
    struct os_process_memory memory;
    if (os_machine_process(&memory) == STATUS_OK) {
        out->anonymous_bytes = memory.anonymous_bytes;
    }
}

// Answers the connection's status request with the store's levels, or without when it is late.
static void answer_status(struct ipc *ipc, struct connection *connection)
{
    struct gpu_status state = *ipc->options.fixed;
    bool answered = store_watch_answered(ipc->store_watch, connection->status_ask, &state.has_store,
                                         &state.store);
    if (!answered && os_clock_ms() < connection->status_deadline_ms) {
        return;
    }
    connection->status_ask = 0;
    fill_levels(ipc, &state);
    state.store_attached = cold_store_attached(ipc->options.cold_store);
    const struct gpu_event event = {.kind = GPU_EVENT_STATUS, .status = &state};
    const struct gpu_event done = {.kind = GPU_EVENT_DONE};
    send_event(ipc, connection, &event);
    send_event(ipc, connection, &done);
}

// True while one of them still waits.
static bool answer_statuses(struct ipc *ipc)
{
    bool waiting = false;
    for (size_t row = 0; row < LIMIT_APPS; row++) {
        struct connection *connection = &ipc->connections[row];
        if (connection->status_ask != 0) {
            answer_status(ipc, connection);
            waiting = waiting || connection->status_ask != 0;
        }
    }
    return waiting;
}

static enum status read_store(void *context, struct kv_status *out_state)
{
    struct ipc *ipc = context;
    return cold_store_status(ipc->options.cold_store, out_state, NULL);
}

static void wake_for_status(void *context)
{
    struct ipc *ipc = context;
    stream_server_wake(ipc->server);
}

static enum status take_request(struct ipc *ipc, struct connection *connection,
                                const struct gpu_request *request, struct reason *reason)
{
    if (request->op == GPU_OP_HELLO) {
        answer_hello(ipc, connection, request);
        return STATUS_OK;
    }
    if (!connection->greeted) {
        return reason_set(reason, STATUS_INVALID, "", "request: came before hello");
    }
    if (request->op == GPU_OP_STATUS && connection->status_ask == 0) {
        connection->status_ask = store_watch_ask(ipc->store_watch);
        connection->status_deadline_ms = os_clock_ms() + STATUS_WAIT_MS;
        return STATUS_OK;
    }
    if (connection->reply != NULL || connection->status_ask != 0) {
        return reason_set(reason, STATUS_BUSY, "use a connection for each request",
                          "request: this connection's last one is still running");
    }
    if (atomic_load_explicit(&ipc->stage, memory_order_relaxed) != STAGE_OPEN) {
        return reason_set(reason, STATUS_CLOSED, "", "request: gpud is stopping");
    }
    return submit(ipc, connection, request, reason);
}

static void take_frame(struct ipc *ipc, struct connection *connection,
                       const struct stream_event *event)
{
    struct gpu_request request;
    struct reason reason = {0};
    enum status status = gpu_request_decode(event->data, event->bytes, &request, &reason);
    if (status != STATUS_OK) {
        send_error(ipc, connection, status, &reason);
        if (status != STATUS_UNSUPPORTED) {
            stream_server_disconnect(ipc->server, connection->id);
        }
        return;
    }
    status = take_request(ipc, connection, &request, &reason);
    gpu_request_finish(&request);
    if (status != STATUS_OK) {
        send_error(ipc, connection, status, &reason);
    }
}

// ---- the thread

static struct connection *find(struct ipc *ipc, uint64_t id)
{
    for (size_t row = 0; row < LIMIT_APPS; row++) {
        if (ipc->connections[row].id == id) {
            return &ipc->connections[row];
        }
    }
    return NULL;
}

static void opened(struct ipc *ipc, const struct stream_event *event)
{
    struct connection *connection = find(ipc, 0);
    if (connection == NULL || event->peer_uid == ENDPOINT_UID_UNKNOWN) {
        stream_server_disconnect(ipc->server, event->connection_id);
        return;
    }
    *connection = (struct connection){.id = event->connection_id, .user_id = event->peer_uid};
}

static void closed(struct ipc *ipc, const struct stream_event *event)
{
    struct connection *connection = find(ipc, event->connection_id);
    if (connection == NULL) {
        return;
    }
    reply_drop(connection->reply); // cancels what runs
    *connection = (struct connection){0};
    if (event->cause == STREAM_CLOSE_OVERSIZED || event->cause == STREAM_CLOSE_SLOW) {
        log_event(LOG_LEVEL_WARNING, "IPC-CLOSED", "connection=%llu why=%s",
                  (unsigned long long)event->connection_id,
                  event->cause == STREAM_CLOSE_SLOW ? "does-not-read" : "frame-too-long");
    }
}

static void handle(struct ipc *ipc, const struct stream_event *event)
{
    struct connection *connection;
    switch (event->kind) {
    case STREAM_EVENT_WOKEN:
        break;
    case STREAM_EVENT_OPENED:
        opened(ipc, event);
        break;
    case STREAM_EVENT_FRAME:
        connection = find(ipc, event->connection_id);
        if (connection != NULL) {
            take_frame(ipc, connection, event);
        }
        break;
    case STREAM_EVENT_CLOSED:
        closed(ipc, event);
        break;
    }
}

static bool has_replies(const struct ipc *ipc)
{
    for (size_t row = 0; row < LIMIT_APPS; row++) {
        if (ipc->connections[row].reply != NULL) {
            return true;
        }
    }
    return false;
}

static void ipc_main(void *argument)
{
    struct ipc *ipc = argument;
    uint64_t stop_ms = 0;
    uint32_t poll_ms = POLL_MS;
    bool open = true;
    while (open) {
        struct stream_event event;
        if (stream_server_poll(ipc->server, stop_ms == 0 ? poll_ms : 10, &event) == STATUS_OK) {
            handle(ipc, &event);
        }
        drain_pending(ipc);
        poll_ms = answer_statuses(ipc) ? POLL_STATUS_MS : POLL_MS;
        if (atomic_load_explicit(&ipc->stage, memory_order_acquire) == STAGE_STOPPING) {
            stop_ms = stop_ms == 0 ? os_clock_ms() : stop_ms;
            open = has_replies(ipc) && os_clock_ms() - stop_ms < LINGER_MS;
        }
    }
    for (size_t row = 0; row < LIMIT_APPS; row++) {
        if (ipc->connections[row].id != 0) {
            reply_drop(ipc->connections[row].reply);
            stream_server_disconnect(ipc->server, ipc->connections[row].id);
        }
    }
}

enum status ipc_start(const struct ipc_options *options, struct ipc **out_ipc,
                      struct reason *reason)
{
    struct ipc *ipc = calloc(1, sizeof(*ipc));
    if (ipc == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "ipc: out of memory");
    }
    ipc->options = *options;
    ipc->started_ms = os_clock_ms();
    const struct stream_server_options server = {.url = options->url, .lock = options->lock};
    const struct store_watch_options watch = {
        .read = read_store, .read_context = ipc, .wake = wake_for_status, .wake_context = ipc};
    enum status status = stream_server_open(&server, &ipc->server, reason);
    if (status == STATUS_OK) {
        status = store_watch_start(&watch, &ipc->store_watch, reason);
    }
    if (status == STATUS_OK) {
        status = os_thread_start("ipc", ipc_main, ipc, &ipc->thread);
        if (status != STATUS_OK) {
            (void)reason_set(reason, status, "", "ipc: its thread could not be started");
        }
    }
    if (status != STATUS_OK) {
        store_watch_stop(ipc->store_watch);
        stream_server_close(ipc->server);
        free(ipc);
        return status;
    }
    *out_ipc = ipc;
    return STATUS_OK;
}

static void enter_stage(struct ipc *ipc, int stage)
{
    if (ipc != NULL) {
        atomic_store_explicit(&ipc->stage, stage, memory_order_release);
        stream_server_wake(ipc->server);
    }
}

void ipc_close_intake(struct ipc *ipc)
{
    enter_stage(ipc, STAGE_NO_INTAKE);
}

void ipc_stop(struct ipc *ipc)
{
    if (ipc == NULL) {
        return;
    }
    enter_stage(ipc, STAGE_STOPPING);
    os_thread_join(ipc->thread);
    store_watch_stop(ipc->store_watch);
    stream_server_close(ipc->server);
    free(ipc);
}
