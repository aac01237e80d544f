// SPDX-License-Identifier: Apache-2.0
// What the tests of requests and of events share: texts, frames, and ways to spoil a frame. Header
// only; one thread.
#ifndef KVTIER_TESTS_PROTO_GPU_FRAMES_H
#define KVTIER_TESTS_PROTO_GPU_FRAMES_H

#include "proto/gpu_message.h"
#include "tests/check.h"

struct frame {
    void *data;
    size_t bytes;
};

static const uint32_t some_ids[] = {0, 7, UINT32_MAX};

static inline struct gpu_text text_of(const char *text)
{
    return (struct gpu_text){.text = text, .bytes = strlen(text)};
}

static inline void text_equal(struct gpu_text text, const char *expected)
{
    assert_int_equal(text.bytes, strlen(expected));
    assert_memory_equal(text.text, expected, text.bytes);
}

// Decodes bytes that end at an unmapped page, both ways; what is accepted must encode again.
static inline void decode_any(const uint8_t *data, size_t bytes)
{
    struct check_edge edge = check_edge_create(bytes);
    struct gpu_request request;
    struct gpu_event event;
    struct frame frame;
    if (bytes > 0) {
        memcpy(edge.data, data, bytes);
    }
    if (gpu_request_decode(edge.data, bytes, &request, NULL) == STATUS_OK) {
        CHECK_OK(gpu_request_encode(&request, &frame.data, &frame.bytes));
        free(frame.data);
        gpu_request_finish(&request);
    }
    if (gpu_event_decode(edge.data, bytes, &event, NULL) == STATUS_OK) {
        CHECK_OK(gpu_event_encode(&event, &frame.data, &frame.bytes));
        free(frame.data);
        gpu_event_finish(&event);
    }
    check_edge_destroy(&edge);
}

// Random bytes changed, `times` times.
static inline void damage(const struct frame *frame, uint64_t *random, uint64_t times)
{
    uint8_t *copy = malloc(frame->bytes);
    assert_non_null(copy);
    for (uint64_t i = 0; i < times; i++) {
        memcpy(copy, frame->data, frame->bytes);
        for (uint64_t n = check_random(random) % 3 + 1; n > 0; n--) {
            copy[check_random(random) % frame->bytes] = (uint8_t)check_random(random);
        }
        decode_any(copy, frame->bytes);
    }
    free(copy);
}

// Every beginning of a frame that is not the whole is refused.
static inline void cut(const struct frame *frame)
{
    struct gpu_event event;
    struct gpu_request request;
    for (size_t bytes = 0; bytes < frame->bytes; bytes++) {
        decode_any(frame->data, bytes);
        assert_int_not_equal(gpu_event_decode(frame->data, bytes, &event, NULL), STATUS_OK);
        assert_int_not_equal(gpu_request_decode(frame->data, bytes, &request, NULL), STATUS_OK);
    }
}

#endif
