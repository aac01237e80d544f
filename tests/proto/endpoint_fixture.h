// SPDX-License-Identifier: Apache-2.0
// What the endpoint tests share: a scratch folder with its lock and URL, and a peer in a process of
// its own (this test program, started again) that can be killed like a daemon.
#ifndef KVTIER_TESTS_PROTO_ENDPOINT_FIXTURE_H
#define KVTIER_TESTS_PROTO_ENDPOINT_FIXTURE_H

#include "tests/check.h"

#include "proto/endpoint.h"
#include "proto/instance_lock.h"
#include "proto/limits.h"
#include "proto/os/clock.h"
#include "proto/os/thread.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/wait.h>

struct fixture {
    char folder[256];
    char url[LIMIT_URL_BYTES];
    struct instance_lock lock;
};

static inline int fixture_setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    check_folder_create(fixture->folder);
    CHECK_OK(endpoint_url_make(fixture->folder, "test", fixture->url, NULL));
    CHECK_OK(instance_lock_acquire(fixture->folder, "test", &fixture->lock, NULL));
    *state = fixture;
    return 0;
}

static inline int fixture_teardown(void **state)
{
    struct fixture *fixture = *state;
    instance_lock_release(&fixture->lock);
    check_folder_remove(fixture->folder);
    free(fixture);
    return 0;
}

// Starts this program again as `role FOLDER`, and waits until it has printed a line: it listens.
static inline pid_t peer_start(const char *role, const char *folder)
{
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(ready[1], STDOUT_FILENO);
        close(ready[0]);
        close(ready[1]);
        execl("/proc/self/exe", "peer", role, folder, (char *)NULL);
        _exit(127);
    }
    close(ready[1]);
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static inline void peer_end(pid_t pid, int signal_number)
{
    assert_int_equal(kill(pid, signal_number), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

#endif
