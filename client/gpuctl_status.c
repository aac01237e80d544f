// SPDX-License-Identifier: Apache-2.0
// gpuctl status: what runs and what the tiers hold, of gpud and, through it, of the store.
#include "client/gpuctl.h"

#include "client/config.h"
#include "client/console.h"
#include "client/gpu_client.h"
#include "client/json.h"
#include "client/supervisor.h"

#include <stdio.h>

static void put_fixed(struct json *json, const struct gpu_status *state)
{
    json_text(json, "model_name", state->model_name);
    json_text(json, "architecture", state->architecture);
    json_text(json, "fingerprint", state->fingerprint);
    json_text(json, "device", state->device);
    json_text(json, "kernels", state->kernels);
    json_text(json, "kv_cache_dtype", state->kv_cache_dtype);
    json_bool(json, "unified", state->vram_limit_bytes == 0);
    json_number(json, "process_id", state->process_id);
    json_number(json, "uptime_ms", state->uptime_ms);
    json_number(json, "threads", state->threads);
    json_number(json, "context_tokens", state->context_tokens);
    json_number(json, "trained_tokens", state->trained_tokens);
    json_number(json, "block_tokens", state->block_tokens);
    json_number(json, "vram_limit_bytes", state->vram_limit_bytes);
    json_number(json, "weight_bytes", state->weight_bytes);
    json_number(json, "workspace_bytes", state->workspace_bytes);
    json_number(json, "hot_bytes", state->hot_bytes);
    json_number(json, "payload_bytes", state->payload_bytes);
    json_number(json, "anonymous_bytes", state->anonymous_bytes);
}

static void put_tiers(struct json *json, const struct gpu_status *state)
{
    json_number(json, "hot_slot_count", state->hot_slot_count);
    json_number(json, "hot_used_count", state->hot_used_count);
    json_number(json, "hot_hit_count", state->hot_hit_count);
    json_number(json, "cold_hit_count", state->cold_hit_count);
    json_number(json, "evicted_count", state->evicted_count);
    json_number(json, "recalled_count", state->recalled_count);
    json_number(json, "closed_count", state->closed_count);
    json_number(json, "write_through_ms", state->write_through_ms);
    json_bool(json, "store_attached", state->store_attached);
    if (!state->has_store) {
        return;
    }
    const struct kv_status *store = &state->store;
    json_object(json, "store");
    json_number(json, "ram_block_count", store->slot_leased_count + store->slot_cached_count);
    json_number(json, "ram_slot_count", store->slot_count);
    json_number(json, "disk_block_count", store->disk_block_count);
    json_number(json, "disk_bytes", store->disk_bytes);
    json_number(json, "disk_limit_bytes", store->disk_limit_bytes);
    json_number(json, "session_count", store->session_count);
    json_text(json, "persistence_state", store->persistence_state);
    json_end(json);
}

static void put_work(struct json *json, const struct gpu_status *state)
{
    json_number(json, "sequences_max", state->sequences_max);
    json_number(json, "running_count", state->running_count);
    json_number(json, "queued_count", state->queued_count);
    json_number(json, "request_count", state->request_count);
    json_number(json, "failed_count", state->failed_count);
    json_number(json, "cancelled_count", state->cancelled_count);
    json_number(json, "prefill_tokens", state->prefill_tokens);
    json_number(json, "decode_tokens", state->decode_tokens);
    json_real(json, "prefill_tokens_per_s", state->prefill_tokens_per_s, 5);
    json_real(json, "decode_tokens_per_s", state->decode_tokens_per_s, 5);
}

static void show_json(const struct gpu_status *state, const struct supervisor_restarts *restarts)
{
    struct json json;
    json_begin(&json, stdout);
    json_object(&json, NULL);
    put_fixed(&json, state);
    put_tiers(&json, state);
    put_work(&json, state);
    json_object(&json, "restarts");
    json_number(&json, "kvstored", restarts->counts[SUPERVISOR_KVSTORED]);
    json_number(&json, "gpud", restarts->counts[SUPERVISOR_GPUD]);
    json_end(&json);
    json_end(&json);
    json_line(&json);
}

static void show_tiers(const struct gpu_status *state)
{
    printf("kv       %s, blocks of %u tokens, %s each\n", state->kv_cache_dtype,
           state->block_tokens, console_size(state->payload_bytes).text);
    if (state->vram_limit_bytes == 0) {
        printf("hot      unified: blocks are attended in RAM\n");
    } else {
        printf("hot      %u of %u blocks, %llu evicted, %llu recalled\n", state->hot_used_count,
               state->hot_slot_count, (unsigned long long)state->evicted_count,
               (unsigned long long)state->recalled_count);
    }
    if (!state->has_store) {
        printf("ram      the store does not answer\n");
        return;
    }
    printf("ram      %u of %u blocks%s\n",
           state->store.slot_leased_count + state->store.slot_cached_count, state->store.slot_count,
           state->store_attached ? "" : " (private: kvstored is not running)");
    if (state->store_attached) {
        printf("disk     %llu blocks, %s of %s; persistence %s\n",
               (unsigned long long)state->store.disk_block_count,
               console_size(state->store.disk_bytes).text,
               console_size(state->store.disk_limit_bytes).text, state->store.persistence_state);
    }
}

static void show_text(const struct gpu_status *state, const struct supervisor_restarts *restarts)
{
    printf("model    %s (%s), context %u of %u tokens\n", state->model_name, state->architecture,
           state->context_tokens, state->trained_tokens);
    printf("device   %s, kernels %s, %u threads, weights %s, workspace %s", state->device,
           state->kernels, state->threads, console_size(state->weight_bytes).text,
           console_size(state->workspace_bytes).text);
    if (state->vram_limit_bytes > 0) {
        printf(", budget %s", console_size(state->vram_limit_bytes).text);
    }
    putchar('\n');
    show_tiers(state);
    printf("requests %u of %u running, %u queued; %llu so far, %llu failed, %llu cancelled\n",
           state->running_count, state->sequences_max, state->queued_count,
           (unsigned long long)state->request_count, (unsigned long long)state->failed_count,
           (unsigned long long)state->cancelled_count);
    printf("speed    prefill %.0f tok/s, decode %.1f tok/s (of late)\n",
           state->prefill_tokens_per_s, state->decode_tokens_per_s);
    printf("gpud     process %llu, up %s, %s anonymous memory\n",
           (unsigned long long)state->process_id, console_age(state->uptime_ms).text,
           console_size(state->anonymous_bytes).text);
    printf("restarts kvstored %llu, gpud %llu\n",
           (unsigned long long)restarts->counts[SUPERVISOR_KVSTORED],
           (unsigned long long)restarts->counts[SUPERVISOR_GPUD]);
}

static enum status ask(const struct gpuctl *gpuctl, struct reason *reason)
{
    char url[LIMIT_URL_BYTES];
    struct runtime_paths paths;
    struct gpu_client *client = NULL;
    const struct gpu_event *event = NULL;
    struct gpu_request request;
    enum status status = config_paths(&paths, reason);
    if (status == STATUS_OK) {
        status = config_url("gpud", url, reason);
    }
    if (status == STATUS_OK) {
        const struct gpu_client_options options = {.url = gpuctl->url != NULL ? gpuctl->url : url,
                                                   .program = "gpuctl"};
        status = gpu_client_open(&options, &client, reason);
    }
    if (status != STATUS_OK) {
        return status;
    }
    gpu_request_init(&request, GPU_OP_STATUS);
    status = gpu_client_send(client, &request, reason);
    if (status == STATUS_OK) {
        status = gpu_client_receive(client, &event, reason);
    }
    if (status == STATUS_OK && event->kind == GPU_EVENT_STATUS) {
        const struct supervisor_restarts restarts = supervisor_restarts_read(paths.runtime_dir);
        (gpuctl->json ? show_json : show_text)(event->status, &restarts);
    } else if (status == STATUS_OK) {
        status = reason_set(reason, STATUS_DAMAGED, "use programs of one version",
                            "gpud: an answer to another question");
    }
    gpu_client_close(client);
    return status;
}

int gpuctl_status(int argc, char **argv)
{
    struct gpuctl gpuctl = {0};
    const struct option_spec specs[] = {GPUCTL_SPECS(gpuctl)};
    const struct options_command command = {
        .name = "gpuctl status",
        .arguments = "",
        .summary = "Shows model, device, tiers, queue and speed.",
        .specs = specs,
        .spec_count = sizeof(specs) / sizeof(specs[0]),
    };
    int first = 0;
    int exit_code = 0;
    struct reason reason = {0};
    if (!gpuctl_parse(&gpuctl, &command, argc, argv, &first, &exit_code)) {
        return exit_code;
    }
    enum status status = ask(&gpuctl, &reason);
    return status == STATUS_OK ? 0 : gpuctl_fail(&gpuctl, status, &reason);
}
