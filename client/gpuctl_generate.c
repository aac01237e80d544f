// SPDX-License-Identifier: Apache-2.0
// gpuctl generate: one prompt, one answer. Text is streamed as it comes; --json prints an event a
// line.
#include "client/gpuctl.h"

#include "client/console.h"
#include "client/json.h"
#include "proto/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct generate {
    struct gpuctl gpuctl;
    const char *session, *prompt, *prompt_file, *prompt_ids;
    struct option_list stop;
    int64_t max_tokens;
    struct gpuctl_sampling sampling;
    bool chat, parse_special, logits_hash, ignore_eos, no_cache;
    struct console_bar bar;
    char *text; // read from a file
    uint32_t *ids;
};

// ---- events

static void put_start(struct json *json, const struct kvtier_start *start)
{
    json_number(json, "prompt_tokens", start->prompt_tokens);
    json_number(json, "cached_tokens", start->cached_tokens);
}

static void on_start(void *context, const struct kvtier_start *start)
{
    const struct generate *generate = context;
    if (!generate->gpuctl.json) {
        return;
    }
    struct json json;
    json_begin(&json, stdout);
    json_object(&json, NULL);
    json_text(&json, "event", "start");
    put_start(&json, start);
    json_end(&json);
    json_line(&json);
}

static void on_progress(void *context, uint32_t done_tokens, uint32_t total_tokens)
{
    struct generate *generate = context;
    console_bar_set(&generate->bar, done_tokens, total_tokens, "tokens");
}

static void on_token(void *context, const struct kvtier_token *token)
{
    struct generate *generate = context;
    console_bar_finish(&generate->bar);
    gpuctl_check_output(&generate->gpuctl);
    if (!generate->gpuctl.json) {
        fwrite(token->text, 1, token->text_bytes, stdout);
        fflush(stdout);
        return;
    }
    struct json json;
    json_begin(&json, stdout);
    json_object(&json, NULL);
    json_text(&json, "event", "token");
    json_number(&json, "id", token->id);
    json_bytes(&json, "text", token->text, token->text_bytes);
    if (token->has_logits_hash) {
        json_hex64(&json, "logits_hash", token->logits_hash);
    }
    json_end(&json);
    json_line(&json);
}

static void print_done(const struct kvtier_result *result)
{
    struct json json;
    json_begin(&json, stdout);
    json_object(&json, NULL);
    json_text(&json, "event", "done");
    json_text(&json, "finish_reason", result->finish_reason);
    json_bytes(&json, "text", result->text, result->text_bytes);
    json_array(&json, "token_ids");
    for (uint32_t i = 0; i < result->completion_tokens; i++) {
        json_number(&json, NULL, result->token_ids[i]);
    }
    json_end(&json);
    json_number(&json, "prompt_tokens", result->start.prompt_tokens);
    json_number(&json, "completion_tokens", result->completion_tokens);
    json_number(&json, "cached_tokens", result->start.cached_tokens);
    json_object(&json, "cached");
    json_number(&json, "hot", result->start.cached_hot_tokens);
    json_number(&json, "ram", result->start.cached_ram_tokens);
    json_number(&json, "disk", result->start.cached_disk_tokens);
    json_end(&json);
    json_number(&json, "computed_tokens", result->start.computed_tokens);
    json_real(&json, "ttft_ms", result->ttft_ms, 6);
    json_real(&json, "prefill_ms", result->prefill_ms, 6);
    json_real(&json, "decode_ms", result->decode_ms, 6);
    json_real(&json, "decode_tokens_per_s", result->decode_tokens_per_s, 6);
    if (result->session[0] != 0) {
        json_text(&json, "session", result->session);
    } else {
        json_null(&json, "session");
    }
    json_end(&json);
    json_line(&json);
}

// ---- input

// Exactly one source of the prompt, or none with a session.
static enum status check_sources(const struct generate *generate, struct reason *reason)
{
    int given = (generate->prompt != NULL) + (generate->prompt_file != NULL) +
                (generate->prompt_ids != NULL);
    if (given > 1) {
        return reason_set(
            reason, STATUS_INVALID, "give one of them",
            "generate: --prompt, --prompt-file, --prompt-ids and - exclude each other");
    }
    if (given == 0 && generate->session == NULL) {
        return reason_set(reason, STATUS_INVALID, "give --prompt, --prompt-file, --prompt-ids or -",
                          "generate: there is no prompt");
    }
    if (generate->chat && (generate->prompt_ids != NULL || given == 0)) {
        return reason_set(reason, STATUS_INVALID, "give the message as text",
                          "generate: --chat needs a text");
    }
    return STATUS_OK;
}

static enum status read_prompt(struct generate *generate, struct kvtier_generate *request,
                               struct reason *reason)
{
    enum status status = check_sources(generate, reason);
    if (status != STATUS_OK) {
        return status;
    }
    if (generate->prompt_ids != NULL) {
        status = console_read_ids(generate->prompt_ids, &generate->ids, &request->prompt_id_count,
                                  reason);
        request->prompt_ids = generate->ids;
    } else if (generate->prompt_file != NULL) {
        status = console_read_file(generate->prompt_file, LIMIT_PROMPT_BYTES, &generate->text,
                                   &request->prompt_bytes, reason);
        request->prompt = generate->text;
    } else if (generate->prompt != NULL) {
        request->prompt = generate->prompt;
        request->prompt_bytes = strlen(generate->prompt);
    }
    return status;
}

static void fill_request(struct generate *generate, struct kvtier_generate *request)
{
    request->session = generate->session;
    request->stop = generate->stop.items;
    request->stop_count = generate->stop.count;
    request->max_tokens = generate->max_tokens;
    gpuctl_sampling_take(&generate->sampling, &request->sampling);
    request->parse_special = generate->parse_special;
    request->logits_hash = generate->logits_hash;
    request->ignore_eos = generate->ignore_eos;
    request->no_cache = generate->no_cache;
    request->events = (struct kvtier_generate_events){
        .context = generate, .start = on_start, .progress = on_progress, .token = on_token};
}

static int run(struct generate *generate)
{
    struct kvtier_generate request;
    struct reason reason = {0};
    int exit_code = 0;
    kvtier_generate_init(&request);
    enum status status = read_prompt(generate, &request, &reason);
    if (status != STATUS_OK) {
        int code = gpuctl_fail(&generate->gpuctl, status, &reason);
        return status == STATUS_INVALID ? GPUCTL_EXIT_USAGE : code;
    }
    const struct kvtier_turn turn = {.role = "user", .content = request.prompt};
    if (generate->chat) {
        request.turns = &turn;
        request.turn_count = 1;
        request.prompt = NULL;
        request.prompt_bytes = 0;
    }
    fill_request(generate, &request);
    if (!gpuctl_connect(&generate->gpuctl, &exit_code)) {
        return exit_code;
    }
    struct kvtier_result result;
    struct kvtier_error error;
    generate->bar = console_bar_start("reading");
    int done = kvtier_generate(generate->gpuctl.client, &request, &result, &error);
    console_bar_finish(&generate->bar);
    if (done == KVTIER_OK && generate->gpuctl.json) {
        print_done(&result);
    } else if (done == KVTIER_OK) {
        putchar('\n');
    }
    if (done == KVTIER_OK) {
        bool stopped = strcmp(result.finish_reason, "cancelled") == 0; // not by us: gpud stops
        kvtier_result_finish(&result);
        if (stopped) {
            (void)reason_set(&reason, STATUS_CANCELLED, "what was delivered of a session is kept",
                             "request: gpud was stopped");
            return gpuctl_fail(&generate->gpuctl, STATUS_CANCELLED, &reason);
        }
    }
    return gpuctl_end(&generate->gpuctl, done, &error);
}

int gpuctl_generate(int argc, char **argv)
{
    struct generate g = {.max_tokens = 2048};
    gpuctl_sampling_init(&g.sampling);
    const struct option_spec specs[] = {
        {.name = "session",
         .kind = OPTION_TEXT,
         .value = "NAME",
         .help = "go on with this session; it grows by prompt and answer",
         .target = &g.session},
        {.name = "prompt",
         .kind = OPTION_TEXT,
         .value = "TEXT",
         .help = "the prompt",
         .target = &g.prompt},
        {.name = "prompt-file",
         .kind = OPTION_TEXT,
         .value = "FILE",
         .help = "the prompt is the content of FILE (- reads stdin)",
         .target = &g.prompt_file},
        {.name = "prompt-ids",
         .kind = OPTION_TEXT,
         .value = "FILE",
         .help = "the prompt is the token ids in FILE, used as they are",
         .target = &g.prompt_ids},
        {.name = "max-tokens",
         .kind = OPTION_INTEGER,
         .value = "N",
         .help = "tokens to generate (default 2048; -1 = all that is left of the context)",
         .target = &g.max_tokens,
         .minimum = -1,
         .maximum = LIMIT_CONTEXT_TOKENS},
        GPUCTL_SAMPLING_SPECS(g.sampling),
        {.name = "chat",
         .kind = OPTION_FLAG,
         .help = "the prompt is a user's message: use the model's chat template",
         .target = &g.chat},
        {.name = "stop",
         .kind = OPTION_LIST,
         .value = "TEXT",
         .help = "end the answer before TEXT; may be given several times",
         .target = &g.stop},
        {.name = "parse-special",
         .kind = OPTION_FLAG,
         .help = "texts of special tokens in the prompt are these tokens",
         .target = &g.parse_special},
        {.name = "ignore-eos",
         .kind = OPTION_FLAG,
         .help = "go on after the model's end token",
         .target = &g.ignore_eos},
        {.name = "no-cache",
         .kind = OPTION_FLAG,
         .help = "compute the whole prompt",
         .target = &g.no_cache},
        {.name = "logits-hash",
         .kind = OPTION_FLAG,
         .help = "with --json: the XXH3-64 of each token's logits",
         .target = &g.logits_hash},
        GPUCTL_SPECS(g.gpuctl)};
    const struct options_command command = {
        .name = "gpuctl generate",
        .arguments = "[-]",
        .summary = "Streams a completion. Ctrl-C cancels the request.",
        .specs = specs,
        .spec_count = sizeof(specs) / sizeof(specs[0]),
        .positional_max = 1,
    };
    int first = 0;
    int exit_code = 0;
    if (!gpuctl_parse(&g.gpuctl, &command, argc, argv, &first, &exit_code)) {
        return exit_code;
    }
    if (first < argc && strcmp(argv[first], "-") != 0) {
        struct reason reason;
        (void)reason_set(&reason, STATUS_INVALID, "use --prompt TEXT",
                         "generate: unexpected argument %s", argv[first]);
        (void)gpuctl_fail(&g.gpuctl, STATUS_INVALID, &reason);
        return GPUCTL_EXIT_USAGE;
    }
    if (first < argc) {
        g.prompt_file = "-";
    }
    exit_code = run(&g);
    free(g.text);
    free(g.ids);
    return exit_code;
}
