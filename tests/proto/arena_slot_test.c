// SPDX-License-Identifier: Apache-2.0
// At stake: a slot has one state at a time however many threads pull at it; every arrow is tried
// from every state.
#include "tests/check.h"

#include "proto/arena_slot.h"
#include "proto/os/thread.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrows_start_only_where_they_start),
        cmocka_unit_test(two_threads_never_own_one_slot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
