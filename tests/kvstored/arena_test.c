// SPDX-License-Identifier: Apache-2.0
// At stake: a slot without memory behind it is a crash in the middle of attention, and one that
// comes back with its old generation is somebody else's block. Private and named arenas, growing
// step by step.
#include "kvstored/arena.h"
#include "proto/os/machine.h"
#include "tests/check.h"

static const struct kv_namespace name_space = {
    .fingerprint = {3},
    .block_tokens = 16,
    .group_count = 1,
    .groups = {{.layer_count = 4, .kv_heads = 2, .head_dim = 16}},
};

static struct arena create(const char *name, uint32_t slot_count)
{
    struct arena arena;
    struct reason reason = {0};
    const struct arena_options options = {
        .name = name, .name_space = &name_space, .slot_count = slot_count, .epoch = 5};
    CHECK_OK(arena_init(&arena, &options, &reason));
    return arena;
}

static void slots_come_and_go(void **state)
{
    (void)state;
    struct arena arena = create(NULL, 10);
    uint32_t slot, again;
    assert_int_equal(arena_acquire(&arena, &slot), STATUS_BUSY); // nothing is reserved yet
    CHECK_OK(arena_grow(&arena));
    assert_int_equal(arena.reserved_count, 10); // 10 slots are less than a step
    assert_int_equal(arena_grow(&arena), STATUS_BUSY);
    for (uint32_t i = 0; i < 10; i++) {
        CHECK_OK(arena_acquire(&arena, &slot));
        assert_int_equal(slot, i); // in the order of their addresses
        assert_int_equal(arena_state(&arena, slot), ARENA_SLOT_EMPTY);
        memset(arena_header(&arena, slot), 1, sizeof(struct block_header));
        memset(arena_payload(&arena, slot), 1, arena_payload_bytes(&arena));
    }
    assert_int_equal(arena_acquire(&arena, &slot), STATUS_BUSY);
    uint64_t generation = arena_generation(&arena, 4);
    assert_true(arena_slot_begin_fill(arena_word(&arena, 4), generation));
    assert_int_equal(arena_state(&arena, 4), ARENA_SLOT_FILLING);
    arena_release(&arena, 4);
    CHECK_OK(arena_acquire(&arena, &again));
    assert_int_equal(again, 4);
    assert_int_equal(arena_state(&arena, 4), ARENA_SLOT_EMPTY);
    assert_true(arena_generation(&arena, 4) > generation);
    arena_finish(&arena);
}

static void grows_in_steps(void **state)
{
    (void)state;
    struct arena arena = create(NULL, 20000); // 180 MiB
    uint64_t backed = 0;
    CHECK_OK(arena_grow(&arena));
    assert_true(arena.reserved_count < 20000);
    CHECK_OK(os_shm_backed_bytes(&arena.shm, &backed));
    assert_true(backed >= arena.reserved_count * (8192ull + 1024));
    assert_true(backed <= (72 << 20));
    assert_int_equal(atomic_load(&arena_header_at(arena.shm.base)->reserved_count[0]),
                     arena.reserved_count);
    uint32_t before = arena.reserved_count;
    CHECK_OK(arena_grow(&arena));
    assert_true(arena.reserved_count > before);
    assert_int_equal(arena.free_count, arena.reserved_count);
    arena_finish(&arena);
}

// Whatever a client wrote into the word of its slot, the next holder gets a generation of its own.
static void a_scribbled_word_is_recovered_from(void **state)
{
    (void)state;
    struct arena arena = create(NULL, 4);
    uint32_t slot;
    CHECK_OK(arena_grow(&arena));
    CHECK_OK(arena_acquire(&arena, &slot));
    assert_true(arena_slot_begin_fill(arena_word(&arena, slot), arena_generation(&arena, slot)));
    atomic_store(arena_word(&arena, slot), (uint64_t)77 << 8 | ARENA_SLOT_READY);
    assert_int_equal(arena_state(&arena, slot), ARENA_SLOT_EMPTY); // not of our generation
    arena_release(&arena, slot);
    CHECK_OK(arena_acquire(&arena, &slot));
    assert_true(arena_slot_begin_fill(arena_word(&arena, slot), arena_generation(&arena, slot)));
    assert_int_equal(arena_state(&arena, slot), ARENA_SLOT_FILLING);
    arena_finish(&arena);
}

static void a_name_is_ours_alone_and_goes_with_us(void **state)
{
    (void)state;
    char name[RUNTIME_ARENA_NAME_BYTES];
    struct os_shm shm;
    struct reason reason = {0};
    struct arena_geometry geometry;
    struct arena_layout layout;
    snprintf(name, sizeof(name), "/kvtier-test-%llu", (unsigned long long)os_machine_process_id());
    CHECK_OK(os_shm_create(name, 4096, &shm, &reason)); // left over by somebody
    os_shm_close(&shm);
    struct arena arena = create(name, 4);
    CHECK_OK(os_shm_open(name, &shm, &reason));
    assert_int_equal(shm.bytes, arena.shm.bytes);
    CHECK_OK(arena_layout_check(shm.base, shm.bytes, &geometry, &layout));
    assert_int_equal(geometry.slot_counts[0], 4);
    assert_memory_equal(geometry.fingerprint, name_space.fingerprint, BLOCK_ID_BYTES);
    os_shm_close(&shm);
    arena_finish(&arena);
    assert_int_equal(os_shm_open(name, &shm, &reason), STATUS_NOT_FOUND);
    arena_finish(&arena); // zeroed
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_come_and_go),
        cmocka_unit_test(grows_in_steps),
        cmocka_unit_test(a_scribbled_word_is_recovered_from),
        cmocka_unit_test(a_name_is_ours_alone_and_goes_with_us),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
