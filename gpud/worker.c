// SPDX-License-Identifier: Apache-2.0
// Admission. A request that has its tokens stands in one line, first come first served; the head of
// the line leaves it when it gets a lease. Who stands there holds no slots, so two half-admitted
// requests cannot block each other, and a large request is not overtaken for ever by small ones.
//  - At most running_max leases are out, so the engine has a place for whoever comes.
//  - A session has one writer from its tokens on until its checkpoint: `writers`.
//  - A head that was refused asks again when one of ours ends, and every RETRY_MS, since slots may
//    be leased to others (kvctl pins) too. While none of ours runs it gives up after WAIT_ALONE_MS.
#include "gpud/worker.h"

#include "gpud/session.h"
#include "proto/log.h"
#include "proto/os/clock.h"
#include "proto/os/thread.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOOK_MS = 20, // how soon cancelling in line is seen
    RETRY_MS = 100,
    WAIT_ALONE_MS = 5000,
    INBOX_CAPACITY = 2 * WORKER_REQUESTS_MAX, // a request is in it at most once, submit overshoots
};

enum item_kind { ITEM_SUBMIT, ITEM_COMPLETE };

struct item {
    enum item_kind kind;
    struct request *request;
};

struct worker {
    struct worker_options options;
    struct session_rules rules;
    struct os_thread *thread;
    struct os_queue inbox;    // of struct item: ipc and engine -> worker
    atomic_uint inside_count; // relaxed: a bound, orders nothing

    // ---- worker thread only
    struct request *line, **line_end; // leave it in order; linked by `next`
    uint32_t leased_count;
    uint64_t retry_at_ms;    // the head was refused and asks again then; 0: it was not
    uint64_t alone_since_ms; // the head was refused while none of ours ran; 0: not so
    struct request *writers[WORKER_REQUESTS_MAX]; // requests that hold a session
    uint32_t writer_count;
};

// ---- one writer a session

static bool same_session(const struct request *a, const struct request *b)
{
    return a->salt_bytes == b->salt_bytes && memcmp(a->salt, b->salt, a->salt_bytes) == 0 &&
           strcmp(a->input.session, b->input.session) == 0;
}

static bool session_in_use(const struct worker *worker, const struct request *request)
{
    for (uint32_t i = 0; request->input.session != NULL && i < worker->writer_count; i++) {
        if (same_session(worker->writers[i], request)) {
            return true;
        }
    }
    return false;
}

static void session_hold(struct worker *worker, struct request *request)
{
    if (request->input.session != NULL) {
        assert(worker->writer_count < WORKER_REQUESTS_MAX);
        worker->writers[worker->writer_count++] = request;
    }
}

static void session_let_go(struct worker *worker, const struct request *request)
{
    for (uint32_t i = 0; i < worker->writer_count; i++) {
        if (worker->writers[i] == request) {
            worker->writers[i] = worker->writers[--worker->writer_count];
            return;
        }
    }
}

static enum status busy_session(const struct request *request, struct reason *reason)
{
    return reason_set(reason, STATUS_BUSY, "wait until the request that uses it ends",
                      "session %s: is in use", request->input.session);
}

// ---- the end of a request

static void count(atomic_uint_fast64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

// From here on the request counts for nobody; only its reply is still to be ended.
static void leave(struct worker *worker, struct request *request)
{
    session_let_go(worker, request);
    atomic_fetch_sub_explicit(&worker->inside_count, 1, memory_order_relaxed);
}

static void end_error(struct worker *worker, struct request *request, enum status status,
                      const struct reason *reason)
{
    leave(worker, request);
    count(&worker->options.stats->failed_count);
    reply_put_error(request->reply, status, reason);
    request_destroy(request);
}

static double ms_between(uint64_t from_ns, uint64_t to_ns)
{
    return from_ns == 0 || to_ns <= from_ns ? 0 : (double)(to_ns - from_ns) * 1e-6;
}

static void end_done(struct worker *worker, struct request *request, enum finish_reason reason)
{
    leave(worker, request);
    struct stats *stats = worker->options.stats;
    count(reason == FINISH_REASON_CANCELLED ? &stats->cancelled_count : &stats->done_count);
    struct reply_done done = {
        .finish_reason = reason,
        .completion_tokens = request->token_count - request->prompt_count,
        .ttft_ms = ms_between(request->accepted_ns, request->first_token_ns),
        .prefill_ms = ms_between(request->first_step_ns, request->first_token_ns),
        .decode_ms = ms_between(request->first_token_ns, request->last_token_ns),
    };
    if (request->input.session != NULL && request->kind == REQUEST_KIND_GENERATE &&
        !request->session_lost) {
        strncpy(done.session, request->input.session, LIMIT_SESSION_NAME_BYTES);
    }
    reply_put_done(request->reply, &done);
    request_destroy(request);
}

// A request with tokens that ended well or was cancelled, whether it ran or not: its session, if
// any, is written.
static void end_run(struct worker *worker, struct request *request)
{
    enum status status = request->status;
    struct reason reason = request->reason;
    if (status == STATUS_OK && request->input.session != NULL) {
        status = session_checkpoint(&worker->rules, request, &reason);
        if (status == STATUS_NO_SPACE || status == STATUS_IO) {
            // The disk's trouble does not take away an answer: its DONE names no session.
            log_failure(LOG_LEVEL_WARNING, "SESSION-NOT-SAVED", status, &reason);
            request->session_lost = true;
            status = STATUS_OK;
        }
    }
    cold_store_release(worker->options.cold_store, &request->lease);
    if (status == STATUS_OK) {
        end_done(worker, request, request->finish_reason);
    } else {
        log_failure(LOG_LEVEL_WARNING, "REQUEST-FAILED", status, &reason);
        end_error(worker, request, status, &reason);
    }
}

static void end_cancelled(struct worker *worker, struct request *request)
{
    request->status = STATUS_OK;
    request->finish_reason = FINISH_REASON_CANCELLED;
    end_run(worker, request);
}

// ---- admission

static uint32_t block_count(const struct worker *worker, const struct request *request)
{
    uint32_t block_tokens = worker->options.name_space->block_tokens;
    return (request->token_capacity - 1) / block_tokens + 1;
}

// How many blocks of the context may come from a cache: never the last token's, whose logits are
// needed; none at or above the first position that is scored.
static uint32_t hit_block_max(const struct worker *worker, const struct request *request)
{
    const struct request_input *input = &request->input;
    if (input->no_cache || (!worker->options.prefix_caching && input->session == NULL)) {
        return 0;
    }
    uint32_t computed_from = request->token_count - 1;
    if (request->kind == REQUEST_KIND_SCORE && input->score_from < computed_from) {
        computed_from = input->score_from;
    }
    return computed_from / worker->options.name_space->block_tokens;
}

static enum status lease(struct worker *worker, struct request *request, struct reason *reason)
{
    const struct kv_lease_request lease_request = {
        .tokens = request->tokens,
        .token_count = request->token_count,
        .hit_block_max = hit_block_max(worker, request),
        .block_count = block_count(worker, request),
        .salt = request->salt,
        .salt_bytes = request->salt_bytes,
        .mode = ATTENTION_MODE_EXACT,
        .persist = request->input.session != NULL,
    };
    return cold_store_lease(worker->options.cold_store, &lease_request, &request->lease, reason);
}

static void queued_add(struct worker *worker, int difference)
{
    atomic_fetch_add_explicit(&worker->options.stats->queued_count, (unsigned)difference,
                              memory_order_relaxed);
}

static void line_append(struct worker *worker, struct request *request)
{
    request->next = NULL;
    *worker->line_end = request;
    worker->line_end = &request->next;
    queued_add(worker, 1);
}

// Takes *link out of the line.
static struct request *line_remove(struct worker *worker, struct request **link)
{
    struct request *request = *link;
    *link = request->next;
    if (*link == NULL) {
        worker->line_end = link;
    }
    request->next = NULL;
    queued_add(worker, -1);
    return request;
}

static void drop_cancelled(struct worker *worker)
{
    struct request **link = &worker->line;
    while (*link != NULL) {
        if (reply_cancelled((*link)->reply)) {
            end_cancelled(worker, line_remove(worker, link));
        } else {
            link = &(*link)->next;
        }
    }
}

// Whether the head may wait on although it got no lease.
static bool may_wait(struct worker *worker)
{
    uint64_t now_ms = os_clock_ms();
    worker->retry_at_ms = now_ms + RETRY_MS;
    if (worker->leased_count > 0) {
        worker->alone_since_ms = 0;
        return true;
    }
    if (worker->alone_since_ms == 0) {
        worker->alone_since_ms = now_ms;
    }
    return now_ms - worker->alone_since_ms < WAIT_ALONE_MS;
}

static void admit(struct worker *worker)
{
    drop_cancelled(worker);
    if (os_clock_ms() < worker->retry_at_ms) {
        return;
    }
    while (worker->line != NULL && worker->leased_count < worker->options.running_max) {
        struct reason reason = {0};
        enum status status = lease(worker, worker->line, &reason);
        if (status == STATUS_BUSY && may_wait(worker)) {
            return;
        }
        worker->alone_since_ms = 0;
        worker->retry_at_ms = 0;
        struct request *request = line_remove(worker, &worker->line);
        if (status != STATUS_OK) {
            end_error(worker, request, status, &reason);
        } else if (os_queue_try_push(worker->options.ready, &request) != STATUS_OK) {
            end_cancelled(worker, request); // the engine has stopped
        } else {
            worker->leased_count++;
        }
    }
}

static void complete(struct worker *worker, struct request *request)
{
    assert(worker->leased_count > 0);
    worker->leased_count--;
    worker->retry_at_ms = 0;
    end_run(worker, request);
}

// ---- requests that go to the engine

// Score shows which tokens it means before anything is computed.
static enum status give_ids(struct worker *worker, struct request *request)
{
    uint32_t *ids = malloc(request->token_count * sizeof(*ids));
    if (ids == NULL) {
        return STATUS_NO_MEMORY;
    }
    memcpy(ids, request->tokens, request->token_count * sizeof(*ids));
    reply_give_ids(request->reply, ids, request->token_count, worker->options.vocab_count);
    return STATUS_OK;
}

static enum status begin(struct worker *worker, struct request *request, struct reason *reason)
{
    if (session_in_use(worker, request)) {
        return busy_session(request, reason);
    }
    enum status status = session_prepare(&worker->rules, request, reason);
    if (status == STATUS_OK && request->kind == REQUEST_KIND_SCORE) {
        status = give_ids(worker, request);
    }
    if (status == STATUS_OK) {
        session_hold(worker, request);
        line_append(worker, request);
    }
    return status;
}

// ---- commands that the worker serves alone

static enum status serve_list(struct worker *worker, struct request *request, struct reason *reason)
{
    struct kv_session_info *rows = NULL;
    uint32_t row_count = 0;
    enum status status = cold_store_session_list(worker->options.cold_store, request->salt,
                                                 request->salt_bytes, &rows, &row_count, reason);
    if (status != STATUS_OK) {
        return status;
    }
    if (request->kind == REQUEST_KIND_SESSION_LIST) {
        reply_give_sessions(request->reply, rows, row_count);
        return STATUS_OK;
    }
    for (uint32_t i = 0; i < row_count; i++) {
        if (strcmp(rows[i].name, request->input.session) == 0) {
            rows[0] = rows[i];
            reply_give_sessions(request->reply, rows, 1);
            return STATUS_OK;
        }
    }
    free(rows);
    return reason_set(reason, STATUS_NOT_FOUND, "see gpuctl session list",
                      "session %s: does not exist", request->input.session);
}

static enum status serve_save(struct worker *worker, struct request *request, struct reason *reason)
{
    struct kv_checkpoint_reply saved;
    enum status status = session_in_use(worker, request)
                             ? busy_session(request, reason)
                             : session_save(&worker->rules, request, &saved, reason);
    if (status == STATUS_OK) {
        reply_put_saved(request->reply, &saved);
    }
    return status;
}

static enum status serve_delete(struct worker *worker, struct request *request,
                                struct reason *reason)
{
    if (session_in_use(worker, request)) {
        return busy_session(request, reason);
    }
    return cold_store_session_delete(worker->options.cold_store, request->input.session,
                                     request->salt, request->salt_bytes, reason);
}

static enum status serve_tokenize(struct worker *worker, struct request *request,
                                  struct reason *reason)
{
    const struct tokenizer_input input = {
        .text = request->input.prompt,
        .bytes = request->input.prompt_bytes,
        .add_special = request->input.add_special,
        .parse_special = request->input.parse_special,
    };
    struct token_list list = {0};
    enum status status = tokenizer_encode(worker->options.tokenizer, &input, &list);
    if (status != STATUS_OK) {
        token_list_finish(&list);
        return reason_set(reason, status, "", "text: %llu bytes cannot be tokenized",
                          (unsigned long long)input.bytes);
    }
    reply_give_ids(request->reply, list.tokens, (uint32_t)list.count, worker->options.vocab_count);
    return STATUS_OK;
}

static enum status serve_detokenize(struct worker *worker, struct request *request,
                                    struct reason *reason)
{
    struct token_text text;
    enum status status =
        tokenizer_decode(worker->options.tokenizer, request->input.prompt_ids,
                         request->input.prompt_id_count, true, &text); // special ones by name
    if (status != STATUS_OK) {
        return reason_set(reason, status, "", "ids: out of memory");
    }
    reply_give_text(request->reply, text.text, text.bytes);
    return STATUS_OK;
}

static enum status serve(struct worker *worker, struct request *request, struct reason *reason)
{
    switch (request->kind) {
    case REQUEST_KIND_SESSION_LIST:
    case REQUEST_KIND_SESSION_SHOW:
        return serve_list(worker, request, reason);
    case REQUEST_KIND_SESSION_SAVE:
        return serve_save(worker, request, reason);
    case REQUEST_KIND_SESSION_DELETE:
        return serve_delete(worker, request, reason);
    case REQUEST_KIND_TOKENIZE:
        return serve_tokenize(worker, request, reason);
    case REQUEST_KIND_DETOKENIZE:
        return serve_detokenize(worker, request, reason);
    default:
        return reason_set(reason, STATUS_UNSUPPORTED, "", "request: is of no known kind");
    }
}

// ---- the thread

static void take_in(struct worker *worker, struct request *request)
{
    struct reason reason = {0};
    bool runs = request->kind == REQUEST_KIND_GENERATE || request->kind == REQUEST_KIND_SCORE;
    count(&worker->options.stats->request_count);
    if (reply_cancelled(request->reply)) {
        end_done(worker, request, FINISH_REASON_CANCELLED); // nobody saw it begin
        return;
    }
    enum status status = runs ? begin(worker, request, &reason) : serve(worker, request, &reason);
    if (status != STATUS_OK) {
        end_error(worker, request, status, &reason);
    } else if (!runs) {
        end_done(worker, request, FINISH_REASON_NONE);
    }
}

static void worker_main(void *argument)
{
    struct worker *worker = argument;
    struct item item;
    enum status status = STATUS_OK;
    while (status != STATUS_CLOSED) {
        status = os_queue_pop(&worker->inbox, &item,
                              worker->line == NULL ? (uint32_t)OS_WAIT_FOREVER : LOOK_MS);
        if (status == STATUS_OK && item.kind == ITEM_SUBMIT) {
            take_in(worker, item.request);
        } else if (status == STATUS_OK) {
            complete(worker, item.request);
        }
        admit(worker);
    }
    while (worker->line != NULL) {
        end_cancelled(worker, line_remove(worker, &worker->line));
    }
}

enum status worker_start(const struct worker_options *options, struct worker **out_worker,
                         struct reason *reason)
{
    assert(options->running_max > 0);
    struct worker *worker = calloc(1, sizeof(*worker));
    if (worker == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "worker: out of memory");
    }
    worker->options = *options;
    worker->rules = (struct session_rules){
        .tokenizer = options->tokenizer,
        .chat = options->chat,
        .name_space = options->name_space,
        .cold_store = options->cold_store,
        .vocab_count = options->vocab_count,
        .context_tokens_max = options->context_tokens_max,
        .piece_bytes_max = session_piece_bytes_max(options->tokenizer),
    };
    worker->line_end = &worker->line;
    enum status status = os_queue_init(&worker->inbox, sizeof(struct item), INBOX_CAPACITY);
    if (status == STATUS_OK) {
        status = os_thread_start("worker", worker_main, worker, &worker->thread);
    }
    if (status != STATUS_OK) {
        os_queue_finish(&worker->inbox);
        free(worker);
        return reason_set(reason, status, "", "worker: its thread could not be started");
    }
    *out_worker = worker;
    return STATUS_OK;
}

void worker_stop(struct worker *worker)
{
    if (worker == NULL) {
        return;
    }
    os_queue_close(&worker->inbox);
    os_thread_join(worker->thread);
    assert(worker->leased_count == 0);
    os_queue_finish(&worker->inbox);
    free(worker);
}

enum status worker_submit(struct worker *worker, struct request *request)
{
    uint32_t inside = atomic_fetch_add_explicit(&worker->inside_count, 1, memory_order_relaxed);
    request->accepted_ns = os_clock_ns();
    const struct item item = {.kind = ITEM_SUBMIT, .request = request};
    enum status status =
        inside >= WORKER_REQUESTS_MAX ? STATUS_BUSY : os_queue_try_push(&worker->inbox, &item);
    if (status != STATUS_OK) {
        atomic_fetch_sub_explicit(&worker->inside_count, 1, memory_order_relaxed);
    }
    return status;
}

void worker_complete(struct worker *worker, struct request *request)
{
    const struct item item = {.kind = ITEM_COMPLETE, .request = request};
    enum status status = os_queue_try_push(&worker->inbox, &item);
    assert(status == STATUS_OK); // the engine stops first, and the inbox holds all there can be
    (void)status;
}
