// SPDX-License-Identifier: Apache-2.0
// The arena as its owner sees it: the mapping, memory reserved in steps, and which slots are free.
// Owner: the store's thread; payloads of acquired slots are shared as proto/arena_slot.h says. One
// class of slots until groups beyond the first are built. Never: knows ids, leases or disk.
#ifndef KVTIER_KVSTORED_ARENA_H
#define KVTIER_KVSTORED_ARENA_H

#include "proto/arena_layout.h"
#include "proto/arena_slot.h"
#include "proto/kv_message.h"
#include "proto/os/shm.h"
#include "proto/runtime_dir.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { ARENA_STEP_BYTES = 64 << 20 }; // memory reserved at a time

struct arena_options {
    const char *name; // shared memory object, replaced when one is left over; NULL: private memory
    const struct kv_namespace *name_space;
    uint32_t slot_count; // most slots
    uint64_t epoch;
};

// Embedded by value; fields are the arena's own, but for reading.
struct arena {
    struct os_shm shm;
    struct arena_layout layout;
    char name[RUNTIME_ARENA_NAME_BYTES]; // empty: private
    uint32_t slot_count;                 // of the budget
    uint32_t reserved_count;             // slots 0..reserved_count-1 have memory
    uint32_t free_count;                 // of these, free
    uint32_t *free_slots;                // [slot_count] a stack
    uint64_t *generations; // [slot_count] ours; the words in shared memory are never trusted
};

// STATUS_NO_MEMORY, STATUS_REFUSED (too large to map), STATUS_PERMISSION, STATUS_IO.
enum status arena_init(struct arena *arena, const struct arena_options *options,
                       struct reason *reason) KV_MUST_CHECK;
// Unlinks the name and unmaps. Clients keep their mappings. Zeroed memory is fine.
void arena_finish(struct arena *arena);

// A free slot, EMPTY, with memory. STATUS_BUSY when all that are reserved are taken.
enum status arena_acquire(struct arena *arena, uint32_t *out_slot) KV_MUST_CHECK;
// Puts memory behind up to ARENA_STEP_BYTES more slots. STATUS_BUSY when all of the budget are
// reserved, STATUS_NO_MEMORY when the system has no more.
enum status arena_grow(struct arena *arena) KV_MUST_CHECK;
// The slot becomes EMPTY with the next generation, whatever state it is in, and free.
void arena_release(struct arena *arena, uint32_t slot);

// The slot's state word, and the generation that the owner knows it by.
_Atomic uint64_t *arena_word(struct arena *arena, uint32_t slot);
uint64_t arena_generation(const struct arena *arena, uint32_t slot);
// State of an acquired slot; EMPTY when its word is not of our generation.
enum arena_slot_state arena_state(struct arena *arena, uint32_t slot);
struct block_header *arena_header(struct arena *arena, uint32_t slot);
void *arena_payload(struct arena *arena, uint32_t slot);
uint64_t arena_payload_bytes(const struct arena *arena);

#endif
