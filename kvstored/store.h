// SPDX-License-Identifier: Apache-2.0
// The store core: the arena, the index of closed blocks, leases and eviction as one object, with
// persistence attached or not. kvstored's dispatcher calls it for its clients; gpud calls it
// in-process for its private arena when kvstored is absent, so that both have the same semantics.
// One owner thread makes all calls. Loading and writing run on threads of their own (loader,
// writeback) whose results are taken in by store_poll. Never: sockets, encoding.
#ifndef KVTIER_KVSTORED_STORE_H
#define KVTIER_KVSTORED_STORE_H

#include "proto/block.h"
#include "proto/kv_message.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store;

struct store_options {
    const struct kv_namespace *name_space; // copied
    uint64_t payload_bytes_max;            // RAM budget for KV payload (--swap-space)
    const char *arena_name;                // shared memory object to create; NULL: private memory
    const char *data_dir;                  // folder of the namespaces' LMDB environments; NULL: no disk
    uint64_t disk_bytes_max;               // budget of that folder
    uint64_t epoch;
};

enum status store_create(const struct store_options *options, struct store **out_store,
                         struct reason *reason) KV_MUST_CHECK;
// Finishes what is queued for disk (bounded by `timeout_ms`), then gives everything back.
void store_destroy(struct store *store, uint32_t timeout_ms);

// Base and size of the arena's mapping (proto/arena_layout.h) in this process.
void *store_arena(const struct store *store);
size_t store_arena_bytes(const struct store *store);

// See kv_message.h for the meaning of each; `client_id` scopes leases. May not block on disk.
enum status store_lease(struct store *store, uint64_t client_id,
                        const struct kv_lease_request *request, struct kv_lease *out_lease,
                        struct reason *reason) KV_MUST_CHECK;
enum status store_publish(struct store *store, uint64_t client_id,
                          const struct kv_publish_request *request,
                          struct reason *reason) KV_MUST_CHECK;
enum status store_release(struct store *store, uint64_t client_id, uint64_t lease_id) KV_MUST_CHECK;
// Ends every lease of a client that went away.
void store_release_client(struct store *store, uint64_t client_id);

#endif
