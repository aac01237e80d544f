// SPDX-License-Identifier: Apache-2.0
// The weights of a model in the kernels' packed form, named by their role in a layer. Filled in one
// pass over the file, which also hashes it. Owned by forward; read-only after loading.
// Never: opens files, runs layers.
#ifndef KVTIER_GPUD_WEIGHTS_H
#define KVTIER_GPUD_WEIGHTS_H

#include "gpud/kernels/kernels.h"
#include "gpud/model/model_file.h"
#include "proto/status.h"

#include <stdint.h>

struct weights_layer {
    const float *attn_norm, *ffn_norm; // [embedding]
    const struct matrix *q;            // [heads * head_dim, embedding]
    const struct matrix *k, *v;        // [kv_heads * head_dim, embedding]
    const struct matrix *o;            // [embedding, heads * head_dim]
    const struct matrix *gate, *up;    // [feed_forward, embedding]
    const struct matrix *down;         // [embedding, feed_forward]
};

struct weights {
    const struct matrix *token_embd; // [vocab, embedding]
    const float *output_norm;        // [embedding]
    const struct matrix *output;     // [vocab, embedding]; = token_embd when tied
    struct weights_layer *layers;    // [layer_count]
    uint64_t bytes;                  // all of them, packed

    // By index of the tensor in the file; each tensor is a matrix, a vector, or neither (unused).
    uint32_t tensor_count;
    struct matrix **matrices;
    float **vectors;
};

struct weights_progress {
    void (*report)(void *context, uint64_t done_bytes, uint64_t total_bytes); // may be NULL
    void *context;
};

// Reads every weight of `model` into `out` and the file's digest into out_digest
// [MODEL_DIGEST_BYTES]. Blocks on the disk. On failure `out` is zeroed. Errors: those of
// model_file_load, STATUS_NO_MEMORY.
enum status weights_load(struct weights *out, struct kernels *kernels,
                         const struct model_file *model, const struct weights_progress *progress,
                         uint8_t *out_digest, struct reason *reason) KV_MUST_CHECK;
void weights_unload(struct weights *weights); // zeroed memory is fine; before kernels_destroy

#endif
