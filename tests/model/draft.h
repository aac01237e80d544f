// SPDX-License-Identifier: Apache-2.0
// A GGUF file in the making: a small valid `llama` model as plain values that a test may spoil
// before it is written to memory, and a gguf_source over memory that counts what is read. Header
// only; one thread.
#ifndef KVTIER_TESTS_MODEL_DRAFT_H
#define KVTIER_TESTS_MODEL_DRAFT_H

#include "gpud/model/gguf.h"
#include "tests/check.h"

enum {
    DRAFT_VALUES_MAX = 64,
    DRAFT_TENSORS_MAX = 48,
    DRAFT_LAYERS = 2,
    DRAFT_EMBEDDING = 64,
    DRAFT_HEADS = 4,
    DRAFT_KV_HEADS = 2,
    DRAFT_FEED_FORWARD = 96,
    DRAFT_TOKENS = 266,
};

struct draft_bytes {
    uint8_t *data;
    size_t bytes, capacity;
};

struct draft_value {
    char key[64];
    uint32_t type;
    struct draft_bytes body; // what follows the type
};

struct draft_tensor {
    char name[80];
    uint32_t type;
    uint32_t dimension_count;
    uint64_t dimensions[6];
    uint64_t offset, bytes; // in the data section, as laid out by draft_layout
};

struct draft {
    uint32_t magic, version;
    uint64_t tensor_count_written, value_count_written; // UINT64_MAX: the true ones
    uint64_t alignment;
    struct draft_value values[DRAFT_VALUES_MAX];
    size_t value_count;
    struct draft_tensor tensors[DRAFT_TENSORS_MAX];
    size_t tensor_count;
    uint64_t data_bytes;
};

static inline void draft_put(struct draft_bytes *out, const void *data, size_t bytes)
{
    if (out->bytes + bytes > out->capacity) {
        out->capacity = 2 * (out->bytes + bytes);
        out->data = realloc(out->data, out->capacity);
        assert_non_null(out->data);
    }
    if (bytes > 0) {
        memcpy(out->data + out->bytes, data, bytes);
    }
    out->bytes += bytes;
}

static inline void draft_put_u32(struct draft_bytes *out, uint32_t value)
{
    draft_put(out, &value, sizeof(value));
}

static inline void draft_put_u64(struct draft_bytes *out, uint64_t value)
{
    draft_put(out, &value, sizeof(value));
}

static inline void draft_put_text(struct draft_bytes *out, const char *text)
{
    draft_put_u64(out, strlen(text));
    draft_put(out, text, strlen(text));
}

// ---- metadata

// The value of `key`, emptied; a new one when there is none yet.
static inline struct draft_bytes *draft_value(struct draft *draft, const char *key, uint32_t type)
{
    struct draft_value *value = NULL;
    for (size_t i = 0; i < draft->value_count; i++) {
        if (strcmp(draft->values[i].key, key) == 0) {
            value = &draft->values[i];
        }
    }
    if (value == NULL) {
        assert_true(draft->value_count < DRAFT_VALUES_MAX);
        value = &draft->values[draft->value_count++];
        snprintf(value->key, sizeof(value->key), "%s", key);
    }
    value->type = type;
    value->body.bytes = 0;
    return &value->body;
}

static inline void draft_u32(struct draft *draft, const char *key, uint32_t value)
{
    draft_put_u32(draft_value(draft, key, GGUF_TYPE_UINT32), value);
}

static inline void draft_f32(struct draft *draft, const char *key, float value)
{
    draft_put(draft_value(draft, key, GGUF_TYPE_FLOAT32), &value, sizeof(value));
}

static inline void draft_bool(struct draft *draft, const char *key, uint8_t value)
{
    draft_put(draft_value(draft, key, GGUF_TYPE_BOOL), &value, sizeof(value));
}

static inline void draft_text(struct draft *draft, const char *key, const char *value)
{
    draft_put_text(draft_value(draft, key, GGUF_TYPE_STRING), value);
}

// The start of an array; its elements are put behind.
static inline struct draft_bytes *draft_array(struct draft *draft, const char *key,
                                              uint32_t element_type, uint64_t count)
{
    struct draft_bytes *body = draft_value(draft, key, GGUF_TYPE_ARRAY);
    draft_put_u32(body, element_type);
    draft_put_u64(body, count);
    return body;
}

static inline void draft_texts(struct draft *draft, const char *key, const char *const *texts,
                               size_t count)
{
    struct draft_bytes *body = draft_array(draft, key, GGUF_TYPE_STRING, count);
    for (size_t i = 0; i < count; i++) {
        draft_put_text(body, texts[i]);
    }
}

static inline void draft_remove(struct draft *draft, const char *key)
{
    for (size_t i = 0; i < draft->value_count; i++) {
        if (strcmp(draft->values[i].key, key) == 0) {
            free(draft->values[i].body.data);
            draft->values[i] = draft->values[--draft->value_count];
            memset(&draft->values[draft->value_count], 0, sizeof(draft->values[0]));
            return;
        }
    }
    fail_msg("no key %s", key);
}

// ---- tensors

static inline void draft_tensor(struct draft *draft, const char *name, uint32_t type,
                                uint64_t columns, uint64_t rows)
{
    struct draft_tensor *tensor = &draft->tensors[draft->tensor_count++];
    assert_true(draft->tensor_count <= DRAFT_TENSORS_MAX);
    snprintf(tensor->name, sizeof(tensor->name), "%s", name);
    tensor->type = type;
    tensor->dimension_count = rows == 0 ? 1 : 2;
    tensor->dimensions[0] = columns;
    tensor->dimensions[1] = rows;
}

static inline struct draft_tensor *draft_find(struct draft *draft, const char *name)
{
    for (size_t i = 0; i < draft->tensor_count; i++) {
        if (strcmp(draft->tensors[i].name, name) == 0) {
            return &draft->tensors[i];
        }
    }
    fail_msg("no tensor %s", name);
    return NULL;
}

static inline void draft_drop(struct draft *draft, const char *name)
{
    struct draft_tensor *tensor = draft_find(draft, name);
    size_t index = (size_t)(tensor - draft->tensors);
    memmove(tensor, tensor + 1, (draft->tensor_count - index - 1) * sizeof(*tensor));
    draft->tensor_count--;
}

// Gives every tensor its offset, one after another.
static inline void draft_layout(struct draft *draft)
{
    draft->data_bytes = 0;
    for (size_t i = 0; i < draft->tensor_count; i++) {
        struct draft_tensor *tensor = &draft->tensors[i];
        uint64_t rows = 1;
        for (uint32_t d = 1; d < tensor->dimension_count; d++) {
            rows *= tensor->dimensions[d];
        }
        tensor->offset = draft->data_bytes;
        tensor->bytes =
            tensor_row_bytes((enum tensor_type)tensor->type, tensor->dimensions[0]) * rows;
        draft->data_bytes +=
            (tensor->bytes + draft->alignment - 1) / draft->alignment * draft->alignment;
    }
}

// ---- the model

static inline void draft_vocabulary(struct draft *draft)
{
    static const char *const words[] = {"\xe2\x96\x81",
                                        "a",
                                        "b",
                                        "ab",
                                        "\xe2\x96\x81"
                                        "a",
                                        "\xe2\x96\x81"
                                        "ab",
                                        "\xc3\xa9"};
    struct draft_bytes *names =
        draft_array(draft, "tokenizer.ggml.tokens", GGUF_TYPE_STRING, DRAFT_TOKENS);
    struct draft_bytes *scores = NULL;
    static const char *const specials[] = {"<unk>", "<s>", "</s>"};
    for (int i = 0; i < DRAFT_TOKENS; i++) {
        char byte[8];
        snprintf(byte, sizeof(byte), "<0x%02X>", (i - 3) & 255);
        draft_put_text(names, i < 3 ? specials[i] : i < 259 ? byte : words[i - 259]);
    }
    scores = draft_array(draft, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, DRAFT_TOKENS);
    for (int i = 0; i < DRAFT_TOKENS; i++) {
        float score = i < 259 ? 0 : -(float)i;
        draft_put(scores, &score, sizeof(score));
    }
    struct draft_bytes *types =
        draft_array(draft, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, DRAFT_TOKENS);
    for (int i = 0; i < DRAFT_TOKENS; i++) {
        draft_put_u32(types, i == 0 ? 2 : i < 3 ? 3 : i < 259 ? 6 : 1);
    }
    draft_text(draft, "tokenizer.ggml.model", "llama");
    draft_u32(draft, "tokenizer.ggml.bos_token_id", 1);
    draft_u32(draft, "tokenizer.ggml.eos_token_id", 2);
    draft_u32(draft, "tokenizer.ggml.unknown_token_id", 0);
}

static inline void draft_layer(struct draft *draft, int layer)
{
    uint64_t head_dim = DRAFT_EMBEDDING / DRAFT_HEADS;
    const struct {
        const char *name;
        uint64_t columns, rows;
    } tensors[] = {{"attn_norm", DRAFT_EMBEDDING, 0},
                   {"attn_q", DRAFT_EMBEDDING, DRAFT_HEADS * head_dim},
                   {"attn_k", DRAFT_EMBEDDING, DRAFT_KV_HEADS * head_dim},
                   {"attn_v", DRAFT_EMBEDDING, DRAFT_KV_HEADS * head_dim},
                   {"attn_output", DRAFT_HEADS * head_dim, DRAFT_EMBEDDING},
                   {"ffn_norm", DRAFT_EMBEDDING, 0},
                   {"ffn_gate", DRAFT_EMBEDDING, DRAFT_FEED_FORWARD},
                   {"ffn_up", DRAFT_EMBEDDING, DRAFT_FEED_FORWARD},
                   {"ffn_down", DRAFT_FEED_FORWARD, DRAFT_EMBEDDING}};
    for (size_t i = 0; i < sizeof(tensors) / sizeof(tensors[0]); i++) {
        char name[64];
        snprintf(name, sizeof(name), "blk.%d.%s.weight", layer, tensors[i].name);
        draft_tensor(draft, name, tensors[i].rows == 0 ? TENSOR_TYPE_F32 : TENSOR_TYPE_Q8_0,
                     tensors[i].columns, tensors[i].rows);
    }
}

// A valid model; spoil it, then draft_write.
static inline void draft_init(struct draft *draft)
{
    memset(draft, 0, sizeof(*draft));
    draft->magic = 0x46554747;
    draft->version = 3;
    draft->tensor_count_written = UINT64_MAX;
    draft->value_count_written = UINT64_MAX;
    draft->alignment = 32;
    draft_text(draft, "general.architecture", "llama");
    draft_text(draft, "general.name", "draft");
    draft_u32(draft, "llama.context_length", 512);
    draft_u32(draft, "llama.embedding_length", DRAFT_EMBEDDING);
    draft_u32(draft, "llama.block_count", DRAFT_LAYERS);
    draft_u32(draft, "llama.feed_forward_length", DRAFT_FEED_FORWARD);
    draft_u32(draft, "llama.attention.head_count", DRAFT_HEADS);
    draft_u32(draft, "llama.attention.head_count_kv", DRAFT_KV_HEADS);
    draft_f32(draft, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    draft_f32(draft, "llama.rope.freq_base", 1e14f);
    draft_vocabulary(draft);
    draft_tensor(draft, "token_embd.weight", TENSOR_TYPE_F16, DRAFT_EMBEDDING, DRAFT_TOKENS);
    for (int layer = 0; layer < DRAFT_LAYERS; layer++) {
        draft_layer(draft, layer);
    }
    draft_tensor(draft, "output_norm.weight", TENSOR_TYPE_F32, DRAFT_EMBEDDING, 0);
    draft_tensor(draft, "output.weight", TENSOR_TYPE_Q4_1, DRAFT_EMBEDDING, DRAFT_TOKENS);
    draft_layout(draft);
}

static inline void draft_finish(struct draft *draft)
{
    for (size_t i = 0; i < draft->value_count; i++) {
        free(draft->values[i].body.data);
    }
}

// The file as bytes, to be freed; data bytes are a fixed pattern.
static inline struct draft_bytes draft_write(const struct draft *draft)
{
    struct draft_bytes out = {0};
    draft_put_u32(&out, draft->magic);
    draft_put_u32(&out, draft->version);
    bool true_tensors = draft->tensor_count_written == UINT64_MAX;
    bool true_values = draft->value_count_written == UINT64_MAX;
    draft_put_u64(&out, true_tensors ? draft->tensor_count : draft->tensor_count_written);
    draft_put_u64(&out, true_values ? draft->value_count : draft->value_count_written);
    for (size_t i = 0; i < draft->value_count; i++) {
        draft_put_text(&out, draft->values[i].key);
        draft_put_u32(&out, draft->values[i].type);
        draft_put(&out, draft->values[i].body.data, draft->values[i].body.bytes);
    }
    for (size_t i = 0; i < draft->tensor_count; i++) {
        const struct draft_tensor *tensor = &draft->tensors[i];
        draft_put_text(&out, tensor->name);
        draft_put_u32(&out, tensor->dimension_count);
        for (uint32_t d = 0; d < tensor->dimension_count && d < 6; d++) {
            draft_put_u64(&out, tensor->dimensions[d]);
        }
        draft_put_u32(&out, tensor->type);
        draft_put_u64(&out, tensor->offset);
    }
    while (out.bytes % draft->alignment != 0) {
        draft_put(&out, "", 1);
    }
    for (uint64_t i = 0; i < draft->data_bytes; i++) {
        uint8_t byte = (uint8_t)(i * 31 >> 3);
        draft_put(&out, &byte, 1);
    }
    return out;
}

// ---- reading it back

// Memory as a file; `bytes` may be lowered while it is read: a file that shrinks.
struct draft_file {
    const uint8_t *data;
    uint64_t bytes;
    uint64_t read_bytes; // in all
};

static inline enum status draft_read(void *context, uint64_t offset, void *out, size_t bytes)
{
    struct draft_file *file = context;
    if (offset > file->bytes || bytes > file->bytes - offset) {
        return STATUS_DAMAGED;
    }
    memcpy(out, file->data + offset, bytes);
    file->read_bytes += bytes;
    return STATUS_OK;
}

static inline struct gguf_source draft_source(struct draft_file *file)
{
    return (struct gguf_source){
        .name = "draft.gguf", .bytes = file->bytes, .context = file, .read = draft_read};
}

// One way to spoil a draft, and what must be said of it.
struct draft_fault {
    const char *what;
    void (*spoil)(struct draft *draft);
    enum status status;
    const char *says; // is in the reason
};

#endif
