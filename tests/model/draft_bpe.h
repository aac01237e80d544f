// SPDX-License-Identifier: Apache-2.0
// Tokenizers for tests: a draft's vocabulary made into byte-level BPE with a few merges and
// ChatML's special tokens, and a tokenizer from a draft. Header only; one thread.
#ifndef KVTIER_TESTS_MODEL_DRAFT_BPE_H
#define KVTIER_TESTS_MODEL_DRAFT_BPE_H

#include "gpud/model/tokenizer.h"
#include "tests/model/draft.h"

// Tokens 0..255 are the bytes, then:
enum {
    BPE_HE = 256, // "he"
    BPE_LL,       // "ll"
    BPE_HELL,     // "hell", of "he" and "ll"
    BPE_HELLO,    // "hello"
    BPE_SPACE_HELLO,
    BPE_AA,   // "aa"
    BPE_AAAA, // "aaaa"
    BPE_END_OF_TEXT,
    BPE_IM_START,
    BPE_IM_END,
    BPE_USER_DEFINED, // "<user>"
    BPE_TOKENS
};

// The name of a byte in GPT-2's alphabet.
static inline void draft_byte_name(unsigned byte, char *out)
{
    static const unsigned char shifted[] =
        "\x7f\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f"
        "\x90\x91\x92\x93\x94\x95\x96\x97\x98\x99\x9a\x9b\x9c\x9d\x9e\x9f\xa0\xad";
    unsigned character = byte <= 32 ? 256 + byte : byte;
    for (unsigned i = 0; i < sizeof(shifted) - 1; i++) {
        character = byte == shifted[i] ? 289 + i : character;
    }
    if (character < 0x80) {
        out[0] = (char)character;
        out[1] = '\0';
        return;
    }
    out[0] = (char)(0xc0 | character >> 6);
    out[1] = (char)(0x80 | (character & 63));
    out[2] = '\0';
}

static inline void draft_bpe(struct draft *draft)
{
    static const char *const names[] = {
        "he",    "ll",   "hell",          "hello",        "\xc4\xa0hello",
        "aa",    "aaaa", "<|endoftext|>", "<|im_start|>", "<|im_end|>",
        "<user>"};
    static const char *const merges[] = {"h e", "l l",  "he ll", "hell o", "\xc4\xa0 hello",
                                         "a a", "aa aa"};
    struct draft_bytes *tokens =
        draft_array(draft, "tokenizer.ggml.tokens", GGUF_TYPE_STRING, BPE_TOKENS);
    for (unsigned byte = 0; byte < 256; byte++) {
        char name[4];
        draft_byte_name(byte, name);
        draft_put_text(tokens, name);
    }
    for (unsigned i = 0; i < BPE_TOKENS - 256; i++) {
        draft_put_text(tokens, names[i]);
    }
    struct draft_bytes *types =
        draft_array(draft, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, BPE_TOKENS);
    for (unsigned i = 0; i < BPE_TOKENS; i++) {
        draft_put_u32(types, i == BPE_USER_DEFINED ? 4 : i >= BPE_END_OF_TEXT ? 3 : 1);
    }
    draft_texts(draft, "tokenizer.ggml.merges", merges, sizeof(merges) / sizeof(merges[0]));
    draft_remove(draft, "tokenizer.ggml.scores");
    draft_text(draft, "tokenizer.ggml.model", "gpt2");
    draft_text(draft, "tokenizer.ggml.pre", "gpt-2");
    draft_u32(draft, "tokenizer.ggml.bos_token_id", BPE_IM_START);
    draft_u32(draft, "tokenizer.ggml.eos_token_id", BPE_IM_END);
    draft_u32(draft, "tokenizer.ggml.unknown_token_id", BPE_END_OF_TEXT);
    draft->tensor_count = 0; // a vocabulary-only file
    draft->data_bytes = 0;
}

// The gguf of a draft; the draft is used up.
static inline struct gguf *draft_gguf(struct draft *draft)
{
    struct draft_bytes bytes = draft_write(draft);
    struct draft_file file = {bytes.data, bytes.bytes, 0};
    struct gguf_source source = draft_source(&file);
    struct gguf *gguf = NULL;
    struct reason reason = {0};
    if (gguf_open(&source, &gguf, &reason) != STATUS_OK) {
        fail_msg("%s", reason.text);
    }
    free(bytes.data);
    draft_finish(draft);
    return gguf;
}

// The tokenizer of a draft, which is used up. On failure `out_reason` says why and NULL is
// returned.
static inline struct tokenizer *draft_tokenizer(struct draft *draft, enum status *out_status,
                                                struct reason *out_reason)
{
    struct gguf *gguf = draft_gguf(draft);
    struct tokenizer *tokenizer = NULL;
    *out_status = tokenizer_create(gguf, &tokenizer, out_reason);
    gguf_close(gguf);
    return tokenizer;
}

#endif
