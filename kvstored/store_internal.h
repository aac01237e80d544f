// SPDX-License-Identifier: Apache-2.0
// What the store_*.c files share: the store's state and the calls between them. Everything here
// belongs to the store's owner thread.
//     store.c          creation, namespaces, levels
//     store_lease.c    lease, publish, release; which slots may be evicted
//     store_persist.c  what goes to and comes from the disk's threads
//     store_session.c  checkpoints and sessions, completions
//     store_inspect.c  blocks, block, verify
#ifndef KVTIER_KVSTORED_STORE_INTERNAL_H
#define KVTIER_KVSTORED_STORE_INTERNAL_H

#include "kvstored/arena.h"
#include "kvstored/bell.h"
#include "kvstored/block_index.h"
#include "kvstored/catalog.h"
#include "kvstored/checkpoint.h"
#include "kvstored/disk.h"
#include "kvstored/eviction.h"
#include "kvstored/inspector.h"
#include "kvstored/lease.h"
#include "kvstored/loader.h"
#include "kvstored/store.h"
#include "kvstored/writeback.h"

enum {
    STORE_RETRY_MS = 5000,        // persistence that stopped is tried again this often
    STORE_DETACH_MS = 10000,      // for what is queued for disk when the namespace changes
    STORE_MEMORY_SESSIONS = 1024, // kept without a disk
};

// Books of one slot. It is evictable (listed in `eviction`) exactly when it is indexed, unleased
// and nothing is being done with it, see store_slot_settle.
struct store_slot {
    struct block_id id; // when indexed
    uint32_t lease_count;
    uint32_t token_count, first_position;
    uint64_t touched_ms;
    uint64_t hit_count;
    bool indexed;               // READY, and `index` names it for its id
    bool saving;                // given to writeback
    bool want_save;             // to be written when persistence works again
    bool damaged;               // what the arena holds is not the block: never found again
    bool loading;               // given to the loader
    struct lease *loader_lease; // that waits for the load; NULL: it was released meanwhile
    uint32_t loader_block;      // index in that lease
};

// A checkpoint under way: waits for its blocks (`sync`), then for its record.
struct store_pending {
    uint64_t ticket;
    struct kv_checkpoint checkpoint; // owned
    struct block_id *ids;            // [count] of its whole blocks
    uint32_t count;
    uint32_t durable_before; // of these on disk when it began
    bool submitted;          // the record was given to writeback
    uint32_t attempts;       // how often
    struct store_pending *next;
};

// A verify whose answer waits until what it found is removed.
struct store_repair {
    struct inspector_job *job;
    uint32_t waiting_count; // removals under way
};

struct store_answer {
    struct store_completion completion;
    struct store_answer *next;
};

struct store_persistence {
    bool ok;
    bool probing;  // tried again after it stopped: no result yet
    bool evicting; // an EVICT job is under way
    uint64_t retry_ms;
    enum status status; // why it stopped
    char state[160];    // in words
};

struct store_memory_session {
    struct kv_checkpoint checkpoint; // owned
    uint64_t created_ms, updated_ms;
};

struct store {
    uint64_t payload_bytes_max;
    char arena_name[RUNTIME_ARENA_NAME_BYTES]; // empty: private memory
    uint64_t disk_bytes_max;
    uint64_t epoch;
    struct bell bell;
    bool has_catalog; // persistence is wanted
    struct catalog catalog;

    bool has_namespace;
    struct kv_namespace name_space;
    struct arena arena;
    struct block_index index; // id -> slot
    struct eviction eviction;
    struct store_slot *slots; // [arena.slot_count]
    struct lease_table leases;

    bool detaching;             // the disk's threads take nothing more
    struct disk *disk;          // NULL: not attached
    struct block_index on_disk; // ids of the blocks on disk
    uint64_t disk_other_bytes;
    uint32_t disk_other_count;
    struct writeback *writeback; // with `disk`
    struct loader *loader;       // with `disk`
    struct inspector *inspector; // with `has_catalog`
    struct store_persistence persistence;

    struct store_pending *pending;
    struct store_answer *first_answer, *last_answer;
    struct store_memory_session *memory_sessions; // without a catalog
    uint32_t memory_session_count;
    struct kv_status counters; // only the counts that grow
};

// ---- store_lease.c
// Lists the slot as evictable, or not, after anything about it changed; a damaged block that
// nothing holds any more is dropped.
void store_slot_settle(struct store *store, uint32_t slot);
// Forgets an indexed block that nothing holds and frees its slot.
void store_slot_drop(struct store *store, uint32_t slot);
// A block became complete in `slot`: named by the index unless another slot is. Returns whether it
// is.
bool store_slot_index(struct store *store, uint32_t slot, const struct block_header *header);
// Ids that must not be removed from disk: of leases, of what is being written, of pending
// checkpoints.
enum status store_held_ids(const struct store *store, struct block_index *out_ids) KV_MUST_CHECK;

// ---- store_persist.c
// Opens the disk of the namespace and starts its threads. Failure is a state, not an error: serving
// goes on.
// `damaged`: what is there is known to be damaged, and is moved out of the way first.
void store_disk_attach(struct store *store, bool damaged);
// Ends them, giving what is queued `timeout_ms`.
void store_disk_detach(struct store *store, uint32_t timeout_ms);
enum status store_inspector_start(struct store *store, struct reason *reason) KV_MUST_CHECK;
void store_inspector_stop(struct store *store);
bool store_on_disk(const struct store *store, const struct block_id *id);
// Queues an indexed block for disk, unless it is there or on its way.
void store_save(struct store *store, uint32_t slot);
void store_load(struct store *store, uint32_t slot, const struct block_id *id, struct lease *lease,
                uint32_t block_index);
void store_forget_on_disk(struct store *store, const struct block_id *ids, uint32_t count);
// Both remove what is damaged; store_repair_done is told when `repair` is not NULL.
enum status store_remove_blocks(struct store *store, const struct block_id *ids, uint32_t count,
                                struct store_repair *repair) KV_MUST_CHECK;
enum status store_remove_session(struct store *store, const struct checkpoint_key *key,
                                 struct store_repair *repair) KV_MUST_CHECK;
// Asks for room on disk; what was refused is submitted again when there is some.
void store_make_room(struct store *store);
// A record could not be written: stops persistence when the disk is why.
void store_write_failed(struct store *store, enum status status);
void store_retry_now(struct store *store);

// ---- store_session.c
// Hands a reply out under a ticket; takes its memory. Without memory for that, the answer is lost.
void store_answer(struct store *store, uint64_t ticket, enum kv_op op, struct kv_reply *reply);
void store_pending_check(struct store *store);
void store_pending_fail(struct store *store, enum status status, const char *why);
void store_job_done(struct store *store, struct writeback_job *job); // CHECKPOINT, REMOVE_SESSION
void store_sessions_finish(struct store *store);
enum status store_submit_inspector(struct store *store, struct inspector_job *job,
                                   struct reason *reason) KV_MUST_CHECK;

// ---- store_inspect.c
void store_inspector_done(struct store *store, struct inspector_job *job); // takes the job
void store_repair_done(struct store *store, struct store_repair *repair,
                       const struct writeback_job *job);

#endif
