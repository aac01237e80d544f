// SPDX-License-Identifier: Apache-2.0
// Requests of apps as msgpack maps. Texts of users travel as binary, since a prompt may be any
// bytes; names and reasons are text. Fields at their default are left out. Events: gpu_event.c.
#include "proto/gpu_message.h"

#include "proto/codec_reader.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const op_names[GPU_OP_COUNT] = {
    [GPU_OP_HELLO] = "hello",
    [GPU_OP_GENERATE] = "generate",
    [GPU_OP_SCORE] = "score",
    [GPU_OP_SESSION_LIST] = "session_list",
    [GPU_OP_SESSION_SHOW] = "session_show",
    [GPU_OP_SESSION_SAVE] = "session_save",
    [GPU_OP_SESSION_DELETE] = "session_delete",
    [GPU_OP_TOKENIZE] = "tokenize",
    [GPU_OP_DETOKENIZE] = "detokenize",
    [GPU_OP_STATUS] = "status",
};

// ---- ids

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "ids are sent as they lie in memory");

uint32_t gpu_ids_get(struct gpu_ids ids, uint32_t index)
{
    uint32_t id;
    memcpy(&id, ids.bytes + (size_t)index * sizeof(id), sizeof(id));
    return id;
}

struct gpu_ids gpu_ids_of(const uint32_t *ids, uint32_t count)
{
    return (struct gpu_ids){.bytes = (const uint8_t *)ids, .count = count};
}

uint32_t *gpu_ids_copy(struct gpu_ids ids)
{
    uint32_t *copy = ids.count == 0 ? NULL : malloc(ids.count * sizeof(*copy));
    if (copy != NULL) {
        memcpy(copy, ids.bytes, ids.count * sizeof(*copy));
    }
    return copy;
}

// ---- defaults

void gpu_sampling_init(struct gpu_sampling *out)
{
    *out = (struct gpu_sampling){
        .temperature = 0.8f,
        .top_k = 40,
        .top_p = 0.95f,
        .min_p = 0.05f,
        .repeat_penalty = 1.0f,
        .repeat_last_n = 64,
    };
}

void gpu_request_init(struct gpu_request *request, enum gpu_op op)
{
    *request = (struct gpu_request){.op = op, .max_tokens = 2048, .score_top = 16};
    request->version = GPU_PROTOCOL_VERSION;
    gpu_sampling_init(&request->sampling);
}

void gpu_request_finish(struct gpu_request *request)
{
    free(request->turns);
    request->turns = NULL;
}

// ---- encoding

static void put_bytes(struct codec_writer *writer, const char *key, struct gpu_text text)
{
    if (text.text != NULL) {
        codec_put_bin(writer, key, text.text, text.bytes);
    }
}

static void put_flag(struct codec_writer *writer, const char *key, bool value)
{
    if (value) {
        codec_put_bool(writer, key, true);
    }
}

static void put_sampling(struct codec_writer *writer, const struct gpu_sampling *sampling)
{
    codec_put_map(writer, "sampling");
    codec_put_f64(writer, "temperature", (double)sampling->temperature);
    codec_put_i64(writer, "top_k", sampling->top_k);
    codec_put_f64(writer, "top_p", (double)sampling->top_p);
    codec_put_f64(writer, "min_p", (double)sampling->min_p);
    codec_put_f64(writer, "repeat_penalty", (double)sampling->repeat_penalty);
    codec_put_i64(writer, "repeat_last_n", sampling->repeat_last_n);
    codec_put_f64(writer, "presence_penalty", (double)sampling->presence_penalty);
    codec_put_f64(writer, "frequency_penalty", (double)sampling->frequency_penalty);
    if (sampling->has_seed) {
        codec_put_u64(writer, "seed", sampling->seed);
    }
    codec_end(writer);
}

static void put_turns(struct codec_writer *writer, const struct gpu_request *request)
{
    codec_put_array(writer, "turns");
    for (uint32_t i = 0; i < request->turn_count; i++) {
        codec_put_map(writer, NULL);
        put_bytes(writer, "role", request->turns[i].role);
        put_bytes(writer, "content", request->turns[i].content);
        codec_end(writer);
    }
    codec_end(writer);
}

static void put_input(struct codec_writer *writer, const struct gpu_request *request)
{
    put_bytes(writer, "prompt", request->prompt);
    if (request->ids.count > 0) {
        codec_put_bin(writer, "ids", request->ids.bytes, request->ids.count * sizeof(uint32_t));
    }
    if (request->turn_count > 0) {
        put_turns(writer, request);
    }
    put_bytes(writer, "session", request->session);
    if (request->stop_count > 0) {
        codec_put_array(writer, "stop");
        for (uint32_t i = 0; i < request->stop_count; i++) {
            codec_put_map(writer, NULL);
            put_bytes(writer, "text", request->stop[i]);
            codec_end(writer);
        }
        codec_end(writer);
    }
    put_flag(writer, "add_special", request->add_special);
    put_flag(writer, "parse_special", request->parse_special);
    put_flag(writer, "logits_hash", request->logits_hash);
}

static void put_generate(struct codec_writer *writer, const struct gpu_request *request)
{
    codec_put_i64(writer, "max_tokens", request->max_tokens);
    put_sampling(writer, &request->sampling);
    put_flag(writer, "ignore_eos", request->ignore_eos);
    put_flag(writer, "no_cache", request->no_cache);
}

static void put_request(struct codec_writer *writer, const struct gpu_request *request)
{
    codec_put_text(writer, "op", op_names[request->op]);
    if (request->op == GPU_OP_HELLO) {
        codec_put_u64(writer, "version", request->version);
        put_bytes(writer, "program", request->program);
        return;
    }
    put_input(writer, request);
    if (request->op == GPU_OP_GENERATE) {
        put_generate(writer, request);
    } else if (request->op == GPU_OP_SCORE) {
        codec_put_u64(writer, "top", request->score_top);
        codec_put_u64(writer, "from", request->score_from);
    }
}

enum status gpu_request_encode(const struct gpu_request *request, void **out_data,
                               size_t *out_bytes)
{
    struct codec_writer writer;
    const uint8_t *data = NULL;
    size_t bytes = 0;
    codec_writer_init(&writer, LIMIT_FRAME_BYTES);
    put_request(&writer, request);
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

static void get_bytes(const struct codec_map *map, const char *key, size_t bytes_max,
                      struct gpu_text *out)
{
    const uint8_t *data = NULL;
    size_t bytes = 0;
    if (codec_opt_bin(map, key, bytes_max, &data, &bytes)) {
        *out = (struct gpu_text){.text = (const char *)data, .bytes = bytes};
    }
}

static void get_real(const struct codec_map *map, const char *key, float *out)
{
    double value = 0;
    if (!codec_opt_f64(map, key, &value)) {
        return;
    }
    if (fabs(value) > FLT_MAX) { // would become infinite
        codec_reader_fail(map->reader, "sampling: a number is out of range");
        return;
    }
    *out = (float)value;
}

static void get_int(const struct codec_map *map, const char *key, int32_t *out)
{
    int64_t value = 0;
    if (!codec_opt_i64(map, key, &value)) {
        return;
    }
    if (value < INT32_MIN || value > INT32_MAX) {
        codec_reader_fail(map->reader, "sampling: a number is out of range");
        return;
    }
    *out = (int32_t)value;
}

static void get_sampling(const struct codec_map *map, struct gpu_sampling *out)
{
    struct codec_map sampling;
    if (!codec_opt_map(map, "sampling", &sampling)) {
        return;
    }
    get_real(&sampling, "temperature", &out->temperature);
    get_int(&sampling, "top_k", &out->top_k);
    get_real(&sampling, "top_p", &out->top_p);
    get_real(&sampling, "min_p", &out->min_p);
    get_real(&sampling, "repeat_penalty", &out->repeat_penalty);
    get_int(&sampling, "repeat_last_n", &out->repeat_last_n);
    get_real(&sampling, "presence_penalty", &out->presence_penalty);
    get_real(&sampling, "frequency_penalty", &out->frequency_penalty);
    out->has_seed = codec_opt_u64(&sampling, "seed", &out->seed);
}

static void get_turns(const struct codec_map *map, struct gpu_request *out)
{
    struct codec_array turns;
    if (!codec_opt_array(map, "turns", GPU_TURNS_MAX, &turns) || turns.count == 0) {
        return;
    }
    out->turns = calloc(turns.count, sizeof(*out->turns));
    if (out->turns == NULL) {
        codec_reader_fail(map->reader, "turns: out of memory");
        return;
    }
    struct codec_map turn;
    while (codec_next_map(&turns, &turn)) {
        get_bytes(&turn, "role", GPU_ROLE_BYTES_MAX, &out->turns[out->turn_count].role);
        get_bytes(&turn, "content", LIMIT_PROMPT_BYTES, &out->turns[out->turn_count].content);
        out->turn_count++;
    }
}

static void get_stop(const struct codec_map *map, struct gpu_request *out)
{
    struct codec_array stop;
    struct codec_map item;
    if (!codec_opt_array(map, "stop", LIMIT_STOP_STRINGS, &stop)) {
        return;
    }
    while (codec_next_map(&stop, &item)) {
        get_bytes(&item, "text", LIMIT_STOP_BYTES, &out->stop[out->stop_count++]);
    }
}

static void get_ids(const struct codec_map *map, struct gpu_request *out)
{
    struct gpu_text ids = {0};
    get_bytes(map, "ids", (size_t)LIMIT_CONTEXT_TOKENS * sizeof(uint32_t), &ids);
    if (ids.bytes % sizeof(uint32_t) != 0) {
        codec_reader_fail(map->reader, "ids: is not a list of 32-bit numbers");
        return;
    }
    out->ids = (struct gpu_ids){.bytes = (const uint8_t *)ids.text,
                                .count = (uint32_t)(ids.bytes / sizeof(uint32_t))};
}

static void get_request(const struct codec_map *map, struct gpu_request *out)
{
    get_bytes(map, "prompt", LIMIT_PROMPT_BYTES, &out->prompt);
    get_ids(map, out);
    get_turns(map, out);
    get_bytes(map, "session", LIMIT_SESSION_NAME_BYTES, &out->session);
    get_stop(map, out);
    get_sampling(map, &out->sampling);
    codec_opt_i64(map, "max_tokens", &out->max_tokens);
    codec_opt_bool(map, "add_special", &out->add_special);
    codec_opt_bool(map, "parse_special", &out->parse_special);
    codec_opt_bool(map, "logits_hash", &out->logits_hash);
    codec_opt_bool(map, "ignore_eos", &out->ignore_eos);
    codec_opt_bool(map, "no_cache", &out->no_cache);
    codec_opt_u32(map, "top", 0, GPU_SCORE_TOP_MAX, &out->score_top);
    codec_opt_u32(map, "from", 0, LIMIT_CONTEXT_TOKENS, &out->score_from);
    if (out->max_tokens < -1 || out->max_tokens > LIMIT_CONTEXT_TOKENS) {
        codec_reader_fail(map->reader, "max_tokens: is out of range");
    }
}

static enum gpu_op op_of(const char *name)
{
    int op = 0;
    while (op < GPU_OP_COUNT && strcmp(op_names[op], name) != 0) {
        op++;
    }
    return (enum gpu_op)op;
}

enum status gpu_request_decode(const void *data, size_t bytes, struct gpu_request *out,
                               struct reason *reason)
{
    struct codec_reader reader;
    struct codec_map map;
    char name[CODEC_KEY_BYTES_MAX];
    codec_reader_init(&reader, data, bytes, &map);
    if (!codec_get_text(&map, "op", name, sizeof(name))) {
        return codec_reader_status(&reader, reason);
    }
    enum gpu_op op = op_of(name);
    if (op == GPU_OP_COUNT) {
        return reason_set(reason, STATUS_UNSUPPORTED, "use a client of this version",
                          "request: no operation is named %s", name);
    }
    gpu_request_init(out, op);
    if (op == GPU_OP_HELLO) {
        codec_get_u32(&map, "version", 0, UINT32_MAX, &out->version);
        get_bytes(&map, "program", GPU_NAME_BYTES, &out->program);
    } else {
        get_request(&map, out);
    }
    enum status status = codec_reader_status(&reader, reason);
    if (status != STATUS_OK) {
        gpu_request_finish(out);
    }
    return status;
}
