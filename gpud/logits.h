// SPDX-License-Identifier: Apache-2.0
// What is told of one position's logits besides the token chosen: their hash (equal hashes, equal
// bits), the log of their softmax's denominator, and the highest. Pure functions on the caller's
// memory; any thread.
#ifndef KVTIER_GPUD_LOGITS_H
#define KVTIER_GPUD_LOGITS_H

#include <stdbool.h>
#include <stdint.h>

// XXH3-64 of the float32 values in memory (little-endian).
uint64_t logits_hash(const float *logits, uint32_t vocab_count);

// log(sum of exp(logits)), in double, relative to the highest, ids in order.
double logits_lse(const float *logits, uint32_t vocab_count);

// False when any is infinite or not a number.
bool logits_finite(const float *logits, uint32_t vocab_count);

// The `top_count` <= vocab_count highest, highest first, lower ids first on a tie.
void logits_top(const float *logits, uint32_t vocab_count, uint32_t top_count, uint32_t *out_ids,
                float *out_logits);

#endif
