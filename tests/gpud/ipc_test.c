// SPDX-License-Identifier: Apache-2.0
// At stake: one app's mistakes, death or slowness must stay its own. A real gpud but for main,
// behind a real socket, is spoken to in raw frames: out of order, malformed, too long, unread, cut
// off.
#include "tests/gpud/ipc_rig.h"

#include "proto/endpoint_stream_client.h"
#include "proto/gpu_message.h"

#include <sys/socket.h>
#include <sys/un.h>

enum { FRAME_TIMEOUT_MS = 30000, UNREAD_TEXT_BYTES = 1 << 20, UNREAD_REQUESTS = 64 };

static struct server server;

// ---- an app of raw frames

static struct stream_client *open_stream(void)
{
    struct stream_client *stream = NULL;
    CHECK_OK(stream_client_open(server.url, FRAME_TIMEOUT_MS, &stream, NULL));
    return stream;
}

static void send_bytes(struct stream_client *stream, const void *data, size_t bytes)
{
    CHECK_OK(stream_client_send(stream, data, bytes, FRAME_TIMEOUT_MS));
}

static void send_request(struct stream_client *stream, const struct gpu_request *request)
{
    void *data = NULL;
    size_t bytes = 0;
    CHECK_OK(gpu_request_encode(request, &data, &bytes));
    send_bytes(stream, data, bytes);
    free(data);
}

static void send_op(struct stream_client *stream, enum gpu_op op)
{
    struct gpu_request request;
    gpu_request_init(&request, op);
    send_request(stream, &request);
}

// The next event, which the caller finishes; it points into the stream's frame.
static struct gpu_event next_event(struct stream_client *stream)
{
    const uint8_t *data = NULL;
    size_t bytes = 0;
    struct gpu_event event;
    CHECK_OK(stream_client_receive(stream, FRAME_TIMEOUT_MS, &data, &bytes));
    CHECK_OK(gpu_event_decode(data, bytes, &event, NULL));
    return event;
}

static void expect_kind(struct stream_client *stream, enum gpu_event_kind kind)
{
    struct gpu_event event = next_event(stream);
    if (event.kind == GPU_EVENT_ERROR && kind != GPU_EVENT_ERROR) {
        fail_msg("error: %s", event.reason.text);
    }
    assert_int_equal(event.kind, kind);
    gpu_event_finish(&event);
}

static void expect_error(struct stream_client *stream, enum status status)
{
    struct gpu_event event = next_event(stream);
    assert_int_equal(event.kind, GPU_EVENT_ERROR);
    assert_int_equal(event.error, status);
    assert_true(event.reason.text[0] != 0);
}

static void expect_closed(struct stream_client *stream)
{
    const uint8_t *data = NULL;
    size_t bytes = 0;
    assert_int_equal(stream_client_receive(stream, FRAME_TIMEOUT_MS, &data, &bytes), STATUS_CLOSED);
}

static struct stream_client *open_app(void)
{
    struct stream_client *stream = open_stream();
    send_op(stream, GPU_OP_HELLO);
    struct gpu_event event = next_event(stream);
    assert_int_equal(event.kind, GPU_EVENT_HELLO);
    assert_true(event.hello.epoch == 42);
    assert_int_equal(event.hello.vocab_tokens, TINY_VOCAB);
    return stream;
}

static void ask_to_generate(struct stream_client *stream, int64_t max_tokens)
{
    struct gpu_request request;
    gpu_request_init(&request, GPU_OP_GENERATE);
    request.prompt = (struct gpu_text){.text = "abc", .bytes = 3};
    request.max_tokens = max_tokens;
    request.ignore_eos = true;
    request.sampling.temperature = 0;
    send_request(stream, &request);
}

// A whole request that must succeed: gpud is well.
static void expect_well(void)
{
    struct stream_client *stream = open_app();
    ask_to_generate(stream, 3);
    enum gpu_event_kind kind;
    uint32_t tokens = 0;
    do {
        struct gpu_event event = next_event(stream);
        kind = event.kind;
        assert_int_not_equal(kind, GPU_EVENT_ERROR);
        tokens += kind == GPU_EVENT_TOKEN;
    } while (kind != GPU_EVENT_DONE);
    assert_int_equal(tokens, 3);
    stream_client_close(stream);
}

// ---- order

static void test_hello_comes_first(void **state)
{
    (void)state;
    struct stream_client *stream = open_stream();
    ask_to_generate(stream, 1);
    expect_error(stream, STATUS_INVALID);
    send_op(stream, GPU_OP_STATUS);
    expect_error(stream, STATUS_INVALID);
    send_op(stream, GPU_OP_HELLO); // it may still do better
    expect_kind(stream, GPU_EVENT_HELLO);
    stream_client_close(stream);
    expect_well();
}

static void test_other_version(void **state)
{
    (void)state;
    struct stream_client *stream = open_stream();
    struct gpu_request request;
    gpu_request_init(&request, GPU_OP_HELLO);
    request.version = GPU_PROTOCOL_VERSION + 1;
    send_request(stream, &request);
    expect_error(stream, STATUS_VERSION);
    expect_closed(stream);
    stream_client_close(stream);
}

static void test_one_request_at_a_time(void **state)
{
    (void)state;
    struct stream_client *stream = open_app();
    ask_to_generate(stream, 900);
    ask_to_generate(stream, 1);
    uint32_t busy = 0;
    enum gpu_event_kind kind;
    do {
        struct gpu_event event = next_event(stream);
        kind = event.kind;
        if (kind == GPU_EVENT_ERROR) {
            assert_int_equal(event.error, STATUS_BUSY);
            busy++;
        }
    } while (kind != GPU_EVENT_DONE);
    assert_int_equal(busy, 1);
    ask_to_generate(stream, 1); // after DONE the connection may ask again
    expect_kind(stream, GPU_EVENT_START);
    stream_client_close(stream);
}

static void test_status(void **state)
{
    (void)state;
    struct stream_client *stream = open_app();
    for (int i = 0; i < 3; i++) {
        send_op(stream, GPU_OP_STATUS);
        struct gpu_event event = next_event(stream);
        assert_int_equal(event.kind, GPU_EVENT_STATUS);
        assert_string_equal(event.status->model_name, "tiny");
        assert_true(event.status->has_store);
        assert_false(event.status->store_attached); // a private store
        assert_true(event.status->store.slot_count > 0);
        assert_true(event.status->anonymous_bytes > 0);
        gpu_event_finish(&event);
        expect_kind(stream, GPU_EVENT_DONE);
    }
    stream_client_close(stream);
}

// ---- malformed

static void test_malformed_frame(void **state)
{
    (void)state;
    struct stream_client *stream = open_app();
    send_bytes(stream, "\xff\x00garbage", 9);
    expect_error(stream, STATUS_INVALID);
    expect_closed(stream);
    stream_client_close(stream);
    expect_well();
}

static void test_unknown_op(void **state)
{
    (void)state;
    static const char fly[] = "\x81\xa2op\xa3"
                              "fly";
    struct stream_client *stream = open_app();
    send_bytes(stream, fly, sizeof(fly) - 1);
    expect_error(stream, STATUS_UNSUPPORTED);
    ask_to_generate(stream, 1); // the connection lives
    expect_kind(stream, GPU_EVENT_START);
    stream_client_close(stream);
}

static void test_random_frames(void **state)
{
    (void)state;
    uint64_t random = check_seed();
    for (int i = 0; i < 200; i++) {
        struct stream_client *stream = i % 2 == 0 ? open_app() : open_stream();
        uint8_t frame[64];
        size_t bytes = 1 + check_random(&random) % sizeof(frame);
        for (size_t k = 0; k < bytes; k++) {
            frame[k] = (uint8_t)check_random(&random);
        }
        send_bytes(stream, frame, bytes);
        expect_kind(stream, GPU_EVENT_ERROR);
        stream_client_close(stream);
    }
    expect_well();
}

static int raw_socket(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = server.url + strlen("ipc://");
    assert_true(strlen(path) < sizeof(address.sun_path));
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

// Lengths of 0 and of 4 GiB end the connection; so does an end in the middle of a frame.
static void test_bad_lengths(void **state)
{
    (void)state;
    static const uint8_t heads[][6] = {{0, 0, 0, 0}, {255, 255, 255, 255}, {1, 0, 0, 0x80}};
    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        int fd = raw_socket();
        char byte;
        assert_int_equal(write(fd, heads[i], 4), 4);
        assert_true(read(fd, &byte, 1) <= 0);
        close(fd);
    }
    int fd = raw_socket();
    static const uint8_t cut[] = {100, 0, 0, 0, 0x81};
    assert_int_equal(write(fd, cut, sizeof(cut)), sizeof(cut));
    close(fd);
    expect_well();
}

static void expect_refused(const struct gpu_request *request)
{
    struct stream_client *stream = open_app();
    send_request(stream, request);
    expect_error(stream, STATUS_INVALID);
    stream_client_close(stream);
}

static void test_bad_requests(void **state)
{
    (void)state;
    static const char *const names[] = {"a/b", "..", "con", "\x01", "\xff"};
    struct gpu_request request;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        gpu_request_init(&request, GPU_OP_SESSION_SHOW);
        request.session = (struct gpu_text){.text = names[i], .bytes = strlen(names[i])};
        expect_refused(&request);
    }
    gpu_request_init(&request, GPU_OP_SESSION_DELETE);
    expect_refused(&request); // no name
    request.session = (struct gpu_text){.text = "a\0b", .bytes = 3};
    expect_refused(&request);
    gpu_request_init(&request, GPU_OP_GENERATE);
    request.stop[0] = (struct gpu_text){.text = "", .bytes = 0};
    request.stop_count = 1;
    expect_refused(&request);
    struct gpu_turn turn = {.content = {.text = "a", .bytes = 1}};
    gpu_request_init(&request, GPU_OP_GENERATE);
    request.turns = &turn;
    request.turn_count = 1;
    expect_refused(&request); // no role
    expect_well();
}

// ---- ends

static void test_closing_cancels(void **state)
{
    (void)state;
    struct stats *stats = &server.machine.stats;
    uint64_t before = atomic_load(&stats->cancelled_count);
    struct stream_client *stream = open_app();
    ask_to_generate(stream, 1000);
    while (next_event(stream).kind != GPU_EVENT_TOKEN) {
    }
    stream_client_close(stream);
    server_wait_count(&stats->cancelled_count, before + 1);
    expect_well();
    assert_int_equal(machine_leased_slots(&server.machine), 0);
}

// An app that asks and asks but never reads is closed; another one is served meanwhile.
static void test_unread_answers(void **state)
{
    (void)state;
    struct stream_client *stream = open_app();
    struct gpu_request request;
    char *text = malloc(UNREAD_TEXT_BYTES);
    assert_non_null(text);
    memset(text, 'a', UNREAD_TEXT_BYTES);
    gpu_request_init(&request, GPU_OP_TOKENIZE);
    request.prompt = (struct gpu_text){.text = text, .bytes = UNREAD_TEXT_BYTES};
    void *data = NULL;
    size_t bytes = 0;
    CHECK_OK(gpu_request_encode(&request, &data, &bytes));
    enum status status = STATUS_OK;
    for (int i = 0; i < UNREAD_REQUESTS && status == STATUS_OK; i++) {
        uint64_t done = atomic_load(&server.machine.stats.done_count);
        status = stream_client_send(stream, data, bytes, FRAME_TIMEOUT_MS);
        if (status == STATUS_OK) {
            server_wait_count(&server.machine.stats.done_count, done + 1);
        }
        if (i == 2) {
            expect_well();
        }
    }
    assert_int_equal(status, STATUS_CLOSED);
    free(data);
    free(text);
    stream_client_close(stream);
    expect_well();
}

static int create_server(void **state)
{
    (void)state;
    const struct machine_options options = {.context_tokens = 1024, .arena_blocks = 256};
    server_create(&server, &options);
    return 0;
}

static int destroy_server(void **state)
{
    (void)state;
    server_destroy(&server);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hello_comes_first),     cmocka_unit_test(test_other_version),
        cmocka_unit_test(test_one_request_at_a_time), cmocka_unit_test(test_status),
        cmocka_unit_test(test_malformed_frame),       cmocka_unit_test(test_unknown_op),
        cmocka_unit_test(test_random_frames),         cmocka_unit_test(test_bad_lengths),
        cmocka_unit_test(test_bad_requests),          cmocka_unit_test(test_closing_cancels),
        cmocka_unit_test(test_unread_answers),
    };
    return cmocka_run_group_tests(tests, create_server, destroy_server);
}
