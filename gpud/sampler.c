// SPDX-License-Identifier: Apache-2.0
// Every filter keeps a prefix of the candidates sorted by (logit descending, id ascending), so one
// heap serves them all: candidates are popped in that order until the first filter says stop, and
// the many thousands behind are never sorted. Sums run in double in a fixed order, so a pick
// depends on logits, settings and position only.
#include "gpud/sampler.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct candidate {
    float logit;
    uint32_t id;
};

struct sampler {
    uint32_t vocab_count;
    struct candidate *candidates; // [vocab_count]: a heap in front, what was popped behind
    uint32_t *counts;             // [vocab_count] all 0 between picks: occurrences, for penalties
};

void sampling_init(struct sampling *out_sampling)
{
    *out_sampling = (struct sampling){
        .temperature = 0.8f,
        .top_k = 40,
        .top_p = 0.95f,
        .min_p = 0.05f,
        .repeat_last_n = 64,
        .repeat_penalty = 1.0f,
    };
}

enum status sampling_check(const struct sampling *sampling, struct reason *reason)
{
    const struct {
        const char *name;
        float value, min, max;
    } ranges[] = {
        {"temperature", sampling->temperature, 0, 1000},
        {"top_p", sampling->top_p, 0, 1},
        {"min_p", sampling->min_p, 0, 1},
        {"repeat_penalty", sampling->repeat_penalty, 1e-3f, 1000},
        {"frequency_penalty", sampling->frequency_penalty, -1000, 1000},
        {"presence_penalty", sampling->presence_penalty, -1000, 1000},
    };
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        if (!(ranges[i].value >= ranges[i].min && ranges[i].value <= ranges[i].max)) {
            return reason_set(reason, STATUS_INVALID, "", "%s: %g is not within %g to %g",
                              ranges[i].name, (double)ranges[i].value, (double)ranges[i].min,
                              (double)ranges[i].max);
        }
    }
    if (sampling->repeat_last_n < -1) {
        return reason_set(reason, STATUS_INVALID, "", "repeat_last_n: %d is less than -1",
                          sampling->repeat_last_n);
    }
    return STATUS_OK;
}

enum status sampler_create(uint32_t vocab_count, struct sampler **out_sampler)
{
    assert(vocab_count > 0);
    struct sampler *sampler = calloc(1, sizeof(*sampler));
    if (sampler == NULL) {
        return STATUS_NO_MEMORY;
    }
    sampler->vocab_count = vocab_count;
    sampler->candidates = calloc(vocab_count, sizeof(*sampler->candidates));
    sampler->counts = calloc(vocab_count, sizeof(*sampler->counts));
    if (sampler->candidates == NULL || sampler->counts == NULL) {
        sampler_destroy(sampler);
        return STATUS_NO_MEMORY;
    }
    *out_sampler = sampler;
    return STATUS_OK;
}

void sampler_destroy(struct sampler *sampler)
{
    if (sampler == NULL) {
        return;
    }
    free(sampler->candidates);
    free(sampler->counts);
    free(sampler);
}

// ---- random numbers

double sampler_uniform(uint64_t seed, uint64_t position)
{
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), 0, 0};
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xd2511f53 * counter[0];
        uint64_t b = (uint64_t)0xcd9e8d57 * counter[2];
        counter[0] = (uint32_t)(b >> 32) ^ counter[1] ^ key[0];
        counter[1] = (uint32_t)b;
        counter[2] = (uint32_t)(a >> 32) ^ counter[3] ^ key[1];
        counter[3] = (uint32_t)a;
        key[0] += 0x9e3779b9;
        key[1] += 0xbb67ae85;
    }
    uint64_t bits = (uint64_t)counter[0] << 32 | counter[1];
    return (double)(bits >> 11) * 0x1p-53;
}

// ---- penalties

static float penalized(const struct sampling *sampling, float logit, uint32_t count)
{
    logit = logit > 0 ? logit / sampling->repeat_penalty : logit * sampling->repeat_penalty;
    return logit - (float)count * sampling->frequency_penalty - sampling->presence_penalty;
}

static void penalize(struct sampler *sampler, const struct sampling *sampling,
                     const uint32_t *context, uint32_t context_count)
{
    if (sampling->repeat_penalty == 1.0f && sampling->frequency_penalty == 0.0f &&
        sampling->presence_penalty == 0.0f) {
        return;
    }
    uint32_t count = context_count;
    if (sampling->repeat_last_n >= 0 && (uint32_t)sampling->repeat_last_n < count) {
        count = (uint32_t)sampling->repeat_last_n;
    }
    const uint32_t *last = context + (context_count - count);
    for (uint32_t i = 0; i < count; i++) {
        assert(last[i] < sampler->vocab_count);
        sampler->counts[last[i]]++;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t id = last[i];
        if (sampler->counts[id] > 0) {
            struct candidate *candidate = &sampler->candidates[id];
            candidate->logit = penalized(sampling, candidate->logit, sampler->counts[id]);
            sampler->counts[id] = 0;
        }
    }
}

// ---- the heap: the best candidate first

static bool better(const struct candidate *a, const struct candidate *b)
{
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

static void sift_down(struct candidate *heap, uint32_t count, uint32_t index)
{
    struct candidate moved = heap[index];
    for (uint32_t child = 2 * index + 1; child < count; child = 2 * index + 1) {
        if (child + 1 < count && better(&heap[child + 1], &heap[child])) {
            child++;
        }
        if (!better(&heap[child], &moved)) {
            break;
        }
        heap[index] = heap[child];
        index = child;
    }
    heap[index] = moved;
}

static void heap_build(struct candidate *heap, uint32_t count)
{
    for (uint32_t i = count / 2; i-- > 0;) {
        sift_down(heap, count, i);
    }
}

// Moves the best of `count` candidates behind the heap, to heap[count - 1].
static const struct candidate *heap_pop(struct candidate *heap, uint32_t count)
{
    struct candidate best = heap[0];
    heap[0] = heap[count - 1];
    heap[count - 1] = best;
    sift_down(heap, count - 1, 0);
    return &heap[count - 1];
}

// ---- choosing

// The i-th best after popping.
static const struct candidate *popped(const struct sampler *sampler, uint32_t i)
{
    return &sampler->candidates[sampler->vocab_count - 1 - i];
}

// Fills the candidates with the penalized logits.
static enum status load_logits(struct sampler *sampler, const struct sampling *sampling,
                               const float *logits, const uint32_t *context, uint32_t context_count)
{
    for (uint32_t id = 0; id < sampler->vocab_count; id++) {
        if (!isfinite(logits[id])) {
            return STATUS_DAMAGED;
        }
        sampler->candidates[id] = (struct candidate){.logit = logits[id], .id = id};
    }
    penalize(sampler, sampling, context, context_count);
    return STATUS_OK;
}

static uint32_t best_id(const struct sampler *sampler)
{
    const struct candidate *best = &sampler->candidates[0];
    for (uint32_t id = 1; id < sampler->vocab_count; id++) {
        if (sampler->candidates[id].logit > best->logit) {
            best = &sampler->candidates[id];
        }
    }
    return best->id;
}

// Pops the candidates that top_k, top_p and min_p keep, in order; returns how many.
static uint32_t filter(struct sampler *sampler, const struct sampling *sampling)
{
    uint32_t vocab_count = sampler->vocab_count;
    uint32_t limit = sampling->top_k > 0 && (uint32_t)sampling->top_k < vocab_count
                         ? (uint32_t)sampling->top_k
                         : vocab_count;
    float highest = sampler->candidates[best_id(sampler)].logit;
    double total = 0; // of exp(logit - highest) over what top_k keeps
    for (uint32_t id = 0; limit == vocab_count && id < vocab_count; id++) {
        total += exp((double)sampler->candidates[id].logit - highest);
    }
    heap_build(sampler->candidates, vocab_count);
    for (uint32_t i = 0; limit < vocab_count && i < limit; i++) {
        total += exp((double)heap_pop(sampler->candidates, vocab_count - i)->logit - highest);
    }
    double logit_min = sampling->min_p > 0 ? highest + log((double)sampling->min_p) : -INFINITY;
    double sum = 0;
    for (uint32_t i = 0; i < limit; i++) {
        const struct candidate *candidate = limit < vocab_count
                                                ? popped(sampler, i)
                                                : heap_pop(sampler->candidates, vocab_count - i);
        if (i > 0 && candidate->logit < logit_min) {
            return i;
        }
        sum += exp((double)candidate->logit - highest);
        if (sampling->top_p < 1 && sum >= sampling->top_p * total) {
            return i + 1;
        }
    }
    return limit;
}

static uint32_t draw(const struct sampler *sampler, uint32_t count, double temperature,
                     double uniform)
{
    double highest = popped(sampler, 0)->logit;
    double total = 0;
    for (uint32_t i = 0; i < count; i++) {
        total += exp((popped(sampler, i)->logit - highest) / temperature);
    }
    double sum = 0;
    for (uint32_t i = 0; i + 1 < count; i++) {
        sum += exp((popped(sampler, i)->logit - highest) / temperature);
        if (sum > uniform * total) {
            return popped(sampler, i)->id;
        }
    }
    return popped(sampler, count - 1)->id;
}

enum status sampler_pick(struct sampler *sampler, const struct sampling *sampling,
                         const float *logits, const uint32_t *context, uint32_t context_count,
                         uint32_t *out_token)
{
    enum status status = load_logits(sampler, sampling, logits, context, context_count);
    if (status != STATUS_OK) {
        return status;
    }
    if (sampling->temperature == 0) {
        *out_token = best_id(sampler);
        return STATUS_OK;
    }
    uint32_t count = filter(sampler, sampling);
    double uniform = sampler_uniform(sampling->seed, context_count);
    *out_token = draw(sampler, count, sampling->temperature, uniform);
    return STATUS_OK;
}
