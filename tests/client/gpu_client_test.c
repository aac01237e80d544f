// SPDX-License-Identifier: Apache-2.0
// At stake: an app must never hang or crash, whatever listens on gpud's socket. A server of the
// test plays a gpud that refuses, talks nonsense, says nothing or goes away; the good conversation
// is kvtier_test's.
#include "tests/check.h"

#include "client/gpu_client.h"
#include "proto/endpoint_stream_server.h"
#include "proto/os/clock.h"
#include "proto/os/thread.h"

#include <stdatomic.h>

enum { WAIT_MS = 30000 };

// What the false gpud does with the frames it gets: one step each, in order.
enum step {
    STEP_HELLO,   // answers hello as gpud does
    STEP_STATUS,  // answers with another event than was asked for
    STEP_ERROR,   // an error event
    STEP_GARBAGE, // bytes that are no message
    STEP_CLOSE,
    STEP_SILENCE,
    STEP_END,
};

struct false_gpud {
    char folder[256];
    char url[LIMIT_URL_BYTES];
    struct instance_lock lock;
    struct stream_server *server;
    struct os_thread *thread;
    const enum step *steps;
    atomic_bool stopping;
};

static void answer(struct false_gpud *gpud, uint64_t connection, const struct gpu_event *event)
{
    void *data = NULL;
    size_t bytes = 0;
    CHECK_OK(gpu_event_encode(event, &data, &bytes));
    CHECK_OK(stream_server_send(gpud->server, connection, data, bytes));
    free(data);
}

static void take_step(struct false_gpud *gpud, uint64_t connection, enum step step)
{
    struct gpu_event event = {.kind = GPU_EVENT_HELLO};
    switch (step) {
    case STEP_HELLO:
        event.hello.model_name = (struct gpu_text){.text = "m", .bytes = 1};
        event.hello.vocab_tokens = 7;
        answer(gpud, connection, &event);
        break;
    case STEP_STATUS:
        event.kind = GPU_EVENT_TEXT;
        answer(gpud, connection, &event);
        break;
    case STEP_ERROR:
        event = (struct gpu_event){.kind = GPU_EVENT_ERROR, .error = STATUS_VERSION};
        (void)reason_set(&event.reason, STATUS_VERSION, "hint", "why");
        answer(gpud, connection, &event);
        break;
    case STEP_GARBAGE:
        CHECK_OK(stream_server_send(gpud->server, connection, "\xc1", 1));
        break;
    case STEP_CLOSE:
        stream_server_disconnect(gpud->server, connection);
        break;
    case STEP_SILENCE:
    case STEP_END:
        break;
    }
}

static void gpud_main(void *context)
{
    struct false_gpud *gpud = context;
    struct stream_event event;
    while (!atomic_load(&gpud->stopping)) {
        if (stream_server_poll(gpud->server, 20, &event) == STATUS_OK &&
            event.kind == STREAM_EVENT_FRAME && *gpud->steps != STEP_END) {
            take_step(gpud, event.connection_id, *gpud->steps++);
        }
    }
}

static void gpud_start(struct false_gpud *gpud, const enum step *steps)
{
    memset(gpud, 0, sizeof(*gpud));
    gpud->steps = steps;
    check_folder_create(gpud->folder);
    CHECK_OK(endpoint_url_make(gpud->folder, "gpud", gpud->url, NULL));
    CHECK_OK(instance_lock_acquire(gpud->folder, "gpud", &gpud->lock, NULL));
    const struct stream_server_options options = {.url = gpud->url, .lock = &gpud->lock};
    CHECK_OK(stream_server_open(&options, &gpud->server, NULL));
    CHECK_OK(os_thread_start("gpud", gpud_main, gpud, &gpud->thread));
}

static void gpud_stop(struct false_gpud *gpud)
{
    atomic_store(&gpud->stopping, true);
    os_thread_join(gpud->thread);
    stream_server_close(gpud->server);
    instance_lock_release(&gpud->lock);
    check_folder_remove(gpud->folder);
}

static enum status open_client(const struct false_gpud *gpud, struct gpu_client **out_client,
                               struct reason *reason)
{
    const struct gpu_client_options options = {.url = gpud->url, .program = "test"};
    return gpu_client_open(&options, out_client, reason);
}

static void test_bad_hello(void **state)
{
    (void)state;
    static const struct {
        enum step step;
        enum status status;
    } cases[] = {
        {STEP_STATUS, STATUS_DAMAGED}, {STEP_GARBAGE, STATUS_DAMAGED}, {STEP_CLOSE, STATUS_CLOSED},
        {STEP_ERROR, STATUS_VERSION},  {STEP_SILENCE, STATUS_TIMEOUT},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const enum step steps[] = {cases[i].step, STEP_END};
        struct false_gpud gpud;
        struct gpu_client *client = NULL;
        struct reason reason = {0};
        gpud_start(&gpud, steps);
        assert_int_equal(open_client(&gpud, &client, &reason), cases[i].status);
        assert_null(client);
        assert_true(reason.text[0] != 0);
        gpud_stop(&gpud);
    }
}

// After hello: an error leaves the client alive, all else does not.
static void test_bad_answers(void **state)
{
    (void)state;
    static const struct {
        enum step step;
        enum status status;
        bool alive;
    } cases[] = {
        {STEP_ERROR, STATUS_VERSION, true},
        {STEP_GARBAGE, STATUS_DAMAGED, false},
        {STEP_CLOSE, STATUS_CLOSED, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const enum step steps[] = {STEP_HELLO, cases[i].step, STEP_END};
        struct false_gpud gpud;
        struct gpu_client *client = NULL;
        const struct gpu_event *event = NULL;
        struct gpu_request request;
        struct reason reason = {0};
        gpud_start(&gpud, steps);
        CHECK_OK(open_client(&gpud, &client, &reason));
        assert_int_equal(gpu_client_hello(client)->vocab_tokens, 7);
        gpu_request_init(&request, GPU_OP_SESSION_LIST);
        CHECK_OK(gpu_client_send(client, &request, &reason));
        assert_int_equal(gpu_client_receive(client, &event, &reason), cases[i].status);
        assert_true(reason.text[0] != 0);
        assert_int_equal(gpu_client_alive(client), cases[i].alive);
        gpu_client_close(client);
        gpud_stop(&gpud);
    }
}

static void set_later(void *context)
{
    atomic_bool *flag = context;
    os_sleep_ms(100);
    atomic_store(flag, true);
}

static void test_cancel(void **state)
{
    (void)state;
    static const enum step steps[] = {STEP_HELLO, STEP_SILENCE, STEP_END};
    static atomic_bool cancelled;
    struct false_gpud gpud;
    struct gpu_client *client = NULL;
    const struct gpu_event *event = NULL;
    struct gpu_request request;
    struct os_thread *thread = NULL;
    gpud_start(&gpud, steps);
    const struct gpu_client_options options = {
        .url = gpud.url, .program = "test", .cancelled = &cancelled};
    CHECK_OK(gpu_client_open(&options, &client, NULL));
    gpu_request_init(&request, GPU_OP_STATUS);
    CHECK_OK(gpu_client_send(client, &request, NULL));
    CHECK_OK(os_thread_start("cancel", set_later, &cancelled, &thread));
    uint64_t started_ms = os_clock_ms();
    assert_int_equal(gpu_client_receive(client, &event, NULL), STATUS_CANCELLED);
    assert_true(os_clock_ms() - started_ms < WAIT_MS);
    assert_false(gpu_client_alive(client));
    os_thread_join(thread);
    gpu_client_close(client);
    gpud_stop(&gpud);
}

static void test_too_long(void **state)
{
    (void)state;
    static const enum step steps[] = {STEP_HELLO, STEP_END};
    struct false_gpud gpud;
    struct gpu_client *client = NULL;
    struct gpu_request request;
    struct reason reason = {0};
    char *text = calloc(1, (size_t)LIMIT_FRAME_BYTES + 1);
    assert_non_null(text);
    gpud_start(&gpud, steps);
    CHECK_OK(open_client(&gpud, &client, NULL));
    gpu_request_init(&request, GPU_OP_TOKENIZE);
    request.prompt = (struct gpu_text){.text = text, .bytes = (uint64_t)LIMIT_FRAME_BYTES + 1};
    assert_int_equal(gpu_client_send(client, &request, &reason), STATUS_REFUSED);
    assert_true(gpu_client_alive(client)); // nothing was sent
    free(text);
    gpu_client_close(client);
    gpu_client_close(NULL);
    gpud_stop(&gpud);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_hello),
        cmocka_unit_test(test_bad_answers),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
