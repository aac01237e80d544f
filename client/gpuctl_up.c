// SPDX-License-Identifier: Apache-2.0
// gpuctl up, gpuctl down. `up` leaves a supervisor behind (supervisor.c), which starts both
// daemons, restarts one that died, and stops them in order when `down` asks it to. The two talk
// through the supervisor's lock (who runs), a pipe (how starting went) and SIGTERM.
#include "client/gpuctl.h"

#include "client/config.h"
#include "client/console.h"
#include "client/supervisor.h"
#include "proto/instance_lock.h"
#include "proto/os/clock.h"
#include "proto/os/process.h"
#include "proto/os/terminal.h"
#include "proto/os/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STOP_WAIT_MS = 100000, POLL_MS = 50 };

static const char *const store_options[] = {"--swap-space", "--disk-space", "--data-dir"};

static const char up_help[] =
    "Usage: gpuctl up --model FILE [options of gpud] [options of kvstored]\n"
    "\n"
    "Starts kvstored and gpud in the background and waits until both are ready. A supervisor\n"
    "restarts one that dies. --swap-space, --disk-space and --data-dir go to kvstored, every "
    "other\n"
    "option to gpud: see `gpud --help` and `kvstored --help`. Logs: ~/.local/state/kvtier.\n";

static bool is_store_option(const char *text)
{
    for (size_t i = 0; i < sizeof(store_options) / sizeof(store_options[0]); i++) {
        size_t bytes = strlen(store_options[i]);
        if (strncmp(text, store_options[i], bytes) == 0 &&
            (text[bytes] == 0 || text[bytes] == '=')) {
            return true;
        }
    }
    return false;
}

// Deals the arguments out to the two daemons.
static void deal_options(int argc, char **argv, struct supervisor_options *out)
{
    for (int i = 1; i < argc; i++) {
        struct supervisor_program *program =
            &out->programs[is_store_option(argv[i]) ? SUPERVISOR_KVSTORED : SUPERVISOR_GPUD];
        bool has_value = is_store_option(argv[i]) && strchr(argv[i], '=') == NULL;
        program->argv[program->argc++] = argv[i];
        if (has_value && i + 1 < argc) {
            program->argv[program->argc++] = argv[++i];
        }
    }
}

static enum status find_programs(struct supervisor_options *options, struct reason *reason)
{
    static struct config_path paths[SUPERVISOR_PROGRAMS], logs[SUPERVISOR_PROGRAMS];
    static const char *const names[SUPERVISOR_PROGRAMS] = {"kvstored", "gpud"};
    for (int i = 0; i < SUPERVISOR_PROGRAMS; i++) {
        enum status status = config_find_program(names[i], &paths[i], reason);
        if (status == STATUS_OK) {
            status = config_log_path(names[i], &logs[i], reason);
        }
        if (status != STATUS_OK) {
            return status;
        }
        options->programs[i].name = names[i];
        options->programs[i].log_path = logs[i].text;
        options->programs[i].argv[0] = paths[i].text;
        options->programs[i].argc = 1;
    }
    return STATUS_OK;
}

// Reads what the supervisor says about starting until it closes its end: lines "wait TEXT", then
// "ok", or "fail CODE TEXT".
static int follow_start(FILE *pipe)
{
    char line[SUPERVISOR_LINE_BYTES];
    int code = 1;
    bool said = false;
    while (fgets(line, sizeof(line), pipe) != NULL) {
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, "wait ", 5) == 0) {
            if (os_terminal_errors()) {
                fprintf(stderr, "\r\033[K%s", line + 5);
            }
        } else if (strcmp(line, "ok") == 0) {
            code = 0;
            said = true;
        } else if (strncmp(line, "fail ", 5) == 0) {
            char *text = NULL;
            code = (int)strtol(line + 5, &text, 10);
            fprintf(stderr, "%sgpuctl: up:%s\n", os_terminal_errors() ? "\r\033[K" : "", text);
            said = true;
        }
    }
    fclose(pipe);
    if (!said) {
        fprintf(stderr, "gpuctl: up: the supervisor ended; see its log\n");
    } else if (code == 0) {
        fprintf(stderr, "%skvtier is up; gpuctl status shows it, gpuctl down stops it\n",
                os_terminal_errors() ? "\r\033[K" : "");
    }
    return code == 0 || said ? code : 1;
}

static enum status start(int argc, char **argv, int *out_code, struct reason *reason)
{
    static struct supervisor_options options;
    struct runtime_paths paths;
    struct config_path log;
    enum status status = config_paths(&paths, reason);
    if (status == STATUS_OK) {
        status = runtime_dir_prepare(paths.runtime_dir, reason);
    }
    if (status == STATUS_OK) {
        status = find_programs(&options, reason);
    }
    if (status == STATUS_OK) {
        status = config_log_path("supervisor", &log, reason);
    }
    if (status != STATUS_OK) {
        return status;
    }
    deal_options(argc, argv, &options);
    options.runtime_dir = paths.runtime_dir;
    bool is_child = false;
    FILE *pipe = NULL;
    status = process_background(log.text, &is_child, &pipe, reason);
    if (status == STATUS_OK && is_child) {
        options.report = pipe;
        exit(supervisor_run(&options));
    }
    if (status == STATUS_OK) {
        *out_code = follow_start(pipe);
    }
    return status;
}

int gpuctl_up(int argc, char **argv)
{
    struct gpuctl gpuctl = {0};
    struct reason reason = {0};
    int code = 1;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            fputs(up_help, stdout);
            return 0;
        }
    }
    if (argc > SUPERVISOR_ARGUMENTS_MAX - 2) {
        (void)reason_set(&reason, STATUS_INVALID, "use a config file", "up: too many options");
        (void)gpuctl_fail(&gpuctl, STATUS_INVALID, &reason);
        return GPUCTL_EXIT_USAGE;
    }
    enum status status = start(argc, argv, &code, &reason);
    return status == STATUS_OK ? code : gpuctl_fail(&gpuctl, status, &reason);
}

// ---- down

// Asks the holder of a lock to end and waits until the lock is free. STATUS_NOT_FOUND when nobody
// held it. Whoever holds it is asked of the system, so a process id that was used again is safe.
static enum status stop_holder(const char *runtime_dir, const char *name, struct reason *reason)
{
    int64_t pid = supervisor_holder(runtime_dir, name);
    if (pid == 0) {
        return STATUS_NOT_FOUND;
    }
    uint64_t started_ms = os_clock_ms();
    process_terminate(pid);
    while (supervisor_holder(runtime_dir, name) == pid) {
        if (os_clock_ms() - started_ms > STOP_WAIT_MS) {
            return reason_set(reason, STATUS_TIMEOUT, "see its log",
                              "down: %s, process %lld, does not end", name, (long long)pid);
        }
        os_sleep_ms(POLL_MS);
    }
    return STATUS_OK;
}

static enum status stop(struct reason *reason)
{
    struct runtime_paths paths;
    enum status status = config_paths(&paths, reason);
    if (status != STATUS_OK) {
        return status;
    }
    // The supervisor stops both; those that it left behind, or that were started by hand, are
    // stopped in the same order.
    static const char *const names[] = {"supervisor", "gpud", "kvstored"};
    bool found = false;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        status = stop_holder(paths.runtime_dir, names[i], reason);
        if (status != STATUS_OK && status != STATUS_NOT_FOUND) {
            return status;
        }
        found = found || status == STATUS_OK;
    }
    if (!found) {
        fprintf(stderr, "gpuctl: down: nothing runs in %s\n", paths.runtime_dir);
    }
    return STATUS_OK;
}

int gpuctl_down(int argc, char **argv)
{
    struct gpuctl gpuctl = {0};
    const struct option_spec specs[] = {
        {.name = "json", .kind = OPTION_FLAG, .help = "print JSON errors", .target = &gpuctl.json}};
    const struct options_command command = {
        .name = "gpuctl down",
        .arguments = "",
        .summary = "Stops gpud, then kvstored. Running sessions are kept.",
        .specs = specs,
        .spec_count = sizeof(specs) / sizeof(specs[0]),
    };
    int first = 0;
    int exit_code = 0;
    struct reason reason = {0};
    if (!gpuctl_parse(&gpuctl, &command, argc, argv, &first, &exit_code)) {
        return exit_code;
    }
    enum status status = stop(&reason);
    return status == STATUS_OK ? 0 : gpuctl_fail(&gpuctl, status, &reason);
}
