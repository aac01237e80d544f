// SPDX-License-Identifier: Apache-2.0
// Everything of gpud between ipc and the kernels, over a tiny random model, a small SentencePiece
// vocabulary and a private cold store, with an app that submits requests and collects their events.
// Header only; the test's thread plays ipc.
#ifndef KVTIER_TESTS_GPUD_ENGINE_RIG_H
#define KVTIER_TESTS_GPUD_ENGINE_RIG_H

#include "gpud/engine.h"
#include "gpud/worker.h"
#include "proto/os/clock.h"
#include "tests/check.h"
#include "tests/gpud/rig.h"
#include "tests/gpud/tiny_model.h"

enum {
    VOCAB_BOS = 1,
    VOCAB_EOS = 2,
    VOCAB_LETTERS = 16, // 'a'
    APP_TOKENS_MAX = 4096,
    APP_TIMEOUT_MS = 60000,
};

// ---- the vocabulary: special tokens, a few bytes, a to z, pairs of letters

static inline void vocab_name(uint32_t id, char *out)
{
    static const char *const special[] = {"<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"};
    static const uint8_t bytes[] = {0xf0, 0x9f, 0x98, 0x80, 0xc3, 0xa9, 0xe2, 0x82, 0xac, 0x0a};
    if (id < 5) {
        strcpy(out, special[id]);
    } else if (id < 15) {
        sprintf(out, "<0x%02X>", bytes[id - 5]);
    } else if (id == 15) {
        strcpy(out, "\xe2\x96\x81");
    } else if (id < VOCAB_LETTERS + 26) {
        sprintf(out, "%c", 'a' + (char)(id - VOCAB_LETTERS));
    } else {
        sprintf(out, "%c%c", 'a' + (char)(id % 26), 'a' + (char)(id / 26));
    }
}

static inline void vocab_put_array(struct tiny_model *file, const char *key, enum gguf_type type)
{
    tiny_put_text(file, key);
    tiny_put_u32(file, GGUF_TYPE_ARRAY);
    tiny_put_u32(file, type);
    tiny_put_u64(file, TINY_VOCAB);
}

// `file` must outlive the gguf.
static inline struct gguf *vocab_create(struct tiny_model *file)
{
    *file = (struct tiny_model){0};
    tiny_put(file, "GGUF", 4);
    tiny_put_u32(file, 3);
    tiny_put_u64(file, 0);
    tiny_put_u64(file, 5);
    tiny_put_number(file, "tokenizer.ggml.unknown_token_id", 0);
    tiny_put_text(file, "tokenizer.ggml.model");
    tiny_put_u32(file, GGUF_TYPE_STRING);
    tiny_put_text(file, "llama");
    vocab_put_array(file, "tokenizer.ggml.tokens", GGUF_TYPE_STRING);
    for (uint32_t id = 0; id < TINY_VOCAB; id++) {
        char name[16];
        vocab_name(id, name);
        tiny_put_text(file, name);
    }
    vocab_put_array(file, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32);
    for (uint32_t id = 0; id < TINY_VOCAB; id++) {
        float score = id < VOCAB_LETTERS + 26 ? -1000.0f : -(float)id;
        tiny_put(file, &score, sizeof(score));
    }
    vocab_put_array(file, "tokenizer.ggml.token_type", GGUF_TYPE_INT32);
    for (uint32_t id = 0; id < TINY_VOCAB; id++) {
        tiny_put_u32(file, id == 0 ? 2 : id < 5 ? 3 : id < 15 ? 6 : 1);
    }
    file->source = (struct gguf_source){
        .name = "vocab.gguf", .bytes = file->bytes, .context = file, .read = tiny_read};
    struct gguf *gguf = NULL;
    struct reason reason = {0};
    if (gguf_open(&file->source, &gguf, &reason) != STATUS_OK) {
        fail_msg("%s", reason.text);
    }
    return gguf;
}

// ---- the machine

struct machine_options {   // 0: a default
    const char *store_url; // of a kvstored that runs; NULL: a private store
    uint32_t hot_blocks;   // 0: unified
    uint32_t arena_blocks;
    uint32_t context_tokens;
    uint32_t batch_tokens;
    uint32_t logit_rows;
    uint32_t running_max;
    uint32_t threads;
};

struct machine {
    struct machine_options options;
    struct tiny_model tiny, vocab_file;
    struct gguf *gguf;
    struct tokenizer *tokenizer;
    struct chat_template *chat;
    struct rig rig;
    struct stats stats;
    struct scheduler *scheduler;
    struct worker *worker;
    struct engine *engine;
};

// The threads and what they own; the store stays when they stop.
static inline void machine_start(struct machine *machine)
{
    struct reason reason = {0};
    const struct machine_options *options = &machine->options;
    const struct scheduler_options scheduler = {.queue_capacity = WORKER_REQUESTS_MAX,
                                                .batch_tokens_max = options->batch_tokens,
                                                .logit_rows_max = options->logit_rows};
    CHECK_OK(scheduler_create(&scheduler, &machine->scheduler));
    const struct worker_options worker = {
        .tokenizer = machine->tokenizer,
        .chat = machine->chat,
        .name_space = &machine->rig.name_space,
        .cold_store = machine->rig.cold_store,
        .ready = scheduler_queue(machine->scheduler),
        .stats = &machine->stats,
        .vocab_count = TINY_VOCAB,
        .context_tokens_max = options->context_tokens,
        .running_max = options->running_max,
        .prefix_caching = true,
    };
    rig_check(worker_start(&worker, &machine->worker, &reason), &reason);
    const struct engine_options engine = {
        .forward = machine->rig.forward,
        .kv_cache = machine->rig.cache,
        .tokenizer = machine->tokenizer,
        .scheduler = machine->scheduler,
        .worker = machine->worker,
        .stats = &machine->stats,
        .vocab_count = TINY_VOCAB,
        .running_max = options->running_max,
        .batch_tokens_max = options->batch_tokens,
    };
    rig_check(engine_start(&engine, &machine->engine, &reason), &reason);
}

static inline void machine_stop(struct machine *machine)
{
    engine_stop(machine->engine);
    worker_stop(machine->worker);
    scheduler_destroy(machine->scheduler);
}

// Puts kvstored in the place of the rig's private store.
static inline void machine_attach(struct machine *machine)
{
    struct rig *rig = &machine->rig;
    kv_cache_destroy(rig->cache);
    rig->name_space.field_count = 1;
    rig->name_space.fields[0] = (struct kv_field){.name = "test", .value = "engine"};
    struct reason reason = {0};
    bool attached = false;
    uint64_t payload_bytes = block_payload_bytes(&rig->name_space.groups[0], RIG_BLOCK_TOKENS);
    const struct cold_store_options store = {
        .store_url = machine->options.store_url,
        .name_space = &rig->name_space,
        .private_payload_bytes_max = machine->options.arena_blocks * payload_bytes,
        .payload_bytes_min = payload_bytes,
    };
    for (int i = 0; i < 500 && !attached; i++) { // it may have just been started
        cold_store_destroy(rig->cold_store);
        os_sleep_ms(10);
        rig_check(cold_store_create(&store, &rig->cold_store, &attached, &reason), &reason);
    }
    assert_true(attached);
    const struct kv_cache_options cache = {
        .name_space = &rig->name_space,
        .cold_store = rig->cold_store,
        .hot_bytes = machine->options.hot_blocks * payload_bytes,
        .sequence_count_max = machine->options.running_max,
        .context_tokens_max = machine->options.context_tokens,
    };
    rig_check(kv_cache_create(&cache, &rig->cache, &reason), &reason);
}

static inline uint32_t machine_default(uint32_t value, uint32_t fallback)
{
    return value != 0 ? value : fallback;
}

// `machine` must not move afterwards.
static inline void machine_create(struct machine *machine, const struct machine_options *options)
{
    static const enum tensor_type types[8] = {
        TENSOR_TYPE_F16,  TENSOR_TYPE_Q8_0, TENSOR_TYPE_F16,  TENSOR_TYPE_F32,
        TENSOR_TYPE_Q4_0, TENSOR_TYPE_Q4_1, TENSOR_TYPE_BF16, TENSOR_TYPE_F16,
    };
    memset(machine, 0, sizeof(*machine));
    machine->options = (struct machine_options){
        .store_url = options->store_url,
        .hot_blocks = options->hot_blocks,
        .arena_blocks = machine_default(options->arena_blocks, 64),
        .context_tokens = machine_default(options->context_tokens, 1024),
        .batch_tokens = machine_default(options->batch_tokens, 64),
        .logit_rows = machine_default(options->logit_rows, 16),
        .running_max = machine_default(options->running_max, 4),
        .threads = machine_default(options->threads, 1),
    };
    struct reason reason = {0};
    tiny_model_create(&machine->tiny, types, 99);
    machine->gguf = vocab_create(&machine->vocab_file);
    rig_check(tokenizer_create(machine->gguf, &machine->tokenizer, &reason), &reason);
    rig_check(
        chat_template_create(machine->gguf, machine->tokenizer, "chatml", &machine->chat, &reason),
        &reason);
    const struct rig_options rig = {
        .model = machine->tiny.model,
        .kernel_set = KERNEL_SET_AUTO,
        .thread_count = machine->options.threads,
        .hot_blocks = machine->options.hot_blocks,
        .arena_blocks = machine->options.arena_blocks,
        .context_tokens = machine->options.context_tokens,
    };
    rig_create(&machine->rig, &rig);
    if (options->store_url != NULL) {
        machine_attach(machine);
    }
    machine_start(machine);
}

// Slots that some request still holds.
static inline uint32_t machine_leased_slots(struct machine *machine)
{
    struct kv_status status;
    struct reason reason = {0};
    rig_check(cold_store_status(machine->rig.cold_store, &status, &reason), &reason);
    return status.slot_leased_count;
}

static inline void machine_destroy(struct machine *machine)
{
    machine_stop(machine);
    assert_int_equal(machine_leased_slots(machine), 0);
    rig_destroy(&machine->rig);
    chat_template_destroy(machine->chat);
    tokenizer_destroy(machine->tokenizer);
    gguf_close(machine->gguf);
    free(machine->vocab_file.file);
    tiny_model_destroy(&machine->tiny);
}

// ---- an app

// What came back; `reply` is NULL once the end was seen.
struct app {
    struct reply *reply;
    bool has_start, is_done, is_error;
    struct reply_start start;
    struct reply_done done;
    struct reply_error error;
    struct kv_checkpoint_reply saved;
    uint32_t progress_count;
    uint32_t token_count, row_count, session_count;
    uint32_t ids[APP_TOKENS_MAX]; // of tokens, or of rows, or of IDS
    uint64_t hashes[APP_TOKENS_MAX];
    double logprobs[APP_TOKENS_MAX], lses[APP_TOKENS_MAX];
    uint32_t positions[APP_TOKENS_MAX], tops[APP_TOKENS_MAX];
    uint32_t id_count;
    struct kv_session_info sessions[8];
    char text[3 * APP_TOKENS_MAX];
    size_t text_bytes;
};

static inline void app_wake(void *context, uint64_t tag)
{
    (void)context;
    (void)tag;
}

// A request of user "user" with a reply; settings that a test does not change are greedy.
static inline struct request *app_request(struct app *app, enum request_kind kind)
{
    memset(app, 0, sizeof(*app));
    struct request *request = request_create(kind);
    assert_non_null(request);
    memcpy(request->salt, "user", 4);
    request->salt_bytes = 4;
    request->input.sampling.temperature = 0;
    request->input.ignore_eos = true;
    request->input.logits_hash = true;
    CHECK_OK(reply_create(app_wake, NULL, 0, &app->reply));
    request->reply = app->reply;
    return request;
}

static inline void app_set_ids(struct request *request, const uint32_t *ids, uint32_t count)
{
    free(request->input.prompt_ids);
    request->input.prompt_ids = malloc(count * sizeof(*ids) + 1);
    if (count > 0) {
        memcpy(request->input.prompt_ids, ids, count * sizeof(*ids));
    }
    request->input.prompt_id_count = count;
}

static inline void app_set_text(struct request *request, const char *text)
{
    request->input.prompt = strdup(text);
    request->input.prompt_bytes = strlen(text);
}

static inline void app_take_score(struct app *app, const struct reply_score *row)
{
    uint32_t i = app->row_count++;
    app->ids[i] = row->id;
    app->positions[i] = row->position;
    app->hashes[i] = row->logits_hash;
    app->logprobs[i] = row->has_next ? row->next_logprob : 0;
    app->lses[i] = row->lse;
    app->tops[i] = row->top_count > 0 ? row->top_ids[0] : UINT32_MAX;
}

static inline void app_take(struct app *app, const struct reply_event *event)
{
    assert_false(app->is_done || app->is_error); // nothing after the end
    switch (event->kind) {
    case REPLY_EVENT_START:
        assert_false(app->has_start);
        app->has_start = true;
        app->start = event->start;
        break;
    case REPLY_EVENT_PROGRESS:
        app->progress_count++;
        break;
    case REPLY_EVENT_TOKEN:
        app->ids[app->token_count] = event->token.id;
        app->hashes[app->token_count++] = event->token.logits_hash;
        memcpy(app->text + app->text_bytes, event->token.text, event->token.text_bytes);
        app->text_bytes += event->token.text_bytes;
        break;
    case REPLY_EVENT_SCORE:
        app_take_score(app, &event->score);
        break;
    case REPLY_EVENT_IDS:
        app->id_count = event->ids.count;
        memcpy(app->ids, event->ids.ids, event->ids.count * sizeof(*app->ids));
        break;
    case REPLY_EVENT_TEXT:
        memcpy(app->text, event->text.text, event->text.bytes);
        app->text_bytes = event->text.bytes;
        break;
    case REPLY_EVENT_SESSIONS:
        app->session_count = event->sessions.count;
        for (uint32_t i = 0; i < event->sessions.count && i < 8; i++) {
            app->sessions[i] = event->sessions.rows[i];
        }
        break;
    case REPLY_EVENT_SAVED:
        app->saved = event->saved;
        break;
    case REPLY_EVENT_DONE:
        app->is_done = true;
        app->done = event->done;
        break;
    case REPLY_EVENT_ERROR:
        app->is_error = true;
        app->error = event->error;
        break;
    }
}

static inline void app_submit(struct machine *machine, struct request *request)
{
    CHECK_OK(worker_submit(machine->worker, request));
}

// Takes what waits; true at the end, after which the reply is dropped.
static inline bool app_poll(struct app *app)
{
    struct reply_event event;
    while (app->reply != NULL && reply_pop(app->reply, &event)) {
        app_take(app, &event);
    }
    if (app->reply != NULL && (app->is_done || app->is_error)) {
        reply_drop(app->reply);
        app->reply = NULL;
    }
    return app->reply == NULL;
}

static inline void app_wait(struct app *app)
{
    uint64_t give_up_ms = os_clock_ms() + APP_TIMEOUT_MS;
    while (!app_poll(app)) {
        assert_true(os_clock_ms() < give_up_ms);
        os_sleep_ms(1);
    }
}

static inline void app_run(struct machine *machine, struct app *app, struct request *request)
{
    app_submit(machine, request);
    app_wait(app);
}

static inline void app_expect_done(const struct app *app, enum finish_reason reason)
{
    if (app->is_error) {
        fail_msg("%s: %s", status_name(app->error.status), app->error.reason.text);
    }
    assert_true(app->is_done);
    assert_int_equal(app->done.finish_reason, reason);
}

static inline void app_expect_error(const struct app *app, enum status status, const char *words)
{
    assert_true(app->is_error);
    assert_int_equal(app->error.status, status);
    if (strstr(app->error.reason.text, words) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", words, app->error.reason.text);
    }
}

// Ids that never end a text, from a seed.
static inline void random_ids(uint32_t *ids, uint32_t count, uint64_t seed)
{
    for (uint32_t i = 0; i < count; i++) {
        ids[i] = VOCAB_LETTERS + (uint32_t)(check_random(&seed) % (TINY_VOCAB - VOCAB_LETTERS));
    }
}

// Generates `max_tokens` after `ids`, in session `name` (or NULL).
static inline void app_generate(struct machine *machine, struct app *app, const char *name,
                                const uint32_t *ids, uint32_t count, int64_t max_tokens)
{
    struct request *request = app_request(app, REQUEST_KIND_GENERATE);
    app_set_ids(request, ids, count);
    request->input.max_tokens = max_tokens;
    request->input.session = name == NULL ? NULL : strdup(name);
    app_run(machine, app, request);
}

#endif
