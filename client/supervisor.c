// SPDX-License-Identifier: Apache-2.0
// Each program is STOPPED, STARTING (until it says READY=1) or UP. What a starting one says on its
// way and how it failed goes to the report; after that, to this process's log, which is its stderr.
#include "client/supervisor.h"

#include "proto/instance_lock.h"
#include "proto/log.h"
#include "proto/os/clock.h"
#include "proto/os/file.h"
#include "proto/os/process.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    HEALTH_MS = 10000, // so long up: the next restart is at once again
    DELAY_FIRST_MS = 1000,
    DELAY_MAX_MS = 30000,
    STOP_MS = 45000, // for one program to end in order
    POLL_MS = 200,
    LOG_BYTES_MAX = 8 << 20, // a longer log is moved aside at the next start
    PATH_BYTES = 1100,
    EXIT_BUSY = 5,
    EXIT_SIGNAL = 128, // from here on: a signal ended it
};

struct child {
    struct supervisor_program *program;
    struct notify_socket notify;
    int64_t pid; // 0: stopped
    bool ready;
    uint64_t ready_ms;      // when it became ready
    uint64_t restart_at_ms; // 0: none is planned
    uint64_t delay_ms;      // before the next restart but one
    uint64_t restart_count;
    int exit_code;   // of the last end
    long log_offset; // where the log began at the last start
};

struct supervisor {
    struct supervisor_options *options;
    struct child children[SUPERVISOR_PROGRAMS];
    struct notify_socket sockets[SUPERVISOR_PROGRAMS]; // as process_wait_event wants them
    bool stop_asked;
};

// When `gpuctl up` is gone before all is up, it was given up: nothing is left behind.
static void report(struct supervisor *supervisor, const char *line)
{
    FILE *out = supervisor->options->report;
    if (out != NULL && (fprintf(out, "%s\n", line) < 0 || fflush(out) != 0)) {
        supervisor->stop_asked = true;
    }
}

static void report_fail(struct supervisor *supervisor, int code, const char *text)
{
    char line[SUPERVISOR_LINE_BYTES];
    snprintf(line, sizeof(line), "fail %d %s", code, text);
    report(supervisor, line);
}

static void report_end(struct supervisor *supervisor)
{
    fclose(supervisor->options->report);
    supervisor->options->report = NULL;
}

// ---- restart counts, for status

static void counts_path(const char *runtime_dir, char *out)
{
    snprintf(out, PATH_BYTES, "%s/supervisor.restarts", runtime_dir);
}

static void write_counts(const struct supervisor *supervisor)
{
    char path[PATH_BYTES];
    char text[64];
    counts_path(supervisor->options->runtime_dir, path);
    int bytes = snprintf(text, sizeof(text), "%llu %llu\n",
                         (unsigned long long)supervisor->children[0].restart_count,
                         (unsigned long long)supervisor->children[1].restart_count);
    (void)!os_file_write_atomic(path, text, (size_t)bytes); // for people only
}

struct supervisor_restarts supervisor_restarts_read(const char *runtime_dir)
{
    struct supervisor_restarts restarts = {0};
    char path[PATH_BYTES];
    uint8_t *text = NULL;
    size_t bytes = 0;
    counts_path(runtime_dir, path);
    if (os_file_read_all(path, 64, &text, &bytes) == STATUS_OK) {
        char *end = NULL;
        restarts.counts[0] = strtoull((const char *)text, &end, 10);
        restarts.counts[1] = strtoull(end, NULL, 10);
        free(text);
    }
    return restarts;
}

int64_t supervisor_holder(const char *runtime_dir, const char *name)
{
    char path[PATH_BYTES];
    uint64_t holder = 0;
    struct os_file_lock lock;
    snprintf(path, sizeof(path), "%s/%s.lock", runtime_dir, name);
    enum status status = os_file_lock_acquire(path, &lock, &holder);
    if (status == STATUS_OK) {
        os_file_lock_release(&lock);
    }
    return status == STATUS_BUSY ? (int64_t)holder : 0;
}

// ---- logs

static long file_bytes(const char *path)
{
    FILE *file = fopen(path, "r");
    long bytes = 0;
    if (file != NULL) {
        fseek(file, 0, SEEK_END);
        bytes = ftell(file);
        fclose(file);
    }
    return bytes;
}

static void rotate(const char *path)
{
    char old[PATH_BYTES];
    snprintf(old, sizeof(old), "%s.1", path);
    if (file_bytes(path) > LOG_BYTES_MAX) {
        rename(path, old);
    }
}

// Why a program ended: the last line that it wrote since it was started, or that a signal did it.
static void last_line(const struct child *child, char *out, size_t capacity)
{
    char line[SUPERVISOR_LINE_BYTES - 32];
    snprintf(out, capacity, "%s: ended with exit code %d; see %s", child->program->name,
             child->exit_code, child->program->log_path);
    FILE *file = child->exit_code < EXIT_SIGNAL ? fopen(child->program->log_path, "r") : NULL;
    if (file == NULL) {
        return;
    }
    fseek(file, child->log_offset, SEEK_SET);
    while (fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "\n")] = 0;
        if (line[0] != 0) {
            snprintf(out, capacity, "%s", line);
        }
    }
    fclose(file);
}

// ---- one program

static enum status child_start(struct child *child, struct reason *reason)
{
    rotate(child->program->log_path);
    child->log_offset = file_bytes(child->program->log_path);
    child->ready = false;
    child->restart_at_ms = 0;
    child->program->argv[child->program->argc] = NULL;
    const struct process_options options = {
        .argv = child->program->argv,
        .log_path = child->program->log_path,
        .notify_path = child->notify.path,
    };
    enum status status = process_start(&options, &child->pid, reason);
    if (status != STATUS_OK) {
        child->pid = 0;
    }
    return status;
}

// Takes in what a program said and whether it ended.
static void child_look(struct supervisor *supervisor, struct child *child)
{
    char message[NOTIFY_MESSAGE_BYTES];
    char value[NOTIFY_MESSAGE_BYTES];
    char line[NOTIFY_MESSAGE_BYTES + 64];
    while (notify_socket_receive(&child->notify, message)) {
        if (notify_message_find(message, "READY", value, sizeof(value))) {
            child->ready = true;
            child->ready_ms = os_clock_ms();
        }
        if (notify_message_find(message, "STATUS", value, sizeof(value))) {
            snprintf(line, sizeof(line), "wait %s: %s", child->program->name, value);
            report(supervisor, line);
        }
    }
    if (child->pid != 0 && process_reap(child->pid, &child->exit_code)) {
        child->pid = 0;
    }
}

static void wait_event(struct supervisor *supervisor, int timeout_ms)
{
    if (process_wait_event(supervisor->sockets, SUPERVISOR_PROGRAMS, timeout_ms)) {
        supervisor->stop_asked = true;
    }
    for (int i = 0; i < SUPERVISOR_PROGRAMS; i++) {
        child_look(supervisor, &supervisor->children[i]);
    }
}

static void child_stop(struct supervisor *supervisor, struct child *child)
{
    if (child->pid == 0) {
        return;
    }
    uint64_t started_ms = os_clock_ms();
    process_terminate(child->pid);
    while (child->pid != 0 && os_clock_ms() - started_ms < STOP_MS) {
        wait_event(supervisor, POLL_MS);
    }
    if (child->pid != 0) {
        log_event(LOG_LEVEL_ERROR, "SUPERVISOR-KILL", "program=%s why=\"did not stop in %d ms\"",
                  child->program->name, STOP_MS);
        process_kill(child->pid);
        while (child->pid != 0) {
            wait_event(supervisor, POLL_MS);
        }
    }
}

// The last started first.
static void stop_all(struct supervisor *supervisor)
{
    for (int i = SUPERVISOR_PROGRAMS - 1; i >= 0; i--) {
        child_stop(supervisor, &supervisor->children[i]);
    }
}

// ---- starting

// Starts one and waits until it is ready. Returns 0, or the exit code to end with.
static int bring_up(struct supervisor *supervisor, struct child *child)
{
    struct reason reason = {0};
    char text[SUPERVISOR_LINE_BYTES - 32];
    snprintf(text, sizeof(text), "wait starting %s", child->program->name);
    report(supervisor, text);
    enum status status = child_start(child, &reason);
    if (status != STATUS_OK) {
        report_fail(supervisor, status_exit_code(status), reason.text);
        return status_exit_code(status);
    }
    while (child->pid != 0 && !child->ready && !supervisor->stop_asked) {
        wait_event(supervisor, POLL_MS);
    }
    if (child->ready && child->pid != 0) {
        return 0;
    }
    int code = child->pid != 0 || child->exit_code == 0 ? 1 : child->exit_code;
    last_line(child, text, sizeof(text));
    report_fail(supervisor, code, supervisor->stop_asked ? "stopped while starting" : text);
    return code;
}

static int bring_all_up(struct supervisor *supervisor)
{
    for (int i = 0; i < SUPERVISOR_PROGRAMS; i++) {
        int code = bring_up(supervisor, &supervisor->children[i]);
        if (code != 0) {
            return code;
        }
    }
    report(supervisor, "ok");
    report_end(supervisor);
    return supervisor->stop_asked ? 1 : 0;
}

// ---- watching

uint64_t supervisor_delay(uint64_t *io_delay_ms, uint64_t healthy_ms)
{
    uint64_t delay_ms = healthy_ms >= HEALTH_MS ? 0 : *io_delay_ms;
    uint64_t next_ms = delay_ms == 0 ? DELAY_FIRST_MS : 2 * delay_ms;
    *io_delay_ms = next_ms < DELAY_MAX_MS ? next_ms : DELAY_MAX_MS;
    return delay_ms;
}

// Plans the restart of a program that has died.
static void plan_restart(struct child *child)
{
    uint64_t now_ms = os_clock_ms();
    uint64_t delay_ms =
        supervisor_delay(&child->delay_ms, child->ready ? now_ms - child->ready_ms : 0);
    child->restart_at_ms = now_ms + delay_ms;
    log_event(LOG_LEVEL_WARNING, "SUPERVISOR-DIED", "program=%s code=%d restart_in_ms=%llu",
              child->program->name, child->exit_code, (unsigned long long)delay_ms);
}

static void restart(struct supervisor *supervisor, struct child *child)
{
    struct reason reason = {0};
    child->restart_count++;
    write_counts(supervisor);
    if (child_start(child, &reason) != STATUS_OK) {
        log_failure(LOG_LEVEL_ERROR, "SUPERVISOR-START", STATUS_IO, &reason);
        child->exit_code = 1;
    }
}

static void watch(struct supervisor *supervisor)
{
    while (!supervisor->stop_asked) {
        wait_event(supervisor, POLL_MS);
        for (int i = 0; i < SUPERVISOR_PROGRAMS && !supervisor->stop_asked; i++) {
            struct child *child = &supervisor->children[i];
            if (child->pid != 0) {
                continue;
            }
            if (child->restart_at_ms == 0) {
                plan_restart(child);
            }
            if (os_clock_ms() >= child->restart_at_ms) {
                restart(supervisor, child);
            }
        }
    }
}

static enum status open_sockets(struct supervisor *supervisor, struct reason *reason)
{
    enum status status = STATUS_OK;
    for (int i = 0; i < SUPERVISOR_PROGRAMS; i++) {
        supervisor->children[i].notify.fd = -1;
    }
    for (int i = 0; i < SUPERVISOR_PROGRAMS && status == STATUS_OK; i++) {
        char path[PATH_BYTES];
        struct child *child = &supervisor->children[i];
        child->program = &supervisor->options->programs[i];
        snprintf(path, sizeof(path), "%s/%s.notify", supervisor->options->runtime_dir,
                 child->program->name);
        status = notify_socket_open(path, &child->notify, reason);
        supervisor->sockets[i] = child->notify;
    }
    return status;
}

static void close_sockets(struct supervisor *supervisor)
{
    for (int i = 0; i < SUPERVISOR_PROGRAMS; i++) {
        notify_socket_close(&supervisor->children[i].notify);
    }
}

int supervisor_run(struct supervisor_options *options)
{
    static struct supervisor supervisor;
    struct instance_lock lock;
    struct reason reason = {0};
    supervisor.options = options;
    process_catch_stop();
    enum status status = instance_lock_acquire(options->runtime_dir, "supervisor", &lock, &reason);
    if (status != STATUS_OK) {
        char text[REASON_TEXT_BYTES + 64];
        snprintf(text, sizeof(text), "is running already: %s; gpuctl down stops it", reason.text);
        report_fail(&supervisor, EXIT_BUSY, text);
        return EXIT_BUSY;
    }
    int code = 1;
    status = open_sockets(&supervisor, &reason);
    if (status == STATUS_OK) {
        write_counts(&supervisor);
        code = bring_all_up(&supervisor);
    } else {
        report_fail(&supervisor, 1, reason.text);
    }
    if (code == 0) {
        log_event(LOG_LEVEL_INFO, "SUPERVISOR-UP", "%s", "programs=2");
        watch(&supervisor);
    }
    stop_all(&supervisor);
    close_sockets(&supervisor);
    log_event(LOG_LEVEL_INFO, "SUPERVISOR-DOWN", "code=%d", code);
    instance_lock_release(&lock);
    return code;
}
