// SPDX-License-Identifier: Apache-2.0
// SentencePiece BPE (tokenizer.ggml.model = "llama"): spaces are written U+2581, characters are
// symbols, the pair that makes the token with the best score merges first, and characters without a
// token fall back to byte tokens. Part of the tokenizer; immutable after creation, any thread.
#ifndef KVTIER_GPUD_MODEL_TOKENIZER_SPM_H
#define KVTIER_GPUD_MODEL_TOKENIZER_SPM_H

#include "gpud/model/gguf.h"
#include "gpud/model/tokenizer.h"
#include "gpud/model/vocabulary.h"

#include <stdbool.h>

struct spm;

// STATUS_INVALID (no scores, malformed byte tokens, no way to encode some byte), STATUS_NO_MEMORY.
// `vocabulary` must outlive it.
enum status spm_create(const struct gguf *gguf, const struct vocabulary *vocabulary,
                       struct spm **out_spm, struct reason *reason) KV_MUST_CHECK;
void spm_destroy(struct spm *spm); // NULL is fine

// Appends the tokens of `text`, with a space put in front when `prefix`. STATUS_REFUSED (a word
// over TOKENIZER_WORD_BYTES_MAX), STATUS_NO_MEMORY.
enum status spm_encode(const struct spm *spm, const char *text, size_t bytes, bool prefix,
                       struct token_list *list) KV_MUST_CHECK;

// The bytes that a token stands for, to `out` [bytes of its name]; returns how many.
size_t spm_decode(const struct vocabulary *vocabulary, uint32_t token, uint8_t *out);

#endif
