// SPDX-License-Identifier: Apache-2.0
// Control, unknown and byte tokens take no part in merging (as in SentencePiece itself), so text
// that spells
// "<s>" or "<0x0A>" stays text. When no token of the vocabulary goes on past a word (a space after
// something else), words are merged one by one: the result is the same and the work stays small.
#include "gpud/model/tokenizer_spm.h"

#include "gpud/model/merge_queue.h"
#include "proto/utf8.h"

#include <stdlib.h>
#include <string.h>

#define HINT_AGAIN "download the file again, or ask its maker"
#define SPACE "\xe2\x96\x81" // U+2581

enum { NO_SYMBOL = UINT32_MAX, SPACE_BYTES = 3 };

struct spm {
    const struct vocabulary *vocabulary;
    uint32_t byte_tokens[256]; // the unknown token where the vocabulary has no byte token
    bool splits_at_spaces;     // no token holds a space after something else
};

static bool is_space(const char *text, size_t bytes)
{
    return bytes >= SPACE_BYTES && memcmp(text, SPACE, SPACE_BYTES) == 0;
}

static int hex_digit(char c)
{
    const char *digits = "0123456789ABCDEF";
    const char *found = c == '\0' ? NULL : strchr(digits, c);
    return found == NULL ? -1 : (int)(found - digits);
}

// The byte of a name "<0xNN>", or -1.
static int parse_byte(struct gguf_string name)
{
    if (name.bytes != 6 || memcmp(name.text, "<0x", 3) != 0 || name.text[5] != '>') {
        return -1;
    }
    int high = hex_digit(name.text[3]);
    int low = hex_digit(name.text[4]);
    return high < 0 || low < 0 ? -1 : 16 * high + low;
}

static bool space_inside(struct gguf_string name)
{
    for (size_t i = 1; i < name.bytes; i++) {
        bool after_space = i >= SPACE_BYTES && is_space(name.text + i - SPACE_BYTES, SPACE_BYTES);
        if (is_space(name.text + i, name.bytes - i) && !after_space) {
            return true;
        }
    }
    return false;
}

static bool merges(const struct vocabulary *vocabulary, uint32_t token)
{
    return vocabulary->types[token] == VOCABULARY_TYPE_NORMAL ||
           vocabulary->types[token] == VOCABULARY_TYPE_USER_DEFINED ||
           vocabulary->types[token] == VOCABULARY_TYPE_UNUSED;
}

static enum status read_tokens(struct spm *spm, const struct gguf *gguf, struct reason *reason)
{
    const struct vocabulary *vocabulary = spm->vocabulary;
    spm->splits_at_spaces = true;
    for (uint32_t token = 0; token < vocabulary->count; token++) {
        struct gguf_string name = vocabulary_name(vocabulary, token);
        if (merges(vocabulary, token) && space_inside(name)) {
            spm->splits_at_spaces = false;
        }
        if (vocabulary->types[token] != VOCABULARY_TYPE_BYTE) {
            continue;
        }
        int byte = parse_byte(name);
        if (byte < 0) {
            return reason_set(reason, STATUS_INVALID, HINT_AGAIN,
                              "%s: byte token %u has the name %s, must be <0xNN>", gguf_name(gguf),
                              token, gguf_label(name).text);
        }
        spm->byte_tokens[byte] = token;
    }
    return STATUS_OK;
}

// A byte without a byte token is the token of that one character, or unknown.
static enum status complete_bytes(struct spm *spm, const struct gguf *gguf, struct reason *reason)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t *token = &spm->byte_tokens[byte];
        const char name = (char)byte;
        if (*token == VOCABULARY_NO_TOKEN) {
            *token = vocabulary_find(spm->vocabulary, &name, 1);
        }
        if (*token == VOCABULARY_NO_TOKEN) {
            *token = spm->vocabulary->unknown;
        }
        if (*token == VOCABULARY_NO_TOKEN) {
            return reason_set(reason, STATUS_INVALID, HINT_AGAIN,
                              "%s: no token stands for byte %u, and none for unknown text",
                              gguf_name(gguf), byte);
        }
    }
    return STATUS_OK;
}

enum status spm_create(const struct gguf *gguf, const struct vocabulary *vocabulary,
                       struct spm **out_spm, struct reason *reason)
{
    if (vocabulary->scores == NULL) {
        return reason_set(reason, STATUS_INVALID, HINT_AGAIN,
                          "%s: tokenizer.ggml.scores is missing", gguf_name(gguf));
    }
    struct spm *spm = calloc(1, sizeof(*spm));
    if (spm == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "%s: no memory for its tokenizer",
                          gguf_name(gguf));
    }
    spm->vocabulary = vocabulary;
    memset(spm->byte_tokens, 0xff, sizeof(spm->byte_tokens)); // VOCABULARY_NO_TOKEN
    enum status status = read_tokens(spm, gguf, reason);
    if (status == STATUS_OK) {
        status = complete_bytes(spm, gguf, reason);
    }
    if (status != STATUS_OK) {
        spm_destroy(spm);
        return status;
    }
    *out_spm = spm;
    return STATUS_OK;
}

void spm_destroy(struct spm *spm)
{
    free(spm);
}

size_t spm_decode(const struct vocabulary *vocabulary, uint32_t token, uint8_t *out)
{
    struct gguf_string name = vocabulary_name(vocabulary, token);
    if (vocabulary->types[token] == VOCABULARY_TYPE_BYTE) {
        out[0] = (uint8_t)parse_byte(name); // checked by spm_create
        return 1;
    }
    size_t count = 0;
    for (size_t i = 0; i < name.bytes;) {
        bool space = is_space(name.text + i, name.bytes - i);
        out[count++] = space ? ' ' : (uint8_t)name.text[i];
        i += space ? SPACE_BYTES : 1;
    }
    return count;
}

// ---- encoding

struct symbol {
    uint32_t start; // of its text in the word
    uint32_t bytes; // 0 = merged away
    uint32_t token; // or VOCABULARY_NO_TOKEN
    uint32_t previous;
    uint32_t next;
};

// Scratch of one call of spm_encode.
struct encoder {
    const struct spm *spm;
    struct token_list *list;
    struct merge_queue queue;
    const char *word;
    struct symbol *symbols;
    size_t symbol_capacity;
};

static uint32_t find_token(const struct encoder *encoder, const char *text, size_t bytes)
{
    const struct vocabulary *vocabulary = encoder->spm->vocabulary;
    uint32_t token = vocabulary_find(vocabulary, text, bytes);
    return token == VOCABULARY_NO_TOKEN || merges(vocabulary, token) ? token : VOCABULARY_NO_TOKEN;
}

// Smaller for better scores: the bits of a float, made to sort as numbers, upside down. Adding 0
// makes -0 0.
static uint32_t score_rank(float score)
{
    uint32_t bits = 0;
    score += 0.0f;
    memcpy(&bits, &score, sizeof(bits));
    return bits & 0x80000000u ? bits : ~(bits | 0x80000000u);
}

// The pair at `left` and after it, when together they are a token.
static enum status consider(struct encoder *encoder, uint32_t left)
{
    if (left == NO_SYMBOL || encoder->symbols[left].next == NO_SYMBOL) {
        return STATUS_OK;
    }
    const struct symbol *symbol = &encoder->symbols[left];
    uint32_t bytes = symbol->bytes + encoder->symbols[symbol->next].bytes;
    uint32_t token = find_token(encoder, encoder->word + symbol->start, bytes);
    if (token == VOCABULARY_NO_TOKEN) {
        return STATUS_OK;
    }
    uint64_t rank = score_rank(encoder->spm->vocabulary->scores[token]);
    return merge_queue_push(&encoder->queue,
                            (struct merge_candidate){rank << 32 | left, bytes, token});
}

// Merges the candidate's pair, if it still has the length it had.
static enum status apply(struct encoder *encoder, const struct merge_candidate *candidate)
{
    struct symbol *symbols = encoder->symbols;
    uint32_t left = (uint32_t)candidate->key;
    uint32_t right = symbols[left].next;
    if (symbols[left].bytes == 0 || right == NO_SYMBOL ||
        symbols[left].bytes + symbols[right].bytes != candidate->a) {
        return STATUS_OK;
    }
    symbols[left].bytes += symbols[right].bytes;
    symbols[left].token = candidate->b;
    symbols[left].next = symbols[right].next;
    symbols[right].bytes = 0;
    if (symbols[left].next != NO_SYMBOL) {
        symbols[symbols[left].next].previous = left;
    }
    enum status status = consider(encoder, symbols[left].previous);
    return status == STATUS_OK ? consider(encoder, left) : status;
}

static enum status emit(struct encoder *encoder, const struct symbol *symbol)
{
    if (symbol->token != VOCABULARY_NO_TOKEN) {
        return token_list_push(encoder->list, symbol->token);
    }
    enum status status = STATUS_OK;
    for (uint32_t i = 0; i < symbol->bytes && status == STATUS_OK; i++) {
        uint8_t byte = (uint8_t)encoder->word[symbol->start + i];
        status = token_list_push(encoder->list, encoder->spm->byte_tokens[byte]);
    }
    return status;
}

static enum status place_symbols(struct encoder *encoder, size_t bytes, uint32_t *out_count)
{
    if (bytes > encoder->symbol_capacity) {
        struct symbol *symbols = realloc(encoder->symbols, bytes * sizeof(*symbols));
        if (symbols == NULL) {
            return STATUS_NO_MEMORY;
        }
        encoder->symbols = symbols;
        encoder->symbol_capacity = bytes;
    }
    uint32_t count = 0;
    for (uint32_t start = 0; start < bytes; count++) {
        size_t length = utf8_length(encoder->word + start, bytes - start);
        length = length == 0 ? 1 : length; // a byte that is not UTF-8 stands alone
        uint32_t token = find_token(encoder, encoder->word + start, length);
        encoder->symbols[count] =
            (struct symbol){start, (uint32_t)length, token, count - 1, count + 1};
        start += (uint32_t)length;
    }
    encoder->symbols[0].previous = NO_SYMBOL;
    encoder->symbols[count - 1].next = NO_SYMBOL;
    *out_count = count;
    return STATUS_OK;
}

static enum status encode_word(struct encoder *encoder, const char *word, size_t bytes)
{
    if (bytes > TOKENIZER_WORD_BYTES_MAX) {
        return STATUS_REFUSED;
    }
    uint32_t count = 0;
    encoder->word = word;
    enum status status = place_symbols(encoder, bytes, &count);
    for (uint32_t i = 0; i + 1 < count && status == STATUS_OK; i++) {
        status = consider(encoder, i);
    }
    struct merge_candidate candidate;
    while (status == STATUS_OK && merge_queue_pop(&encoder->queue, &candidate)) {
        status = apply(encoder, &candidate);
    }
    for (uint32_t i = 0; i != NO_SYMBOL && status == STATUS_OK; i = encoder->symbols[i].next) {
        status = emit(encoder, &encoder->symbols[i]);
    }
    return status;
}

// Bytes of the first word of `text`: up to a space that follows something else.
static size_t word_length(const struct spm *spm, const char *text, size_t bytes)
{
    size_t i = 0;
    while (is_space(text + i, bytes - i)) {
        i += SPACE_BYTES;
    }
    while (i < bytes && !(spm->splits_at_spaces && is_space(text + i, bytes - i))) {
        i++;
    }
    return i;
}

// The text with its spaces as U+2581, malloc'ed; NULL when there is no memory.
static char *escape_spaces(const char *text, size_t bytes, bool prefix, size_t *out_bytes)
{
    size_t spaces = prefix ? 1 : 0;
    for (size_t i = 0; i < bytes; i++) {
        spaces += text[i] == ' ';
    }
    char *out = malloc(bytes + spaces * SPACE_BYTES + 1);
    size_t end = 0;
    if (out != NULL && prefix) {
        memcpy(out, SPACE, SPACE_BYTES);
        end = SPACE_BYTES;
    }
    for (size_t i = 0; i < bytes && out != NULL; i++) {
        if (text[i] == ' ') {
            memcpy(out + end, SPACE, SPACE_BYTES);
            end += SPACE_BYTES;
        } else {
            out[end++] = text[i];
        }
    }
    *out_bytes = end;
    return out;
}

enum status spm_encode(const struct spm *spm, const char *text, size_t bytes, bool prefix,
                       struct token_list *list)
{
    size_t left = 0;
    char *escaped = escape_spaces(text, bytes, prefix, &left);
    if (escaped == NULL) {
        return STATUS_NO_MEMORY;
    }
    struct encoder encoder = {.spm = spm, .list = list};
    enum status status = STATUS_OK;
    for (const char *word = escaped; left > 0 && status == STATUS_OK;) {
        size_t length = word_length(spm, word, left);
        status = encode_word(&encoder, word, length);
        word += length;
        left -= length;
    }
    merge_queue_finish(&encoder.queue);
    free(encoder.symbols);
    free(escaped);
    return status;
}
