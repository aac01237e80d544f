// SPDX-License-Identifier: Apache-2.0
// At stake: the same seed gives the same text after a resume, and every option does what
// llama-server's of that name does. Picks are compared one by one with a naive sampler that sorts
// everything, over random logits (with ties) and settings; random numbers with the published
// vectors of Philox.
#include "gpud/sampler.h"

#include "tests/check.h"

#include <math.h>

enum { VOCAB = 60, CONTEXT = 40 };

static void philox_gives_the_published_numbers(void **state)
{
    (void)state;
    // Random123's known answers: philox4x32-10, counter 0, key 0 begins 6627e8d5 e169c58d.
    assert_true(sampler_uniform(0, 0) == (double)(0x6627e8d5e169c58du >> 11) * 0x1p-53);
    assert_true(sampler_uniform(1, 0) != sampler_uniform(0, 0));
    assert_true(sampler_uniform(0, 1) != sampler_uniform(0, 0));
    assert_true(sampler_uniform(1ull << 32, 0) != sampler_uniform(0, 0));
}

static void uniform_numbers_are_uniform(void **state)
{
    (void)state;
    enum { DRAWS = 100000, BINS = 20 };
    uint32_t bins[BINS] = {0};
    for (uint64_t position = 0; position < DRAWS; position++) {
        double u = sampler_uniform(42, position);
        assert_true(u >= 0 && u < 1);
        bins[(int)(u * BINS)]++;
    }
    double chi = 0;
    for (int i = 0; i < BINS; i++) {
        double difference = bins[i] - (double)DRAWS / BINS;
        chi += difference * difference / ((double)DRAWS / BINS);
    }
    assert_true(chi < 60); // 19 degrees of freedom: one in 5 million
}

// ---- the naive sampler

struct choice {
    double logit;
    uint32_t id;
};

static int by_logit(const void *a, const void *b)
{
    const struct choice *x = a;
    const struct choice *y = b;
    return x->logit != y->logit ? (x->logit < y->logit ? 1 : -1)
                                : (x->id > y->id) - (x->id < y->id);
}

static uint32_t occurrences(const struct sampling *sampling, const uint32_t *context,
                            uint32_t context_count, uint32_t id)
{
    uint32_t count = 0;
    uint32_t last_n =
        sampling->repeat_last_n < 0 ? context_count : (uint32_t)sampling->repeat_last_n;
    for (uint32_t i = context_count > last_n ? context_count - last_n : 0; i < context_count; i++) {
        count += context[i] == id;
    }
    return count;
}

// Weights relative to the first, so that equal arithmetic is not needed but the order of sums is.
static double naive_sum(const struct choice *choices, uint32_t count, double temperature)
{
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += exp((choices[i].logit - choices[0].logit) / temperature);
    }
    return sum;
}

static uint32_t naive_pick(const struct sampling *sampling, const float *logits,
                           const uint32_t *context, uint32_t context_count)
{
    struct choice choices[VOCAB];
    for (uint32_t id = 0; id < VOCAB; id++) {
        float logit = logits[id];
        uint32_t count = occurrences(sampling, context, context_count, id);
        if (count > 0) {
            logit = logit > 0 ? logit / sampling->repeat_penalty : logit * sampling->repeat_penalty;
            logit = logit - (float)count * sampling->frequency_penalty - sampling->presence_penalty;
        }
        choices[id] = (struct choice){.logit = logit, .id = id};
    }
    qsort(choices, VOCAB, sizeof(choices[0]), by_logit);
    if (sampling->temperature == 0) {
        return choices[0].id;
    }
    uint32_t count =
        sampling->top_k > 0 && sampling->top_k < VOCAB ? (uint32_t)sampling->top_k : VOCAB;
    double total = naive_sum(choices, count, 1);
    for (uint32_t kept = 1; sampling->top_p < 1 && kept <= count; kept++) {
        if (naive_sum(choices, kept, 1) >= sampling->top_p * total) {
            count = kept;
        }
    }
    while (count > 1 && exp(choices[count - 1].logit - choices[0].logit) < sampling->min_p) {
        count--;
    }
    double u = sampler_uniform(sampling->seed, context_count);
    double all = naive_sum(choices, count, sampling->temperature);
    uint32_t chosen = 0;
    while (chosen + 1 < count && naive_sum(choices, chosen + 1, sampling->temperature) <= u * all) {
        chosen++;
    }
    return choices[chosen].id;
}

static void random_case(struct sampling *sampling, float *logits, uint32_t *context, uint64_t *seed)
{
    static const float temperatures[] = {0, 0.3f, 0.8f, 1, 2};
    static const float top_ps[] = {0, 0.3f, 0.95f, 1};
    static const float min_ps[] = {0, 0.05f, 0.5f, 1};
    *sampling = (struct sampling){
        .temperature = temperatures[check_random(seed) % 5],
        .top_k = (int32_t)(check_random(seed) % (VOCAB + 4)) - 1,
        .top_p = top_ps[check_random(seed) % 4],
        .min_p = min_ps[check_random(seed) % 4],
        .repeat_last_n = (int32_t)(check_random(seed) % (CONTEXT + 10)) - 1,
        .repeat_penalty = check_random(seed) % 2 ? 1.0f : 1.5f,
        .frequency_penalty = check_random(seed) % 2 ? 0.0f : 0.25f,
        .presence_penalty = check_random(seed) % 2 ? 0.0f : -0.5f,
        .has_seed = true,
        .seed = check_random(seed),
    };
    for (uint32_t id = 0; id < VOCAB; id++) { // steps of 1/4: ties are common
        logits[id] = (float)(int)(check_random(seed) % 33) / 4 - 4;
    }
    for (uint32_t i = 0; i < CONTEXT; i++) {
        context[i] = (uint32_t)(check_random(seed) % VOCAB);
    }
}

static void picks_equal_the_naive_sampler(void **state)
{
    (void)state;
    uint64_t seed = check_seed();
    struct sampler *sampler = NULL;
    CHECK_OK(sampler_create(VOCAB, &sampler));
    for (int i = 0; i < 20000; i++) {
        struct sampling sampling;
        float logits[VOCAB];
        uint32_t context[CONTEXT];
        random_case(&sampling, logits, context, &seed);
        uint32_t context_count = (uint32_t)(check_random(&seed) % (CONTEXT + 1));
        uint32_t token = VOCAB;
        CHECK_OK(sampler_pick(sampler, &sampling, logits, context, context_count, &token));
        assert_int_equal(token, naive_pick(&sampling, logits, context, context_count));
    }
    sampler_destroy(sampler);
}

static void picks_follow_the_distribution(void **state)
{
    (void)state;
    enum { DRAWS = 50000 };
    const float logits[4] = {0, 1, 2, -1};
    struct sampling sampling = {
        .temperature = 1, .top_p = 1, .repeat_penalty = 1, .has_seed = true, .seed = 7};
    struct sampler *sampler = NULL;
    CHECK_OK(sampler_create(4, &sampler));
    static uint32_t context[DRAWS];
    uint32_t counts[4] = {0};
    for (uint32_t position = 0; position < DRAWS; position++) {
        uint32_t token = 0;
        CHECK_OK(sampler_pick(sampler, &sampling, logits, context, position, &token));
        counts[token]++;
    }
    double total = exp(0) + exp(1) + exp(2) + exp(-1);
    for (int id = 0; id < 4; id++) {
        double p = exp(logits[id]) / total;
        assert_true(fabs(counts[id] - DRAWS * p) < 5 * sqrt(DRAWS * p * (1 - p)));
    }
    sampler_destroy(sampler);
}

static void greedy_takes_the_lowest_id_of_a_tie(void **state)
{
    (void)state;
    const float logits[5] = {-1, 3, 2, 3, 3};
    struct sampling sampling;
    sampling_init(&sampling);
    sampling.temperature = 0;
    struct sampler *sampler = NULL;
    CHECK_OK(sampler_create(5, &sampler));
    uint32_t token = 0;
    CHECK_OK(sampler_pick(sampler, &sampling, logits, NULL, 0, &token));
    assert_int_equal(token, 1);
    sampler_destroy(sampler);
}

static void seed_and_position_decide(void **state)
{
    (void)state;
    float logits[VOCAB] = {0};
    struct sampling sampling = {
        .temperature = 1, .top_p = 1, .repeat_penalty = 1, .has_seed = true, .seed = 1};
    struct sampler *sampler = NULL;
    CHECK_OK(sampler_create(VOCAB, &sampler));
    uint32_t context[64] = {0};
    uint32_t same = 0;
    for (uint32_t position = 0; position < 64; position++) {
        uint32_t tokens[3];
        for (int i = 0; i < 3; i++) { // twice with seed 1, once with seed 2
            sampling.seed = i == 2 ? 2 : 1;
            CHECK_OK(sampler_pick(sampler, &sampling, logits, context, position, &tokens[i]));
        }
        assert_int_equal(tokens[0], tokens[1]);
        same += tokens[0] == tokens[2];
    }
    assert_true(same < 16);
    sampler_destroy(sampler);
}

static void logits_that_are_not_finite_are_an_error(void **state)
{
    (void)state;
    struct sampling sampling;
    sampling_init(&sampling);
    struct sampler *sampler = NULL;
    CHECK_OK(sampler_create(3, &sampler));
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        float logits[3] = {0, 0, 0};
        logits[i] = bad[i];
        uint32_t token = 77;
        assert_int_equal(sampler_pick(sampler, &sampling, logits, NULL, 0, &token), STATUS_DAMAGED);
        assert_int_equal(token, 77);
    }
    sampler_destroy(sampler);
}

static void settings_out_of_range_are_named(void **state)
{
    (void)state;
    struct sampling sampling;
    struct reason reason;
    sampling_init(&sampling);
    CHECK_OK(sampling_check(&sampling, &reason));
    assert_true(sampling.temperature == 0.8f && sampling.top_k == 40 && sampling.top_p == 0.95f &&
                sampling.min_p == 0.05f && sampling.repeat_last_n == 64 && !sampling.has_seed);
    float *const fields[] = {&sampling.temperature,
                             &sampling.top_p,
                             &sampling.min_p,
                             &sampling.repeat_penalty,
                             &sampling.frequency_penalty,
                             &sampling.presence_penalty};
    const char *const names[] = {"temperature",       "top_p",           "min_p", "repeat_penalty",
                                 "frequency_penalty", "presence_penalty"};
    const float bad[] = {NAN, -INFINITY, INFINITY, -2000};
    for (int i = 0; i < 6; i++) {
        for (int j = 0; j < 4; j++) {
            sampling_init(&sampling);
            *fields[i] = bad[j];
            assert_int_equal(sampling_check(&sampling, &reason), STATUS_INVALID);
            assert_non_null(strstr(reason.text, names[i]));
        }
    }
    sampling_init(&sampling);
    sampling.repeat_last_n = -2;
    assert_int_equal(sampling_check(&sampling, &reason), STATUS_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_numbers),
        cmocka_unit_test(uniform_numbers_are_uniform),
        cmocka_unit_test(picks_equal_the_naive_sampler),
        cmocka_unit_test(picks_follow_the_distribution),
        cmocka_unit_test(greedy_takes_the_lowest_id_of_a_tie),
        cmocka_unit_test(seed_and_position_decide),
        cmocka_unit_test(logits_that_are_not_finite_are_an_error),
        cmocka_unit_test(settings_out_of_range_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
