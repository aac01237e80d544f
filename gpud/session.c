// SPDX-License-Identifier: Apache-2.0
// The history is loaded first, since what is added depends on whether there is one (BOS, space
// prefix, the chat template's start). Everything is checked here, so that the engine can rely on
// ids below the vocabulary and on tokens that fit the context.
#include "gpud/session.h"

#include "proto/block_id.h"
#include "proto/codec.h"
#include "proto/codec_reader.h"
#include "proto/os/clock.h"

#include <stdlib.h>
#include <string.h>

enum {
    SETTINGS_VERSION = 1,
    SCORE_ROWS_MAX = 1024, // of one reply at once; the engine pauses a score whose app reads slower
};

uint32_t session_piece_bytes_max(const struct tokenizer *tokenizer)
{
    size_t longest = 0;
    for (uint32_t id = 0; id < tokenizer_vocab_count(tokenizer); id++) {
        size_t bytes = 0;
        tokenizer_token_bytes(tokenizer, id, false, &bytes);
        longest = bytes > longest ? bytes : longest;
    }
    return (uint32_t)longest;
}

// ---- the history

static bool ids_valid(const uint32_t *ids, uint32_t count, uint32_t vocab_count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (ids[i] >= vocab_count) {
            return false;
        }
    }
    return true;
}

static enum status append(struct token_list *list, const uint32_t *tokens, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        enum status status = token_list_push(list, tokens[i]);
        if (status != STATUS_OK) {
            return status;
        }
    }
    return STATUS_OK;
}

static bool sampling_is_default(const struct sampling *sampling)
{
    struct sampling d;
    sampling_init(&d);
    return sampling->temperature == d.temperature && sampling->top_k == d.top_k &&
           sampling->top_p == d.top_p && sampling->min_p == d.min_p &&
           sampling->repeat_last_n == d.repeat_last_n &&
           sampling->repeat_penalty == d.repeat_penalty &&
           sampling->frequency_penalty == d.frequency_penalty &&
           sampling->presence_penalty == d.presence_penalty;
}

static bool prompt_is_empty(const struct request_input *input)
{
    return input->prompt_bytes == 0 && input->prompt_id_count == 0 && input->message_count == 0;
}

// Takes over from a checkpoint what the request did not say itself.
static enum status adopt_settings(struct request *request, const struct kv_checkpoint *checkpoint,
                                  struct reason *reason)
{
    if (checkpoint->settings_bytes == 0) {
        return STATUS_OK;
    }
    struct sampling saved;
    enum status status =
        session_settings_decode(checkpoint->settings, checkpoint->settings_bytes, &saved);
    if (status != STATUS_OK) {
        return reason_set(reason, status, "delete the session, or run the gpud that wrote it",
                          "session %s: its settings cannot be read", request->input.session);
    }
    struct sampling *sampling = &request->input.sampling;
    bool has_seed = sampling->has_seed;
    uint64_t seed = has_seed ? sampling->seed : saved.seed;
    if (request->continues && sampling_is_default(sampling)) {
        *sampling = saved;
    }
    sampling->has_seed = true;
    sampling->seed = seed;
    return STATUS_OK;
}

static enum status adopt_checkpoint(const struct session_rules *rules, struct request *request,
                                    const struct kv_checkpoint *checkpoint, struct token_list *list,
                                    struct reason *reason)
{
    if (!ids_valid(checkpoint->tokens, checkpoint->token_count, rules->vocab_count)) {
        return reason_set(reason, STATUS_DAMAGED, "delete the session",
                          "session %s: holds token ids that the model does not have",
                          request->input.session);
    }
    enum status status = adopt_settings(request, checkpoint, reason);
    if (status == STATUS_OK) {
        status = append(list, checkpoint->tokens, checkpoint->token_count);
    }
    request->session_keep = checkpoint->keep;
    return status;
}

// Appends the session's tokens, if it is there; a request without a session has no history.
static enum status load_history(const struct session_rules *rules, struct request *request,
                                struct token_list *list, struct reason *reason)
{
    const char *name = request->input.session;
    bool empty = prompt_is_empty(&request->input);
    if (name == NULL) {
        return !empty ? STATUS_OK
                      : reason_set(reason, STATUS_INVALID,
                                   "give a prompt, or a session to go on with", "prompt: is empty");
    }
    struct kv_checkpoint *checkpoint = NULL;
    enum status status = cold_store_session_get(rules->cold_store, name, request->salt,
                                                request->salt_bytes, &checkpoint, reason);
    if (status == STATUS_NOT_FOUND) {
        return !empty ? STATUS_OK
                      : reason_set(reason, STATUS_NOT_FOUND, "give a prompt to begin it",
                                   "session %s: does not exist", name);
    }
    if (status != STATUS_OK) {
        return status;
    }
    request->continues = empty;
    status = adopt_checkpoint(rules, request, checkpoint, list, reason);
    free(checkpoint);
    return status;
}

// ---- what the app gave

static enum status append_ids(const struct session_rules *rules, const struct request_input *input,
                              struct token_list *list, struct reason *reason)
{
    for (uint32_t i = 0; i < input->prompt_id_count; i++) {
        if (input->prompt_ids[i] >= rules->vocab_count) {
            return reason_set(reason, STATUS_INVALID, "use ids of this model's vocabulary",
                              "prompt ids: %u at place %u is not below %u", input->prompt_ids[i], i,
                              rules->vocab_count);
        }
    }
    return append(list, input->prompt_ids, input->prompt_id_count);
}

// Puts BOS in front of the first tokens of a conversation, where the model wants it and the text
// has not brought its own.
static enum status begin_conversation(const struct session_rules *rules, struct token_list *list)
{
    uint32_t bos = tokenizer_bos(rules->tokenizer);
    if (!tokenizer_adds_bos(rules->tokenizer) || bos == TOKENIZER_NO_TOKEN ||
        (list->count > 0 && list->tokens[0] == bos)) {
        return STATUS_OK;
    }
    enum status status = token_list_push(list, bos);
    if (status == STATUS_OK) {
        memmove(list->tokens + 1, list->tokens, (list->count - 1) * sizeof(*list->tokens));
        list->tokens[0] = bos;
    }
    return status;
}

static enum status append_text(const struct session_rules *rules, const struct request_input *input,
                               struct token_list *list, struct reason *reason)
{
    const struct tokenizer_input text = {
        .text = input->prompt,
        .bytes = input->prompt_bytes,
        .parse_special = input->parse_special,
        .continues = list->count > 0,
    };
    bool is_start = list->count == 0;
    enum status status = tokenizer_encode(rules->tokenizer, &text, list);
    if (status == STATUS_REFUSED) {
        return reason_set(reason, status, "", "prompt: %llu bytes are too long to tokenize",
                          (unsigned long long)input->prompt_bytes);
    }
    return status == STATUS_OK && is_start ? begin_conversation(rules, list) : status;
}

static enum status append_turns(const struct session_rules *rules,
                                const struct request_input *input, struct token_list *list,
                                struct reason *reason)
{
    struct chat_message *messages = calloc(input->message_count, sizeof(*messages));
    uint32_t *context = malloc(list->count * sizeof(*context) + 1); // the list may move meanwhile
    enum status status = STATUS_NO_MEMORY;
    if (messages != NULL && context != NULL) {
        for (uint32_t i = 0; i < input->message_count; i++) {
            messages[i] = (struct chat_message){.role = input->messages[i].role,
                                                .content = input->messages[i].content};
        }
        if (list->count > 0) {
            memcpy(context, list->tokens, list->count * sizeof(*context));
        }
        const struct chat_turns turns = {
            .messages = messages,
            .count = input->message_count,
            .add_generation_prompt = true,
            .context = list->count > 0 ? context : NULL,
            .context_count = list->count,
        };
        status = chat_template_encode(rules->chat, &turns, list, reason);
    }
    free(messages);
    free(context);
    return status;
}

static enum status append_input(const struct session_rules *rules, struct request *request,
                                struct token_list *list, struct reason *reason)
{
    const struct request_input *input = &request->input;
    if (input->prompt_id_count > 0) {
        return append_ids(rules, input, list, reason);
    }
    if (input->message_count > 0) {
        return append_turns(rules, input, list, reason);
    }
    return input->prompt_bytes > 0 ? append_text(rules, input, list, reason) : STATUS_OK;
}

// ---- limits

static enum status check_input(const struct request *request, struct reason *reason)
{
    const struct request_input *input = &request->input;
    for (uint32_t i = 0; i < input->stop_count; i++) {
        size_t bytes = strlen(input->stop[i]);
        if (bytes == 0 || bytes > LIMIT_STOP_BYTES) {
            return reason_set(reason, STATUS_INVALID, "", "stop: %zu bytes are not within 1 to %d",
                              bytes, LIMIT_STOP_BYTES);
        }
    }
    if (input->max_tokens < -1) {
        return reason_set(reason, STATUS_INVALID, "-1 takes all that is left of the context",
                          "max_tokens: %lld is less than -1", (long long)input->max_tokens);
    }
    if (request->kind == REQUEST_KIND_SCORE && input->session != NULL) {
        return reason_set(reason, STATUS_INVALID, "", "score: takes no session");
    }
    if (request->kind == REQUEST_KIND_SCORE && input->score_top > REPLY_SCORE_TOP_MAX) {
        return reason_set(reason, STATUS_INVALID, "", "top: %u is more than %d", input->score_top,
                          REPLY_SCORE_TOP_MAX);
    }
    return sampling_check(&input->sampling, reason);
}

static enum status check_length(const struct session_rules *rules, const struct request *request,
                                size_t token_count, struct reason *reason)
{
    size_t limit = rules->context_tokens_max;
    if (token_count == 0) {
        return reason_set(reason, STATUS_INVALID, "", "prompt: has no tokens");
    }
    if (token_count > limit) {
        return reason_set(reason, STATUS_REFUSED, "shorten it, or start gpud with --max-model-len",
                          "prompt: its %zu tokens do not fit the context of %zu", token_count,
                          limit);
    }
    if (request->kind == REQUEST_KIND_GENERATE && request->input.max_tokens != 0 &&
        token_count == limit) {
        return reason_set(
            reason, STATUS_REFUSED, "begin a new session, or start gpud with --max-model-len",
            "context: its %zu tokens leave no room for an answer in %zu", token_count, limit);
    }
    if (request->kind == REQUEST_KIND_SCORE && request->input.score_from >= token_count) {
        return reason_set(reason, STATUS_INVALID, "", "from: %u is not a position of %zu tokens",
                          request->input.score_from, token_count);
    }
    return STATUS_OK;
}

// ---- the run

static enum status reserve_reply(const struct session_rules *rules, struct request *request)
{
    struct reply_capacity capacity = {
        .item_count = request->max_tokens,
        // A byte that is no character becomes three; 16 for one that the session was cut in.
        .text_bytes = 3 * (size_t)rules->piece_bytes_max * request->max_tokens + 16,
    };
    if (request->kind == REQUEST_KIND_SCORE) {
        uint32_t rows = request->token_count - request->input.score_from;
        capacity = (struct reply_capacity){
            .item_count = rows < SCORE_ROWS_MAX ? rows : SCORE_ROWS_MAX,
            .top_count = request->input.score_top,
        };
    }
    return reply_reserve(request->reply, &capacity);
}

static uint32_t max_tokens(const struct session_rules *rules, const struct request *request,
                           uint32_t token_count)
{
    if (request->kind == REQUEST_KIND_SCORE) {
        return 0;
    }
    uint32_t left = rules->context_tokens_max - token_count;
    int64_t wanted = request->input.max_tokens;
    return wanted < 0 || wanted > left ? left : (uint32_t)wanted;
}

// Moves the list's tokens into the request, with room for what is generated.
static enum status begin_run(const struct session_rules *rules, struct request *request,
                             struct token_list *list)
{
    uint32_t token_count = (uint32_t)list->count;
    request->max_tokens = max_tokens(rules, request, token_count);
    request->token_capacity = token_count + request->max_tokens;
    uint32_t *tokens = realloc(list->tokens, request->token_capacity * sizeof(*tokens));
    if (tokens == NULL) {
        return STATUS_NO_MEMORY;
    }
    *list = (struct token_list){0};
    request->tokens = tokens;
    request->token_count = token_count;
    request->prompt_count = token_count;
    if (request->input.score_top > rules->vocab_count) {
        request->input.score_top = rules->vocab_count;
    }
    struct sampling *sampling = &request->input.sampling;
    if (!sampling->has_seed) {
        os_random(&sampling->seed, sizeof(sampling->seed));
        sampling->has_seed = true;
    }
    block_id_root(rules->name_space->fingerprint, request->salt, request->salt_bytes,
                  ATTENTION_MODE_EXACT, &request->root);
    return reserve_reply(rules, request);
}

enum status session_prepare(const struct session_rules *rules, struct request *request,
                            struct reason *reason)
{
    struct token_list list = {0};
    enum status status = check_input(request, reason);
    if (status == STATUS_OK) {
        status = load_history(rules, request, &list, reason);
    }
    if (status == STATUS_OK) {
        status = append_input(rules, request, &list, reason);
    }
    if (status == STATUS_OK) {
        status = check_length(rules, request, list.count, reason);
    }
    if (status == STATUS_OK) {
        status = begin_run(rules, request, &list);
    }
    if (status == STATUS_NO_MEMORY) {
        reason_set(reason, status, "", "request: out of memory");
    }
    token_list_finish(&list);
    return status;
}

// ---- checkpoints

enum status session_checkpoint(const struct session_rules *rules, const struct request *request,
                               struct reason *reason)
{
    void *settings = NULL;
    size_t settings_bytes = 0;
    enum status status =
        session_settings_encode(&request->input.sampling, &settings, &settings_bytes);
    if (status != STATUS_OK) {
        return reason_set(reason, status, "", "session %s: out of memory", request->input.session);
    }
    const struct kv_checkpoint checkpoint = {
        .name = request->input.session,
        .tokens = request->tokens,
        .token_count = request->token_count,
        .salt = request->salt,
        .salt_bytes = request->salt_bytes,
        .mode = ATTENTION_MODE_EXACT,
        .settings = settings,
        .settings_bytes = (uint32_t)settings_bytes,
        .keep = request->session_keep,
    };
    struct kv_checkpoint_reply reply;
    status = cold_store_checkpoint(rules->cold_store, &checkpoint, &reply, reason);
    free(settings);
    return status;
}

enum status session_save(const struct session_rules *rules, const struct request *request,
                         struct kv_checkpoint_reply *out_reply, struct reason *reason)
{
    struct kv_checkpoint *checkpoint = NULL;
    enum status status =
        cold_store_session_get(rules->cold_store, request->input.session, request->salt,
                               request->salt_bytes, &checkpoint, reason);
    if (status != STATUS_OK) {
        return status;
    }
    checkpoint->keep = true;
    checkpoint->sync = true;
    status = cold_store_checkpoint(rules->cold_store, checkpoint, out_reply, reason);
    free(checkpoint);
    return status;
}

enum status session_settings_encode(const struct sampling *sampling, void **out_data,
                                    size_t *out_bytes)
{
    struct codec_writer writer;
    codec_writer_init(&writer, LIMIT_SETTINGS_BYTES);
    codec_put_u64(&writer, "version", SETTINGS_VERSION);
    codec_put_f64(&writer, "temperature", (double)sampling->temperature);
    codec_put_i64(&writer, "top_k", sampling->top_k);
    codec_put_f64(&writer, "top_p", (double)sampling->top_p);
    codec_put_f64(&writer, "min_p", (double)sampling->min_p);
    codec_put_i64(&writer, "repeat_last_n", sampling->repeat_last_n);
    codec_put_f64(&writer, "repeat_penalty", (double)sampling->repeat_penalty);
    codec_put_f64(&writer, "frequency_penalty", (double)sampling->frequency_penalty);
    codec_put_f64(&writer, "presence_penalty", (double)sampling->presence_penalty);
    codec_put_u64(&writer, "seed", sampling->seed);
    const uint8_t *data = NULL;
    size_t bytes = 0;
    enum status status = codec_writer_finish(&writer, &data, &bytes);
    void *copy = status == STATUS_OK ? malloc(bytes) : NULL;
    if (copy != NULL) {
        memcpy(copy, data, bytes);
        *out_data = copy;
        *out_bytes = bytes;
    }
    codec_writer_free(&writer);
    return copy != NULL ? STATUS_OK : STATUS_NO_MEMORY;
}

static void get_float(const struct codec_map *map, const char *key, float *out)
{
    double value = 0;
    if (codec_get_f64(map, key, &value)) {
        *out = (float)value;
    }
}

static void get_i32(const struct codec_map *map, const char *key, int32_t *out)
{
    int64_t value = 0;
    if (codec_get_i64(map, key, &value)) {
        *out = value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : (int32_t)value;
    }
}

enum status session_settings_decode(const void *data, size_t bytes, struct sampling *out_sampling)
{
    struct codec_reader reader;
    struct codec_map map;
    uint32_t version = 0;
    struct sampling sampling = {.has_seed = true};
    codec_reader_init(&reader, data, bytes, &map);
    if (codec_get_u32(&map, "version", 1, UINT32_MAX, &version) && version != SETTINGS_VERSION) {
        return STATUS_VERSION;
    }
    get_float(&map, "temperature", &sampling.temperature);
    get_i32(&map, "top_k", &sampling.top_k);
    get_float(&map, "top_p", &sampling.top_p);
    get_float(&map, "min_p", &sampling.min_p);
    get_i32(&map, "repeat_last_n", &sampling.repeat_last_n);
    get_float(&map, "repeat_penalty", &sampling.repeat_penalty);
    get_float(&map, "frequency_penalty", &sampling.frequency_penalty);
    get_float(&map, "presence_penalty", &sampling.presence_penalty);
    codec_get_u64(&map, "seed", &sampling.seed);
    enum status status = codec_reader_status(&reader, NULL);
    if (status == STATUS_OK && sampling_check(&sampling, NULL) != STATUS_OK) {
        status = STATUS_DAMAGED;
    }
    if (status != STATUS_OK) {
        return status == STATUS_NO_MEMORY ? status : STATUS_DAMAGED;
    }
    *out_sampling = sampling;
    return STATUS_OK;
}
