// SPDX-License-Identifier: Apache-2.0
// Events of gpud as msgpack maps. What kvstored also says (lists of sessions, levels of the store)
// travels inside as the bytes of its own reply, so that each has one encoding.
#include "proto/codec_reader.h"
#include "proto/gpu_message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_names[GPU_EVENT_COUNT] = {
    [GPU_EVENT_HELLO] = "hello",       [GPU_EVENT_START] = "start",
    [GPU_EVENT_PROGRESS] = "progress", [GPU_EVENT_TOKEN] = "token",
    [GPU_EVENT_IDS] = "ids",           [GPU_EVENT_SCORE] = "score",
    [GPU_EVENT_SESSIONS] = "sessions", [GPU_EVENT_SAVED] = "saved",
    [GPU_EVENT_TEXT] = "text",         [GPU_EVENT_STATUS] = "status",
    [GPU_EVENT_DONE] = "done",         [GPU_EVENT_ERROR] = "error",
};

float gpu_score_logit(const struct gpu_score_row *row, uint32_t index)
{
    float logit;
    memcpy(&logit, row->top_logits + (size_t)index * sizeof(logit), sizeof(logit));
    return logit;
}

void gpu_event_finish(struct gpu_event *event)
{
    free(event->sessions.rows);
    free(event->status);
    event->sessions = (struct kv_session_list){0};
    event->status = NULL;
}

// ---- numbers of the status, by name

enum field_kind { FIELD_U32, FIELD_U64, FIELD_F64, FIELD_BOOL, FIELD_NAME };

struct field {
    const char *key;
    enum field_kind kind;
    size_t offset;
};

#define FIELD(kind_, member)                                                                       \
    {                                                                                              \
        .key = #member, .kind = (kind_), .offset = offsetof(struct gpu_status, member)             \
    }

static const struct field status_fields[] = {
    FIELD(FIELD_NAME, model_name),
    FIELD(FIELD_NAME, architecture),
    FIELD(FIELD_NAME, device),
    FIELD(FIELD_NAME, kernels),
    FIELD(FIELD_NAME, kv_cache_dtype),
    FIELD(FIELD_U64, epoch),
    FIELD(FIELD_U64, uptime_ms),
    FIELD(FIELD_U64, process_id),
    FIELD(FIELD_U32, threads),
    FIELD(FIELD_U32, context_tokens),
    FIELD(FIELD_U32, trained_tokens),
    FIELD(FIELD_U32, block_tokens),
    FIELD(FIELD_U64, vram_limit_bytes),
    FIELD(FIELD_U64, weight_bytes),
    FIELD(FIELD_U64, workspace_bytes),
    FIELD(FIELD_U64, hot_bytes),
    FIELD(FIELD_U64, payload_bytes),
    FIELD(FIELD_U64, anonymous_bytes),
    FIELD(FIELD_U32, hot_slot_count),
    FIELD(FIELD_U32, hot_used_count),
    FIELD(FIELD_U64, hot_hit_count),
    FIELD(FIELD_U64, cold_hit_count),
    FIELD(FIELD_U64, evicted_count),
    FIELD(FIELD_U64, recalled_count),
    FIELD(FIELD_U64, closed_count),
    FIELD(FIELD_U64, write_through_ms),
    FIELD(FIELD_U32, sequences_max),
    FIELD(FIELD_U32, running_count),
    FIELD(FIELD_U32, queued_count),
    FIELD(FIELD_U64, request_count),
    FIELD(FIELD_U64, failed_count),
    FIELD(FIELD_U64, cancelled_count),
    FIELD(FIELD_U64, prefill_tokens),
    FIELD(FIELD_U64, decode_tokens),
    FIELD(FIELD_F64, prefill_tokens_per_s),
    FIELD(FIELD_F64, decode_tokens_per_s),
    FIELD(FIELD_BOOL, store_attached),
};

enum { STATUS_FIELD_COUNT = sizeof(status_fields) / sizeof(status_fields[0]) };

// Names come from files: any bytes.
static void put_name(struct codec_writer *writer, const char *key, const char *name)
{
    char clean[REASON_TEXT_BYTES];
    snprintf(clean, sizeof(clean), "%s", name);
    text_clean(clean);
    codec_put_text(writer, key, clean);
}

static void put_field(struct codec_writer *writer, const struct gpu_status *from,
                      const struct field *field)
{
    const void *at = (const uint8_t *)from + field->offset;
    switch (field->kind) {
    case FIELD_U32:
        codec_put_u64(writer, field->key, *(const uint32_t *)at);
        break;
    case FIELD_U64:
        codec_put_u64(writer, field->key, *(const uint64_t *)at);
        break;
    case FIELD_F64:
        codec_put_f64(writer, field->key, *(const double *)at);
        break;
    case FIELD_BOOL:
        codec_put_bool(writer, field->key, *(const bool *)at);
        break;
    case FIELD_NAME:
        put_name(writer, field->key, at);
        break;
    }
}

static void get_field(const struct codec_map *map, const struct field *field,
                      struct gpu_status *out)
{
    void *at = (uint8_t *)out + field->offset;
    switch (field->kind) {
    case FIELD_U32:
        codec_get_u32(map, field->key, 0, UINT32_MAX, at);
        break;
    case FIELD_U64:
        codec_get_u64(map, field->key, at);
        break;
    case FIELD_F64:
        codec_get_f64(map, field->key, at);
        break;
    case FIELD_BOOL:
        codec_get_bool(map, field->key, at);
        break;
    case FIELD_NAME:
        codec_get_text(map, field->key, at, GPU_NAME_BYTES);
        break;
    }
}

// ---- encoding

static void put_bytes(struct codec_writer *writer, const char *key, struct gpu_text text)
{
    codec_put_bin(writer, key, text.text != NULL ? text.text : "", text.bytes);
}

static void put_ids(struct codec_writer *writer, const char *key, struct gpu_ids ids)
{
    codec_put_bin(writer, key, ids.count > 0 ? (const void *)ids.bytes : "",
                  ids.count * sizeof(uint32_t));
}

// A reply of kvstored inside; what cannot be encoded makes the whole event fail by its absence.
static void put_reply(struct codec_writer *writer, const char *key, const struct kv_reply *reply)
{
    void *data = NULL;
    size_t bytes = 0;
    if (kv_reply_encode(reply, &data, &bytes) == STATUS_OK) {
        codec_put_bin(writer, key, data, bytes);
        free(data);
    }
}

static void put_hello(struct codec_writer *writer, const struct gpu_hello *hello)
{
    codec_put_u64(writer, "version", hello->version);
    codec_put_u64(writer, "epoch", hello->epoch);
    put_bytes(writer, "program_version", hello->program_version);
    put_bytes(writer, "model_name", hello->model_name);
    codec_put_u64(writer, "context_tokens", hello->context_tokens);
    codec_put_u64(writer, "vocab_tokens", hello->vocab_tokens);
    codec_put_u64(writer, "block_tokens", hello->block_tokens);
}

static void put_start(struct codec_writer *writer, const struct gpu_hits *start)
{
    codec_put_u64(writer, "prompt_tokens", start->prompt_tokens);
    codec_put_u64(writer, "hot_tokens", start->hot_tokens);
    codec_put_u64(writer, "ram_tokens", start->ram_tokens);
    codec_put_u64(writer, "disk_tokens", start->disk_tokens);
    codec_put_u64(writer, "computed_tokens", start->computed_tokens);
}

static void put_token(struct codec_writer *writer, const struct gpu_token *token)
{
    codec_put_u64(writer, "id", token->id);
    put_bytes(writer, "text", token->text);
    if (token->has_logits_hash) {
        codec_put_u64(writer, "logits_hash", token->logits_hash);
    }
}

static void put_score(struct codec_writer *writer, const struct gpu_score_row *row)
{
    codec_put_u64(writer, "position", row->position);
    codec_put_u64(writer, "id", row->id);
    codec_put_f64(writer, "lse", row->lse);
    put_ids(writer, "top_ids", row->top_ids);
    put_ids(writer, "top_logits",
            (struct gpu_ids){.bytes = row->top_logits, .count = row->top_ids.count});
    if (row->has_next) {
        codec_put_f64(writer, "next_logprob", row->next_logprob);
    }
    if (row->has_logits_hash) {
        codec_put_u64(writer, "logits_hash", row->logits_hash);
    }
}

static void put_status(struct codec_writer *writer, const struct gpu_status *state)
{
    for (size_t i = 0; i < STATUS_FIELD_COUNT; i++) {
        put_field(writer, state, &status_fields[i]);
    }
    codec_put_text(writer, "fingerprint", state->fingerprint);
    if (state->has_store) {
        put_reply(writer, "store", &(struct kv_reply){.op = KV_OP_STATUS, .state = state->store});
    }
}

static void put_done(struct codec_writer *writer, const struct gpu_done *done)
{
    put_bytes(writer, "finish_reason", done->finish_reason);
    codec_put_u64(writer, "completion_tokens", done->completion_tokens);
    codec_put_f64(writer, "ttft_ms", done->ttft_ms);
    codec_put_f64(writer, "prefill_ms", done->prefill_ms);
    codec_put_f64(writer, "decode_ms", done->decode_ms);
    put_bytes(writer, "session", done->session);
}

static void put_saved(struct codec_writer *writer, const struct kv_checkpoint_reply *saved)
{
    codec_put_u64(writer, "block_count", saved->block_count);
    codec_put_u64(writer, "durable_block_count", saved->durable_block_count);
    codec_put_u64(writer, "written_bytes", saved->written_bytes);
}

static void put_event(struct codec_writer *writer, const struct gpu_event *event)
{
    codec_put_text(writer, "event", kind_names[event->kind]);
    switch (event->kind) {
    case GPU_EVENT_HELLO:
        put_hello(writer, &event->hello);
        break;
    case GPU_EVENT_START:
        put_start(writer, &event->start);
        break;
    case GPU_EVENT_PROGRESS:
        codec_put_u64(writer, "done", event->progress_done);
        codec_put_u64(writer, "total", event->progress_total);
        break;
    case GPU_EVENT_TOKEN:
        put_token(writer, &event->token);
        break;
    case GPU_EVENT_IDS:
        put_ids(writer, "ids", event->ids);
        codec_put_u64(writer, "vocab_tokens", event->vocab_tokens);
        break;
    case GPU_EVENT_SCORE:
        put_score(writer, &event->score);
        break;
    case GPU_EVENT_SESSIONS:
        put_reply(writer, "list",
                  &(struct kv_reply){.op = KV_OP_SESSION_LIST, .session_list = event->sessions});
        break;
    case GPU_EVENT_SAVED:
        put_saved(writer, &event->saved);
        break;
    case GPU_EVENT_TEXT:
        put_bytes(writer, "text", event->text);
        break;
    case GPU_EVENT_STATUS:
        put_status(writer, event->status);
        break;
    case GPU_EVENT_DONE:
        put_done(writer, &event->done);
        break;
    case GPU_EVENT_ERROR:
        codec_put_u64(writer, "status", (uint64_t)event->error);
        put_name(writer, "reason", event->reason.text);
        put_name(writer, "hint", event->reason.hint);
        break;
    case GPU_EVENT_COUNT:
        break;
    }
}

enum status gpu_event_encode(const struct gpu_event *event, void **out_data, size_t *out_bytes)
{
    struct codec_writer writer;
    const uint8_t *data = NULL;
    size_t bytes = 0;
    codec_writer_init(&writer, LIMIT_FRAME_BYTES);
    put_event(&writer, event);
    enum status status = codec_writer_finish(&writer, &data, &bytes);
    if (status != STATUS_OK) {
        codec_writer_free(&writer);
        return status;
    }
    *out_data = writer.data; // moved out: freed by the caller
    *out_bytes = bytes;
    return STATUS_OK;
}

// ---- decoding

static void get_bytes(const struct codec_map *map, const char *key, struct gpu_text *out)
{
    const uint8_t *data = NULL;
    size_t bytes = 0;
    if (codec_get_bin(map, key, LIMIT_FRAME_BYTES, &data, &bytes)) {
        *out = (struct gpu_text){.text = (const char *)data, .bytes = bytes};
    }
}

static void get_ids(const struct codec_map *map, const char *key, struct gpu_ids *out)
{
    struct gpu_text ids = {0};
    get_bytes(map, key, &ids);
    if (ids.bytes % sizeof(uint32_t) != 0) {
        codec_reader_fail(map->reader, "ids: is not a list of 32-bit numbers");
        return;
    }
    *out = (struct gpu_ids){.bytes = (const uint8_t *)ids.text,
                            .count = (uint32_t)(ids.bytes / sizeof(uint32_t))};
}

static void get_any_u32(const struct codec_map *map, const char *key, uint32_t *out)
{
    codec_get_u32(map, key, 0, UINT32_MAX, out);
}

static void get_hello(const struct codec_map *map, struct gpu_hello *out)
{
    get_any_u32(map, "version", &out->version);
    codec_get_u64(map, "epoch", &out->epoch);
    get_bytes(map, "program_version", &out->program_version);
    get_bytes(map, "model_name", &out->model_name);
    get_any_u32(map, "context_tokens", &out->context_tokens);
    get_any_u32(map, "vocab_tokens", &out->vocab_tokens);
    get_any_u32(map, "block_tokens", &out->block_tokens);
}

static void get_start(const struct codec_map *map, struct gpu_hits *out)
{
    get_any_u32(map, "prompt_tokens", &out->prompt_tokens);
    get_any_u32(map, "hot_tokens", &out->hot_tokens);
    get_any_u32(map, "ram_tokens", &out->ram_tokens);
    get_any_u32(map, "disk_tokens", &out->disk_tokens);
    get_any_u32(map, "computed_tokens", &out->computed_tokens);
}

static void get_score(const struct codec_map *map, struct gpu_score_row *out)
{
    struct gpu_ids logits = {0};
    get_any_u32(map, "position", &out->position);
    get_any_u32(map, "id", &out->id);
    codec_get_f64(map, "lse", &out->lse);
    get_ids(map, "top_ids", &out->top_ids);
    get_ids(map, "top_logits", &logits);
    out->top_logits = logits.bytes;
    if (logits.count != out->top_ids.count) {
        codec_reader_fail(map->reader, "top: ids and logits differ in number");
    }
    out->has_next = codec_opt_f64(map, "next_logprob", &out->next_logprob);
    out->has_logits_hash = codec_opt_u64(map, "logits_hash", &out->logits_hash);
}

static void get_done(const struct codec_map *map, struct gpu_done *out)
{
    get_bytes(map, "finish_reason", &out->finish_reason);
    get_any_u32(map, "completion_tokens", &out->completion_tokens);
    codec_get_f64(map, "ttft_ms", &out->ttft_ms);
    codec_get_f64(map, "prefill_ms", &out->prefill_ms);
    codec_get_f64(map, "decode_ms", &out->decode_ms);
    get_bytes(map, "session", &out->session);
}

// True when `key` holds a good answer of kvstored to `op`: then the caller finishes or moves it.
static bool get_reply(const struct codec_map *map, const char *key, enum kv_op op,
                      struct kv_reply *out)
{
    struct gpu_text inner = {0};
    get_bytes(map, key, &inner);
    if (inner.text == NULL ||
        kv_reply_decode(inner.text, inner.bytes, op, out, NULL) != STATUS_OK) {
        codec_reader_fail(map->reader, "event: what it holds is malformed");
        return false;
    }
    return true;
}

static void get_status(const struct codec_map *map, struct gpu_event *out)
{
    out->status = calloc(1, sizeof(*out->status));
    if (out->status == NULL) {
        codec_reader_fail(map->reader, "status: out of memory");
        return;
    }
    for (size_t i = 0; i < STATUS_FIELD_COUNT; i++) {
        get_field(map, &status_fields[i], out->status);
    }
    codec_get_text(map, "fingerprint", out->status->fingerprint, sizeof(out->status->fingerprint));
    struct kv_reply reply;
    if (codec_has(map, "store") && get_reply(map, "store", KV_OP_STATUS, &reply)) {
        out->status->has_store = true;
        out->status->store = reply.state;
        kv_reply_finish(&reply);
    }
}

static void get_sessions(const struct codec_map *map, struct kv_session_list *out)
{
    struct kv_reply reply;
    if (get_reply(map, "list", KV_OP_SESSION_LIST, &reply)) {
        *out = reply.session_list; // the rows are the event's from here on
    }
}

static void get_error(const struct codec_map *map, struct gpu_event *out)
{
    uint32_t status = 0;
    get_any_u32(map, "status", &status);
    out->error = status_from_wire(status);
    codec_get_text(map, "reason", out->reason.text, sizeof(out->reason.text));
    codec_get_text(map, "hint", out->reason.hint, sizeof(out->reason.hint));
    if (out->error == STATUS_OK) {
        codec_reader_fail(map->reader, "error: says that all is well");
    }
}

static void get_token(const struct codec_map *map, struct gpu_token *out)
{
    get_any_u32(map, "id", &out->id);
    get_bytes(map, "text", &out->text);
    out->has_logits_hash = codec_opt_u64(map, "logits_hash", &out->logits_hash);
}

static void get_saved(const struct codec_map *map, struct kv_checkpoint_reply *out)
{
    get_any_u32(map, "block_count", &out->block_count);
    get_any_u32(map, "durable_block_count", &out->durable_block_count);
    codec_get_u64(map, "written_bytes", &out->written_bytes);
}

static void get_event(const struct codec_map *map, struct gpu_event *out)
{
    switch (out->kind) {
    case GPU_EVENT_HELLO:
        get_hello(map, &out->hello);
        break;
    case GPU_EVENT_START:
        get_start(map, &out->start);
        break;
    case GPU_EVENT_PROGRESS:
        get_any_u32(map, "done", &out->progress_done);
        get_any_u32(map, "total", &out->progress_total);
        break;
    case GPU_EVENT_TOKEN:
        get_token(map, &out->token);
        break;
    case GPU_EVENT_IDS:
        get_ids(map, "ids", &out->ids);
        get_any_u32(map, "vocab_tokens", &out->vocab_tokens);
        break;
    case GPU_EVENT_SCORE:
        get_score(map, &out->score);
        break;
    case GPU_EVENT_SESSIONS:
        get_sessions(map, &out->sessions);
        break;
    case GPU_EVENT_SAVED:
        get_saved(map, &out->saved);
        break;
    case GPU_EVENT_TEXT:
        get_bytes(map, "text", &out->text);
        break;
    case GPU_EVENT_STATUS:
        get_status(map, out);
        break;
    case GPU_EVENT_DONE:
        get_done(map, &out->done);
        break;
    case GPU_EVENT_ERROR:
        get_error(map, out);
        break;
    case GPU_EVENT_COUNT:
        break;
    }
}

enum status gpu_event_decode(const void *data, size_t bytes, struct gpu_event *out,
                             struct reason *reason)
{
    struct codec_reader reader;
    struct codec_map map;
    char name[CODEC_KEY_BYTES_MAX];
    memset(out, 0, sizeof(*out));
    codec_reader_init(&reader, data, bytes, &map);
    if (!codec_get_text(&map, "event", name, sizeof(name))) {
        return codec_reader_status(&reader, reason);
    }
    int kind = 0;
    while (kind < GPU_EVENT_COUNT && strcmp(kind_names[kind], name) != 0) {
        kind++;
    }
    if (kind == GPU_EVENT_COUNT) {
        return reason_set(reason, STATUS_UNSUPPORTED, "use a client of the daemon's version",
                          "event: none is named %s", name);
    }
    out->kind = (enum gpu_event_kind)kind;
    get_event(&map, out);
    enum status status = codec_reader_status(&reader, reason);
    if (status != STATUS_OK) {
        gpu_event_finish(out);
    }
    return status;
}
