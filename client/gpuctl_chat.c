// SPDX-License-Identifier: Apache-2.0
// gpuctl chat: a conversation at a terminal. The history lives in a session of gpud: the one that
// --session names, or one of this process that is deleted at the end. So each turn sends only
// itself.
#include "client/gpuctl.h"

#include "client/console.h"
#include "proto/limits.h"
#include "proto/os/machine.h"
#include "proto/os/terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct chat {
    struct gpuctl gpuctl;
    const char *session;
    char own_session[64];
    bool temporary; // the session goes when the conversation ends
    int64_t max_tokens;
    struct gpuctl_sampling sampling;
    struct console_bar bar;
};

static void on_progress(void *context, uint32_t done_tokens, uint32_t total_tokens)
{
    struct chat *chat = context;
    console_bar_set(&chat->bar, done_tokens, total_tokens, "tokens");
}

static void on_token(void *context, const struct kvtier_token *token)
{
    struct chat *chat = context;
    console_bar_finish(&chat->bar);
    gpuctl_check_output(&chat->gpuctl);
    fwrite(token->text, 1, token->text_bytes, stdout);
    fflush(stdout);
}

static int say(struct chat *chat, const char *line, struct kvtier_error *error)
{
    struct kvtier_generate request;
    struct kvtier_result result;
    const struct kvtier_turn turn = {.role = "user", .content = line};
    kvtier_generate_init(&request);
    request.turns = &turn;
    request.turn_count = 1;
    request.session = chat->session;
    request.max_tokens = chat->max_tokens;
    gpuctl_sampling_take(&chat->sampling, &request.sampling);
    request.events = (struct kvtier_generate_events){
        .context = chat, .progress = on_progress, .token = on_token};
    chat->bar = console_bar_start("reading");
    int status = kvtier_generate(chat->gpuctl.client, &request, &result, error);
    console_bar_finish(&chat->bar);
    putchar('\n');
    if (status == KVTIER_OK) {
        kvtier_result_finish(&result);
    }
    return status;
}

static int show_tokens(struct chat *chat, struct kvtier_error *error)
{
    struct kvtier_session session;
    struct kvtier_info info;
    int status = kvtier_session_show(chat->gpuctl.client, chat->session, &session, error);
    kvtier_info(chat->gpuctl.client, &info);
    if (status == KVTIER_OK) {
        printf("%u of %u tokens\n", session.tokens, info.context_tokens);
    }
    return status;
}

static int save(struct chat *chat, struct kvtier_error *error)
{
    struct kvtier_save saved;
    int status = kvtier_session_save(chat->gpuctl.client, chat->session, &saved, error);
    if (status == KVTIER_OK) {
        printf("saved as %s: %u whole blocks on disk\n", chat->session, saved.durable_blocks);
    }
    return status;
}

// A line that begins with a slash. False for /quit.
static bool command(struct chat *chat, const char *line)
{
    struct kvtier_error error;
    int status = KVTIER_OK;
    if (strcmp(line, "/quit") == 0) {
        return false;
    }
    if (strcmp(line, "/save") == 0) {
        status = save(chat, &error);
        chat->temporary = chat->temporary && status != KVTIER_OK;
    } else if (strcmp(line, "/tokens") == 0) {
        status = show_tokens(chat, &error);
    } else {
        printf("/save keeps the conversation, /tokens counts it, /quit ends\n");
    }
    if (status != KVTIER_OK) {
        (void)gpuctl_end(&chat->gpuctl, status, &error);
    }
    return true;
}

static int converse(struct chat *chat)
{
    struct kvtier_error error;
    char *line = NULL;
    size_t capacity = 0;
    int status = KVTIER_OK;
    bool open = true;
    while (open && (status == KVTIER_OK || status == KVTIER_CANCELLED)) {
        if (os_terminal_input()) {
            printf("> ");
            fflush(stdout);
        }
        ssize_t bytes = getline(&line, &capacity, stdin);
        if (bytes < 0) {
            break;
        }
        line[strcspn(line, "\n")] = 0;
        if (line[0] == '/') {
            open = command(chat, line);
        } else if (line[0] != 0) {
            status = say(chat, line, &error);
        }
    }
    free(line);
    if (status == KVTIER_CANCELLED) {
        status = KVTIER_OK;
    }
    return gpuctl_end(&chat->gpuctl, status, &error);
}

int gpuctl_chat(int argc, char **argv)
{
    struct chat c = {.max_tokens = 2048, .gpuctl.many_calls = true};
    gpuctl_sampling_init(&c.sampling);
    const struct option_spec specs[] = {
        {.name = "session",
         .kind = OPTION_TEXT,
         .value = "NAME",
         .help = "go on with this conversation; it is kept",
         .target = &c.session},
        {.name = "max-tokens",
         .kind = OPTION_INTEGER,
         .value = "N",
         .help = "of one answer (default 2048; -1 = all that is left)",
         .target = &c.max_tokens,
         .minimum = -1,
         .maximum = LIMIT_CONTEXT_TOKENS},
        GPUCTL_SAMPLING_SPECS(c.sampling),
        GPUCTL_SPECS(c.gpuctl)};
    const struct options_command command_line = {
        .name = "gpuctl chat",
        .arguments = "",
        .summary =
            "A conversation: a line is a message; /save, /tokens, /quit. Ctrl-C ends an answer.",
        .specs = specs,
        .spec_count = sizeof(specs) / sizeof(specs[0]),
    };
    int first = 0;
    int exit_code = 0;
    if (!gpuctl_parse(&c.gpuctl, &command_line, argc, argv, &first, &exit_code) ||
        !gpuctl_connect(&c.gpuctl, &exit_code)) {
        return exit_code;
    }
    if (c.session == NULL) {
        snprintf(c.own_session, sizeof(c.own_session), "chat-%llu",
                 (unsigned long long)os_machine_process_id());
        c.session = c.own_session;
        c.temporary = true;
    }
    exit_code = converse(&c);
    if (c.temporary) {
        struct kvtier_error ignored; // nothing was said, or gpud is gone
        (void)kvtier_session_delete(c.gpuctl.client, c.own_session, &ignored);
    }
    return exit_code;
}
