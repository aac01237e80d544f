// SPDX-License-Identifier: Apache-2.0
// kvctl status: every level and counter of the store. The JSON has one key a field of struct
// kv_status; people see them grouped by tier.
#include "client/kvctl.h"

#include "client/console.h"
#include "client/json.h"

#include <stdio.h>

static void show_namespace_json(struct json *json, const struct kv_namespace *name_space)
{
    char hex[KVCTL_HEX_BYTES];
    kvctl_hex(name_space->fingerprint, BLOCK_ID_BYTES, hex);
    json_object(json, "namespace");
    json_text(json, "fingerprint", hex);
    json_number(json, "block_tokens", name_space->block_tokens);
    json_object(json, "fields");
    for (uint32_t i = 0; i < name_space->field_count; i++) {
        json_text(json, name_space->fields[i].name, name_space->fields[i].value);
    }
    json_end(json);
    json_end(json);
}

static void show_json_levels(struct json *json, const struct kv_status *state)
{
    json_number(json, "uptime_ms", state->uptime_ms);
    json_number(json, "client_count", state->client_count);
    json_number(json, "lease_count", state->lease_count);
    json_number(json, "slot_count", state->slot_count);
    json_number(json, "slot_reserved_count", state->slot_reserved_count);
    json_number(json, "slot_free_count", state->slot_free_count);
    json_number(json, "slot_leased_count", state->slot_leased_count);
    json_number(json, "slot_cached_count", state->slot_cached_count);
    json_number(json, "payload_bytes", state->payload_bytes);
    json_number(json, "arena_bytes", state->arena_bytes);
    json_number(json, "disk_block_count", state->disk_block_count);
    json_number(json, "disk_bytes", state->disk_bytes);
    json_number(json, "disk_limit_bytes", state->disk_limit_bytes);
    json_number(json, "disk_other_bytes", state->disk_other_bytes);
    json_number(json, "namespace_count", state->namespace_count);
    json_number(json, "session_count", state->session_count);
    json_number(json, "session_damaged_count", state->session_damaged_count);
    json_number(json, "write_queue_count", state->write_queue_count);
    json_number(json, "anonymous_bytes", state->anonymous_bytes);
    json_bool(json, "persistence_ok", state->persistence_ok);
    json_text(json, "persistence_state", state->persistence_state);
}

static void show_json_counters(struct json *json, const struct kv_status *state)
{
    json_number(json, "hit_ram_count", state->hit_ram_count);
    json_number(json, "hit_disk_count", state->hit_disk_count);
    json_number(json, "miss_count", state->miss_count);
    json_number(json, "mismatch_count", state->mismatch_count);
    json_number(json, "evicted_count", state->evicted_count);
    json_number(json, "published_count", state->published_count);
    json_number(json, "loaded_count", state->loaded_count);
    json_number(json, "load_failed_count", state->load_failed_count);
    json_number(json, "written_block_count", state->written_block_count);
    json_number(json, "written_bytes", state->written_bytes);
}

static void show_json(const struct kv_status *state)
{
    struct json json;
    json_begin(&json, stdout);
    json_object(&json, NULL);
    show_json_levels(&json, state);
    show_json_counters(&json, state);
    if (state->has_namespace) {
        show_namespace_json(&json, &state->name_space);
    }
    json_end(&json);
    json_line(&json);
}

static void show_fields(const struct kv_namespace *name_space)
{
    char hex[KVCTL_HEX_BYTES];
    kvctl_hex(name_space->fingerprint, BLOCK_ID_BYTES, hex);
    printf("namespace    %.16s (%u tokens a block)\n", hex, name_space->block_tokens);
    for (uint32_t i = 0; i < name_space->field_count; i++) {
        printf("             %s = %s\n", name_space->fields[i].name, name_space->fields[i].value);
    }
}

static void show_text(const struct kv_status *state)
{
    printf("kvstored     up %s, %u clients, %u leases, %s anonymous memory\n",
           console_age(state->uptime_ms).text, state->client_count, state->lease_count,
           console_size(state->anonymous_bytes).text);
    printf("ram          %u slots of %s: %u leased, %u cached, %u free; %u backed by memory\n",
           state->slot_count, console_size(state->payload_bytes).text, state->slot_leased_count,
           state->slot_cached_count, state->slot_free_count, state->slot_reserved_count);
    printf("disk         %llu blocks, %s of %s (%s of other models), %llu sessions\n",
           (unsigned long long)state->disk_block_count, console_size(state->disk_bytes).text,
           console_size(state->disk_limit_bytes).text, console_size(state->disk_other_bytes).text,
           (unsigned long long)state->session_count);
    printf("persistence  %s; %llu blocks queued, %llu written (%s)\n", state->persistence_state,
           (unsigned long long)state->write_queue_count,
           (unsigned long long)state->written_block_count, console_size(state->written_bytes).text);
    printf("lookups      %llu ram hits, %llu disk hits, %llu misses, %llu mismatches\n",
           (unsigned long long)state->hit_ram_count, (unsigned long long)state->hit_disk_count,
           (unsigned long long)state->miss_count, (unsigned long long)state->mismatch_count);
    printf("blocks       %llu published, %llu evicted, %llu loaded, %llu loads failed\n",
           (unsigned long long)state->published_count, (unsigned long long)state->evicted_count,
           (unsigned long long)state->loaded_count, (unsigned long long)state->load_failed_count);
    if (state->session_damaged_count > 0) {
        printf("damaged      %llu checkpoints; see kvctl verify\n",
               (unsigned long long)state->session_damaged_count);
    }
    if (state->has_namespace) {
        show_fields(&state->name_space);
    }
}

int kvctl_status(int argc, char **argv)
{
    struct kvctl kvctl = {0};
    const struct option_spec specs[] = {KVCTL_SPECS(kvctl)};
    const struct options_command command = {
        .name = "kvctl status",
        .arguments = "",
        .summary = "Shows tiers, counters, disk and memory of kvstored.",
        .specs = specs,
        .spec_count = sizeof(specs) / sizeof(specs[0]),
    };
    int first = 0;
    int exit_code = 0;
    if (!kvctl_begin(&kvctl, &command, argc, argv, &first, &exit_code)) {
        return exit_code;
    }
    struct reason reason = {0};
    struct kv_status state;
    enum status status = kv_client_status(kvctl.client, &state, &reason);
    if (status == STATUS_OK) {
        (kvctl.json ? show_json : show_text)(&state);
    }
    return kvctl_end(&kvctl, status, &reason);
}
