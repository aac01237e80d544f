// SPDX-License-Identifier: Apache-2.0
// gpud's side of the cold tier: leases, the mapped arena, publishing of closed blocks, checkpoints.
// Talks to kvstored (client/kv_client) or, when that is absent, to a private store core in this
// process with the same semantics but no disk; attaches to kvstored for new leases when it appears.
// Threads: lease, release, session and checkpoint calls come from the worker and may block up to
// their deadline; slot accessors and cold_store_publish come from the engine and never block.
// Publishing runs on the mover's thread (mover.h). Never: touches device memory,
// decides what is hot.
#ifndef KVTIER_GPUD_COLD_STORE_H
#define KVTIER_GPUD_COLD_STORE_H

#include "proto/block.h"
#include "proto/kv_message.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stdint.h>

struct cold_store;
struct cold_arena; // one mapped arena; a lease keeps the one it was made in alive

struct cold_store_options {
    const char *store_url; // of kvstored; NULL or "" = private only
    const struct kv_namespace *name_space;
    uint64_t private_payload_bytes_max; // budget of the private arena
    uint64_t
        payload_bytes_min; // one whole context; a kvstored with less is refused with the numbers
};

// A lease as the engine uses it.
struct cold_lease {
    struct cold_arena *arena;
    struct kv_lease lease;
    bool is_private;
};

enum cold_slot_state { COLD_SLOT_LOADING, COLD_SLOT_READY, COLD_SLOT_FILLING };

// Does not fail when kvstored is absent; `out_attached` says whether it answered.
enum status cold_store_create(const struct cold_store_options *options,
                              struct cold_store **out_store, bool *out_attached,
                              struct reason *reason) KV_MUST_CHECK;
void cold_store_destroy(struct cold_store *store);

bool cold_store_attached(const struct cold_store *store); // to kvstored, as of the last call
// Tries to (re)attach when not attached; cheap when attached. Worker thread, between requests.
void cold_store_attach(struct cold_store *store);

// As store_lease says, from kvstored or the private store, whichever serves now.
enum status cold_store_lease(struct cold_store *store, const struct kv_lease_request *request,
                             struct cold_lease *out_lease, struct reason *reason) KV_MUST_CHECK;
// Publishes what is still queued for the lease, then gives it back. Zeroes `lease`.
void cold_store_release(struct cold_store *store, struct cold_lease *lease);

// Payload, header and state of the block at `block_index` of a lease. Memory is the arena's.
void *cold_lease_payload(const struct cold_lease *lease, uint32_t block_index);
struct block_header *cold_lease_header(const struct cold_lease *lease, uint32_t block_index);
enum cold_slot_state cold_lease_state(const struct cold_lease *lease, uint32_t block_index);

// Marks a FILLING block whose payload and header are complete READY and queues it for publishing.
void cold_store_publish(struct cold_store *store, struct cold_lease *lease, uint32_t block_index);

// Blocks that could not be published: later misses, nothing else. Any thread.
uint64_t cold_store_unpublished_count(const struct cold_store *store);

// Sessions (the private store keeps them in memory; `sync` there answers STATUS_UNREACHABLE
// "kvstored is not running").
enum status cold_store_checkpoint(struct cold_store *store, const struct kv_checkpoint *checkpoint,
                                  struct kv_checkpoint_reply *out_reply,
                                  struct reason *reason) KV_MUST_CHECK;
// On success *out_checkpoint and what it points to are one allocation for the caller to free().
enum status cold_store_session_get(struct cold_store *store, const char *name, const void *salt,
                                   uint32_t salt_bytes, struct kv_checkpoint **out_checkpoint,
                                   struct reason *reason) KV_MUST_CHECK;
enum status cold_store_session_list(struct cold_store *store, const void *salt, uint32_t salt_bytes,
                                    struct kv_session_info **out_sessions, uint32_t *out_count,
                                    struct reason *reason) KV_MUST_CHECK;
enum status cold_store_session_delete(struct cold_store *store, const char *name, const void *salt,
                                      uint32_t salt_bytes, struct reason *reason) KV_MUST_CHECK;

// Levels for `gpuctl status`: of kvstored when attached, else of the private arena.
// STATUS_UNREACHABLE, STATUS_TIMEOUT when kvstored does not answer. Any thread.
enum status cold_store_status(struct cold_store *store, struct kv_status *out_status,
                              struct reason *reason) KV_MUST_CHECK;

#endif
