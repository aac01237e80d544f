// SPDX-License-Identifier: Apache-2.0
// gpuctl tokenize, gpuctl detokenize: by gpud, or, with --model, by the same code without a daemon;
// a vocabulary-only file will do.
#include "client/gpuctl.h"

#include "client/console.h"
#include "client/json.h"
#include "gpud/model/gguf.h"
#include "gpud/model/tokenizer.h"
#include "proto/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tokens {
    struct gpuctl gpuctl;
    const char *model, *file;
    bool ids_only, add_special, parse_special;
};

// The vocabulary of a model file. Closed by vocabulary_close, whatever was opened.
struct vocabulary_file {
    struct gguf *gguf;
    struct tokenizer *tokenizer;
};

static enum status vocabulary_open(const char *path, struct vocabulary_file *out,
                                   struct reason *reason)
{
    enum status status = gguf_open_path(path, &out->gguf, reason);
    return status == STATUS_OK ? tokenizer_create(out->gguf, &out->tokenizer, reason) : status;
}

static void vocabulary_close(struct vocabulary_file *file)
{
    tokenizer_destroy(file->tokenizer);
    gguf_close(file->gguf);
}

// ---- tokenize

static enum status tokenize_here(const struct tokens *tokens, const char *text, size_t bytes,
                                 struct token_list *list, struct reason *reason)
{
    struct vocabulary_file file = {0};
    enum status status = vocabulary_open(tokens->model, &file, reason);
    if (status == STATUS_OK) {
        const struct tokenizer_input input = {.text = text,
                                              .bytes = bytes,
                                              .add_special = tokens->add_special,
                                              .parse_special = tokens->parse_special};
        status = tokenizer_encode(file.tokenizer, &input, list);
        if (status != STATUS_OK) {
            (void)reason_set(reason, status, "", "text: cannot be tokenized (%s)",
                             status_name(status));
        }
    }
    vocabulary_close(&file);
    return status;
}

static void print_ids(const struct tokens *tokens, const uint32_t *ids, size_t count)
{
    if (!tokens->gpuctl.json) {
        for (size_t i = 0; i < count; i++) {
            printf(tokens->ids_only ? "%u\n" : i + 1 < count ? "%u " : "%u", ids[i]);
        }
        if (!tokens->ids_only) {
            printf("\n%zu tokens\n", count);
        }
        return;
    }
    struct json json;
    json_begin(&json, stdout);
    json_object(&json, NULL);
    json_number(&json, "tokens", count);
    json_array(&json, "ids");
    for (size_t i = 0; i < count; i++) {
        json_number(&json, NULL, ids[i]);
    }
    json_end(&json);
    json_end(&json);
    json_line(&json);
}

static int tokenize_by_gpud(struct tokens *tokens, const char *text, size_t bytes)
{
    int exit_code = 0;
    uint32_t *ids = NULL;
    size_t count = 0;
    struct kvtier_error error;
    if (!gpuctl_connect(&tokens->gpuctl, &exit_code)) {
        return exit_code;
    }
    unsigned flags = (tokens->add_special ? KVTIER_ADD_SPECIAL : 0) |
                     (tokens->parse_special ? KVTIER_PARSE_SPECIAL : 0);
    int status = kvtier_tokenize(tokens->gpuctl.client, text, bytes, flags, &ids, &count, &error);
    if (status == KVTIER_OK) {
        print_ids(tokens, ids, count);
        kvtier_free(ids);
    }
    return gpuctl_end(&tokens->gpuctl, status, &error);
}

static int tokenize(struct tokens *tokens)
{
    struct reason reason = {0};
    char *text = NULL;
    size_t bytes = 0;
    enum status status =
        console_read_file(tokens->file, LIMIT_PROMPT_BYTES, &text, &bytes, &reason);
    if (status == STATUS_OK && tokens->model == NULL) {
        int exit_code = tokenize_by_gpud(tokens, text, bytes);
        free(text);
        return exit_code;
    }
    struct token_list list = {0};
    if (status == STATUS_OK) {
        status = tokenize_here(tokens, text, bytes, &list, &reason);
    }
    if (status == STATUS_OK) {
        print_ids(tokens, list.tokens, list.count);
    }
    token_list_finish(&list);
    free(text);
    return status == STATUS_OK ? 0 : gpuctl_fail(&tokens->gpuctl, status, &reason);
}

int gpuctl_tokenize(int argc, char **argv)
{
    struct tokens t = {.file = "-"};
    const struct option_spec specs[] = {
        {.name = "model",
         .kind = OPTION_TEXT,
         .value = "FILE",
         .help = "use the vocabulary of this GGUF; no daemon is needed",
         .target = &t.model},
        {.name = "file",
         .kind = OPTION_TEXT,
         .value = "FILE",
         .help = "the text (default: stdin)",
         .target = &t.file},
        {.name = "ids",
         .kind = OPTION_FLAG,
         .help = "print ids alone, one a line",
         .target = &t.ids_only},
        {.name = "add-special",
         .kind = OPTION_FLAG,
         .help = "add what the model wants at the start and end of a text",
         .target = &t.add_special},
        {.name = "parse-special",
         .kind = OPTION_FLAG,
         .help = "texts of special tokens are these tokens",
         .target = &t.parse_special},
        GPUCTL_SPECS(t.gpuctl)};
    const struct options_command command = {
        .name = "gpuctl tokenize",
        .arguments = "[FILE | -]",
        .positional_max = 1,
        .summary = "Turns text into token ids, as the daemon does.",
        .specs = specs,
        .spec_count = sizeof(specs) / sizeof(specs[0]),
    };
    int first = 0;
    int exit_code = 0;
    if (!gpuctl_parse(&t.gpuctl, &command, argc, argv, &first, &exit_code)) {
        return exit_code;
    }
    t.file = first < argc ? argv[first] : t.file;
    return tokenize(&t);
}

// ---- detokenize

static void print_text(const struct tokens *tokens, const char *text, size_t bytes)
{
    if (!tokens->gpuctl.json) {
        fwrite(text, 1, bytes, stdout);
        return;
    }
    struct json json;
    json_begin(&json, stdout);
    json_object(&json, NULL);
    json_bytes(&json, "text", text, bytes);
    json_end(&json);
    json_line(&json);
}

static enum status detokenize_here(const struct tokens *tokens, const uint32_t *ids, size_t count,
                                   struct reason *reason)
{
    struct vocabulary_file file = {0};
    struct token_text text;
    enum status status = vocabulary_open(tokens->model, &file, reason);
    for (size_t i = 0; status == STATUS_OK && i < count; i++) {
        if (ids[i] >= tokenizer_vocab_count(file.tokenizer)) {
            status =
                reason_set(reason, STATUS_INVALID, "", "ids: %u is not in the vocabulary", ids[i]);
        }
    }
    if (status == STATUS_OK) {
        status = tokenizer_decode(file.tokenizer, ids, (uint32_t)count, true, &text);
        if (status == STATUS_OK) {
            print_text(tokens, text.text, text.bytes);
            free(text.text);
        } else {
            (void)reason_set(reason, status, "", "ids: out of memory");
        }
    }
    vocabulary_close(&file);
    return status;
}

static int detokenize_by_gpud(struct tokens *tokens, const uint32_t *ids, size_t count)
{
    int exit_code = 0;
    char *text = NULL;
    size_t bytes = 0;
    struct kvtier_error error;
    if (!gpuctl_connect(&tokens->gpuctl, &exit_code)) {
        return exit_code;
    }
    int status = kvtier_detokenize(tokens->gpuctl.client, ids, count, &text, &bytes, &error);
    if (status == KVTIER_OK) {
        print_text(tokens, text, bytes);
        kvtier_free(text);
    }
    return gpuctl_end(&tokens->gpuctl, status, &error);
}

static int detokenize(struct tokens *tokens)
{
    struct reason reason = {0};
    uint32_t *ids = NULL;
    size_t count = 0;
    int exit_code = 0;
    enum status status = console_read_ids(tokens->file, &ids, &count, &reason);
    if (status == STATUS_OK && tokens->model == NULL) {
        exit_code = detokenize_by_gpud(tokens, ids, count);
    } else if (status == STATUS_OK) {
        status = detokenize_here(tokens, ids, count, &reason);
    }
    free(ids);
    return status == STATUS_OK ? exit_code : gpuctl_fail(&tokens->gpuctl, status, &reason);
}

int gpuctl_detokenize(int argc, char **argv)
{
    struct tokens t = {.file = "-"};
    const struct option_spec specs[] = {
        {.name = "model",
         .kind = OPTION_TEXT,
         .value = "FILE",
         .help = "use the vocabulary of this GGUF; no daemon is needed",
         .target = &t.model},
        {.name = "file",
         .kind = OPTION_TEXT,
         .value = "FILE",
         .help = "the ids (default: stdin)",
         .target = &t.file},
        GPUCTL_SPECS(t.gpuctl)};
    const struct options_command command = {
        .name = "gpuctl detokenize",
        .arguments = "[FILE | -]",
        .positional_max = 1,
        .summary = "Turns token ids into text.",
        .specs = specs,
        .spec_count = sizeof(specs) / sizeof(specs[0]),
    };
    int first = 0;
    int exit_code = 0;
    if (!gpuctl_parse(&t.gpuctl, &command, argc, argv, &first, &exit_code)) {
        return exit_code;
    }
    t.file = first < argc ? argv[first] : t.file;
    return detokenize(&t);
}
