// SPDX-License-Identifier: Apache-2.0
// Fields first as text, then one hash over all names and values: what a person reads in `kvctl` is
// exactly what identity is made of. Doubles are written with 17 digits, which is exact.
#include "gpud/model/fingerprint.h"

#include "proto/hash.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static_assert((int)BLOCK_ID_BYTES == (int)HASH_BYTES, "a fingerprint is one hash");

void fingerprint_text(const uint8_t *bytes, char *out)
{
    static const char digits[] = "0123456789abcdef";
    for (unsigned i = 0; i < BLOCK_ID_BYTES; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * BLOCK_ID_BYTES] = '\0';
}

// Appends one field; a value never has to be cut off, since a cut value would not be identity.
__attribute__((format(printf, 3, 4))) static void add(struct kv_namespace *space, const char *name,
                                                      const char *format, ...)
{
    assert(space->field_count < KV_FIELD_MAX);
    struct kv_field *field = &space->fields[space->field_count++];
    int name_length = snprintf(field->name, sizeof(field->name), "%s", name);
    va_list arguments;
    va_start(arguments, format);
    int value_length = vsnprintf(field->value, sizeof(field->value), format, arguments);
    va_end(arguments);
    assert(name_length > 0 && name_length < (int)sizeof(field->name));
    assert(value_length >= 0 && value_length < (int)sizeof(field->value));
}

static void add_rope(struct kv_namespace *space, const struct model_rope *rope)
{
    add(space, "rope_kind", "normal");
    add(space, "rope_dimensions", "%u", rope->dimension_count);
    add(space, "rope_freq_base", "%.17g", rope->freq_base);
    add(space, "rope_scaling", "none");
    if (!rope->has_factors) {
        add(space, "rope_factors", "none");
        return;
    }
    struct hash hash;
    uint8_t digest[HASH_BYTES];
    char text[FINGERPRINT_TEXT_BYTES];
    hash_init(&hash);
    hash_field(&hash, rope->factors, rope->dimension_count / 2 * sizeof(rope->factors[0]));
    hash_final(&hash, digest);
    fingerprint_text(digest, text);
    add(space, "rope_factors", "%s", text);
}

static const char *format_name(enum kv_format format)
{
    return format == KV_FORMAT_F16 ? "f16" : format == KV_FORMAT_INT8 ? "int8" : "int4";
}

static const char *kind_name(enum kv_group_kind kind)
{
    return kind == KV_GROUP_FULL ? "full" : kind == KV_GROUP_WINDOW ? "window" : "recurrent";
}

static void add_group(struct kv_namespace *space, uint32_t index, const struct kv_group *group)
{
    char name[KV_FIELD_NAME_BYTES];
    snprintf(name, sizeof(name), "group_%u", index);
    add(space, name, "%s window=%u layers=%u kv_heads=%u head_dim=%u format=%s",
        kind_name(group->kind), group->window_tokens, group->layer_count, group->kv_heads,
        group->head_dim, format_name(group->format));
    space->groups[index] = *group;
}

static void hash_fields(struct kv_namespace *space)
{
    static const char tag[] = "kvtier-namespace";
    struct hash hash;
    hash_init(&hash);
    hash_field(&hash, tag, sizeof(tag) - 1);
    for (uint32_t i = 0; i < space->field_count; i++) {
        const struct kv_field *field = &space->fields[i];
        hash_field(&hash, field->name, strlen(field->name));
        hash_field(&hash, field->value, strlen(field->value));
    }
    hash_final(&hash, space->fingerprint);
}

void fingerprint_build(const struct fingerprint_input *input, struct kv_namespace *out)
{
    const struct model_config *config = input->config;
    char digest[FINGERPRINT_TEXT_BYTES];
    fingerprint_text(input->model_digest, digest);
    memset(out, 0, sizeof(*out));
    add(out, "format_version", "%d", FINGERPRINT_VERSION);
    add(out, "layout_version", "%d", BLOCK_LAYOUT_VERSION);
    add(out, "model_digest", "%s", digest);
    add(out, "architecture", "%.60s", config->architecture);
    add_rope(out, &config->rope);
    add(out, "attention_scale", "%.17g", (double)config->attention_scale);
    add(out, "rms_epsilon", "%.17g", (double)config->rms_epsilon);
    add(out, "layers", "%u", config->layer_count);
    add(out, "embedding", "%u", config->embedding);
    add(out, "heads", "%u", config->heads);
    add(out, "kv_heads", "%u", config->kv_heads);
    add(out, "head_dim", "%u", config->head_dim);
    add(out, "groups", "%u", config->group_count);
    for (uint32_t i = 0; i < config->group_count; i++) {
        add_group(out, i, &input->groups[i]);
    }
    add(out, "kv_rotation", "%u", input->rotation);
    add(out, "block_tokens", "%u", input->block_tokens);
    add(out, "numerics", "%.60s", input->numerics);
    out->block_tokens = input->block_tokens;
    out->group_count = config->group_count;
    hash_fields(out);
}

static const struct kv_field *find_field(const struct kv_namespace *space, const char *name)
{
    for (uint32_t i = 0; i < space->field_count; i++) {
        if (strcmp(space->fields[i].name, name) == 0) {
            return &space->fields[i];
        }
    }
    return NULL;
}

const struct kv_field *fingerprint_difference(const struct kv_namespace *a,
                                              const struct kv_namespace *b,
                                              const struct kv_field **out_other)
{
    for (uint32_t i = 0; i < a->field_count; i++) {
        const struct kv_field *other = find_field(b, a->fields[i].name);
        if (other == NULL || strcmp(a->fields[i].value, other->value) != 0) {
            *out_other = other;
            return &a->fields[i];
        }
    }
    return NULL;
}
