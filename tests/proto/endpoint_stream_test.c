// SPDX-License-Identifier: Apache-2.0
// At stake: the connection between apps and gpud. Closing it cancels a request, so an end must be
// seen at once from either side; an app that does not read, lies about a length or stops must cost
// its own connection and nobody else's; frames must arrive whole whatever pieces the bytes come in.
#include "tests/proto/endpoint_fixture.h"

#include "proto/endpoint_stream_client.h"
#include "proto/endpoint_stream_server.h"

#include <sys/socket.h>
#include <sys/un.h>

enum { PATIENCE_MS = 5000 };

static struct stream_server *open_server_with(const struct fixture *fixture,
                                              struct stream_server_options options)
{
    struct stream_server *server = NULL;
    struct reason reason = {0};
    options.url = fixture->url;
    options.lock = &fixture->lock;
    if (stream_server_open(&options, &server, &reason) != STATUS_OK) {
        fail_msg("%s", reason.text);
    }
    return server;
}

static struct stream_server *open_server(const struct fixture *fixture)
{
    return open_server_with(fixture, (struct stream_server_options){0});
}

static struct stream_client *open_client(const struct fixture *fixture)
{
    struct stream_client *client = NULL;
    struct reason reason = {0};
    if (stream_client_open(fixture->url, PATIENCE_MS, &client, &reason) != STATUS_OK) {
        fail_msg("%s", reason.text);
    }
    return client;
}

static struct stream_event next_event(struct stream_server *server, enum stream_event_kind kind)
{
    struct stream_event event;
    CHECK_OK(stream_server_poll(server, PATIENCE_MS, &event));
    assert_int_equal(event.kind, kind);
    return event;
}

// A connection whose bytes we write ourselves.
static int raw_connect(const struct fixture *fixture)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", fixture->url + strlen("ipc://"));
    int handle = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(handle, (struct sockaddr *)&address, sizeof(address)), 0);
    return handle;
}

static void raw_write(int handle, const void *data, size_t bytes)
{
    assert_int_equal(send(handle, data, bytes, MSG_NOSIGNAL), bytes);
}

static void frames_go_both_ways(void **state)
{
    struct stream_server *server = open_server(*state);
    struct stream_client *client = open_client(*state);
    struct stream_event opened = next_event(server, STREAM_EVENT_OPENED);
    assert_int_equal(opened.peer_uid, getuid());
    CHECK_OK(stream_client_send(client, "one", 3, PATIENCE_MS));
    CHECK_OK(stream_client_send(client, "twos", 4, PATIENCE_MS));
    struct stream_event event = next_event(server, STREAM_EVENT_FRAME);
    assert_int_equal(event.connection_id, opened.connection_id);
    assert_int_equal(event.bytes, 3);
    assert_memory_equal(event.data, "one", 3);
    event = next_event(server, STREAM_EVENT_FRAME);
    assert_int_equal(event.bytes, 4);
    assert_memory_equal(event.data, "twos", 4);
    for (int i = 0; i < 100; i++) { // pushed without being asked for
        CHECK_OK(stream_server_send(server, opened.connection_id, &i, sizeof(i)));
    }
    for (int i = 0; i < 100; i++) {
        const uint8_t *data;
        size_t bytes;
        CHECK_OK(stream_client_receive(client, PATIENCE_MS, &data, &bytes));
        assert_int_equal(bytes, sizeof(i));
        assert_memory_equal(data, &i, sizeof(i));
    }
    uint64_t begin = os_clock_ms();
    stream_client_close(client);
    event = next_event(server, STREAM_EVENT_CLOSED);
    assert_in_range(os_clock_ms() - begin, 0, 500);
    assert_int_equal(event.cause, STREAM_CLOSE_PEER);
    assert_int_equal(stream_server_send(server, opened.connection_id, "x", 1), STATUS_CLOSED);
    stream_server_close(server);
}

static void send_large(void *argument)
{
    size_t bytes = 20u << 20;
    uint8_t *data = malloc(bytes);
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (uint8_t)(i * 2654435761u >> 13);
    }
    CHECK_OK(stream_client_send(argument, data, bytes, PATIENCE_MS));
    free(data);
}

static void a_large_frame_arrives_whole(void **state)
{
    struct stream_server *server =
        open_server_with(*state, (struct stream_server_options){.send_bytes_max = 1000});
    struct stream_client *client = open_client(*state);
    uint64_t id = next_event(server, STREAM_EVENT_OPENED).connection_id;
    struct os_thread *thread;
    CHECK_OK(os_thread_start("sender", send_large, client, &thread));
    struct stream_event event = next_event(server, STREAM_EVENT_FRAME);
    assert_int_equal(event.bytes, 20u << 20);
    for (size_t i = 0; i < event.bytes; i += 4093) {
        assert_int_equal(event.data[i], (uint8_t)(i * 2654435761u >> 13));
    }
    os_thread_join(thread);
    // And back: over send_bytes_max, but nothing else waits.
    CHECK_OK(stream_server_send(server, id, event.data, event.bytes));
    const uint8_t *data;
    size_t bytes;
    CHECK_OK(stream_client_receive(client, PATIENCE_MS, &data, &bytes));
    assert_int_equal(bytes, 20u << 20);
    assert_memory_equal(data, event.data, bytes);
    stream_client_close(client);
    stream_server_close(server);
}

static void bytes_may_come_one_by_one(void **state)
{
    struct stream_server *server = open_server(*state);
    int handle = raw_connect(*state);
    next_event(server, STREAM_EVENT_OPENED);
    const uint8_t bytes[] = {3, 0, 0, 0, 'a', 'b', 'c', 1, 0, 0, 0, 'd'};
    struct stream_event event;
    for (size_t i = 0; i < sizeof(bytes); i++) {
        raw_write(handle, &bytes[i], 1);
        if (i == 6 || i == sizeof(bytes) - 1) {
            event = next_event(server, STREAM_EVENT_FRAME);
            assert_int_equal(event.bytes, i == 6 ? 3 : 1);
            assert_int_equal(event.data[0], i == 6 ? 'a' : 'd');
        } else {
            assert_int_equal(stream_server_poll(server, 5, &event), STATUS_TIMEOUT);
        }
    }
    close(handle);
    next_event(server, STREAM_EVENT_CLOSED);
    stream_server_close(server);
}

static void a_false_length_ends_its_connection_only(void **state)
{
    struct stream_server *server =
        open_server_with(*state, (struct stream_server_options){.frame_bytes_max = 1000});
    struct stream_client *good = open_client(*state);
    next_event(server, STREAM_EVENT_OPENED);
    static const uint8_t lengths[][4] = {
        {0xff, 0xff, 0xff, 0xff}, {0xe9, 0x03, 0, 0} /* 1001 */, {0, 0, 0, 0}};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        int handle = raw_connect(*state);
        next_event(server, STREAM_EVENT_OPENED);
        raw_write(handle, lengths[i], 4);
        struct stream_event event = next_event(server, STREAM_EVENT_CLOSED);
        assert_int_equal(event.cause, STREAM_CLOSE_OVERSIZED);
        char byte;
        assert_true(read(handle, &byte, 1) <= 0);
        close(handle);
    }
    uint8_t data[1000] = {7};
    CHECK_OK(stream_client_send(good, data, sizeof(data), PATIENCE_MS));
    assert_int_equal(next_event(server, STREAM_EVENT_FRAME).bytes, sizeof(data));
    assert_int_equal(stream_client_send(good, data, 0, PATIENCE_MS), STATUS_REFUSED);
    stream_client_close(good);
    stream_server_close(server);
}

static void an_end_within_a_frame_is_an_end(void **state)
{
    struct stream_server *server = open_server(*state);
    int handle = raw_connect(*state);
    next_event(server, STREAM_EVENT_OPENED);
    raw_write(handle, "\x0a\0\0\0half", 8);
    close(handle);
    next_event(server, STREAM_EVENT_CLOSED);
    stream_server_close(server);
}

static void a_slow_reader_is_closed_and_nobody_waits(void **state)
{
    struct stream_server *server =
        open_server_with(*state, (struct stream_server_options){.send_bytes_max = 1 << 20});
    struct stream_client *slow = open_client(*state);
    uint64_t slow_id = next_event(server, STREAM_EVENT_OPENED).connection_id;
    struct stream_client *good = open_client(*state);
    uint64_t good_id = next_event(server, STREAM_EVENT_OPENED).connection_id;
    static uint8_t data[100000];
    enum status status = STATUS_OK;
    uint64_t begin = os_clock_ms();
    for (int i = 0; i < 100 && status == STATUS_OK; i++) {
        status = stream_server_send(server, slow_id, data, sizeof(data));
    }
    assert_int_equal(status, STATUS_BUSY);
    assert_int_equal(stream_server_send(server, slow_id, data, 1), STATUS_CLOSED);
    struct stream_event event = next_event(server, STREAM_EVENT_CLOSED);
    assert_in_range(os_clock_ms() - begin, 0, 1000);
    assert_int_equal(event.connection_id, slow_id);
    assert_int_equal(event.cause, STREAM_CLOSE_SLOW);
    CHECK_OK(stream_server_send(server, good_id, "x", 1));
    const uint8_t *received;
    size_t bytes;
    CHECK_OK(stream_client_receive(good, PATIENCE_MS, &received, &bytes));
    stream_client_close(slow);
    stream_client_close(good);
    stream_server_close(server);
}

static void disconnect_sends_what_is_queued(void **state)
{
    struct stream_server *server = open_server(*state);
    struct stream_client *client = open_client(*state);
    uint64_t id = next_event(server, STREAM_EVENT_OPENED).connection_id;
    size_t bytes = 4u << 20; // more than the socket takes at once
    uint8_t *data = calloc(1, bytes);
    CHECK_OK(stream_server_send(server, id, data, bytes));
    stream_server_disconnect(server, id);
    assert_int_equal(stream_server_send(server, id, data, 1), STATUS_CLOSED);
    const uint8_t *received;
    size_t received_bytes;
    CHECK_OK(stream_client_receive(client, PATIENCE_MS, &received, &received_bytes));
    assert_int_equal(received_bytes, bytes);
    assert_int_equal(next_event(server, STREAM_EVENT_CLOSED).cause, STREAM_CLOSE_LOCAL);
    assert_int_equal(stream_client_receive(client, PATIENCE_MS, &received, &received_bytes),
                     STATUS_CLOSED);
    free(data);
    stream_client_close(client);
    stream_server_close(server);
}

static void disconnect_waits_for_a_stopped_reader_at_most_2_s(void **state)
{
    struct stream_server *server = open_server(*state);
    int handle = raw_connect(*state);
    uint64_t id = next_event(server, STREAM_EVENT_OPENED).connection_id;
    size_t bytes = 4u << 20;
    uint8_t *data = calloc(1, bytes);
    CHECK_OK(stream_server_send(server, id, data, bytes));
    uint64_t begin = os_clock_ms();
    stream_server_disconnect(server, id);
    next_event(server, STREAM_EVENT_CLOSED);
    assert_in_range(os_clock_ms() - begin, 1500, 4000);
    close(handle);
    free(data);
    stream_server_close(server);
}

static void too_many_connections_are_closed(void **state)
{
    struct stream_server *server =
        open_server_with(*state, (struct stream_server_options){.connections_max = 2});
    struct stream_client *clients[3];
    for (int i = 0; i < 3; i++) {
        clients[i] = open_client(*state);
    }
    next_event(server, STREAM_EVENT_OPENED);
    next_event(server, STREAM_EVENT_OPENED);
    const uint8_t *data;
    size_t bytes;
    assert_int_equal(stream_client_receive(clients[2], PATIENCE_MS, &data, &bytes), STATUS_CLOSED);
    stream_client_close(clients[0]); // a place becomes free
    next_event(server, STREAM_EVENT_CLOSED);
    struct stream_client *next = open_client(*state);
    next_event(server, STREAM_EVENT_OPENED);
    stream_client_close(next);
    stream_client_close(clients[1]);
    stream_client_close(clients[2]);
    stream_server_close(server);
}

static void receive_timeouts_lose_nothing(void **state)
{
    struct stream_server *server = open_server(*state);
    struct stream_client *client = open_client(*state);
    uint64_t id = next_event(server, STREAM_EVENT_OPENED).connection_id;
    const uint8_t *data;
    size_t bytes;
    uint64_t begin = os_clock_ms();
    assert_int_equal(stream_client_receive(client, 100, &data, &bytes), STATUS_TIMEOUT);
    assert_in_range(os_clock_ms() - begin, 50, 2000);
    CHECK_OK(stream_server_send(server, id, "later", 5));
    CHECK_OK(stream_client_receive(client, PATIENCE_MS, &data, &bytes));
    assert_memory_equal(data, "later", 5);
    stream_client_close(client);
    stream_server_close(server);
}

static void abort_soon(void *argument)
{
    os_sleep_ms(100);
    stream_client_abort(argument);
}

static void abort_ends_a_receive(void **state)
{
    struct stream_server *server = open_server(*state);
    struct stream_client *client = open_client(*state);
    next_event(server, STREAM_EVENT_OPENED);
    struct os_thread *thread;
    CHECK_OK(os_thread_start("abort", abort_soon, client, &thread));
    const uint8_t *data;
    size_t bytes;
    uint64_t begin = os_clock_ms();
    assert_int_equal(stream_client_receive(client, OS_WAIT_FOREVER, &data, &bytes),
                     STATUS_CANCELLED);
    assert_in_range(os_clock_ms() - begin, 50, 2000);
    os_thread_join(thread);
    next_event(server, STREAM_EVENT_CLOSED); // so the request is cancelled
    assert_int_equal(stream_client_send(client, "x", 1, PATIENCE_MS), STATUS_CANCELLED);
    stream_client_close(client);
    stream_server_close(server);
}

static void nobody_there_is_said_at_once(void **state)
{
    struct fixture *fixture = *state;
    struct stream_client *client;
    struct reason reason = {0};
    uint64_t begin = os_clock_ms();
    assert_int_equal(stream_client_open(fixture->url, PATIENCE_MS, &client, &reason),
                     STATUS_UNREACHABLE);
    pid_t pid = peer_start("server", fixture->folder);
    peer_end(pid, SIGKILL);
    assert_int_equal(stream_client_open(fixture->url, PATIENCE_MS, &client, &reason),
                     STATUS_UNREACHABLE);
    assert_in_range(os_clock_ms() - begin, 0, 3000);
}

static void server_death_is_seen_at_once(void **state)
{
    struct fixture *fixture = *state;
    pid_t pid = peer_start("server", fixture->folder);
    struct stream_client *client = open_client(fixture);
    const uint8_t *data;
    size_t bytes;
    CHECK_OK(stream_client_send(client, "echo", 4, PATIENCE_MS));
    CHECK_OK(stream_client_receive(client, PATIENCE_MS, &data, &bytes));
    assert_memory_equal(data, "echo", 4);
    peer_end(pid, SIGKILL);
    uint64_t begin = os_clock_ms();
    assert_int_equal(stream_client_receive(client, PATIENCE_MS, &data, &bytes), STATUS_CLOSED);
    assert_in_range(os_clock_ms() - begin, 0, 500);
    stream_client_close(client);
    struct stream_server *server = open_server(fixture); // over what the dead one left
    client = open_client(fixture);
    next_event(server, STREAM_EVENT_OPENED);
    stream_client_close(client);
    stream_server_close(server);
}

static void a_killed_app_is_seen_at_once(void **state)
{
    struct fixture *fixture = *state;
    struct stream_server *server = open_server(fixture);
    pid_t pid = peer_start("client", fixture->folder);
    next_event(server, STREAM_EVENT_OPENED);
    next_event(server, STREAM_EVENT_FRAME);
    uint64_t begin = os_clock_ms();
    peer_end(pid, SIGKILL);
    next_event(server, STREAM_EVENT_CLOSED);
    assert_in_range(os_clock_ms() - begin, 0, 500);
    stream_server_close(server);
}

static void wake_ends_a_poll(void **state)
{
    struct stream_server *server = open_server(*state);
    struct stream_event event;
    assert_int_equal(stream_server_poll(server, 10, &event), STATUS_TIMEOUT);
    stream_server_wake(server);
    next_event(server, STREAM_EVENT_WOKEN);
    assert_int_equal(stream_server_poll(server, 0, &event), STATUS_TIMEOUT);
    stream_server_close(server);
}

// Many short connections from several threads: rows are given back, nothing is mixed up.
static void churn(void *argument)
{
    const struct fixture *fixture = argument;
    for (uint32_t i = 0; i < 50; i++) {
        struct stream_client *client = open_client(fixture);
        const uint8_t *data;
        size_t bytes;
        for (uint32_t k = 0; k < i % 4; k++) {
            CHECK_OK(stream_client_send(client, &i, sizeof(i), PATIENCE_MS));
            CHECK_OK(stream_client_receive(client, PATIENCE_MS, &data, &bytes));
            assert_memory_equal(data, &i, sizeof(i));
        }
        stream_client_close(client);
    }
}

static void connections_come_and_go(void **state)
{
    struct stream_server *server =
        open_server_with(*state, (struct stream_server_options){.connections_max = 8});
    struct os_thread *threads[2];
    for (int i = 0; i < 2; i++) {
        CHECK_OK(os_thread_start("churn", churn, *state, &threads[i]));
    }
    int opened = 0;
    int closed = 0;
    while (closed < 100) {
        struct stream_event event;
        CHECK_OK(stream_server_poll(server, PATIENCE_MS, &event));
        opened += event.kind == STREAM_EVENT_OPENED;
        closed += event.kind == STREAM_EVENT_CLOSED;
        if (event.kind == STREAM_EVENT_FRAME) {
            CHECK_OK(stream_server_send(server, event.connection_id, event.data, event.bytes));
        }
    }
    assert_int_equal(opened, 100);
    for (int i = 0; i < 2; i++) {
        os_thread_join(threads[i]);
    }
    stream_server_close(server);
}

// ---- the peers, in processes of their own

static void echo(const struct fixture *fixture)
{
    struct stream_server *server = open_server(fixture);
    puts("ready");
    fflush(stdout);
    for (;;) {
        struct stream_event event;
        if (stream_server_poll(server, 1000, &event) == STATUS_OK &&
            event.kind == STREAM_EVENT_FRAME) {
            CHECK_OK(stream_server_send(server, event.connection_id, event.data, event.bytes));
        }
    }
}

static int send_and_wait(const struct fixture *fixture)
{
    struct stream_client *client = open_client(fixture);
    CHECK_OK(stream_client_send(client, "x", 1, PATIENCE_MS));
    puts("ready");
    fflush(stdout);
    os_sleep_ms(60000);
    return 0;
}

static int run_peer(const char *role, const char *folder)
{
    struct fixture fixture = {.lock.file.handle = -1};
    CHECK_OK(endpoint_url_make(folder, "test", fixture.url, NULL));
    if (strcmp(role, "client") == 0) {
        return send_and_wait(&fixture);
    }
    CHECK_OK(instance_lock_acquire(folder, "peer", &fixture.lock, NULL));
    echo(&fixture);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        return run_peer(argv[1], argv[2]);
    }
#define STREAM_TEST(function)                                                                      \
    cmocka_unit_test_setup_teardown(function, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        STREAM_TEST(frames_go_both_ways),
        STREAM_TEST(a_large_frame_arrives_whole),
        STREAM_TEST(bytes_may_come_one_by_one),
        STREAM_TEST(a_false_length_ends_its_connection_only),
        STREAM_TEST(an_end_within_a_frame_is_an_end),
        STREAM_TEST(a_slow_reader_is_closed_and_nobody_waits),
        STREAM_TEST(disconnect_sends_what_is_queued),
        STREAM_TEST(disconnect_waits_for_a_stopped_reader_at_most_2_s),
        STREAM_TEST(too_many_connections_are_closed),
        STREAM_TEST(receive_timeouts_lose_nothing),
        STREAM_TEST(abort_ends_a_receive),
        STREAM_TEST(nobody_there_is_said_at_once),
        STREAM_TEST(server_death_is_seen_at_once),
        STREAM_TEST(a_killed_app_is_seen_at_once),
        STREAM_TEST(wake_ends_a_poll),
        STREAM_TEST(connections_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
