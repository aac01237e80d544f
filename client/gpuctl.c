// SPDX-License-Identifier: Apache-2.0
// gpuctl: starts and stops the daemons, generates, chats, scores, keeps sessions. This file chooses
// the command and holds what all commands share; each command has a file of its own.
#include "client/gpuctl.h"

#include "client/console.h"
#include "proto/os/clock.h"
#include "proto/os/service.h"
#include "proto/os/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct command {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
};

static const struct command commands[] = {
    {"up", "start both daemons in the background and wait until they are ready", gpuctl_up},
    {"down", "stop them in order", gpuctl_down},
    {"status", "model, tiers, queue, speed", gpuctl_status},
    {"generate", "stream a completion", gpuctl_generate},
    {"chat", "talk to the model", gpuctl_chat},
    {"session", "list, show, save and delete named sessions", gpuctl_session},
    {"tokenize", "text to token ids", gpuctl_tokenize},
    {"detokenize", "token ids to text", gpuctl_detokenize},
    {"score", "log probabilities and perplexity of a text", gpuctl_score},
    {"bench", "prefill and decode speed at several depths", gpuctl_bench},
};

enum {
    COMMAND_COUNT = sizeof(commands) / sizeof(commands[0]),
    REPEAT_CANCEL_MS = 50,
    STOP_GRACE_MS = 1000
};

static void help(FILE *out)
{
    fprintf(out, "Usage: gpuctl COMMAND [options]\n\nRuns and uses kvtier.\n\nCommands:\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        fprintf(out, "  %-11s %s\n", commands[i].name, commands[i].summary);
    }
    fprintf(out, "\n`gpuctl COMMAND --help` lists a command's options; `gpuctl --version` the "
                 "version.\n");
}

bool gpuctl_parse(struct gpuctl *gpuctl, const struct options_command *command, int argc,
                  char **argv, int *out_first, int *out_exit)
{
    struct reason reason = {0};
    enum options_result result = options_parse(command, argc, argv, out_first, &reason);
    if (result == OPTIONS_HELP) {
        options_help(command, stdout);
        *out_exit = 0;
        return false;
    }
    if (result == OPTIONS_BAD) {
        (void)console_fail("gpuctl", gpuctl->json, STATUS_INVALID, &reason);
        *out_exit = GPUCTL_EXIT_USAGE;
        return false;
    }
    return true;
}

// A cancel before the call began is nothing, so a command of one call repeats it. Static: the
// thread ends with the process.
static struct {
    struct kvtier_client *client;
    bool once; // of several calls, the one that runs is meant
} interrupt;

static void wait_for_interrupt(void *context)
{
    (void)context;
    uint32_t wait_ms = OS_WAIT_FOREVER;
    for (;;) {
        enum os_signal signal = os_service_wait(wait_ms);
        if (signal != OS_SIGNAL_NONE && !interrupt.once) {
            wait_ms = REPEAT_CANCEL_MS;
        }
        if (signal != OS_SIGNAL_NONE || wait_ms != OS_WAIT_FOREVER) {
            kvtier_cancel(interrupt.client);
        }
        if (signal == OS_SIGNAL_STOP) { // the command ends by itself, but when it waits for input
            os_sleep_ms(STOP_GRACE_MS);
            _Exit(1);
        }
    }
}

void gpuctl_check_output(const struct gpuctl *gpuctl)
{
    if (ferror(stdout)) {
        kvtier_cancel(gpuctl->client);
    }
}

bool gpuctl_connect(struct gpuctl *gpuctl, int *out_exit)
{
    struct kvtier_error error;
    os_service_init(); // before the library has threads: they inherit what is blocked
    int status = kvtier_open(gpuctl->url, &gpuctl->client, &error);
    if (status != KVTIER_OK) {
        *out_exit = gpuctl_end(gpuctl, status, &error);
        return false;
    }
    struct os_thread *thread = NULL;
    interrupt.client = gpuctl->client;
    interrupt.once = gpuctl->many_calls;
    enum status started = os_thread_start("interrupt", wait_for_interrupt, NULL, &thread);
    if (started != STATUS_OK) {
        struct reason reason;
        (void)reason_set(&reason, started, "", "gpuctl: a thread could not be started");
        *out_exit = gpuctl_fail(gpuctl, started, &reason);
        return false;
    }
    return true;
}

// The connection is left to the end of the process: the thread that waits for Ctrl-C may use it.
int gpuctl_end(struct gpuctl *gpuctl, int status, const struct kvtier_error *error)
{
    if (ferror(stdout)) {
        return 1; // main says so, whatever the call made of it
    }
    if (status == KVTIER_OK) {
        return 0;
    }
    struct reason reason;
    snprintf(reason.text, sizeof(reason.text), "%s", error->message);
    snprintf(reason.hint, sizeof(reason.hint), "%s", error->hint);
    return gpuctl_fail(gpuctl, status_from_wire(status), &reason);
}

int gpuctl_fail(const struct gpuctl *gpuctl, enum status status, const struct reason *reason)
{
    fflush(stdout);
    return console_fail("gpuctl", gpuctl->json, status, reason);
}

void gpuctl_sampling_init(struct gpuctl_sampling *sampling)
{
    struct kvtier_generate defaults;
    kvtier_generate_init(&defaults);
    const struct kvtier_sampling *from = &defaults.sampling;
    *sampling = (struct gpuctl_sampling){
        .temperature = (double)from->temperature,
        .top_p = (double)from->top_p,
        .min_p = (double)from->min_p,
        .repeat_penalty = (double)from->repeat_penalty,
        .presence_penalty = (double)from->presence_penalty,
        .frequency_penalty = (double)from->frequency_penalty,
        .top_k = from->top_k,
        .repeat_last_n = from->repeat_last_n,
    };
}

void gpuctl_sampling_take(const struct gpuctl_sampling *sampling, struct kvtier_sampling *out)
{
    *out = (struct kvtier_sampling){
        .temperature = (float)sampling->temperature,
        .top_k = (int32_t)sampling->top_k,
        .top_p = (float)sampling->top_p,
        .min_p = (float)sampling->min_p,
        .repeat_penalty = (float)sampling->repeat_penalty,
        .repeat_last_n = (int32_t)sampling->repeat_last_n,
        .presence_penalty = (float)sampling->presence_penalty,
        .frequency_penalty = (float)sampling->frequency_penalty,
        .has_seed = sampling->has_seed,
        .seed = (uint64_t)sampling->seed,
    };
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        help(stderr);
        return GPUCTL_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        help(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("gpuctl %s\n", kvtier_version());
        return 0;
    }
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(argv[1], commands[i].name) == 0) {
            return console_finish("gpuctl", commands[i].run(argc - 1, argv + 1));
        }
    }
    fprintf(stderr, "gpuctl: %s: is not a command; see gpuctl --help\n", argv[1]);
    return GPUCTL_EXIT_USAGE;
}
