// SPDX-License-Identifier: Apache-2.0
// The whole of gpud but its main: engine_rig's machine behind a real socket in a scratch folder.
// Header only; the test's thread plays the app.
#ifndef KVTIER_TESTS_GPUD_IPC_RIG_H
#define KVTIER_TESTS_GPUD_IPC_RIG_H

#include "gpud/ipc.h"
#include "proto/endpoint.h"
#include "proto/instance_lock.h"
#include "tests/gpud/engine_rig.h"

struct server {
    struct machine machine;
    struct gpu_status fixed;
    char folder[256];
    char url[LIMIT_URL_BYTES];
    struct instance_lock lock;
    struct ipc *ipc;
};

static inline void server_listen(struct server *server)
{
    struct reason reason = {0};
    const struct ipc_options options = {
        .url = server->url,
        .lock = &server->lock,
        .worker = server->machine.worker,
        .engine = server->machine.engine,
        .cold_store = server->machine.rig.cold_store,
        .stats = &server->machine.stats,
        .fixed = &server->fixed,
        .vocab_count = TINY_VOCAB,
    };
    rig_check(ipc_start(&options, &server->ipc, &reason), &reason);
}

// `server` must not move afterwards.
static inline void server_create(struct server *server, const struct machine_options *options)
{
    struct reason reason = {0};
    memset(server, 0, sizeof(*server));
    machine_create(&server->machine, options);
    check_folder_create(server->folder);
    CHECK_OK(endpoint_url_make(server->folder, "gpud", server->url, &reason));
    CHECK_OK(instance_lock_acquire(server->folder, "gpud", &server->lock, &reason));
    strcpy(server->fixed.model_name, "tiny");
    server->fixed.epoch = 42;
    server->fixed.context_tokens = server->machine.options.context_tokens;
    server->fixed.block_tokens = RIG_BLOCK_TOKENS;
    server_listen(server);
}

// In the order of gpud's main.
static inline void server_destroy(struct server *server)
{
    ipc_close_intake(server->ipc);
    machine_stop(&server->machine);
    ipc_stop(server->ipc);
    instance_lock_release(&server->lock);
    assert_int_equal(machine_leased_slots(&server->machine), 0);
    machine_start(&server->machine); // for machine_destroy, which stops it
    machine_destroy(&server->machine);
    check_folder_remove(server->folder);
}

// Waits until a counter of the machine is at least `value`.
static inline void server_wait_count(atomic_uint_fast64_t *counter, uint64_t value)
{
    uint64_t give_up_ms = os_clock_ms() + APP_TIMEOUT_MS;
    while (atomic_load(counter) < value) {
        assert_true(os_clock_ms() < give_up_ms);
        os_sleep_ms(1);
    }
}

#endif
