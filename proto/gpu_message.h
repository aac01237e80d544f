// SPDX-License-Identifier: Apache-2.0
// What an app and gpud say to each other: requests one way, events the other, each one frame
// holding a msgpack map (docs/PROTOCOL.md, "gpud operations"). Decoders check every type, length
// and range once, here; what they accept is safe to use. Decoded texts and ids point into the frame
// and live as long; arrays that need memory of their own are freed by the finish function. Unknown
// fields are ignored. Pure functions, any thread.
#ifndef KVTIER_PROTO_GPU_MESSAGE_H
#define KVTIER_PROTO_GPU_MESSAGE_H

#include "proto/block.h"
#include "proto/codec.h"
#include "proto/kv_message.h"
#include "proto/limits.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    GPU_PROTOCOL_VERSION = 1,
    GPU_TURNS_MAX = 4096, // turns of one --chat request
    GPU_ROLE_BYTES_MAX = 32,
    GPU_SCORE_TOP_MAX = 256, // logits of a score row
    GPU_NAME_BYTES = 128,
};

// Bytes inside a frame, not ended by NUL; {NULL, 0} = not given.
struct gpu_text {
    const char *text;
    uint64_t bytes;
};

// Token ids as they stand in a frame: u32 little-endian, unaligned.
struct gpu_ids {
    const uint8_t *bytes; // [4 * count]
    uint32_t count;
};
uint32_t gpu_ids_get(struct gpu_ids ids, uint32_t index);
struct gpu_ids gpu_ids_of(const uint32_t *ids, uint32_t count); // points to `ids`
// The ids in memory for the caller to free(); NULL when there are none or no memory is.
uint32_t *gpu_ids_copy(struct gpu_ids ids);

enum gpu_op {
    GPU_OP_HELLO, // first frame of a connection
    GPU_OP_GENERATE,
    GPU_OP_SCORE,
    GPU_OP_SESSION_LIST,
    GPU_OP_SESSION_SHOW,
    GPU_OP_SESSION_SAVE,
    GPU_OP_SESSION_DELETE,
    GPU_OP_TOKENIZE,
    GPU_OP_DETOKENIZE,
    GPU_OP_STATUS,
    GPU_OP_COUNT
};

struct gpu_turn {
    struct gpu_text role;
    struct gpu_text content;
};

// Names and defaults of llama-server; see client/kvtier.h.
struct gpu_sampling {
    float temperature; // 0 = argmax
    int32_t top_k;
    float top_p;
    float min_p;
    float repeat_penalty;
    int32_t repeat_last_n;
    float presence_penalty;
    float frequency_penalty;
    bool has_seed;
    uint64_t seed;
};
void gpu_sampling_init(struct gpu_sampling *out); // the defaults

// Fields that an op does not use are zero and not sent.
struct gpu_request {
    enum gpu_op op;
    uint32_t version;        // HELLO
    struct gpu_text program; // HELLO: for the log

    struct gpu_text prompt; // GENERATE, SCORE, TOKENIZE: text
    struct gpu_ids ids;     // GENERATE, SCORE, DETOKENIZE: instead of text
    struct gpu_turn *turns; // GENERATE: [turn_count], instead of text
    uint32_t turn_count;
    struct gpu_text session; // GENERATE, SESSION_*: name, checked with session_name_check
    struct gpu_text stop[LIMIT_STOP_STRINGS];
    uint32_t stop_count;
    int64_t max_tokens; // -1 = all that is left
    struct gpu_sampling sampling;
    bool add_special;
    bool parse_special;
    bool logits_hash;
    bool ignore_eos;
    bool no_cache;
    uint32_t score_top;
    uint32_t score_from;
};

void gpu_request_init(struct gpu_request *request, enum gpu_op op); // defaults
void gpu_request_finish(struct gpu_request *request);               // frees turns

// A request as a frame: *out_data is the caller's to free(). STATUS_REFUSED when it is longer than
// a frame can be, STATUS_NO_MEMORY.
enum status gpu_request_encode(const struct gpu_request *request, void **out_data,
                               size_t *out_bytes) KV_MUST_CHECK;
// From bytes that may be anything and must stay while `out` is used. STATUS_INVALID,
// STATUS_UNSUPPORTED for an op this build does not know, STATUS_NO_MEMORY. `out` needs its finish
// only after STATUS_OK.
enum status gpu_request_decode(const void *data, size_t bytes, struct gpu_request *out,
                               struct reason *reason) KV_MUST_CHECK;

enum gpu_event_kind {
    GPU_EVENT_HELLO,    // answer to hello
    GPU_EVENT_START,    // generate, score: what the context is made of
    GPU_EVENT_PROGRESS, // of prefill, or of score
    GPU_EVENT_TOKEN,
    GPU_EVENT_IDS,      // score, tokenize: the tokens of the text
    GPU_EVENT_SCORE,    // one row
    GPU_EVENT_SESSIONS, // answer to list and show
    GPU_EVENT_SAVED,    // answer to save
    GPU_EVENT_TEXT,     // answer to detokenize
    GPU_EVENT_STATUS,   // answer to status
    GPU_EVENT_DONE,     // the last event of a request that succeeded or was cancelled
    GPU_EVENT_ERROR,    // the last event of one that did not
    GPU_EVENT_COUNT
};

struct gpu_hello {
    uint32_t version;
    uint64_t epoch; // of this gpud instance
    struct gpu_text program_version;
    struct gpu_text model_name;
    uint32_t context_tokens;
    uint32_t vocab_tokens;
    uint32_t block_tokens;
};

struct gpu_hits {
    uint32_t prompt_tokens;
    uint32_t hot_tokens, ram_tokens, disk_tokens; // cached
    uint32_t computed_tokens;
};

struct gpu_token {
    uint32_t id;
    struct gpu_text text; // whole characters; may be empty
    bool has_logits_hash;
    uint64_t logits_hash;
};

struct gpu_score_row {
    uint32_t position;
    uint32_t id;
    double lse;
    struct gpu_ids top_ids;
    const uint8_t *top_logits; // [4 * top_ids.count] f32 little-endian, unaligned
    bool has_next;
    double next_logprob;
    bool has_logits_hash;
    uint64_t logits_hash;
};
float gpu_score_logit(const struct gpu_score_row *row, uint32_t index);

struct gpu_done {
    struct gpu_text finish_reason; // stop, length, cancelled, error; empty where none applies
    uint32_t completion_tokens;
    double ttft_ms, prefill_ms, decode_ms;
    struct gpu_text session;
};

// Levels of gpud and, when it answers, of kvstored.
struct gpu_status {
    char model_name[GPU_NAME_BYTES];
    char architecture[GPU_NAME_BYTES];
    char fingerprint[2 * BLOCK_ID_BYTES + 1]; // hex
    char device[GPU_NAME_BYTES];
    char kernels[GPU_NAME_BYTES];
    char kv_cache_dtype[GPU_NAME_BYTES];
    uint64_t epoch, uptime_ms, process_id;
    uint32_t threads;
    uint32_t context_tokens, trained_tokens, block_tokens;
    uint64_t vram_limit_bytes; // 0 = unified, no budget
    uint64_t weight_bytes, workspace_bytes, hot_bytes, payload_bytes, anonymous_bytes;
    uint32_t hot_slot_count, hot_used_count;
    uint64_t hot_hit_count, cold_hit_count, evicted_count, recalled_count, closed_count;
    uint64_t write_through_ms;
    uint32_t sequences_max, running_count, queued_count;
    uint64_t request_count, failed_count, cancelled_count;
    uint64_t prefill_tokens, decode_tokens;
    double prefill_tokens_per_s, decode_tokens_per_s; // of late; 0 = nothing yet
    bool store_attached;
    bool has_store; // `store` holds levels: of kvstored, or of the private arena
    struct kv_status store;
};

struct gpu_event {
    enum gpu_event_kind kind;
    struct gpu_hello hello;
    struct gpu_hits start;
    uint32_t progress_done, progress_total;
    struct gpu_token token;
    struct gpu_ids ids;
    uint32_t vocab_tokens; // IDS
    struct gpu_score_row score;
    struct kv_session_list sessions;
    struct kv_checkpoint_reply saved;
    struct gpu_text text;
    struct gpu_status *status; // of the caller when encoding, taken when decoding
    struct gpu_done done;
    enum status error;
    struct reason reason;
};

void gpu_event_finish(struct gpu_event *event); // frees what decoding took

// As gpu_request_encode and gpu_request_decode.
enum status gpu_event_encode(const struct gpu_event *event, void **out_data,
                             size_t *out_bytes) KV_MUST_CHECK;
enum status gpu_event_decode(const void *data, size_t bytes, struct gpu_event *out,
                             struct reason *reason) KV_MUST_CHECK;

#endif
