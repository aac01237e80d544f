// SPDX-License-Identifier: Apache-2.0
// Rules: a slot is promised only when memory is behind it; the state words belong to both
// processes, so decisions rest on our own generations and on who holds a slot in our books. A name
// that is left over is replaced without asking: the caller holds the instance lock, so its owner is
// dead.

#include "kvstored/arena.h"

#include "proto/os/machine.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static void geometry_of(const struct arena_options *options, struct arena_geometry *out)
{
    const struct kv_namespace *name_space = options->name_space;
    *out = (struct arena_geometry){.block_tokens = name_space->block_tokens,
                                   .group_count = name_space->group_count};
    memcpy(out->fingerprint, name_space->fingerprint, sizeof(out->fingerprint));
    for (uint32_t g = 0; g < name_space->group_count; g++) {
        out->groups[g] = name_space->groups[g];
        out->slot_counts[g] = options->slot_count;
    }
}

static enum status map_memory(struct arena *arena, struct reason *reason)
{
    if (arena->name[0] == '\0') {
        return os_shm_create_private(arena->layout.total_bytes, &arena->shm, reason);
    }
    enum status status = os_shm_create(arena->name, arena->layout.total_bytes, &arena->shm, reason);
    if (status == STATUS_EXISTS) {
        status = os_shm_unlink(arena->name);
        if (status == STATUS_OK || status == STATUS_NOT_FOUND) {
            status = os_shm_create(arena->name, arena->layout.total_bytes, &arena->shm, reason);
        } else {
            status = reason_set(reason, status, "remove it", "arena %s: left over, and in the way",
                                arena->name);
        }
    }
    return status;
}

// Everything before the slots; without it the arena cannot be used at all.
static enum status reserve_tables(struct arena *arena, struct reason *reason)
{
    struct arena_range range = arena_range_fixed(&arena->layout);
    enum status status = os_shm_reserve(&arena->shm, range.offset, range.bytes);
    if (status != STATUS_OK) {
        return reason_set(reason, status, "free memory, or check the size of /dev/shm",
                          "arena: %llu bytes for its tables cannot be had",
                          (unsigned long long)range.bytes);
    }
    return STATUS_OK;
}

static enum status allocate_books(struct arena *arena, struct reason *reason)
{
    arena->free_slots = malloc(arena->slot_count * sizeof(*arena->free_slots));
    arena->generations = calloc(arena->slot_count, sizeof(*arena->generations));
    if (arena->free_slots == NULL || arena->generations == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "arena: out of memory");
    }
    return STATUS_OK;
}

enum status arena_init(struct arena *arena, const struct arena_options *options,
                       struct reason *reason)
{
    assert(options->slot_count > 0);
    memset(arena, 0, sizeof(*arena));
    struct arena_geometry geometry;
    geometry_of(options, &geometry);
    enum status status = arena_layout_compute(&geometry, &arena->layout);
    if (status != STATUS_OK) {
        return reason_set(reason, status, "lower --swap-space",
                          "arena: %u slots cannot be laid out", options->slot_count);
    }
    arena->slot_count = options->slot_count;
    status = allocate_books(arena, reason);
    if (status == STATUS_OK && options->name != NULL) {
        assert(strlen(options->name) < sizeof(arena->name));
        strcpy(arena->name, options->name);
    }
    if (status == STATUS_OK) {
        status = map_memory(arena, reason);
    }
    if (status == STATUS_OK) {
        status = reserve_tables(arena, reason);
    }
    if (status != STATUS_OK) {
        arena_finish(arena);
        return status;
    }
    arena_header_init(arena->shm.base, &geometry, &arena->layout, options->epoch,
                      os_machine_user_id());
    return STATUS_OK;
}

void arena_finish(struct arena *arena)
{
    if (arena->shm.base != NULL && arena->name[0] != '\0') {
        (void)!os_shm_unlink(arena->name); // gone already, or not ours: nothing to undo
    }
    os_shm_close(&arena->shm);
    free(arena->free_slots);
    free(arena->generations);
    memset(arena, 0, sizeof(*arena));
}

enum status arena_acquire(struct arena *arena, uint32_t *out_slot)
{
    if (arena->free_count == 0) {
        return STATUS_BUSY;
    }
    *out_slot = arena->free_slots[--arena->free_count];
    return STATUS_OK;
}

enum status arena_grow(struct arena *arena)
{
    const struct arena_class *class = &arena->layout.classes[0];
    uint64_t slot_bytes = class->slot_bytes + sizeof(struct block_header);
    uint64_t step = ARENA_STEP_BYTES / slot_bytes;
    uint32_t left = arena->slot_count - arena->reserved_count;
    uint32_t count = step == 0 ? 1 : step < left ? (uint32_t)step : left;
    if (left == 0) {
        return STATUS_BUSY;
    }
    struct arena_range headers =
        arena_range_headers(&arena->layout, 0, arena->reserved_count, count);
    struct arena_range payloads =
        arena_range_payloads(&arena->layout, 0, arena->reserved_count, count);
    enum status status = os_shm_reserve(&arena->shm, headers.offset, headers.bytes);
    if (status == STATUS_OK) {
        status = os_shm_reserve(&arena->shm, payloads.offset, payloads.bytes);
    }
    if (status != STATUS_OK) {
        return status;
    }
    // Pushed in reverse, so that slots are handed out in the order of their addresses.
    for (uint32_t i = count; i > 0; i--) {
        arena->free_slots[arena->free_count++] = arena->reserved_count + i - 1;
    }
    arena->reserved_count += count;
    // Release: who reads the count may touch the memory below it.
    atomic_store_explicit(&arena_header_at(arena->shm.base)->reserved_count[0],
                          arena->reserved_count, memory_order_release);
    return STATUS_OK;
}

void arena_release(struct arena *arena, uint32_t slot)
{
    assert(slot < arena->reserved_count && arena->free_count < arena->reserved_count);
    _Atomic uint64_t *word = arena_word(arena, slot);
    struct arena_slot now = arena_slot_load(word);
    if (now.state != ARENA_SLOT_EMPTY) {
        // A broken client may have moved the generation: ours counts on from whichever is higher.
        arena_slot_clear(word, now.generation);
        now = arena_slot_load(word);
    }
    arena->generations[slot] = now.generation;
    arena->free_slots[arena->free_count++] = slot;
}

_Atomic uint64_t *arena_word(struct arena *arena, uint32_t slot)
{
    return arena_word_at(&arena->layout, arena->shm.base, slot);
}

uint64_t arena_generation(const struct arena *arena, uint32_t slot)
{
    return arena->generations[slot];
}

enum arena_slot_state arena_state(struct arena *arena, uint32_t slot)
{
    struct arena_slot now = arena_slot_load(arena_word(arena, slot));
    return now.generation == arena->generations[slot] ? now.state : ARENA_SLOT_EMPTY;
}

struct block_header *arena_header(struct arena *arena, uint32_t slot)
{
    return arena_block_header_at(&arena->layout, arena->shm.base, slot);
}

void *arena_payload(struct arena *arena, uint32_t slot)
{
    return arena_payload_at(&arena->layout, arena->shm.base, slot);
}

uint64_t arena_payload_bytes(const struct arena *arena)
{
    return arena->layout.classes[0].payload_bytes;
}
