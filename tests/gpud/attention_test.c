// SPDX-License-Identifier: Apache-2.0
// At stake: that rows, sequences and layers meet the right bytes. Two sequences share a step;
// values written for one layer must lie in that layer's part of the right block and nowhere else,
// and each sequence must attend its own. What attention computes is tested with the kernels.
#include "gpud/attention.h"
#include "rig.h"

enum {
    HEAD_DIM = 16,
    LAYERS = 3,
    SEQUENCES = 2,
    FIRST = 30, // the rows of each sequence cross from block 0 into block 1
    ROWS = 4,
};

static const struct kv_group group = {.layer_count = LAYERS, .kv_heads = 1, .head_dim = HEAD_DIM};

static struct kernels *kernels_create_small(void)
{
    const struct kernels_options options = {
        .set = KERNEL_SET_C,
        .thread_count = 1,
        .row_count_max = FIRST + ROWS,
        .column_count_max = 64,
        .heads_max = 1,
        .head_dim_max = HEAD_DIM,
        .block_tokens = RIG_BLOCK_TOKENS,
        .block_count_max = 2,
    };
    struct kernels *kernels = NULL;
    struct reason reason = {0};
    CHECK_OK(kernels_create(&options, &kernels, &reason));
    return kernels;
}

// Prepares both blocks, all zero, and pretends that positions below FIRST were computed.
static void open_sequence(struct rig *rig, uint32_t seed, struct cold_lease *lease,
                          struct kv_sequence **sequence)
{
    uint32_t tokens[2 * RIG_BLOCK_TOKENS];
    for (uint32_t i = 0; i < 2 * RIG_BLOCK_TOKENS; i++) {
        tokens[i] = seed + i;
    }
    *lease = rig_lease(rig, tokens, 2 * RIG_BLOCK_TOKENS, 0);
    CHECK_OK(
        kv_sequence_open(rig->cache, lease, &rig->root, tokens, 2 * RIG_BLOCK_TOKENS, sequence));
    CHECK_OK(kv_sequence_ready(*sequence));
    uint32_t count = 0;
    CHECK_OK(kv_sequence_prepare(*sequence, 0, 2 * RIG_BLOCK_TOKENS, &count));
    assert_int_equal(count, 2 * RIG_BLOCK_TOKENS);
    for (int b = 0; b < 2; b++) {
        memset(kv_sequence_blocks(*sequence, 0)[b], 0,
               block_payload_bytes(&group, RIG_BLOCK_TOKENS));
    }
}

// V of a position: [token][dim] after K of its layer.
static const uint16_t *value_of(const struct kv_sequence *sequence, uint32_t layer,
                                uint32_t position)
{
    const uint8_t *payload = kv_sequence_blocks(sequence, 0)[position / RIG_BLOCK_TOKENS];
    const uint8_t *values = payload + block_layer_offset(&group, RIG_BLOCK_TOKENS, layer) +
                            block_head_bytes(&group, RIG_BLOCK_TOKENS);
    return (const uint16_t *)values + position % RIG_BLOCK_TOKENS * HEAD_DIM;
}

static void rows_meet_their_blocks(void **state)
{
    (void)state;
    struct rig rig;
    rig_create_cache(&rig, &group, 0, 16);
    struct kernels *kernels = kernels_create_small();
    const struct attention_options options = {
        .heads = 1,
        .group_count = 1,
        .groups = &group,
        .block_tokens = RIG_BLOCK_TOKENS,
        .scale = 1,
        .sequence_count_max = SEQUENCES,
    };
    struct attention_batch batch;
    CHECK_OK(attention_batch_init(&batch, &options));
    struct cold_lease leases[SEQUENCES];
    struct kv_sequence *sequences[SEQUENCES];
    attention_batch_clear(&batch);
    for (int s = 0; s < SEQUENCES; s++) {
        open_sequence(&rig, 1000u * (uint32_t)s, &leases[s], &sequences[s]);
        attention_batch_add(&batch, sequences[s], FIRST, ROWS);
    }
    assert_int_equal(batch.sequence_count, SEQUENCES);
    assert_int_equal(batch.sequences[0][1].first_row, ROWS);

    // Keys 0: every position weighs the same, so the last row's output is the mean over FIRST +
    // ROWS.
    float q[SEQUENCES * ROWS][HEAD_DIM] = {{0}};
    float k[SEQUENCES * ROWS][HEAD_DIM] = {{0}};
    float v[SEQUENCES * ROWS][HEAD_DIM];
    float out[SEQUENCES * ROWS][HEAD_DIM];
    for (int row = 0; row < SEQUENCES * ROWS; row++) {
        for (int i = 0; i < HEAD_DIM; i++) {
            v[row][i] = row < ROWS ? 1 : 2; // f16 0x3c00 and 0x4000
        }
    }
    const uint32_t layer = 1;
    attention_layer(&batch, kernels, 0, layer, &(struct attention_rows){*q, *k, *v, *out});
    for (int s = 0; s < SEQUENCES; s++) {
        for (uint32_t p = 0; p < 2 * RIG_BLOCK_TOKENS; p++) {
            bool written = p >= FIRST && p < FIRST + ROWS;
            for (int i = 0; i < HEAD_DIM; i++) {
                assert_int_equal(value_of(sequences[s], layer, p)[i], !written ? 0
                                                                      : s == 0 ? 0x3c00
                                                                               : 0x4000);
                assert_int_equal(value_of(sequences[s], 0, p)[i], 0);
                assert_int_equal(value_of(sequences[s], 2, p)[i], 0);
            }
        }
        float expected = (float)(ROWS * (s + 1)) / (FIRST + ROWS);
        float got = out[s * ROWS + ROWS - 1][HEAD_DIM - 1];
        assert_true(got > expected * 0.9999f && got < expected * 1.0001f);
    }
    attention_batch_finish(&batch);
    for (int s = 0; s < SEQUENCES; s++) {
        kv_sequence_close(sequences[s]);
        cold_store_release(rig.cold_store, &leases[s]);
    }
    kernels_destroy(kernels);
    rig_destroy(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_meet_their_blocks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
