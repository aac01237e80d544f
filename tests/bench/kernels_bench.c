// SPDX-License-Identifier: Apache-2.0
// How fast each kernel is against what the machine can do: products and attention of one row in
// GB/s of weights or KV read, beside a plain read of 1 GiB in the same run; many rows in billions
// of multiply-accumulates a second. Not a test: prints medians, asserts nothing about time. usage:
// kernels_bench [--kernels SET] [--threads N]

#include "gpud/kernels/cpu/thread_pool.h"
#include "gpud/kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    REPEATS = 7,
    READ_BYTES = 1 << 30,
    READ_ITEM_BYTES = 1 << 20,
    COLUMNS_MAX = 4096,
    ROWS_MAX = 512,
    COPIES_MAX = 256,
    BLOCK_TOKENS = 32,
};

static const char *only = "";

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

static double median(double *values)
{
    qsort(values, REPEATS, sizeof(*values), compare_doubles);
    return values[REPEATS / 2];
}

static void *allocate(size_t bytes)
{
    void *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (memory == NULL) {
        fprintf(stderr, "kernels_bench: out of memory\n");
        exit(1);
    }
    return memory;
}

// ---- plain read

struct read_job {
    const uint64_t *words;
    uint64_t sums[256];
};

static void read_work(void *context, uint32_t item, uint32_t thread)
{
    struct read_job *job = context;
    const uint64_t *words = job->words + (size_t)item * (READ_ITEM_BYTES / 8);
    uint64_t sums[8] = {0};
    for (size_t i = 0; i < READ_ITEM_BYTES / 8; i += 8) {
        for (size_t j = 0; j < 8; j++) {
            sums[j] += words[i + j];
        }
    }
    for (size_t j = 0; j < 8; j++) {
        job->sums[thread] += sums[j];
    }
}

static double plain_read(uint32_t threads)
{
    struct thread_pool *pool = NULL;
    if (thread_pool_create(threads, &pool) != STATUS_OK) {
        exit(1);
    }
    uint64_t *words = allocate(READ_BYTES);
    memset(words, 1, READ_BYTES);
    static struct read_job job;
    job.words = words;
    double seconds[REPEATS];
    for (int i = 0; i < REPEATS; i++) {
        double start = now_seconds();
        thread_pool_run(pool, read_work, &job, READ_BYTES / READ_ITEM_BYTES);
        seconds[i] = now_seconds() - start;
    }
    free(words);
    thread_pool_destroy(pool);
    return READ_BYTES / median(seconds) / 1e9;
}

// ---- products

struct product {
    const char *name;
    enum tensor_type type;
    uint32_t outputs, columns;
};

static void fill(struct matrix *matrix, const struct product *product)
{
    size_t bytes = tensor_row_bytes(product->type, product->columns) * product->outputs;
    uint16_t *halves = allocate(bytes);
    for (size_t i = 0; i < bytes / 2; i++) {
        halves[i] = (uint16_t)(0x1c00 + i * 2654435761u % 0x400); // small positive f16, any quants
    }
    matrix_fill(matrix, 0, product->outputs, halves);
    free(halves);
}

// Walks through enough copies of the matrix that no cache holds them, as the layers of a model.
static void bench_product(struct kernels *kernels, const struct product *product, uint32_t rows,
                          double read)
{
    if (strncmp(product->name, only, strlen(only)) != 0) {
        return;
    }
    struct matrix *copies[COPIES_MAX];
    uint32_t count = 0;
    size_t bytes = 0;
    size_t wanted = rows == 1 ? (size_t)192 << 20 : 1;
    for (; count < COPIES_MAX && bytes < wanted; count++) {
        if (matrix_create(kernels, product->type, product->outputs, product->columns,
                          &copies[count]) != STATUS_OK) {
            exit(1);
        }
        fill(copies[count], product);
        bytes += matrix_bytes(copies[count]);
    }
    float *x = allocate(sizeof(float) * rows * product->columns);
    float *out = allocate(sizeof(float) * rows * product->outputs);
    for (size_t i = 0; i < (size_t)rows * product->columns; i++) {
        x[i] = (float)(i % 251) - 125.0f;
    }
    double seconds[REPEATS];
    for (int i = 0; i < REPEATS; i++) {
        double start = now_seconds();
        for (uint32_t m = 0; m < count; m++) {
            kernels_matmul(kernels, (const struct matrix *const[]){copies[m]}, 1, x, rows, &out);
        }
        seconds[i] = now_seconds() - start;
    }
    double time = median(seconds);
    double macs = (double)rows * product->outputs * product->columns * count;
    printf("%-24s rows %4u  %8.2f us  %7.2f GB/s (%.2f of read)  %8.1f GMAC/s\n", product->name,
           rows, time / count * 1e6, (double)bytes / time / 1e9, (double)bytes / time / 1e9 / read,
           macs / time / 1e9);
    for (uint32_t m = 0; m < count; m++) {
        matrix_destroy(copies[m]);
    }
    free(x), free(out);
}

// ---- attention

static void bench_attention(struct kernels *kernels, struct attention_shape shape, uint32_t depth,
                            uint32_t rows, double read)
{
    if (strncmp("attention", only, strlen(only)) != 0) {
        return;
    }
    enum { LAYERS = 30 }; // so that KV comes from memory, as in a step
    size_t layer_bytes = 4 * (size_t)shape.kv_heads * shape.head_dim * BLOCK_TOKENS;
    uint32_t block_count = (depth + rows - 1) / BLOCK_TOKENS + 1;
    void **blocks = allocate(block_count * sizeof(*blocks));
    for (uint32_t b = 0; b < block_count; b++) {
        blocks[b] = allocate(layer_bytes * LAYERS);
        uint16_t *halves = blocks[b];
        for (size_t i = 0; i < layer_bytes * LAYERS / 2; i++) {
            halves[i] = (uint16_t)(0x3000 + i * 2654435761u % 0x400);
        }
    }
    size_t values = (size_t)rows * shape.heads * shape.head_dim;
    float *q = allocate(values * sizeof(float)), *out = allocate(values * sizeof(float));
    for (size_t i = 0; i < values; i++) {
        q[i] = (float)(i % 13) * 0.1f - 0.6f;
    }
    struct attention_sequence sequence = {
        .blocks = blocks, .row_count = rows, .first_position = depth};
    double seconds[REPEATS];
    for (int i = 0; i < REPEATS; i++) {
        double start = now_seconds();
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            shape.layer_offset = layer * layer_bytes;
            kernels_attention(kernels, &shape, &sequence, 1, q, out);
        }
        seconds[i] = now_seconds() - start;
    }
    double time = median(seconds);
    double tokens = (double)depth + (rows + 1) / 2.0;
    double bytes = tokens * shape.kv_heads * shape.head_dim * 4 * LAYERS;
    double macs = tokens * rows * shape.heads * shape.head_dim * 2 * LAYERS;
    printf("attention %2u/%u x %3u       rows %4u  depth %6u  %8.2f us a layer", shape.heads,
           shape.kv_heads, shape.head_dim, rows, depth, time / LAYERS * 1e6);
    if (rows == 1) {
        printf("  %7.2f GB/s (%.2f of read)\n", bytes / time / 1e9, bytes / time / 1e9 / read);
    } else {
        printf("  %8.1f GMAC/s\n", macs / time / 1e9);
    }
    for (uint32_t b = 0; b < block_count; b++) {
        free(blocks[b]);
    }
    free(blocks), free(q), free(out);
}

static void bench_all(struct kernels *kernels, double read)
{
    static const struct product products[] = {
        {"Q4_1 576x576", TENSOR_TYPE_Q4_1, 576, 576},
        {"Q4_1 192x576", TENSOR_TYPE_Q4_1, 192, 576},
        {"Q4_1 1536x576", TENSOR_TYPE_Q4_1, 1536, 576},
        {"Q4_1 576x1536", TENSOR_TYPE_Q4_1, 576, 1536},
        {"Q8_0 49152x576", TENSOR_TYPE_Q8_0, 49152, 576},
        {"Q4_0 4096x4096", TENSOR_TYPE_Q4_0, 4096, 4096},
        {"Q4_1 4096x4096", TENSOR_TYPE_Q4_1, 4096, 4096},
        {"Q8_0 4096x4096", TENSOR_TYPE_Q8_0, 4096, 4096},
        {"F16 2048x2048", TENSOR_TYPE_F16, 2048, 2048},
        {"BF16 2048x2048", TENSOR_TYPE_BF16, 2048, 2048},
        {"F32 2048x2048", TENSOR_TYPE_F32, 2048, 2048},
    };
    static const uint32_t rows[] = {1, 4, 8, 512};
    for (size_t p = 0; p < sizeof(products) / sizeof(products[0]); p++) {
        for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
            if (rows[r] < 512 || products[p].outputs < 49152) {
                bench_product(kernels, &products[p], rows[r], read);
            }
        }
    }
    struct attention_shape small = {9, 3, 64, BLOCK_TOKENS, 0, 0.125f};
    struct attention_shape large = {32, 8, 128, BLOCK_TOKENS, 0, 0.0884f};
    bench_attention(kernels, small, 4096, 1, read);
    bench_attention(kernels, small, 32768, 1, read);
    bench_attention(kernels, large, 8192, 1, read);
    bench_attention(kernels, small, 0, 512, read);
    bench_attention(kernels, small, 4096, 512, read);
    bench_attention(kernels, large, 2048, 256, read);
}

int main(int count, char **arguments)
{
    struct kernels_options options = {.thread_count = 2,
                                      .row_count_max = ROWS_MAX,
                                      .column_count_max = COLUMNS_MAX,
                                      .heads_max = 32,
                                      .head_dim_max = 128,
                                      .block_tokens = BLOCK_TOKENS,
                                      .block_count_max = 1 << 16};
    for (int i = 1; i + 1 < count; i += 2) {
        if (strcmp(arguments[i], "--threads") == 0) {
            options.thread_count = (uint32_t)strtoul(arguments[i + 1], NULL, 10);
        } else if (strcmp(arguments[i], "--only") == 0) {
            only = arguments[i + 1];
        } else if (strcmp(arguments[i], "--kernels") != 0 ||
                   !kernels_set_parse(arguments[i + 1], &options.set)) {
            fprintf(stderr, "usage: kernels_bench [--kernels SET] [--threads N] [--only TEXT]\n");
            return 2;
        }
    }
    if (options.thread_count < 1 || options.thread_count > 256) {
        fprintf(stderr, "kernels_bench: --threads is 1..256\n");
        return 2;
    }
    struct kernels *kernels = NULL;
    struct reason reason = {0};
    if (kernels_create(&options, &kernels, &reason) != STATUS_OK) {
        fprintf(stderr, "kernels_bench: %s\n", reason.text);
        return 1;
    }
    double read = plain_read(options.thread_count);
    printf("set %s, threads %u, plain read %.2f GB/s, workspace %.1f MB\n",
           kernels_set_name(kernels_set(kernels)), options.thread_count, read,
           (double)kernels_workspace_bytes(kernels) / 1e6);
    bench_all(kernels, read);
    kernels_destroy(kernels);
    return 0;
}
