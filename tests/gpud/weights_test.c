// SPDX-License-Identifier: Apache-2.0
// At stake: that each tensor reaches the role it has, once, and that the digest is of every byte of
// the file. Rows are read back through kernels_embed; the digest is computed here from the file.
#include "gpud/weights.h"
#include "proto/hash.h"
#include "tiny_model.h"

static const enum tensor_type types[8] = {
    TENSOR_TYPE_Q4_0, TENSOR_TYPE_Q4_1, TENSOR_TYPE_Q8_0, TENSOR_TYPE_F16,
    TENSOR_TYPE_F32,  TENSOR_TYPE_BF16, TENSOR_TYPE_F32,  TENSOR_TYPE_Q8_0,
};

static struct kernels *kernels_of_tiny(void)
{
    const struct kernels_options options = {
        .set = KERNEL_SET_C,
        .thread_count = 1,
        .row_count_max = 4,
        .column_count_max = TINY_FEED_FORWARD,
        .heads_max = TINY_HEADS,
        .head_dim_max = TINY_HEAD_DIM,
        .block_tokens = 32,
        .block_count_max = 4,
    };
    struct kernels *kernels = NULL;
    struct reason reason = {0};
    CHECK_OK(kernels_create(&options, &kernels, &reason));
    return kernels;
}

// The last row of a matrix means what the file says.
static void check_matrix(struct kernels *kernels, const struct matrix *matrix,
                         const float *expected, uint32_t rows, uint32_t columns)
{
    float row[TINY_FEED_FORWARD];
    const uint32_t last = rows - 1;
    kernels_embed(kernels, matrix, &last, 1, row);
    assert_memory_equal(row, expected + (size_t)last * columns, columns * sizeof(float));
}

struct progress_log {
    uint64_t calls, done_bytes, total_bytes;
};

static void log_progress(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    struct progress_log *log = context;
    assert_true(done_bytes >= log->done_bytes);
    *log = (struct progress_log){log->calls + 1, done_bytes, total_bytes};
}

static void every_tensor_reaches_its_role(void **state)
{
    (void)state;
    struct tiny_model tiny;
    tiny_model_create(&tiny, types, check_seed());
    struct kernels *kernels = kernels_of_tiny();
    struct weights weights;
    struct reason reason = {0};
    struct progress_log log = {0};
    const struct weights_progress progress = {log_progress, &log};
    uint8_t digest[MODEL_DIGEST_BYTES];
    CHECK_OK(weights_load(&weights, kernels, tiny.model, &progress, digest, &reason));

    assert_ptr_equal(weights.output, weights.token_embd);
    check_matrix(kernels, weights.output, tiny_values(&tiny, -1, "token_embd"), TINY_VOCAB,
                 TINY_EMBEDDING);
    assert_memory_equal(weights.output_norm, tiny_values(&tiny, -1, "output_norm"),
                        TINY_EMBEDDING * sizeof(float));
    const uint32_t query = TINY_HEADS * TINY_HEAD_DIM;
    const uint32_t key = TINY_KV_HEADS * TINY_HEAD_DIM;
    for (int i = 0; i < TINY_LAYERS; i++) {
        const struct weights_layer *layer = &weights.layers[i];
        const struct {
            const char *role;
            const struct matrix *matrix;
            uint32_t rows, columns;
        } roles[] = {
            {"attn_q", layer->q, query, TINY_EMBEDDING},
            {"attn_k", layer->k, key, TINY_EMBEDDING},
            {"attn_v", layer->v, key, TINY_EMBEDDING},
            {"attn_output", layer->o, TINY_EMBEDDING, query},
            {"ffn_gate", layer->gate, TINY_FEED_FORWARD, TINY_EMBEDDING},
            {"ffn_up", layer->up, TINY_FEED_FORWARD, TINY_EMBEDDING},
            {"ffn_down", layer->down, TINY_EMBEDDING, TINY_FEED_FORWARD},
        };
        for (size_t r = 0; r < sizeof(roles) / sizeof(*roles); r++) {
            check_matrix(kernels, roles[r].matrix, tiny_values(&tiny, i, roles[r].role),
                         roles[r].rows, roles[r].columns);
        }
        assert_memory_equal(layer->attn_norm, tiny_values(&tiny, i, "attn_norm"),
                            TINY_EMBEDDING * sizeof(float));
        assert_memory_equal(layer->ffn_norm, tiny_values(&tiny, i, "ffn_norm"),
                            TINY_EMBEDDING * sizeof(float));
    }

    struct hash hash;
    uint8_t expected[HASH_BYTES];
    hash_init(&hash);
    hash_update(&hash, tiny.file, tiny.bytes);
    hash_final(&hash, expected);
    assert_memory_equal(digest, expected, sizeof(expected));
    assert_true(log.calls > 0);
    assert_int_equal(log.done_bytes, log.total_bytes);
    weights_unload(&weights);
    weights_unload(&weights); // finished memory is fine
    kernels_destroy(kernels);
    tiny_model_destroy(&tiny);
}

static void changed_file_leaves_nothing(void **state)
{
    (void)state;
    struct tiny_model tiny;
    tiny_model_create(&tiny, types, 1);
    struct kernels *kernels = kernels_of_tiny();
    struct weights weights;
    struct reason reason = {0};
    const struct weights_progress progress = {0};
    uint8_t digest[MODEL_DIGEST_BYTES];
    tiny.bytes -= 100; // the file shrank after it was opened
    assert_int_equal(weights_load(&weights, kernels, tiny.model, &progress, digest, &reason),
                     STATUS_DAMAGED);
    assert_true(reason.text[0] != '\0');
    assert_null(weights.matrices);
    assert_null(weights.layers);
    kernels_destroy(kernels);
    tiny_model_destroy(&tiny);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tensor_reaches_its_role),
        cmocka_unit_test(changed_file_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
