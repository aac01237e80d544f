// SPDX-License-Identifier: Apache-2.0
// Choosing the next token from logits. llama-server's options, defaults and order: penalties,
// top_k, top_p, min_p, temperature. Random numbers are counter-based, a pure function of (seed,
// position), so a resumed session, another batch or a speculated token draws what the uninterrupted
// run draws. Owns a workspace of one vocabulary, taken at creation; a pick allocates nothing. One
// owner thread. Never: knows text, sessions or where logits come from.
#ifndef KVTIER_GPUD_SAMPLER_H
#define KVTIER_GPUD_SAMPLER_H

#include "proto/status.h"

#include <stdbool.h>
#include <stdint.h>

struct sampler;

struct sampling {
    float temperature;       // 0 = the highest logit, the lowest id on a tie
    int32_t top_k;           // the k highest; <= 0: all
    float top_p;             // the fewest whose probabilities sum to p; 1: all
    float min_p;             // at least p times the highest probability; 0: all
    int32_t repeat_last_n;   // context tokens that penalties look at; 0 = none, -1 = all
    float repeat_penalty;    // divides (a negative logit: multiplies); 1 = off
    float frequency_penalty; // subtracted once an occurrence; 0 = off
    float presence_penalty;  // subtracted once; 0 = off
    bool has_seed;           // false: the worker draws one
    uint64_t seed;
};

void sampling_init(struct sampling *out_sampling); // 0.8, 40, 0.95, 0.05, 64, 1, 0, 0, random
// STATUS_INVALID when a value is out of its range, named.
enum status sampling_check(const struct sampling *sampling, struct reason *reason) KV_MUST_CHECK;

// For logits of vocab_count values. STATUS_NO_MEMORY.
enum status sampler_create(uint32_t vocab_count, struct sampler **out_sampler) KV_MUST_CHECK;
void sampler_destroy(struct sampler *sampler); // NULL is fine

// The token at position `context_count`, after `context` [context_count], from its logits [vocab].
// STATUS_DAMAGED when a logit is not finite.
enum status sampler_pick(struct sampler *sampler, const struct sampling *sampling,
                         const float *logits, const uint32_t *context, uint32_t context_count,
                         uint32_t *out_token) KV_MUST_CHECK;

// The random number of a position, uniform in [0, 1): Philox 4x32-10 (Salmon et al. 2011).
double sampler_uniform(uint64_t seed, uint64_t position);

#endif
