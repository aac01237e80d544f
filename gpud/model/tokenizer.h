// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back, as the model file says: byte-level BPE (pre-tokenizers of
// docs/MODELS.md) and SentencePiece BPE (`llama`: scores, byte fallback, space prefix). Needs the
// metadata only, so a vocabulary-only file will do. After creation the object never changes: any
// thread may use it, each call has its own scratch. Time is O(n log n) in the text, whatever the
// text. Never: keeps the gguf, holds back partial characters (that is the reply's work), turns user
// text into special tokens unless asked.
#ifndef KVTIER_GPUD_MODEL_TOKENIZER_H
#define KVTIER_GPUD_MODEL_TOKENIZER_H

#include "gpud/model/gguf.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOKENIZER_NO_TOKEN UINT32_MAX

// Longest piece of text without a word break that is encoded: the memory of one call is at most
// about 45 bytes a byte of its longest word.
enum { TOKENIZER_WORD_BYTES_MAX = 8 << 20 };

struct tokenizer;

// A growing list of token ids; zeroed memory is the empty list.
struct token_list {
    uint32_t *tokens; // [count]
    size_t count;
    size_t capacity;
};

// Text that tokens stand for; `text` is to be freed.
struct token_text {
    char *text;
    size_t bytes;
};

void token_list_finish(struct token_list *list); // frees; zeroed memory is fine
enum status token_list_push(struct token_list *list,
                            uint32_t token) KV_MUST_CHECK; // STATUS_NO_MEMORY

// STATUS_INVALID (malformed vocabulary), STATUS_UNSUPPORTED (tokenizer or pre-tokenizer, named with
// the supported ones), STATUS_NO_MEMORY.
enum status tokenizer_create(const struct gguf *gguf, struct tokenizer **out_tokenizer,
                             struct reason *reason) KV_MUST_CHECK;
void tokenizer_destroy(struct tokenizer *tokenizer); // NULL is fine

struct tokenizer_input {
    const char *text;   // any bytes; what is not UTF-8 becomes its bytes' tokens
    size_t bytes;       // <= LIMIT_PROMPT_BYTES
    bool add_special;   // exactly one BOS in front, and EOS behind, where the model wants them
    bool parse_special; // texts of special tokens become these tokens
    bool continues;     // text goes on after other tokens: no space prefix at its start
};

// Appends the tokens of `input` to `list`, which keeps its length on failure. STATUS_REFUSED when
// the text is longer than LIMIT_PROMPT_BYTES or a word of it than TOKENIZER_WORD_BYTES_MAX,
// STATUS_NO_MEMORY.
enum status tokenizer_encode(const struct tokenizer *tokenizer, const struct tokenizer_input *input,
                             struct token_list *list) KV_MUST_CHECK;

// The bytes that `token` stands for in text: the pieces of a text join to the text. Special tokens
// give their name when `special`, else nothing; ids out of range nothing. Lives as long as the
// tokenizer.
const uint8_t *tokenizer_token_bytes(const struct tokenizer *tokenizer, uint32_t token,
                                     bool special, size_t *out_bytes);

// The text of `count` tokens, malloc'ed and NUL-ended (not counted in out_bytes), owned by the
// caller. The space that encoding puts in front of the first word (SentencePiece) is dropped, so
// that decoding what was encoded gives the same text. Ids out of range give nothing.
// STATUS_NO_MEMORY.
enum status tokenizer_decode(const struct tokenizer *tokenizer, const uint32_t *tokens,
                             size_t count, bool special, struct token_text *out_text) KV_MUST_CHECK;

uint32_t tokenizer_vocab_count(const struct tokenizer *tokenizer);
// The token whose name is exactly `text` (special ones too), or TOKENIZER_NO_TOKEN.
uint32_t tokenizer_find(const struct tokenizer *tokenizer, const char *text);
bool tokenizer_is_special(const struct tokenizer *tokenizer, uint32_t token); // control or unknown
// True for tokens after which the model has nothing more to say: EOS, EOT and the names of the
// field.
bool tokenizer_is_end(const struct tokenizer *tokenizer, uint32_t token);
// TOKENIZER_NO_TOKEN when the model has none.
uint32_t tokenizer_bos(const struct tokenizer *tokenizer);
uint32_t tokenizer_eos(const struct tokenizer *tokenizer);
bool tokenizer_adds_bos(const struct tokenizer *tokenizer);

#endif
