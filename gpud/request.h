// SPDX-License-Identifier: Apache-2.0
// One request of an app on its way through gpud: ipc fills it in, the worker (session) tokenizes,
// leases and later finishes it, the engine runs it. Exactly one of them owns it at a time; ownership
// moves with the queues. Only `cancelled` is written by another thread (ipc) meanwhile.
#ifndef KVTIER_GPUD_REQUEST_H
#define KVTIER_GPUD_REQUEST_H

#include "gpud/cold_store.h"
#include "gpud/sampler.h"
#include "proto/limits.h"
#include "proto/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct reply;

enum request_kind {
    REQUEST_KIND_GENERATE,
    REQUEST_KIND_SCORE,          // logits of every position of the prompt from score_from on
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
    bool add_special; // TOKENIZE; generate always adds what the model wants at the start of a session
    char *session; // name, or NULL
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
    atomic_bool cancelled; // set by ipc when the connection ends; read by engine and worker
    struct reply *reply;   // events back to ipc; lives until ipc drops it
    uint64_t accepted_ns;  // monotonic: start of time to first token

    // ---- the run, filled in by the worker, used by the engine
    uint32_t *tokens;        // [token_capacity] context, then what is generated
    uint32_t token_count;
    uint32_t prompt_count;   // token_count before generation
    uint32_t token_capacity; // prompt + max_tokens
    uint32_t max_tokens;
    struct block_id root;
    struct cold_lease lease;
    enum status status;      // how it ended
    struct reason reason;
    struct request *next;    // in the list of whoever owns it
};

// A zeroed request, and its end: frees the input, tokens and itself (not the lease: released before).
struct request *request_create(enum request_kind kind);
void request_destroy(struct request *request);

#endif
