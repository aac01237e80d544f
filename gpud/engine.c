// SPDX-License-Identifier: Apache-2.0
// One run is a request with its sequence. Each step: look at every run (cancelled? loaded?), ask
// the scheduler, prepare blocks, run the layers, and hand each run its rows of logits.
//
//     LOADING --blocks there--> PREFILL --last token of the context computed--> DECODE
//        \__________________________\________________________________\____--> end_run
#include "gpud/engine.h"

#include "gpud/logits.h"
#include "gpud/sampler.h"
#include "gpud/session.h"
#include "gpud/text_stream.h"
#include "proto/log.h"
#include "proto/os/clock.h"
#include "proto/os/thread.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

enum {
    POLL_MS = 2,          // while every run waits for a disk or for its app
    STALL_MS_MAX = 60000, // an app that does not read its rows holds slots no longer than this
};

enum run_stage { RUN_STAGE_LOADING, RUN_STAGE_PREFILL, RUN_STAGE_DECODE };

struct run {
    struct request *request; // NULL: free
    struct kv_sequence *sequence;
    enum run_stage stage;
    struct text_stream text;
    struct reply_progress progress;
    uint64_t stalled_since_ms; // a score without room in its reply; 0: not so
    // ---- of this step
    uint32_t first, token_count; // positions to compute; token_count 0: none
    enum forward_logits logits;
};

struct engine {
    struct engine_options options;
    struct os_thread *thread;
    atomic_bool stopping; // relaxed: asked again and again

    // ---- engine thread only; arrays of running_max
    struct sampler *sampler;
    char *text; // what one token makes readable
    struct run *runs;
    struct scheduler_demand *demands;
    struct forward_span *spans;
    struct run **span_runs; // [span_count], the run of each span
    uint32_t span_count;
    uint32_t running_count;

    struct os_mutex mutex; // guards cache_status; a leaf
    struct kv_cache_status cache_status;
};

// ---- the beginning and the end of a run

static void set_running(struct engine *engine, uint32_t count)
{
    engine->running_count = count;
    atomic_store_explicit(&engine->options.stats->running_count, count, memory_order_relaxed);
}

// Gives the request back as it is.
static void end_run(struct engine *engine, struct run *run)
{
    struct request *request = run->request;
    kv_sequence_close(run->sequence);
    run->sequence = NULL;
    run->request = NULL;
    set_running(engine, engine->running_count - 1);
    worker_complete(engine->options.worker, request);
}

static void end_well(struct engine *engine, struct run *run, enum finish_reason reason)
{
    run->request->status = STATUS_OK;
    run->request->finish_reason = reason;
    end_run(engine, run);
}

static void end_badly(struct engine *engine, struct run *run, enum status status, const char *what)
{
    run->request->finish_reason = FINISH_REASON_ERROR;
    run->request->status = reason_set(&run->request->reason, status, "", "%s", what);
    end_run(engine, run);
}

static struct run *free_run(struct engine *engine)
{
    for (uint32_t i = 0; i < engine->options.running_max; i++) {
        if (engine->runs[i].request == NULL) {
            return &engine->runs[i];
        }
    }
    return NULL;
}

// The text goes on within a character that the session was cut in.
static void resume_text(struct engine *engine, struct run *run)
{
    const struct request *request = run->request;
    uint8_t tail[4];
    size_t tail_bytes = 0;
    uint32_t token = request->token_count;
    while (token > 0 && tail_bytes < sizeof(tail)) {
        size_t bytes = 0;
        const uint8_t *piece = tokenizer_token_bytes(engine->options.tokenizer,
                                                     request->tokens[--token], false, &bytes);
        while (bytes > 0 && tail_bytes < sizeof(tail)) {
            tail[sizeof(tail) - ++tail_bytes] = piece[--bytes];
        }
    }
    text_stream_resume(&run->text, tail + sizeof(tail) - tail_bytes, tail_bytes);
}

static void begin_run(struct engine *engine, struct run *run, struct request *request)
{
    *run = (struct run){.request = request};
    set_running(engine, engine->running_count + 1);
    text_stream_init(&run->text, (const char *const *)request->input.stop,
                     request->input.stop_count);
    if (request->continues) {
        resume_text(engine, run);
    }
    enum status status = kv_sequence_open(engine->options.kv_cache, &request->lease, &request->root,
                                          request->tokens, request->token_count, &run->sequence);
    if (status != STATUS_OK) {
        end_badly(engine, run, status, "request: its block table could not be had");
    }
}

// ---- what each run wants of a step

static void loaded(struct engine *engine, struct run *run)
{
    struct kv_sequence_hits hits;
    kv_sequence_hits(run->sequence, &hits);
    const struct reply_start start = {
        .prompt_tokens = run->request->token_count,
        .hot_tokens = hits.hot_tokens,
        .ram_tokens = hits.ram_tokens,
        .disk_tokens = hits.disk_tokens,
        .computed_tokens = hits.computed_tokens,
    };
    reply_put_start(run->request->reply, &start);
    atomic_fetch_add_explicit(&engine->options.stats->cached_tokens,
                              start.prompt_tokens - start.computed_tokens, memory_order_relaxed);
    run->progress.total_tokens = hits.computed_tokens;
    run->stage = RUN_STAGE_PREFILL;
}

// Ends what was cancelled or waits too long; moves on what has loaded. False when the run is over.
static bool look_at(struct engine *engine, struct run *run)
{
    if (run->request == NULL) {
        return false;
    }
    if (reply_cancelled(run->request->reply)) {
        end_well(engine, run, FINISH_REASON_CANCELLED);
        return false;
    }
    if (run->stage == RUN_STAGE_LOADING && kv_sequence_ready(run->sequence) == STATUS_OK) {
        loaded(engine, run);
    }
    if (run->stalled_since_ms != 0 && os_clock_ms() - run->stalled_since_ms > STALL_MS_MAX) {
        end_badly(engine, run, STATUS_TIMEOUT, "score: the app does not read its rows");
        return false;
    }
    return true;
}

// A score's part below score_from has no logits, the rest has all; never both in one span.
static void demand_score(struct run *run, struct scheduler_demand *demand)
{
    uint32_t from = run->request->input.score_from;
    if (run->first < from) {
        uint32_t below = from - run->first;
        demand->wanted_tokens = run->token_count < below ? run->token_count : below;
        return;
    }
    uint32_t room = reply_room(run->request->reply);
    demand->row_per_token = true;
    demand->wanted_tokens = run->token_count < room ? run->token_count : room;
    if (room > 0) {
        run->stalled_since_ms = 0;
    } else if (run->stalled_since_ms == 0) {
        run->stalled_since_ms = os_clock_ms();
    }
}

static void demand_prefill(struct engine *engine, struct run *run, struct scheduler_demand *demand)
{
    kv_sequence_next_range(run->sequence, engine->options.batch_tokens_max, &run->first,
                           &run->token_count);
    if (run->request->kind == REQUEST_KIND_SCORE) {
        demand_score(run, demand);
    } else {
        demand->wanted_tokens = run->token_count;
    }
}

static void demand_tokens(struct engine *engine, struct run *run, struct scheduler_demand *demand)
{
    *demand = (struct scheduler_demand){0};
    run->token_count = 0;
    if (!look_at(engine, run)) {
        return;
    }
    if (run->stage == RUN_STAGE_PREFILL) {
        demand_prefill(engine, run, demand);
    } else if (run->stage == RUN_STAGE_DECODE) {
        run->first = run->request->token_count - 1;
        demand->wanted_tokens = 1;
        demand->decode = true;
    }
}

// ---- the batch

static enum forward_logits logits_of(const struct run *run)
{
    const struct request *request = run->request;
    if (run->stage == RUN_STAGE_DECODE) {
        return FORWARD_LOGITS_LAST;
    }
    if (request->kind == REQUEST_KIND_SCORE) {
        return run->first >= request->input.score_from ? FORWARD_LOGITS_ALL : FORWARD_LOGITS_NONE;
    }
    bool last = run->first + run->token_count == request->token_count;
    return last && request->max_tokens > 0 ? FORWARD_LOGITS_LAST : FORWARD_LOGITS_NONE;
}

// Adds what a run was granted to the batch, as far as the hot pool has room for it now.
static void add_span(struct engine *engine, struct run *run, uint32_t granted)
{
    run->token_count = 0;
    if (granted == 0 ||
        kv_sequence_prepare(run->sequence, run->first, granted, &run->token_count) != STATUS_OK) {
        return;
    }
    run->logits = logits_of(run);
    engine->span_runs[engine->span_count] = run;
    engine->spans[engine->span_count++] = (struct forward_span){
        .sequence = run->sequence,
        .tokens = run->request->tokens + run->first,
        .token_count = run->token_count,
        .first_position = run->first,
        .logits = run->logits,
    };
    if (run->request->first_step_ns == 0) {
        run->request->first_step_ns = os_clock_ns();
    }
}

static void build_batch(struct engine *engine)
{
    uint32_t count = engine->options.running_max;
    for (uint32_t i = 0; i < count; i++) {
        demand_tokens(engine, &engine->runs[i], &engine->demands[i]);
    }
    scheduler_plan(engine->options.scheduler, engine->demands, count,
                   os_queue_count(scheduler_queue(engine->options.scheduler)) > 0);
    engine->span_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        add_span(engine, &engine->runs[i], engine->demands[i].granted_tokens);
    }
}

// Asked between layers.
static bool batch_cancelled(void *context)
{
    const struct engine *engine = context;
    if (atomic_load_explicit(&engine->stopping, memory_order_relaxed)) {
        return true;
    }
    for (uint32_t i = 0; i < engine->span_count; i++) {
        if (!reply_cancelled(engine->span_runs[i]->request->reply)) {
            return false;
        }
    }
    return true;
}

// ---- after the layers

// Makes `token` the request's next, with its text; returns how the request ends with it, or NONE.
static enum finish_reason take_token(struct engine *engine, struct run *run, uint32_t token,
                                     size_t *out_text_bytes)
{
    struct request *request = run->request;
    request->tokens[request->token_count++] = token;
    enum finish_reason reason = FINISH_REASON_NONE;
    size_t written = 0;
    if (tokenizer_is_end(engine->options.tokenizer, token) && !request->input.ignore_eos) {
        reason = FINISH_REASON_STOP;
    } else {
        size_t bytes = 0;
        const uint8_t *piece =
            tokenizer_token_bytes(engine->options.tokenizer, token, false, &bytes);
        written = text_stream_push(&run->text, piece, bytes, engine->text);
    }
    if (text_stream_stopped(&run->text)) {
        reason = FINISH_REASON_STOP;
    } else if (reason == FINISH_REASON_NONE &&
               request->token_count - request->prompt_count == request->max_tokens) {
        reason = FINISH_REASON_LENGTH;
    }
    if (reason != FINISH_REASON_NONE) {
        written += text_stream_finish(&run->text, engine->text + written);
    }
    *out_text_bytes = written;
    return reason;
}

static void generate_token(struct engine *engine, struct run *run, const float *logits)
{
    struct request *request = run->request;
    uint32_t token = 0;
    if (sampler_pick(engine->sampler, &request->input.sampling, logits, request->tokens,
                     request->token_count, &token) != STATUS_OK) {
        end_badly(engine, run, STATUS_DAMAGED, "logits: are not finite numbers");
        return;
    }
    size_t text_bytes = 0;
    enum finish_reason reason = take_token(engine, run, token, &text_bytes);
    request->last_token_ns = os_clock_ns();
    if (request->first_token_ns == 0) {
        request->first_token_ns = request->last_token_ns;
    }
    struct reply_token event = {
        .id = token,
        .text = engine->text,
        .text_bytes = (uint32_t)text_bytes,
        .has_logits_hash = request->input.logits_hash,
    };
    if (event.has_logits_hash) {
        event.logits_hash = logits_hash(logits, engine->options.vocab_count);
    }
    reply_put_token(request->reply, &event);
    run->stage = RUN_STAGE_DECODE;
    if (reason != FINISH_REASON_NONE) {
        end_well(engine, run, reason);
    }
}

static void score_position(struct engine *engine, struct request *request, uint32_t position,
                           const float *logits)
{
    uint32_t vocab_count = engine->options.vocab_count;
    uint32_t top_ids[REPLY_SCORE_TOP_MAX];
    float top_logits[REPLY_SCORE_TOP_MAX];
    logits_top(logits, vocab_count, request->input.score_top, top_ids, top_logits);
    struct reply_score row = {
        .position = position,
        .id = request->tokens[position],
        .lse = logits_lse(logits, vocab_count),
        .top_count = request->input.score_top,
        .top_ids = top_ids,
        .top_logits = top_logits,
        .has_next = position + 1 < request->token_count,
        .has_logits_hash = request->input.logits_hash,
    };
    if (row.has_next) {
        row.next_logprob = (double)logits[request->tokens[position + 1]] - row.lse;
    }
    if (row.has_logits_hash) {
        row.logits_hash = logits_hash(logits, vocab_count);
    }
    reply_put_score(request->reply, &row);
}

static void score_rows(struct engine *engine, struct run *run, const float *logits)
{
    uint32_t vocab_count = engine->options.vocab_count;
    for (uint32_t i = 0; i < run->token_count; i++) {
        const float *row = logits + (size_t)i * vocab_count;
        if (!logits_finite(row, vocab_count)) {
            end_badly(engine, run, STATUS_DAMAGED, "logits: are not finite numbers");
            return;
        }
        score_position(engine, run->request, run->first + i, row);
    }
}

// Tells a prompt's progress, and ends a request that only computes its prompt.
static void prefill_done(struct engine *engine, struct run *run)
{
    run->progress.done_tokens += run->token_count;
    reply_put_progress(run->request->reply, &run->progress);
    bool generates = run->request->kind == REQUEST_KIND_GENERATE && run->request->max_tokens > 0;
    if (generates || run->progress.done_tokens < run->progress.total_tokens) {
        return;
    }
    end_well(engine, run,
             run->request->kind == REQUEST_KIND_SCORE ? FINISH_REASON_NONE : FINISH_REASON_LENGTH);
}

// `logits`: the span's rows, if it has any; returns how many it had.
static uint32_t span_done(struct engine *engine, struct run *run, const float *logits)
{
    uint32_t rows = run->logits == FORWARD_LOGITS_ALL    ? run->token_count
                    : run->logits == FORWARD_LOGITS_LAST ? 1
                                                         : 0;
    kv_sequence_commit(run->sequence, run->request->tokens + run->first, run->first,
                       run->token_count);
    bool prefill = run->stage == RUN_STAGE_PREFILL;
    if (run->logits == FORWARD_LOGITS_ALL) {
        score_rows(engine, run, logits);
    }
    if (prefill && run->request != NULL) {
        prefill_done(engine, run);
    }
    if (run->logits == FORWARD_LOGITS_LAST) {
        generate_token(engine, run, logits);
    }
    return rows;
}

static void count_step(struct engine *engine, uint64_t elapsed_ns)
{
    uint32_t prefill_tokens = 0;
    uint32_t decode_tokens = 0;
    for (uint32_t i = 0; i < engine->span_count; i++) {
        bool decode = engine->span_runs[i]->stage == RUN_STAGE_DECODE;
        *(decode ? &decode_tokens : &prefill_tokens) += engine->spans[i].token_count;
    }
    stats_step(engine->options.stats, prefill_tokens, decode_tokens, elapsed_ns);
    scheduler_measure(engine->options.scheduler, prefill_tokens, decode_tokens, elapsed_ns);
}

static void finish_batch(struct engine *engine, const float *logits)
{
    for (uint32_t i = 0; i < engine->span_count; i++) {
        uint32_t rows = span_done(engine, engine->span_runs[i], logits);
        logits = rows == 0 ? logits : logits + (size_t)rows * engine->options.vocab_count;
    }
    os_mutex_lock(&engine->mutex);
    kv_cache_status(engine->options.kv_cache, &engine->cache_status);
    os_mutex_unlock(&engine->mutex);
    atomic_store_explicit(&engine->options.stats->last_step_ns, os_clock_ns(),
                          memory_order_relaxed);
}

// One step; false when nothing could be computed.
static bool engine_step(struct engine *engine)
{
    build_batch(engine);
    if (engine->span_count == 0) {
        return false;
    }
    const float *logits = NULL;
    uint64_t start_ns = os_clock_ns();
    enum status status = forward_step(engine->options.forward, engine->spans, engine->span_count,
                                      batch_cancelled, engine, &logits);
    if (status == STATUS_OK) {
        count_step(engine, os_clock_ns() - start_ns);
        finish_batch(engine, logits);
        return true;
    }
    for (uint32_t i = 0; status != STATUS_CANCELLED && i < engine->span_count; i++) {
        end_badly(engine, engine->span_runs[i], status, "step: the device failed");
    }
    return true; // what was cancelled ends at the next look
}

// ---- the thread

// Begins what has come; waits for it at most `timeout_ms`. False when the queue is closed and
// empty.
static bool take_requests(struct engine *engine, uint32_t timeout_ms)
{
    struct os_queue *queue = scheduler_queue(engine->options.scheduler);
    struct run *run = free_run(engine);
    enum status status = STATUS_OK;
    if (run == NULL) {
        os_sleep_ms(timeout_ms);
    }
    while (run != NULL && status == STATUS_OK) {
        struct request *request = NULL;
        status = os_queue_pop(queue, &request, timeout_ms);
        if (status == STATUS_OK) {
            begin_run(engine, run, request);
            run = free_run(engine);
            timeout_ms = 0;
        }
    }
    return status != STATUS_CLOSED;
}

static void end_all(struct engine *engine)
{
    for (uint32_t i = 0; i < engine->options.running_max; i++) {
        if (engine->runs[i].request != NULL) {
            end_well(engine, &engine->runs[i], FINISH_REASON_CANCELLED);
        }
    }
}

static void engine_main(void *argument)
{
    struct engine *engine = argument;
    bool open = true;
    bool progressed = true;
    while (open) {
        uint32_t timeout_ms = engine->running_count == 0 ? (uint32_t)OS_WAIT_FOREVER
                              : progressed               ? 0
                                                         : POLL_MS;
        open = take_requests(engine, timeout_ms);
        if (atomic_load_explicit(&engine->stopping, memory_order_relaxed)) {
            end_all(engine);
        }
        progressed = engine_step(engine);
    }
    end_all(engine);
}

static void engine_free(struct engine *engine)
{
    sampler_destroy(engine->sampler);
    os_mutex_finish(&engine->mutex);
    free(engine->text);
    free(engine->runs);
    free(engine->demands);
    free(engine->spans);
    free(engine->span_runs);
    free(engine);
}

static enum status engine_allocate(struct engine *engine)
{
    uint32_t running_max = engine->options.running_max;
    size_t text_bytes = text_stream_bound(session_piece_bytes_max(engine->options.tokenizer) + 4);
    engine->text = malloc(text_bytes);
    engine->runs = calloc(running_max, sizeof(*engine->runs));
    engine->demands = calloc(running_max, sizeof(*engine->demands));
    engine->spans = calloc(running_max, sizeof(*engine->spans));
    engine->span_runs = calloc(running_max, sizeof(*engine->span_runs));
    if (engine->text == NULL || engine->runs == NULL || engine->demands == NULL ||
        engine->spans == NULL || engine->span_runs == NULL) {
        return STATUS_NO_MEMORY;
    }
    return sampler_create(engine->options.vocab_count, &engine->sampler);
}

enum status engine_start(const struct engine_options *options, struct engine **out_engine,
                         struct reason *reason)
{
    struct engine *engine = calloc(1, sizeof(*engine));
    if (engine == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "engine: out of memory");
    }
    os_mutex_init(&engine->mutex);
    engine->options = *options;
    kv_cache_status(options->kv_cache, &engine->cache_status);
    enum status status = engine_allocate(engine);
    if (status == STATUS_OK) {
        status = os_thread_start("engine", engine_main, engine, &engine->thread);
    }
    if (status != STATUS_OK) {
        engine_free(engine);
        return reason_set(reason, status, "", "engine: out of memory for %u requests",
                          options->running_max);
    }
    *out_engine = engine;
    return STATUS_OK;
}

void engine_stop(struct engine *engine)
{
    if (engine == NULL) {
        return;
    }
    atomic_store_explicit(&engine->stopping, true, memory_order_relaxed);
    os_queue_close(scheduler_queue(engine->options.scheduler));
    os_thread_join(engine->thread);
    engine_free(engine);
}

void engine_cache_status(struct engine *engine, struct kv_cache_status *out_status)
{
    os_mutex_lock(&engine->mutex);
    *out_status = engine->cache_status;
    os_mutex_unlock(&engine->mutex);
}
