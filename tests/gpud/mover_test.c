// SPDX-License-Identifier: Apache-2.0
// At stake: that everything queued before a flush is published when it returns, in order, for
// several leases at once, and that what cannot be published is counted and stops nothing. Over a
// private arena.
#include "fill.h"
#include "gpud/mover.h"

enum { BLOCK_TOKENS = 16, LEASES = 3, BLOCKS = 40 };

static const struct kv_namespace name_space = {
    .fingerprint = {1},
    .block_tokens = BLOCK_TOKENS,
    .group_count = 1,
    .groups = {{.layer_count = 1, .kv_heads = 1, .head_dim = 16}},
};

static struct cold_arena *arena_create(uint32_t blocks)
{
    struct cold_arena *arena = NULL;
    struct reason reason = {0};
    uint64_t payload_bytes = block_payload_bytes(&name_space.groups[0], BLOCK_TOKENS);
    CHECK_OK(cold_arena_create(&name_space, blocks * payload_bytes, &arena, &reason));
    return arena;
}

static struct kv_lease lease_blocks(struct cold_arena *arena, const uint32_t *tokens)
{
    const struct kv_request request = {
        .op = KV_OP_LEASE,
        .lease = {.tokens = tokens,
                  .token_count = BLOCKS * BLOCK_TOKENS,
                  .hit_block_max = BLOCKS - 1,
                  .block_count = BLOCKS,
                  .salt = "u",
                  .salt_bytes = 1},
    };
    struct kv_reply reply;
    struct reason reason = {0};
    CHECK_OK(cold_arena_call(arena, &request, &reply, &reason));
    assert_true(cold_arena_lease_valid(arena, &request.lease, &reply.lease));
    return reply.lease;
}

// Closes one block as kv_cache would.
static void close_block(struct cold_arena *arena, const struct kv_lease *lease,
                        const uint32_t *tokens, uint32_t block_index, struct block_id *parent)
{
    const struct kv_slot_ref *ref = &lease->slots[block_index];
    fill_block(&name_space, tokens, block_index, parent, cold_arena_header(arena, ref->slot_index),
               cold_arena_payload(arena, ref->slot_index));
    assert_true(arena_slot_publish(cold_arena_word(arena, ref->slot_index), ref->generation));
}

static uint64_t published_count(struct cold_arena *arena)
{
    const struct kv_request request = {.op = KV_OP_STATUS};
    struct kv_reply reply;
    struct reason reason = {0};
    CHECK_OK(cold_arena_call(arena, &request, &reply, &reason));
    uint64_t count = reply.state.published_count;
    kv_reply_finish(&reply);
    return count;
}

static void release(struct cold_arena *arena, struct kv_lease *lease)
{
    const struct kv_request request = {.op = KV_OP_RELEASE, .release = {lease->lease_id}};
    struct kv_reply reply;
    struct reason reason = {0};
    CHECK_OK(cold_arena_call(arena, &request, &reply, &reason));
    kv_reply_finish(&reply);
    kv_lease_finish(lease);
}

static void flush_waits_for_all(void **state)
{
    (void)state;
    struct cold_arena *arena = arena_create(LEASES * BLOCKS);
    struct mover *mover = NULL;
    CHECK_OK(mover_start(&mover));
    uint32_t tokens[LEASES][BLOCKS * BLOCK_TOKENS];
    struct kv_lease leases[LEASES];
    struct block_id parents[LEASES];
    for (uint32_t l = 0; l < LEASES; l++) {
        for (uint32_t i = 0; i < BLOCKS * BLOCK_TOKENS; i++) {
            tokens[l][i] = 1000 * l + i;
        }
        leases[l] = lease_blocks(arena, tokens[l]);
        block_id_root(name_space.fingerprint, "u", 1, ATTENTION_MODE_EXACT, &parents[l]);
    }
    for (uint32_t b = 0; b < BLOCKS; b++) {
        for (uint32_t l = 0; l < LEASES; l++) {
            close_block(arena, &leases[l], tokens[l], b, &parents[l]);
            mover_publish(mover, arena, leases[l].lease_id, b);
        }
        if (b % 7 == 0) {
            mover_flush(mover);
            assert_int_equal(published_count(arena), LEASES * (b + 1));
        }
    }
    mover_flush(mover);
    assert_int_equal(published_count(arena), LEASES * BLOCKS);
    assert_int_equal(mover_failed_count(mover), 0);
    mover_stop(mover);
    // Published means found: all but the block of the last token.
    for (uint32_t l = 0; l < LEASES; l++) {
        release(arena, &leases[l]);
        struct kv_lease again = lease_blocks(arena, tokens[l]);
        for (uint32_t b = 0; b < BLOCKS; b++) {
            assert_int_equal(again.slots[b].source, b < BLOCKS - 1 ? KV_SOURCE_RAM : KV_SOURCE_NEW);
        }
        release(arena, &again);
    }
    cold_arena_destroy(arena);
}

static void failures_are_counted_and_stop_nothing(void **state)
{
    (void)state;
    struct cold_arena *arena = arena_create(BLOCKS);
    struct mover *mover = NULL;
    CHECK_OK(mover_start(&mover));
    uint32_t tokens[BLOCKS * BLOCK_TOKENS] = {0};
    struct kv_lease lease = lease_blocks(arena, tokens);
    struct block_id parent;
    block_id_root(name_space.fingerprint, "u", 1, ATTENTION_MODE_EXACT, &parent);
    mover_publish(mover, arena, lease.lease_id + 1, 0); // no such lease
    close_block(arena, &lease, tokens, 0, &parent);
    mover_publish(mover, arena, lease.lease_id, 0);
    mover_flush(mover);
    assert_int_equal(mover_failed_count(mover), 1);
    assert_int_equal(published_count(arena), 1);
    mover_stop(mover);
    mover_stop(NULL);
    release(arena, &lease);
    cold_arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flush_waits_for_all),
        cmocka_unit_test(failures_are_counted_and_stop_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
