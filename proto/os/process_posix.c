// SPDX-License-Identifier: Apache-2.0
// Children are started with fork and exec; between the two only async-signal-safe calls are made.
// Signals wake process_wait_event through a pipe, so that none is lost between a check and a sleep.
#include "proto/os/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { ENVIRONMENT_MAX = 4096, EXEC_FAILED = 127, NOTIFY_COUNT_MAX = 4 };

// ---- notify sockets

enum status notify_socket_open(const char *path, struct notify_socket *out_socket,
                               struct reason *reason)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address.sun_path)) {
        return reason_set(reason, STATUS_INVALID, "use a shorter KVTIER_RUNTIME_DIR",
                          "%s: longer than a socket path can be", path);
    }
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return reason_set(reason, STATUS_IO, NULL, "socket: %s", strerror(errno));
    }
    unlink(path);
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        int error = errno;
        close(fd);
        return reason_set(reason, STATUS_IO, NULL, "%s: %s", path, strerror(error));
    }
    out_socket->fd = fd;
    strcpy(out_socket->path, path);
    return STATUS_OK;
}

void notify_socket_close(struct notify_socket *notify)
{
    if (notify->fd >= 0) {
        close(notify->fd);
        unlink(notify->path);
    }
    notify->fd = -1;
}

bool notify_socket_receive(struct notify_socket *notify, char *out_message)
{
    ssize_t bytes = recv(notify->fd, out_message, NOTIFY_MESSAGE_BYTES - 1, MSG_DONTWAIT);
    if (bytes < 0) {
        return false;
    }
    out_message[bytes] = 0;
    return true;
}

bool notify_message_find(const char *message, const char *name, char *out_value, size_t capacity)
{
    size_t name_bytes = strlen(name);
    for (const char *line = message; line != NULL && *line != 0;) {
        const char *end = strchr(line, '\n');
        size_t line_bytes = end != NULL ? (size_t)(end - line) : strlen(line);
        if (line_bytes > name_bytes && line[name_bytes] == '=' &&
            memcmp(line, name, name_bytes) == 0) {
            snprintf(out_value, capacity, "%.*s", (int)(line_bytes - name_bytes - 1),
                     line + name_bytes + 1);
            return true;
        }
        line = end != NULL ? end + 1 : NULL;
    }
    return false;
}

// ---- children

// The environment of a child: ours with NOTIFY_SOCKET replaced. `out_entry` holds the new variable.
static void environment_build(const char *notify_path, char *out_entry, char **out_environment)
{
    size_t count = 0;
    for (char **at = environ; *at != NULL && count + 2 < ENVIRONMENT_MAX; at++) {
        if (strncmp(*at, "NOTIFY_SOCKET=", 14) != 0) {
            out_environment[count++] = *at;
        }
    }
    if (notify_path != NULL) {
        snprintf(out_entry, 160, "NOTIFY_SOCKET=%s", notify_path);
        out_environment[count++] = out_entry;
    }
    out_environment[count] = NULL;
}

static int log_open(const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

// Our handlers do not outlive fork: a stop meant for the child before its exec must end it.
static void child_run(const struct process_options *options, char **environment, int log, int null)
{
    static const int caught[] = {SIGTERM, SIGINT, SIGHUP, SIGCHLD, SIGPIPE};
    sigset_t none;
    for (size_t i = 0; i < sizeof(caught) / sizeof(caught[0]); i++) {
        signal(caught[i], SIG_DFL);
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0); // a Ctrl-C on the terminal is for us, not for it
    dup2(null, STDIN_FILENO);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    close_range(3, ~0u, 0);
    execve(options->argv[0], options->argv, environment);
    _exit(EXEC_FAILED);
}

enum status process_start(const struct process_options *options, int64_t *out_pid,
                          struct reason *reason)
{
    if (access(options->argv[0], X_OK) != 0) {
        return reason_set(reason, STATUS_NOT_FOUND, NULL, "%s: %s", options->argv[0],
                          strerror(errno));
    }
    static char *environment[ENVIRONMENT_MAX];
    char entry[160];
    environment_build(options->notify_path, entry, environment);
    int log = log_open(options->log_path);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    enum status status = STATUS_OK;
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid_t pid = log >= 0 && null >= 0 ? fork() : -1;
    if (pid == 0) {
        child_run(options, environment, log, null);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (pid < 0) {
        status = reason_set(reason, STATUS_IO, NULL, "%s: cannot start: %s",
                            log < 0 ? options->log_path : options->argv[0], strerror(errno));
    } else {
        *out_pid = pid;
    }
    if (log >= 0) {
        close(log);
    }
    if (null >= 0) {
        close(null);
    }
    return status;
}

bool process_reap(int64_t pid, int *out_code)
{
    int state = 0;
    pid_t got = waitpid((pid_t)pid, &state, WNOHANG);
    if (got != (pid_t)pid) {
        return false;
    }
    *out_code = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
    return true;
}

void process_terminate(int64_t pid)
{
    kill((pid_t)pid, SIGTERM);
}

void process_kill(int64_t pid)
{
    kill((pid_t)pid, SIGKILL);
}

static bool streams_to_log(const char *log_path)
{
    int log = log_open(log_path);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    bool done = log >= 0 && null >= 0 && dup2(null, STDIN_FILENO) >= 0 &&
                dup2(log, STDOUT_FILENO) >= 0 && dup2(log, STDERR_FILENO) >= 0;
    if (log >= 0) {
        close(log);
    }
    if (null >= 0) {
        close(null);
    }
    return done;
}

enum status process_background(const char *log_path, bool *out_is_child, FILE **out_pipe,
                               struct reason *reason)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return reason_set(reason, STATUS_IO, NULL, "pipe: %s", strerror(errno));
    }
    pid_t pid = fork();
    if (pid < 0) {
        close(ends[0]);
        close(ends[1]);
        return reason_set(reason, STATUS_IO, NULL, "fork: %s", strerror(errno));
    }
    *out_is_child = pid == 0;
    close(pid == 0 ? ends[0] : ends[1]);
    *out_pipe = pid == 0 ? fdopen(ends[1], "w") : fdopen(ends[0], "r");
    if (*out_pipe == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, NULL, "pipe: out of memory");
    }
    setvbuf(*out_pipe, NULL, _IOLBF, 0);
    if (pid == 0) {
        setsid();
        if (!streams_to_log(log_path)) {
            return reason_set(reason, STATUS_IO, NULL, "%s: %s", log_path, strerror(errno));
        }
    }
    return STATUS_OK;
}

// ---- waiting

static int wake_pipe[2] = {-1, -1};
static atomic_bool stop_asked; // relaxed: set by a handler of the same thread

static void on_signal(int number)
{
    int error = errno;
    if (number != SIGCHLD) {
        atomic_store_explicit(&stop_asked, true, memory_order_relaxed);
    }
    ssize_t ignored = write(wake_pipe[1], "", 1); // full: a wake-up is pending already
    (void)ignored;
    errno = error;
}

void process_catch_stop(void)
{
    if (pipe2(wake_pipe, O_CLOEXEC | O_NONBLOCK) != 0) {
        return;
    }
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    sigaction(SIGCHLD, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

bool process_wait_event(const struct notify_socket *notify, size_t count, int timeout_ms)
{
    struct pollfd fds[NOTIFY_COUNT_MAX + 1] = {{.fd = wake_pipe[0], .events = POLLIN}};
    size_t used = 1;
    for (size_t i = 0; i < count && used <= NOTIFY_COUNT_MAX; i++) {
        fds[used++] = (struct pollfd){.fd = notify[i].fd, .events = POLLIN};
    }
    poll(fds, used, timeout_ms);
    char drain[64];
    while (read(wake_pipe[0], drain, sizeof(drain)) > 0) {
    }
    return atomic_load_explicit(&stop_asked, memory_order_relaxed);
}

bool process_is_program(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

enum status process_own_path(char *out_path, size_t capacity)
{
    ssize_t bytes = readlink("/proc/self/exe", out_path, capacity - 1);
    if (bytes <= 0) {
        return STATUS_IO;
    }
    out_path[bytes] = 0;
    return STATUS_OK;
}
