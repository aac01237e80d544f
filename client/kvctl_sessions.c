// SPDX-License-Identifier: Apache-2.0
// kvctl sessions, kvctl session NAME: the checkpoints that kvstored keeps, of every user and model.
#include "client/kvctl.h"

#include "client/console.h"
#include "client/json.h"
#include "proto/os/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void show_row_json(struct json *json, const struct kv_session_info *row)
{
    char hex[KVCTL_HEX_BYTES];
    char salt[2 * LIMIT_SALT_BYTES + 1] = "";
    kvctl_hex(row->fingerprint, BLOCK_ID_BYTES, hex);
    kvctl_hex(row->salt, row->salt_bytes, salt);
    json_object(json, NULL);
    json_text(json, "name", row->name);
    json_text(json, "namespace", hex);
    json_text(json, "user", salt);
    json_number(json, "tokens", row->token_count);
    json_number(json, "blocks", row->block_count);
    json_number(json, "ram_blocks", row->ram_block_count);
    json_number(json, "disk_blocks", row->disk_block_count);
    json_number(json, "payload_bytes", row->payload_bytes);
    json_number(json, "created_ms", row->created_ms);
    json_number(json, "updated_ms", row->updated_ms);
    json_bool(json, "kept", row->keep);
    json_end(json);
}

static uint64_t age_ms(uint64_t wall_ms)
{
    uint64_t now_ms = os_clock_wall_ms();
    return now_ms > wall_ms ? now_ms - wall_ms : 0;
}

static void show_row(const struct kv_session_info *row)
{
    printf("%-24s %8u %7u %7u %7u %10s %8s  %s\n", row->name, row->token_count, row->block_count,
           row->ram_block_count, row->disk_block_count, console_size(row->payload_bytes).text,
           console_age(age_ms(row->updated_ms)).text, row->keep ? "kept" : "");
}

static void show_list_json(const struct kv_session_info *rows, uint32_t count)
{
    struct json json;
    json_begin(&json, stdout);
    json_object(&json, NULL);
    json_array(&json, "sessions");
    for (uint32_t i = 0; i < count; i++) {
        show_row_json(&json, &rows[i]);
    }
    json_end(&json);
    json_end(&json);
    json_line(&json);
}

static void show_list(const struct kv_session_info *rows, uint32_t count)
{
    if (count > 0) {
        printf("%-24s %8s %7s %7s %7s %10s %8s\n", "SESSION", "TOKENS", "BLOCKS", "RAM", "DISK",
               "SIZE", "AGE");
    }
    for (uint32_t i = 0; i < count; i++) {
        show_row(&rows[i]);
    }
}

int kvctl_sessions(int argc, char **argv)
{
    struct kvctl kvctl = {0};
    const struct option_spec specs[] = {KVCTL_SPECS(kvctl)};
    const struct options_command command = {
        .name = "kvctl sessions",
        .arguments = "",
        .summary = "Lists the sessions that are kept: tokens, blocks by tier, size, age.",
        .specs = specs,
        .spec_count = sizeof(specs) / sizeof(specs[0]),
    };
    int first = 0;
    int exit_code = 0;
    if (!kvctl_begin(&kvctl, &command, argc, argv, &first, &exit_code)) {
        return exit_code;
    }
    struct reason reason = {0};
    struct kv_session_info *rows = NULL;
    uint32_t count = 0;
    enum status status = kv_client_session_list(kvctl.client, NULL, 0, &rows, &count, &reason);
    if (status == STATUS_OK) {
        (kvctl.json ? show_list_json : show_list)(rows, count);
    }
    free(rows);
    return kvctl_end(&kvctl, status, &reason);
}

// A line of JSON for each: as a rule there is one.
static void show_named_rows(const struct kvctl *kvctl, const struct kv_session_info *rows,
                            uint32_t count)
{
    if (!kvctl->json) {
        show_list(rows, count);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct json json;
        json_begin(&json, stdout);
        show_row_json(&json, &rows[i]);
        json_line(&json);
    }
}

static enum status show_named(const struct kvctl *kvctl, const char *name, struct reason *reason)
{
    struct kv_session_info *rows = NULL;
    uint32_t count = 0;
    uint32_t found = 0;
    enum status status = kv_client_session_list(kvctl->client, NULL, 0, &rows, &count, reason);
    for (uint32_t i = 0; status == STATUS_OK && i < count; i++) {
        if (strcmp(rows[i].name, name) == 0) {
            rows[found++] = rows[i];
        }
    }
    if (status == STATUS_OK && found == 0) {
        status = reason_set(reason, STATUS_NOT_FOUND, "see kvctl sessions",
                            "session %s: does not exist", name);
    }
    if (status == STATUS_OK) {
        show_named_rows(kvctl, rows, found);
    }
    free(rows);
    return status;
}

int kvctl_session(int argc, char **argv)
{
    struct kvctl kvctl = {0};
    const struct option_spec specs[] = {KVCTL_SPECS(kvctl)};
    const struct options_command command = {
        .name = "kvctl session",
        .arguments = "NAME",
        .summary = "Shows one session; a row a user and model that has one of that name.",
        .specs = specs,
        .spec_count = sizeof(specs) / sizeof(specs[0]),
        .positional_min = 1,
        .positional_max = 1,
    };
    int first = 0;
    int exit_code = 0;
    if (!kvctl_begin(&kvctl, &command, argc, argv, &first, &exit_code)) {
        return exit_code;
    }
    struct reason reason = {0};
    enum status status = show_named(&kvctl, argv[first], &reason);
    return kvctl_end(&kvctl, status, &reason);
}
