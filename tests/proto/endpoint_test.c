// SPDX-License-Identifier: Apache-2.0
// At stake: kvstored's control path. A client must be one connection whatever its threads do, its
// end must be seen (its leases hang on it), a dead or stopped side must never hang the other, and
// a new kvstored must never get a request that was meant for the old one. Peers that die are
// processes of their own.
#include "tests/proto/endpoint_fixture.h"

#include "proto/endpoint_client.h"
#include "proto/endpoint_server.h"
#include "proto/endpoint_stream_client.h"

enum { PATIENCE_MS = 5000 };

static struct endpoint_server *open_server(const struct fixture *fixture)
{
    struct endpoint_server *server = NULL;
    struct reason reason = {0};
    const struct endpoint_server_options options = {.url = fixture->url, .lock = &fixture->lock};
    if (endpoint_server_open(&options, &server, &reason) != STATUS_OK) {
        fail_msg("%s", reason.text);
    }
    return server;
}

static struct endpoint_client *open_client(const struct fixture *fixture)
{
    struct endpoint_client *client = NULL;
    struct reason reason = {0};
    if (endpoint_client_open(fixture->url, PATIENCE_MS, &client, &reason) != STATUS_OK) {
        fail_msg("%s", reason.text);
    }
    return client;
}

static struct endpoint_event next_event(struct endpoint_server *server,
                                        enum endpoint_event_kind kind)
{
    struct endpoint_event event;
    CHECK_OK(endpoint_server_poll(server, PATIENCE_MS, &event));
    assert_int_equal(event.kind, kind);
    return event;
}

// One call on a thread of its own.
struct background_call {
    struct endpoint_client *client;
    const char *text;
    uint32_t timeout_ms;
    enum status status;
    char reply[64];
    uint64_t took_ms;
    struct os_thread *thread;
};

static void run_call(void *argument)
{
    struct background_call *call = argument;
    struct endpoint_reply reply = {0};
    uint64_t begin = os_clock_ms();
    call->status = endpoint_client_call(call->client, call->text, strlen(call->text),
                                        call->timeout_ms, &reply);
    call->took_ms = os_clock_ms() - begin;
    if (call->status == STATUS_OK) {
        snprintf(call->reply, sizeof(call->reply), "%.*s", (int)reply.bytes,
                 (const char *)reply.data);
        endpoint_reply_free(&reply);
    }
}

static void start_call(struct background_call *call)
{
    CHECK_OK(os_thread_start("call", run_call, call, &call->thread));
}

static void replies_reach_their_requests(void **state)
{
    struct endpoint_server *server = open_server(*state);
    struct endpoint_client *client = open_client(*state);
    struct endpoint_event opened = next_event(server, ENDPOINT_EVENT_OPENED);
    assert_int_equal(opened.peer_uid, getuid());
    struct background_call calls[3] = {{client, "a", PATIENCE_MS, 0, "", 0, NULL},
                                       {client, "b", PATIENCE_MS, 0, "", 0, NULL},
                                       {client, "c", PATIENCE_MS, 0, "", 0, NULL}};
    struct endpoint_event events[3];
    for (int i = 0; i < 3; i++) { // one after the other, so that their order is known
        start_call(&calls[i]);
        events[i] = next_event(server, ENDPOINT_EVENT_REQUEST);
        assert_int_equal(events[i].connection_id, opened.connection_id);
        assert_int_equal(events[i].waiting_count, i + 1);
        assert_int_equal(events[i].bytes, 1);
    }
    for (int i = 2; i >= 0; i--) { // replied to in the other order, later
        char text[16];
        snprintf(text, sizeof(text), "reply %c", events[i].data[0]);
        endpoint_server_reply(server, events[i].request, text, strlen(text));
    }
    for (int i = 0; i < 3; i++) {
        os_thread_join(calls[i].thread);
        CHECK_OK(calls[i].status);
        assert_int_equal(calls[i].reply[6], calls[i].text[0]);
    }
    endpoint_client_close(client);
    struct endpoint_event closed = next_event(server, ENDPOINT_EVENT_CLOSED);
    assert_int_equal(closed.connection_id, opened.connection_id);
    endpoint_server_close(server);
}

static void empty_and_large_messages_pass(void **state)
{
    struct endpoint_server *server = open_server(*state);
    struct endpoint_client *client = open_client(*state);
    next_event(server, ENDPOINT_EVENT_OPENED);
    struct background_call call = {client, "", PATIENCE_MS, 0, "", 0, NULL};
    start_call(&call);
    struct endpoint_event event = next_event(server, ENDPOINT_EVENT_REQUEST);
    assert_int_equal(event.bytes, 0);
    size_t bytes = 16u << 20;
    char *large = malloc(bytes);
    memset(large, 'x', bytes);
    endpoint_server_reply(server, event.request, large, bytes);
    os_thread_join(call.thread);
    CHECK_OK(call.status);
    free(large);
    endpoint_client_close(client);
    endpoint_server_close(server);
}

static void a_call_ends_at_its_deadline(void **state)
{
    struct endpoint_server *server = open_server(*state);
    struct endpoint_client *client = open_client(*state);
    struct endpoint_reply reply;
    uint64_t begin = os_clock_ms();
    assert_int_equal(endpoint_client_call(client, "x", 1, 200, &reply), STATUS_TIMEOUT);
    assert_in_range(os_clock_ms() - begin, 150, 2000);
    // The late reply of that request is not taken for the next one's.
    next_event(server, ENDPOINT_EVENT_OPENED);
    struct endpoint_event late = next_event(server, ENDPOINT_EVENT_REQUEST);
    struct background_call call = {client, "second", PATIENCE_MS, 0, "", 0, NULL};
    start_call(&call);
    struct endpoint_event event = next_event(server, ENDPOINT_EVENT_REQUEST);
    endpoint_server_reply(server, late.request, "first", 5);
    endpoint_server_reply(server, event.request, "second", 6);
    os_thread_join(call.thread);
    CHECK_OK(call.status);
    assert_string_equal(call.reply, "second");
    endpoint_client_close(client);
    endpoint_server_close(server);
}

static void a_dropped_request_is_never_answered(void **state)
{
    struct endpoint_server *server = open_server(*state);
    struct endpoint_client *client = open_client(*state);
    next_event(server, ENDPOINT_EVENT_OPENED);
    struct background_call call = {client, "x", 300, 0, "", 0, NULL};
    start_call(&call);
    endpoint_server_drop(server, next_event(server, ENDPOINT_EVENT_REQUEST).request);
    os_thread_join(call.thread);
    assert_int_equal(call.status, STATUS_TIMEOUT);
    endpoint_client_close(client);
    endpoint_server_close(server);
}

static void nobody_there_is_said_at_once(void **state)
{
    struct fixture *fixture = *state;
    struct endpoint_client *client;
    struct reason reason = {0};
    uint64_t begin = os_clock_ms();
    assert_int_equal(endpoint_client_open(fixture->url, PATIENCE_MS, &client, &reason),
                     STATUS_UNREACHABLE);
    assert_true(strstr(reason.text, fixture->url) != NULL);
    // A socket file that a dead daemon left is nobody too.
    pid_t pid = peer_start("server", fixture->folder);
    peer_end(pid, SIGKILL);
    assert_int_equal(endpoint_client_open(fixture->url, PATIENCE_MS, &client, &reason),
                     STATUS_UNREACHABLE);
    assert_in_range(os_clock_ms() - begin, 0, 3000);
}

static void server_death_ends_calls_and_a_new_one_is_found(void **state)
{
    struct fixture *fixture = *state;
    pid_t pid = peer_start("server", fixture->folder);
    struct endpoint_client *client = open_client(fixture);
    assert_true(endpoint_client_alive(client));
    struct background_call call = {client, "silence", PATIENCE_MS, 0, "", 0, NULL};
    start_call(&call); // the peer does not answer this one
    os_sleep_ms(200);
    peer_end(pid, SIGKILL);
    os_thread_join(call.thread);
    assert_int_equal(call.status, STATUS_UNREACHABLE);
    assert_in_range(call.took_ms, 0, 2000);
    struct endpoint_reply reply = {0};
    uint64_t begin = os_clock_ms();
    assert_int_equal(endpoint_client_call(client, "x", 1, PATIENCE_MS, &reply), STATUS_UNREACHABLE);
    assert_in_range(os_clock_ms() - begin, 0, 500);

    pid = peer_start("server", fixture->folder); // over the socket file the dead one left
    assert_false(endpoint_client_alive(client)); // and stays so: the new one knows nothing of us
    struct endpoint_client *second = open_client(fixture);
    CHECK_OK(endpoint_client_call(second, "x", 1, PATIENCE_MS, &reply));
    // Had anything of the first client reached this server, it would have counted further.
    assert_memory_equal(reply.data, "1:x", 3);
    endpoint_reply_free(&reply);
    endpoint_client_close(second);
    endpoint_client_close(client);
    peer_end(pid, SIGKILL);
}

static void a_stopped_server_costs_the_deadline_only(void **state)
{
    struct fixture *fixture = *state;
    pid_t pid = peer_start("server", fixture->folder);
    struct endpoint_client *client = open_client(fixture);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    struct endpoint_reply reply = {0};
    assert_int_equal(endpoint_client_call(client, "x", 1, 200, &reply), STATUS_TIMEOUT);
    endpoint_client_close(client);
    // Clients that came and went meanwhile leave nothing behind: it serves on (nng's own listener
    // stops accepting for good here, docs/PROTOCOL.md).
    for (int i = 0; i < 5; i++) {
        endpoint_client_close(open_client(fixture));
    }
    assert_int_equal(kill(pid, SIGCONT), 0);
    client = open_client(fixture);
    CHECK_OK(endpoint_client_call(client, "x", 1, PATIENCE_MS, &reply));
    endpoint_reply_free(&reply);
    endpoint_client_close(client);
    peer_end(pid, SIGKILL);
}

static void a_killed_client_is_seen_to_end(void **state)
{
    struct fixture *fixture = *state;
    struct endpoint_server *server = open_server(fixture);
    pid_t pid = peer_start("client", fixture->folder);
    struct endpoint_event opened = next_event(server, ENDPOINT_EVENT_OPENED);
    struct endpoint_event request = next_event(server, ENDPOINT_EVENT_REQUEST);
    peer_end(pid, SIGKILL);
    struct endpoint_event closed = next_event(server, ENDPOINT_EVENT_CLOSED);
    assert_int_equal(closed.connection_id, opened.connection_id);
    // Its request may still be replied to; nobody hears it, and the context serves on.
    endpoint_server_reply(server, request.request, "late", 4);
    struct endpoint_client *client = open_client(fixture);
    struct endpoint_event again = next_event(server, ENDPOINT_EVENT_OPENED);
    assert_int_not_equal(again.connection_id, opened.connection_id);
    endpoint_client_close(client);
    endpoint_server_close(server);
}

static void disconnect_ends_a_client(void **state)
{
    struct endpoint_server *server = open_server(*state);
    struct endpoint_client *client = open_client(*state);
    struct endpoint_event opened = next_event(server, ENDPOINT_EVENT_OPENED);
    struct background_call call = {client, "x", PATIENCE_MS, 0, "", 0, NULL};
    start_call(&call);
    struct endpoint_event request = next_event(server, ENDPOINT_EVENT_REQUEST);
    endpoint_server_disconnect(server, opened.connection_id);
    next_event(server, ENDPOINT_EVENT_CLOSED);
    os_thread_join(call.thread);
    assert_int_equal(call.status, STATUS_UNREACHABLE);
    endpoint_server_drop(server, request.request);
    assert_false(endpoint_client_alive(client));
    endpoint_client_close(client);
    endpoint_server_close(server);
}

static void limits_hold(void **state)
{
    struct fixture *fixture = *state;
    struct endpoint_server *server = NULL;
    const struct endpoint_server_options options = {.url = fixture->url,
                                                    .lock = &fixture->lock,
                                                    .connections_max = 1,
                                                    .message_bytes_max = 1000};
    CHECK_OK(endpoint_server_open(&options, &server, NULL));
    struct endpoint_client *client = open_client(fixture);
    next_event(server, ENDPOINT_EVENT_OPENED);
    struct endpoint_client *second = NULL; // turned away
    struct endpoint_reply reply = {0};
    enum status status = endpoint_client_open(fixture->url, 500, &second, NULL);
    if (status == STATUS_OK) {
        status = endpoint_client_call(second, "x", 1, 500, &reply);
        endpoint_client_close(second);
    }
    assert_true(status == STATUS_UNREACHABLE || status == STATUS_TIMEOUT);
    char *large = calloc(1, ENDPOINT_MESSAGE_BYTES_MAX + 1);
    assert_int_equal(
        endpoint_client_call(client, large, ENDPOINT_MESSAGE_BYTES_MAX + 1, PATIENCE_MS, &reply),
        STATUS_REFUSED);
    memset(large, 'x', 1001);
    struct background_call call = {client, large, PATIENCE_MS, 0, "", 0, NULL};
    start_call(&call);
    next_event(server, ENDPOINT_EVENT_CLOSED);
    os_thread_join(call.thread);
    assert_int_equal(call.status, STATUS_UNREACHABLE);
    free(large);
    endpoint_client_close(client);
    endpoint_server_close(server);
}

static void one_client_cannot_take_everything(void **state)
{
    struct endpoint_server *server = open_server(*state);
    struct endpoint_client *client = open_client(*state);
    next_event(server, ENDPOINT_EVENT_OPENED);
    static struct background_call calls[ENDPOINT_REQUESTS_MAX];
    struct endpoint_event events[ENDPOINT_REQUESTS_MAX];
    for (int i = 0; i < ENDPOINT_REQUESTS_MAX; i++) {
        calls[i] =
            (struct background_call){.client = client, .text = "x", .timeout_ms = PATIENCE_MS};
        start_call(&calls[i]);
    }
    for (int i = 0; i < ENDPOINT_REQUESTS_MAX; i++) {
        events[i] = next_event(server, ENDPOINT_EVENT_REQUEST);
        assert_int_equal(events[i].waiting_count, i + 1);
    }
    struct endpoint_reply reply;
    assert_int_equal(endpoint_client_call(client, "x", 1, PATIENCE_MS, &reply), STATUS_BUSY);
    for (int i = 0; i < ENDPOINT_REQUESTS_MAX; i++) {
        endpoint_server_reply(server, events[i].request, "y", 1);
    }
    for (int i = 0; i < ENDPOINT_REQUESTS_MAX; i++) {
        os_thread_join(calls[i].thread);
        CHECK_OK(calls[i].status);
    }
    endpoint_client_close(client);
    next_event(server, ENDPOINT_EVENT_CLOSED);
    // One that breaks the rules is ended.
    struct stream_client *rude = NULL;
    CHECK_OK(stream_client_open(((struct fixture *)*state)->url, PATIENCE_MS, &rude, NULL));
    next_event(server, ENDPOINT_EVENT_OPENED);
    for (int i = 0; i <= ENDPOINT_REQUESTS_MAX; i++) {
        CHECK_OK(stream_client_send(rude, "12345678", 8, PATIENCE_MS));
    }
    for (int i = 0; i < ENDPOINT_REQUESTS_MAX; i++) {
        events[i] = next_event(server, ENDPOINT_EVENT_REQUEST);
    }
    next_event(server, ENDPOINT_EVENT_CLOSED);
    for (int i = 0; i < ENDPOINT_REQUESTS_MAX; i += 2) { // the others end with the server
        endpoint_server_drop(server, events[i].request);
    }
    stream_client_close(rude);
    CHECK_OK(stream_client_open(((struct fixture *)*state)->url, PATIENCE_MS, &rude, NULL));
    next_event(server, ENDPOINT_EVENT_OPENED);
    CHECK_OK(stream_client_send(rude, "1234567", 7, PATIENCE_MS)); // no room for a number
    next_event(server, ENDPOINT_EVENT_CLOSED);
    stream_client_close(rude);
    endpoint_server_close(server);
}

static void wake_ends_a_poll(void **state)
{
    struct endpoint_server *server = open_server(*state);
    struct endpoint_event event;
    assert_int_equal(endpoint_server_poll(server, 10, &event), STATUS_TIMEOUT);
    endpoint_server_wake(server);
    next_event(server, ENDPOINT_EVENT_WOKEN);
    assert_int_equal(endpoint_server_poll(server, 0, &event), STATUS_TIMEOUT);
    endpoint_server_close(server);
}

static void only_the_owner_can_reach_the_socket(void **state)
{
    struct fixture *fixture = *state;
    struct endpoint_server *server = open_server(fixture);
    struct stat info;
    assert_int_equal(stat(fixture->url + strlen("ipc://"), &info), 0);
    assert_true(S_ISSOCK(info.st_mode));
    assert_int_equal(info.st_mode & 0777, 0600);
    endpoint_server_close(server);
    assert_int_not_equal(stat(fixture->url + strlen("ipc://"), &info), 0);
}

static void a_second_listener_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct endpoint_server *server = open_server(fixture);
    struct endpoint_server *second = NULL;
    struct reason reason = {0};
    const struct endpoint_server_options options = {.url = fixture->url, .lock = &fixture->lock};
    assert_int_equal(endpoint_server_open(&options, &second, &reason), STATUS_BUSY);
    assert_true(strstr(reason.text, fixture->url) != NULL);
    struct endpoint_client *client = open_client(fixture); // the first one was not disturbed
    endpoint_client_close(client);
    endpoint_server_close(server);
}

// Why the instance lock exists: closing a listener removes the socket file of that name, whoever
// made it. Without the lock this is what happens; with it, the new one cannot listen before.
static void a_late_close_of_an_old_listener(void **state)
{
    struct fixture *fixture = *state;
    struct endpoint_server *old = open_server(fixture);
    const char *path = fixture->url + strlen("ipc://");
    struct stat info;
    assert_int_equal(unlink(path), 0); // as an impatient start script would
    struct endpoint_server *fresh =
        open_server(fixture); // breaks the rule: the lock is still old's
    endpoint_server_close(old);
    assert_int_not_equal(stat(path, &info), 0); // the new one's socket is gone
    endpoint_server_close(fresh);

    struct instance_lock second;
    struct reason reason = {0};
    old = open_server(fixture);
    assert_int_equal(instance_lock_acquire(fixture->folder, "test", &second, &reason), STATUS_BUSY);
    endpoint_server_close(old);
    instance_lock_release(&fixture->lock);
    CHECK_OK(instance_lock_acquire(fixture->folder, "test", &fixture->lock, &reason));
    fresh = open_server(fixture);
    assert_int_equal(stat(path, &info), 0);
    endpoint_server_close(fresh);
}

static void urls_are_checked(void **state)
{
    (void)state;
    struct reason reason = {0};
    static const char *const bad[] = {"", "tcp://127.0.0.1:1", "ipc://", "ipc://relative.sock",
                                      "/run/kvtier/gpud.sock"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(endpoint_url_check(bad[i], &reason), STATUS_INVALID);
    }
    char url[LIMIT_URL_BYTES] = "ipc://";
    memset(url + 6, '/', LIMIT_SOCKET_PATH_BYTES);
    CHECK_OK(endpoint_url_check(url, &reason));
    url[6 + LIMIT_SOCKET_PATH_BYTES] = 'x';
    assert_int_equal(endpoint_url_check(url, &reason), STATUS_INVALID);
    assert_true(strstr(reason.text, "108") != NULL);
    char folder[300];
    memset(folder, 'd', sizeof(folder) - 1);
    folder[0] = '/';
    folder[sizeof(folder) - 1] = '\0';
    assert_int_equal(endpoint_url_make(folder, "gpud", url, &reason), STATUS_INVALID);
    CHECK_OK(endpoint_url_make("/run/kvtier", "gpud", url, &reason));
    assert_string_equal(url, "ipc:///run/kvtier/gpud.sock");
}

// ---- the peers, in processes of their own

// Answers "COUNT:request", except to "silence".
static void serve(const struct fixture *fixture)
{
    struct endpoint_server *server = open_server(fixture);
    puts("ready");
    fflush(stdout);
    struct endpoint_event event;
    for (int count = 1;;) {
        if (endpoint_server_poll(server, 1000, &event) != STATUS_OK ||
            event.kind != ENDPOINT_EVENT_REQUEST) {
            continue;
        }
        char text[64];
        int length = snprintf(text, sizeof(text), "%d:%.*s", count++, (int)event.bytes, event.data);
        if (memcmp(event.data, "silence", event.bytes) != 0) {
            endpoint_server_reply(server, event.request, text, (size_t)length);
        }
    }
}

static int call_and_wait(const struct fixture *fixture)
{
    struct endpoint_client *client = open_client(fixture);
    puts("ready");
    fflush(stdout);
    struct endpoint_reply reply;
    enum status status = endpoint_client_call(client, "x", 1, 60000, &reply);
    return (int)status;
}

static int run_peer(const char *role, const char *folder)
{
    struct fixture fixture = {.lock.file.handle = -1};
    CHECK_OK(endpoint_url_make(folder, "test", fixture.url, NULL));
    if (strcmp(role, "client") == 0) {
        return call_and_wait(&fixture);
    }
    CHECK_OK(instance_lock_acquire(folder, "peer", &fixture.lock, NULL));
    serve(&fixture);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        return run_peer(argv[1], argv[2]);
    }
#define ENDPOINT_TEST(function)                                                                    \
    cmocka_unit_test_setup_teardown(function, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        ENDPOINT_TEST(replies_reach_their_requests),
        ENDPOINT_TEST(empty_and_large_messages_pass),
        ENDPOINT_TEST(a_call_ends_at_its_deadline),
        ENDPOINT_TEST(a_dropped_request_is_never_answered),
        ENDPOINT_TEST(nobody_there_is_said_at_once),
        ENDPOINT_TEST(server_death_ends_calls_and_a_new_one_is_found),
        ENDPOINT_TEST(a_stopped_server_costs_the_deadline_only),
        ENDPOINT_TEST(a_killed_client_is_seen_to_end),
        ENDPOINT_TEST(disconnect_ends_a_client),
        ENDPOINT_TEST(limits_hold),
        ENDPOINT_TEST(one_client_cannot_take_everything),
        ENDPOINT_TEST(wake_ends_a_poll),
        ENDPOINT_TEST(only_the_owner_can_reach_the_socket),
        ENDPOINT_TEST(a_second_listener_is_refused),
        ENDPOINT_TEST(a_late_close_of_an_old_listener),
        ENDPOINT_TEST(urls_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
