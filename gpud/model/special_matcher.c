// SPDX-License-Identifier: Apache-2.0
// Names sorted as bytes: those that agree with the text in their first d bytes are one range, which
// narrows by binary search as d grows. So a place costs O(length of the match * log names), however
// many there are.
#include "gpud/model/special_matcher.h"

#include <stdlib.h>
#include <string.h>

static const struct vocabulary *vocabulary_of(const void *a)
{
    return *(const struct vocabulary *const *)a;
}

// What is sorted: the token with its vocabulary, since qsort passes no context.
struct entry {
    const struct vocabulary *vocabulary;
    uint32_t token;
};

static int compare_entries(const void *a, const void *b)
{
    struct gguf_string x = vocabulary_name(vocabulary_of(a), ((const struct entry *)a)->token);
    struct gguf_string y = vocabulary_name(vocabulary_of(b), ((const struct entry *)b)->token);
    int order = memcmp(x.text, y.text, x.bytes < y.bytes ? x.bytes : y.bytes);
    return order != 0 ? order : (x.bytes > y.bytes) - (x.bytes < y.bytes);
}

static bool wanted(const struct vocabulary *vocabulary, uint32_t token, bool special)
{
    bool chosen = vocabulary->types[token] == VOCABULARY_TYPE_USER_DEFINED ||
                  (special && vocabulary_is_special(vocabulary, token));
    return chosen && vocabulary_name(vocabulary, token).bytes > 0;
}

enum status special_matcher_init(struct special_matcher *out, const struct vocabulary *vocabulary,
                                 bool special)
{
    memset(out, 0, sizeof(*out));
    uint32_t count = 0;
    for (uint32_t token = 0; token < vocabulary->count; token++) {
        count += wanted(vocabulary, token, special);
    }
    struct entry *entries = calloc((size_t)count + 1, sizeof(*entries));
    out->tokens = calloc((size_t)count + 1, sizeof(*out->tokens));
    if (entries == NULL || out->tokens == NULL) {
        free(entries);
        special_matcher_finish(out);
        return STATUS_NO_MEMORY;
    }
    out->vocabulary = vocabulary;
    for (uint32_t token = 0; token < vocabulary->count; token++) {
        if (wanted(vocabulary, token, special)) {
            entries[out->count++] = (struct entry){vocabulary, token};
            out->starts[(uint8_t)vocabulary_name(vocabulary, token).text[0]] = true;
        }
    }
    qsort(entries, count, sizeof(*entries), compare_entries);
    for (uint32_t i = 0; i < count; i++) {
        out->tokens[i] = entries[i].token;
    }
    free(entries);
    return STATUS_OK;
}

void special_matcher_finish(struct special_matcher *matcher)
{
    free(matcher->tokens);
    memset(matcher, 0, sizeof(*matcher));
}

// Byte `depth` of a name, -1 past its end: the order in which names of one range stand.
static int name_byte(const struct special_matcher *matcher, uint32_t index, size_t depth)
{
    struct gguf_string name = vocabulary_name(matcher->vocabulary, matcher->tokens[index]);
    return depth < name.bytes ? (uint8_t)name.text[depth] : -1;
}

// First index in first..last whose byte `depth` is at least `byte`.
static uint32_t lower_bound(const struct special_matcher *matcher, uint32_t first, uint32_t last,
                            size_t depth, int byte)
{
    while (first < last) {
        uint32_t middle = first + (last - first) / 2;
        if (name_byte(matcher, middle, depth) < byte) {
            first = middle + 1;
        } else {
            last = middle;
        }
    }
    return first;
}

uint32_t special_matcher_find(const struct special_matcher *matcher, const char *text, size_t bytes)
{
    uint32_t found = VOCABULARY_NO_TOKEN;
    if (bytes == 0 || !matcher->starts[(uint8_t)text[0]]) {
        return found;
    }
    uint32_t first = 0;
    uint32_t last = matcher->count;
    for (size_t depth = 0; depth < bytes && first < last; depth++) {
        int byte = (uint8_t)text[depth];
        first = lower_bound(matcher, first, last, depth, byte);
        last = lower_bound(matcher, first, last, depth, byte + 1);
        // The name that ends here, if there is one, stands first in its range.
        if (first < last && name_byte(matcher, first, depth + 1) < 0) {
            found = matcher->tokens[first];
        }
    }
    return found;
}
