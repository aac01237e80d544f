// SPDX-License-Identifier: Apache-2.0
// Creation (choice of the set, all workspace in one allocation) and the row-wise operations. The
// products and attention stand in kernels_matmul.c and kernels_attention.c.

#include "gpud/kernels/kernels.h"

#include "gpud/kernels/cpu/f16.h"
#include "gpud/kernels/cpu/matrix.h"
#include "gpud/kernels/kernels_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { WORKSPACE_ALIGNMENT = 64 };

static const char *const SET_NAMES[] = {
    [KERNEL_SET_AUTO] = "auto",     [KERNEL_SET_C] = "c",       [KERNEL_SET_AVX2] = "avx2",
    [KERNEL_SET_AVX512] = "avx512", [KERNEL_SET_NEON] = "neon",
};

enum { SET_COUNT = sizeof(SET_NAMES) / sizeof(SET_NAMES[0]) };

const char *kernels_set_name(enum kernel_set set)
{
    return (size_t)set < SET_COUNT ? SET_NAMES[set] : "unknown";
}

bool kernels_set_parse(const char *name, enum kernel_set *out_set)
{
    for (uint32_t i = 0; i < SET_COUNT; i++) {
        if (strcmp(name, SET_NAMES[i]) == 0) {
            *out_set = (enum kernel_set)i;
            return true;
        }
    }
    return false;
}

bool kernels_set_supported(enum kernel_set set)
{
    return set == KERNEL_SET_AUTO || kernels_backend_find(set) != NULL;
}

enum kernel_set kernels_set(const struct kernels *kernels)
{
    return kernels->backend->set;
}

size_t kernels_workspace_bytes(const struct kernels *kernels)
{
    return kernels->workspace_bytes;
}

// Hands out pieces of the workspace; with a NULL base it only adds up their sizes.
struct carver {
    uint8_t *base;
    size_t used;
};

static void *carve(struct carver *carver, size_t count, size_t item_bytes)
{
    size_t offset = carver->used;
    size_t bytes = count * item_bytes;
    carver->used += (bytes + WORKSPACE_ALIGNMENT - 1) / WORKSPACE_ALIGNMENT * WORKSPACE_ALIGNMENT;
    return carver->base != NULL ? carver->base + offset : NULL;
}

static struct attention_state carve_state(struct carver *carver, const struct kernels *kernels)
{
    size_t queries = kernels->tile_queries;
    struct attention_state state = {
        .max = carve(carver, queries, sizeof(float)),
        .sum = carve(carver, queries, sizeof(float)),
        .out = carve(carver, queries * kernels->options.head_dim_max, sizeof(float)),
    };
    return state;
}

static struct attention_scratch carve_scratch(struct carver *carver, const struct kernels *kernels)
{
    size_t queries = kernels->tile_queries;
    size_t block_values = (size_t)kernels->options.head_dim_max * kernels->options.block_tokens;
    struct attention_scratch scratch = {
        .q = carve(carver, queries * kernels->options.head_dim_max, sizeof(float)),
        .scores = carve(carver, queries * kernels->options.block_tokens, sizeof(float)),
        .wide_k = carve(carver, block_values, sizeof(float)),
        .wide_v = carve(carver, block_values, sizeof(float)),
        .token_counts = carve(carver, PANEL_WIDTH_MAX, sizeof(uint32_t)),
        .span = carve_state(carver, kernels),
        .total = carve_state(carver, kernels),
    };
    return scratch;
}

// Lays the workspace out from `base`, or (base NULL) only measures it.
static void lay_out(struct kernels *kernels, uint8_t *base)
{
    const struct kernels_options *options = &kernels->options;
    struct carver carver = {.base = base};
    size_t pass_rows =
        options->row_count_max < MATMUL_PASS_ROWS ? options->row_count_max : MATMUL_PASS_ROWS;
    kernels->quant = carve(&carver, pass_rows * (options->column_count_max / QUANT_VALUES),
                           sizeof(*kernels->quant));
    kernels->cuts = carve(&carver, options->row_count_max, sizeof(*kernels->cuts));
    kernels->scratch = carve(&carver, options->thread_count, sizeof(*kernels->scratch));
    kernels->parts = carve(&carver, kernels->part_count, sizeof(*kernels->parts));
    kernels->totals = carve(&carver, kernels->part_count, sizeof(*kernels->totals));
    kernels->parts_left = carve(&carver, kernels->part_count, sizeof(*kernels->parts_left));
    for (uint32_t i = 0; i < options->thread_count; i++) {
        struct attention_scratch scratch = carve_scratch(&carver, kernels);
        if (base != NULL) {
            kernels->scratch[i] = scratch;
        }
    }
    for (uint32_t i = 0; i < kernels->part_count; i++) {
        struct attention_state part = carve_state(&carver, kernels);
        struct attention_state total = carve_state(&carver, kernels);
        if (base != NULL) {
            kernels->parts[i] = part;
            kernels->totals[i] = total;
        }
    }
    kernels->workspace_bytes = carver.used;
}

static enum kernel_set best_set(void)
{
    if (kernels_backend_find(KERNEL_SET_AVX512) != NULL) {
        return KERNEL_SET_AVX512;
    }
    return kernels_backend_find(KERNEL_SET_AVX2) != NULL ? KERNEL_SET_AVX2 : KERNEL_SET_C;
}

static const char *set_needs(enum kernel_set set)
{
    switch (set) {
    case KERNEL_SET_AVX2:
        return "this CPU lacks AVX2, FMA or F16C";
    case KERNEL_SET_AVX512:
        return "this CPU lacks AVX-512 F, BW, DQ, VL or VNNI";
    default:
        return "this build has no such kernels";
    }
}

static uint32_t tile_queries(const struct kernels_options *options)
{
    uint32_t queries =
        options->heads_max > ATTENTION_TILE_QUERIES ? options->heads_max : ATTENTION_TILE_QUERIES;
    return (queries + PANEL_WIDTH_MAX - 1) / PANEL_WIDTH_MAX * PANEL_WIDTH_MAX;
}

enum status kernels_create(const struct kernels_options *options, struct kernels **out_kernels,
                           struct reason *reason)
{
    assert(options->thread_count >= 1 && options->row_count_max >= 1);
    assert(block_tokens_valid(options->block_tokens));
    enum kernel_set set = options->set == KERNEL_SET_AUTO ? best_set() : options->set;
    const struct kernels_backend *backend = kernels_backend_find(set);
    if (backend == NULL) {
        return reason_set(reason, STATUS_UNSUPPORTED, "use --kernels auto", "kernels %s: %s",
                          kernels_set_name(set), set_needs(set));
    }
    struct kernels *kernels = calloc(1, sizeof(*kernels));
    if (kernels == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "kernels: out of memory");
    }
    kernels->options = *options;
    kernels->backend = backend;
    kernels->part_count = options->thread_count * ATTENTION_PARTS_PER_THREAD;
    kernels->tile_queries = tile_queries(options);
    lay_out(kernels, NULL);
    kernels->workspace = aligned_alloc(WORKSPACE_ALIGNMENT, kernels->workspace_bytes);
    if (kernels->workspace == NULL ||
        thread_pool_create(options->thread_count, &kernels->pool) != STATUS_OK) {
        enum status status =
            reason_set(reason, STATUS_NO_MEMORY, "use fewer threads or rows",
                       "kernels: no memory for %zu bytes of workspace and %u threads",
                       kernels->workspace_bytes, options->thread_count);
        kernels_destroy(kernels);
        return status;
    }
    lay_out(kernels, kernels->workspace);
    *out_kernels = kernels;
    return STATUS_OK;
}

void kernels_destroy(struct kernels *kernels)
{
    if (kernels != NULL) {
        thread_pool_destroy(kernels->pool);
        free(kernels->workspace);
        free(kernels);
    }
}

void kernels_embed(struct kernels *kernels, const struct matrix *matrix, const uint32_t *tokens,
                   uint32_t count, float *out)
{
    (void)kernels; // rows are few and read once: no threads
    for (uint32_t i = 0; i < count; i++) {
        matrix_row(matrix, tokens[i], out + (size_t)i * matrix->columns);
    }
}

// Splits `rows` rows of `columns` values into items; small jobs become one item (no hand-over).
static uint32_t rows_per_item(const struct kernels *kernels, uint32_t rows, size_t columns)
{
    if ((size_t)rows * columns <= VECTOR_INLINE_VALUES) {
        return rows;
    }
    uint32_t items = kernels->options.thread_count * 4;
    return (rows + items - 1) / items;
}

static uint32_t item_count(uint32_t rows, uint32_t step)
{
    return (rows + step - 1) / step;
}

struct norm_job {
    const struct kernels_backend *backend;
    const float *x;
    const float *weight;
    float *out;
    uint32_t rows, columns, step;
    float epsilon;
};

static uint32_t item_end(uint32_t item, uint32_t step, uint32_t rows)
{
    uint32_t end = (item + 1) * step;
    return end < rows ? end : rows;
}

static void norm_work(void *context, uint32_t item, uint32_t thread)
{
    (void)thread;
    const struct norm_job *job = context;
    for (uint32_t r = item * job->step; r < item_end(item, job->step, job->rows); r++) {
        size_t offset = (size_t)r * job->columns;
        job->backend->rms_norm(job->x + offset, job->weight, job->columns, job->epsilon,
                               job->out + offset);
    }
}

void kernels_rms_norm(struct kernels *kernels, const float *x, const float *weight, uint32_t rows,
                      uint32_t columns, float epsilon, float *out)
{
    struct norm_job job = {
        .backend = kernels->backend,
        .x = x,
        .weight = weight,
        .out = out,
        .rows = rows,
        .columns = columns,
        .step = rows_per_item(kernels, rows, columns),
        .epsilon = epsilon,
    };
    if (rows != 0) {
        thread_pool_run(kernels->pool, norm_work, &job, item_count(rows, job.step));
    }
}

struct rope_job {
    const struct kernels_backend *backend;
    float *x;
    const float *angles;
    uint32_t rows, heads, head_dim, pair_count, step;
    enum rope_kind kind;
};

static void rope_work(void *context, uint32_t item, uint32_t thread)
{
    (void)thread;
    const struct rope_job *job = context;
    for (uint32_t r = item * job->step; r < item_end(item, job->step, job->rows); r++) {
        const float *angles = job->angles + (size_t)r * job->pair_count * 2;
        for (uint32_t h = 0; h < job->heads; h++) {
            float *head = job->x + ((size_t)r * job->heads + h) * job->head_dim;
            job->backend->rope(head, angles, job->pair_count, job->kind);
        }
    }
}

void kernels_rope(struct kernels *kernels, float *x, uint32_t rows, uint32_t heads,
                  uint32_t head_dim, const float *angles, uint32_t pair_count, enum rope_kind kind)
{
    assert(2 * pair_count <= head_dim);
    struct rope_job job = {
        .backend = kernels->backend,
        .x = x,
        .angles = angles,
        .rows = rows,
        .heads = heads,
        .head_dim = head_dim,
        .pair_count = pair_count,
        .step = rows_per_item(kernels, rows, (size_t)heads * head_dim),
        .kind = kind,
    };
    if (rows != 0) {
        thread_pool_run(kernels->pool, rope_work, &job, item_count(rows, job.step));
    }
}

struct values_job {
    const struct kernels_backend *backend;
    const float *a;
    const float *b;
    float *out;
    size_t count;
};

enum { VALUES_PER_ITEM = VECTOR_INLINE_VALUES };

static size_t values_of_item(const struct values_job *job, size_t first)
{
    size_t left = job->count - first;
    return left < VALUES_PER_ITEM ? left : VALUES_PER_ITEM;
}

static void silu_work(void *context, uint32_t item, uint32_t thread)
{
    (void)thread;
    const struct values_job *job = context;
    size_t first = (size_t)item * VALUES_PER_ITEM;
    job->backend->silu_mul(job->a + first, job->b + first, values_of_item(job, first),
                           job->out + first);
}

static void add_work(void *context, uint32_t item, uint32_t thread)
{
    (void)thread;
    const struct values_job *job = context;
    size_t first = (size_t)item * VALUES_PER_ITEM;
    job->backend->add(job->out + first, job->b + first, values_of_item(job, first));
}

static void run_values(struct kernels *kernels, thread_pool_work *work, struct values_job *job)
{
    size_t items = (job->count + VALUES_PER_ITEM - 1) / VALUES_PER_ITEM;
    assert(items <= UINT32_MAX);
    job->backend = kernels->backend;
    thread_pool_run(kernels->pool, work, job, (uint32_t)items);
}

void kernels_silu_mul(struct kernels *kernels, const float *gate, const float *up, size_t count,
                      float *out)
{
    struct values_job job = {.a = gate, .b = up, .out = out, .count = count};
    run_values(kernels, silu_work, &job);
}

void kernels_add(struct kernels *kernels, float *x, const float *y, size_t count)
{
    struct values_job job = {.b = y, .out = x, .count = count};
    run_values(kernels, add_work, &job);
}
