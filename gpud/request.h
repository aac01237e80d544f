// SPDX-License-Identifier: Apache-2.0
// One request of an app on its way through gpud: ipc fills it in, the worker (session) tokenizes,
// leases and later finishes it, the engine runs it. Exactly one of them owns it at a time;
// ownership moves with the queues. ipc cancels through the reply, which outlives the request.
#ifndef KVTIER_GPUD_REQUEST_H
#define KVTIER_GPUD_REQUEST_H

#include "gpud/cold_store.h"
#include "gpud/reply.h"
#include "gpud/sampler.h"
#include "proto/limits.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stdint.h>

enum request_kind {
    REQUEST_KIND_GENERATE,
    REQUEST_KIND_SCORE, // logits of every position of the prompt from score_from on
    REQUEST_KIND_SESSION_LIST,
    REQUEST_KIND_SESSION_SHOW,
    REQUEST_KIND_SESSION_SAVE,
    REQUEST_KIND_SESSION_DELETE,
    REQUEST_KIND_TOKENIZE,
    REQUEST_KIND_DETOKENIZE,
};

struct request_message { // one turn of --chat
    char *role;
    char *content;
};

// What the app asked for; strings are owned by the request, may be NULL.
struct request_input {
    char *prompt; // text, prompt_bytes long, may hold NUL
    uint64_t prompt_bytes;
    uint32_t *prompt_ids; // used as they are, instead of text
    uint32_t prompt_id_count;
    struct request_message *messages; // --chat turns, instead of prompt
    uint32_t message_count;
    bool parse_special;
    bool add_special; // TOKENIZE; generate always adds what the model wants at the start of a
                      // session
    char *session;    // name, or NULL
    char *stop[LIMIT_STOP_STRINGS];
    uint32_t stop_count;
    int64_t max_tokens; // -1 = all that is left
    struct sampling sampling;
    bool logits_hash;
    bool no_cache; // no prefix hits for this request
    bool ignore_eos;
    uint32_t score_top;
    uint32_t score_from;
};

struct request {
    enum request_kind kind;
    uint64_t connection_id;
    uint8_t salt[LIMIT_SALT_BYTES]; // identity bytes of the peer: its uid
    uint32_t salt_bytes;
    struct request_input input;
    struct reply *reply;  // the request's reference: events back to ipc
    uint64_t accepted_ns; // os_clock_ns(): start of time to first token

    // ---- the run, filled in by the worker, used by the engine
    uint32_t *tokens; // [token_capacity] context, then what is generated
    uint32_t token_count;
    uint32_t prompt_count;   // token_count before generation
    uint32_t token_capacity; // prompt + max_tokens
    uint32_t max_tokens;
    bool continues;    // nothing was added to a session's history
    bool session_keep; // of the checkpoint there was: saved by the user
    struct block_id root;
    struct cold_lease lease;
    struct request *next; // in the list of whoever owns it

    // ---- how it went, filled in by the engine
    enum status status; // STATUS_OK: ended as finish_reason says
    struct reason reason;
    enum finish_reason finish_reason;
    bool session_lost;       // its session could not be written: disk full or failing
    uint64_t first_step_ns;  // os_clock_ns(); 0: none
    uint64_t first_token_ns; // the same
    uint64_t last_token_ns;
};

// A request with the defaults of INTERFACE and all else zero, NULL without memory; and its end:
// frees the input, tokens and itself, and gives up its reference to the reply (the lease was
// released before). `role`, `content`, `stop` and every other string of the input are freed one by
// one.
struct request *request_create(enum request_kind kind);
void request_destroy(struct request *request);

#endif
