// SPDX-License-Identifier: Apache-2.0
// At stake: prefill attends in panels (lanes are queries), decode row by row; both must give the
// same bits for any number of tokens each query attends. A panel of each size is compared with
// plain C's row-wise reference over several blocks and spans, with tokens beyond each query's own
// set to NaN, and every array ending at an unmapped page.

#include "gpud/kernels/kernels_backend.h"
#include "tests/kernels/kernels_check.h"

#include <math.h>

static enum kernel_set set_under_test;

enum { STEPS = 6, SPAN_STEPS = 3, WIDTH_MAX = PANEL_WIDTH_MAX, DIM_MAX = 128, TOKENS_MAX = 64 };

// The same queries in both layouts; state twice: the current span, and the merged total.
struct pair {
    uint32_t width, head_dim, block_tokens;
    struct check_edge edges[11];
    uint32_t edge_count;
    struct attention_panel span, total;
    float *q;                // [width][head_dim]
    float max[2][WIDTH_MAX]; // of the reference: span, total
    float sum[2][WIDTH_MAX];
    float out[2][WIDTH_MAX * DIM_MAX];
};

static float *edge_floats(struct pair *pair, size_t count)
{
    assert_true(pair->edge_count < sizeof(pair->edges) / sizeof(pair->edges[0]));
    struct check_edge *edge = &pair->edges[pair->edge_count++];
    *edge = check_edge_create(count * sizeof(float));
    return (float *)edge->data;
}

static void state_create(struct pair *pair, struct attention_panel *panel)
{
    panel->width = pair->width;
    panel->head_dim = pair->head_dim;
    panel->block_tokens = pair->block_tokens;
    panel->max = edge_floats(pair, pair->width);
    panel->sum = edge_floats(pair, pair->width);
    panel->out = edge_floats(pair, (size_t)pair->width * pair->head_dim);
}

static void state_reset(struct pair *pair, struct attention_panel *panel, int which)
{
    for (uint32_t i = 0; i < pair->width; i++) {
        panel->max[i] = pair->max[which][i] = -INFINITY;
        panel->sum[i] = pair->sum[which][i] = 0.0f;
    }
    memset(panel->out, 0, (size_t)pair->width * pair->head_dim * sizeof(float));
    memset(pair->out[which], 0, sizeof(pair->out[which]));
}

static void pair_create(uint64_t *state, struct pair *pair)
{
    size_t values = (size_t)pair->width * pair->head_dim;
    state_create(pair, &pair->span);
    state_create(pair, &pair->total);
    pair->q = check_floats(state, values, 2.0f);
    float *panel_q = edge_floats(pair, values);
    for (uint32_t i = 0; i < pair->width; i++) {
        for (uint32_t d = 0; d < pair->head_dim; d++) {
            panel_q[d * pair->width + i] = pair->q[i * pair->head_dim + d];
        }
    }
    pair->span.q = panel_q;
    pair->span.scores = edge_floats(pair, (size_t)pair->width * pair->block_tokens);
}

static void pair_destroy(struct pair *pair)
{
    for (uint32_t i = 0; i < pair->edge_count; i++) {
        check_edge_destroy(&pair->edges[i]);
    }
    free(pair->q);
}

// Query i of the reference, over the span or the total.
static struct attention_tile query_tile(struct pair *pair, uint32_t i, int which, float *scores)
{
    return (struct attention_tile){.query_count = 1,
                                   .head_dim = pair->head_dim,
                                   .block_tokens = pair->block_tokens,
                                   .q = pair->q + (size_t)i * pair->head_dim,
                                   .max = &pair->max[which][i],
                                   .sum = &pair->sum[which][i],
                                   .out = pair->out[which] + (size_t)i * pair->head_dim,
                                   .scores = scores};
}

static void check_state(const struct pair *pair, const struct attention_panel *panel, int which)
{
    check_floats_equal(panel->max, pair->max[which], pair->width, "max");
    check_floats_equal(panel->sum, pair->sum[which], pair->width, "sum");
    for (uint32_t i = 0; i < pair->width; i++) {
        for (uint32_t d = 0; d < pair->head_dim; d++) {
            check_floats_equal(&panel->out[d * pair->width + i],
                               &pair->out[which][i * pair->head_dim + d], 1, "out");
        }
    }
}

// Tokens that rows attend of one block: all, none, a staircase, or anything.
static void random_counts(uint64_t *state, const struct pair *pair, uint32_t *counts)
{
    uint64_t kind = check_random(state) % 4;
    for (uint32_t i = 0; i < pair->width; i++) {
        uint32_t any = (uint32_t)(check_random(state) % (pair->block_tokens + 1));
        uint32_t stair = i / 3 + 1 < pair->block_tokens ? i / 3 + 1 : pair->block_tokens;
        counts[i] = kind == 0 ? pair->block_tokens : kind == 1 ? stair : kind == 2 ? any : 0;
    }
}

static void attend_block(uint64_t *state, struct pair *pair)
{
    size_t values = (size_t)pair->head_dim * pair->block_tokens;
    struct check_edge k = check_edge_create(values * sizeof(float));
    struct check_edge v = check_edge_create(values * sizeof(float));
    struct attention_block block = {.wide_k = (float *)k.data, .wide_v = (float *)v.data};
    uint32_t counts[WIDTH_MAX], most = 0;
    random_counts(state, pair, counts);
    for (uint32_t i = 0; i < pair->width; i++) {
        most = counts[i] > most ? counts[i] : most;
    }
    for (uint32_t t = 0; t < pair->block_tokens; t++) {
        for (uint32_t d = 0; d < pair->head_dim; d++) {
            float key = check_float(state, 2.0f), value = check_float(state, 1.0f);
            ((float *)k.data)[d * pair->block_tokens + t] = t < most ? key : NAN;
            ((float *)v.data)[t * pair->head_dim + d] = t < most ? value : NAN;
        }
    }
    float scores[TOKENS_MAX];
    for (uint32_t i = 0; i < pair->width; i++) {
        struct attention_tile tile = query_tile(pair, i, 0, scores);
        block.token_count = counts[i];
        if (counts[i] != 0) {
            kernels_backend_find(KERNEL_SET_C)->attend(&tile, &block);
        }
    }
    block.token_count = pair->block_tokens;
    kernels_backend_find(set_under_test)->attend_panel(&pair->span, &block, counts);
    check_state(pair, &pair->span, 0);
    check_edge_destroy(&k), check_edge_destroy(&v);
}

static void merge_span(struct pair *pair, uint32_t first_query)
{
    for (uint32_t i = first_query; i < pair->width; i++) {
        struct attention_tile span = query_tile(pair, i, 0, NULL);
        struct attention_tile total = query_tile(pair, i, 1, NULL);
        kernels_backend_find(KERNEL_SET_C)->merge(&span, &total);
    }
    kernels_backend_find(set_under_test)->merge_panel(&pair->span, &pair->total, first_query);
    check_state(pair, &pair->total, 1);
}

static void check_panel(uint64_t *state, uint32_t width, uint32_t head_dim, uint32_t block_tokens)
{
    static struct pair pair;
    pair = (struct pair){.width = width, .head_dim = head_dim, .block_tokens = block_tokens};
    pair_create(state, &pair);
    state_reset(&pair, &pair.total, 1);
    for (int step = 0; step < STEPS; step++) {
        if (step % SPAN_STEPS == 0) {
            state_reset(&pair, &pair.span, 0);
        }
        attend_block(state, &pair);
        if (step % SPAN_STEPS == SPAN_STEPS - 1) {
            merge_span(&pair, (uint32_t)(check_random(state) % (width + 1)));
        }
    }
    pair_destroy(&pair);
}

static void test_panels_equal_plain_c_row_by_row(void **unused)
{
    (void)unused;
    if (kernels_backend_find(set_under_test)->attend_panel == NULL) {
        skip(); // plain C has no panels
    }
    uint64_t state = check_seed();
    for (int round = 0; round < 20; round++) {
        for (uint32_t head_dim = 8; head_dim <= DIM_MAX; head_dim += head_dim < 24 ? 8 : 52) {
            for (uint32_t tokens = 16; tokens <= TOKENS_MAX; tokens *= 2) {
                check_panel(&state, 16, head_dim / 8 * 8, tokens);
                check_panel(&state, 32, head_dim / 8 * 8, tokens);
            }
        }
    }
}

int main(int count, char **arguments)
{
    set_under_test = check_set_from_arguments(count, arguments);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_panels_equal_plain_c_row_by_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
