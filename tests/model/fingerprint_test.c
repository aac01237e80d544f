// SPDX-License-Identifier: Apache-2.0
// At stake: KV of another computation that is served as a hit. Every input of the fingerprint,
// changed alone, gives another fingerprint and is named by the difference; equal inputs give the
// same bytes in every process, this one included, whose value is frozen below.
#include "gpud/model/fingerprint.h"
#include "tests/check.h"

struct inputs {
    struct model_config config;
    struct kv_group groups[BLOCK_GROUP_MAX];
    uint8_t digest[MODEL_DIGEST_BYTES];
    struct fingerprint_input input;
};

static void inputs_init(struct inputs *inputs)
{
    memset(inputs, 0, sizeof(*inputs));
    struct model_config *config = &inputs->config;
    strcpy(config->architecture, "llama");
    config->embedding = 576;
    config->layer_count = 30;
    config->heads = 9;
    config->kv_heads = 3;
    config->head_dim = 64;
    config->rope.dimension_count = 64;
    config->rope.freq_base = 100000;
    config->rms_epsilon = 1e-5f;
    config->attention_scale = 0.125f;
    config->group_count = 1;
    inputs->groups[0] = (struct kv_group){KV_GROUP_FULL, 0, 30, 3, 64, KV_FORMAT_F16};
    for (unsigned i = 0; i < LIMIT_HEAD_DIM / 2; i++) {
        config->rope.factors[i] = 1;
    }
    for (unsigned i = 0; i < MODEL_DIGEST_BYTES; i++) {
        inputs->digest[i] = (uint8_t)i;
    }
    inputs->input = (struct fingerprint_input){.config = config,
                                               .groups = inputs->groups,
                                               .model_digest = inputs->digest,
                                               .block_tokens = 32,
                                               .numerics = "cpu-1"};
}

static void digest(struct inputs *i)
{
    i->digest[31] ^= 1;
}
static void base(struct inputs *i)
{
    i->config.rope.freq_base *= 1 + 1e-15;
}
static void dimensions(struct inputs *i)
{
    i->config.rope.dimension_count = 32;
}
static void factors(struct inputs *i)
{
    i->config.rope.has_factors = true;
    i->config.rope.factors[31] = 1.0000001f;
}
static void scale(struct inputs *i)
{
    i->config.attention_scale = 0.1250001f;
}
static void epsilon(struct inputs *i)
{
    i->config.rms_epsilon = 1.000001e-5f;
}
static void layers(struct inputs *i)
{
    i->config.layer_count = 31;
}
static void embedding(struct inputs *i)
{
    i->config.embedding = 577;
}
static void heads(struct inputs *i)
{
    i->config.heads = 6;
}
static void kv_heads(struct inputs *i)
{
    i->config.kv_heads = 9;
}
static void head_dim(struct inputs *i)
{
    i->config.head_dim = 96;
}
static void architecture(struct inputs *i)
{
    strcpy(i->config.architecture, "llamb");
}
static void format(struct inputs *i)
{
    i->groups[0].format = KV_FORMAT_INT8;
}
static void window(struct inputs *i)
{
    i->groups[0].kind = KV_GROUP_WINDOW;
    i->groups[0].window_tokens = 4096;
}
static void group_layers(struct inputs *i)
{
    i->groups[0].layer_count = 29;
}
static void groups(struct inputs *i)
{
    i->groups[1] = i->groups[0];
    i->config.group_count = 2;
}
static void rotation(struct inputs *i)
{
    i->input.rotation = 6;
}
static void block_tokens(struct inputs *i)
{
    i->input.block_tokens = 64;
}
static void numerics(struct inputs *i)
{
    i->input.numerics = "cpu-2";
}

static const struct {
    const char *field;
    void (*change)(struct inputs *inputs);
} CHANGES[] = {
    {"model_digest", digest},  {"rope_freq_base", base},   {"rope_dimensions", dimensions},
    {"rope_factors", factors}, {"attention_scale", scale}, {"rms_epsilon", epsilon},
    {"layers", layers},        {"embedding", embedding},   {"heads", heads},
    {"kv_heads", kv_heads},    {"head_dim", head_dim},     {"architecture", architecture},
    {"group_0", format},       {"group_0", window},        {"group_0", group_layers},
    {"groups", groups},        {"kv_rotation", rotation},  {"block_tokens", block_tokens},
    {"numerics", numerics},
};

static void test_every_input_counts(void **state)
{
    (void)state;
    struct inputs inputs;
    struct kv_namespace base_space;
    inputs_init(&inputs);
    fingerprint_build(&inputs.input, &base_space);
    for (size_t i = 0; i < sizeof(CHANGES) / sizeof(CHANGES[0]); i++) {
        struct kv_namespace other;
        const struct kv_field *theirs = NULL;
        inputs_init(&inputs);
        CHANGES[i].change(&inputs);
        fingerprint_build(&inputs.input, &other);
        if (memcmp(other.fingerprint, base_space.fingerprint, BLOCK_ID_BYTES) == 0) {
            fail_msg("change %zu (%s) gives the same fingerprint", i, CHANGES[i].field);
        }
        const struct kv_field *ours = fingerprint_difference(&base_space, &other, &theirs);
        assert_non_null(ours);
        assert_string_equal(ours->name, CHANGES[i].field);
        assert_non_null(theirs);
        assert_string_not_equal(ours->value, theirs->value);
    }
}

// Two factors tables that differ in one value.
static void test_factors_count(void **state)
{
    (void)state;
    struct inputs inputs;
    struct kv_namespace spaces[2];
    for (int i = 0; i < 2; i++) {
        inputs_init(&inputs);
        inputs.config.rope.has_factors = true;
        inputs.config.rope.factors[7] = i == 0 ? 2.0f : 2.0000002f;
        fingerprint_build(&inputs.input, &spaces[i]);
    }
    assert_memory_not_equal(spaces[0].fingerprint, spaces[1].fingerprint, BLOCK_ID_BYTES);
}

// A changed value here is a changed identity: every store on disk becomes unusable. Raise
// FINGERPRINT_VERSION.
static void test_frozen_value(void **state)
{
    (void)state;
    struct inputs inputs;
    struct kv_namespace space;
    char text[FINGERPRINT_TEXT_BYTES];
    inputs_init(&inputs);
    fingerprint_build(&inputs.input, &space);
    fingerprint_text(space.fingerprint, text);
    assert_string_equal(text, "593fa0a6d37e94c0c3e959158eec0ad8b8f9ffc5139129bc871545d5b8736422");
    assert_int_equal(space.block_tokens, 32);
    assert_int_equal(space.group_count, 1);
    assert_memory_equal(&space.groups[0], &inputs.groups[0], sizeof(inputs.groups[0]));
    const struct kv_field *theirs = NULL;
    assert_null(fingerprint_difference(&space, &space, &theirs));
}

static void test_missing_field(void **state)
{
    (void)state;
    struct inputs inputs;
    struct kv_namespace space;
    struct kv_namespace older;
    inputs_init(&inputs);
    fingerprint_build(&inputs.input, &space);
    older = space;
    older.field_count--;
    const struct kv_field *theirs = &space.fields[0];
    const struct kv_field *ours = fingerprint_difference(&space, &older, &theirs);
    assert_string_equal(ours->name, "numerics");
    assert_null(theirs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_input_counts),
        cmocka_unit_test(test_factors_count),
        cmocka_unit_test(test_frozen_value),
        cmocka_unit_test(test_missing_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
