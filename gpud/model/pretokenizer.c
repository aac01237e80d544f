// SPDX-License-Identifier: Apache-2.0
// The one place that includes pcre2.h. White space is Unicode's White_Space, spelled out: PCRE2's
// own \s lacks U+0085, which the tokenizers' regular expression engines count.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "gpud/model/pretokenizer.h"

#include "proto/utf8.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#define SPACE "\\p{Z}\\x09-\\x0d\\x85"
#define GPT2                                                                                       \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+|[" SPACE              \
    "]+(?![^" SPACE "])|[" SPACE "]+"

enum { EXPRESSIONS_MAX = 4 };

struct scheme {
    const char *name;
    const char *expressions[EXPRESSIONS_MAX];
};

static const struct scheme SCHEMES[] = {
    {"gpt-2", {GPT2}},
    {"smollm", {"\\p{N}", GPT2}},
    {"default", {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
};

// Names of files whose expressions are exactly those of one of ours.
static const struct {
    const char *name;
    const char *scheme;
} ALIASES[] = {{"phi-2", "gpt-2"},      {"mpt", "gpt-2"},     {"olmo", "gpt-2"},
               {"starcoder", "smollm"}, {"refact", "smollm"}, {"command-r", "smollm"}};

struct pretokenizer {
    pcre2_code *codes[EXPRESSIONS_MAX];
    uint32_t code_count;
};

static const struct scheme *find_scheme(struct gguf_string name)
{
    if (name.bytes == 0) {
        return find_scheme((struct gguf_string){"default", 7});
    }
    for (size_t i = 0; i < sizeof(SCHEMES) / sizeof(SCHEMES[0]); i++) {
        if (gguf_string_equal(name, SCHEMES[i].name)) {
            return &SCHEMES[i];
        }
    }
    for (size_t i = 0; i < sizeof(ALIASES) / sizeof(ALIASES[0]); i++) {
        if (gguf_string_equal(name, ALIASES[i].name)) {
            const char *scheme = ALIASES[i].scheme;
            return find_scheme((struct gguf_string){scheme, strlen(scheme)});
        }
    }
    return NULL;
}

static enum status compile(struct pretokenizer *pretokenizer, const char *expression,
                           const char *file, struct reason *reason)
{
    int error = 0;
    PCRE2_SIZE at = 0;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)expression, PCRE2_ZERO_TERMINATED,
                                     PCRE2_UTF | PCRE2_UCP, &error, &at, NULL);
    if (code == NULL) {
        return reason_set(reason,
                          error == PCRE2_ERROR_HEAP_FAILED ? STATUS_NO_MEMORY : STATUS_UNSUPPORTED,
                          "install a PCRE2 with Unicode support",
                          "%s: PCRE2 does not compile the pre-tokenizer (error %d at %zu)", file,
                          error, (size_t)at);
    }
    // Without JIT (a CPU or a hardened kernel that forbids it) matching is slower, not different.
    (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    pretokenizer->codes[pretokenizer->code_count++] = code;
    return STATUS_OK;
}

enum status pretokenizer_create(struct gguf_string name, const char *file,
                                struct pretokenizer **out_pretokenizer, struct reason *reason)
{
    const struct scheme *scheme = find_scheme(name);
    if (scheme == NULL) {
        return reason_set(reason, STATUS_UNSUPPORTED, "use a model with one of these",
                          "%s: the pre-tokenizer %s is not supported (supported: gpt-2, smollm, "
                          "default, phi-2, mpt, olmo, starcoder, refact, command-r)",
                          file, gguf_label(name).text);
    }
    struct pretokenizer *pretokenizer = calloc(1, sizeof(*pretokenizer));
    if (pretokenizer == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "%s: no memory for its tokenizer", file);
    }
    enum status status = STATUS_OK;
    for (size_t i = 0; i < EXPRESSIONS_MAX && status == STATUS_OK; i++) {
        if (scheme->expressions[i] != NULL) {
            status = compile(pretokenizer, scheme->expressions[i], file, reason);
        }
    }
    if (status != STATUS_OK) {
        pretokenizer_destroy(pretokenizer);
        return status;
    }
    *out_pretokenizer = pretokenizer;
    return STATUS_OK;
}

void pretokenizer_destroy(struct pretokenizer *pretokenizer)
{
    if (pretokenizer != NULL) {
        for (uint32_t i = 0; i < pretokenizer->code_count; i++) {
            pcre2_code_free(pretokenizer->codes[i]);
        }
        free(pretokenizer);
    }
}

// One call of pretokenizer_split.
struct split {
    const struct pretokenizer *pretokenizer;
    const struct pretokenizer_sink *sink;
    pcre2_match_data *matches[EXPRESSIONS_MAX];
};

// Splits a valid piece by expression `level` and those after it; recursion is at most
// EXPRESSIONS_MAX deep.
static enum status split_piece(struct split *split, uint32_t level, const char *text, size_t bytes)
{
    if (bytes == 0) {
        return STATUS_OK;
    }
    if (level == split->pretokenizer->code_count) {
        return split->sink->word(split->sink->context, text, bytes);
    }
    pcre2_match_data *match = split->matches[level];
    size_t done = 0;
    while (done < bytes) {
        int found = pcre2_match(split->pretokenizer->codes[level], (PCRE2_SPTR)text, bytes, done,
                                PCRE2_NO_UTF_CHECK, match, NULL);
        if (found < 0 && found != PCRE2_ERROR_NOMATCH) {
            return STATUS_NO_MEMORY; // the expressions are ours: only a resource can be short
        }
        // No match: the rest is one piece. Every expression takes at least one character.
        size_t start = found < 0 ? bytes : pcre2_get_ovector_pointer(match)[0];
        size_t end = found < 0 ? bytes : pcre2_get_ovector_pointer(match)[1];
        enum status status = split_piece(split, level + 1, text + done, start - done);
        if (status == STATUS_OK) {
            status = split_piece(split, level + 1, text + start, end - start);
        }
        if (status != STATUS_OK) {
            return status;
        }
        done = end;
    }
    return STATUS_OK;
}

// Bytes of the longest run at `text` that is UTF-8 (valid) or is not (!valid).
static size_t run_length(const char *text, size_t bytes, bool valid)
{
    size_t length = 0;
    while (length < bytes) {
        size_t character = utf8_length(text + length, bytes - length);
        if ((character != 0) != valid) {
            break;
        }
        length += valid ? character : 1;
    }
    return length;
}

static enum status split_runs(struct split *split, const char *text, size_t bytes)
{
    enum status status = STATUS_OK;
    bool valid = true;
    while (bytes > 0 && status == STATUS_OK) {
        size_t length = run_length(text, bytes, valid);
        status = split_piece(split, valid ? 0 : split->pretokenizer->code_count, text, length);
        text += length;
        bytes -= length;
        valid = !valid;
    }
    return status;
}

enum status pretokenizer_split(const struct pretokenizer *pretokenizer, const char *text,
                               size_t bytes, const struct pretokenizer_sink *sink)
{
    struct split split = {.pretokenizer = pretokenizer, .sink = sink};
    enum status status = STATUS_OK;
    for (uint32_t i = 0; i < pretokenizer->code_count; i++) {
        split.matches[i] = pcre2_match_data_create_from_pattern(pretokenizer->codes[i], NULL);
        if (split.matches[i] == NULL) {
            status = STATUS_NO_MEMORY;
        }
    }
    if (status == STATUS_OK) {
        status = split_runs(&split, text, bytes);
    }
    for (uint32_t i = 0; i < pretokenizer->code_count; i++) {
        pcre2_match_data_free(split.matches[i]);
    }
    return status;
}
