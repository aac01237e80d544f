// SPDX-License-Identifier: Apache-2.0
// Speed of the layers alone, without daemons, sampling or tokenizing: prefill and decode of one
// sequence at depth 0 and 4,096 on a real model. Compare with `llama-bench -fa 1 -p 512 -n 64 -d
// 0,4096` of the same minute; a daemon's own costs are the difference between this and `gpuctl
// bench`. usage: forward_bench MODEL.gguf [--kernels SET] [--threads N] [--rounds N]

#include "tests/gpud/rig.h"

enum {
    PREFILL = 512,
    DECODE = 64,
    DEPTH = 4096,
    CONTEXT = DEPTH + PREFILL + DECODE,
    ROUNDS_MAX = 32
};

static double now_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int compare_doubles(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

// One sequence that grows; the benchmark repeats positions by closing and opening it again.
struct run {
    struct rig *rig;
    struct kv_sequence *sequence;
    uint32_t tokens[CONTEXT];
};

// Computes positions first..first+count, `chunk` in a step; returns tokens a second.
static double rate(struct run *run, uint32_t first, uint32_t count, uint32_t chunk)
{
    double start = now_seconds();
    for (uint32_t at = first; at < first + count; at += chunk) {
        uint32_t ready = 0;
        CHECK_OK(kv_sequence_prepare(run->sequence, at, chunk, &ready));
        assert_int_equal(ready, chunk);
        const float *logits = NULL;
        const struct forward_span span = {
            .sequence = run->sequence,
            .tokens = run->tokens + at,
            .token_count = chunk,
            .first_position = at,
            .logits = FORWARD_LOGITS_LAST,
        };
        CHECK_OK(forward_step(run->rig->forward, &span, 1, NULL, NULL, &logits));
        kv_sequence_commit(run->sequence, run->tokens + at, at, chunk);
    }
    return count / (now_seconds() - start);
}

// A fresh sequence each time: prefill at depth 0, decode after it, and the same at DEPTH.
static void measure(struct run *run, uint64_t seed, double out[4])
{
    for (uint32_t i = 0; i < CONTEXT; i++) {
        run->tokens[i] = (uint32_t)(check_random(&seed) % run->rig->vocab_count);
    }
    struct cold_lease lease = rig_lease(run->rig, run->tokens, CONTEXT, 0);
    CHECK_OK(kv_sequence_open(run->rig->cache, &lease, &run->rig->root, run->tokens, CONTEXT,
                              &run->sequence));
    CHECK_OK(kv_sequence_ready(run->sequence));
    out[1] = rate(run, 0, DECODE, 1);
    (void)rate(run, DECODE, PREFILL - DECODE, PREFILL - DECODE);
    for (uint32_t at = PREFILL; at < DEPTH; at += PREFILL) {
        (void)rate(run, at, PREFILL, PREFILL);
    }
    out[2] = rate(run, DEPTH, PREFILL, PREFILL);
    out[3] = rate(run, DEPTH + PREFILL, DECODE, 1);
    kv_sequence_close(run->sequence);
    cold_store_release(run->rig->cold_store, &lease);
    lease = rig_lease(run->rig, run->tokens + 1, PREFILL, 0);
    CHECK_OK(kv_sequence_open(run->rig->cache, &lease, &run->rig->root, run->tokens + 1, PREFILL,
                              &run->sequence));
    CHECK_OK(kv_sequence_ready(run->sequence));
    out[0] = rate(run, 0, PREFILL, PREFILL);
    kv_sequence_close(run->sequence);
    cold_store_release(run->rig->cold_store, &lease);
}

static void print_rates(double rates[4][ROUNDS_MAX], int rounds)
{
    static const char *const names[4] = {"prefill 512 at depth 0", "decode at depth 0",
                                         "prefill 512 at depth 4096", "decode at depth 4608"};
    for (int i = 0; i < 4; i++) {
        qsort(rates[i], (size_t)rounds, sizeof(double), compare_doubles);
        printf("%-28s %8.1f tok/s (median of %d; %.1f..%.1f)\n", names[i], rates[i][rounds / 2],
               rounds, rates[i][0], rates[i][rounds - 1]);
    }
}

int main(int count, char **arguments)
{
    struct rig_options options = {
        .thread_count = 2, .arena_blocks = 4 * CONTEXT / 32, .context_tokens = CONTEXT};
    int rounds = 5;
    for (int i = 2; i + 1 < count; i += 2) {
        if (strcmp(arguments[i], "--threads") == 0) {
            options.thread_count = (uint32_t)strtoul(arguments[i + 1], NULL, 10);
        } else if (strcmp(arguments[i], "--rounds") == 0) {
            rounds = atoi(arguments[i + 1]);
        } else if (strcmp(arguments[i], "--kernels") != 0 ||
                   !kernels_set_parse(arguments[i + 1], &options.kernel_set)) {
            count = 0;
        }
    }
    if (count < 2 || options.thread_count < 1 || rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr,
                "usage: forward_bench MODEL.gguf [--kernels SET] [--threads N] [--rounds N]\n");
        return 2;
    }
    struct reason reason = {0};
    if (model_file_open(arguments[1], &options.model, &reason) != STATUS_OK) {
        fprintf(stderr, "forward_bench: %s\n", reason.text);
        return 1;
    }
    static struct rig rig;
    rig_create(&rig, &options);
    static struct run run;
    run.rig = &rig;
    double rates[4][ROUNDS_MAX];
    for (int round = 0; round < rounds; round++) {
        double one[4];
        measure(&run, (uint64_t)round, one);
        for (int i = 0; i < 4; i++) {
            rates[i][round] = one[i];
        }
    }
    printf("set %s, threads %u\n", kernels_set_name(forward_kernel_set(rig.forward)),
           options.thread_count);
    print_rates(rates, rounds);
    rig_destroy(&rig);
    model_file_close(options.model);
    return 0;
}
