// SPDX-License-Identifier: Apache-2.0
// A list of leases: there are few (one a running request), and every operation on one touches all
// of its blocks anyway.

#include "kvstored/lease.h"

#include "proto/block_id.h"

#include <stdlib.h>
#include <string.h>

static void lease_free(struct lease *lease)
{
    if (lease != NULL) {
        free(lease->blocks);
        free(lease->tokens);
        free(lease);
    }
}

// Ids and tokens of the blocks that the request's tokens fill.
static void derive_chain(struct lease *lease, const struct kv_namespace *name_space,
                         const struct kv_lease_request *request)
{
    block_id_root(name_space->fingerprint, request->salt, request->salt_bytes, request->mode,
                  &lease->root);
    memcpy(lease->tokens, request->tokens,
           (size_t)lease->prompt_block_count * name_space->block_tokens * sizeof(uint32_t));
    const struct block_id *parent = &lease->root;
    for (uint32_t i = 0; i < lease->prompt_block_count; i++) {
        struct lease_block *block = &lease->blocks[i];
        block_id_next(parent, lease_tokens(lease, i, name_space->block_tokens),
                      name_space->block_tokens, &block->id);
        block->id_known = true;
        parent = &block->id;
    }
}

enum status lease_create(struct lease_table *table, uint64_t client_id,
                         const struct kv_namespace *name_space,
                         const struct kv_lease_request *request, struct lease **out_lease)
{
    if (table->count >= LEASES_MAX) {
        return STATUS_BUSY;
    }
    struct lease *lease = calloc(1, sizeof(*lease));
    if (lease == NULL) {
        return STATUS_NO_MEMORY;
    }
    uint32_t whole = request->token_count / name_space->block_tokens;
    lease->client_id = client_id;
    lease->persist = request->persist;
    lease->mode = request->mode;
    lease->block_count = request->block_count;
    lease->prompt_block_count = whole < request->block_count ? whole : request->block_count;
    lease->blocks = calloc(lease->block_count, sizeof(*lease->blocks));
    lease->tokens = calloc((size_t)lease->prompt_block_count * name_space->block_tokens + 1,
                           sizeof(*lease->tokens));
    if (lease->blocks == NULL || lease->tokens == NULL) {
        lease_free(lease);
        return STATUS_NO_MEMORY;
    }
    derive_chain(lease, name_space, request);
    lease->lease_id = ++table->next_id;
    lease->next = table->first;
    table->first = lease;
    table->count++;
    *out_lease = lease;
    return STATUS_OK;
}

void lease_destroy(struct lease_table *table, struct lease *lease)
{
    for (struct lease **at = &table->first; *at != NULL; at = &(*at)->next) {
        if (*at == lease) {
            *at = lease->next;
            table->count--;
            lease_free(lease);
            return;
        }
    }
}

struct lease *lease_find(const struct lease_table *table, uint64_t client_id, uint64_t lease_id)
{
    for (struct lease *lease = table->first; lease != NULL; lease = lease->next) {
        if (lease->lease_id == lease_id && lease->client_id == client_id) {
            return lease;
        }
    }
    return NULL;
}

struct lease *lease_of_client(const struct lease_table *table, uint64_t client_id)
{
    for (struct lease *lease = table->first; lease != NULL; lease = lease->next) {
        if (lease->client_id == client_id) {
            return lease;
        }
    }
    return NULL;
}

bool lease_parent(const struct lease *lease, uint32_t block_index, struct block_id *out_parent)
{
    if (block_index == 0) {
        *out_parent = lease->root;
        return true;
    }
    const struct lease_block *before = &lease->blocks[block_index - 1];
    if (before->id_known) {
        *out_parent = before->id;
    }
    return before->id_known;
}

const uint32_t *lease_tokens(const struct lease *lease, uint32_t block_index, uint32_t block_tokens)
{
    return block_index < lease->prompt_block_count
               ? lease->tokens + (size_t)block_index * block_tokens
               : NULL;
}
