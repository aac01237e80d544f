// SPDX-License-Identifier: Apache-2.0
// At stake: the chain that a lease means. Ids and tokens must be those of the request, a parent
// must not be claimed before it is known, and one client must never reach another's lease.
#include "kvstored/lease.h"
#include "proto/block_id.h"
#include "tests/check.h"

static const struct kv_namespace name_space = {.fingerprint = {1}, .block_tokens = 16};

static uint32_t tokens[16 * 5];

static struct lease *create(struct lease_table *table, uint64_t client, uint32_t token_count,
                            uint32_t block_count)
{
    struct lease *lease = NULL;
    const struct kv_lease_request request = {.tokens = tokens,
                                             .token_count = token_count,
                                             .block_count = block_count,
                                             .salt = "u",
                                             .salt_bytes = 1};
    CHECK_OK(lease_create(table, client, &name_space, &request, &lease));
    return lease;
}

static void the_chain_is_the_requests(void **state)
{
    (void)state;
    struct lease_table table = {0};
    struct block_id root, ids[4], parent;
    for (uint32_t i = 0; i < 80; i++) {
        tokens[i] = i * 7;
    }
    struct lease *lease = create(&table, 1, 16 * 4 + 3, 7);
    block_id_root(name_space.fingerprint, "u", 1, ATTENTION_MODE_EXACT, &root);
    block_id_chain(&root, tokens, 16, 4, ids);
    assert_int_equal(lease->prompt_block_count, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(lease->blocks[i].id_known);
        assert_true(block_id_equal(&lease->blocks[i].id, &ids[i]));
        assert_memory_equal(lease_tokens(lease, i, 16), tokens + 16 * i, 64);
        assert_true(lease_parent(lease, i, &parent));
        assert_true(block_id_equal(&parent, i == 0 ? &root : &ids[i - 1]));
    }
    assert_null(lease_tokens(lease, 4, 16));
    assert_true(lease_parent(lease, 4, &parent));
    assert_false(lease_parent(lease, 5, &parent)); // block 4 is not known yet
    lease_destroy(&table, lease);
    assert_int_equal(table.count, 0);
}

static void fewer_blocks_than_tokens_fill(void **state)
{
    (void)state;
    struct lease_table table = {0};
    struct lease *lease = create(&table, 1, 80, 2);
    assert_int_equal(lease->prompt_block_count, 2);
    lease_destroy(&table, lease);
    lease = create(&table, 1, 5, 1); // no whole block at all
    assert_int_equal(lease->prompt_block_count, 0);
    lease_destroy(&table, lease);
}

static void leases_are_their_clients(void **state)
{
    (void)state;
    struct lease_table table = {0};
    struct lease *one = create(&table, 1, 20, 2), *two = create(&table, 2, 20, 2);
    assert_true(one->lease_id != two->lease_id);
    assert_ptr_equal(lease_find(&table, 1, one->lease_id), one);
    assert_null(lease_find(&table, 2, one->lease_id));
    assert_null(lease_find(&table, 1, 999));
    assert_ptr_equal(lease_of_client(&table, 2), two);
    uint64_t old = one->lease_id;
    lease_destroy(&table, one);
    assert_null(lease_of_client(&table, 1));
    assert_null(lease_find(&table, 1, old));
    one = create(&table, 1, 20, 2);
    assert_true(one->lease_id > two->lease_id); // ids are not used again
    lease_destroy(&table, two);
    lease_destroy(&table, one);
}

static void the_table_is_bounded(void **state)
{
    (void)state;
    struct lease_table table = {0};
    struct lease *lease = NULL;
    const struct kv_lease_request request = {.tokens = tokens, .token_count = 1, .block_count = 1};
    for (int i = 0; i < LEASES_MAX; i++) {
        CHECK_OK(lease_create(&table, 1, &name_space, &request, &lease));
    }
    assert_int_equal(lease_create(&table, 1, &name_space, &request, &lease), STATUS_BUSY);
    while ((lease = lease_of_client(&table, 1)) != NULL) {
        lease_destroy(&table, lease);
    }
    assert_null(table.first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_chain_is_the_requests),
        cmocka_unit_test(fewer_blocks_than_tokens_fill),
        cmocka_unit_test(leases_are_their_clients),
        cmocka_unit_test(the_table_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
