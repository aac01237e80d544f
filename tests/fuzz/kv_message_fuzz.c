// SPDX-License-Identifier: Apache-2.0
// libFuzzer target of the messages between clients and kvstored. The first byte says what the rest
// is read as: 0 a request, N a reply to op N. What is accepted must encode, and read back the same.
// Seeds: make_message_seeds.c.
#include "proto/kv_message.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void fuzz_request(const uint8_t *data, size_t bytes)
{
    struct kv_request request;
    struct kv_request again;
    struct reason reason;
    void *first;
    void *second;
    size_t first_bytes;
    size_t second_bytes;
    if (kv_request_decode(data, bytes, &request, &reason) != STATUS_OK) {
        return;
    }
    enum status status = kv_request_encode(&request, &first, &first_bytes);
    assert(status == STATUS_OK);
    status = kv_request_decode(first, first_bytes, &again, &reason);
    assert(status == STATUS_OK);
    status = kv_request_encode(&again, &second, &second_bytes);
    assert(status == STATUS_OK);
    assert(first_bytes == second_bytes && memcmp(first, second, first_bytes) == 0);
    free(first);
    free(second);
    kv_request_finish(&request);
    kv_request_finish(&again);
}

static void fuzz_reply(enum kv_op op, const uint8_t *data, size_t bytes)
{
    struct kv_reply reply;
    struct reason reason;
    void *encoded;
    size_t encoded_bytes;
    if (kv_reply_decode(data, bytes, op, &reply, &reason) != STATUS_OK) {
        return;
    }
    enum status status = kv_reply_encode(&reply, &encoded, &encoded_bytes);
    assert(status == STATUS_OK);
    kv_reply_finish(&reply);
    status = kv_reply_decode(encoded, encoded_bytes, op, &reply, &reason);
    assert(status == STATUS_OK);
    free(encoded);
    kv_reply_finish(&reply);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes == 0) {
        return 0;
    }
    if (data[0] == 0) {
        fuzz_request(data + 1, bytes - 1);
    } else if (data[0] < KV_OP_END) {
        fuzz_reply((enum kv_op)data[0], data + 1, bytes - 1);
    }
    return 0;
}
