// SPDX-License-Identifier: Apache-2.0
// Ties together, for every running sequence, its lease in the arena (cold_store), its block table
// and the hot pool. Rules:
//  - A block is EMPTY, OPEN (being written) or CLOSED; only this file moves it on (block_table.h).
//  - Unified device: a payload's address is its arena slot, always.
//  - Discrete device: an OPEN block lies in the hot pool; a CLOSED one lies in the arena and may
//  have a
//    hot copy, whose address is then used. hot_slots[] says which.
//  - A lent slot holds old bytes. Nothing clears them: a block closes only when every position was
//    written, and the kernels give masked positions of an open one no weight (docs/NUMERICS.md).
//  - The header of a block is filled in the arena as its tokens come, since the slot is lent
//  anyway.
// Only one group exists yet; a slot of the hot pool holds one block's payload of it.
#include "gpud/kv_cache.h"

#include "gpud/block_table.h"
#include "gpud/hot_pool.h"
#include "proto/block_id.h"
#include "proto/os/clock.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct kv_cache {
    const struct kv_namespace *name_space;
    struct cold_store *cold_store;
    struct hot_pool *hot_pool; // NULL: unified
    uint64_t payload_bytes;
    uint32_t block_tokens;
    uint32_t sequence_count_max;
    struct kv_sequence **sequences; // [sequence_count_max], NULL where none is open
    struct kv_cache_status counters;
};

struct kv_sequence {
    struct kv_cache *cache;
    uint32_t index; // in cache->sequences
    struct cold_lease *lease;
    struct block_id root;
    uint32_t token_count; // of the context at open
    struct block_table table;
    struct block_id *ids; // [block_count], of the context's whole blocks and of closed ones
    uint32_t *hot_slots;  // [block_count], HOT_SLOT_NONE: in the arena
    uint32_t prepared_first, prepared_end; // blocks of the last prepare
    bool settled;                          // nothing is loading any more
    struct kv_sequence_hits hits;
};

enum status kv_cache_create(const struct kv_cache_options *options, struct kv_cache **out_cache,
                            struct reason *reason)
{
    const struct kv_namespace *name_space = options->name_space;
    assert(name_space->group_count == 1);
    struct kv_cache *cache = calloc(1, sizeof(*cache));
    if (cache == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "kv cache: out of memory");
    }
    cache->name_space = name_space;
    cache->cold_store = options->cold_store;
    cache->block_tokens = name_space->block_tokens;
    cache->payload_bytes = block_payload_bytes(&name_space->groups[0], cache->block_tokens);
    cache->sequence_count_max = options->sequence_count_max;
    cache->sequences = calloc(options->sequence_count_max, sizeof(struct kv_sequence *));
    enum status status = cache->sequences != NULL ? STATUS_OK : STATUS_NO_MEMORY;
    if (status == STATUS_OK && options->hot_bytes > 0) {
        status =
            hot_pool_create(options->hot_bytes, cache->payload_bytes, &cache->hot_pool, reason);
    }
    if (status != STATUS_OK) {
        kv_cache_destroy(cache);
        return status;
    }
    *out_cache = cache;
    return STATUS_OK;
}

void kv_cache_destroy(struct kv_cache *cache)
{
    if (cache == NULL) {
        return;
    }
    for (uint32_t i = 0; cache->sequences != NULL && i < cache->sequence_count_max; i++) {
        kv_sequence_close(cache->sequences[i]);
    }
    hot_pool_destroy(cache->hot_pool);
    free(cache->sequences);
    free(cache);
}

void kv_cache_status(const struct kv_cache *cache, struct kv_cache_status *out_status)
{
    *out_status = cache->counters;
    out_status->unified = cache->hot_pool == NULL;
    if (cache->hot_pool != NULL) {
        out_status->hot_slot_count = hot_pool_slot_count(cache->hot_pool);
        out_status->hot_used_count = hot_pool_used_count(cache->hot_pool);
    }
}

// ---- opening

static enum status sequence_allocate(struct kv_sequence *sequence, uint32_t block_count)
{
    struct kv_cache *cache = sequence->cache;
    sequence->ids = calloc(block_count, sizeof(*sequence->ids));
    sequence->hot_slots = malloc(block_count * sizeof(*sequence->hot_slots));
    if (sequence->ids == NULL || sequence->hot_slots == NULL) {
        return STATUS_NO_MEMORY;
    }
    memset(sequence->hot_slots, 0xff, block_count * sizeof(*sequence->hot_slots)); // HOT_SLOT_NONE
    return block_table_init(&sequence->table, cache->block_tokens, block_count,
                            cache->name_space->group_count);
}

static void sequence_free(struct kv_sequence *sequence)
{
    block_table_finish(&sequence->table);
    free(sequence->ids);
    free(sequence->hot_slots);
    free(sequence);
}

enum status kv_sequence_open(struct kv_cache *cache, struct cold_lease *lease,
                             const struct block_id *root, const uint32_t *tokens,
                             uint32_t token_count, struct kv_sequence **out_sequence)
{
    uint32_t block_count = lease->lease.block_count;
    assert(token_count > 0 && (token_count - 1) / cache->block_tokens < block_count);
    uint32_t index = 0;
    while (index < cache->sequence_count_max && cache->sequences[index] != NULL) {
        index++;
    }
    if (index == cache->sequence_count_max) {
        return STATUS_BUSY;
    }
    struct kv_sequence *sequence = calloc(1, sizeof(*sequence));
    if (sequence == NULL) {
        return STATUS_NO_MEMORY;
    }
    sequence->cache = cache;
    sequence->index = index;
    sequence->lease = lease;
    sequence->root = *root;
    sequence->token_count = token_count;
    if (sequence_allocate(sequence, block_count) != STATUS_OK) {
        sequence_free(sequence);
        return STATUS_NO_MEMORY;
    }
    block_id_chain(root, tokens, cache->block_tokens, token_count / cache->block_tokens,
                   sequence->ids);
    cache->sequences[index] = sequence;
    *out_sequence = sequence;
    return STATUS_OK;
}

void kv_sequence_close(struct kv_sequence *sequence)
{
    if (sequence == NULL) {
        return;
    }
    struct kv_cache *cache = sequence->cache;
    for (uint32_t b = 0; b < sequence->table.block_count; b++) {
        if (sequence->hot_slots[b] != HOT_SLOT_NONE) {
            hot_pool_release(cache->hot_pool, sequence->hot_slots[b]);
        }
    }
    cache->sequences[sequence->index] = NULL;
    sequence_free(sequence);
}

// ---- becoming ready

// Uses `hot_slot` as the memory of a block from now on.
static void block_use_hot(struct kv_sequence *sequence, uint32_t block_index, uint32_t hot_slot)
{
    sequence->hot_slots[block_index] = hot_slot;
    block_table_place(&sequence->table, 0, block_index,
                      hot_pool_payload(sequence->cache->hot_pool, hot_slot));
}

static void block_use_arena(struct kv_sequence *sequence, uint32_t block_index)
{
    sequence->hot_slots[block_index] = HOT_SLOT_NONE;
    block_table_place(&sequence->table, 0, block_index,
                      cold_lease_payload(sequence->lease, block_index));
}

// Takes in one cached block and notes where it was found.
static void block_adopt(struct kv_sequence *sequence, uint32_t block_index)
{
    struct kv_cache *cache = sequence->cache;
    block_table_adopt(&sequence->table, block_index);
    block_use_arena(sequence, block_index);
    uint32_t hot_slot = cache->hot_pool == NULL
                            ? HOT_SLOT_NONE
                            : hot_pool_acquire(cache->hot_pool, &sequence->ids[block_index]);
    if (hot_slot != HOT_SLOT_NONE) {
        block_use_hot(sequence, block_index, hot_slot);
        sequence->hits.hot_tokens += cache->block_tokens;
    } else if (sequence->lease->lease.slots[block_index].source == KV_SOURCE_DISK) {
        sequence->hits.disk_tokens += cache->block_tokens;
    } else {
        sequence->hits.ram_tokens += cache->block_tokens;
    }
}

// A hot slot for writing, or HOT_SLOT_NONE. Sequences that used the copy it held go back to the
// arena.
static uint32_t hot_slot_take(struct kv_cache *cache)
{
    struct hot_victim victim;
    uint32_t hot_slot = hot_pool_take(cache->hot_pool, &victim);
    cache->counters.evicted_count += victim.dropped;
    for (uint32_t i = 0; victim.resident && i < cache->sequence_count_max; i++) {
        struct kv_sequence *user = cache->sequences[i];
        if (user != NULL && victim.block_index < user->table.block_count &&
            user->hot_slots[victim.block_index] == hot_slot) {
            block_use_arena(user, victim.block_index);
        }
    }
    return hot_slot;
}

// Copies cold blocks into hot slots that nobody uses, first blocks first, leaving as many as the
// context's missing blocks (at least one) will take.
static void sequence_recall(struct kv_sequence *sequence)
{
    struct kv_cache *cache = sequence->cache;
    uint32_t context_blocks =
        (sequence->token_count + cache->block_tokens - 1) / cache->block_tokens;
    uint32_t missing = context_blocks - sequence->table.closed_count;
    uint32_t keep = missing > 0 ? missing : 1;
    for (uint32_t b = 0; b < context_blocks; b++) {
        if (sequence->table.entries[b].stage != BLOCK_STAGE_CLOSED ||
            sequence->hot_slots[b] != HOT_SLOT_NONE) {
            continue;
        }
        if (hot_pool_spare_count(cache->hot_pool) <= keep) {
            return;
        }
        uint32_t hot_slot = hot_slot_take(cache);
        hot_pool_load(cache->hot_pool, hot_slot, cold_lease_payload(sequence->lease, b));
        block_use_hot(sequence, b, hot_pool_name(cache->hot_pool, hot_slot, &sequence->ids[b], b));
        cache->counters.recalled_count++;
    }
}

enum status kv_sequence_ready(struct kv_sequence *sequence)
{
    if (sequence->settled) {
        return STATUS_OK;
    }
    uint32_t whole_blocks = sequence->token_count / sequence->cache->block_tokens;
    for (uint32_t b = 0; b < whole_blocks; b++) {
        if (cold_lease_state(sequence->lease, b) == COLD_SLOT_LOADING) {
            return STATUS_BUSY;
        }
    }
    for (uint32_t b = 0; b < whole_blocks; b++) {
        if (cold_lease_state(sequence->lease, b) == COLD_SLOT_READY) {
            block_adopt(sequence, b);
        }
    }
    sequence->hits.computed_tokens = sequence->token_count - sequence->hits.hot_tokens -
                                     sequence->hits.ram_tokens - sequence->hits.disk_tokens;
    if (sequence->cache->hot_pool != NULL) {
        sequence_recall(sequence);
    }
    sequence->settled = true;
    return STATUS_OK;
}

void kv_sequence_hits(const struct kv_sequence *sequence, struct kv_sequence_hits *out_hits)
{
    assert(sequence->settled);
    *out_hits = sequence->hits;
}

// ---- a step

void kv_sequence_next_range(const struct kv_sequence *sequence, uint32_t token_count_max,
                            uint32_t *out_first, uint32_t *out_count)
{
    assert(sequence->settled);
    block_table_next_range(&sequence->table, sequence->token_count, token_count_max, out_first,
                           out_count);
}

// Gives an EMPTY block memory to be written in; false when the hot pool has none.
static bool block_open(struct kv_sequence *sequence, uint32_t block_index)
{
    struct kv_cache *cache = sequence->cache;
    if (cache->hot_pool == NULL) {
        block_use_arena(sequence, block_index);
    } else {
        uint32_t hot_slot = hot_slot_take(cache);
        if (hot_slot == HOT_SLOT_NONE) {
            return false;
        }
        block_use_hot(sequence, block_index, hot_slot);
    }
    memset(cold_lease_header(sequence->lease, block_index), 0, sizeof(struct block_header));
    return true;
}

// Takes back memory that the last prepare gave to blocks which no step wrote.
static void sequence_drop_unwritten(struct kv_sequence *sequence)
{
    for (uint32_t b = sequence->prepared_first; b < sequence->prepared_end; b++) {
        const struct block_entry *entry = &sequence->table.entries[b];
        if (entry->stage != BLOCK_STAGE_OPEN || entry->written_count > 0) {
            continue;
        }
        if (sequence->hot_slots[b] != HOT_SLOT_NONE) {
            hot_pool_release(sequence->cache->hot_pool, sequence->hot_slots[b]);
            sequence->hot_slots[b] = HOT_SLOT_NONE;
        }
        block_table_clear(&sequence->table, b);
    }
    sequence->prepared_end = sequence->prepared_first;
}

enum status kv_sequence_prepare(struct kv_sequence *sequence, uint32_t first, uint32_t count,
                                uint32_t *out_count)
{
    uint32_t block_tokens = sequence->cache->block_tokens;
    uint32_t end = first + count;
    assert(sequence->settled && count > 0);
    assert((end - 1) / block_tokens < sequence->table.block_count);
    sequence_drop_unwritten(sequence);
    uint32_t first_block = first / block_tokens;
    uint32_t block = first_block;
    for (; block * block_tokens < end; block++) {
        enum block_stage stage = sequence->table.entries[block].stage;
        assert(stage != BLOCK_STAGE_CLOSED);
        if (stage == BLOCK_STAGE_EMPTY && !block_open(sequence, block)) {
            break;
        }
    }
    sequence->prepared_first = first_block;
    sequence->prepared_end = block;
    if (block == first_block) {
        return STATUS_BUSY;
    }
    uint32_t prepared_tokens = block * block_tokens - first;
    *out_count = count < prepared_tokens ? count : prepared_tokens;
    return STATUS_OK;
}

void *const *kv_sequence_blocks(const struct kv_sequence *sequence, uint32_t group)
{
    assert(group < sequence->table.group_count);
    return sequence->table.payloads[group];
}

// Completes the header of a full block, whose tokens are there already, over its payload in the
// arena.
static void header_complete(struct kv_sequence *sequence, uint32_t block_index,
                            struct block_header *header)
{
    const struct kv_cache *cache = sequence->cache;
    const struct kv_group *group = &cache->name_space->groups[0];
    const struct block_id *parent =
        block_index == 0 ? &sequence->root : &sequence->ids[block_index - 1];
    header->magic = BLOCK_MAGIC;
    header->layout_version = BLOCK_LAYOUT_VERSION;
    header->header_bytes = BLOCK_HEADER_BYTES;
    header->format = (uint8_t)group->format;
    header->mode = ATTENTION_MODE_EXACT;
    header->block_tokens = (uint16_t)cache->block_tokens;
    header->token_count = (uint16_t)cache->block_tokens;
    header->first_position = block_index * cache->block_tokens;
    header->payload_bytes = cache->payload_bytes;
    header->parent_id = *parent;
    block_id_next(parent, header->tokens, cache->block_tokens, &header->id);
    memcpy(header->fingerprint, cache->name_space->fingerprint, BLOCK_ID_BYTES);
    header->checksum = block_checksum(header, cold_lease_payload(sequence->lease, block_index));
}

// Closes a full block: written through to the arena, sealed, and handed to the mover.
static void block_close(struct kv_sequence *sequence, uint32_t block_index)
{
    struct kv_cache *cache = sequence->cache;
    uint64_t start_ns = os_clock_ns();
    uint32_t hot_slot = sequence->hot_slots[block_index];
    if (hot_slot != HOT_SLOT_NONE) {
        hot_pool_store(cache->hot_pool, hot_slot, cold_lease_payload(sequence->lease, block_index));
    }
    struct block_header *header = cold_lease_header(sequence->lease, block_index);
    header_complete(sequence, block_index, header);
    sequence->ids[block_index] = header->id;
    block_table_close(&sequence->table, block_index);
    if (hot_slot != HOT_SLOT_NONE) {
        block_use_hot(sequence, block_index,
                      hot_pool_name(cache->hot_pool, hot_slot, &header->id, block_index));
    }
    cold_store_publish(cache->cold_store, sequence->lease, block_index);
    cache->counters.closed_count++;
    cache->counters.write_through_ns += os_clock_ns() - start_ns;
}

// Counts the blocks that a step up to position `last` attended, by tier.
static void count_attended(const struct kv_sequence *sequence, uint32_t last)
{
    struct kv_cache *cache = sequence->cache;
    uint32_t attended = last / cache->block_tokens + 1;
    uint32_t hot = 0;
    for (uint32_t b = 0; cache->hot_pool != NULL && b < attended; b++) {
        hot += sequence->hot_slots[b] != HOT_SLOT_NONE;
    }
    cache->counters.hot_hit_count += hot;
    cache->counters.cold_hit_count += attended - hot;
}

void kv_sequence_commit(struct kv_sequence *sequence, const uint32_t *tokens, uint32_t first,
                        uint32_t count)
{
    assert(count > 0);
    uint32_t block_tokens = sequence->cache->block_tokens;
    count_attended(sequence, first + count - 1);
    while (count > 0) {
        uint32_t block_index = first / block_tokens;
        uint32_t offset = first % block_tokens;
        uint32_t part = block_tokens - offset < count ? block_tokens - offset : count;
        struct block_header *header = cold_lease_header(sequence->lease, block_index);
        memcpy(&header->tokens[offset], tokens, part * sizeof(*tokens));
        if (block_table_write(&sequence->table, first, part)) {
            block_close(sequence, block_index);
        }
        tokens += part;
        first += part;
        count -= part;
    }
}
