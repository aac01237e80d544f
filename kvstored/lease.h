// SPDX-License-Identifier: Apache-2.0
// The leases of all clients: which blocks of which chain a client holds, and in which slots. Plain
// books; what taking and giving back a slot means is the store's. Owner: the store's thread.
// Bounded by LEASES_MAX leases of KV_LEASE_BLOCKS_MAX blocks.
#ifndef KVTIER_KVSTORED_LEASE_H
#define KVTIER_KVSTORED_LEASE_H

#include "proto/block.h"
#include "proto/kv_message.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { LEASES_MAX = 4096 };

enum lease_block_stage {
    LEASE_BLOCK_LENT,    // the client fills the slot
    LEASE_BLOCK_LOADING, // the loader fills the slot
    LEASE_BLOCK_CACHED,  // the slot is READY and holds the block that the index names
    LEASE_BLOCK_PRIVATE, // published, but another slot holds this id in the index
};

struct lease_block {
    uint32_t slot;
    enum lease_block_stage stage;
    bool id_known;
    struct block_id id; // when id_known
};

// The tokens of a lease's whole prompt blocks are kept: loads are compared with them.
struct lease {
    uint64_t lease_id;
    uint64_t client_id;
    bool persist;
    enum attention_mode mode;
    uint32_t block_count;
    uint32_t prompt_block_count; // of these, known in advance: tokens and id
    uint32_t loading_count;      // blocks that are LOADING
    struct block_id root;
    struct lease_block *blocks; // [block_count]
    uint32_t *tokens;           // [prompt_block_count * block_tokens]
    struct lease *next;
};

// Embedded by value; fields are the table's own, but for reading the list.
struct lease_table {
    struct lease *first;
    uint32_t count;
    uint64_t next_id;
};

// A lease for `request`, in the table, with ids and tokens of its whole prompt blocks and no slots.
// STATUS_BUSY at LEASES_MAX, STATUS_NO_MEMORY.
enum status lease_create(struct lease_table *table, uint64_t client_id,
                         const struct kv_namespace *name_space,
                         const struct kv_lease_request *request,
                         struct lease **out_lease) KV_MUST_CHECK;
// Takes it out of the table and frees it. Its slots must have been given back.
void lease_destroy(struct lease_table *table, struct lease *lease);

// The lease of this client with this id; NULL when it has none.
struct lease *lease_find(const struct lease_table *table, uint64_t client_id, uint64_t lease_id);
struct lease *lease_of_client(const struct lease_table *table, uint64_t client_id); // any

// The id that the block before `block_index` has; false while it is not known.
bool lease_parent(const struct lease *lease, uint32_t block_index, struct block_id *out_parent);

// Tokens of a whole prompt block; NULL for later blocks.
const uint32_t *lease_tokens(const struct lease *lease, uint32_t block_index,
                             uint32_t block_tokens);

#endif
