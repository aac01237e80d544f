// SPDX-License-Identifier: Apache-2.0
// At stake: which positions are computed. A position skipped leaves stale KV in the context, one
// computed twice overwrites a closed block. Checked on hand-made tables, and on random walks
// against a plain list of booleans.
#include "gpud/block_table.h"
#include "tests/check.h"

enum { BLOCK_TOKENS = 16, BLOCK_COUNT = 12 };

static int payload[BLOCK_COUNT];

static struct block_table table_create(void)
{
    struct block_table table;
    CHECK_OK(block_table_init(&table, BLOCK_TOKENS, BLOCK_COUNT, 1));
    return table;
}

static void write_block(struct block_table *table, uint32_t block_index, uint32_t count)
{
    block_table_place(table, 0, block_index, &payload[block_index]);
    if (block_table_write(table, block_index * BLOCK_TOKENS, count)) {
        block_table_close(table, block_index);
    }
}

static void check_range(const struct block_table *table, uint32_t token_count,
                        uint32_t token_count_max, uint32_t first, uint32_t count)
{
    uint32_t got_first = 0;
    uint32_t got_count = 0;
    block_table_next_range(table, token_count, token_count_max, &got_first, &got_count);
    assert_int_equal(got_count, count);
    if (count > 0) {
        assert_int_equal(got_first, first);
    }
}

static void empty_table_is_one_run(void **state)
{
    (void)state;
    struct block_table table = table_create();
    check_range(&table, 1, 512, 0, 1);
    check_range(&table, 50, 512, 0, 50);
    check_range(&table, 50, 7, 0, 7);
    check_range(&table, BLOCK_COUNT * BLOCK_TOKENS, 512, 0, BLOCK_COUNT * BLOCK_TOKENS);
    block_table_finish(&table);
}

static void open_block_goes_on_where_it_stands(void **state)
{
    (void)state;
    struct block_table table = table_create();
    write_block(&table, 0, 5);
    check_range(&table, 50, 512, 5, 45);
    check_range(&table, 5, 512, 0, 0);
    assert_true(block_table_write(&table, 5, BLOCK_TOKENS - 5));
    block_table_close(&table, 0);
    check_range(&table, 50, 512, BLOCK_TOKENS, 50 - BLOCK_TOKENS);
    block_table_finish(&table);
}

static void holes_come_first_and_end_at_cached_blocks(void **state)
{
    (void)state;
    struct block_table table = table_create();
    block_table_adopt(&table, 0);
    block_table_adopt(&table, 3);
    block_table_adopt(&table, 4);
    const uint32_t tokens = 6 * BLOCK_TOKENS + 3;
    check_range(&table, tokens, 512, BLOCK_TOKENS, 2 * BLOCK_TOKENS);
    write_block(&table, 1, BLOCK_TOKENS);
    write_block(&table, 2, 1);
    check_range(&table, tokens, 512, 2 * BLOCK_TOKENS + 1, BLOCK_TOKENS - 1);
    assert_true(block_table_write(&table, 2 * BLOCK_TOKENS + 1, BLOCK_TOKENS - 1));
    block_table_close(&table, 2);
    check_range(&table, tokens, 512, 5 * BLOCK_TOKENS, BLOCK_TOKENS + 3);
    block_table_finish(&table);
}

static void unwritten_block_can_be_cleared(void **state)
{
    (void)state;
    struct block_table table = table_create();
    block_table_place(&table, 0, 0, &payload[0]);
    block_table_clear(&table, 0);
    assert_null(table.payloads[0][0]);
    assert_int_equal(table.entries[0].stage, BLOCK_STAGE_EMPTY);
    check_range(&table, 20, 512, 0, 20);
    block_table_finish(&table);
}

// Random caches and chunk sizes: the ranges visit every missing position once, in order.
static void random_walk_visits_each_missing_position_once(void **state)
{
    (void)state;
    uint64_t seed = check_seed();
    for (int round = 0; round < 500; round++) {
        struct block_table table = table_create();
        bool done[BLOCK_COUNT * BLOCK_TOKENS] = {false};
        uint32_t tokens = 1 + (uint32_t)(check_random(&seed) % (BLOCK_COUNT * BLOCK_TOKENS));
        for (uint32_t b = 0; b < (tokens - 1) / BLOCK_TOKENS; b++) {
            if (check_random(&seed) % 2 == 0) {
                block_table_adopt(&table, b);
                memset(&done[b * BLOCK_TOKENS], true, BLOCK_TOKENS);
            }
        }
        uint32_t first = 0;
        uint32_t count = 0;
        uint32_t chunk = 1 + (uint32_t)(check_random(&seed) % 40);
        for (block_table_next_range(&table, tokens, chunk, &first, &count); count > 0;
             block_table_next_range(&table, tokens, chunk, &first, &count)) {
            for (uint32_t p = first; p < first + count; p++) {
                assert_false(done[p]);
                done[p] = true;
                uint32_t b = p / BLOCK_TOKENS;
                block_table_place(&table, 0, b, &payload[b]);
                if (block_table_write(&table, p, 1)) {
                    block_table_close(&table, b);
                }
            }
        }
        for (uint32_t p = 0; p < tokens; p++) {
            assert_true(done[p]);
        }
        block_table_finish(&table);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_table_is_one_run),
        cmocka_unit_test(open_block_goes_on_where_it_stands),
        cmocka_unit_test(holes_come_first_and_end_at_cached_blocks),
        cmocka_unit_test(unwritten_block_can_be_cleared),
        cmocka_unit_test(random_walk_visits_each_missing_position_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
