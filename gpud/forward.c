// SPDX-License-Identifier: Apache-2.0
// The layers of architecture `llama` over one batch of rows. Read forward_step from top to bottom:
// it is the model. E = embedding, H = query heads, G = KV heads, D = head_dim, F = feed_forward, R
// = rows.
#include "gpud/forward.h"

#include "gpud/attention.h"
#include "gpud/weights.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

// Activations of one step, all in one allocation.
struct activations {
    float *x;        // [R, E] residual stream
    float *normed;   // [R, E]
    float *q;        // [R, H, D]
    float *k, *v;    // [R, G, D]
    float *attended; // [R, H, D]
    float *gate;     // [R, F]
    float *up;       // [R, F]
    float *added;    // [R, E] what a sub-layer adds to x
    float *angles;   // [R, rope pairs, 2]
    float *last;     // [logit rows, E] rows that get logits
    float *logits;   // [logit rows, vocab]
};

struct forward {
    const struct model_config *config; // the model's
    const struct model_file *model;
    struct forward_options options;
    struct kernels *kernels;
    struct weights weights;
    struct attention_batch batch;
    double *rope_frequencies; // [rope pairs]
    uint32_t rope_pairs;
    uint32_t *tokens; // [batch_tokens_max] of the step
    void *memory;     // of activations
    uint64_t activation_bytes;
    struct activations activations;
};

// ---- creation

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static enum status create_kernels(struct forward *forward, struct reason *reason)
{
    const struct model_config *config = forward->config;
    const struct forward_options *options = &forward->options;
    const struct kernels_options kernels_options = {
        .set = options->kernel_set,
        .thread_count = options->thread_count,
        .row_count_max = options->batch_tokens_max,
        .column_count_max = larger(larger(config->embedding, config->feed_forward),
                                   config->heads * config->head_dim),
        .heads_max = config->heads,
        .head_dim_max = config->head_dim,
        .block_tokens = options->block_tokens,
        .block_count_max = (options->context_tokens_max - 1) / options->block_tokens + 1,
    };
    return kernels_create(&kernels_options, &forward->kernels, reason);
}

// One buffer of the step: where its address goes and how many floats it holds.
struct buffer {
    float **address;
    uint64_t count;
};

static enum status create_activations(struct forward *forward)
{
    const struct model_config *config = forward->config;
    struct activations *a = &forward->activations;
    uint64_t rows = forward->options.batch_tokens_max;
    uint64_t logit_rows = forward->options.logit_rows_max;
    uint64_t query = (uint64_t)config->heads * config->head_dim;
    uint64_t key = (uint64_t)config->kv_heads * config->head_dim;
    const struct buffer buffers[] = {
        {&a->x, rows * config->embedding},
        {&a->normed, rows * config->embedding},
        {&a->q, rows * query},
        {&a->k, rows * key},
        {&a->v, rows * key},
        {&a->attended, rows * query},
        {&a->gate, rows * config->feed_forward},
        {&a->up, rows * config->feed_forward},
        {&a->added, rows * config->embedding},
        {&a->angles, rows * forward->rope_pairs * 2},
        {&a->last, logit_rows * config->embedding},
        {&a->logits, logit_rows * config->vocab_count},
    };
    enum { ALIGNMENT = 64 / sizeof(float), BUFFER_COUNT = sizeof(buffers) / sizeof(*buffers) };
    uint64_t total = 0;
    for (int i = 0; i < BUFFER_COUNT; i++) {
        total += (buffers[i].count + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    float *next = aligned_alloc(64, total * sizeof(float));
    if (next == NULL) {
        return STATUS_NO_MEMORY;
    }
    forward->memory = next;
    forward->activation_bytes = total * sizeof(float);
    for (int i = 0; i < BUFFER_COUNT; i++) {
        *buffers[i].address = next;
        next += (buffers[i].count + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return STATUS_OK;
}

static enum status create_workspace(struct forward *forward)
{
    const struct model_config *config = forward->config;
    const struct attention_options attention = {
        .heads = config->heads,
        .group_count = config->group_count,
        .groups = config->groups,
        .block_tokens = forward->options.block_tokens,
        .scale = config->attention_scale,
        .sequence_count_max = forward->options.batch_tokens_max,
    };
    forward->rope_pairs = config->rope.dimension_count / 2;
    forward->rope_frequencies = calloc(forward->rope_pairs + 1, sizeof(double));
    forward->tokens = calloc(forward->options.batch_tokens_max, sizeof(*forward->tokens));
    if (forward->rope_frequencies == NULL || forward->tokens == NULL) {
        return STATUS_NO_MEMORY;
    }
    model_rope_frequencies(&config->rope, forward->rope_frequencies);
    enum status status = attention_batch_init(&forward->batch, &attention);
    return status == STATUS_OK ? create_activations(forward) : status;
}

enum status forward_create(const struct forward_options *options, struct forward **out_forward,
                           uint8_t *out_digest, struct reason *reason)
{
    struct forward *forward = calloc(1, sizeof(*forward));
    if (forward == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "model: out of memory");
    }
    forward->options = *options;
    forward->model = options->model;
    forward->config = model_file_config(options->model);
    const struct weights_progress progress = {options->progress, options->progress_context};
    enum status status = create_workspace(forward);
    if (status == STATUS_NO_MEMORY) {
        reason_set(reason, status, "give a smaller --max-num-batched-tokens",
                   "model: workspace for %u tokens a step could not be had",
                   options->batch_tokens_max);
    }
    if (status == STATUS_OK) {
        status = create_kernels(forward, reason);
    }
    if (status == STATUS_OK) {
        status = weights_load(&forward->weights, forward->kernels, options->model, &progress,
                              out_digest, reason);
    }
    if (status != STATUS_OK) {
        forward_destroy(forward);
        return status;
    }
    *out_forward = forward;
    return STATUS_OK;
}

void forward_destroy(struct forward *forward)
{
    if (forward == NULL) {
        return;
    }
    weights_unload(&forward->weights);
    kernels_destroy(forward->kernels);
    attention_batch_finish(&forward->batch);
    free(forward->rope_frequencies);
    free(forward->tokens);
    free(forward->memory);
    free(forward);
}

uint64_t forward_weight_bytes(const struct forward *forward)
{
    return forward->weights.bytes;
}

uint64_t forward_workspace_bytes(const struct forward *forward)
{
    return forward->activation_bytes + kernels_workspace_bytes(forward->kernels);
}

enum kernel_set forward_kernel_set(const struct forward *forward)
{
    return kernels_set(forward->kernels);
}

// ---- one step

// Lays the spans out as rows: tokens, angles and sequences. Returns the number of rows.
static uint32_t step_rows(struct forward *forward, const struct forward_span *spans,
                          uint32_t span_count)
{
    uint32_t rows = 0;
    attention_batch_clear(&forward->batch);
    for (uint32_t s = 0; s < span_count; s++) {
        const struct forward_span *span = &spans[s];
        assert(span->token_count <= forward->options.batch_tokens_max - rows);
        memcpy(&forward->tokens[rows], span->tokens, span->token_count * sizeof(*span->tokens));
        for (uint32_t i = 0; i < span->token_count; i++) {
            kernels_rope_angles(
                span->first_position + i, forward->rope_frequencies, forward->rope_pairs,
                forward->activations.angles + (size_t)(rows + i) * forward->rope_pairs * 2);
        }
        attention_batch_add(&forward->batch, span->sequence, span->first_position,
                            span->token_count);
        rows += span->token_count;
    }
    return rows;
}

// x += attention of the layer's input.
static void attention_sublayer(struct forward *forward, uint32_t layer_index, uint32_t rows)
{
    const struct model_config *config = forward->config;
    const struct model_layer *place = model_file_layer(forward->model, layer_index);
    const struct weights_layer *layer = &forward->weights.layers[layer_index];
    struct kernels *kernels = forward->kernels;
    struct activations *a = &forward->activations;

    kernels_rms_norm(kernels, a->x, layer->attn_norm, rows, config->embedding, config->rms_epsilon,
                     a->normed);
    kernels_matmul(kernels, (const struct matrix *[]){layer->q, layer->k, layer->v}, 3, a->normed,
                   rows, (float *[]){a->q, a->k, a->v});
    kernels_rope(kernels, a->q, rows, config->heads, config->head_dim, a->angles,
                 forward->rope_pairs, ROPE_KIND_NORMAL);
    kernels_rope(kernels, a->k, rows, config->kv_heads, config->head_dim, a->angles,
                 forward->rope_pairs, ROPE_KIND_NORMAL);
    attention_layer(&forward->batch, kernels, place->group, place->group_layer,
                    &(struct attention_rows){a->q, a->k, a->v, a->attended});
    kernels_matmul(kernels, &layer->o, 1, a->attended, rows, &a->added);
    kernels_add(kernels, a->x, a->added, (size_t)rows * config->embedding);
}

// x += feed-forward network of x.
static void feed_forward_sublayer(struct forward *forward, uint32_t layer_index, uint32_t rows)
{
    const struct model_config *config = forward->config;
    const struct weights_layer *layer = &forward->weights.layers[layer_index];
    struct kernels *kernels = forward->kernels;
    struct activations *a = &forward->activations;

    kernels_rms_norm(kernels, a->x, layer->ffn_norm, rows, config->embedding, config->rms_epsilon,
                     a->normed);
    kernels_matmul(kernels, (const struct matrix *[]){layer->gate, layer->up}, 2, a->normed, rows,
                   (float *[]){a->gate, a->up});
    kernels_silu_mul(kernels, a->gate, a->up, (size_t)rows * config->feed_forward, a->gate);
    kernels_matmul(kernels, &layer->down, 1, a->gate, rows, &a->added);
    kernels_add(kernels, a->x, a->added, (size_t)rows * config->embedding);
}

// Collects the rows that want logits into activations.last; returns their number.
static uint32_t gather_logit_rows(struct forward *forward, const struct forward_span *spans,
                                  uint32_t span_count)
{
    size_t embedding = forward->config->embedding;
    uint32_t row = 0;
    uint32_t gathered = 0;
    for (uint32_t s = 0; s < span_count; s++) {
        uint32_t end = row + spans[s].token_count;
        uint32_t first = spans[s].logits == FORWARD_LOGITS_ALL    ? row
                         : spans[s].logits == FORWARD_LOGITS_LAST ? end - 1
                                                                  : end;
        assert(end - first <= forward->options.logit_rows_max - gathered);
        memcpy(forward->activations.last + gathered * embedding,
               forward->activations.x + first * embedding,
               (end - first) * embedding * sizeof(float));
        gathered += end - first;
        row = end;
    }
    return gathered;
}

enum status forward_step(struct forward *forward, const struct forward_span *spans,
                         uint32_t span_count, bool (*cancelled)(void *context), void *context,
                         const float **out_logits)
{
    const struct model_config *config = forward->config;
    struct kernels *kernels = forward->kernels;
    struct activations *a = &forward->activations;
    uint32_t rows = step_rows(forward, spans, span_count);

    kernels_embed(kernels, forward->weights.token_embd, forward->tokens, rows, a->x);
    for (uint32_t layer = 0; layer < config->layer_count; layer++) {
        if (cancelled != NULL && cancelled(context)) {
            return STATUS_CANCELLED;
        }
        attention_sublayer(forward, layer, rows);
        feed_forward_sublayer(forward, layer, rows);
    }
    uint32_t logit_rows = gather_logit_rows(forward, spans, span_count);
    if (logit_rows > 0) {
        kernels_rms_norm(kernels, a->last, forward->weights.output_norm, logit_rows,
                         config->embedding, config->rms_epsilon, a->last);
        kernels_matmul(kernels, &forward->weights.output, 1, a->last, logit_rows, &a->logits);
    }
    *out_logits = a->logits;
    return STATUS_OK;
}
