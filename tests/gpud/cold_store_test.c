// SPDX-License-Identifier: Apache-2.0
// At stake: that gpud serves whether kvstored is there, goes or comes, that memory of a running
// request stays when kvstored dies, and that no wrong block is ever taken for a hit. Private cases
// run in this process; the others start the real kvstored (argument 1) and kill it.
#include "fill.h"
#include "gpud/cold_store.h"
#include "proto/os/clock.h"

#include <assert.h>
#include <signal.h>
#include <sys/wait.h>

enum { BLOCK_TOKENS = 32, BLOCKS = 6, TOKENS = BLOCKS * BLOCK_TOKENS };

static const char *kvstored_path;

static const struct kv_namespace name_space = {
    .fingerprint = {3, 1, 4},
    .block_tokens = BLOCK_TOKENS,
    .group_count = 1,
    .groups = {{.layer_count = 2, .kv_heads = 2, .head_dim = 64}},
    .field_count = 1,
    .fields = {{"test", "cold_store"}},
};

static uint32_t tokens[TOKENS];

static uint64_t payload_bytes(void)
{
    return block_payload_bytes(&name_space.groups[0], BLOCK_TOKENS);
}

static struct cold_store *store_create(const char *url, bool expect_attached)
{
    const struct cold_store_options options = {
        .store_url = url,
        .name_space = &name_space,
        .private_payload_bytes_max = 4 * BLOCKS * payload_bytes(),
        .payload_bytes_min = BLOCKS * payload_bytes(),
    };
    struct cold_store *store = NULL;
    struct reason reason = {0};
    bool attached = !expect_attached;
    if (cold_store_create(&options, &store, &attached, &reason) != STATUS_OK) {
        fail_msg("%s", reason.text);
    }
    assert_int_equal(attached, expect_attached);
    assert_int_equal(cold_store_attached(store), expect_attached);
    return store;
}

static struct cold_lease lease_tokens(struct cold_store *store)
{
    const struct kv_lease_request request = {
        .tokens = tokens,
        .token_count = TOKENS,
        .hit_block_max = BLOCKS - 1,
        .block_count = BLOCKS,
        .salt = "user",
        .salt_bytes = 4,
    };
    struct cold_lease lease = {0};
    struct reason reason = {0};
    if (cold_store_lease(store, &request, &lease, &reason) != STATUS_OK) {
        fail_msg("%s", reason.text);
    }
    return lease;
}

// Closes every block that is not there; returns how many were.
static uint32_t close_blocks(struct cold_store *store, struct cold_lease *lease)
{
    struct block_id parent;
    block_id_root(name_space.fingerprint, "user", 4, ATTENTION_MODE_EXACT, &parent);
    uint32_t hits = 0;
    for (uint32_t b = 0; b < BLOCKS; b++) {
        while (cold_lease_state(lease, b) == COLD_SLOT_LOADING) {
            os_sleep_ms(1);
        }
        if (cold_lease_state(lease, b) == COLD_SLOT_READY) {
            CHECK_OK(block_verify(cold_lease_header(lease, b), cold_lease_payload(lease, b),
                                  payload_bytes()));
            parent = cold_lease_header(lease, b)->id;
            hits++;
            continue;
        }
        assert_int_equal(cold_lease_state(lease, b), COLD_SLOT_FILLING);
        fill_block(&name_space, tokens, b, &parent, cold_lease_header(lease, b),
                   cold_lease_payload(lease, b));
        cold_store_publish(store, lease, b);
        assert_int_equal(cold_lease_state(lease, b), COLD_SLOT_READY);
    }
    return hits;
}

static uint32_t run_once(struct cold_store *store, bool expect_private)
{
    struct cold_lease lease = lease_tokens(store);
    assert_int_equal(lease.is_private, expect_private);
    uint32_t hits = close_blocks(store, &lease);
    cold_store_release(store, &lease);
    assert_null(lease.arena);
    return hits;
}

static void checkpoint(struct cold_store *store, const char *name)
{
    const struct kv_checkpoint checkpoint = {
        .name = name,
        .tokens = tokens,
        .token_count = TOKENS,
        .salt = "user",
        .salt_bytes = 4,
        .settings = "settings",
        .settings_bytes = 8,
    };
    struct kv_checkpoint_reply reply;
    struct reason reason = {0};
    if (cold_store_checkpoint(store, &checkpoint, &reply, &reason) != STATUS_OK) {
        fail_msg("%s", reason.text);
    }
    assert_int_equal(reply.block_count, BLOCKS);
}

static void check_session(struct cold_store *store, const char *name)
{
    struct kv_checkpoint *found = NULL;
    struct reason reason = {0};
    CHECK_OK(cold_store_session_get(store, name, "user", 4, &found, &reason));
    assert_string_equal(found->name, name);
    assert_int_equal(found->token_count, TOKENS);
    assert_memory_equal(found->tokens, tokens, sizeof(tokens));
    assert_memory_equal(found->settings, "settings", 8);
    free(found);
}

// ---- private

static void released_blocks_are_found_again(void **state)
{
    (void)state;
    struct cold_store *store = store_create(NULL, false);
    assert_int_equal(run_once(store, true), 0);
    assert_int_equal(run_once(store, true), BLOCKS - 1); // never the last token's
    struct kv_status status;
    struct reason reason = {0};
    CHECK_OK(cold_store_status(store, &status, &reason));
    assert_int_equal(status.slot_leased_count, 0);
    assert_int_equal(cold_store_unpublished_count(store), 0);
    cold_store_destroy(store);
}

static void wrong_block_is_a_miss(void **state)
{
    (void)state;
    for (uint32_t bad = 0; bad < BLOCKS - 1; bad++) {
        for (int what = 0; what < 2; what++) {
            struct cold_store *store = store_create("", false);
            struct cold_lease lease = lease_tokens(store);
            close_blocks(store, &lease);
            struct block_header *header = cold_lease_header(&lease, bad);
            cold_store_release(store, &lease);
            // The arena lies in this process: change what is cached behind the index's back.
            if (what == 0) {
                header->tokens[5] ^= 1;
            } else {
                header->id.bytes[31] ^= 1;
            }
            lease = lease_tokens(store);
            for (uint32_t b = 0; b < bad; b++) {
                assert_int_equal(cold_lease_state(&lease, b), COLD_SLOT_READY);
            }
            // Later blocks may be hits or not: they are what they say.
            assert_int_equal(cold_lease_state(&lease, bad), COLD_SLOT_FILLING);
            cold_store_release(store, &lease);
            cold_store_destroy(store);
        }
    }
}

static void sessions_live_in_memory_without_kvstored(void **state)
{
    (void)state;
    struct cold_store *store = store_create(NULL, false);
    struct reason reason = {0};
    struct kv_checkpoint *found = NULL;
    assert_int_equal(cold_store_session_get(store, "s", "user", 4, &found, &reason),
                     STATUS_NOT_FOUND);
    checkpoint(store, "s");
    check_session(store, "s");
    assert_int_equal(cold_store_session_get(store, "s", "other", 5, &found, &reason),
                     STATUS_NOT_FOUND);
    struct kv_session_info *sessions = NULL;
    uint32_t count = 0;
    CHECK_OK(cold_store_session_list(store, "user", 4, &sessions, &count, &reason));
    assert_int_equal(count, 1);
    free(sessions);
    struct kv_checkpoint save = {.name = "s", .salt = "user", .salt_bytes = 4, .sync = true};
    struct kv_checkpoint_reply reply;
    assert_int_equal(cold_store_checkpoint(store, &save, &reply, &reason), STATUS_UNREACHABLE);
    assert_non_null(strstr(reason.text, "kvstored is not running"));
    CHECK_OK(cold_store_session_delete(store, "s", "user", 4, &reason));
    assert_int_equal(cold_store_session_delete(store, "s", "user", 4, &reason), STATUS_NOT_FOUND);
    cold_store_destroy(store);
    cold_store_destroy(NULL);
}

// ---- with kvstored

struct daemon {
    char folder[256];
    char url[300];
    pid_t process;
};

static void daemon_start(struct daemon *daemon, const char *swap_space)
{
    daemon->process = fork();
    assert_true(daemon->process >= 0);
    if (daemon->process == 0) {
        setenv("KVTIER_RUNTIME_DIR", daemon->folder, 1);
        setenv("KVTIER_DATA_DIR", daemon->folder, 1);
        setenv("KVTIER_CONFIG_DIR", daemon->folder, 1);
        execl(kvstored_path, kvstored_path, "--listen", daemon->url, "--swap-space", swap_space,
              "--disk-space", "64M", (char *)NULL);
        _exit(127);
    }
    for (int i = 0; i < 500 && access(daemon->url + strlen("ipc://"), F_OK) != 0; i++) {
        usleep(10000);
    }
}

static void daemon_end(struct daemon *daemon, int signal_number)
{
    kill(daemon->process, signal_number);
    assert_int_equal(waitpid(daemon->process, NULL, 0), daemon->process);
}

static void daemon_folder(struct daemon *daemon)
{
    check_folder_create(daemon->folder);
    snprintf(daemon->url, sizeof(daemon->url), "ipc://%s/kv.sock", daemon->folder);
}

// Attaching is tried again at most once a second.
static void wait_attached(struct cold_store *store)
{
    for (int i = 0; i < 100 && !cold_store_attached(store); i++) {
        usleep(100000);
        cold_store_attach(store);
    }
    assert_true(cold_store_attached(store));
}

static void kvstored_dies_and_returns(void **state)
{
    (void)state;
    struct daemon daemon;
    daemon_folder(&daemon);
    daemon_start(&daemon, "64M");
    struct cold_store *store = store_create(daemon.url, true);
    assert_int_equal(run_once(store, false), 0);
    assert_int_equal(run_once(store, false), BLOCKS - 1);
    checkpoint(store, "before");
    check_session(store, "before");

    struct cold_lease lease = lease_tokens(store);
    daemon_end(&daemon, SIGKILL);
    // The running request goes on in the slots it was lent.
    close_blocks(store, &lease);
    assert_int_equal(close_blocks(store, &lease), BLOCKS);
    // The next one is served from a private arena.
    assert_int_equal(run_once(store, true), 0);
    assert_false(cold_store_attached(store));
    checkpoint(store, "meanwhile");
    cold_store_release(store, &lease);
    assert_int_equal(cold_store_unpublished_count(store), 1);

    daemon_start(&daemon, "64M");
    wait_attached(store);
    run_once(store, false);
    check_session(store, "meanwhile");
    struct kv_status status;
    struct reason reason = {0};
    CHECK_OK(cold_store_status(store, &status, &reason));
    assert_int_equal(status.lease_count, 0);
    cold_store_destroy(store);
    daemon_end(&daemon, SIGTERM);
    check_folder_remove(daemon.folder);
}

static void kvstored_appears(void **state)
{
    (void)state;
    struct daemon daemon;
    daemon_folder(&daemon);
    struct cold_store *store = store_create(daemon.url, false);
    struct cold_lease lease = lease_tokens(store);
    assert_true(lease.is_private);
    daemon_start(&daemon, "64M");
    wait_attached(store);
    run_once(store, false);
    close_blocks(store, &lease);
    cold_store_release(store, &lease);
    cold_store_destroy(store);
    daemon_end(&daemon, SIGTERM);
    check_folder_remove(daemon.folder);
}

static void kvstored_too_small_is_refused(void **state)
{
    (void)state;
    struct daemon daemon;
    daemon_folder(&daemon);
    daemon_start(&daemon, "64M");
    const struct cold_store_options options = {
        .store_url = daemon.url,
        .name_space = &name_space,
        .private_payload_bytes_max = 1 << 30,
        .payload_bytes_min = 100 << 20,
    };
    struct cold_store *store = NULL;
    struct reason reason = {0};
    bool attached = false;
    assert_int_equal(cold_store_create(&options, &store, &attached, &reason), STATUS_REFUSED);
    assert_null(store);
    assert_non_null(strstr(reason.text, "104857600"));
    assert_non_null(strstr(reason.text, "67108864"));
    daemon_end(&daemon, SIGTERM);
    check_folder_remove(daemon.folder);
}

int main(int argc, char **argv)
{
    assert(argc == 2);
    kvstored_path = argv[1];
    for (uint32_t i = 0; i < TOKENS; i++) {
        tokens[i] = 7 * i;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(released_blocks_are_found_again),
        cmocka_unit_test(wrong_block_is_a_miss),
        cmocka_unit_test(sessions_live_in_memory_without_kvstored),
        cmocka_unit_test(kvstored_dies_and_returns),
        cmocka_unit_test(kvstored_appears),
        cmocka_unit_test(kvstored_too_small_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
