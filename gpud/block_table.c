// SPDX-License-Identifier: Apache-2.0
// Bookkeeping of one sequence's blocks. Kept apart from kv_cache so that which positions are still
// to be computed is a pure function that can be tested alone.
#include "gpud/block_table.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static struct block_entry *entry_at(const struct block_table *table, uint32_t block_index)
{
    assert(block_index < table->block_count);
    return &table->entries[block_index];
}

enum status block_table_init(struct block_table *table, uint32_t block_tokens, uint32_t block_count,
                             uint32_t group_count)
{
    assert(block_tokens_valid(block_tokens) && block_count > 0);
    assert(group_count > 0 && group_count <= BLOCK_GROUP_MAX);
    *table = (struct block_table){
        .block_tokens = block_tokens, .block_count = block_count, .group_count = group_count};
    table->entries = calloc(block_count, sizeof(*table->entries));
    bool complete = table->entries != NULL;
    for (uint32_t group = 0; group < group_count; group++) {
        table->payloads[group] = calloc(block_count, sizeof(*table->payloads[group]));
        complete = complete && table->payloads[group] != NULL;
    }
    if (!complete) {
        block_table_finish(table);
        return STATUS_NO_MEMORY;
    }
    return STATUS_OK;
}

void block_table_finish(struct block_table *table)
{
    free(table->entries);
    for (uint32_t group = 0; group < BLOCK_GROUP_MAX; group++) {
        free(table->payloads[group]);
    }
    *table = (struct block_table){0};
}

void block_table_place(struct block_table *table, uint32_t group, uint32_t block_index,
                       void *payload)
{
    struct block_entry *entry = entry_at(table, block_index);
    assert(payload != NULL && group < table->group_count);
    table->payloads[group][block_index] = payload;
    if (entry->stage == BLOCK_STAGE_EMPTY) {
        entry->stage = BLOCK_STAGE_OPEN;
    }
}

void block_table_adopt(struct block_table *table, uint32_t block_index)
{
    struct block_entry *entry = entry_at(table, block_index);
    assert(entry->stage == BLOCK_STAGE_EMPTY);
    entry->stage = BLOCK_STAGE_CLOSED;
    entry->written_count = table->block_tokens;
    table->closed_count++;
}

bool block_table_write(struct block_table *table, uint32_t first, uint32_t count)
{
    struct block_entry *entry = entry_at(table, first / table->block_tokens);
    assert(entry->stage == BLOCK_STAGE_OPEN);
    assert(first % table->block_tokens == entry->written_count);
    assert(count <= table->block_tokens - entry->written_count);
    entry->written_count += count;
    return entry->written_count == table->block_tokens;
}

void block_table_close(struct block_table *table, uint32_t block_index)
{
    struct block_entry *entry = entry_at(table, block_index);
    assert(entry->stage == BLOCK_STAGE_OPEN && entry->written_count == table->block_tokens);
    entry->stage = BLOCK_STAGE_CLOSED;
    table->closed_count++;
}

void block_table_clear(struct block_table *table, uint32_t block_index)
{
    struct block_entry *entry = entry_at(table, block_index);
    assert(entry->stage == BLOCK_STAGE_OPEN && entry->written_count == 0);
    entry->stage = BLOCK_STAGE_EMPTY;
    for (uint32_t group = 0; group < table->group_count; group++) {
        table->payloads[group][block_index] = NULL;
    }
}

void block_table_next_range(const struct block_table *table, uint32_t token_count,
                            uint32_t token_count_max, uint32_t *out_first, uint32_t *out_count)
{
    uint32_t block_tokens = table->block_tokens;
    uint32_t block_index = 0;
    while (block_index < table->block_count &&
           table->entries[block_index].stage == BLOCK_STAGE_CLOSED) {
        block_index++;
    }
    uint32_t first = block_index * block_tokens;
    if (block_index < table->block_count) {
        first += table->entries[block_index].written_count;
    }
    uint32_t end = block_index * block_tokens;
    while (block_index < table->block_count && end < token_count &&
           table->entries[block_index].stage != BLOCK_STAGE_CLOSED) {
        block_index++;
        end += block_tokens;
    }
    end = end < token_count ? end : token_count;
    uint32_t count = first < end ? end - first : 0;
    *out_first = first;
    *out_count = count < token_count_max ? count : token_count_max;
}
