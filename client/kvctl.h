// SPDX-License-Identifier: Apache-2.0
// What the commands of kvctl share: the connection to kvstored and how results are shown. One
// command a file, each `int kvctl_NAME(int argc, char **argv)` with argv[0] its own name; it
// returns the exit code. One thread.
#ifndef KVTIER_CLIENT_KVCTL_H
#define KVTIER_CLIENT_KVCTL_H

#include "client/kv_client.h"
#include "client/options.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { KVCTL_HEX_BYTES = 2 * BLOCK_ID_BYTES + 1 };

// Options that every command has, and its connection.
struct kvctl {
    bool json;
    const char *url; // of kvstored; NULL: the default one
    struct kv_client *client;
};

// The specs of struct kvctl, to stand at the end of a command's table.
#define KVCTL_SPECS(kvctl)                                                                         \
    {.name = "json", .kind = OPTION_FLAG, .help = "print JSON", .target = &(kvctl).json},          \
    {                                                                                              \
        .name = "url", .kind = OPTION_TEXT, .value = "URL",                                        \
        .help = "of kvstored (default: the one of this user's runtime folder)",                    \
        .target = &(kvctl).url                                                                     \
    }

// Parses the command line. False when the command is over: *out_exit is its exit code.
bool kvctl_parse(struct kvctl *kvctl, const struct options_command *command, int argc, char **argv,
                 int *out_first, int *out_exit);
// Connects. False as above.
bool kvctl_connect(struct kvctl *kvctl, int *out_exit);
// Says what is wrong with the command line; returns the exit code of that.
int kvctl_usage(const struct kvctl *kvctl, const struct reason *reason);
// Both at once.
bool kvctl_begin(struct kvctl *kvctl, const struct options_command *command, int argc, char **argv,
                 int *out_first, int *out_exit);
// Ends the connection, says what went wrong, and returns the exit code. `reason` may be NULL.
int kvctl_end(struct kvctl *kvctl, enum status status, const struct reason *reason);

// Lower-case hex of `bytes` bytes into `out` [2 * bytes + 1].
void kvctl_hex(const uint8_t *data, size_t bytes, char *out);
// The id or fingerprint that 64 hex digits stand for; false when they are something else.
bool kvctl_hex_parse(const char *text, uint8_t *out);
// "ram", "disk", "ram+disk" or "none".
const char *kvctl_tiers(uint32_t tiers);

// The commands: argv[0] is the command's own name; each returns the exit code.
int kvctl_status(int argc, char **argv);
int kvctl_sessions(int argc, char **argv);
int kvctl_session(int argc, char **argv);
int kvctl_blocks(int argc, char **argv);
int kvctl_block(int argc, char **argv);
int kvctl_verify(int argc, char **argv);

#endif
