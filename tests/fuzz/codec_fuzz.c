// SPDX-License-Identifier: Apache-2.0
// libFuzzer target of the message reader: any bytes as one message, of which every field under a
// few keys is read as every type, and what is text is checked to be text. Seeds:
// make_message_seeds.c.
#include "proto/codec_reader.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const char *const keys[] = {"a", "b", "op", "epoch", "slots", "tokens", "name", ""};
enum { KEY_COUNT = sizeof(keys) / sizeof(keys[0]), STEPS_MAX = 1000 };

static volatile uint64_t sink; // keeps reads from being optimised away

static void touch(const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        sink += ((const uint8_t *)data)[i];
    }
}

static void read_scalars(const struct codec_map *map, const char *key)
{
    uint64_t number;
    uint32_t small;
    int64_t integer;
    double real;
    bool flag;
    uint8_t fixed[32];
    if (codec_opt_u64(map, key, &number)) {
        assert(codec_has(map, key));
    }
    map->reader->status = STATUS_OK; // read on: one message is tried as every type
    if (codec_opt_u32(map, key, 3, 1000, &small)) {
        assert(small >= 3 && small <= 1000);
    }
    map->reader->status = STATUS_OK;
    (void)codec_opt_i64(map, key, &integer);
    map->reader->status = STATUS_OK;
    if (codec_opt_f64(map, key, &real)) {
        assert(real - real == 0); // finite
    }
    map->reader->status = STATUS_OK;
    (void)codec_opt_bool(map, key, &flag);
    map->reader->status = STATUS_OK;
    if (codec_get_fixed(map, key, fixed, sizeof(fixed))) {
        touch(fixed, sizeof(fixed));
    }
    map->reader->status = STATUS_OK;
}

static void read_bytes(const struct codec_map *map, const char *key)
{
    char text[16];
    const char *view;
    const uint8_t *bin;
    size_t length;
    uint32_t count;
    uint32_t *words;
    uint64_t *wide;
    if (codec_opt_text(map, key, text, sizeof(text))) {
        assert(strlen(text) < sizeof(text));
    }
    map->reader->status = STATUS_OK;
    if (codec_opt_text_bytes(map, key, SIZE_MAX, &view, &length)) {
        assert(memchr(view, 0, length) == NULL);
    }
    map->reader->status = STATUS_OK;
    if (codec_opt_bin(map, key, SIZE_MAX, &bin, &length)) {
        touch(bin, length);
    }
    map->reader->status = STATUS_OK;
    if (codec_get_u32s(map, key, SIZE_MAX, &words, &count)) {
        touch(words, count * sizeof(*words));
        free(words);
    }
    map->reader->status = STATUS_OK;
    if (codec_get_u64s(map, key, SIZE_MAX, &wide, &count)) {
        touch(wide, count * sizeof(*wide));
        free(wide);
    }
    map->reader->status = STATUS_OK;
}

// Recursion is bounded by CODEC_DEPTH_MAX, and the work of a run by `steps`.
static void read_map(const struct codec_map *map, int *steps);

static void read_array(struct codec_array array, int *steps)
{
    struct codec_array elements = array;
    struct codec_map inner;
    uint64_t number;
    double real;
    const char *view;
    size_t length;
    while (elements.count > 0 && (*steps)-- > 0) {
        struct codec_array same = elements;
        (void)codec_next_u64(&same, &number);
        array.reader->status = STATUS_OK;
        same = elements;
        (void)codec_next_f64(&same, &real);
        array.reader->status = STATUS_OK;
        same = elements;
        (void)codec_next_text(&same, SIZE_MAX, &view, &length);
        array.reader->status = STATUS_OK;
        if (codec_next_map(&elements, &inner)) {
            read_map(&inner, steps);
        }
        array.reader->status = STATUS_OK;
    }
}

static void read_map(const struct codec_map *map, int *steps)
{
    for (int i = 0; i < KEY_COUNT && (*steps)-- > 0; i++) {
        read_scalars(map, keys[i]);
        read_bytes(map, keys[i]);
        struct codec_map inner;
        struct codec_array array;
        if (codec_opt_map(map, keys[i], &inner)) {
            read_map(&inner, steps);
        }
        map->reader->status = STATUS_OK;
        if (codec_opt_array(map, keys[i], UINT32_MAX, &array)) {
            read_array(array, steps);
        }
        map->reader->status = STATUS_OK;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct codec_reader reader;
    struct codec_map map;
    int steps = STEPS_MAX;
    codec_reader_init(&reader, data, bytes, &map);
    if (codec_reader_status(&reader, NULL) == STATUS_OK) {
        read_map(&map, &steps);
    }
    return 0;
}
