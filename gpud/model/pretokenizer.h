// SPDX-License-Identifier: Apache-2.0
// Splits text into the words that byte-level BPE merges within, by the regular expressions of the
// model's pre-tokenizer (PCRE2 with JIT). Several expressions apply one after another: each splits
// the pieces that the one before left, and what it does not match stays a piece. Immutable after
// creation, any thread.
#ifndef KVTIER_GPUD_MODEL_PRETOKENIZER_H
#define KVTIER_GPUD_MODEL_PRETOKENIZER_H

#include "gpud/model/gguf.h"
#include "proto/status.h"

struct pretokenizer;

// `name` as in tokenizer.ggml.pre; no text means "default". STATUS_UNSUPPORTED names it and the
// supported ones, STATUS_NO_MEMORY. `file` is for messages.
enum status pretokenizer_create(struct gguf_string name, const char *file,
                                struct pretokenizer **out_pretokenizer,
                                struct reason *reason) KV_MUST_CHECK;
void pretokenizer_destroy(struct pretokenizer *pretokenizer); // NULL is fine

// Takes one word; failing ends the split.
struct pretokenizer_sink {
    void *context;
    enum status (*word)(void *context, const char *text, size_t bytes);
};

// Gives every byte of `text` to the sink, in order, in words that are never empty. Runs of bytes
// that are not UTF-8 are words of their own. STATUS_NO_MEMORY, or what the sink gave.
enum status pretokenizer_split(const struct pretokenizer *pretokenizer, const char *text,
                               size_t bytes, const struct pretokenizer_sink *sink) KV_MUST_CHECK;

#endif
