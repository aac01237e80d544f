// SPDX-License-Identifier: Apache-2.0
// Merging works on token ids: a table keyed by (left, right) gives the rank and the merged token,
// so no text is built or compared while encoding. Symbols of a word are a linked list; the queue
// holds candidates, and one whose symbols have changed since is dropped when it comes up.
#include "gpud/model/tokenizer_bpe.h"

#include "gpud/model/merge_queue.h"
#include "gpud/model/pretokenizer.h"

#include <stdlib.h>
#include <string.h>

#define HINT_AGAIN "download the file again, or ask its maker"

enum { NO_SYMBOL = UINT32_MAX, MERGES_MAX = 1 << 22 };

struct merge {
    uint32_t left; // VOCABULARY_NO_TOKEN = empty slot
    uint32_t right;
    uint32_t rank;
    uint32_t result;
};

struct bpe {
    const struct vocabulary *vocabulary;
    struct pretokenizer *pretokenizer;
    struct merge *merges; // [merge_mask + 1] linear probing
    uint32_t merge_mask;
    uint32_t byte_tokens[256]; // or VOCABULARY_NO_TOKEN
};

// GPT-2's alphabet: printable Latin-1 bytes stand for themselves, the others for U+0100 and on.
static uint32_t byte_character(uint32_t byte)
{
    static const struct {
        uint32_t first, last, to;
    } ranges[] = {{0, 32, 256}, {127, 160, 289}, {173, 173, 323}};
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        if (byte >= ranges[i].first && byte <= ranges[i].last) {
            return ranges[i].to + byte - ranges[i].first;
        }
    }
    return byte;
}

// The byte a character of the alphabet stands for, or -1.
static int character_byte(uint32_t character)
{
    if (character < 256) {
        return byte_character(character) == character ? (int)character : -1;
    }
    if (character <= 288) {
        return (int)(character - 256);
    }
    if (character <= 322) {
        return (int)(character - 289 + 127);
    }
    return character == 323 ? 173 : -1;
}

// All of the alphabet lies below U+0800: one or two bytes. Returns bytes taken, 0 for anything
// else.
static size_t read_character(const uint8_t *text, size_t bytes, uint32_t *out)
{
    if (text[0] < 0x80) {
        *out = text[0];
        return 1;
    }
    if (bytes >= 2 && text[0] >= 0xc2 && text[0] <= 0xdf && (text[1] & 0xc0) == 0x80) {
        *out = (uint32_t)(text[0] & 0x1f) << 6 | (text[1] & 0x3f);
        return 2;
    }
    return 0;
}

size_t bpe_decode_name(struct gguf_string name, uint8_t *out)
{
    const uint8_t *text = (const uint8_t *)name.text;
    size_t count = 0;
    for (size_t i = 0; i < name.bytes;) {
        uint32_t character = 0;
        size_t length = read_character(text + i, name.bytes - i, &character);
        int byte = length == 0 ? -1 : character_byte(character);
        if (byte < 0) {
            memcpy(out, name.text, name.bytes);
            return name.bytes;
        }
        out[count++] = (uint8_t)byte;
        i += length;
    }
    return count;
}

static void find_byte_tokens(struct bpe *bpe)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t character = byte_character(byte);
        char name[2] = {(char)character, 0};
        size_t bytes = 1;
        if (character >= 0x80) {
            name[0] = (char)(0xc0 | character >> 6);
            name[1] = (char)(0x80 | (character & 0x3f));
            bytes = 2;
        }
        bpe->byte_tokens[byte] = vocabulary_find(bpe->vocabulary, name, bytes);
    }
}

// The slot of (left, right), or the empty one where it belongs; at most half of the slots are
// taken.
static struct merge *find_merge(const struct bpe *bpe, uint32_t left, uint32_t right)
{
    const uint32_t key[2] = {left, right};
    uint32_t index = (uint32_t)hash_keyed(bpe->vocabulary->hash_key, key, sizeof(key));
    for (;; index++) {
        struct merge *merge = &bpe->merges[index & bpe->merge_mask];
        if (merge->left == VOCABULARY_NO_TOKEN || (merge->left == left && merge->right == right)) {
            return merge;
        }
    }
}

// Splits "left right" at its first space that is not its first character.
static bool split_merge(struct gguf_string text, struct gguf_string *out_left,
                        struct gguf_string *out_right)
{
    const char *space = text.bytes < 3 ? NULL : memchr(text.text + 1, ' ', text.bytes - 1);
    if (space == NULL || space + 1 == text.text + text.bytes) {
        return false;
    }
    size_t left = (size_t)(space - text.text);
    *out_left = (struct gguf_string){text.text, left};
    *out_right = (struct gguf_string){space + 1, text.bytes - left - 1};
    return true;
}

static uint32_t find_joined(const struct vocabulary *vocabulary, struct gguf_string left,
                            struct gguf_string right)
{
    char joined[VOCABULARY_TOKEN_BYTES_MAX];
    if (left.bytes + right.bytes > sizeof(joined)) {
        return VOCABULARY_NO_TOKEN;
    }
    memcpy(joined, left.text, left.bytes);
    memcpy(joined + left.bytes, right.text, right.bytes);
    return vocabulary_find(vocabulary, joined, left.bytes + right.bytes);
}

static enum status add_merge(struct bpe *bpe, const struct gguf *gguf, struct gguf_string text,
                             uint32_t rank, struct reason *reason)
{
    struct gguf_string left;
    struct gguf_string right;
    if (!split_merge(text, &left, &right)) {
        return reason_set(reason, STATUS_INVALID, HINT_AGAIN,
                          "%s: merge %u (%s) is not two tokens with a space between",
                          gguf_name(gguf), rank, gguf_label(text).text);
    }
    uint32_t left_token = vocabulary_find(bpe->vocabulary, left.text, left.bytes);
    uint32_t right_token = vocabulary_find(bpe->vocabulary, right.text, right.bytes);
    uint32_t result = find_joined(bpe->vocabulary, left, right);
    if (left_token == VOCABULARY_NO_TOKEN || right_token == VOCABULARY_NO_TOKEN ||
        result == VOCABULARY_NO_TOKEN) {
        return reason_set(reason, STATUS_INVALID, HINT_AGAIN,
                          "%s: merge %u (%s) names or makes a token that is not in the vocabulary",
                          gguf_name(gguf), rank, gguf_label(text).text);
    }
    struct merge *merge = find_merge(bpe, left_token, right_token);
    if (merge->left == VOCABULARY_NO_TOKEN) { // of equal merges the first counts
        *merge = (struct merge){left_token, right_token, rank, result};
    }
    return STATUS_OK;
}

static enum status read_merges(struct bpe *bpe, const struct gguf *gguf, struct reason *reason)
{
    const struct gguf_value *merges = NULL;
    enum status status =
        gguf_read_array(gguf, "tokenizer.ggml.merges", GGUF_TYPE_STRING, &merges, reason);
    if (status != STATUS_OK) {
        return status;
    }
    if (merges == NULL || merges->count > MERGES_MAX) {
        return reason_set(reason, STATUS_INVALID, HINT_AGAIN, "%s: tokenizer.ggml.merges is %s",
                          gguf_name(gguf), merges == NULL ? "missing" : "too long");
    }
    uint32_t slots = 16;
    while (slots < 2 * merges->count) {
        slots *= 2;
    }
    bpe->merge_mask = slots - 1;
    bpe->merges = malloc(slots * sizeof(*bpe->merges));
    if (bpe->merges == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "%s: no memory for its merges",
                          gguf_name(gguf));
    }
    memset(bpe->merges, 0xff, slots * sizeof(*bpe->merges)); // left = VOCABULARY_NO_TOKEN
    size_t cursor = 0;
    for (uint32_t rank = 0; rank < merges->count && status == STATUS_OK; rank++) {
        status = add_merge(bpe, gguf, gguf_string_next(merges, &cursor), rank, reason);
    }
    return status;
}

enum status bpe_create(const struct gguf *gguf, const struct vocabulary *vocabulary,
                       struct bpe **out_bpe, struct reason *reason)
{
    struct gguf_string name;
    enum status status = gguf_read_text(gguf, "tokenizer.ggml.pre", &name, reason);
    if (status != STATUS_OK) {
        return status;
    }
    struct bpe *bpe = calloc(1, sizeof(*bpe));
    if (bpe == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "%s: no memory for its tokenizer",
                          gguf_name(gguf));
    }
    bpe->vocabulary = vocabulary;
    find_byte_tokens(bpe);
    status = pretokenizer_create(name, gguf_name(gguf), &bpe->pretokenizer, reason);
    if (status == STATUS_OK) {
        status = read_merges(bpe, gguf, reason);
    }
    if (status != STATUS_OK) {
        bpe_destroy(bpe);
        return status;
    }
    *out_bpe = bpe;
    return STATUS_OK;
}

void bpe_destroy(struct bpe *bpe)
{
    if (bpe != NULL) {
        pretokenizer_destroy(bpe->pretokenizer);
        free(bpe->merges);
        free(bpe);
    }
}

// ---- encoding

struct symbol {
    uint32_t token;
    uint32_t previous; // or NO_SYMBOL
    uint32_t next;     // or NO_SYMBOL; of a symbol that was merged away, itself
};

// Scratch of one call of bpe_encode.
struct encoder {
    const struct bpe *bpe;
    struct token_list *list;
    struct merge_queue queue;
    struct symbol *symbols;
    size_t symbol_capacity;
};

static enum status consider(struct encoder *encoder, uint32_t left)
{
    if (left == NO_SYMBOL || encoder->symbols[left].next == NO_SYMBOL) {
        return STATUS_OK;
    }
    uint32_t a = encoder->symbols[left].token;
    uint32_t b = encoder->symbols[encoder->symbols[left].next].token;
    const struct merge *merge = find_merge(encoder->bpe, a, b);
    if (merge->left == VOCABULARY_NO_TOKEN) {
        return STATUS_OK;
    }
    return merge_queue_push(&encoder->queue,
                            (struct merge_candidate){(uint64_t)merge->rank << 32 | left, a, b});
}

// Merges the candidate's pair, if both symbols are still what they were.
static enum status apply(struct encoder *encoder, const struct merge_candidate *candidate)
{
    struct symbol *symbols = encoder->symbols;
    uint32_t left = (uint32_t)candidate->key;
    uint32_t right = symbols[left].next;
    if (right == left || right == NO_SYMBOL || symbols[left].token != candidate->a ||
        symbols[right].token != candidate->b) {
        return STATUS_OK;
    }
    symbols[left].token = find_merge(encoder->bpe, candidate->a, candidate->b)->result;
    symbols[left].next = symbols[right].next;
    symbols[right].next = right;
    if (symbols[left].next != NO_SYMBOL) {
        symbols[symbols[left].next].previous = left;
    }
    enum status status = consider(encoder, symbols[left].previous);
    return status == STATUS_OK ? consider(encoder, left) : status;
}

// The word's bytes as symbols. A byte for which the vocabulary has no token is left out, as the
// model's own tokenizer does: the unknown token of such a vocabulary is often its end of text.
static enum status place_symbols(struct encoder *encoder, const char *text, size_t bytes,
                                 uint32_t *out_count)
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
    for (size_t i = 0; i < bytes; i++) {
        uint32_t token = encoder->bpe->byte_tokens[(uint8_t)text[i]];
        if (token != VOCABULARY_NO_TOKEN) {
            encoder->symbols[count] = (struct symbol){token, count - 1, count + 1};
            count++;
        }
    }
    if (count > 0) {
        encoder->symbols[0].previous = NO_SYMBOL;
        encoder->symbols[count - 1].next = NO_SYMBOL;
    }
    *out_count = count;
    return STATUS_OK;
}

static enum status encode_word(void *context, const char *text, size_t bytes)
{
    struct encoder *encoder = context;
    if (bytes > TOKENIZER_WORD_BYTES_MAX) {
        return STATUS_REFUSED;
    }
    uint32_t count = 0;
    enum status status = place_symbols(encoder, text, bytes, &count);
    for (uint32_t i = 0; i + 1 < count && status == STATUS_OK; i++) {
        status = consider(encoder, i);
    }
    struct merge_candidate candidate;
    while (status == STATUS_OK && merge_queue_pop(&encoder->queue, &candidate)) {
        status = apply(encoder, &candidate);
    }
    // The first symbol of a word is never merged away.
    for (uint32_t i = count > 0 ? 0 : NO_SYMBOL; i != NO_SYMBOL && status == STATUS_OK;
         i = encoder->symbols[i].next) {
        status = token_list_push(encoder->list, encoder->symbols[i].token);
    }
    return status;
}

enum status bpe_encode(const struct bpe *bpe, const char *text, size_t bytes,
                       struct token_list *list)
{
    struct encoder encoder = {.bpe = bpe, .list = list};
    const struct pretokenizer_sink sink = {&encoder, encode_word};
    enum status status = pretokenizer_split(bpe->pretokenizer, text, bytes, &sink);
    merge_queue_finish(&encoder.queue);
    free(encoder.symbols);
    return status;
}
