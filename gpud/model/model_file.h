// SPDX-License-Identifier: Apache-2.0
// A model file (GGUF) as the engine needs it: its configuration as plain numbers, its tensors with
// their roles, all checked, and one pass over the file that delivers the weights and hashes every
// byte. Nothing is loaded half: what cannot be run exactly as the file means it is refused by name
// (docs/MODELS.md). Owner: one thread while opening and loading; afterwards the object never
// changes. Never: maps the file, keeps weights, packs them.
#ifndef KVTIER_GPUD_MODEL_FILE_H
#define KVTIER_GPUD_MODEL_FILE_H

#include "gpud/model/gguf.h"
#include "proto/block.h"
#include "proto/limits.h"
#include "proto/status.h"
#include "proto/tensor_type.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    MODEL_TEXT_BYTES = 128,
    MODEL_DIGEST_BYTES = BLOCK_ID_BYTES,
    MODEL_CHUNK_BYTES = 4 << 20, // most that a load holds of the file
};

// Rotary positions, of pairs (2i, 2i+1): architecture `llama` stores Q and K permuted for that.
struct model_rope {
    uint32_t dimension_count; // the first so many of each head turn; even, <= head_dim
    double freq_base;
    bool has_factors; // the file has rope_freqs.weight (Llama 3)
    float factors[LIMIT_HEAD_DIM /
                  2]; // [dimension_count / 2] divisors of the frequencies; else all 1
};

struct model_config {
    char architecture[MODEL_TEXT_BYTES];
    char name[MODEL_TEXT_BYTES]; // general.name for people; never identity
    uint32_t vocab_count;        // rows of token_embd and output
    uint32_t context_length;     // trained
    uint32_t embedding;
    uint32_t layer_count;
    uint32_t feed_forward;
    uint32_t heads;
    uint32_t kv_heads; // divides heads
    uint32_t head_dim; // of keys and values
    struct model_rope rope;
    float rms_epsilon;
    float attention_scale; // 1 / sqrt(head_dim)
    bool tied_output;      // output is token_embd
    uint32_t group_count;
    struct kv_group groups[BLOCK_GROUP_MAX]; // format f16 as opened; the caller decides otherwise
};

// A tensor as rows of `columns` values; a vector is one row.
struct model_tensor {
    const char *name; // lives as long as the model
    enum tensor_type type;
    uint32_t columns;
    uint32_t rows;
    uint32_t row_bytes; // <= MODEL_CHUNK_BYTES
    uint64_t offset;    // from the start of the file
    uint64_t bytes;     // rows * row_bytes
};

// Indexes of tensors. Vectors (norms) are F32; matrices any type of proto/tensor_type.h.
struct model_layer {
    uint32_t attn_norm;   // [embedding]
    uint32_t attn_q;      // [heads * head_dim, embedding] = [rows, columns]
    uint32_t attn_k;      // [kv_heads * head_dim, embedding]
    uint32_t attn_v;      // [kv_heads * head_dim, embedding]
    uint32_t attn_output; // [embedding, heads * head_dim]
    uint32_t ffn_norm;    // [embedding]
    uint32_t ffn_gate;    // [feed_forward, embedding]
    uint32_t ffn_up;      // [feed_forward, embedding]
    uint32_t ffn_down;    // [embedding, feed_forward]
    uint32_t group;       // index of the KV group
    uint32_t group_layer; // position within the group
};

struct model_roots {
    uint32_t token_embd;  // [vocab, embedding]
    uint32_t output_norm; // [embedding]
    uint32_t output;      // [vocab, embedding]; = token_embd when tied
};

struct model_file;

// Reads and checks the head of the file at `path`. STATUS_NOT_FOUND, STATUS_IO, STATUS_INVALID
// (malformed), STATUS_UNSUPPORTED (named: architecture, tensor type, feature), STATUS_NO_MEMORY.
// Blocks on the disk.
enum status model_file_open(const char *path, struct model_file **out_model,
                            struct reason *reason) KV_MUST_CHECK;
// The same from any source, which must outlive the model.
enum status model_file_open_source(const struct gguf_source *source, struct model_file **out_model,
                                   struct reason *reason) KV_MUST_CHECK;
void model_file_close(struct model_file *model); // NULL is fine

// What was read, valid as long as the model; indexes must be below their counts.
const struct model_config *model_file_config(const struct model_file *model);
// The tensors of a layer below the config's count.
const struct model_layer *model_file_layer(const struct model_file *model, uint32_t layer_index);
const struct model_roots *model_file_roots(const struct model_file *model);
uint32_t model_file_tensor_count(const struct model_file *model);
const struct model_tensor *model_file_tensor(const struct model_file *model, uint32_t index);
uint64_t model_file_bytes(const struct model_file *model);          // of the whole file
const struct gguf *model_file_gguf(const struct model_file *model); // for tokenizer_create

// out [dimension_count / 2] = freq_base^(-2i / dimension_count) / factors[i], for
// kernels_rope_angles.
void model_rope_frequencies(const struct model_rope *rope, double *out);

// Takes the weights while the file is read.
struct model_sink {
    void *context;
    // `row_count` whole rows of one tensor, in GGUF form, valid during the call. Every row of every
    // tensor is delivered exactly once (rope_freqs.weight, which is in the config, is not). Failing
    // ends the load.
    enum status (*rows)(void *context, uint32_t tensor_index, uint32_t first_row,
                        uint32_t row_count, const void *bytes);
    // May be NULL.
    void (*progress)(void *context, uint64_t done_bytes, uint64_t total_bytes);
};

// Reads the whole file once, front to back: BLAKE2b-256 over every byte into out_digest
// [MODEL_DIGEST_BYTES], weights to the sink. STATUS_DAMAGED when the file is no longer the one that
// was opened (shorter, longer, another head), STATUS_IO, STATUS_NO_MEMORY, or what the sink gave.
// Blocks.
enum status model_file_load(const struct model_file *model, const struct model_sink *sink,
                            uint8_t *out_digest, struct reason *reason) KV_MUST_CHECK;

#endif
