// SPDX-License-Identifier: Apache-2.0
// At stake: two processes read and write one memory by these numbers. Regions must not overlap and
// must fit; an arena whose header says anything else than its geometry implies is refused, field by
// field; a slot has one state at a time however many threads pull at it; a client's death frees its
// lock.
#include "tests/check.h"

#include "proto/arena_layout.h"
#include "proto/arena_lock.h"
#include "proto/arena_slot.h"
#include "proto/os/thread.h"

#include <signal.h>
#include <sys/wait.h>

static struct arena_geometry geometry_of(uint32_t group_count, uint32_t slot_count)
{
    struct arena_geometry geometry = {.block_tokens = 32, .group_count = group_count};
    for (uint32_t i = 0; i < group_count; i++) {
        geometry.groups[i] = (struct kv_group){.kind = i == 0 ? KV_GROUP_FULL : KV_GROUP_WINDOW,
                                               .window_tokens = i == 0 ? 0 : 1024,
                                               .layer_count = 3 + i,
                                               .kv_heads = 2,
                                               .head_dim = 20};
        geometry.slot_counts[i] = slot_count + i;
    }
    memset(geometry.fingerprint, 0xab, sizeof(geometry.fingerprint));
    return geometry;
}

static int compare_ranges(const void *a, const void *b)
{
    const struct arena_range *left = a;
    const struct arena_range *right = b;
    return left->offset < right->offset ? -1 : left->offset > right->offset;
}

static void regions_do_not_overlap(void **state)
{
    (void)state;
    static const uint32_t slot_counts[] = {1, 63, 64, 65, 4000};
    for (uint32_t groups = 1; groups <= BLOCK_GROUP_MAX; groups++) {
        for (size_t k = 0; k < sizeof(slot_counts) / sizeof(slot_counts[0]); k++) {
            struct arena_geometry geometry = geometry_of(groups, slot_counts[k]);
            struct arena_layout layout;
            CHECK_OK(arena_layout_compute(&geometry, &layout));
            struct arena_range ranges[16] = {
                {0, sizeof(struct arena_header)},
                {layout.client_offset, LIMIT_CLIENTS * sizeof(struct arena_client)},
                {layout.word_offset, layout.slot_count * 8ull},
                {layout.bitmap_offset, LIMIT_CLIENTS * layout.bitmap_words * 8},
                {layout.tail_offset, (uint64_t)LIMIT_CLIENTS * ARENA_TAILS * ARENA_TAIL_BYTES},
                {layout.header_offset, layout.slot_count * 1024ull},
            };
            uint32_t count = 6;
            for (uint32_t g = 0; g < groups; g++) {
                const struct arena_class *class = &layout.classes[g];
                assert_int_equal(class->payload_bytes, (3 + g) * 2 * 2 * 20 * 32 * 2);
                assert_int_equal(class->payload_offset % BLOCK_PAGE_BYTES, 0);
                ranges[count++] = arena_range_payloads(&layout, g, 0, class->slot_count);
            }
            qsort(ranges, count, sizeof(ranges[0]), compare_ranges);
            for (uint32_t i = 1; i < count; i++) {
                assert_true(ranges[i - 1].offset + ranges[i - 1].bytes <= ranges[i].offset);
            }
            assert_true(ranges[count - 1].offset + ranges[count - 1].bytes <= layout.total_bytes);
            assert_int_equal(layout.total_bytes % BLOCK_PAGE_BYTES, 0);
            assert_true(layout.bitmap_words * 64 >= layout.slot_count);
        }
    }
}

static void pointers_follow_the_layout(void **state)
{
    (void)state;
    struct arena_geometry geometry = geometry_of(2, 10);
    struct arena_layout layout;
    CHECK_OK(arena_layout_compute(&geometry, &layout));
    uint8_t *base = (uint8_t *)(uintptr_t)0x100000000u; // never read
    assert_int_equal(arena_class_of(&layout, 9), 0);
    assert_int_equal(arena_class_of(&layout, 10), 1);
    assert_int_equal(arena_class_of(&layout, 20), 1);
    for (uint32_t slot = 0; slot < 21; slot++) {
        const struct arena_class *class = &layout.classes[slot < 10 ? 0 : 1];
        uint32_t index = slot < 10 ? slot : slot - 10;
        assert_ptr_equal(arena_payload_at(&layout, base, slot),
                         base + class->payload_offset + index * class->slot_bytes);
        assert_ptr_equal(arena_word_at(&layout, base, slot), base + layout.word_offset + 8 * slot);
        assert_ptr_equal(arena_block_header_at(&layout, base, slot),
                         base + layout.header_offset + 1024 * slot);
        struct arena_range range = arena_range_payloads(&layout, slot < 10 ? 0 : 1, index, 1);
        assert_ptr_equal(base + range.offset, arena_payload_at(&layout, base, slot));
        range = arena_range_headers(&layout, slot < 10 ? 0 : 1, index, 1);
        assert_ptr_equal(base + range.offset, arena_block_header_at(&layout, base, slot));
    }
    assert_ptr_equal(arena_client_at(&layout, base, 2), base + layout.client_offset + 256);
    assert_ptr_equal(arena_bitmap_at(&layout, base, 3), base + layout.bitmap_offset + 24);
    assert_ptr_equal(arena_tail_at(&layout, base, 1, 2),
                     base + layout.tail_offset + (ARENA_TAILS + 2) * ARENA_TAIL_BYTES);
    assert_int_equal(arena_range_fixed(&layout).bytes, layout.tail_offset);
    assert_ptr_equal(base + arena_range_tails(&layout, 1).offset,
                     arena_tail_at(&layout, base, 1, 0));
}

static void impossible_geometry_is_refused(void **state)
{
    (void)state;
    struct arena_layout layout;
    for (int i = 0; i < 13; i++) {
        struct arena_geometry geometry = geometry_of(2, 10);
        switch (i) {
        case 0:
            geometry.group_count = 0;
            break;
        case 1:
            geometry.group_count = BLOCK_GROUP_MAX + 1;
            break;
        case 2:
            geometry.block_tokens = 33;
            break;
        case 3:
            geometry.slot_counts[1] = 0;
            break;
        case 4:
            geometry.slot_counts[0] = UINT32_MAX;
            break;
        case 5:
            geometry.groups[0].head_dim = LIMIT_HEAD_DIM + 1;
            break;
        case 6:
            geometry.groups[0].kv_heads = 0;
            break;
        case 7:
            geometry.groups[0].layer_count = UINT32_MAX;
            break;
        case 8:
            geometry.groups[0].window_tokens = 1; // of a full group
            break;
        case 9:
            geometry.groups[1].window_tokens = 0; // of a window group
            break;
        case 10:
            geometry.groups[1].kind = (enum kv_group_kind)3;
            break;
        case 11:
            geometry.groups[1].format = (enum kv_format)3;
            break;
        default:
            geometry.slot_counts[0] = ARENA_SLOTS_MAX;
            break;
        }
        assert_int_equal(arena_layout_compute(&geometry, &layout), STATUS_INVALID);
    }
    struct arena_geometry huge = geometry_of(1, ARENA_SLOTS_MAX);
    huge.block_tokens = 128;
    huge.groups[0].layer_count = LIMIT_LAYERS;
    huge.groups[0].kv_heads = LIMIT_HEADS;
    huge.groups[0].head_dim = LIMIT_HEAD_DIM;
    assert_int_equal(arena_layout_compute(&huge, &layout), STATUS_REFUSED);
}

static void every_header_field_is_checked(void **state)
{
    (void)state;
    struct arena_geometry geometry = geometry_of(2, 10);
    struct arena_layout layout;
    CHECK_OK(arena_layout_compute(&geometry, &layout));
    uint8_t *page = calloc(1, BLOCK_PAGE_BYTES);
    struct arena_geometry seen;
    struct arena_layout seen_layout;
    assert_int_equal(arena_layout_check(page, layout.total_bytes, &seen, &seen_layout),
                     STATUS_DAMAGED); // not finished: no magic
    arena_header_init(page, &geometry, &layout, 77, 1000);
    CHECK_OK(arena_layout_check(page, layout.total_bytes, &seen, &seen_layout));
    assert_memory_equal(&seen, &geometry, sizeof(geometry));
    assert_memory_equal(&seen_layout, &layout, sizeof(layout));
    assert_int_equal(arena_layout_check(page, layout.total_bytes - 1, &seen, &seen_layout),
                     STATUS_DAMAGED);
    assert_int_equal(arena_layout_check(page, 100, &seen, &seen_layout), STATUS_DAMAGED);
    struct arena_header *header = arena_header_at(page);
    header->reserved_count[0] = 11;
    assert_int_equal(arena_layout_check(page, layout.total_bytes, &seen, &seen_layout),
                     STATUS_DAMAGED);
    header->reserved_count[0] = 10;
    CHECK_OK(arena_layout_check(page, layout.total_bytes, &seen, &seen_layout));
    for (size_t i = 0; i < sizeof(struct arena_layout); i++) {
        uint8_t *byte = (uint8_t *)&header->layout + i;
        *byte ^= 0x40;
        assert_int_equal(arena_layout_check(page, layout.total_bytes, &seen, &seen_layout),
                         STATUS_DAMAGED);
        *byte ^= 0x40;
    }
    header->block_tokens = 16;
    assert_int_equal(arena_layout_check(page, layout.total_bytes, &seen, &seen_layout),
                     STATUS_DAMAGED);
    header->block_tokens = 32;
    header->group_count = 5;
    assert_int_equal(arena_layout_check(page, layout.total_bytes, &seen, &seen_layout),
                     STATUS_DAMAGED);
    header->group_count = 2;
    header->layout_version++;
    assert_int_equal(arena_layout_check(page, layout.total_bytes, &seen, &seen_layout),
                     STATUS_VERSION);
    free(page);
}

static void arrows_start_only_where_they_start(void **state)
{
    (void)state;
    static bool (*const arrows[])(_Atomic uint64_t *, uint64_t) = {
        arena_slot_begin_fill,  arena_slot_publish,   arena_slot_begin_load,
        arena_slot_finish_load, arena_slot_fail_load, arena_slot_clear};
    // to[arrow][from]: the state it leads to, or -1.
    static const int to[6][4] = {{ARENA_SLOT_FILLING, -1, -1, -1}, {-1, ARENA_SLOT_READY, -1, -1},
                                 {ARENA_SLOT_LOADING, -1, -1, -1}, {-1, -1, ARENA_SLOT_READY, -1},
                                 {-1, -1, ARENA_SLOT_FILLING, -1}, {-1, 0, 0, 0}};
    for (int arrow = 0; arrow < 6; arrow++) {
        for (uint64_t from = 0; from < 4; from++) {
            _Atomic uint64_t word = 5 << 8 | from;
            assert_false(arrows[arrow](&word, 4)); // an old generation
            assert_false(arrows[arrow](&word, 6));
            assert_int_equal(word, 5 << 8 | from);
            assert_int_equal(arrows[arrow](&word, 5), to[arrow][from] >= 0);
            struct arena_slot slot = arena_slot_load(&word);
            if (to[arrow][from] < 0) {
                assert_int_equal(word, 5 << 8 | from);
            } else {
                assert_int_equal(slot.state, to[arrow][from]);
                assert_int_equal(slot.generation, arrow == 5 ? 6 : 5);
            }
        }
    }
    _Atomic uint64_t last = ARENA_GENERATION_MAX << 8 | ARENA_SLOT_READY;
    assert_true(arena_slot_clear(&last, ARENA_GENERATION_MAX));
    assert_int_equal(last, 0);
}

// Two threads fill and clear one slot; whoever wins an arrow owns the plain counter beside it.
struct race {
    _Atomic uint64_t word;
    uint64_t plain; // written only between begin_fill and publish
};

static void pull(void *argument)
{
    struct race *race = argument;
    for (int won = 0; won < 20000;) {
        struct arena_slot slot = arena_slot_load(&race->word);
        if (slot.state == ARENA_SLOT_EMPTY && arena_slot_begin_fill(&race->word, slot.generation)) {
            race->plain++;
            assert_true(arena_slot_publish(&race->word, slot.generation));
            won++;
        } else if (slot.state == ARENA_SLOT_READY) {
            (void)arena_slot_clear(&race->word, slot.generation);
        }
    }
}

static void two_threads_never_own_one_slot(void **state)
{
    (void)state;
    struct race race = {0};
    struct os_thread *threads[2];
    for (int i = 0; i < 2; i++) {
        CHECK_OK(os_thread_start("pull", pull, &race, &threads[i]));
    }
    for (int i = 0; i < 2; i++) {
        os_thread_join(threads[i]);
    }
    assert_int_equal(race.plain, 40000);
}

static void a_dead_client_holds_no_lock(void **state)
{
    (void)state;
    struct arena_geometry geometry = geometry_of(1, 4);
    struct arena_layout layout;
    CHECK_OK(arena_layout_compute(&geometry, &layout));
    char name[64];
    snprintf(name, sizeof(name), "/kvtier-test-%ld", (long)getpid());
    struct os_shm owner;
    struct os_shm client;
    CHECK_OK(os_shm_create(name, layout.total_bytes, &owner, NULL));
    CHECK_OK(os_shm_open(name, &client, NULL));
    bool held = true;
    CHECK_OK(arena_lock_held(&owner, &layout, 7, &held));
    assert_false(held);
    CHECK_OK(arena_lock_acquire(&client, &layout, 7));
    CHECK_OK(arena_lock_held(&owner, &layout, 7, &held));
    assert_true(held);
    CHECK_OK(arena_lock_held(&owner, &layout, 6, &held));
    assert_false(held);
    struct os_shm second;
    CHECK_OK(os_shm_open(name, &second, NULL));
    assert_int_equal(arena_lock_acquire(&second, &layout, 7), STATUS_BUSY);
    os_shm_close(&second); // another mapping's close does not end our lock, as POSIX locks would
    CHECK_OK(arena_lock_held(&owner, &layout, 7, &held));
    assert_true(held);
    arena_lock_release(&client, &layout, 7);
    CHECK_OK(arena_lock_held(&owner, &layout, 7, &held));
    assert_false(held);
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct os_shm own;
        char byte = os_shm_open(name, &own, NULL) == STATUS_OK &&
                    arena_lock_acquire(&own, &layout, 9) == STATUS_OK;
        (void)!write(ready[1], &byte, 1);
        pause();
        _exit(0);
    }
    char byte = 0;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 1);
    CHECK_OK(arena_lock_held(&owner, &layout, 9, &held));
    assert_true(held);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    CHECK_OK(arena_lock_held(&owner, &layout, 9, &held));
    assert_false(held);
    os_shm_close(&client);
    os_shm_close(&owner);
    CHECK_OK(os_shm_unlink(name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regions_do_not_overlap),
        cmocka_unit_test(pointers_follow_the_layout),
        cmocka_unit_test(impossible_geometry_is_refused),
        cmocka_unit_test(every_header_field_is_checked),
        cmocka_unit_test(arrows_start_only_where_they_start),
        cmocka_unit_test(two_threads_never_own_one_slot),
        cmocka_unit_test(a_dead_client_holds_no_lock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
