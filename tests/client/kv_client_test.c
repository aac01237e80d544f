// SPDX-License-Identifier: Apache-2.0
// At stake: that a client believes only the kvstored it said hello to, always gets an answer by its
// deadline, and knows when the other side is gone. A thread plays kvstored over a real socket and
// misbehaves as told.
#include "client/kv_client.h"
#include "proto/endpoint_server.h"
#include "proto/os/thread.h"
#include "tests/check.h"

#include <stdatomic.h>

enum { EPOCH = 77, CLIENT_ID = 5, TIMEOUT_MS = 300 };

enum mood {
    MOOD_HONEST,
    MOOD_OTHER_VERSION,
    MOOD_OTHER_EPOCH, // a restarted kvstored
    MOOD_GARBAGE,
    MOOD_SILENT,
    MOOD_REFUSE,
    MOOD_HANG_UP,
};

struct fake {
    char folder[256];
    char url[300];
    struct instance_lock lock;
    struct endpoint_server *server;
    struct os_thread *thread;
    _Atomic enum mood mood; // of what is not hello, but for OTHER_VERSION
    atomic_bool stop;
};

static void answer_request(struct kv_request *request, struct kv_reply *reply)
{
    static struct kv_slot_ref slots[2] = {{3, KV_SOURCE_RAM, 9}, {4, KV_SOURCE_NEW, 8}};
    static const uint32_t tokens[3] = {1, 2, 3};
    static struct kv_session_info session = {.name = "s", .token_count = 3};
    switch (request->op) {
    case KV_OP_HELLO:
        reply->hello = (struct kv_hello_reply){
            .version = KV_PROTOCOL_VERSION, .epoch = EPOCH, .client_id = CLIENT_ID};
        break;
    case KV_OP_LEASE:
        reply->lease = (struct kv_lease){.lease_id = 1, .block_count = 2, .slots = slots};
        break;
    case KV_OP_SESSION_GET:
        reply->session_get = (struct kv_checkpoint){.name = request->session.name,
                                                    .tokens = tokens,
                                                    .token_count = 3,
                                                    .salt = "salt",
                                                    .salt_bytes = 4,
                                                    .settings = "set",
                                                    .settings_bytes = 3,
                                                    .keep = true};
        break;
    case KV_OP_SESSION_LIST:
        reply->session_list = (struct kv_session_list){1, &session};
        break;
    case KV_OP_CHECKPOINT:
        reply->checkpoint = (struct kv_checkpoint_reply){.block_count = 4, .written_bytes = 99};
        break;
    case KV_OP_STATUS:
        reply->state.epoch = EPOCH;
        reply->state.slot_count = 123;
        break;
    default:
        break;
    }
}

static void answer(struct fake *fake, const struct endpoint_event *event)
{
    enum mood mood = atomic_load(&fake->mood);
    struct kv_request request;
    struct reason reason = {0};
    CHECK_OK(kv_request_decode(event->data, event->bytes, &request, &reason));
    bool hello = request.op == KV_OP_HELLO;
    struct kv_reply reply = {.op = request.op, .epoch = EPOCH};
    assert_int_equal(request.epoch, hello ? 0 : EPOCH);
    answer_request(&request, &reply);
    if (hello && mood == MOOD_OTHER_VERSION) {
        reply.hello.version = KV_PROTOCOL_VERSION + 1;
    } else if (!hello && mood == MOOD_OTHER_EPOCH) {
        reply.epoch = EPOCH + 1;
    } else if (!hello && mood == MOOD_REFUSE) {
        reply.status = reason_set(&reply.reason, STATUS_REFUSED, "less", "asked 9 of 8");
    }
    void *data = NULL;
    size_t bytes = 0;
    CHECK_OK(kv_reply_encode(&reply, &data, &bytes));
    if (!hello && mood == MOOD_SILENT) {
        endpoint_server_drop(fake->server, event->request);
    } else if (!hello && mood == MOOD_HANG_UP) {
        endpoint_server_drop(fake->server, event->request);
        endpoint_server_disconnect(fake->server, event->connection_id);
    } else if (!hello && mood == MOOD_GARBAGE) {
        endpoint_server_reply(fake->server, event->request, "\xff\xff", 2);
    } else {
        endpoint_server_reply(fake->server, event->request, data, bytes);
    }
    free(data);
    kv_request_finish(&request);
}

static void fake_main(void *argument)
{
    struct fake *fake = argument;
    while (!atomic_load(&fake->stop)) {
        struct endpoint_event event;
        if (endpoint_server_poll(fake->server, 1000, &event) == STATUS_OK &&
            event.kind == ENDPOINT_EVENT_REQUEST) {
            answer(fake, &event);
        }
    }
}

static void fake_start(struct fake *fake)
{
    *fake = (struct fake){0};
    struct reason reason = {0};
    check_folder_create(fake->folder);
    snprintf(fake->url, sizeof(fake->url), "ipc://%s/kv.sock", fake->folder);
    CHECK_OK(instance_lock_acquire(fake->folder, "kv", &fake->lock, &reason));
    const struct endpoint_server_options options = {.url = fake->url, .lock = &fake->lock};
    CHECK_OK(endpoint_server_open(&options, &fake->server, &reason));
    CHECK_OK(os_thread_start("fake", fake_main, fake, &fake->thread));
}

static void fake_stop(struct fake *fake)
{
    atomic_store(&fake->stop, true);
    endpoint_server_wake(fake->server);
    os_thread_join(fake->thread);
    endpoint_server_close(fake->server);
    instance_lock_release(&fake->lock);
    check_folder_remove(fake->folder);
}

static struct kv_client *client_open(struct fake *fake)
{
    const struct kv_client_options options = {
        .url = fake->url, .program = "test", .timeout_ms = TIMEOUT_MS};
    struct kv_client *client = NULL;
    struct reason reason = {0};
    if (kv_client_open(&options, &client, &reason) != STATUS_OK) {
        fail_msg("%s", reason.text);
    }
    return client;
}

// ---- the tests

static void answers_come_back_whole(void **state)
{
    (void)state;
    struct fake fake;
    fake_start(&fake);
    struct kv_client *client = client_open(&fake);
    struct reason reason = {0};
    assert_int_equal(kv_client_hello(client)->epoch, EPOCH);
    assert_int_equal(kv_client_hello(client)->client_id, CLIENT_ID);
    assert_true(kv_client_alive(client));

    const uint32_t tokens[40] = {0};
    struct kv_request request = {
        .op = KV_OP_LEASE,
        .lease = {.tokens = tokens, .token_count = 40, .hit_block_max = 1, .block_count = 2}};
    struct kv_reply reply;
    CHECK_OK(kv_client_call(client, &request, &reply, &reason));
    assert_int_equal(reply.lease.block_count, 2);
    assert_int_equal(reply.lease.slots[0].source, KV_SOURCE_RAM);
    assert_int_equal(reply.lease.slots[1].generation, 8);
    kv_reply_finish(&reply);
    request = (struct kv_request){.op = KV_OP_RELEASE, .release = {.lease_id = 1}};
    CHECK_OK(kv_client_call(client, &request, &reply, &reason));
    kv_reply_finish(&reply);

    request = (struct kv_request){.op = KV_OP_SESSION_GET,
                                  .session = {.name = "name", .salt = "x", .salt_bytes = 1}};
    CHECK_OK(kv_client_call(client, &request, &reply, &reason));
    struct kv_checkpoint *checkpoint = kv_checkpoint_copy(&reply.session_get);
    kv_reply_finish(&reply);
    assert_non_null(checkpoint);
    assert_string_equal(checkpoint->name, "name");
    assert_int_equal(checkpoint->tokens[2], 3);
    assert_memory_equal(checkpoint->salt, "salt", 4);
    assert_memory_equal(checkpoint->settings, "set", 3);
    assert_true(checkpoint->keep);
    request = (struct kv_request){.op = KV_OP_CHECKPOINT, .checkpoint = *checkpoint};
    CHECK_OK(kv_client_call(client, &request, &reply, &reason));
    assert_int_equal(reply.checkpoint.written_bytes, 99);
    kv_reply_finish(&reply);
    free(checkpoint);

    struct kv_session_info *sessions = NULL;
    uint32_t count = 0;
    CHECK_OK(kv_client_session_list(client, NULL, 0, &sessions, &count, &reason));
    assert_int_equal(count, 1);
    assert_string_equal(sessions[0].name, "s");
    free(sessions);
    struct kv_status status;
    CHECK_OK(kv_client_status(client, &status, &reason));
    assert_int_equal(status.slot_count, 123);
    kv_client_close(client);
    kv_client_close(NULL);
    fake_stop(&fake);
}

static void refusal_keeps_the_reason_and_the_client(void **state)
{
    (void)state;
    struct fake fake;
    fake_start(&fake);
    struct kv_client *client = client_open(&fake);
    atomic_store(&fake.mood, MOOD_REFUSE);
    struct reason reason = {0};
    struct kv_status status;
    assert_int_equal(kv_client_status(client, &status, &reason), STATUS_REFUSED);
    assert_string_equal(reason.text, "asked 9 of 8");
    assert_string_equal(reason.hint, "less");
    assert_true(kv_client_alive(client));
    atomic_store(&fake.mood, MOOD_HONEST);
    CHECK_OK(kv_client_status(client, &status, &reason));
    kv_client_close(client);
    fake_stop(&fake);
}

static void a_peer_that_fails_ends_the_client(void **state)
{
    (void)state;
    const struct {
        enum mood mood;
        enum status status;
    } cases[] = {
        {MOOD_OTHER_EPOCH, STATUS_STALE},
        {MOOD_GARBAGE, STATUS_DAMAGED},
        {MOOD_SILENT, STATUS_TIMEOUT},
        {MOOD_HANG_UP, STATUS_UNREACHABLE},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct fake fake;
        fake_start(&fake);
        struct kv_client *client = client_open(&fake);
        atomic_store(&fake.mood, cases[i].mood);
        struct reason reason = {0};
        struct kv_status status;
        assert_int_equal(kv_client_status(client, &status, &reason), cases[i].status);
        assert_true(reason.text[0] != '\0');
        assert_false(kv_client_alive(client));
        kv_client_close(client);
        fake_stop(&fake);
    }
}

static void hello_checks_the_version(void **state)
{
    (void)state;
    struct fake fake;
    fake_start(&fake);
    atomic_store(&fake.mood, MOOD_OTHER_VERSION);
    const struct kv_client_options options = {
        .url = fake.url, .program = "test", .timeout_ms = TIMEOUT_MS};
    struct kv_client *client = NULL;
    struct reason reason = {0};
    assert_int_equal(kv_client_open(&options, &client, &reason), STATUS_VERSION);
    assert_null(client);
    fake_stop(&fake);
    // And nobody at all.
    check_folder_create(fake.folder);
    snprintf(fake.url, sizeof(fake.url), "ipc://%s/kv.sock", fake.folder);
    assert_int_equal(kv_client_open(&options, &client, &reason), STATUS_UNREACHABLE);
    check_folder_remove(fake.folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_come_back_whole),
        cmocka_unit_test(refusal_keeps_the_reason_and_the_client),
        cmocka_unit_test(a_peer_that_fails_ends_the_client),
        cmocka_unit_test(hello_checks_the_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
