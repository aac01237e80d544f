// SPDX-License-Identifier: Apache-2.0
// Metadata of the architecture `llama` to plain numbers. What would change the computation and is
// not built is refused by its key, never ignored: a model that runs, runs as its file means it.
#include "gpud/model/model_config.h"

#include <math.h>
#include <string.h>

#define HINT_AGAIN "download the file again, or ask its maker"

// Keys of features that are not built; absent, 0, false or "none" is fine.
static const char *const REFUSED_NUMBERS[] = {
    "llama.expert_count",
    "llama.expert_used_count",
    "llama.attention.sliding_window",
    "llama.attention.shared_kv_layers",
    "llama.attention.temperature_length",
    "llama.leading_dense_block_count",
    "llama.pooling_type",
    "llama.nextn_predict_layers",
};

static const char *const REFUSED_FLOATS[] = {
    "llama.attn_logit_softcapping",
    "llama.final_logit_softcapping",
    "llama.attention.clamp_kqv",
    "llama.attention.max_alibi_bias",
    "llama.attention.scale",
    "llama.attention.temperature_scale",
    "llama.logit_scale",
    "llama.residual_scale",
    "llama.embedding_scale",
};

static enum status refuse(const struct gguf *gguf, const char *key, const char *value,
                          struct reason *reason)
{
    return reason_set(reason, STATUS_UNSUPPORTED, "use a plain llama model (docs/MODELS.md)",
                      "%s: %s is %s, which is not supported", gguf_name(gguf), key, value);
}

static void copy_text(struct gguf_string text, char *out)
{
    size_t count = text.bytes < MODEL_TEXT_BYTES - 1 ? text.bytes : MODEL_TEXT_BYTES - 1;
    for (size_t i = 0; i < count; i++) {
        out[i] = (unsigned char)text.text[i] < ' ' ? ' ' : text.text[i];
    }
    out[count] = '\0';
}

static enum status read_names(const struct gguf *gguf, struct model_config *config,
                              struct reason *reason)
{
    struct gguf_string architecture;
    struct gguf_string name;
    enum status status = gguf_read_text(gguf, "general.architecture", &architecture, reason);
    if (status == STATUS_OK) {
        status = gguf_read_text(gguf, "general.name", &name, reason);
    }
    if (status != STATUS_OK) {
        return status;
    }
    if (architecture.text == NULL) {
        return reason_set(reason, STATUS_INVALID, HINT_AGAIN,
                          "%s: metadata general.architecture is missing", gguf_name(gguf));
    }
    if (!gguf_string_equal(architecture, "llama")) {
        return reason_set(reason, STATUS_UNSUPPORTED, "use a llama model (docs/MODELS.md)",
                          "%s: the architecture %s is not supported (supported: llama)",
                          gguf_name(gguf), gguf_label(architecture).text);
    }
    copy_text(architecture, config->architecture);
    copy_text(name, config->name);
    return STATUS_OK;
}

static enum status read_u32(const struct gguf *gguf, const struct gguf_number *number,
                            uint32_t *out, struct reason *reason)
{
    uint64_t value = 0;
    enum status status = gguf_read_number(gguf, number, &value, reason);
    if (status == STATUS_OK) {
        *out = (uint32_t)value;
    }
    return status;
}

static enum status read_sizes(const struct gguf *gguf, struct model_config *config,
                              struct reason *reason)
{
    const struct {
        struct gguf_number number;
        uint32_t *out;
    } sizes[] = {
        {{"llama.context_length", 1, UINT32_MAX, 0, true}, &config->context_length},
        {{"llama.embedding_length", 1, LIMIT_EMBEDDING, 0, true}, &config->embedding},
        {{"llama.block_count", 1, LIMIT_LAYERS, 0, true}, &config->layer_count},
        {{"llama.feed_forward_length", 1, LIMIT_FEED_FORWARD, 0, true}, &config->feed_forward},
        {{"llama.attention.head_count", 1, LIMIT_HEADS, 0, true}, &config->heads},
    };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        enum status status = read_u32(gguf, &sizes[i].number, sizes[i].out, reason);
        if (status != STATUS_OK) {
            return status;
        }
    }
    if (config->context_length > LIMIT_CONTEXT_TOKENS) {
        config->context_length = LIMIT_CONTEXT_TOKENS;
    }
    const struct gguf_number kv_heads = {"llama.attention.head_count_kv", 1, LIMIT_HEADS,
                                         config->heads, false};
    return read_u32(gguf, &kv_heads, &config->kv_heads, reason);
}

static enum status check_heads(const struct gguf *gguf, const struct model_config *config,
                               uint32_t value_length, struct reason *reason)
{
    if (config->heads % config->kv_heads != 0) {
        return reason_set(reason, STATUS_INVALID, HINT_AGAIN,
                          "%s: %u KV heads do not divide %u heads", gguf_name(gguf),
                          config->kv_heads, config->heads);
    }
    if (value_length != config->head_dim) {
        return reason_set(reason, STATUS_UNSUPPORTED, "use a plain llama model (docs/MODELS.md)",
                          "%s: heads of %u dimensions for keys and %u for values are not supported",
                          gguf_name(gguf), config->head_dim, value_length);
    }
    return STATUS_OK;
}

static enum status read_head_dim(const struct gguf *gguf, struct model_config *config,
                                 struct reason *reason)
{
    bool divides = config->embedding % config->heads == 0;
    uint32_t usual = divides ? config->embedding / config->heads : 0;
    const struct gguf_number key_length = {"llama.attention.key_length", 1, LIMIT_HEAD_DIM, usual,
                                           !divides};
    enum status status = read_u32(gguf, &key_length, &config->head_dim, reason);
    if (status != STATUS_OK) {
        return status;
    }
    if (config->head_dim > LIMIT_HEAD_DIM) {
        return reason_set(reason, STATUS_UNSUPPORTED, "use another model",
                          "%s: heads of %u dimensions are not supported (at most %d)",
                          gguf_name(gguf), config->head_dim, LIMIT_HEAD_DIM);
    }
    const struct gguf_number value_length = {"llama.attention.value_length", 1, LIMIT_HEAD_DIM,
                                             config->head_dim, false};
    uint32_t value_dim = 0;
    status = read_u32(gguf, &value_length, &value_dim, reason);
    config->attention_scale = (float)(1.0 / sqrt((double)config->head_dim));
    return status == STATUS_OK ? check_heads(gguf, config, value_dim, reason) : status;
}

// A scaling of positions that does anything is refused: the KV would mean something else.
static enum status check_rope_scaling(const struct gguf *gguf, struct reason *reason)
{
    struct gguf_string kind;
    double factor = 1;
    double old_factor = 1;
    enum status status = gguf_read_text(gguf, "llama.rope.scaling.type", &kind, reason);
    if (status == STATUS_OK) {
        status = gguf_read_float(gguf, "llama.rope.scaling.factor", 1, &factor, reason);
    }
    if (status == STATUS_OK) {
        status = gguf_read_float(gguf, "llama.rope.scale_linear", 1, &old_factor, reason);
    }
    if (status != STATUS_OK) {
        return status;
    }
    bool named = kind.text != NULL && !gguf_string_equal(kind, "none");
    bool known = !named || gguf_string_equal(kind, "linear") || gguf_string_equal(kind, "yarn");
    bool scaled = (factor != 1 && factor != 0) || (old_factor != 1 && old_factor != 0);
    if (known && !scaled) {
        return STATUS_OK;
    }
    return reason_set(reason, STATUS_UNSUPPORTED, "use a model trained without it",
                      "%s: RoPE scaling %s by %g is not supported", gguf_name(gguf),
                      named ? gguf_label(kind).text : "linear", factor != 1 ? factor : old_factor);
}

static enum status read_rope(const struct gguf *gguf, struct model_config *config,
                             struct reason *reason)
{
    const struct gguf_number dimensions = {"llama.rope.dimension_count", 2, config->head_dim,
                                           config->head_dim, false};
    struct model_rope *rope = &config->rope;
    enum status status = read_u32(gguf, &dimensions, &rope->dimension_count, reason);
    if (status == STATUS_OK) {
        status = gguf_read_float(gguf, "llama.rope.freq_base", 10000, &rope->freq_base, reason);
    }
    if (status != STATUS_OK) {
        return status;
    }
    if (rope->dimension_count % 2 != 0) {
        return reason_set(reason, STATUS_INVALID, HINT_AGAIN,
                          "%s: RoPE over %u dimensions, which is odd", gguf_name(gguf),
                          rope->dimension_count);
    }
    if (!(rope->freq_base > 0)) {
        return reason_set(reason, STATUS_INVALID, HINT_AGAIN,
                          "%s: llama.rope.freq_base is %g, must be above 0", gguf_name(gguf),
                          rope->freq_base);
    }
    for (uint32_t i = 0; i < LIMIT_HEAD_DIM / 2; i++) {
        rope->factors[i] = 1;
    }
    return check_rope_scaling(gguf, reason);
}

static enum status read_epsilon(const struct gguf *gguf, struct model_config *config,
                                struct reason *reason)
{
    double epsilon = -1;
    const char *key = "llama.attention.layer_norm_rms_epsilon";
    enum status status = gguf_read_float(gguf, key, -1, &epsilon, reason);
    if (status != STATUS_OK) {
        return status;
    }
    if (epsilon < 0 || epsilon >= 1) {
        return reason_set(reason, STATUS_INVALID, HINT_AGAIN, "%s: %s is %s", gguf_name(gguf), key,
                          epsilon == -1 ? "missing" : "not in 0..1");
    }
    config->rms_epsilon = (float)epsilon;
    return STATUS_OK;
}

static enum status check_features(const struct gguf *gguf, struct reason *reason)
{
    for (size_t i = 0; i < sizeof(REFUSED_NUMBERS) / sizeof(REFUSED_NUMBERS[0]); i++) {
        const struct gguf_number number = {REFUSED_NUMBERS[i], 0, UINT64_MAX, 0, false};
        uint64_t value = 0;
        enum status status = gguf_read_number(gguf, &number, &value, reason);
        if (status != STATUS_OK) {
            return status;
        }
        if (value != 0) {
            return refuse(gguf, number.key, "set", reason);
        }
    }
    for (size_t i = 0; i < sizeof(REFUSED_FLOATS) / sizeof(REFUSED_FLOATS[0]); i++) {
        double value = 0;
        enum status status = gguf_read_float(gguf, REFUSED_FLOATS[i], 0, &value, reason);
        if (status != STATUS_OK) {
            return status;
        }
        if (value != 0) {
            return refuse(gguf, REFUSED_FLOATS[i], "set", reason);
        }
    }
    bool causal = true;
    enum status status = gguf_read_bool(gguf, "llama.attention.causal", true, &causal, reason);
    if (status == STATUS_OK && !causal) {
        status = refuse(gguf, "llama.attention.causal", "false", reason);
    }
    return status;
}

static void set_groups(struct model_config *config)
{
    config->group_count = 1;
    config->groups[0] = (struct kv_group){.kind = KV_GROUP_FULL,
                                          .layer_count = config->layer_count,
                                          .kv_heads = config->kv_heads,
                                          .head_dim = config->head_dim,
                                          .format = KV_FORMAT_F16};
}

enum status model_config_read(const struct gguf *gguf, struct model_config *out,
                              struct reason *reason)
{
    struct model_config config;
    memset(&config, 0, sizeof(config));
    enum status (*const steps[])(const struct gguf *, struct model_config *, struct reason *) = {
        read_names, read_sizes, read_head_dim, read_rope, read_epsilon};
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        enum status status = steps[i](gguf, &config, reason);
        if (status != STATUS_OK) {
            return status;
        }
    }
    enum status status = check_features(gguf, reason);
    if (status == STATUS_OK) {
        set_groups(&config);
        *out = config;
    }
    return status;
}
