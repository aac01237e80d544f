// SPDX-License-Identifier: Apache-2.0
// Asks are numbered. A read answers every ask that was made before it began.
#include "gpud/store_watch.h"

#include "proto/os/clock.h"
#include "proto/os/thread.h"

#include <stdlib.h>

struct store_watch {
    struct store_watch_options options;
    struct os_thread *thread;
    // Guards all below. A leaf: nothing is called while it is held.
    struct os_mutex mutex;
    struct os_condition changed; // an ask, or stop
    uint64_t ask_count;
    uint64_t answered_count; // asks up to this number are answered
    bool stopping;
    bool known;
    struct kv_status state;
};

// Waits for an ask. Returns its number, 0 to end.
static uint64_t next_ask(struct store_watch *watch)
{
    os_mutex_lock(&watch->mutex);
    while (!watch->stopping && watch->ask_count == watch->answered_count) {
        (void)os_condition_wait(&watch->changed, &watch->mutex, OS_DEADLINE_NEVER);
    }
    uint64_t ask = watch->stopping ? 0 : watch->ask_count;
    os_mutex_unlock(&watch->mutex);
    return ask;
}

static void watch_main(void *argument)
{
    struct store_watch *watch = argument;
    uint64_t ask;
    while ((ask = next_ask(watch)) != 0) {
        struct kv_status state = {0};
        enum status status = watch->options.read(watch->options.read_context, &state);
        os_mutex_lock(&watch->mutex);
        watch->answered_count = ask;
        watch->known = status == STATUS_OK;
        watch->state = state;
        os_mutex_unlock(&watch->mutex);
        watch->options.wake(watch->options.wake_context);
    }
}

enum status store_watch_start(const struct store_watch_options *options,
                              struct store_watch **out_watch, struct reason *reason)
{
    struct store_watch *watch = calloc(1, sizeof(*watch));
    if (watch == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "store watch: out of memory");
    }
    watch->options = *options;
    os_mutex_init(&watch->mutex);
    os_condition_init(&watch->changed);
    enum status status = os_thread_start("store-watch", watch_main, watch, &watch->thread);
    if (status != STATUS_OK) {
        os_condition_finish(&watch->changed);
        os_mutex_finish(&watch->mutex);
        free(watch);
        return reason_set(reason, status, "", "store watch: its thread could not be started");
    }
    *out_watch = watch;
    return STATUS_OK;
}

void store_watch_stop(struct store_watch *watch)
{
    if (watch == NULL) {
        return;
    }
    os_mutex_lock(&watch->mutex);
    watch->stopping = true;
    os_condition_signal(&watch->changed);
    os_mutex_unlock(&watch->mutex);
    os_thread_join(watch->thread);
    os_condition_finish(&watch->changed);
    os_mutex_finish(&watch->mutex);
    free(watch);
}

uint64_t store_watch_ask(struct store_watch *watch)
{
    os_mutex_lock(&watch->mutex);
    uint64_t ask = ++watch->ask_count;
    os_condition_signal(&watch->changed);
    os_mutex_unlock(&watch->mutex);
    return ask;
}

bool store_watch_answered(struct store_watch *watch, uint64_t ask, bool *out_known,
                          struct kv_status *out_state)
{
    os_mutex_lock(&watch->mutex);
    bool answered = watch->answered_count >= ask;
    if (answered) {
        *out_known = watch->known;
        if (watch->known) {
            *out_state = watch->state;
        }
    }
    os_mutex_unlock(&watch->mutex);
    return answered;
}
