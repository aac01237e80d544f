// SPDX-License-Identifier: Apache-2.0
// The store core: the arena, the index of closed blocks, leases and eviction as one object, with
// persistence attached or not. kvstored's dispatcher calls it for its clients; gpud calls it
// in-process for its private arena when kvstored is absent, so that both have the same semantics.
// One owner thread makes all calls. Loading and writing run on threads of their own (loader,
// writeback) whose results are taken in by store_poll. No call blocks on a read of a payload or on
// a write. Never: sockets, encoding, logging.
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
    const struct kv_namespace *name_space; // copied; NULL: no arena until store_use_namespace
    uint64_t payload_bytes_max;            // RAM budget for KV payload (--swap-space)
    const char *arena_name;  // shared memory object to create, copied; NULL: private memory
    const char *data_dir;    // folder of the namespaces' LMDB environments; NULL: no disk, sessions
                             // are kept in memory
    uint64_t disk_bytes_max; // budget of that folder, physical bytes
    uint64_t epoch;
    void (*wake)(void *context); // called from the store's threads when store_poll has something to
    void *wake_context;          // take in; NULL = the owner polls
};

// Fails as arena, catalog and disk do, with the reason.
enum status store_create(const struct store_options *options, struct store **out_store,
                         struct reason *reason) KV_MUST_CHECK;
// Finishes what is queued for disk (bounded by `timeout_ms`), then gives everything back.
void store_destroy(struct store *store, uint32_t timeout_ms);

// Shapes the arena for a namespace. The one in use already: arena and cached blocks are kept.
// Another: STATUS_BUSY while leases are held, else the RAM cache is dropped and a new arena made.
// STATUS_REFUSED with both numbers when the budget holds less than `arena_bytes_min` of payload, or
// no block at all. STATUS_MISMATCH when the fingerprint is known with another geometry.
enum status store_use_namespace(struct store *store, const struct kv_namespace *name_space,
                                uint64_t arena_bytes_min, struct reason *reason) KV_MUST_CHECK;
// The namespace in use; NULL when there is none.
const struct kv_namespace *store_namespace(const struct store *store);

// Base and size of the arena's mapping (proto/arena_layout.h) in this process; NULL and 0 when
// there is none.
void *store_arena(const struct store *store);
size_t store_arena_bytes(const struct store *store);
uint32_t store_slot_count(const struct store *store); // that the budget holds
// Whether a client still holds its row of the arena (proto/arena_lock.h): it may be using slots,
// whatever became of its connection, so its leases must not end.
bool store_row_held(struct store *store, uint32_t row);

// See kv_message.h for the meaning of each; `client_id` scopes leases. What goes to disk: blocks of
// a lease that asks for it (`persist`), and every block on its second use. out_lease->slots is the
// caller's (kv_lease_finish).
enum status store_lease(struct store *store, uint64_t client_id,
                        const struct kv_lease_request *request, struct kv_lease *out_lease,
                        struct reason *reason) KV_MUST_CHECK;
// STATUS_DAMAGED when a header is not what its place in the lease demands: blocks before it are
// published, it and those after it are not.
enum status store_publish(struct store *store, uint64_t client_id,
                          const struct kv_publish_request *request,
                          struct reason *reason) KV_MUST_CHECK;
enum status store_release(struct store *store, uint64_t client_id, uint64_t lease_id) KV_MUST_CHECK;
// Ends every lease of a client that went away.
void store_release_client(struct store *store, uint64_t client_id);

// ---- calls that may be answered later: on STATUS_OK the answer comes as a completion with
// `ticket`
// ---- (from store_next_completion, even when it is there at once); otherwise there is none.

// Without a disk: the session is kept in memory, and `sync` is STATUS_UNREACHABLE.
enum status store_checkpoint(struct store *store, const struct kv_checkpoint *checkpoint,
                             uint64_t ticket, struct reason *reason) KV_MUST_CHECK;
// `scoped`: the namespace in use and the request's salt; else every namespace and user.
enum status store_session_get(struct store *store, const struct kv_session_request *request,
                              bool scoped, uint64_t ticket, struct reason *reason) KV_MUST_CHECK;
enum status store_session_list(struct store *store, const struct kv_session_request *request,
                               bool scoped, uint64_t ticket, struct reason *reason) KV_MUST_CHECK;
enum status store_session_delete(struct store *store, const struct kv_session_request *request,
                                 uint64_t ticket, struct reason *reason) KV_MUST_CHECK;
enum status store_block(struct store *store, const struct kv_block_request *request,
                        uint64_t ticket, struct reason *reason) KV_MUST_CHECK;
enum status store_verify(struct store *store, const struct kv_verify_request *request,
                         uint64_t ticket, struct reason *reason) KV_MUST_CHECK;
enum status store_blocks(struct store *store, const struct kv_blocks_request *request,
                         uint64_t ticket, struct reason *reason) KV_MUST_CHECK;

struct store_completion {
    uint64_t ticket;
    struct kv_reply reply; // op, status, reason and the op's struct; epoch is the store's
};
// False when there is none. The caller finishes the reply (kv_reply_finish).
bool store_next_completion(struct store *store, struct store_completion *out);

// Takes in what loader and writeback finished. Never blocks; call it when woken, and before relying
// on slots of KV_SOURCE_DISK in a private store.
void store_poll(struct store *store);
// Waits until loader or writeback has something for store_poll, at most `timeout_ms`.
void store_wait(struct store *store, uint32_t timeout_ms);

// Whether what should be on disk gets there, in words: "ok", or why it stopped.
struct store_persistence_state {
    bool ok;
    char text[160];
};
void store_persistence(const struct store *store, struct store_persistence_state *out_state);

// Levels and counters; client_count, uptime_ms and anonymous_bytes are the caller's to fill in.
void store_status(const struct store *store, struct kv_status *out_status);

#endif
