// SPDX-License-Identifier: Apache-2.0
// At stake: what `save` acknowledged must be there after the daemon is killed at any moment, and an
// unclean store must open. A child saves sessions and says which were acknowledged; it is killed at
// a random time; the parent opens the store and reads every acknowledged session byte by byte.
#include "tests/kvstored/store_rig.h"

#include <signal.h>
#include <sys/wait.h>

enum { ROUNDS = 15, SLOTS = 200, SESSION_TOKENS = 16 * 20, DISK_BYTES = 64 << 20 };

// Saves sessions first, first + 1, ... and writes the number of each acknowledged one to `pipe`.
static void child(const char *folder, uint32_t first, int pipe)
{
    struct kv_namespace name_space = rig_namespace(1);
    struct store *store = rig_store(&name_space, SLOTS, folder, DISK_BYTES);
    uint32_t tokens[SESSION_TOKENS];
    struct rig_session session = {&name_space, tokens, SESSION_TOKENS, "u", true, {0}, {{{0}}}};
    for (uint32_t number = first;; number++) {
        char name[32];
        rig_tokens(number, tokens, SESSION_TOKENS);
        rig_request(store, &session);
        snprintf(name, sizeof(name), "s%u", number);
        struct kv_reply reply = rig_save(store, &session, name, false);
        if (reply.status == STATUS_OK) {
            assert_int_equal(write(pipe, &number, sizeof(number)), sizeof(number));
        }
        kv_reply_finish(&reply);
    }
}

// Runs a child for `run_ms` and kills it. Adds what it acknowledged to acknowledged[*count].
static void run_and_kill(const char *folder, uint32_t first, uint32_t run_ms,
                         uint32_t *acknowledged, uint32_t *count)
{
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(ends[0]);
        child(folder, first, ends[1]);
        _exit(1);
    }
    close(ends[1]);
    os_sleep_ms(run_ms);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status)); // it did not end by itself
    uint32_t number;
    while (read(ends[0], &number, sizeof(number)) == sizeof(number)) {
        acknowledged[(*count)++] = number;
    }
    close(ends[0]);
}

static void check_session(struct store *store, const struct kv_namespace *name_space,
                          uint32_t number)
{
    uint32_t tokens[SESSION_TOKENS + 1];
    char name[32];
    struct reason reason = {0};
    rig_tokens(number, tokens, SESSION_TOKENS);
    tokens[SESSION_TOKENS] = 1;
    snprintf(name, sizeof(name), "s%u", number);
    const struct kv_session_request request = {.name = name, .salt = "u", .salt_bytes = 1};
    CHECK_OK(store_session_get(store, &request, true, 5, &reason));
    struct kv_reply reply = rig_answer(store, 5);
    CHECK_OK(reply.status);
    assert_memory_equal(reply.session_get.tokens, tokens, SESSION_TOKENS * sizeof(uint32_t));
    kv_reply_finish(&reply);
    struct rig_session session = {name_space, tokens, SESSION_TOKENS + 1, "u", false, {0}, {{{0}}}};
    assert_int_equal(rig_request(store, &session), 0); // compares every byte
}

static void what_was_acknowledged_is_there(void **state)
{
    (void)state;
    char folder[256];
    static uint32_t acknowledged[1 << 16];
    uint32_t count = 0;
    uint64_t random = check_seed();
    struct kv_namespace name_space = rig_namespace(1);
    check_folder_create(folder);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t before = count;
        run_and_kill(folder, round * 1000, 5 + (uint32_t)(check_random(&random) % 150),
                     acknowledged, &count);
        struct store *store = rig_store(&name_space, SLOTS, folder, DISK_BYTES);
        assert_true(rig_status(store).persistence_ok);
        assert_string_equal(rig_status(store).persistence_state, "ok"); // nothing was set aside
        for (uint32_t i = before; i < count; i++) {
            check_session(store, &name_space, acknowledged[i]);
        }
        rig_check_idle(store);
        store_destroy(store, 1000);
    }
    print_message("%u sessions acknowledged\n", count);
    assert_true(count > 0);
    check_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_was_acknowledged_is_there)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
