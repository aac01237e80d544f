// SPDX-License-Identifier: Apache-2.0
// The events of one request on their way back to the app: the engine and the worker put them in,
// ipc takes them out. Everything is reserved before the first event, so putting never waits for a
// slow reader and never allocates: a generate's list holds all of its tokens; a score's is bounded,
// and the engine pauses that request while `reply_room` is too small.
// Two references, made together: ipc's (reply_drop) and the request's (request_destroy drops it);
// the last one frees. Cancelling goes through here, because the reply outlives the request.
// Threads: ipc pops; one other thread at a time puts. A mutex guards all of it (a leaf; wake is
// called without it). Never: formats messages, knows connections.
#ifndef KVTIER_GPUD_REPLY_H
#define KVTIER_GPUD_REPLY_H

#include "proto/kv_message.h"
#include "proto/limits.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct reply;

enum { REPLY_SCORE_TOP_MAX = 256 }; // logits of a score row

enum finish_reason {
    FINISH_REASON_NONE, // a request that generates nothing
    FINISH_REASON_STOP, // the model's end token or a stop string
    FINISH_REASON_LENGTH,
    FINISH_REASON_CANCELLED,
    FINISH_REASON_ERROR,
};
const char *finish_reason_name(enum finish_reason reason); // "stop", ...; "" for NONE

enum reply_event_kind {
    REPLY_EVENT_IDS,      // score, tokenize: the tokens of the text
    REPLY_EVENT_START,    // generate, score: what the context is made of
    REPLY_EVENT_PROGRESS, // of prefill: at most the latest is kept
    REPLY_EVENT_TOKEN,    // generate
    REPLY_EVENT_SCORE,    // score: one position
    REPLY_EVENT_SESSIONS, // answer to list and show
    REPLY_EVENT_SAVED,    // answer to save
    REPLY_EVENT_TEXT,     // answer to detokenize
    REPLY_EVENT_DONE,     // the last event of a request that succeeded or was cancelled
    REPLY_EVENT_ERROR,    // the last event of one that did not
};

struct reply_ids {
    const uint32_t *ids; // [count]
    uint32_t count;
    uint32_t vocab_count;
};

struct reply_start { // hot + ram + disk + computed = prompt
    uint32_t prompt_tokens;
    uint32_t hot_tokens, ram_tokens, disk_tokens; // cached
    uint32_t computed_tokens;
};

struct reply_progress { // of the prompt's tokens to compute
    uint32_t done_tokens, total_tokens;
};

struct reply_token {
    uint32_t id;
    const char *text; // whole UTF-8 characters, no NUL; joined they are the answer's text
    uint32_t text_bytes;
    bool has_logits_hash;
    uint64_t logits_hash;
};

struct reply_score {
    uint32_t position;
    uint32_t id; // the token at `position`
    double lse;  // log of the sum of exp(logits)
    uint32_t top_count;
    const uint32_t *top_ids; // [top_count], highest logit first
    const float *top_logits; // [top_count]
    bool has_next;           // false at the last position
    double next_logprob;     // log p of the text's next token
    bool has_logits_hash;
    uint64_t logits_hash;
};

struct reply_sessions {
    const struct kv_session_info *rows; // [count]
    uint32_t count;
};

struct reply_text {
    const char *text; // no NUL
    size_t bytes;
};

struct reply_done {
    enum finish_reason finish_reason;
    uint32_t completion_tokens;
    double ttft_ms;    // from accepted to the first token; 0 without one
    double prefill_ms; // from the first step of the prompt to the first token
    double decode_ms;  // from the first token to the last
    char session[LIMIT_SESSION_NAME_BYTES + 1]; // "" without one
};

struct reply_error {
    enum status status;
    struct reason reason;
};

// What its pointers point to is valid until the next reply_pop or reply_drop of the reply.
struct reply_event {
    enum reply_event_kind kind;
    union {
        struct reply_ids ids;
        struct reply_start start;
        struct reply_progress progress;
        struct reply_token token;
        struct reply_score score;
        struct reply_sessions sessions;
        struct kv_checkpoint_reply saved;
        struct reply_text text;
        struct reply_done done;
        struct reply_error error;
    };
};

// ---- ipc

// `wake(context, tag)` is called by the putting thread when events wait and the last reply_pop
// found none; it must be cheap and thread-safe, and `context` must outlive the engine and the
// worker. STATUS_NO_MEMORY.
enum status reply_create(void (*wake)(void *context, uint64_t tag), void *context, uint64_t tag,
                         struct reply **out_reply) KV_MUST_CHECK;
// The next event, in order; false when none waits now. After DONE or ERROR there is none.
bool reply_pop(struct reply *reply, struct reply_event *out_event);
// Asks for the request to end soon; its DONE (finish_reason cancelled) or ERROR still comes.
void reply_cancel(struct reply *reply);
// Gives up ipc's reference, and cancels when the request has not ended: wake is not called for
// events put after this returns. NULL is fine.
void reply_drop(struct reply *reply);

// ---- worker and engine

// What is to be held at once; taken before the first put of a TOKEN or SCORE.
struct reply_capacity {
    uint32_t item_count; // tokens, or score rows
    size_t text_bytes;   // of all tokens held
    uint32_t top_count;  // of a score row
};
enum status reply_reserve(struct reply *reply, const struct reply_capacity *capacity) KV_MUST_CHECK;
bool reply_cancelled(const struct reply *reply);
uint32_t reply_room(struct reply *reply); // TOKEN or SCORE items that can be put now

// Copies of what the event says. Putting more items or text than reserved is a mistake (assert).
void reply_put_start(struct reply *reply, const struct reply_start *start);
void reply_put_progress(struct reply *reply, const struct reply_progress *progress);
void reply_put_token(struct reply *reply, const struct reply_token *token);
void reply_put_score(struct reply *reply, const struct reply_score *score);
// Results of the worker: the memory (malloc) becomes the reply's.
void reply_give_ids(struct reply *reply, uint32_t *ids, uint32_t count, uint32_t vocab_count);
void reply_give_sessions(struct reply *reply, struct kv_session_info *rows, uint32_t count);
void reply_give_text(struct reply *reply, char *text, size_t bytes);
void reply_put_saved(struct reply *reply, const struct kv_checkpoint_reply *saved);
// The end, exactly once.
void reply_put_done(struct reply *reply, const struct reply_done *done);
void reply_put_error(struct reply *reply, enum status status, const struct reason *reason);
// Gives up the request's reference. NULL is fine.
void reply_release(struct reply *reply);

#endif
