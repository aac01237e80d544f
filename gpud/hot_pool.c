// SPDX-License-Identifier: Apache-2.0
// Slots of the hot tier with three lists (free, idle, resident) and a hash index by block id, all
// as slot indexes in arrays taken at creation. On the CPU device "device memory" is memory of our
// own.
#include "gpud/hot_pool.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum hot_slot_state { HOT_SLOT_FREE, HOT_SLOT_WRITING, HOT_SLOT_RESIDENT, HOT_SLOT_IDLE };

struct hot_slot {
    enum hot_slot_state state;
    uint32_t user_count;
    uint32_t block_index;
    uint32_t previous, next; // in the list of its state
    uint32_t chain_next;     // in its bucket, while named
    struct block_id id;      // while named
};

// In order of joining; both ends can be taken.
struct hot_list {
    uint32_t first, last;
    uint32_t count;
};

struct hot_pool {
    uint64_t payload_bytes;
    uint32_t slot_count;
    uint32_t bucket_mask;
    uint8_t *memory;        // [slot_count][payload_bytes]
    struct hot_slot *slots; // [slot_count]
    uint32_t *buckets;      // [bucket_mask + 1], first slot of each chain
    struct hot_list free, idle, resident;
};

static void list_append(struct hot_pool *pool, struct hot_list *list, uint32_t index)
{
    struct hot_slot *slot = &pool->slots[index];
    slot->previous = list->last;
    slot->next = HOT_SLOT_NONE;
    if (list->last != HOT_SLOT_NONE) {
        pool->slots[list->last].next = index;
    } else {
        list->first = index;
    }
    list->last = index;
    list->count++;
}

static void list_remove(struct hot_pool *pool, struct hot_list *list, uint32_t index)
{
    struct hot_slot *slot = &pool->slots[index];
    if (slot->previous != HOT_SLOT_NONE) {
        pool->slots[slot->previous].next = slot->next;
    } else {
        list->first = slot->next;
    }
    if (slot->next != HOT_SLOT_NONE) {
        pool->slots[slot->next].previous = slot->previous;
    } else {
        list->last = slot->previous;
    }
    list->count--;
}

// Ids are hashes, so any of their bytes make a good bucket number.
static uint32_t *bucket_of(const struct hot_pool *pool, const struct block_id *id)
{
    uint32_t hash;
    memcpy(&hash, id->bytes, sizeof(hash));
    return &pool->buckets[hash & pool->bucket_mask];
}

static uint32_t index_find(const struct hot_pool *pool, const struct block_id *id)
{
    uint32_t slot = *bucket_of(pool, id);
    while (slot != HOT_SLOT_NONE &&
           memcmp(&pool->slots[slot].id, id, sizeof(struct block_id)) != 0) {
        slot = pool->slots[slot].chain_next;
    }
    return slot;
}

static void index_insert(struct hot_pool *pool, uint32_t slot)
{
    uint32_t *bucket = bucket_of(pool, &pool->slots[slot].id);
    pool->slots[slot].chain_next = *bucket;
    *bucket = slot;
}

static void index_remove(struct hot_pool *pool, uint32_t slot)
{
    uint32_t *link = bucket_of(pool, &pool->slots[slot].id);
    while (*link != slot) {
        assert(*link != HOT_SLOT_NONE);
        link = &pool->slots[*link].chain_next;
    }
    *link = pool->slots[slot].chain_next;
}

static enum status pool_allocate(struct hot_pool *pool)
{
    uint32_t bucket_count = 1;
    while (bucket_count < pool->slot_count) {
        bucket_count *= 2;
    }
    pool->bucket_mask = bucket_count - 1;
    pool->memory =
        aligned_alloc(BLOCK_PAGE_BYTES, block_slot_bytes(pool->slot_count * pool->payload_bytes));
    pool->slots = calloc(pool->slot_count, sizeof(*pool->slots));
    pool->buckets = malloc(bucket_count * sizeof(*pool->buckets));
    if (pool->memory == NULL || pool->slots == NULL || pool->buckets == NULL) {
        return STATUS_NO_MEMORY;
    }
    memset(pool->buckets, 0xff, bucket_count * sizeof(*pool->buckets)); // HOT_SLOT_NONE
    return STATUS_OK;
}

enum status hot_pool_create(uint64_t hot_bytes, uint64_t payload_bytes, struct hot_pool **out_pool,
                            struct reason *reason)
{
    assert(payload_bytes > 0);
    uint64_t slot_count = hot_bytes / payload_bytes;
    if (slot_count == 0) {
        return reason_set(reason, STATUS_REFUSED, "give a larger --vram",
                          "hot pool: %llu bytes are left for KV blocks, one block takes %llu",
                          (unsigned long long)hot_bytes, (unsigned long long)payload_bytes);
    }
    struct hot_pool *pool = calloc(1, sizeof(*pool));
    if (pool == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "hot pool: out of memory");
    }
    pool->payload_bytes = payload_bytes;
    // More slots than any index can count would be petabytes; clamp so that the cast is safe.
    pool->slot_count = slot_count < HOT_SLOT_NONE / 2 ? (uint32_t)slot_count : HOT_SLOT_NONE / 2;
    if (pool_allocate(pool) != STATUS_OK) {
        hot_pool_destroy(pool);
        return reason_set(reason, STATUS_NO_MEMORY, "give a smaller --vram",
                          "hot pool: %llu bytes could not be had", (unsigned long long)hot_bytes);
    }
    pool->free = pool->idle = pool->resident =
        (struct hot_list){.first = HOT_SLOT_NONE, .last = HOT_SLOT_NONE};
    for (uint32_t i = 0; i < pool->slot_count; i++) {
        list_append(pool, &pool->free, i);
    }
    *out_pool = pool;
    return STATUS_OK;
}

void hot_pool_destroy(struct hot_pool *pool)
{
    if (pool == NULL) {
        return;
    }
    free(pool->memory);
    free(pool->slots);
    free(pool->buckets);
    free(pool);
}

uint32_t hot_pool_slot_count(const struct hot_pool *pool)
{
    return pool->slot_count;
}

uint32_t hot_pool_used_count(const struct hot_pool *pool)
{
    return pool->slot_count - pool->free.count;
}

uint32_t hot_pool_spare_count(const struct hot_pool *pool)
{
    return pool->free.count + pool->idle.count;
}

void *hot_pool_payload(const struct hot_pool *pool, uint32_t slot)
{
    assert(slot < pool->slot_count);
    return pool->memory + slot * pool->payload_bytes;
}

uint32_t hot_pool_take(struct hot_pool *pool, struct hot_victim *out_victim)
{
    *out_victim = (struct hot_victim){0};
    uint32_t index = HOT_SLOT_NONE;
    struct hot_list *list = NULL;
    if (pool->free.count > 0) {
        list = &pool->free;
        index = list->first;
    } else if (pool->idle.count > 0) {
        list = &pool->idle;
        index = list->first;
    } else if (pool->resident.count > 0) {
        list = &pool->resident;
        index = list->last;
    } else {
        return HOT_SLOT_NONE;
    }
    struct hot_slot *slot = &pool->slots[index];
    if (slot->state != HOT_SLOT_FREE) {
        out_victim->dropped = true;
        out_victim->resident = slot->state == HOT_SLOT_RESIDENT;
        out_victim->block_index = slot->block_index;
        index_remove(pool, index);
    }
    list_remove(pool, list, index);
    slot->state = HOT_SLOT_WRITING;
    slot->user_count = 1;
    return index;
}

uint32_t hot_pool_name(struct hot_pool *pool, uint32_t slot, const struct block_id *id,
                       uint32_t block_index)
{
    struct hot_slot *named = &pool->slots[slot];
    assert(named->state == HOT_SLOT_WRITING);
    uint32_t twin = hot_pool_acquire(pool, id);
    if (twin != HOT_SLOT_NONE) {
        hot_pool_release(pool, slot);
        return twin;
    }
    named->id = *id;
    named->block_index = block_index;
    named->state = HOT_SLOT_RESIDENT;
    index_insert(pool, slot);
    list_append(pool, &pool->resident, slot);
    return slot;
}

uint32_t hot_pool_acquire(struct hot_pool *pool, const struct block_id *id)
{
    uint32_t index = index_find(pool, id);
    if (index == HOT_SLOT_NONE) {
        return index;
    }
    struct hot_slot *slot = &pool->slots[index];
    if (slot->state == HOT_SLOT_IDLE) {
        list_remove(pool, &pool->idle, index);
        list_append(pool, &pool->resident, index);
        slot->state = HOT_SLOT_RESIDENT;
    }
    slot->user_count++;
    return index;
}

void hot_pool_release(struct hot_pool *pool, uint32_t slot)
{
    struct hot_slot *released = &pool->slots[slot];
    assert(released->user_count > 0);
    released->user_count--;
    if (released->user_count > 0) {
        return;
    }
    if (released->state == HOT_SLOT_WRITING) {
        released->state = HOT_SLOT_FREE;
        list_append(pool, &pool->free, slot);
        return;
    }
    list_remove(pool, &pool->resident, slot);
    list_append(pool, &pool->idle, slot);
    released->state = HOT_SLOT_IDLE;
}

void hot_pool_load(struct hot_pool *pool, uint32_t slot, const void *payload)
{
    memcpy(hot_pool_payload(pool, slot), payload, pool->payload_bytes);
}

void hot_pool_store(const struct hot_pool *pool, uint32_t slot, void *payload)
{
    memcpy(payload, hot_pool_payload(pool, slot), pool->payload_bytes);
}
