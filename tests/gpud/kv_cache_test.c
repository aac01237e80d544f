// SPDX-License-Identifier: Apache-2.0
// At stake: that every block's bytes are found where the table says, whatever was evicted, recalled
// or shared, and that what is not there is computed again. A fake forward pass writes a pattern
// that depends on the tokens up to each block and, before each step, checks the pattern of every
// block it would attend. Counters are compared exactly. Over a private cold store.
#include "gpud/cold_arena.h"
#include "rig.h"

static const struct kv_group group = {.layer_count = 2, .kv_heads = 1, .head_dim = 16};

enum {
    PAYLOAD_BYTES = 2 * 2 * 16 * RIG_BLOCK_TOKENS * 2, // as block_payload_bytes of `group`
    BLOCK_COUNT = 10,
    TOKENS = BLOCK_COUNT * RIG_BLOCK_TOKENS,
    ARENA_BLOCKS = 64,
};

struct run {
    struct rig *rig;
    struct cold_lease lease;
    struct kv_sequence *sequence;
    uint32_t tokens[TOKENS];
    uint32_t token_count;
};

static void set_tokens(struct run *run, uint32_t token_count, uint32_t seed)
{
    run->token_count = token_count;
    for (uint32_t i = 0; i < token_count; i++) {
        run->tokens[i] = seed + i * i;
    }
}

static void open_run(struct rig *rig, struct run *run)
{
    run->rig = rig;
    run->lease = rig_lease(rig, run->tokens, run->token_count, 0);
    CHECK_OK(kv_sequence_open(rig->cache, &run->lease, &rig->root, run->tokens, run->token_count,
                              &run->sequence));
}

static void close_run(struct run *run)
{
    kv_sequence_close(run->sequence);
    cold_store_release(run->rig->cold_store, &run->lease);
}

// What a block holds: its first token, over and over; a position that was not written is not looked
// at.
static uint16_t pattern(const struct run *run, uint32_t position)
{
    return (uint16_t)(run->tokens[position] * 40503u + position);
}

// The first value of the K row of dimension 0 is the token's, as the layout has it: [dim][token].
static uint16_t *value_at(const struct run *run, uint32_t position)
{
    uint16_t *payload = kv_sequence_blocks(run->sequence, 0)[position / RIG_BLOCK_TOKENS];
    assert_non_null(payload);
    return &payload[position % RIG_BLOCK_TOKENS];
}

// Writes positions first.. as a step would, after checking everything it would attend.
static void fake_step(struct run *run, uint32_t first, uint32_t count)
{
    for (uint32_t p = 0; p < first; p++) {
        assert_int_equal(*value_at(run, p), pattern(run, p));
    }
    for (uint32_t p = first; p < first + count; p++) {
        *value_at(run, p) = pattern(run, p);
    }
    kv_sequence_commit(run->sequence, run->tokens + first, first, count);
}

// Computes what is missing, in chunks; returns how many positions and, if asked, steps.
static uint32_t compute(struct run *run, uint32_t chunk, uint32_t *out_steps)
{
    uint32_t computed = 0;
    uint32_t steps = 0;
    uint32_t first = 0;
    uint32_t count = 0;
    CHECK_OK(kv_sequence_ready(run->sequence));
    for (kv_sequence_next_range(run->sequence, chunk, &first, &count); count > 0;
         kv_sequence_next_range(run->sequence, chunk, &first, &count)) {
        CHECK_OK(kv_sequence_prepare(run->sequence, first, count, &count));
        fake_step(run, first, count);
        computed += count;
        steps++;
    }
    if (out_steps != NULL) {
        *out_steps = steps;
    }
    return computed;
}

static struct kv_cache_status status_of(const struct rig *rig)
{
    struct kv_cache_status status;
    kv_cache_status(rig->cache, &status);
    return status;
}

static void check_hits(const struct run *run, uint32_t hot, uint32_t ram, uint32_t computed)
{
    struct kv_sequence_hits hits;
    kv_sequence_hits(run->sequence, &hits);
    assert_int_equal(hits.hot_tokens, hot * RIG_BLOCK_TOKENS);
    assert_int_equal(hits.ram_tokens, ram * RIG_BLOCK_TOKENS);
    assert_int_equal(hits.disk_tokens, 0);
    assert_int_equal(hits.computed_tokens, computed);
}

// ---- unified

static void unified_blocks_are_the_arenas(void **state)
{
    (void)state;
    assert_int_equal(block_payload_bytes(&group, RIG_BLOCK_TOKENS), PAYLOAD_BYTES);
    struct rig rig;
    rig_create_cache(&rig, &group, 0, ARENA_BLOCKS);
    struct run run;
    set_tokens(&run, TOKENS - 5, 1);
    open_run(&rig, &run);
    assert_int_equal(compute(&run, 50, NULL), TOKENS - 5);
    check_hits(&run, 0, 0, TOKENS - 5);
    for (uint32_t b = 0; b < BLOCK_COUNT; b++) {
        assert_ptr_equal(kv_sequence_blocks(run.sequence, 0)[b], cold_lease_payload(&run.lease, b));
        assert_int_equal(cold_lease_state(&run.lease, b),
                         b + 1 < BLOCK_COUNT ? COLD_SLOT_READY : COLD_SLOT_FILLING);
    }
    struct kv_cache_status status = status_of(&rig);
    assert_true(status.unified);
    assert_int_equal(status.closed_count, BLOCK_COUNT - 1);
    assert_int_equal(status.hot_hit_count, 0);
    close_run(&run);
    // The same context again: whole blocks are there.
    open_run(&rig, &run);
    assert_int_equal(compute(&run, 50, NULL), RIG_BLOCK_TOKENS - 5);
    check_hits(&run, 0, BLOCK_COUNT - 1, RIG_BLOCK_TOKENS - 5);
    close_run(&run);
    rig_destroy(&rig);
}

static void closed_blocks_verify(void **state)
{
    (void)state;
    struct rig rig;
    rig_create_cache(&rig, &group, 2, ARENA_BLOCKS);
    struct run run;
    set_tokens(&run, TOKENS, 7);
    open_run(&rig, &run);
    compute(&run, 13, NULL);
    struct block_id id = rig.root;
    for (uint32_t b = 0; b < BLOCK_COUNT; b++) {
        const struct block_header *header = cold_lease_header(&run.lease, b);
        CHECK_OK(block_verify(header, cold_lease_payload(&run.lease, b), PAYLOAD_BYTES));
        assert_true(block_id_equal(&header->parent_id, &id));
        assert_memory_equal(header->tokens, run.tokens + b * RIG_BLOCK_TOKENS,
                            RIG_BLOCK_TOKENS * sizeof(uint32_t));
        assert_int_equal(header->first_position, b * RIG_BLOCK_TOKENS);
        id = header->id;
    }
    close_run(&run);
    rig_destroy(&rig);
}

// ---- discrete

// Four hot slots, ten blocks, one block a step: blocks 0..2 stay, the newest is replaced each time.
static void hot_set_is_sticky_and_counted(void **state)
{
    (void)state;
    struct rig rig;
    rig_create_cache(&rig, &group, 4, ARENA_BLOCKS);
    struct run run;
    set_tokens(&run, TOKENS, 3);
    open_run(&rig, &run);
    assert_int_equal(compute(&run, RIG_BLOCK_TOKENS, NULL), TOKENS);
    struct kv_cache_status status = status_of(&rig);
    assert_false(status.unified);
    assert_int_equal(status.hot_slot_count, 4);
    assert_int_equal(status.hot_used_count, 4);
    assert_int_equal(status.closed_count, 10);
    assert_int_equal(status.evicted_count, 6);
    assert_int_equal(status.recalled_count, 0);
    assert_int_equal(status.hot_hit_count, 1 + 2 + 3 + 4 * 7);
    assert_int_equal(status.cold_hit_count, 1 + 2 + 3 + 4 + 5 + 6);
    for (uint32_t b = 0; b < BLOCK_COUNT; b++) {
        bool hot = kv_sequence_blocks(run.sequence, 0)[b] != cold_lease_payload(&run.lease, b);
        assert_int_equal(hot, b < 3 || b == 9);
    }
    close_run(&run);
    assert_int_equal(status_of(&rig).hot_used_count, 4);
    rig_destroy(&rig);
}

static void prepare_gives_what_the_hot_pool_has(void **state)
{
    (void)state;
    struct rig rig;
    rig_create_cache(&rig, &group, 4, ARENA_BLOCKS);
    struct run run;
    set_tokens(&run, TOKENS, 4);
    open_run(&rig, &run);
    CHECK_OK(kv_sequence_ready(run.sequence));
    uint32_t count = 0;
    CHECK_OK(kv_sequence_prepare(run.sequence, 0, TOKENS, &count));
    assert_int_equal(count, 4 * RIG_BLOCK_TOKENS);
    // A step that was not run leaves nothing behind.
    CHECK_OK(kv_sequence_prepare(run.sequence, 0, 5, &count));
    assert_int_equal(count, 5);
    assert_int_equal(status_of(&rig).hot_used_count, 1);
    fake_step(&run, 0, 5);
    uint32_t steps = 0;
    assert_int_equal(compute(&run, TOKENS, &steps), TOKENS - 5);
    assert_int_equal(steps, 3); // 4, 4 and 2 blocks
    assert_int_equal(status_of(&rig).evicted_count, 6);
    close_run(&run);
    rig_destroy(&rig);
}

// A second run finds what is hot hot, and recalls into slots that nobody uses, but keeps one to
// write in.
static void second_run_finds_and_recalls(void **state)
{
    (void)state;
    struct rig rig;
    rig_create_cache(&rig, &group, 6, ARENA_BLOCKS);
    struct run first;
    set_tokens(&first, 4 * RIG_BLOCK_TOKENS, 5);
    open_run(&rig, &first);
    compute(&first, 512, NULL); // 4 of 6 slots
    close_run(&first);
    struct run other;
    set_tokens(&other, 3 * RIG_BLOCK_TOKENS, 99);
    open_run(&rig, &other);
    compute(&other, 512, NULL); // 2 free ones, and block 0 or 3 of the first run
    close_run(&other);
    assert_int_equal(status_of(&rig).evicted_count, 1);
    open_run(&rig, &first);
    CHECK_OK(kv_sequence_ready(first.sequence));
    // Block 3 is not a hit (the last token is computed), one of blocks 0..2 is cold, and recalled.
    check_hits(&first, 2, 1, RIG_BLOCK_TOKENS);
    assert_int_equal(status_of(&rig).recalled_count, 1);
    compute(&first, 512, NULL);
    close_run(&first);
    rig_destroy(&rig);
}

// Publishing is the mover's: waits until `count` blocks can be found by others.
static void wait_published(const struct rig *rig, uint64_t count)
{
    struct kv_status status = {0};
    struct reason reason = {0};
    for (int i = 0; i < 1000 && status.published_count < count; i++) {
        CHECK_OK(cold_store_status(rig->cold_store, &status, &reason));
        usleep(1000);
    }
    assert_int_equal(status.published_count, count);
}

static void two_sequences_share_copies_and_take_turns(void **state)
{
    (void)state;
    struct rig rig;
    rig_create_cache(&rig, &group, 2, ARENA_BLOCKS);
    struct run a, b;
    set_tokens(&a, 2 * RIG_BLOCK_TOKENS + 1, 11);
    open_run(&rig, &a);
    compute(&a, 512, NULL);
    wait_published(&rig, 2);
    set_tokens(&b, 2 * RIG_BLOCK_TOKENS + 9, 11); // the same prefix
    open_run(&rig, &b);
    CHECK_OK(kv_sequence_ready(b.sequence));
    uint32_t count = 0;
    // One slot is a's open block; the other is a shared copy, which gives way.
    CHECK_OK(kv_sequence_prepare(b.sequence, 2 * RIG_BLOCK_TOKENS, 9, &count));
    assert_int_equal(count, 9);
    fake_step(&b, 2 * RIG_BLOCK_TOKENS, 9);
    struct run c;
    set_tokens(&c, 4, 12);
    open_run(&rig, &c);
    CHECK_OK(kv_sequence_ready(c.sequence));
    assert_int_equal(kv_sequence_prepare(c.sequence, 0, 4, &count), STATUS_BUSY);
    close_run(&a);
    assert_int_equal(compute(&c, 512, NULL), 4);
    close_run(&b);
    close_run(&c);
    rig_destroy(&rig);
}

// ---- holes

static void set_state(struct run *run, uint32_t block_index, enum arena_slot_state slot_state)
{
    const struct kv_slot_ref *ref = &run->lease.lease.slots[block_index];
    atomic_store(cold_arena_word(run->lease.arena, ref->slot_index),
                 ref->generation << 8 | slot_state);
}

// A block whose load fails becomes a hole, which alone is computed again.
static void failed_load_is_computed_alone(void **state)
{
    (void)state;
    for (uint32_t hot_blocks = 0; hot_blocks < 4; hot_blocks += 3) {
        struct rig rig;
        rig_create_cache(&rig, &group, hot_blocks, ARENA_BLOCKS);
        struct run run;
        set_tokens(&run, TOKENS, 21);
        open_run(&rig, &run);
        compute(&run, 512, NULL);
        close_run(&run);
        open_run(&rig, &run);
        set_state(&run, 4, ARENA_SLOT_LOADING);
        assert_int_equal(kv_sequence_ready(run.sequence), STATUS_BUSY);
        set_state(&run, 4, ARENA_SLOT_FILLING);
        memset(cold_lease_payload(&run.lease, 4), 0xee, PAYLOAD_BYTES);
        assert_int_equal(compute(&run, 20, NULL), 2 * RIG_BLOCK_TOKENS);
        CHECK_OK(block_verify(cold_lease_header(&run.lease, 4), cold_lease_payload(&run.lease, 4),
                              PAYLOAD_BYTES));
        close_run(&run);
        rig_destroy(&rig);
    }
}

// ---- limits

static void too_small_a_pool_is_refused(void **state)
{
    (void)state;
    struct rig rig;
    rig_create_cache(&rig, &group, 0, ARENA_BLOCKS);
    const struct kv_cache_options options = {
        .name_space = &rig.name_space,
        .cold_store = rig.cold_store,
        .hot_bytes = PAYLOAD_BYTES - 1,
        .sequence_count_max = 1,
        .context_tokens_max = TOKENS,
    };
    struct kv_cache *cache = NULL;
    struct reason reason = {0};
    assert_int_equal(kv_cache_create(&options, &cache, &reason), STATUS_REFUSED);
    assert_non_null(strstr(reason.text, "4095"));
    assert_non_null(strstr(reason.text, "4096"));
    rig_destroy(&rig);
}

static void sequences_are_bounded(void **state)
{
    (void)state;
    struct rig rig;
    rig_create_cache(&rig, &group, 0, ARENA_BLOCKS);
    struct run runs[4];
    for (int i = 0; i < 4; i++) {
        set_tokens(&runs[i], 1, (uint32_t)i);
        open_run(&rig, &runs[i]);
    }
    struct run more;
    set_tokens(&more, 1, 9);
    more.lease = rig_lease(&rig, more.tokens, 1, 0);
    assert_int_equal(
        kv_sequence_open(rig.cache, &more.lease, &rig.root, more.tokens, 1, &more.sequence),
        STATUS_BUSY);
    cold_store_release(rig.cold_store, &more.lease);
    for (int i = 0; i < 4; i++) {
        close_run(&runs[i]);
    }
    kv_sequence_close(NULL);
    rig_destroy(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unified_blocks_are_the_arenas),
        cmocka_unit_test(closed_blocks_verify),
        cmocka_unit_test(hot_set_is_sticky_and_counted),
        cmocka_unit_test(prepare_gives_what_the_hot_pool_has),
        cmocka_unit_test(second_run_finds_and_recalls),
        cmocka_unit_test(two_sequences_share_copies_and_take_turns),
        cmocka_unit_test(failed_load_is_computed_alone),
        cmocka_unit_test(too_small_a_pool_is_refused),
        cmocka_unit_test(sequences_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
