// SPDX-License-Identifier: Apache-2.0
// Matrix products split over threads: activations are quantized once for all matrices of the call,
// then items of (some row groups, some rows of x) are computed in any order; an output is computed
// by one leaf call whatever the split, so the split does not show in the bits.

#include "gpud/kernels/cpu/matrix.h"
#include "gpud/kernels/kernels_internal.h"

#include <assert.h>

enum {
    MATRICES_MAX = 3,
    ROWS_PER_ITEM = 128,  // rows of x whose quantized form stays in L2 while weights stream
    ITEMS_PER_THREAD = 8, // enough to even out, few enough to keep the hand-over small
    QUANTIZE_INLINE_VALUES = 8192,
    QUANTIZE_ROWS_PER_ITEM = 16,
};

struct matmul_job {
    struct kernels *kernels;
    const struct matrix *const *matrices;
    float *const *out;
    uint32_t matrix_count;
    const float *x;     // first row of this pass
    uint32_t first_row; // of this pass, for `out`
    uint32_t rows;      // of this pass
    uint32_t columns;
    uint32_t group_count; // of all matrices
    uint32_t groups_per_item;
    uint32_t row_chunks;
};

static void quantize_work(void *context, uint32_t item, uint32_t thread)
{
    (void)thread;
    const struct matmul_job *job = context;
    uint32_t first = item * QUANTIZE_ROWS_PER_ITEM;
    uint32_t end =
        first + QUANTIZE_ROWS_PER_ITEM < job->rows ? first + QUANTIZE_ROWS_PER_ITEM : job->rows;
    for (uint32_t r = first; r < end; r++) {
        job->kernels->backend->quantize(job->x + (size_t)r * job->columns, job->columns,
                                        job->kernels->quant +
                                            (size_t)r * (job->columns / QUANT_VALUES));
    }
}

static void quantize_pass(struct matmul_job *job)
{
    uint32_t items = (job->rows + QUANTIZE_ROWS_PER_ITEM - 1) / QUANTIZE_ROWS_PER_ITEM;
    if ((size_t)job->rows * job->columns > QUANTIZE_INLINE_VALUES) {
        thread_pool_run(job->kernels->pool, quantize_work, job, items);
        return;
    }
    for (uint32_t item = 0; item < items; item++) {
        quantize_work(job, item, 0);
    }
}

// One row group, counted over all matrices, for rows first..first+rows of the pass.
static void multiply_group(const struct matmul_job *job, uint32_t group, uint32_t first,
                           uint32_t rows)
{
    uint32_t m = 0;
    while (group >= job->matrices[m]->group_count) {
        group -= job->matrices[m++]->group_count;
    }
    const struct matrix *matrix = job->matrices[m];
    uint32_t lanes = matrix->rows - group * MATRIX_LANES;
    size_t out_row = (size_t)job->first_row + first;
    struct matmul_tile tile = {
        .weights = matrix->data + group * matrix->group_bytes,
        .quant = job->kernels->quant + (size_t)first * (job->columns / QUANT_VALUES),
        .x = job->x + (size_t)first * job->columns,
        .out = job->out[m] + out_row * matrix->rows + (size_t)group * MATRIX_LANES,
        .out_stride = matrix->rows,
        .columns = job->columns,
        .rows = rows,
        .lanes = lanes < MATRIX_LANES ? lanes : MATRIX_LANES,
    };
    job->kernels->backend->matmul[matrix->kind](&tile);
}

static void matmul_work(void *context, uint32_t item, uint32_t thread)
{
    (void)thread;
    const struct matmul_job *job = context;
    uint32_t first = item % job->row_chunks * ROWS_PER_ITEM;
    uint32_t left = job->rows - first;
    uint32_t rows = left < ROWS_PER_ITEM ? left : ROWS_PER_ITEM;
    uint32_t group = item / job->row_chunks * job->groups_per_item;
    uint32_t groups_left = job->group_count - group;
    uint32_t groups = groups_left < job->groups_per_item ? groups_left : job->groups_per_item;
    for (uint32_t end = group + groups; group < end; group++) {
        multiply_group(job, group, first, rows);
    }
}

static void matmul_pass(struct matmul_job *job, bool quantized)
{
    if (quantized) {
        quantize_pass(job);
    }
    uint32_t items = job->kernels->options.thread_count * ITEMS_PER_THREAD;
    job->row_chunks = (job->rows + ROWS_PER_ITEM - 1) / ROWS_PER_ITEM;
    job->groups_per_item = (job->group_count + items - 1) / items;
    uint32_t group_items = (job->group_count + job->groups_per_item - 1) / job->groups_per_item;
    thread_pool_run(job->kernels->pool, matmul_work, job, group_items * job->row_chunks);
}

void kernels_matmul(struct kernels *kernels, const struct matrix *const *matrices,
                    uint32_t matrix_count, const float *x, uint32_t rows, float *const *out)
{
    assert(matrix_count >= 1 && matrix_count <= MATRICES_MAX);
    struct matmul_job job = {
        .kernels = kernels,
        .matrices = matrices,
        .out = out,
        .matrix_count = matrix_count,
        .columns = matrices[0]->columns,
    };
    bool quantized = false;
    for (uint32_t m = 0; m < matrix_count; m++) {
        assert(matrices[m]->columns == job.columns);
        job.group_count += matrices[m]->group_count;
        quantized = quantized || matrix_is_quantized(matrices[m]);
    }
    uint32_t pass_rows = kernels->options.row_count_max < MATMUL_PASS_ROWS
                             ? kernels->options.row_count_max
                             : MATMUL_PASS_ROWS;
    for (uint32_t first = 0; first < rows; first += pass_rows) {
        job.first_row = first;
        job.rows = rows - first < pass_rows ? rows - first : pass_rows;
        job.x = x + (size_t)first * job.columns;
        matmul_pass(&job, quantized);
    }
}
