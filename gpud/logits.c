// SPDX-License-Identifier: Apache-2.0
// One of the places that include xxhash.h: the hash of logits is how tests compare bits over
// threads, kernels, tiers and restarts, and is part of the interface (--logits-hash).
#include "gpud/logits.h"

#include <math.h>
#include <xxhash.h>

uint64_t logits_hash(const float *logits, uint32_t vocab_count)
{
    return XXH3_64bits(logits, vocab_count * sizeof(*logits));
}

double logits_lse(const float *logits, uint32_t vocab_count)
{
    float highest = logits[0];
    for (uint32_t id = 1; id < vocab_count; id++) {
        highest = logits[id] > highest ? logits[id] : highest;
    }
    double sum = 0;
    for (uint32_t id = 0; id < vocab_count; id++) {
        sum += exp((double)logits[id] - highest);
    }
    return highest + log(sum);
}

bool logits_finite(const float *logits, uint32_t vocab_count)
{
    for (uint32_t id = 0; id < vocab_count; id++) {
        if (!isfinite(logits[id])) {
            return false;
        }
    }
    return true;
}

// Puts a logit at its place among the first `count`, of which the last falls out when they are
// top_count already.
static void insert(uint32_t id, float logit, uint32_t count, uint32_t *ids, float *logits)
{
    uint32_t place = count;
    while (place > 0 && logits[place - 1] < logit) {
        logits[place] = logits[place - 1];
        ids[place] = ids[place - 1];
        place--;
    }
    logits[place] = logit;
    ids[place] = id;
}

void logits_top(const float *logits, uint32_t vocab_count, uint32_t top_count, uint32_t *out_ids,
                float *out_logits)
{
    uint32_t count = 0;
    for (uint32_t id = 0; top_count > 0 && id < vocab_count; id++) {
        if (count < top_count) {
            insert(id, logits[id], count++, out_ids, out_logits);
        } else if (logits[id] > out_logits[top_count - 1]) {
            insert(id, logits[id], top_count - 1, out_ids, out_logits);
        }
    }
}
