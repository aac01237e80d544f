// SPDX-License-Identifier: Apache-2.0
// Byte-level BPE: every byte is a symbol, written in the vocabulary as one printable character
// (GPT-2's byte alphabet); pairs of symbols merge by rank within the words of the pre-tokenizer.
// Part of the tokenizer; immutable after creation, any thread.
#ifndef KVTIER_GPUD_MODEL_TOKENIZER_BPE_H
#define KVTIER_GPUD_MODEL_TOKENIZER_BPE_H

#include "gpud/model/gguf.h"
#include "gpud/model/tokenizer.h"
#include "gpud/model/vocabulary.h"

struct bpe;

// STATUS_INVALID (merges), STATUS_UNSUPPORTED (pre-tokenizer), STATUS_NO_MEMORY. `vocabulary` must
// outlive it.
enum status bpe_create(const struct gguf *gguf, const struct vocabulary *vocabulary,
                       struct bpe **out_bpe, struct reason *reason) KV_MUST_CHECK;
void bpe_destroy(struct bpe *bpe); // NULL is fine

// Appends the tokens of `text`. STATUS_REFUSED (a word over TOKENIZER_WORD_BYTES_MAX),
// STATUS_NO_MEMORY.
enum status bpe_encode(const struct bpe *bpe, const char *text, size_t bytes,
                       struct token_list *list) KV_MUST_CHECK;

// The bytes that a token's name stands for, to `out` [name.bytes]; returns how many. A name with a
// character outside the byte alphabet stands for itself.
size_t bpe_decode_name(struct gguf_string name, uint8_t *out);

#endif
