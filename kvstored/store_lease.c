// SPDX-License-Identifier: Apache-2.0
// Leases over slots. Rules:
//  - A lease gets all of its slots or none.
//  - A hit is promised only after the tokens in the arena were compared with the request's.
//  - A slot belongs to exactly one of: the free list, one lease (LENT, LOADING, PRIVATE), the index
//    (shared by any number of leases), or the loader (a load whose lease was released).

#include "kvstored/store_internal.h"

#include "proto/block_id.h"
#include "proto/os/clock.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

// ---- slots

void store_slot_settle(struct store *store, uint32_t slot)
{
    const struct store_slot *info = &store->slots[slot];
    bool must_be_saved = info->want_save && store->persistence.ok;
    if (info->damaged && info->lease_count == 0 && !info->saving) {
        store_slot_drop(store, slot);
    } else if (info->indexed && info->lease_count == 0 && !info->saving && !must_be_saved) {
        if (!eviction_listed(&store->eviction, slot)) {
            eviction_touch(&store->eviction, slot);
        }
    } else {
        eviction_remove(&store->eviction, slot);
    }
}

void store_slot_drop(struct store *store, uint32_t slot)
{
    struct store_slot *info = &store->slots[slot];
    assert(info->indexed && info->lease_count == 0 && !info->saving && !info->loading);
    eviction_remove(&store->eviction, slot);
    bool removed = block_index_remove(&store->index, &info->id);
    assert(removed);
    *info = (struct store_slot){0};
    arena_release(&store->arena, slot);
}

bool store_slot_index(struct store *store, uint32_t slot, const struct block_header *header)
{
    struct store_slot *info = &store->slots[slot];
    enum status status = block_index_insert(&store->index, &header->id, slot);
    if (status != STATUS_OK) {
        return false; // EXISTS; it was made for slot_count ids, so it never grows
    }
    info->id = header->id;
    info->token_count = header->token_count;
    info->first_position = header->first_position;
    info->touched_ms = os_clock_ms();
    info->indexed = true;
    return true;
}

// An EMPTY slot with memory: a free one, else more of the budget, else the least recently used
// block's.
static enum status acquire_slot(struct store *store, uint32_t *out_slot)
{
    enum status status = arena_acquire(&store->arena, out_slot);
    if (status != STATUS_BUSY) {
        return status;
    }
    enum status grown = arena_grow(&store->arena);
    if (grown != STATUS_OK) {
        uint32_t victim = eviction_victim(&store->eviction);
        if (victim == EVICTION_NONE) {
            return grown;
        }
        store_slot_drop(store, victim);
        store->counters.evicted_count++;
    }
    return arena_acquire(&store->arena, out_slot);
}

// ---- lookups

// Whether the slot holds the block of these tokens. The arena is shared, so what the index says is
// not enough.
static bool tokens_match(struct store *store, uint32_t slot, const struct block_id *id,
                         const uint32_t *tokens)
{
    const struct block_header *header = arena_header(&store->arena, slot);
    return arena_state(&store->arena, slot) == ARENA_SLOT_READY && !store->slots[slot].damaged &&
           block_id_equal(&header->id, id) &&
           memcmp(header->tokens, tokens, store->name_space.block_tokens * sizeof(uint32_t)) == 0;
}

static void hold_cached(struct store *store, uint32_t slot)
{
    struct store_slot *info = &store->slots[slot];
    info->lease_count++;
    info->hit_count++;
    info->touched_ms = os_clock_ms();
    store_slot_settle(store, slot);
}

static void drop_cached(struct store *store, uint32_t slot)
{
    struct store_slot *info = &store->slots[slot];
    assert(info->lease_count > 0);
    info->lease_count--;
    info->touched_ms = os_clock_ms();
    store_slot_settle(store, slot);
}

// Where the KV of a block is; a RAM hit is held.
static enum kv_source look_up(struct store *store, struct lease *lease, uint32_t block_index)
{
    struct lease_block *block = &lease->blocks[block_index];
    uint32_t slot;
    if (block_index_find(&store->index, &block->id, &slot)) {
        const uint32_t *tokens = lease_tokens(lease, block_index, store->name_space.block_tokens);
        if (tokens_match(store, slot, &block->id, tokens)) {
            block->slot = slot;
            block->stage = LEASE_BLOCK_CACHED;
            hold_cached(store, slot);
            store->counters.hit_ram_count++;
            return KV_SOURCE_RAM;
        }
        store->counters.mismatch_count++;
        if (store->slots[slot].lease_count == 0 && !store->slots[slot].saving) {
            store_slot_drop(store, slot);
        }
    } else if (store_on_disk(store, &block->id)) {
        store->counters.hit_disk_count++;
        return KV_SOURCE_DISK;
    }
    store->counters.miss_count++;
    return KV_SOURCE_NEW;
}

// ---- lease

static enum status check_request(const struct store *store, const struct kv_lease_request *request,
                                 struct reason *reason)
{
    uint32_t block_tokens = store->name_space.block_tokens;
    if (!store->has_namespace) {
        return reason_set(reason, STATUS_INVALID, "say hello with a namespace",
                          "lease: no namespace is in use");
    }
    if (request->block_count == 0 || request->block_count > KV_LEASE_BLOCKS_MAX ||
        request->hit_block_max > request->block_count ||
        request->hit_block_max > request->token_count / block_tokens ||
        (uint64_t)request->block_count * block_tokens < request->token_count) {
        return reason_set(reason, STATUS_INVALID, "",
                          "lease: %u tokens, %u blocks and %u hits do not go together",
                          request->token_count, request->block_count, request->hit_block_max);
    }
    if (request->block_count > store->arena.slot_count) {
        uint64_t payload = arena_payload_bytes(&store->arena);
        return reason_set(reason, STATUS_REFUSED, "raise --swap-space, or ask for fewer tokens",
                          "lease: needs %llu bytes of KV memory, the budget is %llu",
                          (unsigned long long)(request->block_count * payload),
                          (unsigned long long)(store->arena.slot_count * payload));
    }
    return STATUS_OK;
}

// Gives back what the blocks of a lease hold, the last first, so that the end of a chain is
// evicted before its start.
static void give_back(struct store *store, struct lease *lease)
{
    for (uint32_t i = lease->block_count; i > 0; i--) {
        const struct lease_block *block = &lease->blocks[i - 1];
        switch (block->stage) {
        case LEASE_BLOCK_CACHED:
            drop_cached(store, block->slot);
            break;
        case LEASE_BLOCK_LOADING:
            store->slots[block->slot].loader_lease = NULL;
            break;
        case LEASE_BLOCK_LENT:
        case LEASE_BLOCK_PRIVATE:
            store->slots[block->slot] = (struct store_slot){0};
            arena_release(&store->arena, block->slot);
            break;
        }
    }
}

// Undoes a lease that could not be made: blocks that are not RAM hits have slots below
// `acquired_end` only.
static void undo_lease(struct store *store, struct lease *lease, const enum kv_source *sources,
                       uint32_t acquired_end)
{
    for (uint32_t i = lease->block_count; i > 0; i--) {
        const struct lease_block *block = &lease->blocks[i - 1];
        if (sources[i - 1] == KV_SOURCE_RAM) {
            drop_cached(store, block->slot);
        } else if (i - 1 < acquired_end) {
            arena_release(&store->arena, block->slot);
        }
    }
    lease_destroy(&store->leases, lease);
}

// Slots for all blocks that are not RAM hits. On failure *out_end is where it stopped.
static enum status acquire_slots(struct store *store, struct lease *lease,
                                 const enum kv_source *sources, uint32_t *out_end)
{
    for (uint32_t i = 0; i < lease->block_count; i++) {
        struct lease_block *block = &lease->blocks[i];
        if (sources[i] == KV_SOURCE_RAM) {
            continue;
        }
        enum status status = acquire_slot(store, &block->slot);
        if (status != STATUS_OK) {
            *out_end = i;
            return status;
        }
    }
    return STATUS_OK;
}

// Lends the slots: FILLING to the client, LOADING to the loader.
static void lend_slots(struct store *store, struct lease *lease, const enum kv_source *sources)
{
    for (uint32_t i = 0; i < lease->block_count; i++) {
        struct lease_block *block = &lease->blocks[i];
        if (sources[i] == KV_SOURCE_RAM) {
            store_save(store, block->slot); // a second use, whoever asks
            continue;
        }
        _Atomic uint64_t *word = arena_word(&store->arena, block->slot);
        uint64_t generation = arena_generation(&store->arena, block->slot);
        if (sources[i] == KV_SOURCE_DISK) {
            arena_slot_begin_load(word, generation);
            block->stage = LEASE_BLOCK_LOADING;
            lease->loading_count++;
            store_load(store, block->slot, &block->id, lease, i);
        } else {
            arena_slot_begin_fill(word, generation);
            block->stage = LEASE_BLOCK_LENT;
        }
    }
}

static enum status describe_lease(struct store *store, const struct lease *lease,
                                  const enum kv_source *sources, struct kv_lease *out_lease)
{
    struct kv_slot_ref *slots = malloc(lease->block_count * sizeof(*slots));
    if (slots == NULL) {
        return STATUS_NO_MEMORY;
    }
    for (uint32_t i = 0; i < lease->block_count; i++) {
        uint32_t slot = lease->blocks[i].slot;
        slots[i] = (struct kv_slot_ref){.slot_index = slot,
                                        .source = sources[i],
                                        .generation = arena_generation(&store->arena, slot)};
    }
    *out_lease = (struct kv_lease){
        .lease_id = lease->lease_id, .block_count = lease->block_count, .slots = slots};
    return STATUS_OK;
}

static enum status no_slots(struct store *store, enum status status, uint32_t needed,
                            struct reason *reason)
{
    if (status != STATUS_BUSY) {
        return reason_set(reason, status, "free memory, or lower --swap-space",
                          "lease: the system has no memory for %u more blocks", needed);
    }
    return reason_set(reason, STATUS_BUSY, "try again when a request has ended",
                      "lease: needs %u more blocks, %u of %u can be had now", needed,
                      store->eviction.count + store->arena.free_count +
                          (store->arena.slot_count - store->arena.reserved_count),
                      store->arena.slot_count);
}

// Everything after the lease exists. `sources` [block_count] is scratch.
static enum status fill_lease(struct store *store, struct lease *lease, uint32_t hit_block_max,
                              enum kv_source *sources, struct kv_lease *out_lease,
                              struct reason *reason)
{
    uint32_t needed = 0;
    for (uint32_t i = 0; i < lease->block_count; i++) {
        sources[i] = i < hit_block_max ? look_up(store, lease, i) : KV_SOURCE_NEW;
        needed += sources[i] != KV_SOURCE_RAM;
    }
    uint64_t available = (uint64_t)store->eviction.count + store->arena.free_count +
                         (store->arena.slot_count - store->arena.reserved_count);
    uint32_t acquired_end = 0;
    enum status status =
        available < needed ? STATUS_BUSY : acquire_slots(store, lease, sources, &acquired_end);
    if (status == STATUS_OK) {
        acquired_end = lease->block_count;
        status = describe_lease(store, lease, sources, out_lease);
    }
    if (status != STATUS_OK) {
        undo_lease(store, lease, sources, acquired_end);
        return no_slots(store, status, needed, reason);
    }
    lend_slots(store, lease, sources);
    return STATUS_OK;
}

enum status store_lease(struct store *store, uint64_t client_id,
                        const struct kv_lease_request *request, struct kv_lease *out_lease,
                        struct reason *reason)
{
    struct lease *lease;
    enum status status = check_request(store, request, reason);
    if (status != STATUS_OK) {
        return status;
    }
    enum kv_source *sources = malloc(request->block_count * sizeof(*sources));
    status = sources != NULL
                 ? lease_create(&store->leases, client_id, &store->name_space, request, &lease)
                 : STATUS_NO_MEMORY;
    if (status == STATUS_OK) {
        status = fill_lease(store, lease, request->hit_block_max, sources, out_lease, reason);
    } else {
        status = reason_set(reason, status, "try again when a request has ended",
                            status == STATUS_BUSY ? "lease: too many at a time"
                                                  : "lease: out of memory");
    }
    free(sources);
    return status;
}

// ---- publish

// Whether a header is what its place in the lease demands.
static bool header_fits(const struct store *store, const struct lease *lease, uint32_t block_index,
                        const struct block_header *header)
{
    const struct lease_block *block = &lease->blocks[block_index];
    const struct kv_namespace *name_space = &store->name_space;
    struct block_id parent;
    if (block_header_check(header, arena_payload_bytes(&store->arena)) != STATUS_OK ||
        !lease_parent(lease, block_index, &parent) ||
        !block_id_equal(&header->parent_id, &parent)) {
        return false;
    }
    return header->group == 0 && header->format == (uint8_t)name_space->groups[0].format &&
           header->mode == (uint8_t)lease->mode &&
           header->block_tokens == name_space->block_tokens &&
           header->token_count == name_space->block_tokens &&
           header->first_position == block_index * name_space->block_tokens &&
           memcmp(header->fingerprint, name_space->fingerprint, BLOCK_ID_BYTES) == 0 &&
           (!block->id_known || block_id_equal(&header->id, &block->id));
}

static void publish_block(struct store *store, struct lease *lease, uint32_t block_index,
                          const struct block_header *header)
{
    struct lease_block *block = &lease->blocks[block_index];
    uint32_t holder = block->slot;
    block->id = header->id;
    block->id_known = true;
    if (store_slot_index(store, block->slot, header)) {
        block->stage = LEASE_BLOCK_CACHED;
        store->slots[block->slot].lease_count = 1;
        store_slot_settle(store, block->slot);
    } else {
        block->stage = LEASE_BLOCK_PRIVATE;
        bool found = block_index_find(&store->index, &header->id, &holder);
        assert(found);
    }
    store->counters.published_count++;
    if (lease->persist) {
        store_save(store, holder);
    }
}

enum status store_publish(struct store *store, uint64_t client_id,
                          const struct kv_publish_request *request, struct reason *reason)
{
    struct lease *lease = lease_find(&store->leases, client_id, request->lease_id);
    if (lease == NULL) {
        return reason_set(reason, STATUS_STALE, "", "publish: no such lease");
    }
    for (uint32_t i = 0; i < request->block_count; i++) {
        uint32_t block_index = request->block_indexes[i];
        if (block_index >= lease->block_count ||
            lease->blocks[block_index].stage != LEASE_BLOCK_LENT ||
            arena_state(&store->arena, lease->blocks[block_index].slot) != ARENA_SLOT_READY) {
            return reason_set(reason, STATUS_INVALID, "",
                              "publish: block %u of the lease is not one to publish", block_index);
        }
        // Read once: the client could still change what lies in the arena.
        struct block_header header = *arena_header(&store->arena, lease->blocks[block_index].slot);
        if (!header_fits(store, lease, block_index, &header)) {
            return reason_set(reason, STATUS_DAMAGED, "",
                              "publish: the header of block %u does not fit its place",
                              block_index);
        }
        publish_block(store, lease, block_index, &header);
    }
    return STATUS_OK;
}

// ---- release

enum status store_release(struct store *store, uint64_t client_id, uint64_t lease_id)
{
    struct lease *lease = lease_find(&store->leases, client_id, lease_id);
    if (lease == NULL) {
        return STATUS_NOT_FOUND;
    }
    give_back(store, lease);
    lease_destroy(&store->leases, lease);
    return STATUS_OK;
}

void store_release_client(struct store *store, uint64_t client_id)
{
    struct lease *lease;
    while ((lease = lease_of_client(&store->leases, client_id)) != NULL) {
        give_back(store, lease);
        lease_destroy(&store->leases, lease);
    }
}

// ---- what the disk must keep

static enum status hold_id(struct block_index *ids, const struct block_id *id)
{
    enum status status = block_index_insert(ids, id, 0);
    return status == STATUS_EXISTS ? STATUS_OK : status;
}

static enum status collect_held(const struct store *store, struct block_index *ids)
{
    enum status status = STATUS_OK;
    for (const struct lease *lease = store->leases.first; lease != NULL; lease = lease->next) {
        for (uint32_t i = 0; status == STATUS_OK && i < lease->block_count; i++) {
            if (lease->blocks[i].id_known) {
                status = hold_id(ids, &lease->blocks[i].id);
            }
        }
    }
    for (uint32_t slot = 0; status == STATUS_OK && slot < store->arena.slot_count; slot++) {
        if (store->slots[slot].saving || store->slots[slot].want_save) {
            status = hold_id(ids, &store->slots[slot].id);
        }
    }
    const struct store_pending *pending = store->pending;
    for (; status == STATUS_OK && pending != NULL; pending = pending->next) {
        for (uint32_t i = 0; status == STATUS_OK && i < pending->count; i++) {
            status = hold_id(ids, &pending->ids[i]);
        }
    }
    return status;
}

enum status store_held_ids(const struct store *store, struct block_index *out_ids)
{
    struct block_index ids;
    enum status status = block_index_init(&ids, 0);
    if (status != STATUS_OK) {
        return status;
    }
    status = collect_held(store, &ids);
    if (status != STATUS_OK) {
        block_index_finish(&ids);
        return status;
    }
    *out_ids = ids;
    return STATUS_OK;
}
