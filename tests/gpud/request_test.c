// SPDX-License-Identifier: Apache-2.0
// At stake: defaults are INTERFACE's, and everything a request owns is freed once (run under
// AddressSanitizer).
#include "gpud/request.h"

#include "tests/check.h"

static void defaults_are_the_interfaces(void **state)
{
    (void)state;
    struct request *request = request_create(REQUEST_KIND_GENERATE);
    assert_non_null(request);
    assert_int_equal(request->input.max_tokens, 2048);
    assert_true(request->input.sampling.temperature == 0.8f);
    assert_false(request->input.no_cache || request->input.ignore_eos);
    request_destroy(request);
    request_destroy(NULL);
}

static void wake(void *context, uint64_t tag)
{
    (void)context;
    (void)tag;
}

static void all_it_owns_is_freed(void **state)
{
    (void)state;
    struct request *request = request_create(REQUEST_KIND_GENERATE);
    struct request_input *input = &request->input;
    input->prompt = strdup("prompt");
    input->prompt_ids = malloc(8);
    input->session = strdup("session");
    input->stop[0] = strdup("a");
    input->stop[1] = strdup("b");
    input->stop_count = 2;
    input->messages = calloc(2, sizeof(*input->messages));
    input->message_count = 2;
    input->messages[0] = (struct request_message){.role = strdup("user"), .content = strdup("x")};
    request->tokens = malloc(4);
    CHECK_OK(reply_create(wake, NULL, 0, &request->reply));
    reply_drop(request->reply);
    request_destroy(request);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_the_interfaces),
        cmocka_unit_test(all_it_owns_is_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
