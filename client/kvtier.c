// SPDX-License-Identifier: Apache-2.0
// The public calls: their structs to requests, events to callbacks and results. A connection that
// ended is opened anew by the next call, so that a client outlives a restart of gpud and a cancel.
#include "client/kvtier.h"

#include "client/config.h"
#include "client/gpu_client.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static_assert(KVTIER_MISMATCH == (int)STATUS_MISMATCH, "one numbering");
static_assert(sizeof(((struct kvtier_error *)0)->message) >= REASON_TEXT_BYTES, "reasons fit");
static_assert(sizeof(((struct kvtier_error *)0)->hint) >= REASON_HINT_BYTES, "hints fit");

struct kvtier_client {
    char url[LIMIT_URL_BYTES];
    atomic_flag in_use;            // acquire/release: hands the rest from thread to thread
    atomic_bool cancelled;         // relaxed: a flag alone
    struct gpu_client *connection; // NULL after it ended
    struct kvtier_info info;
    char model_name[GPU_NAME_BYTES];
};

// What a call knows while its events arrive.
struct call {
    struct kvtier_client *client;
    struct reason reason;
};

const char *kvtier_status_name(int status)
{
    return status_name(status_from_wire(status));
}

const char *kvtier_version(void)
{
    return KVTIER_VERSION;
}

void kvtier_free(void *memory)
{
    free(memory);
}

static int fail(struct kvtier_error *error, enum status status, const struct reason *reason)
{
    if (error != NULL && status != STATUS_OK) {
        error->status = (int)status;
        snprintf(error->message, sizeof(error->message), "%s",
                 reason->text[0] != 0 ? reason->text : status_name(status));
        snprintf(error->hint, sizeof(error->hint), "%s", reason->hint);
    }
    return (int)status;
}

// ---- the connection

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

static enum status connect_again(struct kvtier_client *client, struct reason *reason)
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

int kvtier_open(const char *url, struct kvtier_client **out_client, struct kvtier_error *error)
{
    struct reason reason = {0};
    struct kvtier_client *client = calloc(1, sizeof(*client));
    if (client == NULL) {
        return fail(error, STATUS_NO_MEMORY, &reason);
    }
    atomic_flag_clear(&client->in_use);
    enum status status = STATUS_OK;
    if (url != NULL && strlen(url) >= sizeof(client->url)) {
        status = reason_set(&reason, STATUS_INVALID, "use a shorter one", "url: is too long");
    } else if (url != NULL) {
        snprintf(client->url, sizeof(client->url), "%s", url);
    } else {
        status = config_url("gpud", client->url, &reason);
    }
    if (status == STATUS_OK) {
        status = connect_again(client, &reason);
    }
    if (status != STATUS_OK) {
        free(client);
        return fail(error, status, &reason);
    }
    *out_client = client;
    return KVTIER_OK;
}

void kvtier_close(struct kvtier_client *client)
{
    if (client != NULL) {
        gpu_client_close(client->connection);
        free(client);
    }
}

void kvtier_cancel(struct kvtier_client *client)
{
    atomic_store_explicit(&client->cancelled, true, memory_order_relaxed);
}

void kvtier_info(const struct kvtier_client *client, struct kvtier_info *out_info)
{
    *out_info = client->info;
}

// Takes the client for one call, connects and sends. On success call_end must follow.
static enum status call_begin(struct call *call, const struct gpu_request *request)
{
    struct kvtier_client *client = call->client;
    if (atomic_flag_test_and_set_explicit(&client->in_use, memory_order_acquire)) {
        return reason_set(&call->reason, STATUS_BUSY, "open a client for each thread",
                          "client: another call is in progress");
    }
    atomic_store_explicit(&client->cancelled, false, memory_order_relaxed);
    enum status status = connect_again(client, &call->reason);
    if (status == STATUS_OK) {
        status = gpu_client_send(client->connection, request, &call->reason);
    }
    if (status != STATUS_OK) {
        atomic_flag_clear_explicit(&client->in_use, memory_order_release);
    }
    return status;
}

// Ends the connection too when the call stopped before its last event.
static void call_end(struct call *call, bool complete)
{
    struct kvtier_client *client = call->client;
    if (!complete) {
        gpu_client_close(client->connection);
        client->connection = NULL;
    }
    atomic_flag_clear_explicit(&client->in_use, memory_order_release);
}

static enum status call_next(struct call *call, const struct gpu_event **out_event)
{
    return gpu_client_receive(call->client->connection, out_event, &call->reason);
}

// False when the call ended with its last event: an error event leaves the connection alive.
static bool has_died(const struct call *call, enum status status)
{
    return status == STATUS_DAMAGED || status == STATUS_NO_MEMORY ||
           !gpu_client_alive(call->client->connection);
}

// For requests that are answered by one event of `kind`, which stays valid until call_end.
static enum status call_simple(struct call *call, const struct gpu_request *request,
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
        call_end(call, !has_died(call, status));
    }
    return status;
}

static struct gpu_text text_of(const char *text)
{
    return text == NULL ? (struct gpu_text){0} : (struct gpu_text){text, strlen(text)};
}

// ---- generate

void kvtier_generate_init(struct kvtier_generate *request)
{
    struct gpu_request defaults;
    gpu_request_init(&defaults, GPU_OP_GENERATE);
    *request = (struct kvtier_generate){
        .max_tokens = defaults.max_tokens,
        .sampling =
            {
                .temperature = defaults.sampling.temperature,
                .top_k = defaults.sampling.top_k,
                .top_p = defaults.sampling.top_p,
                .min_p = defaults.sampling.min_p,
                .repeat_penalty = defaults.sampling.repeat_penalty,
                .repeat_last_n = defaults.sampling.repeat_last_n,
                .presence_penalty = defaults.sampling.presence_penalty,
                .frequency_penalty = defaults.sampling.frequency_penalty,
            },
    };
}

static struct gpu_sampling sampling_of(const struct kvtier_sampling *from)
{
    return (struct gpu_sampling){
        .temperature = from->temperature,
        .top_k = from->top_k,
        .top_p = from->top_p,
        .min_p = from->min_p,
        .repeat_penalty = from->repeat_penalty,
        .repeat_last_n = from->repeat_last_n,
        .presence_penalty = from->presence_penalty,
        .frequency_penalty = from->frequency_penalty,
        .has_seed = from->has_seed,
        .seed = from->seed,
    };
}

static enum status turns_of(const struct kvtier_generate *from, struct gpu_request *request,
                            struct reason *reason)
{
    if (from->turn_count > GPU_TURNS_MAX) {
        return reason_set(reason, STATUS_REFUSED, NULL, "chat: %zu turns, at most %d can be sent",
                          from->turn_count, GPU_TURNS_MAX);
    }
    request->turns = calloc(from->turn_count, sizeof(*request->turns));
    if (request->turns == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, NULL, "chat: out of memory");
    }
    for (size_t i = 0; i < from->turn_count; i++) {
        request->turns[i].role = text_of(from->turns[i].role);
        request->turns[i].content = text_of(from->turns[i].content);
    }
    request->turn_count = (uint32_t)from->turn_count;
    return STATUS_OK;
}

// More ids than a message can carry are refused here, before their number is cut to 32 bits.
static enum status ids_of(const uint32_t *ids, size_t count, struct gpu_request *request,
                          struct reason *reason)
{
    if (count > LIMIT_CONTEXT_TOKENS) {
        return reason_set(reason, STATUS_REFUSED, "give fewer", "ids: %zu, at most %d can be sent",
                          count, LIMIT_CONTEXT_TOKENS);
    }
    request->ids = gpu_ids_of(ids, (uint32_t)count);
    return STATUS_OK;
}

static enum status generate_request(const struct kvtier_generate *from, struct gpu_request *request,
                                    struct reason *reason)
{
    gpu_request_init(request, GPU_OP_GENERATE);
    if (from->stop_count > LIMIT_STOP_STRINGS) {
        return reason_set(reason, STATUS_REFUSED, NULL, "stop: %zu texts, at most %d can be sent",
                          from->stop_count, LIMIT_STOP_STRINGS);
    }
    request->prompt = (struct gpu_text){from->prompt, from->prompt_bytes};
    request->session = text_of(from->session);
    for (size_t i = 0; i < from->stop_count; i++) {
        request->stop[i] = text_of(from->stop[i]);
    }
    request->stop_count = (uint32_t)from->stop_count;
    request->max_tokens = from->max_tokens;
    request->sampling = sampling_of(&from->sampling);
    request->parse_special = from->parse_special;
    request->logits_hash = from->logits_hash;
    request->ignore_eos = from->ignore_eos;
    request->no_cache = from->no_cache;
    enum status status = ids_of(from->prompt_ids, from->prompt_id_count, request, reason);
    if (status == STATUS_OK && from->turn_count > 0) {
        status = turns_of(from, request, reason);
    }
    return status;
}

// The answer so far.
struct answer {
    struct kvtier_result result;
    size_t text_capacity;
    size_t ids_capacity;
};

static enum status grow(void **io_memory, size_t *io_capacity, size_t needed, size_t item_bytes)
{
    if (needed <= *io_capacity) {
        return STATUS_OK;
    }
    size_t capacity = *io_capacity == 0 ? 256 : *io_capacity;
    while (capacity < needed) {
        capacity *= 2;
    }
    void *grown = realloc(*io_memory, capacity * item_bytes);
    if (grown == NULL) {
        return STATUS_NO_MEMORY;
    }
    *io_memory = grown;
    *io_capacity = capacity;
    return STATUS_OK;
}

static enum status answer_add(struct answer *answer, const struct gpu_token *token)
{
    struct kvtier_result *result = &answer->result;
    void *text = result->text;
    void *ids = result->token_ids;
    enum status status =
        grow(&text, &answer->text_capacity, result->text_bytes + token->text.bytes + 1, 1);
    result->text = text;
    if (status == STATUS_OK) {
        status = grow(&ids, &answer->ids_capacity, result->completion_tokens + 1, sizeof(uint32_t));
        result->token_ids = ids;
    }
    if (status == STATUS_OK) {
        if (token->text.bytes > 0) {
            memcpy(result->text + result->text_bytes, token->text.text, token->text.bytes);
        }
        result->text_bytes += token->text.bytes;
        result->text[result->text_bytes] = 0;
        result->token_ids[result->completion_tokens++] = token->id;
    }
    return status;
}

static struct kvtier_start start_of(const struct gpu_hits *hits)
{
    return (struct kvtier_start){
        .prompt_tokens = hits->prompt_tokens,
        .cached_tokens = hits->hot_tokens + hits->ram_tokens + hits->disk_tokens,
        .cached_hot_tokens = hits->hot_tokens,
        .cached_ram_tokens = hits->ram_tokens,
        .cached_disk_tokens = hits->disk_tokens,
        .computed_tokens = hits->computed_tokens,
    };
}

static const char *finish_reason_of(struct gpu_text name)
{
    static const char *const names[] = {"stop", "length", "cancelled", "error"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (name.bytes == strlen(names[i]) && memcmp(name.text, names[i], name.bytes) == 0) {
            return names[i];
        }
    }
    return "";
}

static void take_done(const struct gpu_done *done, struct kvtier_result *result)
{
    result->finish_reason = finish_reason_of(done->finish_reason);
    result->ttft_ms = done->ttft_ms;
    result->prefill_ms = done->prefill_ms;
    result->decode_ms = done->decode_ms;
    if (done->completion_tokens > 1 && done->decode_ms > 0) {
        result->decode_tokens_per_s = (done->completion_tokens - 1) * 1000.0 / done->decode_ms;
    }
    size_t bytes = done->session.bytes;
    if (bytes < sizeof(result->session)) {
        memcpy(result->session, done->session.text, bytes);
    }
}

static enum status take_token(const struct kvtier_generate_events *events, struct answer *answer,
                              const struct gpu_token *token)
{
    size_t before = answer->result.text_bytes;
    enum status status = answer_add(answer, token);
    if (status == STATUS_OK && events->token != NULL) {
        const struct kvtier_token seen = {
            .id = token->id,
            .text = answer->result.text + before,
            .text_bytes = token->text.bytes,
            .has_logits_hash = token->has_logits_hash,
            .logits_hash = token->logits_hash,
        };
        events->token(events->context, &seen);
    }
    return status;
}

static enum status take_generate_event(const struct kvtier_generate_events *events,
                                       struct answer *answer, const struct gpu_event *event)
{
    switch (event->kind) {
    case GPU_EVENT_START:
        answer->result.start = start_of(&event->start);
        if (events->start != NULL) {
            events->start(events->context, &answer->result.start);
        }
        return STATUS_OK;
    case GPU_EVENT_PROGRESS:
        if (events->progress != NULL) {
            events->progress(events->context, event->progress_done, event->progress_total);
        }
        return STATUS_OK;
    case GPU_EVENT_TOKEN:
        return take_token(events, answer, &event->token);
    case GPU_EVENT_DONE:
        take_done(&event->done, &answer->result);
        return STATUS_OK;
    default:
        return STATUS_DAMAGED;
    }
}

// Receives until the last event. A text is there even when no token was.
static enum status generate_run(struct call *call, const struct kvtier_generate_events *events,
                                struct answer *answer)
{
    const struct gpu_event *event = NULL;
    void *text = NULL;
    enum status status = grow(&text, &answer->text_capacity, 1, 1);
    answer->result.text = text;
    if (text != NULL) {
        answer->result.text[0] = 0;
    }
    do {
        if (status == STATUS_OK) {
            status = call_next(call, &event);
        }
        if (status == STATUS_OK) {
            status = take_generate_event(events, answer, event);
        }
    } while (status == STATUS_OK && event->kind != GPU_EVENT_DONE);
    return status;
}

int kvtier_generate(struct kvtier_client *client, const struct kvtier_generate *request,
                    struct kvtier_result *out_result, struct kvtier_error *error)
{
    struct call call = {.client = client};
    struct gpu_request wire;
    struct answer answer = {0};
    enum status status = generate_request(request, &wire, &call.reason);
    if (status == STATUS_OK) {
        status = call_begin(&call, &wire);
        if (status == STATUS_OK) {
            status = generate_run(&call, &request->events, &answer);
            call_end(&call, !has_died(&call, status));
        }
    }
    gpu_request_finish(&wire);
    if (status != STATUS_OK) {
        kvtier_result_finish(&answer.result);
        return fail(error, status, &call.reason);
    }
    *out_result = answer.result;
    return KVTIER_OK;
}

void kvtier_result_finish(struct kvtier_result *result)
{
    free(result->text);
    free(result->token_ids);
    *result = (struct kvtier_result){0};
}

// ---- score

static void give_ids(const struct kvtier_score *request, const struct gpu_event *event)
{
    uint32_t *ids = gpu_ids_copy(event->ids);
    if (request->ids_event != NULL) {
        request->ids_event(request->context, ids, ids != NULL ? event->ids.count : 0,
                           event->vocab_tokens);
    }
    free(ids);
}

// The sums of a score so far.
struct score_sums {
    uint32_t tokens;
    double nll;
};

static void give_row(const struct kvtier_score *request, const struct gpu_score_row *row,
                     struct score_sums *sums)
{
    struct kvtier_score_entry top[GPU_SCORE_TOP_MAX];
    uint32_t count =
        row->top_ids.count < GPU_SCORE_TOP_MAX ? row->top_ids.count : GPU_SCORE_TOP_MAX;
    for (uint32_t i = 0; i < count; i++) {
        top[i] = (struct kvtier_score_entry){.id = gpu_ids_get(row->top_ids, i),
                                             .logit = gpu_score_logit(row, i)};
    }
    const struct kvtier_score_row seen = {
        .position = row->position,
        .id = row->id,
        .lse = row->lse,
        .top = top,
        .top_count = count,
        .has_next = row->has_next,
        .next_logprob = row->next_logprob,
        .has_logits_hash = row->has_logits_hash,
        .logits_hash = row->logits_hash,
    };
    if (request->row != NULL) {
        request->row(request->context, &seen);
    }
    if (row->has_next) {
        sums->tokens++;
        sums->nll -= row->next_logprob;
    }
}

static enum status score_run(struct call *call, const struct kvtier_score *request,
                             struct score_sums *sums)
{
    const struct gpu_event *event = NULL;
    enum status status;
    do {
        status = call_next(call, &event);
        if (status != STATUS_OK) {
            return status;
        }
        if (event->kind == GPU_EVENT_IDS) {
            give_ids(request, event);
        } else if (event->kind == GPU_EVENT_SCORE) {
            give_row(request, &event->score, sums);
        } else if (event->kind == GPU_EVENT_PROGRESS && request->progress != NULL) {
            request->progress(request->context, event->progress_done, event->progress_total);
        }
    } while (event->kind != GPU_EVENT_DONE);
    return STATUS_OK;
}

int kvtier_score(struct kvtier_client *client, const struct kvtier_score *request,
                 struct kvtier_score_result *out_result, struct kvtier_error *error)
{
    struct call call = {.client = client};
    struct gpu_request wire;
    struct score_sums sums = {0};
    gpu_request_init(&wire, GPU_OP_SCORE);
    wire.prompt = (struct gpu_text){request->text, request->text_bytes};
    wire.score_top = request->top;
    wire.score_from = request->from;
    wire.logits_hash = request->logits_hash;
    wire.parse_special = request->parse_special;
    enum status status = ids_of(request->ids, request->id_count, &wire, &call.reason);
    if (status == STATUS_OK) {
        status = call_begin(&call, &wire);
        if (status == STATUS_OK) {
            status = score_run(&call, request, &sums);
            call_end(&call, !has_died(&call, status));
        }
    }
    if (status != STATUS_OK) {
        return fail(error, status, &call.reason);
    }
    double mean = sums.tokens > 0 ? sums.nll / sums.tokens : 0;
    *out_result = (struct kvtier_score_result){
        .tokens = sums.tokens, .mean_nll = mean, .perplexity = exp(mean)};
    return KVTIER_OK;
}

// ---- requests with one answer

// Waits for DONE after the answer was used.
static enum status call_finish(struct call *call)
{
    const struct gpu_event *event = NULL;
    enum status status = call_next(call, &event);
    if (status == STATUS_OK && event->kind != GPU_EVENT_DONE) {
        status = STATUS_DAMAGED;
    }
    call_end(call, status == STATUS_OK);
    return status;
}

static void session_of(const struct kv_session_info *from, struct kvtier_session *out)
{
    *out = (struct kvtier_session){
        .tokens = from->token_count,
        .blocks = from->block_count,
        .ram_blocks = from->ram_block_count,
        .disk_blocks = from->disk_block_count,
        .payload_bytes = from->payload_bytes,
        .created_ms = from->created_ms,
        .updated_ms = from->updated_ms,
        .kept = from->keep,
    };
    snprintf(out->name, sizeof(out->name), "%s", from->name);
}

static enum status list_sessions(struct call *call, const struct gpu_request *request,
                                 struct kvtier_session **out_sessions, size_t *out_count)
{
    const struct gpu_event *event = NULL;
    enum status status = call_simple(call, request, GPU_EVENT_SESSIONS, &event);
    if (status != STATUS_OK) {
        return status;
    }
    size_t count = event->sessions.count;
    struct kvtier_session *sessions = calloc(count > 0 ? count : 1, sizeof(*sessions));
    for (size_t i = 0; sessions != NULL && i < count; i++) {
        session_of(&event->sessions.rows[i], &sessions[i]);
    }
    status = call_finish(call);
    if (status == STATUS_OK && sessions == NULL) {
        status = STATUS_NO_MEMORY;
    }
    if (status != STATUS_OK) {
        free(sessions);
        return status;
    }
    *out_sessions = sessions;
    *out_count = count;
    return STATUS_OK;
}

int kvtier_session_list(struct kvtier_client *client, struct kvtier_session **out_sessions,
                        size_t *out_count, struct kvtier_error *error)
{
    struct call call = {.client = client};
    struct gpu_request request;
    gpu_request_init(&request, GPU_OP_SESSION_LIST);
    return fail(error, list_sessions(&call, &request, out_sessions, out_count), &call.reason);
}

void kvtier_sessions_free(struct kvtier_session *sessions)
{
    free(sessions);
}

int kvtier_session_show(struct kvtier_client *client, const char *name,
                        struct kvtier_session *out_session, struct kvtier_error *error)
{
    struct call call = {.client = client};
    struct gpu_request request;
    struct kvtier_session *sessions = NULL;
    size_t count = 0;
    gpu_request_init(&request, GPU_OP_SESSION_SHOW);
    request.session = text_of(name);
    enum status status = list_sessions(&call, &request, &sessions, &count);
    if (status == STATUS_OK && count != 1) {
        status = STATUS_DAMAGED;
    }
    if (status == STATUS_OK) {
        *out_session = sessions[0];
    }
    free(sessions);
    return fail(error, status, &call.reason);
}

int kvtier_session_save(struct kvtier_client *client, const char *name,
                        struct kvtier_save *out_save, struct kvtier_error *error)
{
    struct call call = {.client = client};
    struct gpu_request request;
    const struct gpu_event *event = NULL;
    gpu_request_init(&request, GPU_OP_SESSION_SAVE);
    request.session = text_of(name);
    enum status status = call_simple(&call, &request, GPU_EVENT_SAVED, &event);
    if (status == STATUS_OK) {
        const struct kvtier_save save = {.blocks = event->saved.block_count,
                                         .durable_blocks = event->saved.durable_block_count,
                                         .written_bytes = event->saved.written_bytes};
        status = call_finish(&call);
        if (status == STATUS_OK) {
            *out_save = save;
        }
    }
    return fail(error, status, &call.reason);
}

int kvtier_session_delete(struct kvtier_client *client, const char *name,
                          struct kvtier_error *error)
{
    struct call call = {.client = client};
    struct gpu_request request;
    const struct gpu_event *event = NULL;
    gpu_request_init(&request, GPU_OP_SESSION_DELETE);
    request.session = text_of(name);
    enum status status = call_simple(&call, &request, GPU_EVENT_DONE, &event);
    if (status == STATUS_OK) {
        call_end(&call, true);
    }
    return fail(error, status, &call.reason);
}

// ---- tokens

int kvtier_tokenize(struct kvtier_client *client, const char *text, size_t text_bytes,
                    unsigned flags, uint32_t **out_ids, size_t *out_count,
                    struct kvtier_error *error)
{
    struct call call = {.client = client};
    struct gpu_request request;
    const struct gpu_event *event = NULL;
    gpu_request_init(&request, GPU_OP_TOKENIZE);
    request.prompt = (struct gpu_text){text, text_bytes};
    request.add_special = (flags & KVTIER_ADD_SPECIAL) != 0;
    request.parse_special = (flags & KVTIER_PARSE_SPECIAL) != 0;
    enum status status = call_simple(&call, &request, GPU_EVENT_IDS, &event);
    if (status == STATUS_OK) {
        size_t count = event->ids.count;
        uint32_t *ids = gpu_ids_copy(event->ids);
        status = call_finish(&call);
        if (status == STATUS_OK && (ids != NULL || count == 0)) {
            *out_ids = ids;
            *out_count = count;
            return KVTIER_OK;
        }
        free(ids);
        status = status == STATUS_OK ? STATUS_NO_MEMORY : status;
    }
    return fail(error, status, &call.reason);
}

int kvtier_detokenize(struct kvtier_client *client, const uint32_t *ids, size_t count,
                      char **out_text, size_t *out_bytes, struct kvtier_error *error)
{
    struct call call = {.client = client};
    struct gpu_request request;
    const struct gpu_event *event = NULL;
    gpu_request_init(&request, GPU_OP_DETOKENIZE);
    request.parse_special = true;
    enum status status = ids_of(ids, count, &request, &call.reason);
    if (status == STATUS_OK) {
        status = call_simple(&call, &request, GPU_EVENT_TEXT, &event);
    }
    if (status == STATUS_OK) {
        size_t bytes = event->text.bytes;
        char *text = malloc(bytes + 1);
        if (text != NULL) {
            memcpy(text, event->text.text, bytes);
            text[bytes] = 0;
        }
        status = call_finish(&call);
        if (status == STATUS_OK && text != NULL) {
            *out_text = text;
            *out_bytes = bytes;
            return KVTIER_OK;
        }
        free(text);
        status = status == STATUS_OK ? STATUS_NO_MEMORY : status;
    }
    return fail(error, status, &call.reason);
}
