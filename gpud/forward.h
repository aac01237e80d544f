// SPDX-License-Identifier: Apache-2.0
// The layers of one step: embeds tokens, runs every layer over a batch of spans of sequences, and
// gives logits where asked. Owns the packed weights and the activations. Owner: the engine thread.
// The bits of a row's logits depend on its sequence's tokens only (docs/NUMERICS.md). Never:
// allocates in a step, decides what to compute.
#ifndef KVTIER_GPUD_FORWARD_H
#define KVTIER_GPUD_FORWARD_H

#include "gpud/kernels/kernels.h"
#include "gpud/kv_cache.h"
#include "gpud/model/model_file.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stdint.h>

struct forward;

struct forward_options {
    struct model_file *model; // read once while loading; must outlive `forward`
    enum kernel_set kernel_set;
    uint32_t thread_count;
    uint32_t batch_tokens_max; // rows of one step
    uint32_t logit_rows_max;   // rows with logits of one step
    uint32_t context_tokens_max;
    uint32_t block_tokens;
    void (*progress)(void *context, uint64_t done_bytes, uint64_t total_bytes); // may be NULL
    void *progress_context;
};

enum forward_logits { FORWARD_LOGITS_NONE, FORWARD_LOGITS_LAST, FORWARD_LOGITS_ALL };

// Consecutive positions of one prepared sequence.
struct forward_span {
    struct kv_sequence *sequence;
    const uint32_t *tokens; // [token_count]
    uint32_t token_count;
    uint32_t first_position;
    enum forward_logits logits;
};

// Loads and packs the weights, hashing the file in the same pass: out_digest [BLOCK_ID_BYTES].
enum status forward_create(const struct forward_options *options, struct forward **out_forward,
                           uint8_t *out_digest, struct reason *reason) KV_MUST_CHECK;
void forward_destroy(struct forward *forward);

uint64_t forward_weight_bytes(const struct forward *forward);
uint64_t forward_workspace_bytes(const struct forward *forward);
enum kernel_set forward_kernel_set(const struct forward *forward);

// Runs the batch. *out_logits: [rows with logits, vocab] in the order of spans, owned by `forward`,
// valid until the next step. `cancelled` (may be NULL) is asked between layers: true ends the step
// with STATUS_CANCELLED and no KV is to be committed.
enum status forward_step(struct forward *forward, const struct forward_span *spans,
                         uint32_t span_count, bool (*cancelled)(void *context), void *context,
                         const float **out_logits) KV_MUST_CHECK;

#endif
