// SPDX-License-Identifier: Apache-2.0
// One arena that gpud reads and writes KV in, and the store behind it: kvstored's, mapped by name
// and spoken to through kv_client, or a private one, whose store core runs in this process. Both
// answer the same requests. Operations may come from any thread; slot accessors never block. Never:
// decides which arena to use (cold_store does), retries.
#ifndef KVTIER_GPUD_COLD_ARENA_H
#define KVTIER_GPUD_COLD_ARENA_H

#include "proto/arena_slot.h"
#include "proto/block.h"
#include "proto/kv_message.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stdint.h>

struct cold_arena;

// Says hello to kvstored at `url`, maps its arena and checks all of its layout. STATUS_REFUSED with
// both numbers when it holds less than payload_bytes_min; STATUS_UNREACHABLE, STATUS_TIMEOUT; what
// hello answered; STATUS_DAMAGED when the arena is not what hello said.
enum status cold_arena_attach(const char *url, const struct kv_namespace *name_space,
                              uint64_t payload_bytes_min, struct cold_arena **out_arena,
                              struct reason *reason) KV_MUST_CHECK;
// An arena of our own with at most payload_bytes_max of KV and no disk.
enum status cold_arena_create(const struct kv_namespace *name_space, uint64_t payload_bytes_max,
                              struct cold_arena **out_arena, struct reason *reason) KV_MUST_CHECK;
// Ends the connection, with it every lease, and unmaps. NULL is fine.
void cold_arena_destroy(struct cold_arena *arena);

bool cold_arena_is_private(const struct cold_arena *arena);
bool cold_arena_alive(const struct cold_arena *arena); // false: its kvstored is gone

// Carries out any request but hello; a session_list without salt is, in a private arena, that of
// every user. After STATUS_OK the caller finishes *out_reply (kv_reply_finish). Blocks up to the
// request's deadline.
enum status cold_arena_call(struct cold_arena *arena, const struct kv_request *request,
                            struct kv_reply *out_reply, struct reason *reason) KV_MUST_CHECK;

// Whether every slot of a lease lies in the arena and is in the state that its source says.
bool cold_arena_lease_valid(const struct cold_arena *arena, const struct kv_lease_request *request,
                            const struct kv_lease *lease);

// The number of leading blocks whose cached KV is what the request's tokens mean: every one that is
// in RAM must carry the id of its place in the chain, and its tokens. hit_block_max when all do.
uint32_t cold_arena_true_blocks(const struct cold_arena *arena,
                                const struct kv_namespace *name_space,
                                const struct kv_lease_request *request,
                                const struct kv_lease *lease);

// Of a slot that a lease names.
void *cold_arena_payload(const struct cold_arena *arena, uint32_t slot_index);
struct block_header *cold_arena_header(const struct cold_arena *arena, uint32_t slot_index);
_Atomic uint64_t *cold_arena_word(const struct cold_arena *arena, uint32_t slot_index);

// References, guarded by the caller's lock: 1 after creation. drop is true when none is left; then
// the caller destroys it, outside its lock.
void cold_arena_hold(struct cold_arena *arena);
bool cold_arena_drop(struct cold_arena *arena);

#endif
