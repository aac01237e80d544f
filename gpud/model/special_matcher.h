// SPDX-License-Identifier: Apache-2.0
// Finds the names of given tokens in text: at each place the longest one. Part of the tokenizer;
// immutable after creation, any thread.
#ifndef KVTIER_GPUD_MODEL_SPECIAL_MATCHER_H
#define KVTIER_GPUD_MODEL_SPECIAL_MATCHER_H

#include "gpud/model/vocabulary.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct special_matcher {
    const struct vocabulary *vocabulary;
    uint32_t *tokens; // [count] sorted by name, as bytes
    uint32_t count;
    bool starts[256]; // first bytes of names
};

// Of user-defined tokens, and when `special` of control and unknown ones too. `vocabulary` must
// outlive it. STATUS_NO_MEMORY.
enum status special_matcher_init(struct special_matcher *out, const struct vocabulary *vocabulary,
                                 bool special) KV_MUST_CHECK;
void special_matcher_finish(struct special_matcher *matcher);

// The longest token whose name `text` begins with, or VOCABULARY_NO_TOKEN.
uint32_t special_matcher_find(const struct special_matcher *matcher, const char *text,
                              size_t bytes);

#endif
