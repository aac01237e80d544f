// SPDX-License-Identifier: Apache-2.0
// At stake: a restarted kvstored touches nothing of a client that lives, and takes back everything
// of one that died: a process is killed that holds its row.
#include "tests/check.h"

#include "proto/arena_lock.h"

#include <signal.h>
#include <sys/wait.h>

static void a_dead_client_holds_no_lock(void **state)
{
    (void)state;
    const struct arena_geometry geometry = {
        .block_tokens = 32,
        .group_count = 1,
        .groups = {{.layer_count = 1, .kv_heads = 1, .head_dim = 8}},
        .slot_counts = {4}};
    struct arena_layout layout;
    CHECK_OK(arena_layout_compute(&geometry, &layout));
    char name[64];
    snprintf(name, sizeof(name), "/kvtier-test-%ld", (long)getpid());
    struct os_shm owner;
    struct os_shm client;
    CHECK_OK(os_shm_create(name, layout.total_bytes, &owner, NULL));
    CHECK_OK(os_shm_open(name, &client, NULL));
    bool held = true;
    CHECK_OK(arena_lock_held(&owner, &layout, 7, &held));
    assert_false(held);
    CHECK_OK(arena_lock_acquire(&client, &layout, 7));
    CHECK_OK(arena_lock_held(&owner, &layout, 7, &held));
    assert_true(held);
    CHECK_OK(arena_lock_held(&owner, &layout, 6, &held));
    assert_false(held);
    struct os_shm second;
    CHECK_OK(os_shm_open(name, &second, NULL));
    assert_int_equal(arena_lock_acquire(&second, &layout, 7), STATUS_BUSY);
    os_shm_close(&second); // another mapping's close does not end our lock, as POSIX locks would
    CHECK_OK(arena_lock_held(&owner, &layout, 7, &held));
    assert_true(held);
    arena_lock_release(&client, &layout, 7);
    CHECK_OK(arena_lock_held(&owner, &layout, 7, &held));
    assert_false(held);
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct os_shm own;
        char byte = os_shm_open(name, &own, NULL) == STATUS_OK &&
                    arena_lock_acquire(&own, &layout, 9) == STATUS_OK;
        (void)!write(ready[1], &byte, 1);
        pause();
        _exit(0);
    }
    char byte = 0;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 1);
    CHECK_OK(arena_lock_held(&owner, &layout, 9, &held));
    assert_true(held);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    CHECK_OK(arena_lock_held(&owner, &layout, 9, &held));
    assert_false(held);
    os_shm_close(&client);
    os_shm_close(&owner);
    CHECK_OK(os_shm_unlink(name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dead_client_holds_no_lock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
