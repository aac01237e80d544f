// SPDX-License-Identifier: Apache-2.0
// Attention split over threads, and the writing of keys and values. The work is cut into *units*: a
// few consecutive rows of one sequence (a tile) and one KV head with all its query heads, so that
// each byte of K and V is read once per tile. With many units an item is a unit; with few (decode)
// the spans of each unit become items whose states are kept and merged in order by whoever finishes
// last. Either way every span is folded from empty and spans merge left to right (docs/NUMERICS.md
// §6), so the bits are the same.

#include "gpud/kernels/cpu/f16.h"
#include "gpud/kernels/kernels_internal.h"
#include "proto/limits.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { WIDEN_QUERIES = 5 }; // from so many queries on, widening K and V once pays

struct attention_job {
    struct kernels *kernels;
    const struct attention_shape *shape;
    const float *q;
    float *out;
    uint32_t tile_count;  // entries of kernels->cuts
    uint32_t unit_count;  // tile_count * kv_heads
    uint32_t group_heads; // query heads per KV head
    uint32_t span_count;  // of the longest tile
    uint32_t first_span;  // of the current round (split only)
    uint32_t round_spans; // spans of each unit in the current round (split only)
};

// One unit of the job.
struct unit {
    const struct attention_cut *cut;
    uint32_t kv_head;
    uint32_t first_position; // of the tile's first row
    uint32_t query_count;
    bool panels; // queries are laid out as panels, not row by row
};

static struct unit unit_of(const struct attention_job *job, uint32_t index)
{
    struct unit unit = {
        .cut = &job->kernels->cuts[index / job->shape->kv_heads],
        .kv_head = index % job->shape->kv_heads,
    };
    unit.first_position = unit.cut->sequence->first_position + unit.cut->first_row;
    unit.query_count = unit.cut->row_count * job->group_heads;
    unit.panels = job->kernels->backend->attend_panel != NULL &&
                  job->shape->head_dim % PANEL_DIMS == 0 &&
                  unit.query_count >= ATTENTION_PANEL_QUERIES;
    return unit;
}

static struct attention_tile tile_of(const struct attention_job *job, const struct unit *unit,
                                     const struct attention_scratch *scratch,
                                     const struct attention_state *state)
{
    return (struct attention_tile){
        .query_count = unit->query_count,
        .head_dim = job->shape->head_dim,
        .block_tokens = job->shape->block_tokens,
        .q = scratch->q,
        .max = state->max,
        .sum = state->sum,
        .out = state->out,
        .scores = scratch->scores,
    };
}

// Lanes of the panel that starts at query `first`, a multiple of PANEL_WIDTH_MAX.
static uint32_t panel_width(const struct unit *unit, uint32_t first)
{
    return unit->query_count - first > PANEL_WIDTH_MAX / 2 ? PANEL_WIDTH_MAX : PANEL_WIDTH_MAX / 2;
}

static struct attention_panel panel_of(const struct attention_job *job, const struct unit *unit,
                                       uint32_t first, const struct attention_scratch *scratch,
                                       const struct attention_state *state)
{
    size_t offset = (size_t)first * job->shape->head_dim;
    return (struct attention_panel){
        .width = panel_width(unit, first),
        .head_dim = job->shape->head_dim,
        .block_tokens = job->shape->block_tokens,
        .q = scratch->q + offset,
        .max = state->max + first,
        .sum = state->sum + first,
        .out = state->out + offset,
        .scores = scratch->scores,
    };
}

// Where value d of query i stands among the values of its unit: at start + d * stride.
struct query_place {
    size_t start, stride;
};

static struct query_place query_place(const struct unit *unit, uint32_t query, uint32_t head_dim)
{
    if (!unit->panels) {
        return (struct query_place){(size_t)query * head_dim, 1};
    }
    uint32_t first = query / PANEL_WIDTH_MAX * PANEL_WIDTH_MAX;
    return (struct query_place){(size_t)first * head_dim + query - first, panel_width(unit, first)};
}

// The queries first..first+count of a tile.
static struct attention_tile tile_part(const struct attention_tile *tile, uint32_t first,
                                       uint32_t count)
{
    struct attention_tile part = *tile;
    part.query_count = count;
    part.q += (size_t)first * tile->head_dim;
    part.max += first;
    part.sum += first;
    part.out += (size_t)first * tile->head_dim;
    part.scores += (size_t)first * tile->block_tokens;
    return part;
}

static void state_reset(const struct attention_job *job, const struct unit *unit,
                        const struct attention_state *state)
{
    // Lanes without a query too: their state is computed with, though never used.
    size_t queries = (unit->query_count + PANEL_WIDTH_MAX - 1) / PANEL_WIDTH_MAX * PANEL_WIDTH_MAX;
    for (size_t i = 0; i < queries; i++) {
        state->max[i] = -INFINITY;
        state->sum[i] = 0.0f;
    }
    memset(state->out, 0, sizeof(float) * queries * job->shape->head_dim);
}

// Offset in q and out of the queries of row `row` of the unit; its heads lie one after another.
static size_t row_offset(const struct attention_job *job, const struct unit *unit, uint32_t row)
{
    size_t step_row = (size_t)unit->cut->sequence->first_row + unit->cut->first_row + row;
    return (step_row * job->shape->heads + (size_t)unit->kv_head * job->group_heads) *
           job->shape->head_dim;
}

static void load_queries(const struct attention_job *job, const struct unit *unit, float *q)
{
    uint32_t head_dim = job->shape->head_dim;
    for (uint32_t i = 0; i < unit->query_count; i++) {
        const float *from = job->q + row_offset(job, unit, i / job->group_heads) +
                            (size_t)(i % job->group_heads) * head_dim;
        struct query_place place = query_place(unit, i, head_dim);
        for (uint32_t d = 0; d < head_dim; d++) {
            q[place.start + d * place.stride] = from[d] * job->shape->scale;
        }
    }
    if (!unit->panels) {
        return;
    }
    uint32_t last = unit->query_count - 1;
    uint32_t end = last - last % PANEL_WIDTH_MAX + panel_width(unit, last - last % PANEL_WIDTH_MAX);
    for (uint32_t i = unit->query_count; i < end; i++) { // lanes without a query
        struct query_place place = query_place(unit, i, head_dim);
        for (uint32_t d = 0; d < head_dim; d++) {
            q[place.start + d * place.stride] = 0.0f;
        }
    }
}

// Keys of block `index`; its values follow them.
static const uint16_t *block_keys(const struct attention_job *job, const struct unit *unit,
                                  uint32_t index)
{
    size_t values = (size_t)job->shape->head_dim * job->shape->block_tokens;
    const uint8_t *payload = unit->cut->sequence->blocks[index];
    return (const uint16_t *)(payload + job->shape->layer_offset) + 2 * values * unit->kv_head;
}

// Keys and values of block `index`, widened into scratch when the unit is worth it; `next` is one
// too.
static struct attention_block block_of(const struct attention_job *job, const struct unit *unit,
                                       uint32_t index, bool next,
                                       const struct attention_scratch *scratch)
{
    size_t values = (size_t)job->shape->head_dim * job->shape->block_tokens;
    struct attention_block block = {.k = block_keys(job, unit, index)};
    block.v = block.k + values;
    if (unit->query_count >= WIDEN_QUERIES) {
        job->kernels->backend->widen(block.k, values, scratch->wide_k);
        job->kernels->backend->widen(block.v, values, scratch->wide_v);
        block.wide_k = scratch->wide_k;
        block.wide_v = scratch->wide_v;
    }
    if (next) {
        block.next_k = block_keys(job, unit, index + 1);
        block.next_v = block.next_k + values;
    }
    return block;
}

// Folds block `index` into the panels: each row attends its own number of tokens.
static void fold_panels(const struct attention_job *job, const struct unit *unit, uint32_t index,
                        const struct attention_scratch *scratch,
                        const struct attention_state *state)
{
    uint32_t tokens = job->shape->block_tokens;
    struct attention_block block = block_of(job, unit, index, false, scratch);
    block.token_count = tokens;
    int64_t before = (int64_t)unit->first_position - (int64_t)index * tokens + 1;
    for (uint32_t first = 0; first < unit->query_count; first += PANEL_WIDTH_MAX) {
        struct attention_panel panel = panel_of(job, unit, first, scratch, state);
        for (uint32_t i = 0; i < panel.width; i++) {
            // Lanes without a query do as the last one, so that they need no mask.
            uint32_t query = first + i < unit->query_count ? first + i : unit->query_count - 1;
            int64_t count = before + query / job->group_heads;
            count = count < 0 ? 0 : count;
            scratch->token_counts[i] = count < tokens ? (uint32_t)count : tokens;
        }
        job->kernels->backend->attend_panel(&panel, &block, scratch->token_counts);
    }
}

// Folds block `index` into every row from `first_row` that attends some of it: rows whose position
// lies inside the block one by one (each sees one token more), later ones together.
static void fold_block(const struct attention_job *job, const struct unit *unit, uint32_t index,
                       const struct attention_tile *tile, struct attention_block *block)
{
    uint32_t tokens = job->shape->block_tokens;
    uint32_t start = index * tokens;
    uint32_t row = start > unit->first_position ? start - unit->first_position : 0;
    for (; row < unit->cut->row_count; row++) {
        block->token_count = unit->first_position + row - start + 1;
        if (block->token_count >= tokens) {
            break;
        }
        struct attention_tile part = tile_part(tile, row * job->group_heads, job->group_heads);
        job->kernels->backend->attend(&part, block);
    }
    if (row < unit->cut->row_count) {
        block->token_count = tokens;
        uint32_t first = row * job->group_heads;
        struct attention_tile part = tile_part(tile, first, tile->query_count - first);
        job->kernels->backend->attend(&part, block);
    }
}

// First query of the unit whose row reaches into the span.
static uint32_t span_first_query(const struct attention_job *job, const struct unit *unit,
                                 uint32_t span)
{
    uint32_t start = span * ATTENTION_SPAN_BLOCKS * job->shape->block_tokens;
    return start > unit->first_position ? (start - unit->first_position) * job->group_heads : 0;
}

// Folds the blocks of one span, from empty, into `state`.
static void fold_span(const struct attention_job *job, const struct unit *unit, uint32_t span,
                      const struct attention_scratch *scratch, const struct attention_state *state)
{
    uint32_t last_position = unit->first_position + unit->cut->row_count - 1;
    uint32_t block_count = last_position / job->shape->block_tokens + 1;
    uint32_t first = span * ATTENTION_SPAN_BLOCKS;
    uint32_t left = block_count - first;
    uint32_t end = first + (left < ATTENTION_SPAN_BLOCKS ? left : ATTENTION_SPAN_BLOCKS);
    struct attention_tile tile = tile_of(job, unit, scratch, state);
    state_reset(job, unit, state);
    for (uint32_t index = first; index < end; index++) {
        if (unit->panels) {
            fold_panels(job, unit, index, scratch, state);
        } else {
            struct attention_block block = block_of(job, unit, index, index + 1 < end, scratch);
            fold_block(job, unit, index, &tile, &block);
        }
    }
}

// Merges a folded span into `total`, for the queries that reach into it.
static void merge_span(const struct attention_job *job, const struct unit *unit, uint32_t span,
                       const struct attention_state *state, const struct attention_state *total)
{
    static const struct attention_scratch none = {0};
    uint32_t first = span_first_query(job, unit, span);
    if (unit->panels) {
        for (uint32_t at = 0; at < unit->query_count; at += PANEL_WIDTH_MAX) {
            struct attention_panel from = panel_of(job, unit, at, &none, state);
            struct attention_panel to = panel_of(job, unit, at, &none, total);
            uint32_t skip = first > at ? first - at : 0;
            skip = skip < from.width ? skip : from.width;
            job->kernels->backend->merge_panel(&from, &to, skip);
        }
        return;
    }
    size_t offset = (size_t)first * job->shape->head_dim;
    struct attention_tile from = {
        .query_count = unit->query_count - first,
        .head_dim = job->shape->head_dim,
        .max = state->max + first,
        .sum = state->sum + first,
        .out = state->out + offset,
    };
    struct attention_tile to = from;
    to.max = total->max + first;
    to.sum = total->sum + first;
    to.out = total->out + offset;
    job->kernels->backend->merge(&from, &to);
}

// Divides by the sums and puts the rows where the caller wants them.
static void write_out(const struct attention_job *job, const struct unit *unit,
                      const struct attention_state *total)
{
    uint32_t head_dim = job->shape->head_dim;
    for (uint32_t i = 0; i < unit->query_count; i++) {
        struct query_place place = query_place(unit, i, head_dim);
        const float *o = total->out + place.start;
        float column[LIMIT_HEAD_DIM];
        if (unit->panels) {
            for (uint32_t d = 0; d < head_dim; d++) {
                column[d] = o[d * place.stride];
            }
            o = column;
        }
        float *out = job->out + row_offset(job, unit, i / job->group_heads) +
                     (size_t)(i % job->group_heads) * head_dim;
        job->kernels->backend->finish(o, total->sum[i], head_dim, out);
    }
}

// Item = a whole unit. Later tiles of a sequence take longer, so they start first.
static void unit_work(void *context, uint32_t item, uint32_t thread)
{
    const struct attention_job *job = context;
    const struct attention_scratch *scratch = &job->kernels->scratch[thread];
    struct unit unit = unit_of(job, job->unit_count - 1 - item);
    load_queries(job, &unit, scratch->q);
    state_reset(job, &unit, &scratch->total);
    for (uint32_t span = 0; span < unit.cut->span_count; span++) {
        fold_span(job, &unit, span, scratch, &scratch->span);
        merge_span(job, &unit, span, &scratch->span, &scratch->total);
    }
    write_out(job, &unit, &scratch->total);
}

static uint32_t round_end(const struct attention_job *job, const struct unit *unit)
{
    uint32_t end = job->first_span + job->round_spans;
    return end < unit->cut->span_count ? end : unit->cut->span_count;
}

// All spans of the unit in this round are folded: merges them in order.
static void merge_round(const struct attention_job *job, const struct unit *unit, uint32_t index)
{
    const struct attention_state *total = &job->kernels->totals[index];
    if (job->first_span == 0) {
        state_reset(job, unit, total);
    }
    uint32_t end = round_end(job, unit);
    for (uint32_t span = job->first_span; span < end; span++) {
        const struct attention_state *part =
            &job->kernels->parts[index * job->round_spans + span - job->first_span];
        merge_span(job, unit, span, part, total);
    }
    if (end == unit->cut->span_count) {
        write_out(job, unit, total);
    }
}

// Item = one span of a unit.
static void span_work(void *context, uint32_t item, uint32_t thread)
{
    const struct attention_job *job = context;
    uint32_t index = item / job->round_spans;
    uint32_t span = job->first_span + item % job->round_spans;
    struct unit unit = unit_of(job, index);
    if (span >= unit.cut->span_count) {
        return;
    }
    const struct attention_scratch *scratch = &job->kernels->scratch[thread];
    load_queries(job, &unit, scratch->q);
    fold_span(job, &unit, span, scratch, &job->kernels->parts[item]);
    // Acquire and release: who takes the last one sees the parts of all.
    if (atomic_fetch_sub_explicit(&job->kernels->parts_left[index], 1, memory_order_acq_rel) == 1) {
        merge_round(job, &unit, index);
    }
}

// Splits each unit by spans, in rounds that fit the kept parts.
static void run_split(struct attention_job *job)
{
    struct kernels *kernels = job->kernels;
    uint32_t round_spans_max = kernels->part_count / job->unit_count;
    while (job->first_span < job->span_count) {
        uint32_t left = job->span_count - job->first_span;
        job->round_spans = left < round_spans_max ? left : round_spans_max;
        for (uint32_t i = 0; i < job->unit_count; i++) {
            struct unit unit = unit_of(job, i);
            uint32_t end = round_end(job, &unit);
            uint32_t spans = end > job->first_span ? end - job->first_span : 0;
            atomic_store_explicit(&kernels->parts_left[i], spans, memory_order_relaxed);
        }
        thread_pool_run(kernels->pool, span_work, job, job->unit_count * job->round_spans);
        job->first_span += job->round_spans;
    }
}

// Cuts the sequences into tiles; returns the spans of all of them together.
static uint64_t cut_tiles(struct attention_job *job, const struct attention_sequence *sequences,
                          uint32_t sequence_count)
{
    uint32_t fit = ATTENTION_TILE_QUERIES / job->group_heads;
    uint32_t tile_rows = fit == 0 ? 1 : fit;
    uint32_t span_tokens = ATTENTION_SPAN_BLOCKS * job->shape->block_tokens;
    uint64_t span_total = 0;
    for (uint32_t s = 0; s < sequence_count; s++) {
        for (uint32_t first = 0; first < sequences[s].row_count; first += tile_rows) {
            assert(job->tile_count < job->kernels->options.row_count_max);
            uint32_t left = sequences[s].row_count - first;
            uint32_t count = left < tile_rows ? left : tile_rows;
            uint32_t last_position = sequences[s].first_position + first + count - 1;
            assert(last_position / job->shape->block_tokens <
                   job->kernels->options.block_count_max);
            uint32_t spans = last_position / span_tokens + 1;
            job->kernels->cuts[job->tile_count++] = (struct attention_cut){
                .sequence = &sequences[s],
                .first_row = first,
                .row_count = count,
                .span_count = spans,
            };
            job->span_count = spans > job->span_count ? spans : job->span_count;
            span_total += spans;
        }
    }
    return span_total * job->shape->kv_heads;
}

void kernels_attention(struct kernels *kernels, const struct attention_shape *shape,
                       const struct attention_sequence *sequences, uint32_t sequence_count,
                       const float *q, float *out)
{
    assert(shape->heads % shape->kv_heads == 0);
    assert(shape->heads <= kernels->options.heads_max);
    assert(shape->head_dim <= kernels->options.head_dim_max && shape->head_dim <= LIMIT_HEAD_DIM);
    assert(shape->block_tokens == kernels->options.block_tokens);
    struct attention_job job = {
        .kernels = kernels,
        .shape = shape,
        .q = q,
        .out = out,
        .group_heads = shape->heads / shape->kv_heads,
    };
    uint64_t span_total = cut_tiles(&job, sequences, sequence_count);
    job.unit_count = job.tile_count * shape->kv_heads;
    // Whole units leave threads idle when the longest one is a large part of all work.
    uint32_t threads = kernels->options.thread_count;
    bool uneven = (uint64_t)job.span_count * threads * 4 > span_total;
    if (threads > 1 && job.span_count > 1 && uneven && job.unit_count <= kernels->part_count) {
        run_split(&job);
    } else {
        thread_pool_run(kernels->pool, unit_work, &job, job.unit_count);
    }
}

// One token of one KV head: its key as a column of K, its value as a row of V.
static void write_token(const struct kernels *kernels, const struct attention_shape *shape,
                        uint16_t *k_block, uint32_t token, const float *const key_value[2])
{
    uint16_t key[LIMIT_HEAD_DIM];
    size_t values = (size_t)shape->head_dim * shape->block_tokens;
    kernels->backend->narrow(key_value[0], shape->head_dim, key);
    for (size_t d = 0; d < shape->head_dim; d++) {
        k_block[d * shape->block_tokens + token] = key[d];
    }
    kernels->backend->narrow(key_value[1], shape->head_dim,
                             k_block + values + (size_t)token * shape->head_dim);
}

static void write_sequence(const struct kernels *kernels, const struct attention_shape *shape,
                           const struct attention_sequence *sequence, const float *k,
                           const float *v)
{
    size_t values = (size_t)shape->head_dim * shape->block_tokens;
    for (uint32_t row = 0; row < sequence->row_count; row++) {
        uint32_t position = sequence->first_position + row;
        uint8_t *payload = sequence->blocks[position / shape->block_tokens];
        uint16_t *layer = (uint16_t *)(payload + shape->layer_offset);
        size_t offset = ((size_t)sequence->first_row + row) * shape->kv_heads * shape->head_dim;
        for (size_t head = 0; head < shape->kv_heads; head++) {
            size_t from = offset + head * shape->head_dim;
            write_token(kernels, shape, layer + 2 * values * head, position % shape->block_tokens,
                        (const float *const[2]){k + from, v + from});
        }
    }
}

void kernels_kv_write(struct kernels *kernels, const struct attention_shape *shape,
                      const struct attention_sequence *sequences, uint32_t sequence_count,
                      const float *k, const float *v)
{
    assert(shape->head_dim <= LIMIT_HEAD_DIM);
    for (uint32_t s = 0; s < sequence_count; s++) {
        write_sequence(kernels, shape, &sequences[s], k, v);
    }
}
