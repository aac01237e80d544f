// SPDX-License-Identifier: Apache-2.0
// Packs the tensors of a model file as they are delivered. Storage is by tensor index, so that a
// tensor used in two roles (a tied output) exists once; roles are pointers into it.
#include "gpud/weights.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static enum status matrix_reserve(struct weights *weights, struct kernels *kernels,
                                  const struct model_file *model, uint32_t index)
{
    if (weights->matrices[index] != NULL) {
        return STATUS_OK;
    }
    const struct model_tensor *tensor = model_file_tensor(model, index);
    enum status status = matrix_create(kernels, tensor->type, tensor->rows, tensor->columns,
                                       &weights->matrices[index]);
    if (status == STATUS_OK) {
        weights->bytes += matrix_bytes(weights->matrices[index]);
    }
    return status;
}

static enum status vector_reserve(struct weights *weights, const struct model_file *model,
                                  uint32_t index)
{
    const struct model_tensor *tensor = model_file_tensor(model, index);
    assert(tensor->type == TENSOR_TYPE_F32 && tensor->rows == 1);
    if (weights->vectors[index] == NULL) {
        weights->vectors[index] = malloc(tensor->bytes);
        weights->bytes += tensor->bytes;
    }
    return weights->vectors[index] != NULL ? STATUS_OK : STATUS_NO_MEMORY;
}

static enum status layer_reserve(struct weights *weights, struct kernels *kernels,
                                 const struct model_file *model, uint32_t layer_index)
{
    const struct model_layer *layer = model_file_layer(model, layer_index);
    const uint32_t matrices[] = {layer->attn_q,   layer->attn_k, layer->attn_v,  layer->attn_output,
                                 layer->ffn_gate, layer->ffn_up, layer->ffn_down};
    enum status status = vector_reserve(weights, model, layer->attn_norm);
    if (status == STATUS_OK) {
        status = vector_reserve(weights, model, layer->ffn_norm);
    }
    for (size_t i = 0; i < sizeof(matrices) / sizeof(*matrices) && status == STATUS_OK; i++) {
        status = matrix_reserve(weights, kernels, model, matrices[i]);
    }
    weights->layers[layer_index] = (struct weights_layer){
        .attn_norm = weights->vectors[layer->attn_norm],
        .ffn_norm = weights->vectors[layer->ffn_norm],
        .q = weights->matrices[layer->attn_q],
        .k = weights->matrices[layer->attn_k],
        .v = weights->matrices[layer->attn_v],
        .o = weights->matrices[layer->attn_output],
        .gate = weights->matrices[layer->ffn_gate],
        .up = weights->matrices[layer->ffn_up],
        .down = weights->matrices[layer->ffn_down],
    };
    return status;
}

// Memory for every tensor that has a role.
static enum status weights_reserve(struct weights *weights, struct kernels *kernels,
                                   const struct model_file *model)
{
    uint32_t layer_count = model_file_config(model)->layer_count;
    const struct model_roots *roots = model_file_roots(model);
    weights->tensor_count = model_file_tensor_count(model);
    weights->matrices = calloc(weights->tensor_count, sizeof(*weights->matrices));
    weights->vectors = calloc(weights->tensor_count, sizeof(*weights->vectors));
    weights->layers = calloc(layer_count, sizeof(*weights->layers));
    if (weights->matrices == NULL || weights->vectors == NULL || weights->layers == NULL) {
        return STATUS_NO_MEMORY;
    }
    enum status status = matrix_reserve(weights, kernels, model, roots->token_embd);
    if (status == STATUS_OK) {
        status = matrix_reserve(weights, kernels, model, roots->output);
    }
    if (status == STATUS_OK) {
        status = vector_reserve(weights, model, roots->output_norm);
    }
    for (uint32_t i = 0; i < layer_count && status == STATUS_OK; i++) {
        status = layer_reserve(weights, kernels, model, i);
    }
    weights->token_embd = weights->matrices[roots->token_embd];
    weights->output = weights->matrices[roots->output];
    weights->output_norm = weights->vectors[roots->output_norm];
    return status;
}

// What the sink's callbacks work on.
struct load {
    struct weights *weights;
    const struct model_file *model;
    const struct weights_progress *progress;
};

static enum status take_rows(void *context, uint32_t tensor_index, uint32_t first_row,
                             uint32_t row_count, const void *bytes)
{
    struct load *load = context;
    struct weights *weights = load->weights;
    if (weights->matrices[tensor_index] != NULL) {
        matrix_fill(weights->matrices[tensor_index], first_row, row_count, bytes);
    } else if (weights->vectors[tensor_index] != NULL) {
        memcpy(weights->vectors[tensor_index], bytes,
               model_file_tensor(load->model, tensor_index)->bytes);
    }
    return STATUS_OK;
}

static void report_progress(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    const struct weights_progress *progress = ((struct load *)context)->progress;
    if (progress->report != NULL) {
        progress->report(progress->context, done_bytes, total_bytes);
    }
}

enum status weights_load(struct weights *out, struct kernels *kernels,
                         const struct model_file *model, const struct weights_progress *progress,
                         uint8_t *out_digest, struct reason *reason)
{
    *out = (struct weights){0};
    enum status status = weights_reserve(out, kernels, model);
    if (status == STATUS_NO_MEMORY) {
        reason_set(reason, status, "use a smaller model", "weights: %llu bytes could not be had",
                   (unsigned long long)model_file_bytes(model));
    }
    if (status == STATUS_OK) {
        struct load load = {.weights = out, .model = model, .progress = progress};
        const struct model_sink sink = {
            .context = &load, .rows = take_rows, .progress = report_progress};
        status = model_file_load(model, &sink, out_digest, reason);
    }
    if (status != STATUS_OK) {
        weights_unload(out);
    }
    return status;
}

void weights_unload(struct weights *weights)
{
    for (uint32_t i = 0; i < weights->tensor_count; i++) {
        if (weights->matrices != NULL) {
            matrix_destroy(weights->matrices[i]);
        }
        if (weights->vectors != NULL) {
            free(weights->vectors[i]);
        }
    }
    free(weights->matrices);
    free(weights->vectors);
    free(weights->layers);
    *weights = (struct weights){0};
}
