// SPDX-License-Identifier: Apache-2.0
// The state of one slot of the arena: an atomic word, generation << 8 | state, that both processes
// change, each arrow one function. A slot reference is (index, generation): it is stale when the
// generation has moved on.
//
//                 begin_fill            publish
//          EMPTY ───────────▶ FILLING ──────────▶ READY
//            │                   ▲                  ▲
//            │ begin_load        │ fail_load        │ finish_load
//            └──────────────▶ LOADING ──────────────┘
//
//          any ── clear ──▶ EMPTY, generation + 1
//
// Who: begin_*, finish_load, fail_load and clear are kvstored's; publish is the client's that the
// slot is lent to. fail_load lends the slot to be computed instead: a failed load is a miss.
// Memory order: publish and finish_load release the bytes of payload and header, arena_slot_load
// acquires them, so who sees READY sees the bytes. Each function is false, and changes nothing,
// when the slot is not in the state and generation that the arrow starts from.
#ifndef KVTIER_PROTO_ARENA_SLOT_H
#define KVTIER_PROTO_ARENA_SLOT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum arena_slot_state {
    ARENA_SLOT_EMPTY = 0,
    ARENA_SLOT_FILLING = 1,
    ARENA_SLOT_LOADING = 2,
    ARENA_SLOT_READY = 3,
};

#define ARENA_GENERATION_MAX ((UINT64_C(1) << 56) - 1)

// A word read once. `state` may be a number outside the enum in a damaged arena.
struct arena_slot {
    uint64_t generation;
    enum arena_slot_state state;
};

struct arena_slot arena_slot_load(const _Atomic uint64_t *word); // acquire

// The arrows of the drawing above.
bool arena_slot_begin_fill(_Atomic uint64_t *word, uint64_t generation);
bool arena_slot_publish(_Atomic uint64_t *word, uint64_t generation);
bool arena_slot_begin_load(_Atomic uint64_t *word, uint64_t generation);
bool arena_slot_finish_load(_Atomic uint64_t *word, uint64_t generation);
bool arena_slot_fail_load(_Atomic uint64_t *word, uint64_t generation);
// From FILLING, LOADING or READY.
bool arena_slot_clear(_Atomic uint64_t *word, uint64_t generation);

#endif
