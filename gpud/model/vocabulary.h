// SPDX-License-Identifier: Apache-2.0
// The tokens of a model: names, types, scores, special ids, and finding a token by its name. Read
// from a gguf and checked once, then never changed. Part of the tokenizer.
#ifndef KVTIER_GPUD_MODEL_VOCABULARY_H
#define KVTIER_GPUD_MODEL_VOCABULARY_H

#include "gpud/model/gguf.h"
#include "proto/hash.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { VOCABULARY_TOKEN_BYTES_MAX = 4096 };

#define VOCABULARY_NO_TOKEN UINT32_MAX

enum vocabulary_type { // GGUF's token types
    VOCABULARY_TYPE_NORMAL = 1,
    VOCABULARY_TYPE_UNKNOWN = 2,
    VOCABULARY_TYPE_CONTROL = 3,
    VOCABULARY_TYPE_USER_DEFINED = 4,
    VOCABULARY_TYPE_UNUSED = 5,
    VOCABULARY_TYPE_BYTE = 6,
};

struct vocabulary {
    uint32_t count;
    char *names;       // one after another, no NUL between
    uint32_t *offsets; // [count + 1] of names
    uint8_t *types;    // [count] enum vocabulary_type
    bool *ends;        // [count] tokens after which generation stops
    float *scores;     // [count]; NULL when the file has none
    uint32_t longest_bytes;
    uint32_t *slots; // [slot_mask + 1] token or VOCABULARY_NO_TOKEN, linear probing
    uint32_t slot_mask;
    uint8_t hash_key[HASH_KEY_BYTES];
    uint32_t bos, eos, eot, eom, unknown, padding; // or VOCABULARY_NO_TOKEN
};

// Fills `out`; on failure it is finished. STATUS_INVALID, STATUS_NO_MEMORY.
enum status vocabulary_init(struct vocabulary *out, const struct gguf *gguf,
                            struct reason *reason) KV_MUST_CHECK;
void vocabulary_finish(struct vocabulary *vocabulary);

// The name of a token below `count`; lives as long as the vocabulary.
struct gguf_string vocabulary_name(const struct vocabulary *vocabulary, uint32_t token);

// The token named by these bytes, or VOCABULARY_NO_TOKEN.
uint32_t vocabulary_find(const struct vocabulary *vocabulary, const char *name, size_t bytes);

// Control and unknown tokens: never made from user text unless asked, not shown in text.
static inline bool vocabulary_is_special(const struct vocabulary *vocabulary, uint32_t token)
{
    return vocabulary->types[token] == VOCABULARY_TYPE_CONTROL ||
           vocabulary->types[token] == VOCABULARY_TYPE_UNKNOWN;
}

#endif
