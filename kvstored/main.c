// SPDX-License-Identifier: Apache-2.0
// kvstored: settings, the instance lock, the dispatcher's thread, and waiting for the signal to
// stop. The only file that prints errors and decides the exit code.

#include "kvstored/config.h"
#include "kvstored/dispatcher.h"
#include "proto/config_file.h"
#include "proto/os/service.h"
#include "proto/os/thread.h"

#include <stdio.h>

enum { STOP_MS = 20000 }; // for what is queued for disk when stopping

static int fail(enum status status, const struct reason *reason)
{
    fprintf(stderr, "kvstored: %s%s%s\n", reason->text, reason->hint[0] != '\0' ? "; " : "",
            reason->hint);
    return status == STATUS_INVALID ? 2 : status_exit_code(status);
}

static void wait_for_stop(const struct store_config *config)
{
    enum os_signal signal;
    char swap[32], disk[32];
    size_format(config->swap_bytes, swap);
    size_format(config->disk_bytes, disk);
    log_event(LOG_LEVEL_INFO, "KVSTORED-READY",
              "version=%s listen=%s data_dir=\"%s\" swap_space=\"%s\" disk_space=\"%s\"",
              KVTIER_VERSION, config->url, config->data_dir, swap, disk);
    if (os_service_notify(config->notify_socket, "READY=1") != STATUS_OK) {
        log_event(LOG_LEVEL_WARNING, "KVSTORED-NOTIFY", "why=\"the service manager is not there\"");
    }
    do {
        signal = os_service_wait(OS_WAIT_FOREVER);
    } while (signal != OS_SIGNAL_STOP && signal != OS_SIGNAL_INTERRUPT);
    log_event(LOG_LEVEL_INFO, "KVSTORED-STOPPING", "within_ms=%d", STOP_MS);
    (void)!os_service_notify(config->notify_socket, "STOPPING=1"); // it asked for the stop
}

static enum status serve(const struct store_config *config, struct reason *reason)
{
    struct instance_lock lock;
    struct dispatcher *dispatcher;
    char arena_name[RUNTIME_ARENA_NAME_BYTES];
    enum status status =
        instance_lock_acquire(config->paths.runtime_dir, "kvstored", &lock, reason);
    if (status != STATUS_OK) {
        return status;
    }
    status = runtime_dir_arena_name(config->paths.runtime_dir, arena_name);
    if (status != STATUS_OK) {
        reason_set(reason, status, "check it", "%.200s: cannot be read", config->paths.runtime_dir);
    } else {
        const struct dispatcher_options options = {
            .url = config->url,
            .lock = &lock,
            .payload_bytes_max = config->swap_bytes,
            .arena_name = arena_name,
            .data_dir = config->data_dir,
            .disk_bytes_max = config->disk_bytes,
        };
        status = dispatcher_start(&options, &dispatcher, reason);
    }
    if (status == STATUS_OK) {
        wait_for_stop(config);
        dispatcher_stop(dispatcher, STOP_MS);
        log_event(LOG_LEVEL_INFO, "KVSTORED-STOPPED", "%s", "why=signal");
    }
    instance_lock_release(&lock);
    return status;
}

int main(int argc, char **argv)
{
    struct store_config config;
    enum store_config_action action;
    struct reason reason = {0};
    os_service_init();
    enum status status = store_config_load(argc, argv, &config, &action, &reason);
    if (status != STATUS_OK) {
        return fail(status, &reason);
    }
    if (action == STORE_CONFIG_DONE) {
        return fflush(stdout) == 0 ? 0 : 1;
    }
    log_level_set(config.log_level);
    status = serve(&config, &reason);
    return status == STATUS_OK ? 0 : fail(status, &reason);
}
