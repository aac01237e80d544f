// SPDX-License-Identifier: Apache-2.0
// At stake: a key that is misread, or silently ignored, runs another computation than the model was
// trained for. Every key that would change meaning and is not built is refused by name; every
// number out of range too; what a file leaves out gets the field's usual value.
#include "tests/model/draft.h"

#include "gpud/model/model_config.h"

#include <math.h>

static enum status read_draft(const struct draft *draft, struct model_config *out,
                              struct reason *reason)
{
    struct draft_bytes bytes = draft_write(draft);
    struct draft_file file = {bytes.data, bytes.bytes, 0};
    struct gguf_source source = draft_source(&file);
    struct gguf *gguf = NULL;
    CHECK_OK(gguf_open(&source, &gguf, reason));
    enum status status = model_config_read(gguf, out, reason);
    gguf_close(gguf);
    free(bytes.data);
    return status;
}

static void no_architecture(struct draft *d)
{
    draft_remove(d, "general.architecture");
}
static void other_architecture(struct draft *d)
{
    draft_text(d, "general.architecture", "mamba\x01");
}
static void no_heads(struct draft *d)
{
    draft_remove(d, "llama.attention.head_count");
}
static void heads_0(struct draft *d)
{
    draft_u32(d, "llama.attention.head_count", 0);
}
static void heads_many(struct draft *d)
{
    draft_u32(d, "llama.attention.head_count", 1 << 30);
}
static void heads_text(struct draft *d)
{
    draft_text(d, "llama.attention.head_count", "4");
}
static void heads_per_layer(struct draft *d)
{
    draft_put_u64(draft_array(d, "llama.attention.head_count", GGUF_TYPE_UINT32, 2), 0);
}
static void kv_heads_0(struct draft *d)
{
    draft_u32(d, "llama.attention.head_count_kv", 0);
}
static void kv_heads_3(struct draft *d)
{
    draft_u32(d, "llama.attention.head_count_kv", 3);
}
static void layers_0(struct draft *d)
{
    draft_u32(d, "llama.block_count", 0);
}
static void layers_many(struct draft *d)
{
    draft_u32(d, "llama.block_count", 513);
}
static void embedding_0(struct draft *d)
{
    draft_u32(d, "llama.embedding_length", 0);
}
static void embedding_odd(struct draft *d)
{
    draft_u32(d, "llama.embedding_length", 63);
}
static void wide_heads(struct draft *d)
{
    draft_u32(d, "llama.attention.key_length", 512);
}
static void wide_usual_heads(struct draft *d)
{
    draft_u32(d, "llama.embedding_length", 4096);
}
static void other_values(struct draft *d)
{
    draft_u32(d, "llama.attention.value_length", 8);
}
static void rope_odd(struct draft *d)
{
    draft_u32(d, "llama.rope.dimension_count", 3);
}
static void rope_wide(struct draft *d)
{
    draft_u32(d, "llama.rope.dimension_count", 18);
}
static void base_0(struct draft *d)
{
    draft_f32(d, "llama.rope.freq_base", 0);
}
static void base_nan(struct draft *d)
{
    draft_f32(d, "llama.rope.freq_base", NAN);
}
static void scaling_linear(struct draft *d)
{
    draft_text(d, "llama.rope.scaling.type", "linear");
    draft_f32(d, "llama.rope.scaling.factor", 4);
}
static void scaling_yarn(struct draft *d)
{
    draft_text(d, "llama.rope.scaling.type", "yarn");
    draft_f32(d, "llama.rope.scaling.factor", 2);
}
static void scaling_longrope(struct draft *d)
{
    draft_text(d, "llama.rope.scaling.type", "longrope");
}
static void scaling_old(struct draft *d)
{
    draft_f32(d, "llama.rope.scale_linear", 2);
}
static void no_epsilon(struct draft *d)
{
    draft_remove(d, "llama.attention.layer_norm_rms_epsilon");
}
static void epsilon_1(struct draft *d)
{
    draft_f32(d, "llama.attention.layer_norm_rms_epsilon", 1);
}
static void experts(struct draft *d)
{
    draft_u32(d, "llama.expert_count", 8);
}
static void window(struct draft *d)
{
    draft_u32(d, "llama.attention.sliding_window", 512);
}
static void soft_cap(struct draft *d)
{
    draft_f32(d, "llama.attn_logit_softcapping", 50);
}
static void final_cap(struct draft *d)
{
    draft_f32(d, "llama.final_logit_softcapping", 30);
}
static void not_causal(struct draft *d)
{
    draft_bool(d, "llama.attention.causal", 0);
}

static const struct draft_fault FAULTS[] = {
    {"no architecture", no_architecture, STATUS_INVALID, "general.architecture is missing"},
    {"mamba", other_architecture, STATUS_UNSUPPORTED, "mamba? is not supported (supported: llama)"},
    {"no heads", no_heads, STATUS_INVALID, "head_count is missing"},
    {"0 heads", heads_0, STATUS_INVALID, "head_count is 0"},
    {"2^30 heads", heads_many, STATUS_INVALID, "head_count is 1073741824"},
    {"heads as text", heads_text, STATUS_INVALID, "head_count is text"},
    {"heads per layer", heads_per_layer, STATUS_INVALID, "an array of uint32"},
    {"0 KV heads", kv_heads_0, STATUS_INVALID, "head_count_kv is 0"},
    {"3 KV heads of 4", kv_heads_3, STATUS_INVALID, "3 KV heads do not divide 4 heads"},
    {"0 layers", layers_0, STATUS_INVALID, "block_count is 0"},
    {"513 layers", layers_many, STATUS_INVALID, "block_count is 513"},
    {"embedding 0", embedding_0, STATUS_INVALID, "embedding_length is 0"},
    {"embedding 63", embedding_odd, STATUS_INVALID, "key_length is missing"},
    {"key length 512", wide_heads, STATUS_INVALID, "key_length is 512"},
    {"head dim 1024", wide_usual_heads, STATUS_UNSUPPORTED, "heads of 1024 dimensions"},
    {"other value length", other_values, STATUS_UNSUPPORTED, "16 dimensions for keys and 8"},
    {"odd rope", rope_odd, STATUS_INVALID, "odd"},
    {"rope past the head", rope_wide, STATUS_INVALID, "dimension_count is 18"},
    {"base 0", base_0, STATUS_INVALID, "freq_base is 0"},
    {"base NaN", base_nan, STATUS_INVALID, "freq_base is not finite"},
    {"linear", scaling_linear, STATUS_UNSUPPORTED, "scaling linear by 4"},
    {"yarn", scaling_yarn, STATUS_UNSUPPORTED, "scaling yarn by 2"},
    {"longrope", scaling_longrope, STATUS_UNSUPPORTED, "scaling longrope"},
    {"scale_linear", scaling_old, STATUS_UNSUPPORTED, "scaling linear by 2"},
    {"no epsilon", no_epsilon, STATUS_INVALID, "rms_epsilon is missing"},
    {"epsilon 1", epsilon_1, STATUS_INVALID, "rms_epsilon is not in 0..1"},
    {"experts", experts, STATUS_UNSUPPORTED, "llama.expert_count"},
    {"window", window, STATUS_UNSUPPORTED, "llama.attention.sliding_window"},
    {"soft cap", soft_cap, STATUS_UNSUPPORTED, "llama.attn_logit_softcapping"},
    {"final cap", final_cap, STATUS_UNSUPPORTED, "llama.final_logit_softcapping"},
    {"not causal", not_causal, STATUS_UNSUPPORTED, "llama.attention.causal"},
};

static void test_faults(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(FAULTS) / sizeof(FAULTS[0]); i++) {
        struct draft draft;
        struct model_config config;
        struct reason reason = {0};
        draft_init(&draft);
        FAULTS[i].spoil(&draft);
        enum status status = read_draft(&draft, &config, &reason);
        if (status != FAULTS[i].status || strstr(reason.text, FAULTS[i].says) == NULL ||
            reason.hint[0] == '\0') {
            fail_msg("%s: status %d, \"%s; %s\"", FAULTS[i].what, status, reason.text, reason.hint);
        }
        draft_finish(&draft);
    }
}

static void test_values(void **state)
{
    (void)state;
    struct draft draft;
    struct model_config config;
    draft_init(&draft);
    draft_text(&draft, "general.name", "line\nfeed");
    CHECK_OK(read_draft(&draft, &config, NULL));
    assert_string_equal(config.architecture, "llama");
    assert_string_equal(config.name, "line feed");
    assert_int_equal(config.context_length, 512);
    assert_int_equal(config.embedding, DRAFT_EMBEDDING);
    assert_int_equal(config.layer_count, DRAFT_LAYERS);
    assert_int_equal(config.feed_forward, DRAFT_FEED_FORWARD);
    assert_int_equal(config.heads, DRAFT_HEADS);
    assert_int_equal(config.kv_heads, DRAFT_KV_HEADS);
    assert_int_equal(config.head_dim, 16);
    assert_int_equal(config.rope.dimension_count, 16);
    assert_true(config.rope.freq_base == (double)1e14f); // as a float, not cut to an integer
    assert_true(config.rms_epsilon == 1e-5f);
    assert_true(config.attention_scale == 0.25f);
    assert_int_equal(config.group_count, 1);
    assert_int_equal(config.groups[0].kind, KV_GROUP_FULL);
    assert_int_equal(config.groups[0].layer_count, DRAFT_LAYERS);
    assert_int_equal(config.groups[0].kv_heads, DRAFT_KV_HEADS);
    assert_int_equal(config.groups[0].head_dim, 16);
    draft_finish(&draft);
}

// What a file leaves out, and ways of saying "none".
static void test_usual_values(void **state)
{
    (void)state;
    struct draft draft;
    struct model_config config;
    draft_init(&draft);
    draft_remove(&draft, "llama.attention.head_count_kv");
    draft_remove(&draft, "llama.rope.freq_base");
    draft_remove(&draft, "general.name");
    draft_text(&draft, "llama.rope.scaling.type", "linear");
    draft_f32(&draft, "llama.rope.scaling.factor", 1);
    draft_u32(&draft, "llama.expert_count", 0);
    draft_u32(&draft, "llama.context_length", 1u << 31);
    draft_u32(&draft, "llama.rope.dimension_count", 8);
    CHECK_OK(read_draft(&draft, &config, NULL));
    assert_int_equal(config.kv_heads, DRAFT_HEADS);
    assert_true(config.rope.freq_base == 10000);
    assert_string_equal(config.name, "");
    assert_int_equal(config.context_length, LIMIT_CONTEXT_TOKENS);
    assert_int_equal(config.rope.dimension_count, 8);
    draft_finish(&draft);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_usual_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
