// SPDX-License-Identifier: Apache-2.0
// Two passes over the demands: one token for everyone, then equal shares of the rest for prefills.
// Both spend from the same purse of tokens and logit rows, so a plan always fits a step.
#include "gpud/scheduler.h"

#include <assert.h>
#include <stdlib.h>

struct scheduler {
    struct os_queue queue; // of struct request *: worker -> engine
    uint32_t batch_tokens_max;
    uint32_t logit_rows_max;
    uint32_t turn;               // demand that comes first
    double prefill_ns_per_token; // 0: not measured yet
};

// What a step has left to give.
struct purse {
    uint32_t tokens;
    uint32_t prefill_tokens; // of these, for prefills
    uint32_t rows;
};

enum status scheduler_create(const struct scheduler_options *options,
                             struct scheduler **out_scheduler)
{
    assert(options->batch_tokens_max > 0 && options->logit_rows_max > 0);
    struct scheduler *scheduler = calloc(1, sizeof(*scheduler));
    if (scheduler == NULL) {
        return STATUS_NO_MEMORY;
    }
    scheduler->batch_tokens_max = options->batch_tokens_max;
    scheduler->logit_rows_max = options->logit_rows_max;
    enum status status =
        os_queue_init(&scheduler->queue, sizeof(struct request *), options->queue_capacity);
    if (status != STATUS_OK) {
        free(scheduler);
        return status;
    }
    *out_scheduler = scheduler;
    return STATUS_OK;
}

void scheduler_destroy(struct scheduler *scheduler)
{
    if (scheduler == NULL) {
        return;
    }
    os_queue_finish(&scheduler->queue);
    free(scheduler);
}

struct os_queue *scheduler_queue(struct scheduler *scheduler)
{
    return &scheduler->queue;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

// Gives `demand` up to `tokens` more.
static void grant(struct purse *purse, struct scheduler_demand *demand, uint32_t tokens)
{
    tokens = smaller(tokens, demand->wanted_tokens - demand->granted_tokens);
    tokens = smaller(tokens, purse->tokens);
    if (!demand->decode) {
        tokens = smaller(tokens, purse->prefill_tokens);
    }
    if (demand->row_per_token) {
        tokens = smaller(tokens, purse->rows);
    } else if (tokens > 0 && demand->granted_tokens == 0) {
        tokens = purse->rows > 0 ? tokens : 0;
    }
    if (tokens == 0) {
        return;
    }
    purse->rows -= demand->row_per_token ? tokens : demand->granted_tokens == 0 ? 1 : 0;
    purse->tokens -= tokens;
    purse->prefill_tokens -= demand->decode ? 0 : tokens;
    demand->granted_tokens += tokens;
}

// Shares what is left equally among the prefills that can still take some.
static void share(struct purse *purse, struct scheduler_demand *demands, uint32_t count,
                  uint32_t turn)
{
    uint32_t before = 0;
    do { // each round but the last gives at least one token
        uint32_t takers = 0;
        for (uint32_t i = 0; i < count; i++) {
            takers += demands[i].granted_tokens > 0 &&
                      demands[i].granted_tokens < demands[i].wanted_tokens;
        }
        before = purse->tokens;
        uint32_t left = smaller(purse->tokens, purse->prefill_tokens);
        uint32_t part = takers == 0 ? 0 : left / takers > 0 ? left / takers : 1;
        for (uint32_t i = 0; part > 0 && i < count; i++) {
            struct scheduler_demand *demand = &demands[(turn + i) % count];
            if (demand->granted_tokens > 0) {
                grant(purse, demand, part);
            }
        }
    } while (purse->tokens < before);
}

static uint32_t prefill_tokens_max(const struct scheduler *scheduler, bool others_wait)
{
    if (!others_wait || scheduler->prefill_ns_per_token == 0) {
        return scheduler->batch_tokens_max;
    }
    double tokens = PREFILL_MS_MAX * 1e6 / scheduler->prefill_ns_per_token;
    if (tokens < PREFILL_TOKENS_MIN) {
        return PREFILL_TOKENS_MIN;
    }
    return tokens < scheduler->batch_tokens_max ? (uint32_t)tokens : scheduler->batch_tokens_max;
}

void scheduler_plan(struct scheduler *scheduler, struct scheduler_demand *demands, uint32_t count,
                    bool others_wait)
{
    uint32_t active = 0;
    for (uint32_t i = 0; i < count; i++) {
        demands[i].granted_tokens = 0;
        active += demands[i].wanted_tokens > 0;
    }
    struct purse purse = {
        .tokens = scheduler->batch_tokens_max,
        .prefill_tokens = prefill_tokens_max(scheduler, others_wait || active > 1),
        .rows = scheduler->logit_rows_max,
    };
    uint32_t turn = scheduler->turn++;
    for (uint32_t i = 0; i < count; i++) {
        grant(&purse, &demands[(turn + i) % count], 1);
    }
    if (count > 0) {
        share(&purse, demands, count, turn);
    }
}

void scheduler_measure(struct scheduler *scheduler, uint32_t prefill_tokens, uint32_t decode_tokens,
                       uint64_t elapsed_ns)
{
    if (prefill_tokens < PREFILL_TOKENS_MIN || prefill_tokens < decode_tokens) {
        return; // the time says little of prefill
    }
    double now = (double)elapsed_ns / (prefill_tokens + decode_tokens);
    double before = scheduler->prefill_ns_per_token;
    scheduler->prefill_ns_per_token = before == 0 ? now : before + (now - before) / 4;
}
