// SPDX-License-Identifier: Apache-2.0
// gpud's life: settings, lock, model, memory, threads; then waiting for the signal to stop.
// Everything is reserved before the first request. The only file of gpud that prints errors and
// decides the exit code. Parts are made in the order of struct daemon and ended in reverse.
#include "gpud/config.h"
#include "gpud/engine.h"
#include "gpud/forward.h"
#include "gpud/ipc.h"
#include "gpud/kv_cache.h"
#include "gpud/model/chat_template.h"
#include "gpud/model/fingerprint.h"
#include "gpud/model/model_file.h"
#include "gpud/model/tokenizer.h"
#include "gpud/scheduler.h"
#include "gpud/stats.h"
#include "gpud/worker.h"
#include "proto/config_file.h"
#include "proto/instance_lock.h"
#include "proto/os/clock.h"
#include "proto/os/machine.h"
#include "proto/os/service.h"
#include "proto/os/thread.h"

#include <stdio.h>
#include <string.h>

enum {
    LOGIT_ROWS_MAX = 64, // of one step; at least --max-num-seqs
    PROGRESS_STEP = 10,  // percent of the model between two log lines
};

struct daemon {
    const struct gpu_config *config;
    struct model_file *model;
    struct tokenizer *tokenizer;
    struct chat_template *chat;
    uint32_t context_tokens;
    struct forward *forward;
    struct kv_namespace name_space;
    struct cold_store *cold_store;
    struct kv_cache *cache;
    struct scheduler *scheduler;
    struct stats stats;
    struct worker *worker;
    struct engine *engine;
    struct gpu_status fixed;
    struct ipc *ipc;
    uint64_t progress_percent;
};

// ---- the model

static void log_progress(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    struct daemon *daemon = context;
    uint64_t percent = total_bytes == 0 ? 100 : done_bytes * 100 / total_bytes;
    if (percent >= daemon->progress_percent + PROGRESS_STEP) {
        daemon->progress_percent = percent - percent % PROGRESS_STEP;
        log_event(LOG_LEVEL_INFO, "MODEL-LOADING", "percent=%llu", (unsigned long long)percent);
        char text[64];
        snprintf(text, sizeof(text), "STATUS=loading the model, %llu %%",
                 (unsigned long long)percent);
        (void)!os_service_notify(daemon->config->notify_socket, text); // for people only
    }
}

static enum status open_model(struct daemon *daemon, struct reason *reason)
{
    const struct gpu_config *config = daemon->config;
    const char *template = config->chat_template[0] != 0 ? config->chat_template : NULL;
    enum status status = model_file_open(config->model, &daemon->model, reason);
    if (status != STATUS_OK) {
        return status;
    }
    const struct gguf *gguf = model_file_gguf(daemon->model);
    status = tokenizer_create(gguf, &daemon->tokenizer, reason);
    if (status == STATUS_OK) {
        status = chat_template_create(gguf, daemon->tokenizer, template, &daemon->chat, reason);
    }
    return status;
}

// KV bytes of a whole context: whole blocks of the first (only) group.
static uint64_t context_bytes(const struct daemon *daemon, uint32_t context_tokens)
{
    const struct kv_group *group = &model_file_config(daemon->model)->groups[0];
    uint32_t block_tokens = daemon->config->block_tokens;
    uint64_t blocks = (context_tokens + block_tokens - 1) / block_tokens;
    return blocks * block_payload_bytes(group, block_tokens);
}

// The longest context whose KV takes at most `bytes`.
static uint32_t context_within(const struct daemon *daemon, uint64_t bytes)
{
    uint32_t block_tokens = daemon->config->block_tokens;
    uint64_t blocks = bytes / context_bytes(daemon, block_tokens);
    uint64_t tokens = blocks * block_tokens;
    return tokens < LIMIT_CONTEXT_TOKENS ? (uint32_t)tokens : LIMIT_CONTEXT_TOKENS;
}

static uint64_t private_bytes(void)
{
    struct os_memory memory;
    return os_machine_memory(&memory) == STATUS_OK ? memory.total_bytes / 2 : 0;
}

static void lower_context(struct daemon *daemon, uint64_t bytes, const char *of)
{
    uint32_t fits = context_within(daemon, bytes);
    if (fits < daemon->context_tokens) {
        char text[32];
        size_format(bytes, text);
        log_event(LOG_LEVEL_WARNING, "MODEL-CONTEXT",
                  "lowered_to=%u trained=%u why=\"%s holds %s of KV\"", fits,
                  daemon->context_tokens, of, text);
        daemon->context_tokens = fits;
    }
}

static enum status settle_context(struct daemon *daemon, struct reason *reason)
{
    uint32_t trained = model_file_config(daemon->model)->context_length;
    uint32_t asked = daemon->config->context_tokens;
    if (asked > trained) {
        return reason_set(
            reason, STATUS_REFUSED, "lower it; RoPE scaling is not supported yet",
            "--max-model-len: %u is more than the %u tokens the model was trained for", asked,
            trained);
    }
    daemon->context_tokens = asked != 0 ? asked : trained;
    if (asked == 0) {
        lower_context(daemon, private_bytes(), "half of RAM");
    }
    return STATUS_OK;
}

static uint32_t logit_rows(const struct gpu_config *config)
{
    return config->batch_tokens_max < LOGIT_ROWS_MAX ? config->batch_tokens_max : LOGIT_ROWS_MAX;
}

static enum status load_weights(struct daemon *daemon, struct reason *reason)
{
    const struct gpu_config *config = daemon->config;
    uint8_t digest[MODEL_DIGEST_BYTES];
    const struct forward_options options = {
        .model = daemon->model,
        .kernel_set = config->kernel_set,
        .thread_count = config->thread_count,
        .batch_tokens_max = config->batch_tokens_max,
        .logit_rows_max = logit_rows(config),
        .context_tokens_max = daemon->context_tokens,
        .block_tokens = config->block_tokens,
        .progress = log_progress,
        .progress_context = daemon,
    };
    enum status status = forward_create(&options, &daemon->forward, digest, reason);
    if (status != STATUS_OK) {
        return status;
    }
    char numerics[16];
    snprintf(numerics, sizeof(numerics), "cpu-%d", KERNELS_NUMERICS_VERSION);
    const struct model_config *model = model_file_config(daemon->model);
    const struct fingerprint_input input = {
        .config = model,
        .groups = model->groups,
        .model_digest = digest,
        .block_tokens = config->block_tokens,
        .numerics = numerics,
    };
    fingerprint_build(&input, &daemon->name_space);
    return STATUS_OK;
}

// ---- memory

// What --vram leaves to the hot pool.
static enum status hot_bytes(const struct daemon *daemon, uint64_t *out, struct reason *reason)
{
    uint64_t weights = forward_weight_bytes(daemon->forward);
    uint64_t workspace = forward_workspace_bytes(daemon->forward);
    uint64_t block = context_bytes(daemon, daemon->config->block_tokens);
    uint64_t vram = daemon->config->vram_bytes;
    *out = 0;
    if (vram == 0) {
        return STATUS_OK;
    }
    if (vram < weights + workspace + block) {
        char a[32], b[32], c[32], d[32];
        size_format(vram, a);
        size_format(weights, b);
        size_format(workspace, c);
        size_format(block, d);
        return reason_set(reason, STATUS_REFUSED, "raise it, or lower --max-num-batched-tokens",
                          "--vram: %s is less than weights %s + workspace %s + one block %s", a, b,
                          c, d);
    }
    *out = vram - weights - workspace;
    return STATUS_OK;
}

static enum status attach_store(struct daemon *daemon, struct reason *reason)
{
    bool automatic = daemon->config->context_tokens == 0;
    uint64_t whole = context_bytes(daemon, daemon->context_tokens);
    const struct cold_store_options options = {
        .store_url = daemon->config->store_url,
        .name_space = &daemon->name_space,
        .private_payload_bytes_max = whole > private_bytes() ? whole : private_bytes(),
        .payload_bytes_min = automatic ? context_bytes(daemon, 1) : whole,
    };
    bool attached = false;
    enum status status = cold_store_create(&options, &daemon->cold_store, &attached, reason);
    if (status != STATUS_OK) {
        return status;
    }
    log_event(attached ? LOG_LEVEL_INFO : LOG_LEVEL_WARNING, "GPUD-STORE", "%s",
              attached ? "attached=yes"
                       : "attached=no why=\"kvstored is not running: serving from a private arena, "
                         "nothing is kept after a restart\"");
    struct kv_status state;
    if (automatic && cold_store_status(daemon->cold_store, &state, NULL) == STATUS_OK) {
        lower_context(daemon, (uint64_t)state.slot_count * state.payload_bytes, "the store");
    }
    return STATUS_OK;
}

static enum status make_cache(struct daemon *daemon, struct reason *reason)
{
    uint64_t hot = 0;
    enum status status = hot_bytes(daemon, &hot, reason);
    if (status == STATUS_OK) {
        status = attach_store(daemon, reason);
    }
    if (status != STATUS_OK) {
        return status;
    }
    const struct kv_cache_options options = {
        .name_space = &daemon->name_space,
        .cold_store = daemon->cold_store,
        .hot_bytes = hot,
        .sequence_count_max = daemon->config->sequences_max,
        .context_tokens_max = daemon->context_tokens,
    };
    return kv_cache_create(&options, &daemon->cache, reason);
}

// ---- threads

static enum status start_worker(struct daemon *daemon, struct reason *reason)
{
    const struct gpu_config *config = daemon->config;
    const struct scheduler_options scheduler = {
        .queue_capacity = WORKER_REQUESTS_MAX,
        .batch_tokens_max = config->batch_tokens_max,
        .logit_rows_max = logit_rows(config),
    };
    enum status status = scheduler_create(&scheduler, &daemon->scheduler);
    if (status != STATUS_OK) {
        return reason_set(reason, status, "", "scheduler: out of memory");
    }
    const struct worker_options options = {
        .tokenizer = daemon->tokenizer,
        .chat = daemon->chat,
        .name_space = &daemon->name_space,
        .cold_store = daemon->cold_store,
        .ready = scheduler_queue(daemon->scheduler),
        .stats = &daemon->stats,
        .vocab_count = model_file_config(daemon->model)->vocab_count,
        .context_tokens_max = daemon->context_tokens,
        .running_max = config->sequences_max,
        .prefix_caching = config->prefix_caching,
    };
    return worker_start(&options, &daemon->worker, reason);
}

static enum status start_engine(struct daemon *daemon, struct reason *reason)
{
    const struct engine_options options = {
        .forward = daemon->forward,
        .kv_cache = daemon->cache,
        .tokenizer = daemon->tokenizer,
        .scheduler = daemon->scheduler,
        .worker = daemon->worker,
        .stats = &daemon->stats,
        .vocab_count = model_file_config(daemon->model)->vocab_count,
        .running_max = daemon->config->sequences_max,
        .batch_tokens_max = daemon->config->batch_tokens_max,
    };
    return engine_start(&options, &daemon->engine, reason);
}

static void describe(struct daemon *daemon)
{
    const struct model_config *model = model_file_config(daemon->model);
    struct gpu_status *fixed = &daemon->fixed;
    snprintf(fixed->model_name, sizeof(fixed->model_name), "%s", model->name);
    snprintf(fixed->architecture, sizeof(fixed->architecture), "%s", model->architecture);
    fingerprint_text(daemon->name_space.fingerprint, fixed->fingerprint);
    snprintf(fixed->device, sizeof(fixed->device), "cpu");
    snprintf(fixed->kernels, sizeof(fixed->kernels), "%s",
             kernels_set_name(forward_kernel_set(daemon->forward)));
    snprintf(fixed->kv_cache_dtype, sizeof(fixed->kv_cache_dtype), "f16");
    fixed->epoch = os_clock_ns();
    fixed->process_id = os_machine_process_id();
    fixed->threads = daemon->config->thread_count;
    fixed->context_tokens = daemon->context_tokens;
    fixed->trained_tokens = model->context_length;
    fixed->block_tokens = daemon->config->block_tokens;
    fixed->vram_limit_bytes = daemon->config->vram_bytes;
    fixed->weight_bytes = forward_weight_bytes(daemon->forward);
    fixed->workspace_bytes = forward_workspace_bytes(daemon->forward);
    fixed->payload_bytes = context_bytes(daemon, daemon->config->block_tokens);
    fixed->sequences_max = daemon->config->sequences_max;
}

static enum status start_ipc(struct daemon *daemon, const struct instance_lock *lock,
                             struct reason *reason)
{
    describe(daemon);
    const struct ipc_options options = {
        .url = daemon->config->url,
        .lock = lock,
        .worker = daemon->worker,
        .engine = daemon->engine,
        .cold_store = daemon->cold_store,
        .stats = &daemon->stats,
        .fixed = &daemon->fixed,
        .vocab_count = model_file_config(daemon->model)->vocab_count,
    };
    return ipc_start(&options, &daemon->ipc, reason);
}

static enum status check_batch(const struct gpu_config *config, struct reason *reason)
{
    if (config->batch_tokens_max >= config->sequences_max ||
        config->batch_tokens_max < LOGIT_ROWS_MAX) {
        return STATUS_OK;
    }
    return reason_set(reason, STATUS_INVALID, "raise it, or lower --max-num-seqs",
                      "--max-num-batched-tokens: %u is less than --max-num-seqs %u",
                      config->batch_tokens_max, config->sequences_max);
}

static enum status daemon_start(struct daemon *daemon, const struct instance_lock *lock,
                                struct reason *reason)
{
    enum status status = check_batch(daemon->config, reason);
    if (status == STATUS_OK) {
        status = open_model(daemon, reason);
    }
    if (status == STATUS_OK) {
        status = settle_context(daemon, reason);
    }
    if (status == STATUS_OK) {
        status = load_weights(daemon, reason);
    }
    if (status == STATUS_OK) {
        status = make_cache(daemon, reason);
    }
    if (status == STATUS_OK) {
        status = start_worker(daemon, reason);
    }
    if (status == STATUS_OK) {
        status = start_engine(daemon, reason);
    }
    return status == STATUS_OK ? start_ipc(daemon, lock, reason) : status;
}

// Ends whatever was made; named sessions that run are checkpointed by the worker.
static void daemon_stop(struct daemon *daemon)
{
    ipc_close_intake(daemon->ipc);
    engine_stop(daemon->engine);
    worker_stop(daemon->worker);
    ipc_stop(daemon->ipc);
    scheduler_destroy(daemon->scheduler);
    kv_cache_destroy(daemon->cache);
    cold_store_destroy(daemon->cold_store);
    forward_destroy(daemon->forward);
    chat_template_destroy(daemon->chat);
    tokenizer_destroy(daemon->tokenizer);
    model_file_close(daemon->model);
}

static void wait_for_stop(const struct daemon *daemon)
{
    const struct gpu_config *config = daemon->config;
    enum os_signal signal;
    log_event(LOG_LEVEL_INFO, "GPUD-READY",
              "version=%s listen=%s model=\"%.64s\" context=%u kernels=%s threads=%u device=cpu %s",
              KVTIER_VERSION, config->url, daemon->fixed.model_name, daemon->context_tokens,
              daemon->fixed.kernels, config->thread_count,
              config->vram_bytes == 0 ? "memory=unified" : "memory=discrete");
    if (os_service_notify(config->notify_socket, "READY=1") != STATUS_OK) {
        log_event(LOG_LEVEL_WARNING, "GPUD-NOTIFY", "%s",
                  "why=\"the service manager is not there\"");
    }
    do {
        signal = os_service_wait(OS_WAIT_FOREVER);
    } while (signal != OS_SIGNAL_STOP && signal != OS_SIGNAL_INTERRUPT);
    log_event(LOG_LEVEL_INFO, "GPUD-STOPPING", "%s", "why=signal");
    (void)!os_service_notify(config->notify_socket, "STOPPING=1"); // it asked for the stop
}

static enum status serve(const struct gpu_config *config, struct reason *reason)
{
    struct instance_lock lock;
    enum status status = instance_lock_acquire(config->paths.runtime_dir, "gpud", &lock, reason);
    if (status != STATUS_OK) {
        return status;
    }
    static struct daemon daemon; // large: the status and namespace texts
    daemon.config = config;
    status = daemon_start(&daemon, &lock, reason);
    if (status == STATUS_OK) {
        wait_for_stop(&daemon);
    }
    daemon_stop(&daemon);
    if (status == STATUS_OK) {
        log_event(LOG_LEVEL_INFO, "GPUD-STOPPED", "%s", "why=signal");
    }
    instance_lock_release(&lock);
    return status;
}

static int fail(enum status status, const struct reason *reason)
{
    fprintf(stderr, "gpud: %s%s%s\n", reason->text, reason->hint[0] != '\0' ? "; " : "",
            reason->hint);
    return status_exit_code(status);
}

int main(int argc, char **argv)
{
    struct gpu_config config;
    enum gpu_config_action action;
    struct reason reason = {0};
    os_service_init();
    enum status status = gpu_config_load(argc, argv, &config, &action, &reason);
    if (status == STATUS_INVALID || status == STATUS_UNSUPPORTED) {
        (void)fail(status, &reason);
        return 2;
    }
    if (status != STATUS_OK) {
        return fail(status, &reason);
    }
    if (action == GPU_CONFIG_DONE) {
        return fflush(stdout) == 0 ? 0 : 1;
    }
    log_level_set(config.log_level);
    status = serve(&config, &reason);
    return status == STATUS_OK ? 0 : fail(status, &reason);
}
