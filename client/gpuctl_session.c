// SPDX-License-Identifier: Apache-2.0
// gpuctl session list | show S | save S | delete S.
#include "client/gpuctl.h"

#include "client/console.h"
#include "client/json.h"
#include "proto/os/clock.h"

#include <stdio.h>
#include <string.h>

static void put_session(struct json *json, const struct kvtier_session *session)
{
    json_object(json, NULL);
    json_text(json, "name", session->name);
    json_number(json, "tokens", session->tokens);
    json_number(json, "blocks", session->blocks);
    json_number(json, "ram_blocks", session->ram_blocks);
    json_number(json, "disk_blocks", session->disk_blocks);
    json_number(json, "payload_bytes", session->payload_bytes);
    json_number(json, "created_ms", session->created_ms);
    json_number(json, "updated_ms", session->updated_ms);
    json_bool(json, "kept", session->kept);
    json_end(json);
}

static void print_session(const struct gpuctl *gpuctl, const struct kvtier_session *session)
{
    if (gpuctl->json) {
        struct json json;
        json_begin(&json, stdout);
        put_session(&json, session);
        json_line(&json);
        return;
    }
    uint64_t now_ms = os_clock_wall_ms();
    uint64_t age_ms = now_ms > session->updated_ms ? now_ms - session->updated_ms : 0;
    printf("%-24s %8u tokens %6u blocks (%u in RAM, %u on disk) %10s, %s ago%s\n", session->name,
           session->tokens, session->blocks, session->ram_blocks, session->disk_blocks,
           console_size(session->payload_bytes).text, console_age(age_ms).text,
           session->kept ? ", kept" : "");
}

static void print_list(const struct gpuctl *gpuctl, const struct kvtier_session *sessions,
                       size_t count)
{
    struct json json;
    if (!gpuctl->json) {
        for (size_t i = 0; i < count; i++) {
            print_session(gpuctl, &sessions[i]);
        }
        return;
    }
    json_begin(&json, stdout);
    json_object(&json, NULL);
    json_array(&json, "sessions");
    for (size_t i = 0; i < count; i++) {
        put_session(&json, &sessions[i]);
    }
    json_end(&json);
    json_end(&json);
    json_line(&json);
}

static int list(struct gpuctl *gpuctl, const char *name, struct kvtier_error *error)
{
    (void)name;
    struct kvtier_session *sessions = NULL;
    size_t count = 0;
    int status = kvtier_session_list(gpuctl->client, &sessions, &count, error);
    if (status == KVTIER_OK) {
        print_list(gpuctl, sessions, count);
        kvtier_sessions_free(sessions);
    }
    return status;
}

static int show(struct gpuctl *gpuctl, const char *name, struct kvtier_error *error)
{
    struct kvtier_session session;
    int status = kvtier_session_show(gpuctl->client, name, &session, error);
    if (status == KVTIER_OK) {
        print_session(gpuctl, &session);
    }
    return status;
}

static int save(struct gpuctl *gpuctl, const char *name, struct kvtier_error *error)
{
    struct kvtier_save saved;
    int status = kvtier_session_save(gpuctl->client, name, &saved, error);
    if (status != KVTIER_OK) {
        return status;
    }
    if (!gpuctl->json) {
        printf("saved %s: %u of %u whole blocks on disk, %s written now\n", name,
               saved.durable_blocks, saved.blocks, console_size(saved.written_bytes).text);
        return status;
    }
    struct json json;
    json_begin(&json, stdout);
    json_object(&json, NULL);
    json_text(&json, "session", name);
    json_number(&json, "blocks", saved.blocks);
    json_number(&json, "durable_blocks", saved.durable_blocks);
    json_number(&json, "written_bytes", saved.written_bytes);
    json_end(&json);
    json_line(&json);
    return status;
}

static int delete (struct gpuctl *gpuctl, const char *name, struct kvtier_error *error)
{
    return kvtier_session_delete(gpuctl->client, name, error);
}

struct verb {
    const char *name;
    int argument_count;
    int (*run)(struct gpuctl *gpuctl, const char *name, struct kvtier_error *error);
};

static const struct verb verbs[] = {
    {"list", 0, list}, {"show", 1, show}, {"save", 1, save}, {"delete", 1, delete}};

static const struct verb *find_verb(const char *name, int argument_count)
{
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        if (strcmp(verbs[i].name, name) == 0 && verbs[i].argument_count == argument_count) {
            return &verbs[i];
        }
    }
    return NULL;
}

int gpuctl_session(int argc, char **argv)
{
    struct gpuctl gpuctl = {0};
    const struct option_spec specs[] = {GPUCTL_SPECS(gpuctl)};
    const struct options_command command = {
        .name = "gpuctl session",
        .arguments = "list | show NAME | save NAME | delete NAME",
        .summary = "Named sessions: `save` answers when the session is durable.",
        .specs = specs,
        .spec_count = sizeof(specs) / sizeof(specs[0]),
        .positional_min = 1,
        .positional_max = 2,
    };
    int first = 0;
    int exit_code = 0;
    if (!gpuctl_parse(&gpuctl, &command, argc, argv, &first, &exit_code)) {
        return exit_code;
    }
    const struct verb *verb = find_verb(argv[first], argc - first - 1);
    if (verb == NULL) {
        struct reason reason;
        (void)reason_set(&reason, STATUS_INVALID, "see gpuctl session --help",
                         "session: not a verb with its arguments: %.64s", argv[first]);
        (void)gpuctl_fail(&gpuctl, STATUS_INVALID, &reason);
        return GPUCTL_EXIT_USAGE;
    }
    if (!gpuctl_connect(&gpuctl, &exit_code)) {
        return exit_code;
    }
    struct kvtier_error error;
    int status = verb->run(&gpuctl, verb->argument_count > 0 ? argv[first + 1] : NULL, &error);
    return gpuctl_end(&gpuctl, status, &error);
}
