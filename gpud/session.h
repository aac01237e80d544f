// SPDX-License-Identifier: Apache-2.0
// What a request's context is: the session's history from its checkpoint, then what the app gave,
// as tokens; how many more may come; and the checkpoint that is left behind. Owner: the worker
// thread; calls may block on the cold store. Never: leases, runs, decides who waits. Rules:
//  - An empty prompt goes on from where the session stopped. With sampling left at its defaults it
//    also goes on with the session's; without a seed any later request does with the session's
//    seed.
//  - Every token generated belongs to the history: the model's end token, and those that completed
//  a
//    stop string, are kept, though their text is not shown.
//  - Cancelling keeps the prompt and the tokens delivered; an error keeps the checkpoint as it was.
#ifndef KVTIER_GPUD_SESSION_H
#define KVTIER_GPUD_SESSION_H

#include "gpud/cold_store.h"
#include "gpud/model/chat_template.h"
#include "gpud/model/tokenizer.h"
#include "gpud/request.h"
#include "proto/status.h"

#include <stddef.h>
#include <stdint.h>

// What contexts are made with; all must outlive its user.
struct session_rules {
    const struct tokenizer *tokenizer;
    const struct chat_template *chat;
    const struct kv_namespace *name_space;
    struct cold_store *cold_store;
    uint32_t vocab_count;
    uint32_t context_tokens_max;
    uint32_t piece_bytes_max; // session_piece_bytes_max
};

// Longest text of one token.
uint32_t session_piece_bytes_max(const struct tokenizer *tokenizer);

// Fills in the run of a GENERATE or SCORE: tokens, counts, root, sampling; reserves the reply.
// STATUS_INVALID (no prompt, ids or settings out of range), STATUS_NOT_FOUND (empty prompt for a
// session that does not exist), STATUS_REFUSED with both numbers (longer than the context, or no
// room for one token), STATUS_UNSUPPORTED (no chat template), STATUS_MISMATCH, STATUS_NO_MEMORY,
// and what the cold store answers.
enum status session_prepare(const struct session_rules *rules, struct request *request,
                            struct reason *reason) KV_MUST_CHECK;

// After a run: the request's tokens and settings become the session's checkpoint.
enum status session_checkpoint(const struct session_rules *rules, const struct request *request,
                               struct reason *reason) KV_MUST_CHECK;

// `session save`: the checkpoint is made durable, and kept. STATUS_NOT_FOUND, STATUS_UNREACHABLE
// without kvstored, STATUS_NO_SPACE.
enum status session_save(const struct session_rules *rules, const struct request *request,
                         struct kv_checkpoint_reply *out_reply,
                         struct reason *reason) KV_MUST_CHECK;

// The blob in a checkpoint: a version and the sampling in use. *out_data is the caller's to free().
enum status session_settings_encode(const struct sampling *sampling, void **out_data,
                                    size_t *out_bytes) KV_MUST_CHECK;
// STATUS_DAMAGED, STATUS_VERSION for one of a later build.
enum status session_settings_decode(const void *data, size_t bytes,
                                    struct sampling *out_sampling) KV_MUST_CHECK;

#endif
