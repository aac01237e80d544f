// SPDX-License-Identifier: Apache-2.0
// At stake: the conversation with kvstored as its clients have it, over a real socket and a shared
// arena: hello, leases, publishing, saving, what a dead or rude client leaves behind, and a
// restart.
#include "client/kv_client.h"
#include "kvstored/dispatcher.h"
#include "proto/arena_layout.h"
#include "proto/arena_lock.h"
#include "proto/arena_slot.h"
#include "proto/block_id.h"
#include "proto/endpoint_client.h"
#include "proto/os/clock.h"
#include "proto/os/shm.h"
#include "proto/runtime_dir.h"
#include "tests/check.h"

#include <sys/stat.h>

enum { BLOCK_TOKENS = 16, PAYLOAD = 8192, SLOTS = 32 };

struct fixture {
    char folder[256];
    char url[300];
    char arena_name[RUNTIME_ARENA_NAME_BYTES];
    struct instance_lock lock;
    struct dispatcher *dispatcher;
    struct kv_namespace name_space;
};

static void start(struct fixture *fixture)
{
    char data_dir[300];
    struct reason reason = {0};
    snprintf(data_dir, sizeof(data_dir), "%s/data", fixture->folder);
    CHECK_OK(instance_lock_acquire(fixture->folder, "kvstored", &fixture->lock, &reason));
    const struct dispatcher_options options = {
        .url = fixture->url,
        .lock = &fixture->lock,
        .payload_bytes_max = SLOTS * PAYLOAD,
        .arena_name = fixture->arena_name,
        .data_dir = data_dir,
        .disk_bytes_max = 64 << 20,
    };
    CHECK_OK(dispatcher_start(&options, &fixture->dispatcher, &reason));
}

static void stop(struct fixture *fixture)
{
    dispatcher_stop(fixture->dispatcher, 10000);
    fixture->dispatcher = NULL;
    instance_lock_release(&fixture->lock);
}

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    check_folder_create(fixture->folder);
    assert_int_equal(chmod(fixture->folder, 0700), 0);
    snprintf(fixture->url, sizeof(fixture->url), "ipc://%s/kvstored.sock", fixture->folder);
    CHECK_OK(runtime_dir_arena_name(fixture->folder, fixture->arena_name));
    fixture->name_space = (struct kv_namespace){
        .fingerprint = {1},
        .block_tokens = BLOCK_TOKENS,
        .group_count = 1,
        .groups = {{.layer_count = 4, .kv_heads = 2, .head_dim = 16}},
        .field_count = 1,
        .fields = {{"model", "test"}},
    };
    start(fixture);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    if (fixture->dispatcher != NULL) {
        stop(fixture);
    }
    check_folder_remove(fixture->folder);
    free(fixture);
    return 0;
}

// A client with its mapping of the arena.
struct peer {
    struct kv_client *client;
    struct os_shm shm;
    struct arena_layout layout;
};

static struct kv_client *connect_client(const struct fixture *fixture,
                                        const struct kv_namespace *name_space)
{
    struct kv_client *client = NULL;
    struct reason reason = {0};
    const struct kv_client_options options = {
        .url = fixture->url, .program = "test", .name_space = name_space};
    CHECK_OK(kv_client_open(&options, &client, &reason));
    return client;
}

static struct peer connect_peer(const struct fixture *fixture)
{
    struct peer peer = {.client = connect_client(fixture, &fixture->name_space)};
    struct arena_geometry geometry;
    struct reason reason = {0};
    const struct kv_hello_reply *hello = kv_client_hello(peer.client);
    CHECK_OK(os_shm_open(hello->arena_name, &peer.shm, &reason));
    assert_int_equal(peer.shm.bytes, hello->arena_bytes);
    CHECK_OK(arena_layout_check(peer.shm.base, peer.shm.bytes, &geometry, &peer.layout));
    CHECK_OK(arena_lock_acquire(&peer.shm, &peer.layout, hello->arena_row));
    return peer;
}

static void close_peer(struct peer *peer)
{
    kv_client_close(peer->client);
    os_shm_close(&peer->shm);
}

static enum status lease(const struct peer *peer, const struct kv_lease_request *lease_request,
                         struct kv_lease *out_lease)
{
    struct reason reason = {0};
    struct kv_reply reply;
    const struct kv_request request = {.op = KV_OP_LEASE, .lease = *lease_request};
    enum status status = kv_client_call(peer->client, &request, &reply, &reason);
    if (status == STATUS_OK) {
        *out_lease = reply.lease; // moved out
    }
    return status;
}

// For operations whose answer says no more than that they were done.
static void call(const struct peer *peer, const struct kv_request *request)
{
    struct reason reason = {0};
    struct kv_reply reply;
    CHECK_OK(kv_client_call(peer->client, request, &reply, &reason));
    kv_reply_finish(&reply);
}

static struct kv_lease_request request_of(const uint32_t *tokens, uint32_t count)
{
    return (struct kv_lease_request){
        .tokens = tokens,
        .token_count = count,
        .hit_block_max = (count - 1) / BLOCK_TOKENS,
        .block_count = (count + BLOCK_TOKENS - 1) / BLOCK_TOKENS,
        .salt = "u",
        .salt_bytes = 1,
        .persist = true,
    };
}

static struct arena_slot slot_state(const struct peer *peer, const struct kv_slot_ref *ref)
{
    return arena_slot_load(arena_word_at(&peer->layout, peer->shm.base, ref->slot_index));
}

static void fill(const struct peer *peer, const struct kv_namespace *name_space,
                 const uint32_t *tokens, const struct kv_slot_ref *ref, uint32_t index,
                 const struct block_id *parent)
{
    struct block_header *header =
        arena_block_header_at(&peer->layout, peer->shm.base, ref->slot_index);
    uint8_t *payload = arena_payload_at(&peer->layout, peer->shm.base, ref->slot_index);
    *header = (struct block_header){
        .magic = BLOCK_MAGIC,
        .layout_version = BLOCK_LAYOUT_VERSION,
        .header_bytes = BLOCK_HEADER_BYTES,
        .block_tokens = BLOCK_TOKENS,
        .token_count = BLOCK_TOKENS,
        .first_position = index * BLOCK_TOKENS,
        .payload_bytes = PAYLOAD,
        .parent_id = *parent,
    };
    memcpy(header->fingerprint, name_space->fingerprint, BLOCK_ID_BYTES);
    memcpy(header->tokens, tokens + index * BLOCK_TOKENS, BLOCK_TOKENS * sizeof(*tokens));
    block_id_next(parent, header->tokens, BLOCK_TOKENS, &header->id);
    memset(payload, (int)index + 1, PAYLOAD);
    header->checksum = block_checksum(header, payload);
    assert_true(arena_slot_publish(arena_word_at(&peer->layout, peer->shm.base, ref->slot_index),
                                   ref->generation));
}

// Leases, waits for loads, computes what is missing, publishes all at once, releases. Returns how
// many were computed.
static uint32_t serve(struct fixture *fixture, struct peer *peer, const uint32_t *tokens,
                      uint32_t count)
{
    struct kv_lease held;
    struct kv_lease_request request = request_of(tokens, count);
    uint32_t computed[64], computed_count = 0;
    CHECK_OK(lease(peer, &request, &held));
    struct block_id parent;
    block_id_root(fixture->name_space.fingerprint, "u", 1, ATTENTION_MODE_EXACT, &parent);
    for (uint32_t i = 0; i < count / BLOCK_TOKENS; i++) {
        uint64_t deadline = os_clock_ms() + 5000;
        while (slot_state(peer, &held.slots[i]).state == ARENA_SLOT_LOADING) {
            assert_true(os_clock_ms() < deadline);
            os_sleep_ms(1);
        }
        if (slot_state(peer, &held.slots[i]).state == ARENA_SLOT_FILLING) {
            fill(peer, &fixture->name_space, tokens, &held.slots[i], i, &parent);
            computed[computed_count++] = i;
        }
        const struct block_header *header =
            arena_block_header_at(&peer->layout, peer->shm.base, held.slots[i].slot_index);
        const uint8_t *payload =
            arena_payload_at(&peer->layout, peer->shm.base, held.slots[i].slot_index);
        assert_int_equal(payload[PAYLOAD - 1], i + 1);
        parent = header->id;
    }
    call(peer, &(struct kv_request){.op = KV_OP_PUBLISH,
                                    .publish = {.lease_id = held.lease_id,
                                                .block_indexes = computed,
                                                .block_count = computed_count}});
    call(peer, &(struct kv_request){.op = KV_OP_RELEASE, .release = {.lease_id = held.lease_id}});
    kv_lease_finish(&held);
    return computed_count;
}

static void make_tokens(uint32_t *tokens, uint32_t count, uint64_t seed)
{
    for (uint32_t i = 0; i < count; i++) {
        tokens[i] = (uint32_t)(check_random(&seed) % 1000);
    }
}

static void save(const struct peer *peer, const uint32_t *tokens, uint32_t count, const char *name)
{
    struct reason reason = {0};
    struct kv_reply reply;
    const struct kv_request request = {.op = KV_OP_CHECKPOINT,
                                       .checkpoint = {.name = name,
                                                      .tokens = tokens,
                                                      .token_count = count,
                                                      .salt = "u",
                                                      .salt_bytes = 1,
                                                      .keep = true,
                                                      .sync = true}};
    CHECK_OK(kv_client_call(peer->client, &request, &reply, &reason));
    assert_int_equal(reply.checkpoint.durable_block_count, reply.checkpoint.block_count);
    kv_reply_finish(&reply);
}

static struct kv_status status_of(const struct fixture *fixture)
{
    struct kv_status status;
    struct reason reason = {0};
    struct kv_client *client = connect_client(fixture, NULL);
    CHECK_OK(kv_client_status(client, &status, &reason));
    kv_client_close(client);
    return status;
}

static void wait_for_leases(const struct fixture *fixture, uint32_t count)
{
    uint64_t deadline = os_clock_ms() + 5000;
    while (status_of(fixture).lease_count != count) {
        assert_true(os_clock_ms() < deadline);
        os_sleep_ms(10);
    }
}

static void a_session_over_a_restart(void **state)
{
    struct fixture *fixture = *state;
    uint32_t tokens[100];
    make_tokens(tokens, 100, 1);
    struct peer peer = connect_peer(fixture);
    assert_int_equal(serve(fixture, &peer, tokens, 100), 6);
    assert_int_equal(serve(fixture, &peer, tokens, 100), 0);
    save(&peer, tokens, 100, "one");
    close_peer(&peer);
    peer = connect_peer(fixture); // gpud restarted: from memory
    assert_int_equal(serve(fixture, &peer, tokens, 100), 0);
    assert_int_equal(status_of(fixture).hit_disk_count, 0);
    uint64_t epoch = kv_client_hello(peer.client)->epoch;
    close_peer(&peer);
    stop(fixture);
    start(fixture);
    peer = connect_peer(fixture);
    assert_true(kv_client_hello(peer.client)->epoch != epoch);
    struct kv_reply reply;
    struct reason reason = {0};
    const struct kv_request get = {.op = KV_OP_SESSION_GET,
                                   .session = {.name = "one", .salt = "u", .salt_bytes = 1}};
    CHECK_OK(kv_client_call(peer.client, &get, &reply, &reason));
    assert_int_equal(reply.session_get.token_count, 100);
    kv_reply_finish(&reply);
    assert_int_equal(serve(fixture, &peer, tokens, 100), 0); // from disk
    assert_int_equal(status_of(fixture).hit_disk_count, 6);
    close_peer(&peer);
}

static void kvctl_sees_without_a_namespace(void **state)
{
    struct fixture *fixture = *state;
    uint32_t tokens[40], count = 0;
    struct reason reason = {0};
    make_tokens(tokens, 40, 1);
    struct peer peer = connect_peer(fixture);
    serve(fixture, &peer, tokens, 40);
    save(&peer, tokens, 40, "one");
    close_peer(&peer);
    stop(fixture);
    start(fixture); // no gpud has said hello yet
    struct kv_client *client = connect_client(fixture, NULL);
    assert_string_equal(kv_client_hello(client)->arena_name, "");
    struct kv_session_info *rows = NULL;
    CHECK_OK(kv_client_session_list(client, NULL, 0, &rows, &count, &reason));
    assert_int_equal(count, 1);
    assert_string_equal(rows[0].name, "one");
    assert_int_equal(rows[0].disk_block_count, 2);
    free(rows);
    struct kv_lease held;
    struct kv_lease_request request = request_of(tokens, 40);
    assert_int_equal(lease(&(struct peer){.client = client}, &request, &held), STATUS_INVALID);
    const struct kv_verify_request verify = {0};
    struct kv_reply reply;
    const struct kv_request message = {.op = KV_OP_VERIFY, .verify = verify};
    CHECK_OK(kv_client_call(client, &message, &reply, &reason));
    assert_int_equal(reply.verify.block_count, 2);
    assert_int_equal(reply.verify.damaged_count, 0);
    kv_reply_finish(&reply);
    kv_client_close(client);
}

static void a_dead_client_leaves_nothing(void **state)
{
    struct fixture *fixture = *state;
    uint32_t tokens[200];
    struct kv_lease held;
    make_tokens(tokens, 200, 1);
    struct kv_lease_request request = request_of(tokens, 200);
    for (int i = 0; i < 20; i++) {
        struct peer peer = connect_peer(fixture);
        CHECK_OK(lease(&peer, &request, &held));
        kv_lease_finish(&held);
        close_peer(&peer);
        wait_for_leases(fixture, 0);
    }
    struct kv_status status = status_of(fixture);
    assert_int_equal(status.slot_free_count, SLOTS);
    assert_int_equal(status.client_count, 1); // ourselves
}

// The connection is gone, the process is not: its slots are not touched before it lets go of the
// arena.
static void a_client_that_still_maps_keeps_its_slots(void **state)
{
    struct fixture *fixture = *state;
    uint32_t tokens[200];
    struct kv_lease held;
    make_tokens(tokens, 200, 1);
    struct kv_lease_request request = request_of(tokens, 200);
    struct peer peer = connect_peer(fixture);
    CHECK_OK(lease(&peer, &request, &held));
    kv_client_close(peer.client);
    os_sleep_ms(600); // several ticks
    assert_int_equal(status_of(fixture).lease_count, 1);
    assert_int_equal(slot_state(&peer, &held.slots[3]).state, ARENA_SLOT_FILLING);
    assert_int_equal(slot_state(&peer, &held.slots[3]).generation, held.slots[3].generation);
    struct peer next = connect_peer(fixture); // in another row
    assert_int_equal(serve(fixture, &next, tokens, 200), 12);
    close_peer(&next);
    os_shm_close(&peer.shm);
    wait_for_leases(fixture, 0);
    kv_lease_finish(&held);
}

static void another_namespace_waits_for_its_turn(void **state)
{
    struct fixture *fixture = *state;
    struct kv_namespace other = fixture->name_space;
    struct reason reason = {0};
    struct kv_client *client = NULL;
    other.fingerprint[0] = 2;
    struct peer peer = connect_peer(fixture);
    const struct kv_client_options options = {
        .url = fixture->url, .program = "other", .name_space = &other};
    assert_int_equal(kv_client_open(&options, &client, &reason), STATUS_BUSY);
    assert_non_null(strstr(reason.text, "test"));
    close_peer(&peer);
    uint64_t deadline = os_clock_ms() + 5000;
    while (kv_client_open(&options, &client, &reason) != STATUS_OK) {
        assert_true(os_clock_ms() < deadline);
        os_sleep_ms(20);
    }
    kv_client_close(client);
}

static void budgets_are_refused_with_the_numbers(void **state)
{
    struct fixture *fixture = *state;
    struct reason reason = {0};
    struct kv_client *client = NULL;
    const struct kv_client_options options = {.url = fixture->url,
                                              .program = "test",
                                              .name_space = &fixture->name_space,
                                              .arena_bytes_min = SLOTS * PAYLOAD + 1};
    assert_int_equal(kv_client_open(&options, &client, &reason), STATUS_REFUSED);
    assert_non_null(strstr(reason.text, "262145"));
    assert_non_null(strstr(reason.text, "262144"));
}

// Sends bytes that kv_client would not send and returns the status of the answer.
static enum status send_raw(struct endpoint_client *client, const struct kv_request *request)
{
    void *data;
    size_t bytes;
    struct endpoint_reply answer;
    struct kv_reply reply;
    struct reason reason = {0};
    CHECK_OK(kv_request_encode(request, &data, &bytes));
    CHECK_OK(endpoint_client_call(client, data, bytes, 5000, &answer));
    free(data);
    CHECK_OK(kv_reply_decode(answer.data, answer.bytes, request->op, &reply, &reason));
    enum status status = reply.status;
    kv_reply_finish(&reply);
    endpoint_reply_free(&answer);
    return status;
}

static void rude_clients_get_errors(void **state)
{
    struct fixture *fixture = *state;
    struct endpoint_client *client = NULL;
    struct endpoint_reply answer;
    struct kv_reply reply;
    struct reason reason = {0};
    CHECK_OK(endpoint_client_open(fixture->url, 5000, &client, &reason));
    struct kv_request request = {.op = KV_OP_STATUS};
    assert_int_equal(send_raw(client, &request), STATUS_INVALID); // no hello
    request = (struct kv_request){.op = KV_OP_HELLO, .hello = {.version = 99, .program = "x"}};
    assert_int_equal(send_raw(client, &request), STATUS_VERSION);
    request.hello.version = KV_PROTOCOL_VERSION;
    assert_int_equal(send_raw(client, &request), STATUS_OK);
    request = (struct kv_request){.op = KV_OP_STATUS, .epoch = 1};
    assert_int_equal(send_raw(client, &request), STATUS_STALE);
    uint64_t random = check_seed();
    for (int i = 0; i < 300; i++) {
        uint8_t junk[64];
        size_t bytes = 1 + check_random(&random) % sizeof(junk);
        for (size_t k = 0; k < bytes; k++) {
            junk[k] = (uint8_t)check_random(&random);
        }
        CHECK_OK(endpoint_client_call(client, junk, bytes, 5000, &answer));
        enum status status =
            kv_reply_decode(answer.data, answer.bytes, KV_OP_STATUS, &reply, &reason);
        CHECK_OK(status);
        assert_int_not_equal(reply.status, STATUS_OK);
        kv_reply_finish(&reply);
        endpoint_reply_free(&answer);
    }
    endpoint_client_close(client);
    assert_int_equal(status_of(fixture).client_count, 1);
}

static void a_stale_arena_is_replaced(void **state)
{
    struct fixture *fixture = *state;
    struct os_shm left_over;
    struct reason reason = {0};
    CHECK_OK(os_shm_create(fixture->arena_name, 4096, &left_over, &reason));
    os_shm_close(&left_over);
    struct peer peer = connect_peer(fixture);
    close_peer(&peer);
    stop(fixture); // an orderly stop unlinks it
    assert_int_equal(os_shm_open(fixture->arena_name, &left_over, &reason), STATUS_NOT_FOUND);
}

int main(void)
{
#define CASE(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_session_over_a_restart),
        CASE(kvctl_sees_without_a_namespace),
        CASE(a_dead_client_leaves_nothing),
        CASE(a_client_that_still_maps_keeps_its_slots),
        CASE(another_namespace_waits_for_its_turn),
        CASE(budgets_are_refused_with_the_numbers),
        CASE(rude_clients_get_errors),
        CASE(a_stale_arena_is_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
