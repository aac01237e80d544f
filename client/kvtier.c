// SPDX-License-Identifier: Apache-2.0
// Opening, cancelling, and generate, whose events become callbacks and a result. The other
// requests: kvtier_requests.c.
#include "client/kvtier.h"

#include "client/config.h"
#include "client/kvtier_call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

// ---- the client

int kvtier_open(const char *url, struct kvtier_client **out_client, struct kvtier_error *error)
{
    struct reason reason = {0};
    struct kvtier_client *client = calloc(1, sizeof(*client));
    if (client == NULL) {
        return call_fail(error, STATUS_NO_MEMORY, &reason);
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
        status = call_connect(client, &reason);
    }
    if (status != STATUS_OK) {
        free(client);
        return call_fail(error, status, &reason);
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
        request->turns[i].role = call_text(from->turns[i].role);
        request->turns[i].content = call_text(from->turns[i].content);
    }
    request->turn_count = (uint32_t)from->turn_count;
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
    request->session = call_text(from->session);
    for (size_t i = 0; i < from->stop_count; i++) {
        request->stop[i] = call_text(from->stop[i]);
    }
    request->stop_count = (uint32_t)from->stop_count;
    request->max_tokens = from->max_tokens;
    request->sampling = sampling_of(&from->sampling);
    request->parse_special = from->parse_special;
    request->logits_hash = from->logits_hash;
    request->ignore_eos = from->ignore_eos;
    request->no_cache = from->no_cache;
    enum status status = call_ids(from->prompt_ids, from->prompt_id_count, request, reason);
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
            call_end(&call, !call_died(&call, status));
        }
    }
    gpu_request_finish(&wire);
    if (status != STATUS_OK) {
        kvtier_result_finish(&answer.result);
        return call_fail(error, status, &call.reason);
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
