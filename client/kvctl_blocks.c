// SPDX-License-Identifier: Apache-2.0
// kvctl blocks, kvctl block ID: the blocks of the model in use, as a list or one in full.
#include "client/kvctl.h"

#include "client/console.h"
#include "client/json.h"

#include <stdio.h>
#include <string.h>

enum { TOKENS_SHOWN = 8 };

static void put_info(struct json *json, const struct kv_block_info *info)
{
    char hex[KVCTL_HEX_BYTES];
    kvctl_hex(info->id, BLOCK_ID_BYTES, hex);
    json_text(json, "id", hex);
    json_text(json, "tiers", kvctl_tiers(info->tiers));
    json_number(json, "tokens", info->token_count);
    json_number(json, "first_position", info->first_position);
    json_number(json, "leases", info->lease_count);
    json_number(json, "hits", info->hit_count);
    json_number(json, "age_ms", info->age_ms);
    json_bool(json, "saving", info->saving);
}

static void show_blocks_json(const struct kv_block_list *list)
{
    struct json json;
    json_begin(&json, stdout);
    json_object(&json, NULL);
    json_number(&json, "total", list->total_count);
    json_array(&json, "blocks");
    for (uint32_t i = 0; i < list->count; i++) {
        json_object(&json, NULL);
        put_info(&json, &list->rows[i]);
        json_end(&json);
    }
    json_end(&json);
    json_end(&json);
    json_line(&json);
}

static void show_info(const struct kv_block_info *info)
{
    char hex[KVCTL_HEX_BYTES];
    kvctl_hex(info->id, BLOCK_ID_BYTES, hex);
    printf("%s %7u %10u %-9s %6u %6llu %8s%s\n", hex, info->token_count, info->first_position,
           kvctl_tiers(info->tiers), info->lease_count, (unsigned long long)info->hit_count,
           console_age(info->age_ms).text, info->saving ? "  saving" : "");
}

static void show_blocks(const struct kv_block_list *list)
{
    if (list->count > 0) {
        printf("%-64s %7s %10s %-9s %6s %6s %8s\n", "ID", "TOKENS", "POSITION", "TIERS", "LEASES",
               "HITS", "AGE");
    }
    for (uint32_t i = 0; i < list->count; i++) {
        show_info(&list->rows[i]);
    }
    if (list->total_count > list->count) {
        fprintf(stderr, "kvctl: %u of %llu blocks shown; --limit shows more\n", list->count,
                (unsigned long long)list->total_count);
    }
}

static enum status tier_parse(const char *name, uint32_t *out_tiers, struct reason *reason)
{
    *out_tiers = 0;
    if (name == NULL) {
        return STATUS_OK;
    }
    if (strcmp(name, "ram") == 0) {
        *out_tiers = KV_TIER_RAM;
    } else if (strcmp(name, "disk") == 0) {
        *out_tiers = KV_TIER_DISK;
    } else {
        return reason_set(reason, STATUS_INVALID, "give ram or disk", "--tier: no tier is named %s",
                          name);
    }
    return STATUS_OK;
}

static enum status list_blocks(const struct kvctl *kvctl, const struct kv_blocks_request *request,
                               struct reason *reason)
{
    struct kv_reply reply;
    enum status status = kv_client_blocks(kvctl->client, request, &reply, reason);
    if (status == STATUS_OK) {
        (kvctl->json ? show_blocks_json : show_blocks)(&reply.blocks);
        kv_reply_finish(&reply);
    }
    return status;
}

int kvctl_blocks(int argc, char **argv)
{
    struct kvctl kvctl = {0};
    struct kv_blocks_request request = {0};
    const char *tier = NULL;
    int64_t limit = 1000;
    const struct option_spec specs[] = {{.name = "session",
                                         .kind = OPTION_TEXT,
                                         .value = "NAME",
                                         .help = "only the blocks of this session, in order",
                                         .target = &request.session},
                                        {.name = "tier",
                                         .kind = OPTION_TEXT,
                                         .value = "ram|disk",
                                         .help = "only blocks held there",
                                         .target = &tier},
                                        {.name = "limit",
                                         .kind = OPTION_INTEGER,
                                         .value = "N",
                                         .help = "at most so many rows (default 1000)",
                                         .target = &limit,
                                         .minimum = 1,
                                         .maximum = KV_BLOCK_ROWS_MAX},
                                        KVCTL_SPECS(kvctl)};
    const struct options_command command = {
        .name = "kvctl blocks",
        .arguments = "",
        .summary = "Lists the blocks of the model in use, one row each.",
        .specs = specs,
        .spec_count = sizeof(specs) / sizeof(specs[0]),
    };
    int first = 0;
    int exit_code = 0;
    struct reason reason = {0};
    if (!kvctl_parse(&kvctl, &command, argc, argv, &first, &exit_code)) {
        return exit_code;
    }
    if (tier_parse(tier, &request.tiers, &reason) != STATUS_OK) {
        return kvctl_usage(&kvctl, &reason);
    }
    if (!kvctl_connect(&kvctl, &exit_code)) {
        return exit_code;
    }
    request.limit = (uint32_t)limit;
    enum status status = list_blocks(&kvctl, &request, &reason);
    return kvctl_end(&kvctl, status, &reason);
}

// ---- one block

static void put_stats(struct json *json, const char *key, const struct kv_value_stats *stats)
{
    json_object(json, key);
    json_real(json, "minimum", stats->minimum, 6);
    json_real(json, "maximum", stats->maximum, 6);
    json_real(json, "mean", stats->mean, 6);
    json_real(json, "rms", stats->rms, 6);
    json_number(json, "not_finite", stats->not_finite_count);
    json_end(json);
}

static void show_block_json(const struct kv_block_reply *block, bool tokens)
{
    char parent[KVCTL_HEX_BYTES];
    kvctl_hex(block->header.parent_id.bytes, BLOCK_ID_BYTES, parent);
    struct json json;
    json_begin(&json, stdout);
    json_object(&json, NULL);
    put_info(&json, &block->info);
    json_text(&json, "parent", parent);
    json_number(&json, "payload_bytes", block->header.payload_bytes);
    json_hex64(&json, "checksum", block->header.checksum);
    json_bool(&json, "intact", block->intact);
    uint32_t count = block->header.token_count;
    if (!tokens && count > TOKENS_SHOWN) {
        count = TOKENS_SHOWN;
    }
    json_array(&json, tokens ? "token_ids" : "first_token_ids");
    for (uint32_t i = 0; i < count; i++) {
        json_number(&json, NULL, block->header.tokens[i]);
    }
    json_end(&json);
    put_stats(&json, "keys", &block->keys);
    put_stats(&json, "values", &block->values);
    json_end(&json);
    json_line(&json);
}

static void show_stats(const char *name, const struct kv_value_stats *stats)
{
    printf("%-10s min %.4g, max %.4g, mean %.4g, rms %.4g, %llu not finite\n", name, stats->minimum,
           stats->maximum, stats->mean, stats->rms, (unsigned long long)stats->not_finite_count);
}

static void show_block(const struct kv_block_reply *block, bool tokens)
{
    char hex[KVCTL_HEX_BYTES];
    const struct block_header *header = &block->header;
    kvctl_hex(header->id.bytes, BLOCK_ID_BYTES, hex);
    printf("id         %s\n", hex);
    kvctl_hex(header->parent_id.bytes, BLOCK_ID_BYTES, hex);
    printf("parent     %s\n", hex);
    printf("where      %s, %u leases, %llu hits\n", kvctl_tiers(block->info.tiers),
           block->info.lease_count, (unsigned long long)block->info.hit_count);
    printf("positions  %u to %u\n", header->first_position,
           header->first_position + header->token_count - 1);
    printf("payload    %s, checksum %016llx, %s\n", console_size(header->payload_bytes).text,
           (unsigned long long)header->checksum, block->intact ? "intact" : "DAMAGED");
    printf("tokens    ");
    uint32_t shown =
        tokens || header->token_count < TOKENS_SHOWN ? header->token_count : TOKENS_SHOWN;
    for (uint32_t i = 0; i < shown; i++) {
        printf(" %u", header->tokens[i]);
    }
    printf("%s\n", shown < header->token_count ? " ..." : "");
    show_stats("keys", &block->keys);
    show_stats("values", &block->values);
}

static enum status fetch_block(const struct kvctl *kvctl, const struct kv_block_request *request,
                               bool tokens, struct reason *reason)
{
    struct kv_reply reply;
    enum status status = kv_client_block(kvctl->client, request, &reply, reason);
    if (status != STATUS_OK) {
        return status;
    }
    (kvctl->json ? show_block_json : show_block)(&reply.block, tokens);
    if (!reply.block.intact) {
        status = reason_set(reason, STATUS_DAMAGED, "see kvctl verify --repair",
                            "block: its checksum, id or ranges do not agree");
    }
    kv_reply_finish(&reply);
    return status;
}

int kvctl_block(int argc, char **argv)
{
    struct kvctl kvctl = {0};
    bool tokens = false;
    const struct option_spec specs[] = {{.name = "tokens",
                                         .kind = OPTION_FLAG,
                                         .help = "all token ids, not only the first",
                                         .target = &tokens},
                                        KVCTL_SPECS(kvctl)};
    const struct options_command command = {
        .name = "kvctl block",
        .arguments = "ID",
        .summary = "Shows one block: header, parent, checksum, tokens, statistics of K and V.",
        .specs = specs,
        .spec_count = sizeof(specs) / sizeof(specs[0]),
        .positional_min = 1,
        .positional_max = 1,
    };
    int first = 0;
    int exit_code = 0;
    struct reason reason = {0};
    struct kv_block_request request;
    if (!kvctl_parse(&kvctl, &command, argc, argv, &first, &exit_code)) {
        return exit_code;
    }
    if (!kvctl_hex_parse(argv[first], request.id)) {
        (void)reason_set(&reason, STATUS_INVALID, "see kvctl blocks",
                         "block %.64s: an id is 64 hexadecimal digits", argv[first]);
        return kvctl_usage(&kvctl, &reason);
    }
    if (!kvctl_connect(&kvctl, &exit_code)) {
        return exit_code;
    }
    enum status status = fetch_block(&kvctl, &request, tokens, &reason);
    return kvctl_end(&kvctl, status, &reason);
}
