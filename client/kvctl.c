// SPDX-License-Identifier: Apache-2.0
// kvctl: shows what kvstored holds. Works while gpud is down. This file chooses the command and
// holds what all commands share; each command has a file of its own.
#include "client/kvctl.h"

#include "client/config.h"
#include "client/console.h"
#include "proto/limits.h"

#include <stdio.h>
#include <string.h>

struct command {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
};

static const struct command commands[] = {
    {"status", "tiers, counters, disk and memory", kvctl_status},
    {"sessions", "list the sessions that are kept", kvctl_sessions},
    {"session", "show one session", kvctl_session},
    {"blocks", "list blocks, one row each", kvctl_blocks},
    {"block", "show one block: header, tokens, checksum, statistics", kvctl_block},
    {"verify", "read everything on disk and compare checksums and tokens", kvctl_verify},
};

enum { COMMAND_COUNT = sizeof(commands) / sizeof(commands[0]), EXIT_USAGE = 2 };

static void help(FILE *out)
{
    fprintf(out, "Usage: kvctl COMMAND [options]\n\nShows what kvstored holds.\n\nCommands:\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
    }
    fprintf(out,
            "\n`kvctl COMMAND --help` lists a command's options; `kvctl --version` the version.\n");
}

bool kvctl_parse(struct kvctl *kvctl, const struct options_command *command, int argc, char **argv,
                 int *out_first, int *out_exit)
{
    struct reason reason = {0};
    enum options_result result = options_parse(command, argc, argv, out_first, &reason);
    if (result == OPTIONS_HELP) {
        options_help(command, stdout);
        *out_exit = 0;
        return false;
    }
    if (result == OPTIONS_BAD) {
        console_fail("kvctl", kvctl->json, STATUS_INVALID, &reason);
        *out_exit = EXIT_USAGE;
        return false;
    }
    return true;
}

bool kvctl_connect(struct kvctl *kvctl, int *out_exit)
{
    struct reason reason = {0};
    char url[LIMIT_URL_BYTES];
    enum status status = STATUS_OK;
    if (kvctl->url == NULL) {
        status = config_url("kvstored", url, &reason);
        kvctl->url = url;
    }
    if (status == STATUS_OK) {
        const struct kv_client_options options = {.url = kvctl->url, .program = "kvctl"};
        status = kv_client_open(&options, &kvctl->client, &reason);
    }
    kvctl->url = NULL;
    if (status != STATUS_OK) {
        *out_exit = kvctl_end(kvctl, status, &reason);
        return false;
    }
    return true;
}

bool kvctl_begin(struct kvctl *kvctl, const struct options_command *command, int argc, char **argv,
                 int *out_first, int *out_exit)
{
    return kvctl_parse(kvctl, command, argc, argv, out_first, out_exit) &&
           kvctl_connect(kvctl, out_exit);
}

int kvctl_usage(const struct kvctl *kvctl, const struct reason *reason)
{
    (void)console_fail("kvctl", kvctl->json, STATUS_INVALID, reason);
    return EXIT_USAGE;
}

int kvctl_end(struct kvctl *kvctl, enum status status, const struct reason *reason)
{
    kv_client_close(kvctl->client);
    kvctl->client = NULL;
    if (status == STATUS_OK) {
        return 0;
    }
    struct reason unsaid;
    if (reason == NULL || reason->text[0] == 0) {
        (void)reason_set(&unsaid, status, "", "kvstored: answered %s", status_name(status));
        reason = &unsaid;
    }
    return console_fail("kvctl", kvctl->json, status, reason);
}

void kvctl_hex(const uint8_t *data, size_t bytes, char *out)
{
    for (size_t i = 0; i < bytes; i++) {
        snprintf(out + 2 * i, 3, "%02x", data[i]);
    }
}

static int hex_digit(char digit)
{
    const char *digits = "0123456789abcdef";
    const char *place = digit != 0 ? strchr(digits, digit) : NULL;
    return place != NULL ? (int)(place - digits) : -1;
}

bool kvctl_hex_parse(const char *text, uint8_t *out)
{
    if (strlen(text) != 2 * (size_t)BLOCK_ID_BYTES) {
        return false;
    }
    for (size_t i = 0; i < BLOCK_ID_BYTES; i++) {
        int high = hex_digit(text[2 * i]);
        int low = hex_digit(text[2 * i + 1]);
        if (high < 0 || low < 0) {
            return false;
        }
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

const char *kvctl_tiers(uint32_t tiers)
{
    static const char *const names[] = {"none", "ram", "disk", "ram+disk"};
    return names[tiers & (KV_TIER_RAM | KV_TIER_DISK)];
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        help(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        help(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("kvctl %s\n", KVTIER_VERSION);
        return 0;
    }
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(argv[1], commands[i].name) == 0) {
            return console_finish("kvctl", commands[i].run(argc - 1, argv + 1));
        }
    }
    fprintf(stderr, "kvctl: %s: is not a command; see kvctl --help\n", argv[1]);
    return EXIT_USAGE;
}
