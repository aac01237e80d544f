// SPDX-License-Identifier: Apache-2.0
// gpuctl score: teacher-forced log probabilities of a text, in the format of our golden data: a
// line of ids, a line a position, a line of sums.
#include "client/gpuctl.h"

#include "client/console.h"
#include "client/json.h"
#include "proto/limits.h"

#include <stdio.h>
#include <stdlib.h>

enum { LOGIT_DIGITS = 9 }; // a float32 survives the round trip

struct score {
    struct gpuctl gpuctl;
    const char *file, *prompt_ids;
    int64_t top, limit, from;
    bool logits_hash, parse_special;
    struct console_bar bar;
};

static void on_ids(void *context, const uint32_t *ids, uint32_t count, uint32_t vocab_tokens)
{
    const struct score *score = context;
    if (!score->gpuctl.json) {
        return;
    }
    struct json json;
    json_begin(&json, stdout);
    json_object(&json, NULL);
    json_number(&json, "n_tokens", count);
    json_number(&json, "n_vocab", vocab_tokens);
    json_array(&json, "ids");
    for (uint32_t i = 0; i < count; i++) {
        json_number(&json, NULL, ids[i]);
    }
    json_end(&json);
    json_end(&json);
    json_line(&json);
}

static void on_progress(void *context, uint32_t done_tokens, uint32_t total_tokens)
{
    struct score *score = context;
    console_bar_set(&score->bar, done_tokens, total_tokens, "tokens");
}

static void put_top(struct json *json, const struct kvtier_score_row *row)
{
    json_array(json, "top");
    for (uint32_t i = 0; i < row->top_count; i++) {
        json_array(json, NULL);
        json_number(json, NULL, row->top[i].id);
        json_real(json, NULL, (double)row->top[i].logit, LOGIT_DIGITS);
        json_end(json);
    }
    json_end(json);
}

static void on_row(void *context, const struct kvtier_score_row *row)
{
    const struct score *score = context;
    if (!score->gpuctl.json) {
        return;
    }
    gpuctl_check_output(&score->gpuctl);
    struct json json;
    json_begin(&json, stdout);
    json_object(&json, NULL);
    json_number(&json, "pos", row->position);
    json_number(&json, "id", row->id);
    json_real(&json, "lse", row->lse, LOGIT_DIGITS);
    put_top(&json, row);
    if (row->has_next) {
        json_real(&json, "next_logprob", row->next_logprob, LOGIT_DIGITS);
    }
    if (row->has_logits_hash) {
        json_hex64(&json, "logits_hash", row->logits_hash);
    }
    json_end(&json);
    json_line(&json);
}

static void print_sums(const struct score *score, const struct kvtier_score_result *result)
{
    if (!score->gpuctl.json) {
        printf("%u tokens, mean negative log likelihood %.5f, perplexity %.4f\n", result->tokens,
               result->mean_nll, result->perplexity);
        return;
    }
    struct json json;
    json_begin(&json, stdout);
    json_object(&json, NULL);
    json_number(&json, "tokens", result->tokens);
    json_real(&json, "mean_nll", result->mean_nll, LOGIT_DIGITS);
    json_real(&json, "perplexity", result->perplexity, LOGIT_DIGITS);
    json_end(&json);
    json_line(&json);
}

// The ids to score: of a file of ids, or of a text that gpud tokenizes, cut at --limit.
static int read_ids(struct score *score, uint32_t **out_ids, size_t *out_count,
                    struct kvtier_error *error)
{
    char *text = NULL;
    size_t bytes = 0;
    struct reason reason = {0};
    enum status status;
    if (score->prompt_ids != NULL) {
        status = console_read_ids(score->prompt_ids, out_ids, out_count, &reason);
    } else {
        status = console_read_file(score->file, LIMIT_PROMPT_BYTES, &text, &bytes, &reason);
    }
    if (status != STATUS_OK) {
        snprintf(error->message, sizeof(error->message), "%s", reason.text);
        snprintf(error->hint, sizeof(error->hint), "%s", reason.hint);
        return (int)status;
    }
    int result = KVTIER_OK;
    if (score->prompt_ids == NULL) {
        unsigned flags = KVTIER_ADD_SPECIAL | (score->parse_special ? KVTIER_PARSE_SPECIAL : 0);
        result =
            kvtier_tokenize(score->gpuctl.client, text, bytes, flags, out_ids, out_count, error);
    }
    free(text);
    if (score->limit > 0 && (size_t)score->limit < *out_count) {
        *out_count = (size_t)score->limit;
    }
    return result;
}

static int run(struct score *score)
{
    int exit_code = 0;
    struct kvtier_error error = {0};
    uint32_t *ids = NULL;
    size_t count = 0;
    if (!gpuctl_connect(&score->gpuctl, &exit_code)) {
        return exit_code;
    }
    int status = read_ids(score, &ids, &count, &error);
    if (status == KVTIER_OK) {
        const struct kvtier_score request = {
            .ids = ids,
            .id_count = count,
            .top = (uint32_t)score->top,
            .from = (uint32_t)score->from,
            .logits_hash = score->logits_hash,
            .context = score,
            .ids_event = on_ids,
            .progress = on_progress,
            .row = on_row,
        };
        struct kvtier_score_result result;
        score->bar = console_bar_start("scoring");
        status = kvtier_score(score->gpuctl.client, &request, &result, &error);
        console_bar_finish(&score->bar);
        if (status == KVTIER_OK) {
            print_sums(score, &result);
        }
    }
    free(ids);
    return gpuctl_end(&score->gpuctl, status, &error);
}

int gpuctl_score(int argc, char **argv)
{
    struct score s = {.top = 16};
    const struct option_spec specs[] = {
        {.name = "file",
         .kind = OPTION_TEXT,
         .value = "FILE",
         .help = "the text (- reads stdin)",
         .target = &s.file},
        {.name = "prompt-ids",
         .kind = OPTION_TEXT,
         .value = "FILE",
         .help = "token ids instead, used as they are",
         .target = &s.prompt_ids},
        {.name = "top",
         .kind = OPTION_INTEGER,
         .value = "N",
         .help = "highest logits to print a position (default 16)",
         .target = &s.top,
         .minimum = 0,
         .maximum = 256},
        {.name = "limit",
         .kind = OPTION_INTEGER,
         .value = "TOKENS",
         .help = "only the first so many tokens",
         .target = &s.limit,
         .minimum = 1,
         .maximum = LIMIT_CONTEXT_TOKENS},
        {.name = "from",
         .kind = OPTION_INTEGER,
         .value = "POS",
         .help = "first position to print; what lies before may come from the cache",
         .target = &s.from,
         .minimum = 0,
         .maximum = LIMIT_CONTEXT_TOKENS},
        {.name = "parse-special",
         .kind = OPTION_FLAG,
         .help = "texts of special tokens are these tokens",
         .target = &s.parse_special},
        {.name = "logits-hash",
         .kind = OPTION_FLAG,
         .help = "with --json: the XXH3-64 of each position's logits",
         .target = &s.logits_hash},
        GPUCTL_SPECS(s.gpuctl)};
    const struct options_command command = {
        .name = "gpuctl score",
        .arguments = "",
        .summary = "Prints the model's log probabilities of a text, teacher-forced.",
        .specs = specs,
        .spec_count = sizeof(specs) / sizeof(specs[0]),
    };
    int first = 0;
    int exit_code = 0;
    if (!gpuctl_parse(&s.gpuctl, &command, argc, argv, &first, &exit_code)) {
        return exit_code;
    }
    if ((s.file == NULL) == (s.prompt_ids == NULL)) {
        struct reason reason;
        (void)reason_set(&reason, STATUS_INVALID, "give one of them",
                         "score: needs either --file or --prompt-ids");
        (void)gpuctl_fail(&s.gpuctl, STATUS_INVALID, &reason);
        return GPUCTL_EXIT_USAGE;
    }
    return run(&s);
}
