// SPDX-License-Identifier: Apache-2.0
// libFuzzer target of the messages between apps and gpud. The first byte says what the rest is read
// as: 0 a request, else an event. What is accepted must encode, and read back.
// Seeds: make_message_seeds.c.
#include "proto/gpu_message.h"

#include <assert.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void fuzz_request(const uint8_t *data, size_t bytes)
{
    struct gpu_request request;
    struct gpu_request again;
    struct reason reason;
    void *encoded;
    size_t encoded_bytes;
    if (gpu_request_decode(data, bytes, &request, &reason) != STATUS_OK) {
        return;
    }
    enum status status = gpu_request_encode(&request, &encoded, &encoded_bytes);
    assert(status == STATUS_OK);
    status = gpu_request_decode(encoded, encoded_bytes, &again, &reason);
    assert(status == STATUS_OK && again.op == request.op);
    gpu_request_finish(&again);
    gpu_request_finish(&request);
    free(encoded);
}

static void fuzz_event(const uint8_t *data, size_t bytes)
{
    struct gpu_event event;
    struct gpu_event again;
    struct reason reason;
    void *encoded;
    size_t encoded_bytes;
    if (gpu_event_decode(data, bytes, &event, &reason) != STATUS_OK) {
        return;
    }
    enum status status = gpu_event_encode(&event, &encoded, &encoded_bytes);
    assert(status == STATUS_OK);
    status = gpu_event_decode(encoded, encoded_bytes, &again, &reason);
    assert(status == STATUS_OK && again.kind == event.kind);
    gpu_event_finish(&again);
    gpu_event_finish(&event);
    free(encoded);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes > 0 && data[0] == 0) {
        fuzz_request(data + 1, bytes - 1);
    } else if (bytes > 0) {
        fuzz_event(data + 1, bytes - 1);
    }
    return 0;
}
