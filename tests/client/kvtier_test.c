// SPDX-License-Identifier: Apache-2.0
// At stake: the library is the contract that other people's programs are built on. Each call runs
// against a whole gpud but for its main: what it promises in kvtier.h about text, counts,
// cancelling, one call at a time, and going on after gpud was gone, is checked here.
#include "tests/gpud/ipc_rig.h"

#include "client/kvtier.h"
#include "proto/os/thread.h"

#include <math.h>

static struct server server;

static struct kvtier_client *open_client(void)
{
    struct kvtier_client *client = NULL;
    struct kvtier_error error = {0};
    if (kvtier_open(server.url, &client, &error) != KVTIER_OK) {
        fail_msg("%s", error.message);
    }
    return client;
}

static void check(int status, const struct kvtier_error *error)
{
    if (status != KVTIER_OK) {
        fail_msg("%s: %s", kvtier_status_name(status), error->message);
    }
}

// ---- generate

struct heard {
    uint32_t starts, tokens;
    struct kvtier_start start;
    char text[4096];
    size_t text_bytes;
    struct kvtier_client *cancel; // at the third token
};

static void on_start(void *context, const struct kvtier_start *start)
{
    struct heard *heard = context;
    heard->starts++;
    heard->start = *start;
}

static void on_token(void *context, const struct kvtier_token *token)
{
    struct heard *heard = context;
    assert_int_equal(strlen(token->text), token->text_bytes);
    assert_true(token->has_logits_hash);
    memcpy(heard->text + heard->text_bytes, token->text, token->text_bytes);
    heard->text_bytes += token->text_bytes;
    if (++heard->tokens == 3 && heard->cancel != NULL) {
        kvtier_cancel(heard->cancel);
    }
}

static struct kvtier_generate greedy(const char *prompt, int64_t max_tokens, struct heard *heard)
{
    struct kvtier_generate request;
    kvtier_generate_init(&request);
    request.prompt = prompt;
    request.prompt_bytes = strlen(prompt);
    request.max_tokens = max_tokens;
    request.sampling.temperature = 0;
    request.ignore_eos = true;
    request.logits_hash = true;
    request.events =
        (struct kvtier_generate_events){.context = heard, .start = on_start, .token = on_token};
    return request;
}

static void test_generate(void **state)
{
    (void)state;
    struct kvtier_client *client = open_client();
    struct kvtier_error error;
    struct heard heard = {0};
    struct kvtier_generate request =
        greedy("the cat sat on the mat and the dog sat too", 40, &heard);
    struct kvtier_result result;
    check(kvtier_generate(client, &request, &result, &error), &error);
    assert_string_equal(result.finish_reason, "length");
    assert_int_equal(result.completion_tokens, 40);
    assert_int_equal(heard.starts, 1);
    assert_int_equal(heard.tokens, 40);
    assert_int_equal(heard.text_bytes, result.text_bytes); // joined tokens are the text
    assert_memory_equal(heard.text, result.text, result.text_bytes);
    assert_int_equal(result.text[result.text_bytes], 0);
    const struct kvtier_start *start = &result.start;
    assert_int_equal(start->cached_tokens + start->computed_tokens, start->prompt_tokens);
    assert_int_equal(start->cached_hot_tokens + start->cached_ram_tokens +
                         start->cached_disk_tokens,
                     start->cached_tokens);
    assert_true(result.ttft_ms > 0 && result.decode_tokens_per_s > 0);
    assert_string_equal(result.session, "");

    // The same from ids gives the same.
    uint32_t *ids = NULL;
    size_t count = 0;
    struct kvtier_result again;
    check(kvtier_tokenize(client, request.prompt, request.prompt_bytes, KVTIER_ADD_SPECIAL, &ids,
                          &count, &error),
          &error);
    request.prompt = NULL;
    request.prompt_bytes = 0;
    request.prompt_ids = ids;
    request.prompt_id_count = count;
    heard = (struct heard){0};
    check(kvtier_generate(client, &request, &again, &error), &error);
    assert_memory_equal(again.token_ids, result.token_ids, 40 * sizeof(uint32_t));
    kvtier_free(ids);
    kvtier_result_finish(&result);
    kvtier_result_finish(&again);
    kvtier_result_finish(&again); // zeroed memory is fine
    kvtier_close(client);
}

static void test_errors(void **state)
{
    (void)state;
    struct kvtier_client *client = open_client();
    struct kvtier_error error;
    struct kvtier_result result;
    struct heard heard = {0};
    struct kvtier_generate request = greedy("", 1, &heard);
    assert_int_equal(kvtier_generate(client, &request, &result, &error), KVTIER_INVALID);
    assert_true(error.message[0] != 0 && error.status == KVTIER_INVALID);
    request = greedy("a", 1, &heard);
    request.prompt_ids = (const uint32_t[]){1};
    request.prompt_id_count = (size_t)1 << 33; // must not be cut to 0
    assert_int_equal(kvtier_generate(client, &request, &result, NULL), KVTIER_REFUSED);
    const char *stops[LIMIT_STOP_STRINGS + 1] = {"a"};
    request = greedy("a", 1, &heard);
    request.stop = stops;
    request.stop_count = LIMIT_STOP_STRINGS + 1;
    assert_int_equal(kvtier_generate(client, &request, &result, &error), KVTIER_REFUSED);
    // After errors the client goes on.
    request = greedy("abc", 2, &heard);
    check(kvtier_generate(client, &request, &result, &error), &error);
    kvtier_result_finish(&result);
    kvtier_close(client);
    kvtier_close(NULL);
}

static void test_cancel(void **state)
{
    (void)state;
    struct kvtier_client *client = open_client();
    struct kvtier_error error;
    struct kvtier_result result = {.completion_tokens = 77};
    struct heard heard = {.cancel = client};
    uint64_t before = atomic_load(&server.machine.stats.cancelled_count);
    struct kvtier_generate request = greedy("abc", 1000, &heard);
    assert_int_equal(kvtier_generate(client, &request, &result, &error), KVTIER_CANCELLED);
    assert_int_equal(result.completion_tokens, 77); // written only on success
    server_wait_count(&server.machine.stats.cancelled_count, before + 1);
    // The next call connects anew; a cancel without a call is nothing.
    kvtier_cancel(client);
    heard = (struct heard){0};
    request = greedy("abc", 2, &heard);
    check(kvtier_generate(client, &request, &result, &error), &error);
    kvtier_result_finish(&result);
    kvtier_close(client);
}

// ---- several threads

static void generate_long(void *context)
{
    struct kvtier_client *client = context;
    struct kvtier_result result;
    struct heard heard = {0};
    struct kvtier_generate request = greedy("abc", 1000, &heard);
    assert_int_equal(kvtier_generate(client, &request, &result, NULL), KVTIER_CANCELLED);
}

static void test_one_call_at_a_time(void **state)
{
    (void)state;
    struct kvtier_client *client = open_client();
    struct os_thread *thread = NULL;
    uint64_t before = atomic_load(&server.machine.stats.request_count);
    CHECK_OK(os_thread_start("generate", generate_long, client, &thread));
    server_wait_count(&server.machine.stats.request_count, before + 1);
    struct kvtier_session *sessions = NULL;
    size_t count = 0;
    assert_int_equal(kvtier_session_list(client, &sessions, &count, NULL), KVTIER_BUSY);
    kvtier_cancel(client);
    os_thread_join(thread);
    CHECK_OK(kvtier_session_list(client, &sessions, &count, NULL));
    kvtier_sessions_free(sessions);
    kvtier_close(client);
}

// ---- the rest

struct rows {
    uint32_t ids, rows, next;
    double nll;
};

static void on_ids(void *context, const uint32_t *ids, uint32_t count, uint32_t vocab_tokens)
{
    struct rows *rows = context;
    assert_non_null(ids);
    assert_int_equal(vocab_tokens, TINY_VOCAB);
    rows->ids = count;
}

static void on_row(void *context, const struct kvtier_score_row *row)
{
    struct rows *rows = context;
    assert_int_equal(row->position, rows->rows);
    assert_int_equal(row->top_count, 3);
    assert_true(row->top[0].logit >= row->top[1].logit && row->top[1].logit >= row->top[2].logit);
    assert_true((double)row->top[0].logit <= row->lse);
    rows->rows++;
    if (row->has_next) {
        rows->next++;
        rows->nll -= row->next_logprob;
    }
}

static void test_score(void **state)
{
    (void)state;
    struct kvtier_client *client = open_client();
    struct kvtier_error error;
    struct rows rows = {0};
    struct kvtier_score_result result;
    const struct kvtier_score request = {.text = "the cat sat",
                                         .text_bytes = 11,
                                         .top = 3,
                                         .context = &rows,
                                         .ids_event = on_ids,
                                         .row = on_row};
    check(kvtier_score(client, &request, &result, &error), &error);
    assert_true(rows.ids > 2);
    assert_int_equal(rows.rows, rows.ids);
    assert_int_equal(rows.next, rows.ids - 1);
    assert_int_equal(result.tokens, rows.next);
    assert_true(fabs(result.mean_nll - rows.nll / rows.next) < 1e-12);
    assert_true(fabs(result.perplexity - exp(result.mean_nll)) < 1e-9);
    kvtier_close(client);
}

static void test_sessions(void **state)
{
    (void)state;
    struct kvtier_client *client = open_client();
    struct kvtier_error error;
    struct kvtier_result result;
    struct heard heard = {0};
    struct kvtier_generate request = greedy("the cat", 5, &heard);
    request.session = "s1";
    check(kvtier_generate(client, &request, &result, &error), &error);
    assert_string_equal(result.session, "s1");
    uint32_t tokens = result.start.prompt_tokens + 5;
    kvtier_result_finish(&result);

    struct kvtier_session *sessions = NULL;
    size_t count = 0;
    check(kvtier_session_list(client, &sessions, &count, &error), &error);
    assert_int_equal(count, 1);
    assert_string_equal(sessions[0].name, "s1");
    assert_int_equal(sessions[0].tokens, tokens);
    kvtier_sessions_free(sessions);
    struct kvtier_session session;
    check(kvtier_session_show(client, "s1", &session, &error), &error);
    assert_int_equal(session.tokens, tokens);
    assert_int_equal(kvtier_session_show(client, "s2", &session, &error), KVTIER_NOT_FOUND);
    assert_int_equal(kvtier_session_show(client, "a/b", &session, &error), KVTIER_INVALID);
    struct kvtier_save save;
    assert_int_equal(kvtier_session_save(client, "s1", &save, &error), KVTIER_UNREACHABLE);
    check(kvtier_session_delete(client, "s1", &error), &error);
    check(kvtier_session_list(client, &sessions, &count, &error), &error);
    assert_int_equal(count, 0);
    kvtier_sessions_free(sessions);
    kvtier_close(client);
}

static void test_tokens(void **state)
{
    (void)state;
    struct kvtier_client *client = open_client();
    struct kvtier_error error;
    uint32_t *ids = NULL;
    size_t count = 0;
    char *text = NULL;
    size_t bytes = 0;
    check(kvtier_tokenize(client, "hello you", 9, 0, &ids, &count, &error), &error);
    assert_true(count > 0);
    check(kvtier_detokenize(client, ids, count, &text, &bytes, &error), &error);
    assert_non_null(strstr(text, "hello you"));
    assert_int_equal(strlen(text), bytes);
    kvtier_free(ids);
    kvtier_free(text);
    check(kvtier_tokenize(client, "", 0, 0, &ids, &count, &error), &error);
    assert_int_equal(count, 0);
    kvtier_free(ids);
    kvtier_close(client);
}

static void test_open(void **state)
{
    (void)state;
    struct kvtier_client *client = NULL;
    struct kvtier_error error;
    char url[400] = "ipc:///tmp/";
    assert_int_equal(kvtier_open("ipc:///nonexistent/gpud.sock", &client, &error),
                     KVTIER_UNREACHABLE);
    assert_true(error.hint[0] != 0);
    assert_int_equal(kvtier_open("tcp://x", &client, &error), KVTIER_INVALID);
    memset(url + 11, 'a', sizeof(url) - 12);
    assert_int_equal(kvtier_open(url, &client, &error), KVTIER_INVALID);
    assert_null(client);
    struct kvtier_info info;
    client = open_client();
    kvtier_info(client, &info);
    assert_string_equal(info.model_name, "tiny");
    assert_true(info.epoch == 42);
    assert_int_equal(info.vocab_tokens, TINY_VOCAB);
    kvtier_close(client);
    assert_string_equal(kvtier_status_name(KVTIER_REFUSED), "refused");
    assert_string_equal(kvtier_version(), KVTIER_VERSION);
}

// A client outlives a restart of gpud: one call fails, the next ones work.
static void test_gpud_comes_back(void **state)
{
    (void)state;
    struct kvtier_client *client = open_client();
    struct kvtier_error error;
    struct kvtier_session *sessions = NULL;
    size_t count = 0;
    ipc_stop(server.ipc);
    int status = kvtier_session_list(client, &sessions, &count, &error);
    assert_true(status == KVTIER_CLOSED || status == KVTIER_UNREACHABLE);
    assert_int_equal(kvtier_session_list(client, &sessions, &count, &error), KVTIER_UNREACHABLE);
    server_listen(&server);
    check(kvtier_session_list(client, &sessions, &count, &error), &error);
    kvtier_sessions_free(sessions);
    kvtier_close(client);
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
        cmocka_unit_test(test_generate),        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_cancel),          cmocka_unit_test(test_one_call_at_a_time),
        cmocka_unit_test(test_score),           cmocka_unit_test(test_sessions),
        cmocka_unit_test(test_tokens),          cmocka_unit_test(test_open),
        cmocka_unit_test(test_gpud_comes_back),
    };
    return cmocka_run_group_tests(tests, create_server, destroy_server);
}
