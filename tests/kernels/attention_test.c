// SPDX-License-Identifier: Apache-2.0
// At stake: the same position must give the same bits whether it is decoded alone, in a chunk, in a
// batch, on one thread or many, and whatever lies in memory after the last token. Plain C is
// compared with binary64, then every set, chunking, batch and thread count with plain C's
// one-row-at-a-time result by equality. Unused token positions hold NaN throughout, so that reading
// one shows.

#include "gpud/kernels/cpu/f16.h"
#include "gpud/kernels/kernels_backend.h"
#include "tests/kernels/kernels_check.h"

#include <math.h>

static enum kernel_set set_under_test;

struct geometry {
    uint32_t heads, kv_heads, head_dim, block_tokens, token_count;
    float spread; // of queries and keys: how peaked the weights are
};

// A sequence with its KV written and the reference result of every position.
struct scene {
    struct geometry geometry;
    struct attention_shape shape;
    uint32_t block_count;
    void **blocks;
    struct check_edge *edges;
    float *q, *k, *v, *want;
};

enum {
    LAYER_OFFSET = 64, // payloads start with something that is not this layer
    BLOCKS_MAX = 4096,
};

static struct kernels *kernels_for(enum kernel_set set, uint32_t threads,
                                   const struct geometry *geometry)
{
    return check_kernels_create((struct kernels_options){
        .set = set,
        .thread_count = threads,
        .row_count_max = geometry->token_count + 8,
        .column_count_max = 32,
        .heads_max = geometry->heads,
        .head_dim_max = geometry->head_dim,
        .block_tokens = geometry->block_tokens,
        .block_count_max = BLOCKS_MAX});
}

static size_t q_values(const struct geometry *geometry)
{
    return (size_t)geometry->heads * geometry->head_dim;
}

// One block, filled with NaN, ending at an unmapped page.
static void block_create(struct scene *scene, uint32_t index)
{
    size_t halves = 2 * (size_t)scene->geometry.kv_heads * scene->geometry.head_dim *
                    scene->geometry.block_tokens;
    scene->edges[index] = check_edge_create(LAYER_OFFSET + 2 * halves);
    scene->blocks[index] = scene->edges[index].data;
    uint16_t *values = (uint16_t *)(scene->edges[index].data + LAYER_OFFSET);
    for (size_t i = 0; i < halves; i++) {
        values[i] = 0x7e00;
    }
}

// Rows first..first+count of the scene, in one call.
static void attend_rows(struct kernels *kernels, const struct scene *scene, uint32_t first,
                        uint32_t count, float *out)
{
    struct attention_sequence sequence = {
        .blocks = scene->blocks, .row_count = count, .first_position = first};
    kernels_attention(kernels, &scene->shape, &sequence, 1,
                      scene->q + first * q_values(&scene->geometry),
                      out + first * q_values(&scene->geometry));
}

static struct scene scene_create(uint64_t *state, struct geometry geometry)
{
    struct scene scene = {
        .geometry = geometry,
        .shape = {.heads = geometry.heads,
                  .kv_heads = geometry.kv_heads,
                  .head_dim = geometry.head_dim,
                  .block_tokens = geometry.block_tokens,
                  .layer_offset = LAYER_OFFSET,
                  .scale = 1.0f / sqrtf((float)geometry.head_dim)},
        .block_count = (geometry.token_count - 1) / geometry.block_tokens + 1,
    };
    scene.blocks = calloc(scene.block_count, sizeof(*scene.blocks));
    scene.edges = calloc(scene.block_count, sizeof(*scene.edges));
    for (uint32_t i = 0; i < scene.block_count; i++) {
        block_create(&scene, i);
    }
    size_t kv_values = (size_t)geometry.token_count * geometry.kv_heads * geometry.head_dim;
    scene.q = check_floats(state, geometry.token_count * q_values(&geometry), geometry.spread);
    scene.k = check_floats(state, kv_values, geometry.spread);
    scene.v = check_floats(state, kv_values, 1.0f);
    scene.want = calloc(geometry.token_count * q_values(&geometry), sizeof(float));
    struct kernels *plain = kernels_for(KERNEL_SET_C, 1, &geometry);
    for (uint32_t p = 0; p < geometry.token_count; p++) { // token by token, later ones still NaN
        struct attention_sequence sequence = {
            .blocks = scene.blocks, .row_count = 1, .first_position = p};
        size_t offset = (size_t)p * geometry.kv_heads * geometry.head_dim;
        kernels_kv_write(plain, &scene.shape, &sequence, 1, scene.k + offset, scene.v + offset);
        attend_rows(plain, &scene, p, 1, scene.want);
    }
    kernels_destroy(plain);
    return scene;
}

static void scene_destroy(struct scene *scene)
{
    for (uint32_t i = 0; i < scene->block_count; i++) {
        check_edge_destroy(&scene->edges[i]);
    }
    free(scene->blocks), free(scene->edges);
    free(scene->q), free(scene->k), free(scene->v), free(scene->want);
}

// Softmax attention in binary64 over the f16 values of K and V, for one row and head.
static void exact_head(const struct scene *scene, uint32_t position, uint32_t head, double *out)
{
    const struct geometry *g = &scene->geometry;
    uint32_t kv_head = head / (g->heads / g->kv_heads);
    const float *q = scene->q + position * q_values(g) + (size_t)head * g->head_dim;
    double sum = 0, max = -INFINITY;
    double *scores = calloc(position + 1, sizeof(*scores));
    for (uint32_t t = 0; t <= position; t++) {
        const float *k = scene->k + ((size_t)t * g->kv_heads + kv_head) * g->head_dim;
        for (uint32_t d = 0; d < g->head_dim; d++) {
            scores[t] += (double)q[d] * (double)f32_from_f16(f16_from_f32(k[d])) *
                         (double)scene->shape.scale;
        }
        max = fmax(max, scores[t]);
    }
    memset(out, 0, g->head_dim * sizeof(*out));
    for (uint32_t t = 0; t <= position; t++) {
        const float *v = scene->v + ((size_t)t * g->kv_heads + kv_head) * g->head_dim;
        double weight = exp(scores[t] - max);
        sum += weight;
        for (uint32_t d = 0; d < g->head_dim; d++) {
            out[d] += weight * (double)f32_from_f16(f16_from_f32(v[d]));
        }
    }
    for (uint32_t d = 0; d < g->head_dim; d++) {
        out[d] /= sum;
    }
    free(scores);
}

static void test_plain_c_is_near_binary64(void **unused)
{
    (void)unused;
    uint64_t state = check_seed();
    struct scene scene = scene_create(&state, (struct geometry){4, 2, 32, 16, 300, 2.0f});
    double exact[32];
    for (uint32_t p = 0; p < 300; p += 7) {
        for (uint32_t h = 0; h < 4; h++) {
            exact_head(&scene, p, h, exact);
            for (uint32_t d = 0; d < 32; d++) {
                double got = (double)scene.want[p * 128 + h * 32 + d];
                assert_true(fabs(got - exact[d]) <= 1e-5);
            }
        }
    }
    scene_destroy(&scene);
}

static void test_kv_write_lays_keys_dimension_major(void **unused)
{
    (void)unused;
    uint64_t state = check_seed();
    struct geometry g = {2, 2, 24, 16, 19, 2.0f};
    struct scene scene = scene_create(&state, g);
    struct kernels *kernels = kernels_for(set_under_test, 1, &g);
    for (uint32_t i = 0; i < scene.block_count; i++) {
        check_edge_destroy(&scene.edges[i]);
        block_create(&scene, i);
    }
    struct attention_sequence sequence = {.blocks = scene.blocks, .row_count = 19};
    kernels_kv_write(kernels, &scene.shape, &sequence, 1, scene.k, scene.v);
    for (uint32_t t = 0; t < 32; t++) {
        const uint16_t *layer =
            (const uint16_t *)((const uint8_t *)scene.blocks[t / 16] + LAYER_OFFSET);
        for (uint32_t i = 0; i < 48; i++) {
            const uint16_t *head = layer + i / 24 * 2 * 24 * 16;
            uint32_t d = i % 24;
            uint16_t key = head[d * 16 + t % 16], value = head[24 * 16 + t % 16 * 24 + d];
            assert_int_equal(key, t < 19 ? f16_from_f32(scene.k[t * 48 + i]) : 0x7e00);
            assert_int_equal(value, t < 19 ? f16_from_f32(scene.v[t * 48 + i]) : 0x7e00);
        }
    }
    kernels_destroy(kernels);
    scene_destroy(&scene);
}

// Chunks of random sizes cover the sequence; every position must come out as decoded alone.
static void check_scene(uint64_t *state, const struct scene *scene, uint32_t threads)
{
    const struct geometry *g = &scene->geometry;
    struct kernels *kernels = kernels_for(set_under_test, threads, g);
    size_t values = g->token_count * q_values(g);
    float *got = calloc(values, sizeof(*got));
    attend_rows(kernels, scene, 0, g->token_count, got);
    check_floats_equal(got, scene->want, values, "one chunk");
    memset(got, 0, values * sizeof(*got));
    for (uint32_t first = 0; first < g->token_count;) {
        uint32_t left = g->token_count - first;
        uint32_t count = (uint32_t)(check_random(state) % 40) + 1;
        count = check_random(state) % 4 == 0 ? 1 : count;
        count = count < left ? count : left;
        attend_rows(kernels, scene, first, count, got);
        first += count;
    }
    check_floats_equal(got, scene->want, values, "random chunks");
    attend_rows(kernels, scene, g->token_count - 1, 1, got);
    check_floats_equal(got, scene->want, values, "last position alone");
    free(got);
    kernels_destroy(kernels);
}

static void test_equals_plain_c_alone(void **unused)
{
    (void)unused;
    static const struct geometry geometries[] = {
        {1, 1, 8, 16, 1, 1.0f},      {9, 3, 64, 32, 600, 3.0f},  {1, 1, 8, 16, 300, 1.0f},
        {8, 1, 128, 64, 70, 2.0f},   {4, 4, 24, 128, 150, 9.0f}, {40, 1, 64, 16, 40, 1.0f},
        {6, 2, 256, 32, 40, 2.0f},   {3, 1, 40, 16, 530, 30.0f}, {2, 1, 16, 16, 900, 0.1f},
        {5, 1, 80, 32, 100, 200.0f}, {4, 1, 112, 16, 35, 1.0f},  {7, 1, 96, 32, 64, 4.0f}};
    uint64_t state = check_seed();
    for (size_t i = 0; i < sizeof(geometries) / sizeof(geometries[0]); i++) {
        struct scene scene = scene_create(&state, geometries[i]);
        for (uint32_t threads = 1; threads <= 3; threads++) {
            check_scene(&state, &scene, threads);
        }
        scene_destroy(&scene);
    }
}

// Several sequences of different lengths in one call: decodes, a chunk, and one that is much
// longer.
static void test_batch_equals_alone(void **unused)
{
    (void)unused;
    enum { SCENES = 4 };
    static const uint32_t tokens[SCENES] = {5, 700, 33, 130}, rows[SCENES] = {1, 1, 20, 3};
    uint64_t state = check_seed();
    struct scene scenes[SCENES];
    struct attention_sequence sequences[SCENES];
    struct geometry largest = {6, 2, 64, 16, 700, 2.0f};
    size_t values = q_values(&largest);
    float *q = calloc(25 * values, sizeof(*q)), *out = calloc(25 * values, sizeof(*out));
    uint32_t row = 0;
    for (int i = 0; i < SCENES; i++) {
        scenes[i] = scene_create(&state, (struct geometry){6, 2, 64, 16, tokens[i], 2.0f});
        uint32_t first = tokens[i] - rows[i];
        sequences[i] = (struct attention_sequence){scenes[i].blocks, row, rows[i], first};
        memcpy(q + row * values, scenes[i].q + first * values, rows[i] * values * sizeof(*q));
        row += rows[i];
    }
    for (uint32_t threads = 1; threads <= 4; threads++) {
        struct kernels *kernels = kernels_for(set_under_test, threads, &largest);
        memset(out, 0, 25 * values * sizeof(*out));
        kernels_attention(kernels, &scenes[0].shape, sequences, SCENES, q, out);
        for (int i = 0; i < SCENES; i++) {
            check_floats_equal(out + sequences[i].first_row * values,
                               scenes[i].want + sequences[i].first_position * values,
                               rows[i] * values, "a sequence of a batch");
        }
        kernels_destroy(kernels);
    }
    for (int i = 0; i < SCENES; i++) {
        scene_destroy(&scenes[i]);
    }
    free(q), free(out);
}

// More spans than the kept parts of one round, so that rounds follow each other.
static void test_rounds_of_spans(void **unused)
{
    (void)unused;
    uint64_t state = check_seed();
    struct scene scene = scene_create(&state, (struct geometry){2, 2, 8, 16, 20, 1.0f});
    enum { BLOCKS = 16 * 150 };
    void **blocks = calloc(BLOCKS, sizeof(*blocks));
    for (int i = 0; i < BLOCKS;
         i++) { // the same full block again and again, then the half full one
        blocks[i] = scene.blocks[i == BLOCKS - 1];
    }
    struct attention_sequence sequence = {
        .blocks = blocks, .row_count = 1, .first_position = BLOCKS * 16 - 13};
    float want[16], got[16];
    struct kernels *plain = kernels_for(KERNEL_SET_C, 1, &scene.geometry);
    kernels_attention(plain, &scene.shape, &sequence, 1, scene.q, want);
    kernels_destroy(plain);
    for (uint32_t threads = 1; threads <= 4; threads++) {
        struct kernels *kernels = kernels_for(set_under_test, threads, &scene.geometry);
        kernels_attention(kernels, &scene.shape, &sequence, 1, scene.q, got);
        check_floats_equal(got, want, 16, "rounds");
        kernels_destroy(kernels);
    }
    free(blocks);
    scene_destroy(&scene);
}

// A key or value beyond f16's range becomes infinite and must show, only from its position on.
static void test_overflow_is_not_hidden(void **unused)
{
    (void)unused;
    uint64_t state = check_seed();
    struct scene scene = scene_create(&state, (struct geometry){2, 1, 16, 16, 40, 1.0f});
    struct kernels *kernels = kernels_for(set_under_test, 2, &scene.geometry);
    scene.v[20 * 16 + 3] = 1e6f;
    struct attention_sequence sequence = {.blocks = scene.blocks, .row_count = 40};
    kernels_kv_write(kernels, &scene.shape, &sequence, 1, scene.k, scene.v);
    float got[40 * 32];
    kernels_attention(kernels, &scene.shape, &sequence, 1, scene.q, got);
    check_floats_equal(got, scene.want, 20 * 32, "positions before");
    for (int p = 20; p < 40; p++) {
        assert_true(isinf(got[p * 32 + 3]));
    }
    kernels_destroy(kernels);
    scene_destroy(&scene);
}

int main(int count, char **arguments)
{
    set_under_test = check_set_from_arguments(count, arguments);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_c_is_near_binary64),
        cmocka_unit_test(test_kv_write_lays_keys_dimension_major),
        cmocka_unit_test(test_equals_plain_c_alone),
        cmocka_unit_test(test_batch_equals_alone),
        cmocka_unit_test(test_rounds_of_spans),
        cmocka_unit_test(test_overflow_is_not_hidden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
