// SPDX-License-Identifier: Apache-2.0
// Starting, watching and stopping other programs, the same on every system: process_posix.c, and
// later its Windows twin. Used by gpuctl's up, down and supervisor. One thread.
#ifndef KVTIER_PROTO_OS_PROCESS_H
#define KVTIER_PROTO_OS_PROCESS_H

#include "proto/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { NOTIFY_MESSAGE_BYTES = 512 };

// Receives what a child says of itself by sd_notify(3): lines such as "READY=1" and "STATUS=...".
// Zeroed memory with fd -1 is closed.
struct notify_socket {
    int fd;
    char path[108];
};

// `path` must be free, or a socket that a dead process left. STATUS_INVALID (too long), STATUS_IO.
enum status notify_socket_open(const char *path, struct notify_socket *out_socket,
                               struct reason *reason) KV_MUST_CHECK;
void notify_socket_close(struct notify_socket *notify); // removes the file
// The next message, NUL-ended; false when none waits. Never blocks.
bool notify_socket_receive(struct notify_socket *notify, char *out_message);
// The value of a variable of a message, cut at the end of its line; false when it has none.
bool notify_message_find(const char *message, const char *name, char *out_value, size_t capacity);

struct process_options {
    char *const *argv;       // argv[0] is the path of the program; ends with NULL
    const char *log_path;    // stdout and stderr are appended to it
    const char *notify_path; // NOTIFY_SOCKET of the child, or NULL
};

// Starts a child that inherits nothing but the standard streams. STATUS_NOT_FOUND (no such
// program), STATUS_IO.
enum status process_start(const struct process_options *options, int64_t *out_pid,
                          struct reason *reason) KV_MUST_CHECK;
// Whether a child ended: its exit code, or 128 + the signal that ended it. Never blocks.
bool process_reap(int64_t pid, int *out_code);
void process_terminate(int64_t pid); // asks for an orderly stop
void process_kill(int64_t pid);

// Splits the caller in two: in the parent *out_is_child is false and *out_pipe the reading end of a
// pipe; the child has a session of its own, its standard streams on `log_path`, and the writing
// end, which is flushed at each line. Each end is closed with fclose.
enum status process_background(const char *log_path, bool *out_is_child, FILE **out_pipe,
                               struct reason *reason) KV_MUST_CHECK;

// From now on SIGTERM, SIGINT and SIGHUP end process_wait_event instead of the process.
void process_catch_stop(void);
// Sleeps until a child ends, a stop was asked for, `notify` [count] has a message, or timeout_ms.
// Returns whether a stop was asked for.
bool process_wait_event(const struct notify_socket *notify, size_t count, int timeout_ms);

// Whether `path` is a file that this user may run.
bool process_is_program(const char *path);

// The path of the running program, resolved.
enum status process_own_path(char *out_path, size_t capacity) KV_MUST_CHECK;

#endif
