// SPDX-License-Identifier: Apache-2.0
// gpuctl bench: prefill and decode speed at depths, through ordinary requests. At depth d, d random
// ids are computed first; then a request with the same beginning and -p more measures prefill by
// what gpud says of its own steps, and one that generates -n tokens measures decode. Ids differ
// from repetition to repetition, so that nothing but the depth comes from a cache. Medians.
#include "client/gpuctl.h"

#include "client/config.h"
#include "client/console.h"
#include "client/gpu_client.h"
#include "client/json.h"
#include "proto/limits.h"
#include "proto/os/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTHS_MAX = 16, REPETITIONS_MAX = 100 };

struct bench {
    struct gpuctl gpuctl;
    int64_t prompt, generate, repetitions;
    const char *depths_text;
    uint32_t depths[DEPTHS_MAX];
    size_t depth_count;
    uint32_t vocab_tokens;
    uint64_t random;
    uint32_t *ids; // [depth + prompt + 1]
    struct kvtier_error error;
    char kernels[GPU_NAME_BYTES];
    char kv_cache_dtype[GPU_NAME_BYTES];
    uint32_t threads;
};

static enum status parse_depths(struct bench *bench, struct reason *reason)
{
    const char *at = bench->depths_text;
    while (bench->depth_count < DEPTHS_MAX) {
        char *end = NULL;
        unsigned long depth = strtoul(at, &end, 10);
        if (end == at || depth > LIMIT_CONTEXT_TOKENS || (*end != 0 && *end != ',')) {
            break;
        }
        bench->depths[bench->depth_count++] = (uint32_t)depth;
        if (*end == 0) {
            return STATUS_OK;
        }
        at = end + 1;
    }
    return reason_set(reason, STATUS_INVALID, "give numbers with commas, as 0,4096",
                      "bench: -d %.64s is not a list of depths", bench->depths_text);
}

// xorshift64*, Vigna 2014: the ids need only differ.
static uint32_t random_id(struct bench *bench)
{
    bench->random ^= bench->random >> 12;
    bench->random ^= bench->random << 25;
    bench->random ^= bench->random >> 27;
    return (uint32_t)((bench->random * UINT64_C(2685821657736338717) >> 33) % bench->vocab_tokens);
}

static int request(struct bench *bench, size_t count, int64_t max_tokens,
                   struct kvtier_result *out_result)
{
    struct kvtier_generate generate;
    kvtier_generate_init(&generate);
    generate.prompt_ids = bench->ids;
    generate.prompt_id_count = count;
    generate.max_tokens = max_tokens;
    generate.sampling.temperature = 0;
    generate.ignore_eos = true;
    return kvtier_generate(bench->gpuctl.client, &generate, out_result, &bench->error);
}

// One repetition: tokens a second, 0 where a rate was not asked for.
static int measure(struct bench *bench, uint32_t depth, double *out_prefill, double *out_decode)
{
    struct kvtier_result result;
    size_t prompt = (size_t)bench->prompt;
    for (size_t i = 0; i < depth + prompt + 1; i++) {
        bench->ids[i] = random_id(bench);
    }
    *out_prefill = 0;
    *out_decode = 0;
    int status = KVTIER_OK;
    if (depth > 0) {
        status = request(bench, depth, 1, &result);
        if (status == KVTIER_OK) {
            kvtier_result_finish(&result);
        }
    }
    if (status == KVTIER_OK && prompt > 0) {
        status = request(bench, depth + prompt, 1, &result);
        if (status == KVTIER_OK) {
            *out_prefill = result.start.computed_tokens * 1000.0 / result.prefill_ms;
            kvtier_result_finish(&result);
        }
    }
    if (status == KVTIER_OK && bench->generate > 0) {
        status = request(bench, depth > 0 ? depth : 1, bench->generate + 1, &result);
        if (status == KVTIER_OK) {
            *out_decode = result.decode_tokens_per_s;
            kvtier_result_finish(&result);
        }
    }
    return status;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), compare);
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static void put_rate(struct json *json, const char *key, double rate)
{
    if (rate > 0) {
        json_real(json, key, rate, 5);
    } else {
        json_null(json, key);
    }
}

static void print_result(const struct bench *bench, uint32_t depth, double prefill, double decode)
{
    if (!bench->gpuctl.json) {
        printf("%8lld %8lld %8u %12.1f %12.1f\n", (long long)bench->prompt,
               (long long)bench->generate, depth, prefill, decode);
        fflush(stdout);
        return;
    }
    struct json json;
    json_begin(&json, stdout);
    json_object(&json, NULL);
    json_number(&json, "prompt_tokens", (uint64_t)bench->prompt);
    json_number(&json, "generated_tokens", (uint64_t)bench->generate);
    json_number(&json, "depth_tokens", depth);
    put_rate(&json, "prefill_tokens_per_s", prefill);
    put_rate(&json, "decode_tokens_per_s", decode);
    json_number(&json, "repetitions", (uint64_t)bench->repetitions);
    json_number(&json, "threads", bench->threads);
    json_text(&json, "kv_cache_dtype", bench->kv_cache_dtype);
    json_text(&json, "kernels", bench->kernels);
    json_end(&json);
    json_line(&json);
}

static int measure_depth(struct bench *bench, uint32_t depth)
{
    double prefill[REPETITIONS_MAX];
    double decode[REPETITIONS_MAX];
    size_t count = (size_t)bench->repetitions;
    struct console_bar bar = console_bar_start("measuring");
    for (size_t i = 0; i < count; i++) {
        console_bar_set(&bar, i, count, "repetitions");
        int status = measure(bench, depth, &prefill[i], &decode[i]);
        if (status != KVTIER_OK) {
            return status;
        }
    }
    console_bar_finish(&bar);
    print_result(bench, depth, median(prefill, count), median(decode, count));
    return KVTIER_OK;
}

// What the rates belong to.
static enum status learn_settings(struct bench *bench, struct reason *reason)
{
    char url[LIMIT_URL_BYTES];
    struct gpu_client *client = NULL;
    const struct gpu_event *event = NULL;
    struct gpu_request ask;
    enum status status = config_url("gpud", url, reason);
    if (status == STATUS_OK) {
        const struct gpu_client_options options = {
            .url = bench->gpuctl.url != NULL ? bench->gpuctl.url : url, .program = "gpuctl"};
        status = gpu_client_open(&options, &client, reason);
    }
    if (status != STATUS_OK) {
        return status;
    }
    gpu_request_init(&ask, GPU_OP_STATUS);
    status = gpu_client_send(client, &ask, reason);
    if (status == STATUS_OK) {
        status = gpu_client_receive(client, &event, reason);
    }
    if (status == STATUS_OK && event->kind == GPU_EVENT_STATUS) {
        memcpy(bench->kernels, event->status->kernels, sizeof(bench->kernels));
        memcpy(bench->kv_cache_dtype, event->status->kv_cache_dtype, sizeof(bench->kv_cache_dtype));
        bench->threads = event->status->threads;
    }
    gpu_client_close(client);
    return status;
}

static int run(struct bench *bench)
{
    struct reason reason = {0};
    struct kvtier_info info;
    int exit_code = 0;
    enum status status = parse_depths(bench, &reason);
    if (status != STATUS_OK) {
        (void)gpuctl_fail(&bench->gpuctl, status, &reason);
        return GPUCTL_EXIT_USAGE;
    }
    bench->ids = calloc(LIMIT_CONTEXT_TOKENS * 2 + 1, sizeof(*bench->ids));
    if (bench->ids == NULL) {
        (void)reason_set(&reason, STATUS_NO_MEMORY, "", "bench: out of memory");
        return gpuctl_fail(&bench->gpuctl, STATUS_NO_MEMORY, &reason);
    }
    status = learn_settings(bench, &reason);
    if (status != STATUS_OK) {
        return gpuctl_fail(&bench->gpuctl, status, &reason);
    }
    if (!gpuctl_connect(&bench->gpuctl, &exit_code)) {
        return exit_code;
    }
    kvtier_info(bench->gpuctl.client, &info);
    bench->vocab_tokens = info.vocab_tokens;
    bench->random = os_clock_ns() | 1;
    if (!bench->gpuctl.json) {
        printf("%8s %8s %8s %12s %12s   (tokens a second, median of %lld)\n", "PROMPT", "ANSWER",
               "DEPTH", "PREFILL", "DECODE", (long long)bench->repetitions);
    }
    int result = KVTIER_OK;
    for (size_t i = 0; result == KVTIER_OK && i < bench->depth_count; i++) {
        result = measure_depth(bench, bench->depths[i]);
    }
    return gpuctl_end(&bench->gpuctl, result, &bench->error);
}

int gpuctl_bench(int argc, char **argv)
{
    struct bench b = {.prompt = 512, .generate = 64, .repetitions = 5, .depths_text = "0,4096"};
    const struct option_spec specs[] = {{.name = "prompt",
                                         .letter = 'p',
                                         .kind = OPTION_INTEGER,
                                         .value = "N",
                                         .help = "tokens to prefill (default 512; 0 = none)",
                                         .target = &b.prompt,
                                         .minimum = 0,
                                         .maximum = LIMIT_CONTEXT_TOKENS},
                                        {.name = "generate",
                                         .letter = 'n',
                                         .kind = OPTION_INTEGER,
                                         .value = "N",
                                         .help = "tokens to decode (default 64; 0 = none)",
                                         .target = &b.generate,
                                         .minimum = 0,
                                         .maximum = LIMIT_CONTEXT_TOKENS},
                                        {.name = "depth",
                                         .letter = 'd',
                                         .kind = OPTION_TEXT,
                                         .value = "N,...",
                                         .help = "tokens there are before (default 0,4096)",
                                         .target = &b.depths_text},
                                        {.name = "repetitions",
                                         .letter = 'r',
                                         .kind = OPTION_INTEGER,
                                         .value = "N",
                                         .help = "of which the median is printed (default 5)",
                                         .target = &b.repetitions,
                                         .minimum = 1,
                                         .maximum = REPETITIONS_MAX},
                                        GPUCTL_SPECS(b.gpuctl)};
    const struct options_command command = {
        .name = "gpuctl bench",
        .arguments = "",
        .summary = "Measures prefill and decode speed of the running gpud at depths.",
        .specs = specs,
        .spec_count = sizeof(specs) / sizeof(specs[0]),
    };
    int first = 0;
    int exit_code = 0;
    if (!gpuctl_parse(&b.gpuctl, &command, argc, argv, &first, &exit_code)) {
        return exit_code;
    }
    exit_code = run(&b);
    free(b.ids);
    return exit_code;
}
