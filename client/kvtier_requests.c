// SPDX-License-Identifier: Apache-2.0
// The requests of libkvtier besides generate: score, sessions, tokens.
#include "client/kvtier_call.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    enum status status = call_ids(request->ids, request->id_count, &wire, &call.reason);
    if (status == STATUS_OK) {
        status = call_begin(&call, &wire);
        if (status == STATUS_OK) {
            status = score_run(&call, request, &sums);
            call_end(&call, !call_died(&call, status));
        }
    }
    if (status != STATUS_OK) {
        return call_fail(error, status, &call.reason);
    }
    double mean = sums.tokens > 0 ? sums.nll / sums.tokens : 0;
    *out_result = (struct kvtier_score_result){
        .tokens = sums.tokens, .mean_nll = mean, .perplexity = exp(mean)};
    return KVTIER_OK;
}

// ---- sessions

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
    return call_fail(error, list_sessions(&call, &request, out_sessions, out_count), &call.reason);
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
    request.session = call_text(name);
    enum status status = list_sessions(&call, &request, &sessions, &count);
    if (status == STATUS_OK && count != 1) {
        status = STATUS_DAMAGED;
    }
    if (status == STATUS_OK) {
        *out_session = sessions[0];
    }
    free(sessions);
    return call_fail(error, status, &call.reason);
}

int kvtier_session_save(struct kvtier_client *client, const char *name,
                        struct kvtier_save *out_save, struct kvtier_error *error)
{
    struct call call = {.client = client};
    struct gpu_request request;
    const struct gpu_event *event = NULL;
    gpu_request_init(&request, GPU_OP_SESSION_SAVE);
    request.session = call_text(name);
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
    return call_fail(error, status, &call.reason);
}

int kvtier_session_delete(struct kvtier_client *client, const char *name,
                          struct kvtier_error *error)
{
    struct call call = {.client = client};
    struct gpu_request request;
    const struct gpu_event *event = NULL;
    gpu_request_init(&request, GPU_OP_SESSION_DELETE);
    request.session = call_text(name);
    enum status status = call_simple(&call, &request, GPU_EVENT_DONE, &event);
    if (status == STATUS_OK) {
        call_end(&call, true);
    }
    return call_fail(error, status, &call.reason);
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
    return call_fail(error, status, &call.reason);
}

int kvtier_detokenize(struct kvtier_client *client, const uint32_t *ids, size_t count,
                      char **out_text, size_t *out_bytes, struct kvtier_error *error)
{
    struct call call = {.client = client};
    struct gpu_request request;
    const struct gpu_event *event = NULL;
    gpu_request_init(&request, GPU_OP_DETOKENIZE);
    request.parse_special = true;
    enum status status = call_ids(ids, count, &request, &call.reason);
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
    return call_fail(error, status, &call.reason);
}
