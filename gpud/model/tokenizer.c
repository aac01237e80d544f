// SPDX-License-Identifier: Apache-2.0
// The face of both kinds of tokenizer: cuts out special tokens, puts BOS and EOS around, hands what
// is text to the model's kind, and keeps the bytes of every token ready for streaming.
#include "gpud/model/tokenizer.h"

#include "gpud/model/special_matcher.h"
#include "gpud/model/tokenizer_bpe.h"
#include "gpud/model/tokenizer_spm.h"
#include "gpud/model/vocabulary.h"
#include "proto/limits.h"

#include <stdlib.h>
#include <string.h>

#define HINT_AGAIN "download the file again, or ask its maker"

struct tokenizer {
    struct vocabulary vocabulary;
    struct special_matcher user_defined; // names that are tokens in any text
    struct special_matcher all;          // with parse_special
    struct bpe *bpe;                     // one of these two
    struct spm *spm;
    bool add_bos;
    bool add_eos;
    bool add_space_prefix;
    uint8_t *bytes;    // what each token stands for, one after another
    uint32_t *offsets; // [vocab + 1] of bytes
};

void token_list_finish(struct token_list *list)
{
    free(list->tokens);
    *list = (struct token_list){0};
}

enum status token_list_push(struct token_list *list, uint32_t token)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity == 0 ? 64 : 2 * list->capacity;
        uint32_t *tokens = realloc(list->tokens, capacity * sizeof(*tokens));
        if (tokens == NULL) {
            return STATUS_NO_MEMORY;
        }
        list->tokens = tokens;
        list->capacity = capacity;
    }
    list->tokens[list->count++] = token;
    return STATUS_OK;
}

static enum status no_memory(const struct gguf *gguf, struct reason *reason)
{
    return reason_set(reason, STATUS_NO_MEMORY, "", "%s: no memory for its tokenizer",
                      gguf_name(gguf));
}

static enum status create_kind(struct tokenizer *tokenizer, const struct gguf *gguf,
                               struct reason *reason)
{
    struct gguf_string model;
    enum status status = gguf_read_text(gguf, "tokenizer.ggml.model", &model, reason);
    if (status != STATUS_OK) {
        return status;
    }
    if (gguf_string_equal(model, "gpt2")) {
        return bpe_create(gguf, &tokenizer->vocabulary, &tokenizer->bpe, reason);
    }
    if (gguf_string_equal(model, "llama")) {
        return spm_create(gguf, &tokenizer->vocabulary, &tokenizer->spm, reason);
    }
    return reason_set(reason, model.text == NULL ? STATUS_INVALID : STATUS_UNSUPPORTED,
                      "use a model with one of these",
                      "%s: the tokenizer %s is not supported (supported: gpt2, llama)",
                      gguf_name(gguf), model.text == NULL ? "(none)" : gguf_label(model).text);
}

// SentencePiece models of files that do not say have BOS 1, EOS 2 and a space prefix.
static void assume_spm_ids(struct vocabulary *vocabulary)
{
    if (vocabulary->bos == TOKENIZER_NO_TOKEN && vocabulary->count > 1) {
        vocabulary->bos = 1;
    }
    if (vocabulary->eos == TOKENIZER_NO_TOKEN && vocabulary->count > 2) {
        vocabulary->eos = 2;
        vocabulary->ends[2] = true;
    }
}

static enum status read_habits(struct tokenizer *tokenizer, const struct gguf *gguf,
                               struct reason *reason)
{
    const struct vocabulary *vocabulary = &tokenizer->vocabulary;
    bool spm = tokenizer->spm != NULL;
    if (spm) {
        assume_spm_ids(&tokenizer->vocabulary);
    }
    const struct {
        const char *key;
        bool *out;
        bool usual;
    } habits[] = {
        {"tokenizer.ggml.add_bos_token", &tokenizer->add_bos, spm},
        {"tokenizer.ggml.add_eos_token", &tokenizer->add_eos, false},
        {"tokenizer.ggml.add_space_prefix", &tokenizer->add_space_prefix, spm},
    };
    for (size_t i = 0; i < sizeof(habits) / sizeof(habits[0]); i++) {
        enum status status =
            gguf_read_bool(gguf, habits[i].key, habits[i].usual, habits[i].out, reason);
        if (status != STATUS_OK) {
            return status;
        }
    }
    if ((tokenizer->add_bos && vocabulary->bos == TOKENIZER_NO_TOKEN) ||
        (tokenizer->add_eos && vocabulary->eos == TOKENIZER_NO_TOKEN)) {
        return reason_set(reason, STATUS_INVALID, HINT_AGAIN,
                          "%s: wants a BOS or EOS token added but does not say which it is",
                          gguf_name(gguf));
    }
    return STATUS_OK;
}

// Special and user-defined tokens stand for their names, shown or not; unused ones for nothing in
// BPE.
static size_t decode_token(const struct tokenizer *tokenizer, uint32_t token, uint8_t *out)
{
    const struct vocabulary *vocabulary = &tokenizer->vocabulary;
    struct gguf_string name = vocabulary_name(vocabulary, token);
    if (vocabulary_is_special(vocabulary, token) ||
        vocabulary->types[token] == VOCABULARY_TYPE_USER_DEFINED) {
        memcpy(out, name.text, name.bytes);
        return name.bytes;
    }
    return tokenizer->bpe != NULL ? bpe_decode_name(name, out) : spm_decode(vocabulary, token, out);
}

static enum status decode_all(struct tokenizer *tokenizer)
{
    const struct vocabulary *vocabulary = &tokenizer->vocabulary;
    tokenizer->bytes = malloc((size_t)vocabulary->offsets[vocabulary->count] + 1);
    tokenizer->offsets = malloc(((size_t)vocabulary->count + 1) * sizeof(*tokenizer->offsets));
    if (tokenizer->bytes == NULL || tokenizer->offsets == NULL) {
        return STATUS_NO_MEMORY;
    }
    uint32_t end = 0;
    for (uint32_t token = 0; token < vocabulary->count; token++) {
        tokenizer->offsets[token] = end;
        end += (uint32_t)decode_token(tokenizer, token, tokenizer->bytes + end);
    }
    tokenizer->offsets[vocabulary->count] = end;
    return STATUS_OK;
}

static enum status create(struct tokenizer *tokenizer, const struct gguf *gguf,
                          struct reason *reason)
{
    enum status status = vocabulary_init(&tokenizer->vocabulary, gguf, reason);
    if (status == STATUS_OK) {
        status = create_kind(tokenizer, gguf, reason);
    }
    if (status == STATUS_OK) {
        status = read_habits(tokenizer, gguf, reason);
    }
    if (status != STATUS_OK) {
        return status;
    }
    if (special_matcher_init(&tokenizer->user_defined, &tokenizer->vocabulary, false) !=
            STATUS_OK ||
        special_matcher_init(&tokenizer->all, &tokenizer->vocabulary, true) != STATUS_OK ||
        decode_all(tokenizer) != STATUS_OK) {
        return no_memory(gguf, reason);
    }
    return STATUS_OK;
}

enum status tokenizer_create(const struct gguf *gguf, struct tokenizer **out_tokenizer,
                             struct reason *reason)
{
    struct tokenizer *tokenizer = calloc(1, sizeof(*tokenizer));
    if (tokenizer == NULL) {
        return no_memory(gguf, reason);
    }
    enum status status = create(tokenizer, gguf, reason);
    if (status != STATUS_OK) {
        tokenizer_destroy(tokenizer);
        return status;
    }
    *out_tokenizer = tokenizer;
    return STATUS_OK;
}

void tokenizer_destroy(struct tokenizer *tokenizer)
{
    if (tokenizer == NULL) {
        return;
    }
    bpe_destroy(tokenizer->bpe);
    spm_destroy(tokenizer->spm);
    special_matcher_finish(&tokenizer->user_defined);
    special_matcher_finish(&tokenizer->all);
    vocabulary_finish(&tokenizer->vocabulary);
    free(tokenizer->bytes);
    free(tokenizer->offsets);
    free(tokenizer);
}

// Text between special tokens. `starts`: nothing, or a special token, stands before it.
static enum status encode_text(const struct tokenizer *tokenizer, const char *text, size_t bytes,
                               bool starts, struct token_list *list)
{
    if (bytes == 0) {
        return STATUS_OK;
    }
    if (tokenizer->bpe != NULL) {
        return bpe_encode(tokenizer->bpe, text, bytes, list);
    }
    return spm_encode(tokenizer->spm, text, bytes, starts && tokenizer->add_space_prefix, list);
}

static enum status encode_fragments(const struct tokenizer *tokenizer,
                                    const struct tokenizer_input *input, struct token_list *list)
{
    const struct special_matcher *matcher =
        input->parse_special ? &tokenizer->all : &tokenizer->user_defined;
    bool starts = !input->continues;
    size_t begin = 0;
    for (size_t i = 0; i < input->bytes;) {
        uint32_t token = special_matcher_find(matcher, input->text + i, input->bytes - i);
        if (token == VOCABULARY_NO_TOKEN) {
            i++;
            continue;
        }
        enum status status = encode_text(tokenizer, input->text + begin, i - begin, starts, list);
        if (status == STATUS_OK) {
            status = token_list_push(list, token);
        }
        if (status != STATUS_OK) {
            return status;
        }
        starts = true;
        i += vocabulary_name(&tokenizer->vocabulary, token).bytes;
        begin = i;
    }
    return encode_text(tokenizer, input->text + begin, input->bytes - begin, starts, list);
}

// Whether the text brings its own BOS, which then is the one.
static bool brings_bos(const struct tokenizer *tokenizer, const struct tokenizer_input *input)
{
    return input->parse_special && special_matcher_find(&tokenizer->all, input->text,
                                                        input->bytes) == tokenizer->vocabulary.bos;
}

static enum status encode_all(const struct tokenizer *tokenizer,
                              const struct tokenizer_input *input, struct token_list *list)
{
    enum status status = STATUS_OK;
    if (input->add_special && tokenizer->add_bos && !brings_bos(tokenizer, input)) {
        status = token_list_push(list, tokenizer->vocabulary.bos);
    }
    if (status == STATUS_OK) {
        status = encode_fragments(tokenizer, input, list);
    }
    if (status == STATUS_OK && input->add_special && tokenizer->add_eos) {
        status = token_list_push(list, tokenizer->vocabulary.eos);
    }
    return status;
}

enum status tokenizer_encode(const struct tokenizer *tokenizer, const struct tokenizer_input *input,
                             struct token_list *list)
{
    if (input->bytes > LIMIT_PROMPT_BYTES) {
        return STATUS_REFUSED;
    }
    size_t count = list->count;
    enum status status = encode_all(tokenizer, input, list);
    if (status != STATUS_OK) {
        list->count = count;
    }
    return status;
}

const uint8_t *tokenizer_token_bytes(const struct tokenizer *tokenizer, uint32_t token,
                                     bool special, size_t *out_bytes)
{
    if (token >= tokenizer->vocabulary.count ||
        (!special && vocabulary_is_special(&tokenizer->vocabulary, token))) {
        *out_bytes = 0;
        return tokenizer->bytes;
    }
    *out_bytes = tokenizer->offsets[token + 1] - tokenizer->offsets[token];
    return tokenizer->bytes + tokenizer->offsets[token];
}

// Whether the text of these tokens begins with the space that encoding put there.
static bool begins_with_prefix(const struct tokenizer *tokenizer, const uint32_t *tokens,
                               size_t count)
{
    size_t first = 0;
    while (first < count && tokenizer_is_special(tokenizer, tokens[first])) {
        first++;
    }
    size_t bytes = 0;
    const uint8_t *text =
        first == count ? NULL : tokenizer_token_bytes(tokenizer, tokens[first], false, &bytes);
    return tokenizer->spm != NULL && tokenizer->add_space_prefix && bytes > 0 && text[0] == ' ';
}

enum status tokenizer_decode(const struct tokenizer *tokenizer, const uint32_t *tokens,
                             size_t count, bool special, struct token_text *out_text)
{
    size_t total = 0;
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        (void)tokenizer_token_bytes(tokenizer, tokens[i], special, &bytes);
        total += bytes;
    }
    char *text = malloc(total + 1);
    if (text == NULL) {
        return STATUS_NO_MEMORY;
    }
    bool drop = begins_with_prefix(tokenizer, tokens, count);
    size_t end = 0;
    for (size_t i = 0; i < count; i++) {
        const uint8_t *piece = tokenizer_token_bytes(tokenizer, tokens[i], special, &bytes);
        bool skip = drop && bytes > 0 && !tokenizer_is_special(tokenizer, tokens[i]);
        memcpy(text + end, piece + skip, bytes - skip);
        end += bytes - skip;
        drop = drop && !skip;
    }
    text[end] = '\0';
    *out_text = (struct token_text){text, end};
    return STATUS_OK;
}

uint32_t tokenizer_vocab_count(const struct tokenizer *tokenizer)
{
    return tokenizer->vocabulary.count;
}

uint32_t tokenizer_find(const struct tokenizer *tokenizer, const char *text)
{
    return vocabulary_find(&tokenizer->vocabulary, text, strlen(text));
}

bool tokenizer_is_special(const struct tokenizer *tokenizer, uint32_t token)
{
    return token < tokenizer->vocabulary.count &&
           vocabulary_is_special(&tokenizer->vocabulary, token);
}

bool tokenizer_is_end(const struct tokenizer *tokenizer, uint32_t token)
{
    return token < tokenizer->vocabulary.count && tokenizer->vocabulary.ends[token];
}

uint32_t tokenizer_bos(const struct tokenizer *tokenizer)
{
    return tokenizer->vocabulary.bos;
}

uint32_t tokenizer_eos(const struct tokenizer *tokenizer)
{
    return tokenizer->vocabulary.eos;
}

bool tokenizer_adds_bos(const struct tokenizer *tokenizer)
{
    return tokenizer->add_bos;
}
