// SPDX-License-Identifier: Apache-2.0
// What the commands of gpuctl share. One command a file, each `int gpuctl_NAME(int argc, char
// **argv)` with argv[0] its own name; it returns the exit code. One thread, and a second one that
// waits for Ctrl-C while a request runs.
#ifndef KVTIER_CLIENT_GPUCTL_H
#define KVTIER_CLIENT_GPUCTL_H

#include "client/kvtier.h"
#include "client/options.h"
#include "proto/status.h"

#include <stdbool.h>

enum { GPUCTL_EXIT_USAGE = 2 };

// Options that every command has, and its connection to gpud.
struct gpuctl {
    bool json;
    const char *url; // of gpud; NULL: the default one
    bool many_calls; // Ctrl-C ends a call, not the command; to be set before connecting
    struct kvtier_client *client;
};

// The specs of struct gpuctl, to stand at the end of a command's table.
#define GPUCTL_SPECS(gpuctl)                                                                       \
    {.name = "json", .kind = OPTION_FLAG, .help = "print JSON", .target = &(gpuctl).json},         \
    {                                                                                              \
        .name = "url", .kind = OPTION_TEXT, .value = "URL",                                        \
        .help = "of gpud (default: the one of this user's runtime folder)",                        \
        .target = &(gpuctl).url                                                                    \
    }

// Parses the command line. False when the command is over: *out_exit is its exit code.
bool gpuctl_parse(struct gpuctl *gpuctl, const struct options_command *command, int argc,
                  char **argv, int *out_first, int *out_exit);
// Connects; from then on Ctrl-C cancels the request that runs. False as above.
bool gpuctl_connect(struct gpuctl *gpuctl, int *out_exit);
// Cancels the call that runs when its output cannot be written any more (the reader has gone).
void gpuctl_check_output(const struct gpuctl *gpuctl);
// Ends the connection, says what went wrong, and returns the exit code.
int gpuctl_end(struct gpuctl *gpuctl, int status, const struct kvtier_error *error);
// Says what went wrong with a status and a reason of ours.
int gpuctl_fail(const struct gpuctl *gpuctl, enum status status, const struct reason *reason);

// Options of sampling, for generate and chat.
struct gpuctl_sampling {
    double temperature, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
    int64_t top_k, repeat_last_n, seed;
    bool has_seed;
};
void gpuctl_sampling_init(struct gpuctl_sampling *sampling);
void gpuctl_sampling_take(const struct gpuctl_sampling *sampling, struct kvtier_sampling *out);
#define GPUCTL_SAMPLING_SPEC(option, word, kind_, member, low, high, text)                         \
    {                                                                                              \
        .name = (option), .kind = (kind_), .value = (word), .help = (text), .target = (member),    \
        .minimum = (low), .maximum = (high)                                                        \
    }
#define GPUCTL_SAMPLING_SPECS(s)                                                                   \
    GPUCTL_SAMPLING_SPEC("temperature", "T", OPTION_REAL, &(s).temperature, 0, 1e6,                \
                         "0 = the most likely token (default 0.8)"),                               \
        GPUCTL_SAMPLING_SPEC("top-k", "N", OPTION_INTEGER, &(s).top_k, 0, 1 << 20,                 \
                             "0 = off (default 40)"),                                              \
        GPUCTL_SAMPLING_SPEC("top-p", "P", OPTION_REAL, &(s).top_p, 0, 1,                          \
                             "1 = off (default 0.95)"),                                            \
        GPUCTL_SAMPLING_SPEC("min-p", "P", OPTION_REAL, &(s).min_p, 0, 1,                          \
                             "0 = off (default 0.05)"),                                            \
        GPUCTL_SAMPLING_SPEC("repeat-penalty", "X", OPTION_REAL, &(s).repeat_penalty, 0, 1e6,      \
                             "1 = off (default 1)"),                                               \
        GPUCTL_SAMPLING_SPEC("repeat-last-n", "N", OPTION_INTEGER, &(s).repeat_last_n, -1,         \
                             1 << 20, "tokens that penalties look back (default 64, -1 = all)"),   \
        GPUCTL_SAMPLING_SPEC("presence-penalty", "X", OPTION_REAL, &(s).presence_penalty, -1e6,    \
                             1e6, "0 = off (default 0)"),                                          \
        GPUCTL_SAMPLING_SPEC("frequency-penalty", "X", OPTION_REAL, &(s).frequency_penalty, -1e6,  \
                             1e6, "0 = off (default 0)"),                                          \
    {                                                                                              \
        .name = "seed", .kind = OPTION_INTEGER, .value = "N",                                      \
        .help = "same seed, same text (default: a random one)", .target = &(s).seed, .minimum = 0, \
        .maximum = 9007199254740992.0, .given = &(s).has_seed                                      \
    }

// Starts both daemons and leaves a supervisor (gpuctl_up.c); and stops them in order.
int gpuctl_up(int argc, char **argv);
int gpuctl_down(int argc, char **argv); // nothing running is fine
// Levels of gpud and of the store.
int gpuctl_status(int argc, char **argv);
// One prompt, one answer, streamed.
int gpuctl_generate(int argc, char **argv);
// A conversation at a terminal.
int gpuctl_chat(int argc, char **argv);
// list, show, save, delete.
int gpuctl_session(int argc, char **argv);
// Text to ids and back, by gpud or without it (gpuctl_tokens.c).
int gpuctl_tokenize(int argc, char **argv);
int gpuctl_detokenize(int argc, char **argv); // ids to text
// Teacher-forced log probabilities.
int gpuctl_score(int argc, char **argv);
// Prefill and decode speed at depths.
int gpuctl_bench(int argc, char **argv);

#endif
