// SPDX-License-Identifier: Apache-2.0
// Every arrow is one compare-and-swap of the whole word, so state and generation move together.
#include "proto/arena_slot.h"

static uint64_t word_of(uint64_t generation, enum arena_slot_state state)
{
    return generation << 8 | (uint64_t)state;
}

// Release on success: what the mover wrote before is seen by whoever acquires the new state.
static bool move(_Atomic uint64_t *word, uint64_t from, uint64_t to)
{
    return atomic_compare_exchange_strong_explicit(word, &from, to, memory_order_acq_rel,
                                                   memory_order_acquire);
}

static bool step(_Atomic uint64_t *word, uint64_t generation, enum arena_slot_state from,
                 enum arena_slot_state to)
{
    return move(word, word_of(generation, from), word_of(generation, to));
}

struct arena_slot arena_slot_load(const _Atomic uint64_t *word)
{
    uint64_t value = atomic_load_explicit(word, memory_order_acquire);
    return (struct arena_slot){.generation = value >> 8,
                               .state = (enum arena_slot_state)(value & 0xff)};
}

bool arena_slot_begin_fill(_Atomic uint64_t *word, uint64_t generation)
{
    return step(word, generation, ARENA_SLOT_EMPTY, ARENA_SLOT_FILLING);
}

bool arena_slot_publish(_Atomic uint64_t *word, uint64_t generation)
{
    return step(word, generation, ARENA_SLOT_FILLING, ARENA_SLOT_READY);
}

bool arena_slot_begin_load(_Atomic uint64_t *word, uint64_t generation)
{
    return step(word, generation, ARENA_SLOT_EMPTY, ARENA_SLOT_LOADING);
}

bool arena_slot_finish_load(_Atomic uint64_t *word, uint64_t generation)
{
    return step(word, generation, ARENA_SLOT_LOADING, ARENA_SLOT_READY);
}

bool arena_slot_fail_load(_Atomic uint64_t *word, uint64_t generation)
{
    return step(word, generation, ARENA_SLOT_LOADING, ARENA_SLOT_FILLING);
}

bool arena_slot_clear(_Atomic uint64_t *word, uint64_t generation)
{
    struct arena_slot slot = arena_slot_load(word);
    if (slot.generation != generation || slot.state == ARENA_SLOT_EMPTY) {
        return false;
    }
    uint64_t next = (generation + 1) & ARENA_GENERATION_MAX;
    return move(word, word_of(generation, slot.state), word_of(next, ARENA_SLOT_EMPTY));
}
