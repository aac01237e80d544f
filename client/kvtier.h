// SPDX-License-Identifier: Apache-2.0
// libkvtier: talk to gpud from a C program. Open a client, ask for text, get it token by token.
//
//     struct kvtier_error error;
//     struct kvtier_client *client;
//     if (kvtier_open(NULL, &client, &error) != KVTIER_OK) { puts(error.message); return 1; }
//     struct kvtier_generate request;
//     kvtier_generate_init(&request);
//     request.prompt = "Once upon a time";
//     request.prompt_bytes = strlen(request.prompt);
//     struct kvtier_result result;
//     int status = kvtier_generate(client, &request, &result, &error);
//     ... result.text ...
//     kvtier_result_finish(&result);
//     kvtier_close(client);
//
// Rules. A client is one connection and carries one request at a time: calls on the same client
// from several threads answer KVTIER_BUSY, except kvtier_cancel, which any thread (and a signal
// handler) may call. Several clients are independent. Callbacks run in the calling thread, inside
// the call. Every function that can fail returns an enum kvtier_status and fills `error` (may be
// NULL) when it does; results are written only on success. Strings given stay the caller's; what a
// result points to belongs to the result until its finish. Text is UTF-8.
// After KVTIER_UNREACHABLE, KVTIER_CANCELLED, KVTIER_CLOSED or KVTIER_DAMAGED the connection has
// ended: the next call on the client opens a new one.
#ifndef KVTIER_H
#define KVTIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define KVTIER_API __attribute__((visibility("default")))
#else
#define KVTIER_API
#endif

// The same numbers as on the wire (docs/PROTOCOL.md); new ones may be added.
enum kvtier_status {
    KVTIER_OK = 0,
    KVTIER_INVALID = 1, // malformed or out of range
    KVTIER_NO_MEMORY = 2,
    KVTIER_NO_SPACE = 3,    // the disk or its budget is full
    KVTIER_NOT_FOUND = 4,   // no such session
    KVTIER_BUSY = 5,        // may work later: queue full, session in use, client in use
    KVTIER_REFUSED = 6,     // can never fit: the message has both numbers
    KVTIER_DAMAGED = 7,     // an answer that makes no sense
    KVTIER_UNREACHABLE = 8, // gpud is not there
    KVTIER_TIMEOUT = 9,
    KVTIER_CLOSED = 10,
    KVTIER_CANCELLED = 11, // kvtier_cancel was called
    KVTIER_VERSION_MISMATCH = 12,
    KVTIER_STALE = 13,
    KVTIER_IO = 14,
    KVTIER_EXISTS = 15,
    KVTIER_UNSUPPORTED = 16,
    KVTIER_PERMISSION = 17,
    KVTIER_MISMATCH = 18 // the session belongs to another model or format
};

struct kvtier_error {
    int status;        // enum kvtier_status
    char message[384]; // "WHAT: WHY", one line
    char hint[192];    // what to do about it; may be empty
};

// Stable lower-case name of a status, "not_found".
KVTIER_API const char *kvtier_status_name(int status);
// Of the library, "0.1.0".
KVTIER_API const char *kvtier_version(void);

struct kvtier_client;

// Connects to gpud at `url` ("ipc://..."; NULL: the running user's gpud). KVTIER_UNREACHABLE when
// none runs there.
KVTIER_API int kvtier_open(const char *url, struct kvtier_client **out_client,
                           struct kvtier_error *error);
// Ends the connection. No call may be in progress. NULL is fine.
KVTIER_API void kvtier_close(struct kvtier_client *client);
// Makes the call in progress end with KVTIER_CANCELLED soon; without one, nothing. Any thread.
// Async-signal-safe.
KVTIER_API void kvtier_cancel(struct kvtier_client *client);

// The daemon behind the connection. Strings live as long as the client.
struct kvtier_info {
    const char *model_name;
    uint32_t context_tokens; // longest prompt plus answer
    uint32_t vocab_tokens;
    uint32_t block_tokens;
    uint64_t epoch; // differs after a restart of gpud
};
KVTIER_API void kvtier_info(const struct kvtier_client *client, struct kvtier_info *out_info);

// ---- generate

// llama-server's names, order and defaults. temperature 0 = the most likely token, always.
struct kvtier_sampling {
    float temperature;       // 0.8
    int32_t top_k;           // 40; 0 = off
    float top_p;             // 0.95; 1 = off
    float min_p;             // 0.05; 0 = off
    float repeat_penalty;    // 1 = off
    int32_t repeat_last_n;   // 64; 0 = off, -1 = the whole context
    float presence_penalty;  // 0 = off
    float frequency_penalty; // 0 = off
    bool has_seed;           // false: a random one
    uint64_t seed;
};

struct kvtier_turn {  // of a conversation
    const char *role; // "system", "user", "assistant"
    const char *content;
};

// What the context is made of, known before the first token. cached + computed = prompt.
struct kvtier_start {
    uint32_t prompt_tokens; // the whole context before generation, session history included
    uint32_t cached_tokens; // of these, found in a tier = hot + ram + disk
    uint32_t cached_hot_tokens, cached_ram_tokens, cached_disk_tokens;
    uint32_t computed_tokens;
};

struct kvtier_token {
    uint32_t id;
    const char *text; // NUL-ended, whole UTF-8 characters; empty while one is incomplete
    size_t text_bytes;
    bool has_logits_hash;
    uint64_t logits_hash; // XXH3-64 of the float32 logits the token was chosen from
};

// Any of them may be NULL. `context` is handed to each.
struct kvtier_generate_events {
    void *context;
    void (*start)(void *context, const struct kvtier_start *start);
    // Prompt tokens computed so far, of those to compute.
    void (*progress)(void *context, uint32_t done_tokens, uint32_t total_tokens);
    void (*token)(void *context, const struct kvtier_token *token);
};

struct kvtier_generate {
    // One of: text, token ids used as they are, or turns. An empty prompt with a session goes on
    // from where the session stopped.
    const char *prompt;
    size_t prompt_bytes;
    const uint32_t *prompt_ids; // [prompt_id_count]
    size_t prompt_id_count;
    const struct kvtier_turn *turns; // [turn_count], through the model's chat template
    size_t turn_count;
    const char *session;     // grows by prompt and answer; NULL: nothing is kept by name
    const char *const *stop; // [stop_count] texts that end the answer
    size_t stop_count;
    int64_t max_tokens; // 2048, at most what is left of the context; -1 = all that is left
    struct kvtier_sampling sampling;
    bool parse_special; // texts of special tokens in the prompt become these tokens
    bool logits_hash;   // fill kvtier_token.logits_hash
    bool ignore_eos;    // go on after the model's end token
    bool no_cache;      // compute the whole prompt
    struct kvtier_generate_events events;
};

struct kvtier_result {
    const char *finish_reason; // "stop", "length", "cancelled" or "error"; static
    char *text;                // NUL-ended, all of the answer
    size_t text_bytes;
    uint32_t *token_ids; // [completion_tokens]
    uint32_t completion_tokens;
    struct kvtier_start start;
    double ttft_ms;             // from gpud taking the request to the first token
    double prefill_ms;          // computing the prompt
    double decode_ms;           // from the first token to the last
    double decode_tokens_per_s; // 0 with fewer than two tokens
    char session[129];          // its name, or empty
};

// Fills in the defaults.
KVTIER_API void kvtier_generate_init(struct kvtier_generate *request);
// Blocks until the answer is complete. On KVTIER_CANCELLED nothing is written to out_result.
KVTIER_API int kvtier_generate(struct kvtier_client *client, const struct kvtier_generate *request,
                               struct kvtier_result *out_result, struct kvtier_error *error);
// Frees what a result points to; zeroed memory is fine.
KVTIER_API void kvtier_result_finish(struct kvtier_result *result);

// ---- score: teacher-forced logits of a text

struct kvtier_score_entry {
    uint32_t id;
    float logit;
};

struct kvtier_score_row {
    uint32_t position;
    uint32_t id;                          // of the token at `position`
    double lse;                           // log of the sum of exp(logits) after this token
    const struct kvtier_score_entry *top; // [top_count] highest, best first
    uint32_t top_count;
    bool has_next;       // false at the last position
    double next_logprob; // of the token that follows in the text
    bool has_logits_hash;
    uint64_t logits_hash;
};

struct kvtier_score {
    const char *text; // or ids
    size_t text_bytes;
    const uint32_t *ids;
    size_t id_count;
    uint32_t top;  // logits to return a row; at most 256
    uint32_t from; // first position to return
    bool logits_hash;
    bool parse_special;
    void *context;
    // The tokens scored, once, before the rows. May be NULL.
    void (*ids_event)(void *context, const uint32_t *ids, uint32_t count, uint32_t vocab_tokens);
    void (*progress)(void *context, uint32_t done_tokens, uint32_t total_tokens); // may be NULL
    void (*row)(void *context, const struct kvtier_score_row *row);
};

struct kvtier_score_result {
    uint32_t tokens;   // positions with a next token among the rows
    double mean_nll;   // of these, natural logarithm
    double perplexity; // exp(mean_nll)
};

// Blocks until the last row was given to `row`.
KVTIER_API int kvtier_score(struct kvtier_client *client, const struct kvtier_score *request,
                            struct kvtier_score_result *out_result, struct kvtier_error *error);

// ---- sessions

struct kvtier_session {
    char name[129];
    uint32_t tokens;
    uint32_t blocks, ram_blocks, disk_blocks;
    uint64_t payload_bytes;          // KV of its blocks
    uint64_t created_ms, updated_ms; // Unix
    bool kept;                       // saved by the user: routine caching never evicts it
};

struct kvtier_save {
    uint32_t blocks;         // whole blocks of the session
    uint32_t durable_blocks; // of these on disk
    uint64_t written_bytes;  // by this call
};

// *out_sessions [*out_count] for kvtier_sessions_free; NULL when there are none.
KVTIER_API int kvtier_session_list(struct kvtier_client *client,
                                   struct kvtier_session **out_sessions, size_t *out_count,
                                   struct kvtier_error *error);
KVTIER_API void kvtier_sessions_free(struct kvtier_session *sessions);
KVTIER_API int kvtier_session_show(struct kvtier_client *client, const char *name,
                                   struct kvtier_session *out_session, struct kvtier_error *error);
// Answers when the session is durable.
KVTIER_API int kvtier_session_save(struct kvtier_client *client, const char *name,
                                   struct kvtier_save *out_save, struct kvtier_error *error);
KVTIER_API int kvtier_session_delete(struct kvtier_client *client, const char *name,
                                     struct kvtier_error *error);

// ---- tokens

// *out_ids [*out_count] for kvtier_free.
KVTIER_API int kvtier_tokenize(struct kvtier_client *client, const char *text, size_t text_bytes,
                               unsigned flags, uint32_t **out_ids, size_t *out_count,
                               struct kvtier_error *error);
enum { KVTIER_ADD_SPECIAL = 1, KVTIER_PARSE_SPECIAL = 2 };
// *out_text, NUL-ended, for kvtier_free.
KVTIER_API int kvtier_detokenize(struct kvtier_client *client, const uint32_t *ids, size_t count,
                                 char **out_text, size_t *out_bytes, struct kvtier_error *error);
KVTIER_API void kvtier_free(void *memory);

#ifdef __cplusplus
}
#endif

#endif
