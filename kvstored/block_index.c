// SPDX-License-Identifier: Apache-2.0
// Open addressing with linear probing. Ids are hashes already, so a multiplication by a secret
// number is all the hashing there is. Removal shifts later entries back (Knuth 6.4, algorithm R),
// so there are no tombstones and a table that lives for weeks stays as fast as a fresh one.

#include "kvstored/block_index.h"

#include "proto/block_id.h"
#include "proto/os/clock.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { CAPACITY_MIN = 64 };

// Where the probing for an id starts.
static uint32_t home_of(const struct block_index *index, const struct block_id *id)
{
    uint64_t word;
    memcpy(&word, id->bytes, sizeof(word));
    return (uint32_t)((word * index->multiplier) >> 32) & (index->capacity - 1);
}

// The place of an id, or the free place where it belongs. The table is never full.
static uint32_t place_of(const struct block_index *index, const struct block_id *id)
{
    uint32_t at = home_of(index, id);
    while (index->entries[at].used != 0 && !block_id_equal(&index->entries[at].id, id)) {
        at = (at + 1) & (index->capacity - 1);
    }
    return at;
}

static uint32_t capacity_for(uint32_t count)
{
    uint32_t capacity = CAPACITY_MIN;
    while (capacity / 4 * 3 < count) {
        capacity *= 2;
    }
    return capacity;
}

// Moves all entries to a table of another size.
static enum status resize(struct block_index *index, uint32_t capacity)
{
    struct block_index larger = *index;
    larger.capacity = capacity;
    larger.entries = calloc(capacity, sizeof(*larger.entries));
    if (larger.entries == NULL) {
        return STATUS_NO_MEMORY;
    }
    for (uint32_t i = 0; i < index->capacity; i++) {
        if (index->entries[i].used != 0) {
            larger.entries[place_of(&larger, &index->entries[i].id)] = index->entries[i];
        }
    }
    free(index->entries);
    *index = larger;
    return STATUS_OK;
}

enum status block_index_init(struct block_index *index, uint32_t count)
{
    assert(count <= BLOCK_INDEX_MAX);
    memset(index, 0, sizeof(*index));
    os_random(&index->multiplier, sizeof(index->multiplier));
    index->multiplier |= 1;
    return resize(index, capacity_for(count));
}

void block_index_finish(struct block_index *index)
{
    free(index->entries);
    memset(index, 0, sizeof(*index));
}

bool block_index_find(const struct block_index *index, const struct block_id *id,
                      uint32_t *out_value)
{
    if (index->count == 0) {
        return false;
    }
    uint32_t at = place_of(index, id);
    if (index->entries[at].used == 0) {
        return false;
    }
    *out_value = index->entries[at].value;
    return true;
}

enum status block_index_insert(struct block_index *index, const struct block_id *id, uint32_t value)
{
    assert(index->capacity > 0);
    uint32_t at = place_of(index, id);
    if (index->entries[at].used != 0) {
        return STATUS_EXISTS;
    }
    if (index->count >= index->capacity / 4 * 3) {
        enum status status =
            index->count >= BLOCK_INDEX_MAX ? STATUS_NO_MEMORY : resize(index, index->capacity * 2);
        if (status != STATUS_OK) {
            return status;
        }
        at = place_of(index, id);
    }
    index->entries[at] = (struct block_index_entry){.id = *id, .value = value, .used = 1};
    index->count++;
    return STATUS_OK;
}

bool block_index_remove(struct block_index *index, const struct block_id *id)
{
    if (index->count == 0) {
        return false;
    }
    uint32_t mask = index->capacity - 1;
    uint32_t hole = place_of(index, id);
    if (index->entries[hole].used == 0) {
        return false;
    }
    for (uint32_t at = (hole + 1) & mask; index->entries[at].used != 0; at = (at + 1) & mask) {
        uint32_t home = home_of(index, &index->entries[at].id);
        // The entry may fill the hole unless its home lies after the hole, cyclically.
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            index->entries[hole] = index->entries[at];
            hole = at;
        }
    }
    index->entries[hole].used = 0;
    index->count--;
    return true;
}

const struct block_index_entry *block_index_next(const struct block_index *index, uint32_t *cursor)
{
    while (*cursor < index->capacity) {
        const struct block_index_entry *entry = &index->entries[(*cursor)++];
        if (entry->used != 0) {
            return entry;
        }
    }
    return NULL;
}
