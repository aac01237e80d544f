// SPDX-License-Identifier: Apache-2.0
// At stake: that nothing a store says is used unchecked: a lease that names a slot outside the
// arena, of another generation or in another state than its source says is told apart. Over a
// private arena, whose leases are forged here one field at a time.
#include "fill.h"
#include "gpud/cold_arena.h"

enum { BLOCK_TOKENS = 32, SLOTS = 8 };

static struct kv_namespace name_space = {
    .fingerprint = {7},
    .block_tokens = BLOCK_TOKENS,
    .group_count = 1,
    .groups = {{.layer_count = 2, .kv_heads = 1, .head_dim = 16}},
};

static const uint32_t tokens[4 * BLOCK_TOKENS] = {1, 2, 3};

static const struct kv_request lease_request = {
    .op = KV_OP_LEASE,
    .lease = {.tokens = tokens,
              .token_count = 4 * BLOCK_TOKENS,
              .hit_block_max = 3,
              .block_count = 4,
              .salt = "u",
              .salt_bytes = 1},
};

static struct cold_arena *arena_create(void)
{
    struct cold_arena *arena = NULL;
    struct reason reason = {0};
    uint64_t payload_bytes = block_payload_bytes(&name_space.groups[0], BLOCK_TOKENS);
    CHECK_OK(cold_arena_create(&name_space, SLOTS * payload_bytes, &arena, &reason));
    return arena;
}

static struct kv_lease lease_four(struct cold_arena *arena)
{
    struct kv_reply reply;
    struct reason reason = {0};
    CHECK_OK(cold_arena_call(arena, &lease_request, &reply, &reason));
    return reply.lease;
}

static void slots_of_a_lease_are_apart(void **state)
{
    (void)state;
    struct cold_arena *arena = arena_create();
    assert_true(cold_arena_is_private(arena));
    assert_true(cold_arena_alive(arena));
    struct kv_lease lease = lease_four(arena);
    size_t payload_bytes = block_payload_bytes(&name_space.groups[0], BLOCK_TOKENS);
    for (uint32_t b = 0; b < 4; b++) {
        memset(cold_arena_payload(arena, lease.slots[b].slot_index), 'a' + (int)b, payload_bytes);
        memset(cold_arena_header(arena, lease.slots[b].slot_index), 'A' + (int)b,
               sizeof(struct block_header));
    }
    for (uint32_t b = 0; b < 4; b++) {
        const uint8_t *payload = cold_arena_payload(arena, lease.slots[b].slot_index);
        const uint8_t *header = (void *)cold_arena_header(arena, lease.slots[b].slot_index);
        assert_int_equal(payload[0], 'a' + b);
        assert_int_equal(payload[payload_bytes - 1], 'a' + b);
        assert_int_equal(header[0], 'A' + b);
        assert_int_equal(header[sizeof(struct block_header) - 1], 'A' + b);
        assert_int_equal((uintptr_t)payload % 64, 0); // the kernels' loads
    }
    kv_lease_finish(&lease);
    cold_arena_destroy(arena);
}

static void forged_leases_are_told_apart(void **state)
{
    (void)state;
    struct cold_arena *arena = arena_create();
    struct kv_lease lease = lease_four(arena);
    assert_true(cold_arena_lease_valid(arena, &lease_request.lease, &lease));
    for (uint32_t b = 0; b < 4; b++) {
        const struct kv_slot_ref truth = lease.slots[b];
        const struct kv_slot_ref forged[] = {
            {SLOTS, truth.source, truth.generation},
            {UINT32_MAX, truth.source, truth.generation},
            {truth.slot_index, truth.source, truth.generation + 1},
            {truth.slot_index, KV_SOURCE_RAM, truth.generation},
            {truth.slot_index, (enum kv_source)3, truth.generation},
        };
        for (size_t f = 0; f < sizeof(forged) / sizeof(*forged); f++) {
            lease.slots[b] = forged[f];
            assert_false(cold_arena_lease_valid(arena, &lease_request.lease, &lease));
        }
        lease.slots[b] = truth;
    }
    // A hit where none may be.
    _Atomic uint64_t *word = cold_arena_word(arena, lease.slots[3].slot_index);
    assert_true(arena_slot_publish(word, lease.slots[3].generation));
    lease.slots[3].source = KV_SOURCE_RAM;
    assert_false(cold_arena_lease_valid(arena, &lease_request.lease, &lease));
    lease.block_count = 3;
    assert_false(cold_arena_lease_valid(arena, &lease_request.lease, &lease));
    kv_lease_finish(&lease);
    cold_arena_destroy(arena);
}

// Fills, publishes and gives back a lease, and takes it again: three hits.
static struct kv_lease lease_hits(struct cold_arena *arena)
{
    struct kv_lease lease = lease_four(arena);
    struct block_id parent;
    block_id_root(name_space.fingerprint, "u", 1, ATTENTION_MODE_EXACT, &parent);
    const uint32_t indexes[4] = {0, 1, 2, 3};
    for (uint32_t b = 0; b < 4; b++) {
        const struct kv_slot_ref *ref = &lease.slots[b];
        fill_block(&name_space, tokens, b, &parent, cold_arena_header(arena, ref->slot_index),
                   cold_arena_payload(arena, ref->slot_index));
        assert_true(arena_slot_publish(cold_arena_word(arena, ref->slot_index), ref->generation));
    }
    const struct kv_request requests[2] = {
        {.op = KV_OP_PUBLISH, .publish = {lease.lease_id, indexes, 4}},
        {.op = KV_OP_RELEASE, .release = {lease.lease_id}},
    };
    for (int i = 0; i < 2; i++) {
        struct kv_reply reply;
        struct reason reason = {0};
        CHECK_OK(cold_arena_call(arena, &requests[i], &reply, &reason));
        kv_reply_finish(&reply);
    }
    kv_lease_finish(&lease);
    return lease_four(arena);
}

// What a store that mixes up its blocks would answer: hits that are not the ones asked for.
static void wrong_hits_are_told_apart(void **state)
{
    (void)state;
    struct cold_arena *arena = arena_create();
    struct kv_lease lease = lease_hits(arena);
    const struct kv_lease_request *request = &lease_request.lease;
    for (uint32_t b = 0; b < 3; b++) {
        assert_int_equal(lease.slots[b].source, KV_SOURCE_RAM);
    }
    assert_int_equal(cold_arena_true_blocks(arena, &name_space, request, &lease), 3);
    const struct kv_slot_ref one = lease.slots[1];
    lease.slots[1] = lease.slots[2];
    lease.slots[2] = one;
    assert_true(cold_arena_lease_valid(arena, request, &lease));
    assert_int_equal(cold_arena_true_blocks(arena, &name_space, request, &lease), 1);
    lease.slots[2] = lease.slots[1];
    lease.slots[1] = one;
    // Another user's blocks are not ours, whatever their tokens.
    struct kv_lease_request other = *request;
    other.salt = "v";
    assert_int_equal(cold_arena_true_blocks(arena, &name_space, &other, &lease), 0);
    struct block_header *header = cold_arena_header(arena, lease.slots[2].slot_index);
    header->tokens[BLOCK_TOKENS - 1]++;
    assert_int_equal(cold_arena_true_blocks(arena, &name_space, request, &lease), 2);
    kv_lease_finish(&lease);
    cold_arena_destroy(arena);
}

static void statuses_are_the_stores(void **state)
{
    (void)state;
    struct cold_arena *arena = arena_create();
    struct kv_reply reply;
    struct reason reason = {0};
    struct kv_request request = lease_request;
    request.lease.block_count = SLOTS + 1;
    assert_int_equal(cold_arena_call(arena, &request, &reply, &reason), STATUS_REFUSED);
    assert_non_null(strstr(reason.text, "32768"));
    assert_non_null(strstr(reason.text, "36864"));
    request = (struct kv_request){.op = KV_OP_SESSION_GET,
                                  .session = {.name = "none", .salt = "u", .salt_bytes = 1}};
    assert_int_equal(cold_arena_call(arena, &request, &reply, &reason), STATUS_NOT_FOUND);
    request = (struct kv_request){.op = KV_OP_VERIFY};
    assert_int_equal(cold_arena_call(arena, &request, &reply, &reason), STATUS_UNSUPPORTED);
    cold_arena_destroy(arena);
    cold_arena_destroy(NULL);
}

static void absent_kvstored_is_unreachable(void **state)
{
    (void)state;
    char folder[256];
    check_folder_create(folder);
    char url[300];
    snprintf(url, sizeof(url), "ipc://%s/none.sock", folder);
    struct cold_arena *arena = NULL;
    struct reason reason = {0};
    assert_int_equal(cold_arena_attach(url, &name_space, 0, &arena, &reason), STATUS_UNREACHABLE);
    assert_true(reason.text[0] != '\0');
    assert_null(arena);
    check_folder_remove(folder);
}

static void references_are_counted(void **state)
{
    (void)state;
    struct cold_arena *arena = arena_create();
    cold_arena_hold(arena);
    assert_false(cold_arena_drop(arena));
    assert_true(cold_arena_drop(arena));
    cold_arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_of_a_lease_are_apart),
        cmocka_unit_test(forged_leases_are_told_apart),
        cmocka_unit_test(wrong_hits_are_told_apart),
        cmocka_unit_test(statuses_are_the_stores),
        cmocka_unit_test(absent_kvstored_is_unreachable),
        cmocka_unit_test(references_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
