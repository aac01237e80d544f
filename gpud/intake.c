// SPDX-License-Identifier: Apache-2.0
// Copies stop at the first thing that is wrong; what was copied is freed with the request.
#include "gpud/intake.h"

#include <stdlib.h>
#include <string.h>

static enum status copy_text(struct gpu_text from, char **out)
{
    if (from.text == NULL) {
        return STATUS_OK;
    }
    *out = malloc(from.bytes + 1);
    if (*out == NULL) {
        return STATUS_NO_MEMORY;
    }
    memcpy(*out, from.text, from.bytes);
    (*out)[from.bytes] = 0;
    return STATUS_OK;
}

// A C string: no NUL inside.
static enum status copy_word(const char *what, struct gpu_text from, char **out,
                             struct reason *reason)
{
    if (from.text != NULL && memchr(from.text, 0, from.bytes) != NULL) {
        return reason_set(reason, STATUS_INVALID, "", "%s: holds a NUL", what);
    }
    enum status status = copy_text(from, out);
    return status == STATUS_OK ? status : reason_set(reason, status, "", "%s: out of memory", what);
}

static enum status copy_turns(const struct gpu_request *from, struct request_input *out,
                              struct reason *reason)
{
    if (from->turn_count == 0) {
        return STATUS_OK;
    }
    out->messages = calloc(from->turn_count, sizeof(*out->messages));
    if (out->messages == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "chat: out of memory");
    }
    enum status status = STATUS_OK;
    while (status == STATUS_OK && out->message_count < from->turn_count) {
        const struct gpu_turn *turn = &from->turns[out->message_count];
        struct request_message *message = &out->messages[out->message_count++];
        status = copy_word("role", turn->role, &message->role, reason);
        if (status == STATUS_OK) {
            status = copy_word("message", turn->content, &message->content, reason);
        }
        if (status == STATUS_OK && (message->role == NULL || message->content == NULL)) {
            status = reason_set(reason, STATUS_INVALID, "", "chat: a turn lacks role or content");
        }
    }
    return status;
}

static enum status copy_stop(const struct gpu_request *from, struct request_input *out,
                             struct reason *reason)
{
    enum status status = STATUS_OK;
    while (status == STATUS_OK && out->stop_count < from->stop_count) {
        struct gpu_text stop = from->stop[out->stop_count];
        if (stop.bytes == 0) {
            return reason_set(reason, STATUS_INVALID, "", "stop: is empty");
        }
        status = copy_word("stop", stop, &out->stop[out->stop_count++], reason);
    }
    return status;
}

static struct sampling sampling_of(const struct gpu_sampling *from)
{
    struct sampling out;
    sampling_init(&out);
    out.temperature = from->temperature;
    out.top_k = from->top_k;
    out.top_p = from->top_p;
    out.min_p = from->min_p;
    out.repeat_penalty = from->repeat_penalty;
    out.repeat_last_n = from->repeat_last_n;
    out.presence_penalty = from->presence_penalty;
    out.frequency_penalty = from->frequency_penalty;
    out.has_seed = from->has_seed;
    out.seed = from->seed;
    return out;
}

static enum status copy_session(const struct gpu_request *from, struct request *request,
                                struct reason *reason)
{
    bool needed = request->kind == REQUEST_KIND_SESSION_SHOW ||
                  request->kind == REQUEST_KIND_SESSION_SAVE ||
                  request->kind == REQUEST_KIND_SESSION_DELETE;
    enum status status = copy_word("session", from->session, &request->input.session, reason);
    if (status == STATUS_OK && request->input.session != NULL) {
        return session_name_check(request->input.session, reason);
    }
    if (status == STATUS_OK && needed) {
        return reason_set(reason, STATUS_INVALID, "name one", "session: no name was given");
    }
    return status;
}

static enum status copy_input(const struct gpu_request *from, struct request *request,
                              struct reason *reason)
{
    struct request_input *out = &request->input;
    out->prompt_bytes = from->prompt.bytes;
    out->prompt_id_count = from->ids.count;
    out->prompt_ids = gpu_ids_copy(from->ids);
    out->max_tokens = from->max_tokens;
    out->sampling = sampling_of(&from->sampling);
    out->add_special = from->add_special;
    out->parse_special = from->parse_special;
    out->logits_hash = from->logits_hash;
    out->ignore_eos = from->ignore_eos;
    out->no_cache = from->no_cache;
    out->score_top = from->score_top;
    out->score_from = from->score_from;
    enum status status = copy_text(from->prompt, &out->prompt);
    if (status != STATUS_OK || (from->ids.count > 0 && out->prompt_ids == NULL)) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "prompt: out of memory");
    }
    status = copy_turns(from, out, reason);
    if (status == STATUS_OK) {
        status = copy_stop(from, out, reason);
    }
    return status == STATUS_OK ? copy_session(from, request, reason) : status;
}

static enum request_kind kind_of(enum gpu_op op)
{
    static const enum request_kind kinds[GPU_OP_COUNT] = {
        [GPU_OP_GENERATE] = REQUEST_KIND_GENERATE,
        [GPU_OP_SCORE] = REQUEST_KIND_SCORE,
        [GPU_OP_SESSION_LIST] = REQUEST_KIND_SESSION_LIST,
        [GPU_OP_SESSION_SHOW] = REQUEST_KIND_SESSION_SHOW,
        [GPU_OP_SESSION_SAVE] = REQUEST_KIND_SESSION_SAVE,
        [GPU_OP_SESSION_DELETE] = REQUEST_KIND_SESSION_DELETE,
        [GPU_OP_TOKENIZE] = REQUEST_KIND_TOKENIZE,
        [GPU_OP_DETOKENIZE] = REQUEST_KIND_DETOKENIZE,
    };
    return kinds[op];
}

// The user's identity: the peer's uid, little-endian.
static void set_identity(struct request *request, uint64_t user_id)
{
    for (uint32_t i = 0; i < sizeof(user_id); i++) {
        request->salt[i] = (uint8_t)(user_id >> (8 * i));
    }
    request->salt_bytes = sizeof(user_id);
}

enum status intake_request(const struct gpu_request *message, uint64_t user_id,
                           struct request **out_request, struct reason *reason)
{
    struct request *request = request_create(kind_of(message->op));
    if (request == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "request: out of memory");
    }
    set_identity(request, user_id);
    enum status status = copy_input(message, request, reason);
    if (status != STATUS_OK) {
        request_destroy(request);
        return status;
    }
    *out_request = request;
    return STATUS_OK;
}
