// SPDX-License-Identifier: Apache-2.0
// The life of a request: defaults at its start, and one place that frees all it owns.
#include "gpud/request.h"

#include <assert.h>
#include <stdlib.h>

enum { MAX_TOKENS_DEFAULT = 2048 };

struct request *request_create(enum request_kind kind)
{
    struct request *request = calloc(1, sizeof(*request));
    if (request == NULL) {
        return NULL;
    }
    request->kind = kind;
    request->input.max_tokens = MAX_TOKENS_DEFAULT;
    sampling_init(&request->input.sampling);
    return request;
}

void request_destroy(struct request *request)
{
    if (request == NULL) {
        return;
    }
    assert(request->lease.arena == NULL);
    struct request_input *input = &request->input;
    for (uint32_t i = 0; i < input->message_count; i++) {
        free(input->messages[i].role);
        free(input->messages[i].content);
    }
    for (uint32_t i = 0; i < input->stop_count; i++) {
        free(input->stop[i]);
    }
    free(input->messages);
    free(input->prompt);
    free(input->prompt_ids);
    free(input->session);
    free(request->tokens);
    reply_release(request->reply);
    free(request);
}
