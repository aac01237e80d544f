// SPDX-License-Identifier: Apache-2.0
// kvctl verify: has kvstored read everything on disk and compare checksums and tokens.
#include "client/kvctl.h"

#include "client/console.h"
#include "client/json.h"

#include <stdio.h>

static void name_damaged(const struct kv_damaged *damaged, char *out)
{
    if (damaged->is_session) {
        snprintf(out, KVCTL_HEX_BYTES, "%.*s", KVCTL_HEX_BYTES - 1,
                 damaged->name[0] != 0 ? damaged->name : "(its name is damaged too)");
    } else {
        kvctl_hex(damaged->id, BLOCK_ID_BYTES, out);
    }
}

static void show_json(const struct kv_verify_reply *verify)
{
    struct json json;
    json_begin(&json, stdout);
    json_object(&json, NULL);
    json_number(&json, "namespaces", verify->namespace_count);
    json_number(&json, "sessions", verify->session_count);
    json_number(&json, "blocks", verify->block_count);
    json_number(&json, "payload_bytes", verify->payload_bytes);
    json_number(&json, "damaged", verify->damaged_count);
    json_number(&json, "repaired", verify->repaired_count);
    json_array(&json, "damaged_list");
    for (uint32_t i = 0; i < verify->count; i++) {
        char name[KVCTL_HEX_BYTES];
        name_damaged(&verify->rows[i], name);
        json_object(&json, NULL);
        json_text(&json, "kind", verify->rows[i].is_session ? "session" : "block");
        json_text(&json, verify->rows[i].is_session ? "session" : "id", name);
        json_end(&json);
    }
    json_end(&json);
    json_end(&json);
    json_line(&json);
}

static void show_text(const struct kv_verify_reply *verify)
{
    printf("read       %llu blocks (%s) and %llu sessions of %llu models\n",
           (unsigned long long)verify->block_count, console_size(verify->payload_bytes).text,
           (unsigned long long)verify->session_count, (unsigned long long)verify->namespace_count);
    printf("damaged    %llu, dropped %llu\n", (unsigned long long)verify->damaged_count,
           (unsigned long long)verify->repaired_count);
    for (uint32_t i = 0; i < verify->count; i++) {
        char name[KVCTL_HEX_BYTES];
        name_damaged(&verify->rows[i], name);
        printf("           %s %s\n", verify->rows[i].is_session ? "session" : "block", name);
    }
}

static enum status verify_all(const struct kvctl *kvctl, bool repair, struct reason *reason)
{
    const struct kv_verify_request request = {.repair = repair};
    struct kv_reply reply;
    enum status status = kv_client_verify(kvctl->client, &request, &reply, reason);
    if (status != STATUS_OK) {
        return status;
    }
    (kvctl->json ? show_json : show_text)(&reply.verify);
    if (reply.verify.damaged_count > 0) {
        status = reason_set(reason, STATUS_DAMAGED,
                            repair ? "what was dropped is computed again when it is needed"
                                   : "kvctl verify --repair drops them",
                            "verify: %llu damaged records were found",
                            (unsigned long long)reply.verify.damaged_count);
    }
    kv_reply_finish(&reply);
    return status;
}

int kvctl_verify(int argc, char **argv)
{
    struct kvctl kvctl = {0};
    bool repair = false;
    const struct option_spec specs[] = {
        {.name = "repair", .kind = OPTION_FLAG, .help = "drop what is damaged", .target = &repair},
        KVCTL_SPECS(kvctl)};
    const struct options_command command = {
        .name = "kvctl verify",
        .arguments = "",
        .summary =
            "Reads everything on disk and compares checksums and tokens; exit 7 when damaged.",
        .specs = specs,
        .spec_count = sizeof(specs) / sizeof(specs[0]),
    };
    int first = 0;
    int exit_code = 0;
    if (!kvctl_begin(&kvctl, &command, argc, argv, &first, &exit_code)) {
        return exit_code;
    }
    struct reason reason = {0};
    enum status status = verify_all(&kvctl, repair, &reason);
    return kvctl_end(&kvctl, status, &reason);
}
