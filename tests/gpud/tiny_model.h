// SPDX-License-Identifier: Apache-2.0
// A `llama` model of random weights, small enough to run thousands of steps in a test, as a GGUF
// file in memory. Each matrix has the type the test asks for. Header only; one thread.
#ifndef KVTIER_TESTS_GPUD_TINY_MODEL_H
#define KVTIER_TESTS_GPUD_TINY_MODEL_H

#include "gpud/model/model_file.h"
#include "tests/check.h"

enum {
    TINY_EMBEDDING = 64,
    TINY_LAYERS = 3,
    TINY_HEADS = 4,
    TINY_KV_HEADS = 2,
    TINY_HEAD_DIM = 16,
    TINY_FEED_FORWARD = 96,
    TINY_VOCAB = 100,
    TINY_CONTEXT = 4096,
    TINY_TENSORS = 2 + 9 * TINY_LAYERS,
    TINY_ALIGNMENT = 32,
};

struct tiny_tensor {
    char name[64];
    enum tensor_type type;
    uint32_t columns, rows; // rows 0: a vector
    size_t offset;          // in the data section
    float *values;          // [rows, columns] what the stored form means exactly
};

struct tiny_model {
    uint8_t *file;
    size_t bytes, capacity;
    uint32_t tensor_count;
    struct tiny_tensor tensors[TINY_TENSORS];
    struct model_file *model;
    struct gguf_source source;
};

// ---- GGUF writer

static inline void tiny_put(struct tiny_model *tiny, const void *data, size_t bytes)
{
    if (tiny->bytes + bytes > tiny->capacity) {
        tiny->capacity = 2 * (tiny->bytes + bytes);
        tiny->file = realloc(tiny->file, tiny->capacity);
        assert_non_null(tiny->file);
    }
    memcpy(tiny->file + tiny->bytes, data, bytes);
    tiny->bytes += bytes;
}

static inline void tiny_put_u32(struct tiny_model *tiny, uint32_t value)
{
    tiny_put(tiny, &value, sizeof(value));
}

static inline void tiny_put_u64(struct tiny_model *tiny, uint64_t value)
{
    tiny_put(tiny, &value, sizeof(value));
}

static inline void tiny_put_text(struct tiny_model *tiny, const char *text)
{
    tiny_put_u64(tiny, strlen(text));
    tiny_put(tiny, text, strlen(text));
}

static inline void tiny_put_number(struct tiny_model *tiny, const char *key, uint32_t value)
{
    tiny_put_text(tiny, key);
    tiny_put_u32(tiny, GGUF_TYPE_UINT32);
    tiny_put_u32(tiny, value);
}

static inline void tiny_put_float(struct tiny_model *tiny, const char *key, float value)
{
    tiny_put_text(tiny, key);
    tiny_put_u32(tiny, GGUF_TYPE_FLOAT32);
    tiny_put(tiny, &value, sizeof(value));
}

static inline void tiny_pad(struct tiny_model *tiny)
{
    while (tiny->bytes % TINY_ALIGNMENT != 0) {
        tiny_put(tiny, "", 1);
    }
}

// ---- numbers

// Nearest f16, ties to even; |value| below 65,504.
static inline uint16_t tiny_half(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    float magnitude = value < 0 ? -value : value;
    if (magnitude < 0x1p-14f) { // denormal: units of 2^-24; adding 2^23 rounds to an integer
        volatile float shifted = magnitude * 0x1p24f + 0x1p23f;
        return sign | (uint16_t)(shifted - 0x1p23f);
    }
    uint32_t rounded = (bits & 0x7fffffff) + 0xfff + (bits >> 13 & 1);
    return sign | (uint16_t)((rounded >> 13) - (112u << 10));
}

static inline float tiny_half_value(uint16_t half)
{
    uint32_t exponent = half >> 10 & 31;
    float magnitude = exponent == 0 ? (float)(half & 1023) * 0x1p-24f : 0;
    if (exponent != 0) {
        uint32_t bits = (exponent + 112) << 23 | (uint32_t)(half & 1023) << 13;
        memcpy(&magnitude, &bits, sizeof(bits));
    }
    return half & 0x8000 ? -magnitude : magnitude;
}

// Uniform in -1..1.
static inline float tiny_random(uint64_t *seed)
{
    return (float)((int64_t)(check_random(seed) >> 40) - (1 << 23)) / (float)(1 << 23);
}

// One block of the type, of random values about `scale` large: stored form appended, meaning to
// `out`.
static inline void tiny_put_block(struct tiny_model *tiny, enum tensor_type type, float scale,
                                  uint64_t *seed, float *out)
{
    struct tensor_type_block shape = tensor_type_block(type);
    uint16_t step = tiny_half(scale / (type == TENSOR_TYPE_Q8_0 ? 127 : 8));
    uint16_t minimum = tiny_half(-scale);
    uint8_t quants[32] = {0};
    if (type == TENSOR_TYPE_F32 || type == TENSOR_TYPE_F16 || type == TENSOR_TYPE_BF16) {
        uint16_t half = tiny_half(scale * tiny_random(seed));
        float value = tiny_half_value(half);
        uint32_t bits;
        memcpy(&bits, &value, sizeof(bits));
        bits = type == TENSOR_TYPE_BF16 ? bits & 0xffff0000 : bits;
        memcpy(out, &bits, sizeof(bits));
        const void *stored = type == TENSOR_TYPE_F16    ? (const void *)&half
                             : type == TENSOR_TYPE_BF16 ? (const void *)((uint8_t *)&bits + 2)
                                                        : (const void *)&bits;
        tiny_put(tiny, stored, shape.bytes);
        return;
    }
    tiny_put(tiny, &step, sizeof(step));
    if (type == TENSOR_TYPE_Q4_1) {
        tiny_put(tiny, &minimum, sizeof(minimum));
    }
    for (int i = 0; i < 32; i++) {
        uint32_t random = (uint32_t)(check_random(seed) >> 32);
        int level = type == TENSOR_TYPE_Q8_0 ? (int)(random % 255) - 127 : (int)(random % 16);
        if (type == TENSOR_TYPE_Q8_0) {
            quants[i] = (uint8_t)level;
        } else {
            quants[i % 16] |= (uint8_t)(level << (i < 16 ? 0 : 4));
        }
        float offset = type == TENSOR_TYPE_Q4_1 ? tiny_half_value(minimum) : 0;
        out[i] =
            tiny_half_value(step) * (float)(type == TENSOR_TYPE_Q4_0 ? level - 8 : level) + offset;
    }
    tiny_put(tiny, quants, type == TENSOR_TYPE_Q8_0 ? 32 : 16);
}

// ---- the model

static inline struct tiny_tensor *tiny_add(struct tiny_model *tiny, const char *name,
                                           enum tensor_type type, uint32_t rows, uint32_t columns)
{
    struct tiny_tensor *tensor = &tiny->tensors[tiny->tensor_count++];
    snprintf(tensor->name, sizeof(tensor->name), "%s", name);
    tensor->type = type;
    tensor->rows = rows;
    tensor->columns = columns;
    return tensor;
}

static inline struct tiny_tensor *tiny_add_layer(struct tiny_model *tiny, int layer,
                                                 const char *role, enum tensor_type type,
                                                 uint32_t rows, uint32_t columns)
{
    char name[64];
    snprintf(name, sizeof(name), "blk.%d.%s.weight", layer, role);
    return tiny_add(tiny, name, type, rows, columns);
}

// types[7]: of q, k, v, o, gate, up, down; the embedding, which is also the output, is types[7].
static inline void tiny_shape(struct tiny_model *tiny, const enum tensor_type *types)
{
    const uint32_t query = TINY_HEADS * TINY_HEAD_DIM;
    const uint32_t key = TINY_KV_HEADS * TINY_HEAD_DIM;
    tiny_add(tiny, "token_embd.weight", types[7], TINY_VOCAB, TINY_EMBEDDING);
    tiny_add(tiny, "output_norm.weight", TENSOR_TYPE_F32, 0, TINY_EMBEDDING);
    for (int i = 0; i < TINY_LAYERS; i++) {
        tiny_add_layer(tiny, i, "attn_norm", TENSOR_TYPE_F32, 0, TINY_EMBEDDING);
        tiny_add_layer(tiny, i, "attn_q", types[0], query, TINY_EMBEDDING);
        tiny_add_layer(tiny, i, "attn_k", types[1], key, TINY_EMBEDDING);
        tiny_add_layer(tiny, i, "attn_v", types[2], key, TINY_EMBEDDING);
        tiny_add_layer(tiny, i, "attn_output", types[3], TINY_EMBEDDING, query);
        tiny_add_layer(tiny, i, "ffn_norm", TENSOR_TYPE_F32, 0, TINY_EMBEDDING);
        tiny_add_layer(tiny, i, "ffn_gate", types[4], TINY_FEED_FORWARD, TINY_EMBEDDING);
        tiny_add_layer(tiny, i, "ffn_up", types[5], TINY_FEED_FORWARD, TINY_EMBEDDING);
        tiny_add_layer(tiny, i, "ffn_down", types[6], TINY_EMBEDDING, TINY_FEED_FORWARD);
    }
}

static inline void tiny_put_head(struct tiny_model *tiny)
{
    tiny_put(tiny, "GGUF", 4);
    tiny_put_u32(tiny, 3);
    tiny_put_u64(tiny, tiny->tensor_count);
    tiny_put_u64(tiny, 9);
    tiny_put_text(tiny, "general.architecture");
    tiny_put_u32(tiny, GGUF_TYPE_STRING);
    tiny_put_text(tiny, "llama");
    tiny_put_number(tiny, "llama.context_length", TINY_CONTEXT);
    tiny_put_number(tiny, "llama.embedding_length", TINY_EMBEDDING);
    tiny_put_number(tiny, "llama.block_count", TINY_LAYERS);
    tiny_put_number(tiny, "llama.feed_forward_length", TINY_FEED_FORWARD);
    tiny_put_number(tiny, "llama.attention.head_count", TINY_HEADS);
    tiny_put_number(tiny, "llama.attention.head_count_kv", TINY_KV_HEADS);
    tiny_put_float(tiny, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    tiny_put_float(tiny, "llama.rope.freq_base", 10000.0f);
    size_t offset = 0;
    for (uint32_t i = 0; i < tiny->tensor_count; i++) {
        struct tiny_tensor *tensor = &tiny->tensors[i];
        uint32_t rows = tensor->rows == 0 ? 1 : tensor->rows;
        tiny_put_text(tiny, tensor->name);
        tiny_put_u32(tiny, tensor->rows == 0 ? 1 : 2);
        tiny_put_u64(tiny, tensor->columns);
        if (tensor->rows > 0) {
            tiny_put_u64(tiny, tensor->rows);
        }
        tiny_put_u32(tiny, tensor->type);
        tiny_put_u64(tiny, offset);
        offset += tensor_row_bytes(tensor->type, tensor->columns) * rows;
        offset = (offset + TINY_ALIGNMENT - 1) / TINY_ALIGNMENT * TINY_ALIGNMENT;
    }
}

static inline void tiny_put_tensor(struct tiny_model *tiny, struct tiny_tensor *tensor,
                                   uint64_t *seed)
{
    size_t count = (size_t)tensor->columns * (tensor->rows == 0 ? 1 : tensor->rows);
    uint32_t step = tensor_type_block(tensor->type).values;
    tensor->values = malloc(count * sizeof(float));
    assert_non_null(tensor->values);
    for (size_t i = 0; i < count; i += step) {
        // Large enough that positions and layers differ clearly, small enough not to saturate.
        tiny_put_block(tiny, tensor->type, tensor->rows == 0 ? 1.5f : 0.3f, seed,
                       &tensor->values[i]);
    }
    tiny_pad(tiny);
}

static inline enum status tiny_read(void *context, uint64_t offset, void *out, size_t bytes)
{
    const struct tiny_model *tiny = context;
    if (offset > tiny->bytes || bytes > tiny->bytes - offset) {
        return STATUS_DAMAGED;
    }
    memcpy(out, tiny->file + offset, bytes);
    return STATUS_OK;
}

// types: see tiny_shape. `tiny` must not move afterwards.
static inline void tiny_model_create(struct tiny_model *tiny, const enum tensor_type *types,
                                     uint64_t seed)
{
    *tiny = (struct tiny_model){0};
    tiny_shape(tiny, types);
    tiny_put_head(tiny);
    tiny_pad(tiny);
    for (uint32_t i = 0; i < tiny->tensor_count; i++) {
        tiny_put_tensor(tiny, &tiny->tensors[i], &seed);
    }
    tiny->source = (struct gguf_source){
        .name = "tiny.gguf", .bytes = tiny->bytes, .context = tiny, .read = tiny_read};
    struct reason reason = {0};
    if (model_file_open_source(&tiny->source, &tiny->model, &reason) != STATUS_OK) {
        fail_msg("%s", reason.text);
    }
}

static inline void tiny_model_destroy(struct tiny_model *tiny)
{
    model_file_close(tiny->model);
    for (uint32_t i = 0; i < tiny->tensor_count; i++) {
        free(tiny->tensors[i].values);
    }
    free(tiny->file);
}

// The meaning of a tensor by name; layer -1: not of a layer.
static inline const float *tiny_values(const struct tiny_model *tiny, int layer, const char *role)
{
    char name[64];
    if (layer < 0) {
        snprintf(name, sizeof(name), "%s.weight", role);
    } else {
        snprintf(name, sizeof(name), "blk.%d.%s.weight", layer, role);
    }
    for (uint32_t i = 0; i < tiny->tensor_count; i++) {
        if (strcmp(tiny->tensors[i].name, name) == 0) {
            return tiny->tensors[i].values;
        }
    }
    fail_msg("no tensor %s", name);
    return NULL;
}

#endif
