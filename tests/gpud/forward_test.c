// SPDX-License-Identifier: Apache-2.0
// At stake: that the layers are put together as the model means, and that the bits of the logits
// depend on the tokens alone: not on chunks, threads, kernel set, hot pool size, cached prefixes or
// batch mates. Right: against a transformer in binary64 written out here, on random weights that
// need no activation rounding. Equal: bit for bit against one base run, on all quantized types.
#include "rig.h"
#include "tiny_model.h"

#include <math.h>

enum { TOKENS = 300, SPREAD_TOKENS = TOKENS * TINY_VOCAB };

static const enum tensor_type exact_types[8] = {
    TENSOR_TYPE_F32, TENSOR_TYPE_F16, TENSOR_TYPE_BF16, TENSOR_TYPE_F16,
    TENSOR_TYPE_F32, TENSOR_TYPE_F16, TENSOR_TYPE_F32,  TENSOR_TYPE_F32,
};
static const enum tensor_type quantized_types[8] = {
    TENSOR_TYPE_Q4_0, TENSOR_TYPE_Q4_1, TENSOR_TYPE_Q8_0, TENSOR_TYPE_Q4_1,
    TENSOR_TYPE_Q8_0, TENSOR_TYPE_Q4_0, TENSOR_TYPE_F16,  TENSOR_TYPE_Q8_0,
};

static uint32_t tokens[TOKENS];
static float base_logits[SPREAD_TOKENS];
static float other_logits[SPREAD_TOKENS];

static void random_tokens(uint64_t seed)
{
    for (uint32_t i = 0; i < TOKENS; i++) {
        tokens[i] = (uint32_t)(check_random(&seed) % TINY_VOCAB);
    }
}

static struct rig_options options_of(const struct tiny_model *tiny)
{
    return (struct rig_options){
        .model = tiny->model,
        .kernel_set = KERNEL_SET_C,
        .thread_count = 1,
        .arena_blocks = 2 * (TOKENS / RIG_BLOCK_TOKENS + 1),
        .context_tokens = TOKENS + 64,
    };
}

// Runs the tokens once on a fresh rig.
static void run_once(const struct rig_options *options, uint32_t chunk, float *logits)
{
    struct rig rig;
    rig_create(&rig, options);
    assert_int_equal(rig_run(&rig, tokens, TOKENS, chunk, logits), TOKENS);
    rig_destroy(&rig);
}

static void check_equals_base(void)
{
    assert_memory_equal(other_logits, base_logits, sizeof(base_logits));
    memset(other_logits, 0, sizeof(other_logits));
}

// ---- the reference

struct reference {
    const struct tiny_model *tiny;
    double k[TINY_LAYERS][TOKENS][TINY_KV_HEADS * TINY_HEAD_DIM];
    double v[TINY_LAYERS][TOKENS][TINY_KV_HEADS * TINY_HEAD_DIM];
};

// y [rows] = W [rows, columns] x
static void reference_product(const float *weights, uint32_t rows, uint32_t columns,
                              const double *x, double *y)
{
    for (uint32_t r = 0; r < rows; r++) {
        y[r] = 0;
        for (uint32_t c = 0; c < columns; c++) {
            y[r] += (double)weights[r * columns + c] * x[c];
        }
    }
}

static void reference_norm(const double *x, const float *weight, double *y)
{
    double sum = 0;
    for (int i = 0; i < TINY_EMBEDDING; i++) {
        sum += x[i] * x[i];
    }
    for (int i = 0; i < TINY_EMBEDDING; i++) {
        y[i] = x[i] / sqrt(sum / TINY_EMBEDDING + 1e-5) * (double)weight[i];
    }
}

static void reference_rope(double *x, uint32_t heads, uint32_t position)
{
    for (uint32_t h = 0; h < heads; h++) {
        for (int i = 0; i < TINY_HEAD_DIM / 2; i++) {
            double *pair = &x[h * TINY_HEAD_DIM + 2 * i];
            double angle = position * pow(10000.0, -2.0 * i / TINY_HEAD_DIM);
            double first = pair[0] * cos(angle) - pair[1] * sin(angle);
            pair[1] = pair[0] * sin(angle) + pair[1] * cos(angle);
            pair[0] = first;
        }
    }
}

// One query head over positions 0..position of one layer.
static void reference_head(const struct reference *reference, int layer, uint32_t head,
                           uint32_t position, const double *q, double *out)
{
    uint32_t offset = head / (TINY_HEADS / TINY_KV_HEADS) * TINY_HEAD_DIM;
    double sum = 0;
    memset(out, 0, TINY_HEAD_DIM * sizeof(*out));
    for (uint32_t t = 0; t <= position; t++) {
        double score = 0;
        for (int i = 0; i < TINY_HEAD_DIM; i++) {
            score += q[i] * reference->k[layer][t][offset + (uint32_t)i];
        }
        double weight = exp(score / sqrt(TINY_HEAD_DIM));
        sum += weight;
        for (int i = 0; i < TINY_HEAD_DIM; i++) {
            out[i] += weight * reference->v[layer][t][offset + (uint32_t)i];
        }
    }
    for (int i = 0; i < TINY_HEAD_DIM; i++) {
        out[i] /= sum;
    }
}

static void reference_attention(struct reference *reference, int layer, uint32_t position,
                                double *x)
{
    const struct tiny_model *tiny = reference->tiny;
    double normed[TINY_EMBEDDING], q[TINY_HEADS * TINY_HEAD_DIM], out[TINY_HEADS * TINY_HEAD_DIM];
    double added[TINY_EMBEDDING];
    double *k = reference->k[layer][position];
    double *v = reference->v[layer][position];
    reference_norm(x, tiny_values(tiny, layer, "attn_norm"), normed);
    reference_product(tiny_values(tiny, layer, "attn_q"), TINY_HEADS * TINY_HEAD_DIM,
                      TINY_EMBEDDING, normed, q);
    reference_product(tiny_values(tiny, layer, "attn_k"), TINY_KV_HEADS * TINY_HEAD_DIM,
                      TINY_EMBEDDING, normed, k);
    reference_product(tiny_values(tiny, layer, "attn_v"), TINY_KV_HEADS * TINY_HEAD_DIM,
                      TINY_EMBEDDING, normed, v);
    reference_rope(q, TINY_HEADS, position);
    reference_rope(k, TINY_KV_HEADS, position);
    for (int i = 0; i < TINY_KV_HEADS * TINY_HEAD_DIM; i++) {
        k[i] = (double)tiny_half_value(tiny_half((float)k[i]));
        v[i] = (double)tiny_half_value(tiny_half((float)v[i]));
    }
    for (uint32_t h = 0; h < TINY_HEADS; h++) {
        reference_head(reference, layer, h, position, &q[h * TINY_HEAD_DIM],
                       &out[h * TINY_HEAD_DIM]);
    }
    reference_product(tiny_values(tiny, layer, "attn_output"), TINY_EMBEDDING,
                      TINY_HEADS * TINY_HEAD_DIM, out, added);
    for (int i = 0; i < TINY_EMBEDDING; i++) {
        x[i] += added[i];
    }
}

static void reference_feed_forward(const struct tiny_model *tiny, int layer, double *x)
{
    double normed[TINY_EMBEDDING], gate[TINY_FEED_FORWARD], up[TINY_FEED_FORWARD];
    double added[TINY_EMBEDDING];
    reference_norm(x, tiny_values(tiny, layer, "ffn_norm"), normed);
    reference_product(tiny_values(tiny, layer, "ffn_gate"), TINY_FEED_FORWARD, TINY_EMBEDDING,
                      normed, gate);
    reference_product(tiny_values(tiny, layer, "ffn_up"), TINY_FEED_FORWARD, TINY_EMBEDDING, normed,
                      up);
    for (int i = 0; i < TINY_FEED_FORWARD; i++) {
        gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
    }
    reference_product(tiny_values(tiny, layer, "ffn_down"), TINY_EMBEDDING, TINY_FEED_FORWARD, gate,
                      added);
    for (int i = 0; i < TINY_EMBEDDING; i++) {
        x[i] += added[i];
    }
}

static void reference_logits(struct reference *reference, uint32_t position, double *logits)
{
    const struct tiny_model *tiny = reference->tiny;
    const float *embedding = tiny_values(tiny, -1, "token_embd");
    double x[TINY_EMBEDDING];
    for (int i = 0; i < TINY_EMBEDDING; i++) {
        x[i] = (double)embedding[tokens[position] * TINY_EMBEDDING + (uint32_t)i];
    }
    for (int layer = 0; layer < TINY_LAYERS; layer++) {
        reference_attention(reference, layer, position, x);
        reference_feed_forward(tiny, layer, x);
    }
    reference_norm(x, tiny_values(tiny, -1, "output_norm"), x);
    reference_product(embedding, TINY_VOCAB, TINY_EMBEDDING, x, logits);
}

static void logits_are_the_models(void **state)
{
    (void)state;
    uint64_t seed = check_seed();
    struct tiny_model tiny;
    tiny_model_create(&tiny, exact_types, seed);
    random_tokens(seed);
    struct rig_options options = options_of(&tiny);
    run_once(&options, 512, base_logits);
    struct reference *reference = calloc(1, sizeof(*reference));
    assert_non_null(reference);
    reference->tiny = &tiny;
    double largest_error = 0;
    double largest_logit = 0;
    for (uint32_t p = 0; p < TOKENS; p++) {
        double logits[TINY_VOCAB];
        reference_logits(reference, p, logits);
        for (uint32_t i = 0; i < TINY_VOCAB; i++) {
            double error = fabs(logits[i] - (double)base_logits[p * TINY_VOCAB + i]);
            largest_error = error > largest_error ? error : largest_error;
            largest_logit = fabs(logits[i]) > largest_logit ? fabs(logits[i]) : largest_logit;
        }
    }
    print_message("largest error %.2e of logits up to %.2f\n", largest_error, largest_logit);
    // f32 sums alone give about 1e-5; a KV value that rounds to the other neighbour in f16 up to
    // 1e-3.
    assert_true(largest_error < 1e-3 * largest_logit);
    free(reference);
    tiny_model_destroy(&tiny);
}

// ---- equality

// One factor at a time against the base run.
static void bits_depend_on_tokens_only(void **state)
{
    (void)state;
    uint64_t seed = check_seed();
    struct tiny_model tiny;
    tiny_model_create(&tiny, quantized_types, seed);
    random_tokens(seed);
    const struct rig_options base = options_of(&tiny);
    run_once(&base, 512, base_logits);

    const uint32_t chunks[] = {1, 7, 33};
    for (int i = 0; i < 3; i++) {
        run_once(&base, chunks[i], other_logits);
        check_equals_base();
    }
    const uint32_t hot_blocks[] = {1, 3, 100};
    for (int i = 0; i < 3; i++) {
        struct rig_options options = base;
        options.hot_blocks = hot_blocks[i];
        run_once(&options, 50, other_logits);
        check_equals_base();
    }
    for (uint32_t threads = 2; threads <= 3; threads++) {
        struct rig_options options = base;
        options.thread_count = threads;
        run_once(&options, 512, other_logits);
        check_equals_base();
    }
    const enum kernel_set sets[] = {KERNEL_SET_AVX2, KERNEL_SET_AVX512};
    for (int i = 0; i < 2; i++) {
        struct rig_options options = base;
        options.kernel_set = sets[i];
        if (kernels_set_supported(sets[i])) {
            run_once(&options, 512, other_logits);
            check_equals_base();
        }
    }
    tiny_model_destroy(&tiny);
}

// A second run of the same context computes only its last block, and a longer one only what is new;
// both with the bits of a run from nothing.
static void cached_prefix_gives_the_same_bits(void **state)
{
    (void)state;
    uint64_t seed = check_seed();
    struct tiny_model tiny;
    tiny_model_create(&tiny, quantized_types, seed);
    random_tokens(seed);
    struct rig_options options = options_of(&tiny);
    run_once(&options, 512, base_logits);
    for (uint32_t hot_blocks = 0; hot_blocks < 6; hot_blocks += 2) {
        options.hot_blocks = hot_blocks;
        struct rig rig;
        rig_create(&rig, &options);
        const uint32_t part = 5 * RIG_BLOCK_TOKENS;
        assert_int_equal(rig_run(&rig, tokens, part, 19, other_logits), part);
        assert_int_equal(rig_run(&rig, tokens, part, 19, other_logits), RIG_BLOCK_TOKENS);
        assert_int_equal(rig_run(&rig, tokens, TOKENS, 512, other_logits), TOKENS - part);
        check_equals_base();
        rig_destroy(&rig);
    }
    tiny_model_destroy(&tiny);
}

// Two sequences share every step, one ahead of the other; each gets the bits of its solo run.
static void batch_mates_do_not_show(void **state)
{
    (void)state;
    uint64_t seed = check_seed();
    struct tiny_model tiny;
    tiny_model_create(&tiny, quantized_types, seed);
    random_tokens(seed);
    struct rig_options options = options_of(&tiny);
    run_once(&options, 512, base_logits);
    options.hot_blocks = 4;
    struct rig rig;
    rig_create(&rig, &options);
    struct cold_lease leases[2];
    struct kv_sequence *sequences[2];
    uint32_t reversed[TOKENS];
    for (uint32_t i = 0; i < TOKENS; i++) {
        reversed[i] = tokens[TOKENS - 1 - i];
    }
    const uint32_t *texts[2] = {reversed, tokens};
    for (int s = 0; s < 2; s++) {
        leases[s] = rig_lease(&rig, texts[s], TOKENS, 0);
        CHECK_OK(
            kv_sequence_open(rig.cache, &leases[s], &rig.root, texts[s], TOKENS, &sequences[s]));
        CHECK_OK(kv_sequence_ready(sequences[s]));
    }
    uint32_t done[2] = {0, 0};
    while (done[1] < TOKENS) {
        struct forward_span spans[2];
        uint32_t span_count = 0;
        for (int s = 0; s < 2; s++) {
            uint32_t left = TOKENS - done[s];
            uint32_t count = s == 0 ? 11 : 5;
            count = count < left ? count : left;
            if (count > 0) {
                CHECK_OK(kv_sequence_prepare(sequences[s], done[s], count, &count));
                spans[span_count++] = (struct forward_span){sequences[s], texts[s] + done[s], count,
                                                            done[s], FORWARD_LOGITS_ALL};
            }
        }
        const float *logits = NULL;
        CHECK_OK(forward_step(rig.forward, spans, span_count, NULL, NULL, &logits));
        for (uint32_t i = 0; i < span_count; i++) {
            int s = spans[i].sequence == sequences[0] ? 0 : 1;
            if (s == 1) {
                memcpy(other_logits + (size_t)done[1] * TINY_VOCAB, logits,
                       spans[i].token_count * TINY_VOCAB * sizeof(float));
            }
            kv_sequence_commit(sequences[s], spans[i].tokens, done[s], spans[i].token_count);
            done[s] += spans[i].token_count;
            logits += (size_t)spans[i].token_count * TINY_VOCAB;
        }
    }
    check_equals_base();
    for (int s = 0; s < 2; s++) {
        kv_sequence_close(sequences[s]);
        cold_store_release(rig.cold_store, &leases[s]);
    }
    rig_destroy(&rig);
    tiny_model_destroy(&tiny);
}

// ---- cancelling and logits on demand

static bool after_one_layer(void *context)
{
    return ++*(int *)context > 1;
}

static void cancelled_step_ends_between_layers_and_can_be_repeated(void **state)
{
    (void)state;
    uint64_t seed = check_seed();
    struct tiny_model tiny;
    tiny_model_create(&tiny, quantized_types, seed);
    random_tokens(seed);
    struct rig_options options = options_of(&tiny);
    run_once(&options, 512, base_logits);
    struct rig rig;
    rig_create(&rig, &options);
    struct cold_lease lease = rig_lease(&rig, tokens, TOKENS, 0);
    struct kv_sequence *sequence = NULL;
    CHECK_OK(kv_sequence_open(rig.cache, &lease, &rig.root, tokens, TOKENS, &sequence));
    CHECK_OK(kv_sequence_ready(sequence));
    uint32_t count = 0;
    CHECK_OK(kv_sequence_prepare(sequence, 0, TOKENS, &count));
    assert_int_equal(count, TOKENS);
    struct forward_span span = {sequence, tokens, TOKENS, 0, FORWARD_LOGITS_LAST};
    const float *logits = NULL;
    int asked = 0;
    assert_int_equal(forward_step(rig.forward, &span, 1, after_one_layer, &asked, &logits),
                     STATUS_CANCELLED);
    assert_int_equal(asked, 2);
    CHECK_OK(forward_step(rig.forward, &span, 1, NULL, NULL, &logits));
    assert_memory_equal(logits, base_logits + (size_t)(TOKENS - 1) * TINY_VOCAB,
                        TINY_VOCAB * sizeof(float));
    kv_sequence_close(sequence);
    cold_store_release(rig.cold_store, &lease);
    rig_destroy(&rig);
    tiny_model_destroy(&tiny);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_the_models),
        cmocka_unit_test(bits_depend_on_tokens_only),
        cmocka_unit_test(cached_prefix_gives_the_same_bits),
        cmocka_unit_test(batch_mates_do_not_show),
        cmocka_unit_test(cancelled_step_ends_between_layers_and_can_be_repeated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
