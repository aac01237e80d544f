// SPDX-License-Identifier: Apache-2.0
// The small process that `gpuctl up` leaves behind: starts kvstored, then gpud, restarts one that
// dies other than by `down` (at once, then after 1, 2, 4 ... 30 s, reset by 10 s of health), and
// stops them in order at SIGTERM. Holds its own lock and writes its own log. One thread.
#ifndef KVTIER_CLIENT_SUPERVISOR_H
#define KVTIER_CLIENT_SUPERVISOR_H

#include <stdint.h>
#include <stdio.h>

enum {
    SUPERVISOR_KVSTORED,
    SUPERVISOR_GPUD,
    SUPERVISOR_PROGRAMS,
    SUPERVISOR_ARGUMENTS_MAX = 128,
    SUPERVISOR_LINE_BYTES = 1024,
};

struct supervisor_program {
    const char *name;
    const char *log_path;
    char *argv[SUPERVISOR_ARGUMENTS_MAX]; // argv[0] is the program's path; ends with NULL
    int argc;
};

struct supervisor_options {
    const char *runtime_dir;
    struct supervisor_program programs[SUPERVISOR_PROGRAMS]; // started in this order
    // How starting goes, a line each: "wait TEXT", then "ok" or "fail CODE TEXT"; closed then.
    FILE *report;
};

// Runs until SIGTERM. Returns the exit code.
int supervisor_run(struct supervisor_options *options);

// The process that holds the lock of `name` ("supervisor", "kvstored", "gpud") in a runtime folder,
// 0 when none does.
int64_t supervisor_holder(const char *runtime_dir, const char *name);

// How long until a program that died is started again: pure, for the test. `io_delay_ms` is 0 at
// first; `healthy_ms` is how long it had been ready.
uint64_t supervisor_delay(uint64_t *io_delay_ms, uint64_t healthy_ms);

// What it writes beside its lock, for `status`: restarts of each program so far; zeros when none
// runs.
struct supervisor_restarts {
    uint64_t counts[SUPERVISOR_PROGRAMS];
};
struct supervisor_restarts supervisor_restarts_read(const char *runtime_dir);

#endif
