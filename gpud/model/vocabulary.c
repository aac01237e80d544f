// SPDX-License-Identifier: Apache-2.0
// Token tables from GGUF arrays. The hash table is keyed at random: a file cannot choose names that
// collide.
#include "gpud/model/vocabulary.h"

#include "proto/limits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HINT_AGAIN "download the file again, or ask its maker"

// Names that end generation in the models of the field, whatever their files say of them.
static const char *const END_NAMES[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    ("<\xef\xbd\x9c" // apart, or "c" and "e" would be digits of one escape
     "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"),
};

static enum status no_memory(const struct gguf *gguf, struct reason *reason)
{
    return reason_set(reason, STATUS_NO_MEMORY, "", "%s: no memory for its vocabulary",
                      gguf_name(gguf));
}

struct gguf_string vocabulary_name(const struct vocabulary *vocabulary, uint32_t token)
{
    uint32_t start = vocabulary->offsets[token];
    return (struct gguf_string){vocabulary->names + start, vocabulary->offsets[token + 1] - start};
}

// The slot that holds the name, or the empty one where it belongs.
static uint32_t *find_slot(const struct vocabulary *vocabulary, const char *name, size_t bytes)
{
    uint32_t index = (uint32_t)hash_keyed(vocabulary->hash_key, name, bytes);
    for (;; index++) { // ends: at most half of the slots are taken
        uint32_t *slot = &vocabulary->slots[index & vocabulary->slot_mask];
        if (*slot == VOCABULARY_NO_TOKEN) {
            return slot;
        }
        struct gguf_string other = vocabulary_name(vocabulary, *slot);
        if (other.bytes == bytes && memcmp(other.text, name, bytes) == 0) {
            return slot;
        }
    }
}

uint32_t vocabulary_find(const struct vocabulary *vocabulary, const char *name, size_t bytes)
{
    if (bytes == 0 || bytes > vocabulary->longest_bytes) {
        return VOCABULARY_NO_TOKEN;
    }
    return *find_slot(vocabulary, name, bytes);
}

static enum status allocate(struct vocabulary *vocabulary, const struct gguf *gguf,
                            const struct gguf_value *names, struct reason *reason)
{
    uint32_t count = (uint32_t)names->count;
    uint32_t slots = 16;
    while (slots < 2 * count) {
        slots *= 2;
    }
    vocabulary->count = count;
    vocabulary->slot_mask = slots - 1;
    vocabulary->names = malloc(names->data_bytes + 1);
    vocabulary->offsets = malloc(((size_t)count + 1) * sizeof(*vocabulary->offsets));
    vocabulary->types = malloc(count);
    vocabulary->ends = calloc(count, sizeof(*vocabulary->ends));
    vocabulary->slots = malloc(slots * sizeof(*vocabulary->slots));
    if (vocabulary->names == NULL || vocabulary->offsets == NULL || vocabulary->types == NULL ||
        vocabulary->ends == NULL || vocabulary->slots == NULL) {
        return no_memory(gguf, reason);
    }
    memset(vocabulary->types, VOCABULARY_TYPE_NORMAL, count);
    memset(vocabulary->slots, 0xff, slots * sizeof(*vocabulary->slots)); // all VOCABULARY_NO_TOKEN
    hash_random_key(vocabulary->hash_key);
    return STATUS_OK;
}

static enum status read_names(struct vocabulary *vocabulary, const struct gguf *gguf,
                              const struct gguf_value *names, struct reason *reason)
{
    size_t cursor = 0;
    uint32_t end = 0;
    for (uint32_t token = 0; token < vocabulary->count; token++) {
        struct gguf_string name = gguf_string_next(names, &cursor);
        if (name.bytes > VOCABULARY_TOKEN_BYTES_MAX) {
            return reason_set(reason, STATUS_INVALID, HINT_AGAIN,
                              "%s: token %u is %zu bytes long (at most %d)", gguf_name(gguf), token,
                              name.bytes, VOCABULARY_TOKEN_BYTES_MAX);
        }
        memcpy(vocabulary->names + end, name.text, name.bytes);
        vocabulary->offsets[token] = end;
        end += (uint32_t)name.bytes;
        vocabulary->offsets[token + 1] = end;
        if (name.bytes > vocabulary->longest_bytes) {
            vocabulary->longest_bytes = (uint32_t)name.bytes;
        }
        if (name.bytes == 0) {
            continue; // a hole in the vocabulary: no text ever becomes it
        }
        uint32_t *slot = find_slot(vocabulary, name.text, name.bytes);
        if (*slot != VOCABULARY_NO_TOKEN) {
            return reason_set(reason, STATUS_INVALID, HINT_AGAIN,
                              "%s: tokens %u and %u have the same name %s", gguf_name(gguf), *slot,
                              token, gguf_label(name).text);
        }
        *slot = token;
    }
    return STATUS_OK;
}

static enum status check_length(const struct gguf *gguf, const struct gguf_value *array,
                                uint32_t count, const char *key, struct reason *reason)
{
    if (array == NULL || array->count == count) {
        return STATUS_OK;
    }
    return reason_set(reason, STATUS_INVALID, HINT_AGAIN, "%s: %s has %llu entries for %u tokens",
                      gguf_name(gguf), key, (unsigned long long)array->count, count);
}

static enum status read_types(struct vocabulary *vocabulary, const struct gguf *gguf,
                              struct reason *reason)
{
    const char *key = "tokenizer.ggml.token_type";
    const struct gguf_value *types = NULL;
    enum status status = gguf_read_array(gguf, key, GGUF_TYPE_INT32, &types, reason);
    if (status == STATUS_OK) {
        status = check_length(gguf, types, vocabulary->count, key, reason);
    }
    if (status != STATUS_OK || types == NULL) {
        return status;
    }
    for (uint32_t token = 0; token < vocabulary->count; token++) {
        int32_t type = 0;
        memcpy(&type, types->data + token * sizeof(type), sizeof(type));
        if (type < VOCABULARY_TYPE_NORMAL || type > VOCABULARY_TYPE_BYTE) {
            return reason_set(reason, STATUS_INVALID, HINT_AGAIN,
                              "%s: token %u has the unknown type %d", gguf_name(gguf), token, type);
        }
        vocabulary->types[token] = (uint8_t)type;
    }
    return STATUS_OK;
}

static enum status read_scores(struct vocabulary *vocabulary, const struct gguf *gguf,
                               struct reason *reason)
{
    const char *key = "tokenizer.ggml.scores";
    const struct gguf_value *scores = NULL;
    enum status status = gguf_read_array(gguf, key, GGUF_TYPE_FLOAT32, &scores, reason);
    if (status == STATUS_OK) {
        status = check_length(gguf, scores, vocabulary->count, key, reason);
    }
    if (status != STATUS_OK || scores == NULL) {
        return status;
    }
    vocabulary->scores = malloc(vocabulary->count * sizeof(*vocabulary->scores));
    if (vocabulary->scores == NULL) {
        return no_memory(gguf, reason);
    }
    memcpy(vocabulary->scores, scores->data, vocabulary->count * sizeof(*vocabulary->scores));
    for (uint32_t token = 0; token < vocabulary->count; token++) {
        if (!isfinite(vocabulary->scores[token])) {
            return reason_set(reason, STATUS_INVALID, HINT_AGAIN,
                              "%s: the score of token %u is not finite", gguf_name(gguf), token);
        }
    }
    return STATUS_OK;
}

// An id that is not in the vocabulary would be an index past our tables: refused, not ignored.
static enum status read_ids(struct vocabulary *vocabulary, const struct gguf *gguf,
                            struct reason *reason)
{
    const struct {
        const char *key;
        uint32_t *out;
    } ids[] = {
        {"tokenizer.ggml.bos_token_id", &vocabulary->bos},
        {"tokenizer.ggml.eos_token_id", &vocabulary->eos},
        {"tokenizer.ggml.eot_token_id", &vocabulary->eot},
        {"tokenizer.ggml.eom_token_id", &vocabulary->eom},
        {"tokenizer.ggml.unknown_token_id", &vocabulary->unknown},
        {"tokenizer.ggml.padding_token_id", &vocabulary->padding},
    };
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        const struct gguf_number number = {ids[i].key, 0, vocabulary->count - 1,
                                           VOCABULARY_NO_TOKEN, false};
        uint64_t id = 0;
        enum status status = gguf_read_number(gguf, &number, &id, reason);
        if (status != STATUS_OK) {
            return status;
        }
        *ids[i].out = (uint32_t)id;
    }
    return STATUS_OK;
}

static void mark_end(struct vocabulary *vocabulary, uint32_t token)
{
    if (token != VOCABULARY_NO_TOKEN) {
        vocabulary->ends[token] = true;
    }
}

// As the field does, these names are control tokens even where a file calls them something else.
static void mark_ends(struct vocabulary *vocabulary)
{
    for (size_t i = 0; i < sizeof(END_NAMES) / sizeof(END_NAMES[0]); i++) {
        uint32_t token = vocabulary_find(vocabulary, END_NAMES[i], strlen(END_NAMES[i]));
        mark_end(vocabulary, token);
        if (token != VOCABULARY_NO_TOKEN) {
            vocabulary->types[token] = VOCABULARY_TYPE_CONTROL;
        }
    }
    mark_end(vocabulary, vocabulary->eos);
    mark_end(vocabulary, vocabulary->eot);
    mark_end(vocabulary, vocabulary->eom);
}

enum status vocabulary_init(struct vocabulary *out, const struct gguf *gguf, struct reason *reason)
{
    memset(out, 0, sizeof(*out));
    const struct gguf_value *names = NULL;
    enum status status =
        gguf_read_array(gguf, "tokenizer.ggml.tokens", GGUF_TYPE_STRING, &names, reason);
    if (status != STATUS_OK) {
        return status;
    }
    if (names == NULL || names->count == 0 || names->count > LIMIT_VOCAB_TOKENS) {
        return reason_set(reason, STATUS_INVALID, HINT_AGAIN,
                          "%s: its vocabulary has %llu tokens (1..%d)", gguf_name(gguf),
                          (unsigned long long)(names == NULL ? 0 : names->count),
                          LIMIT_VOCAB_TOKENS);
    }
    status = allocate(out, gguf, names, reason);
    if (status == STATUS_OK) {
        status = read_names(out, gguf, names, reason);
    }
    enum status (*const steps[])(struct vocabulary *, const struct gguf *,
                                 struct reason *) = {read_types, read_scores, read_ids};
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]) && status == STATUS_OK; i++) {
        status = steps[i](out, gguf, reason);
    }
    if (status != STATUS_OK) {
        vocabulary_finish(out);
        return status;
    }
    mark_ends(out);
    return STATUS_OK;
}

void vocabulary_finish(struct vocabulary *vocabulary)
{
    free(vocabulary->names);
    free(vocabulary->offsets);
    free(vocabulary->types);
    free(vocabulary->ends);
    free(vocabulary->scores);
    free(vocabulary->slots);
    memset(vocabulary, 0, sizeof(*vocabulary));
}
