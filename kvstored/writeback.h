// SPDX-License-Identifier: Apache-2.0
// The thread that writes one namespace to disk: blocks in batches of at most 32 MiB, and jobs
// (sessions, removals), which go before the blocks that wait. Results come back in the order of the
// work, after the commit that made them true. Between submit and its result the caller leaves slot
// and job alone; a block's memory must stay as it is. Bounded queues on both sides. Owner: the
// store's thread.
#ifndef KVTIER_KVSTORED_WRITEBACK_H
#define KVTIER_KVSTORED_WRITEBACK_H

#include "kvstored/bell.h"
#include "kvstored/block_index.h"
#include "kvstored/checkpoint.h"
#include "kvstored/disk.h"
#include "kvstored/sweep.h"

#include <stdbool.h>
#include <stdint.h>

enum { WRITEBACK_JOBS_MAX = 1024 };

struct writeback;

// A closed block to be written. header and payload lie in the arena.
struct writeback_block {
    uint32_t slot;
    struct block_id id;
    const struct block_header *header;
    const void *payload;
};

enum writeback_job_kind {
    WRITEBACK_CHECKPOINT,     // put a session's record
    WRITEBACK_REMOVE_SESSION, // and its blocks, but those in `held`
    WRITEBACK_EVICT,          // free `bytes`
    WRITEBACK_REMOVE_BLOCKS,  // `ids`
};

struct writeback_job {
    enum writeback_job_kind kind;
    uint64_t ticket; // the caller's
    void *repair;    // the caller's: what this is a part of; NULL = of nothing
    struct checkpoint_key key;
    struct kv_checkpoint checkpoint; // owned by the job
    struct block_index held;         // owned by the job
    uint64_t bytes;
    struct block_id *ids; // [id_count] owned by the job
    uint32_t id_count;
    // Filled in by the thread:
    enum status status;
    struct sweep_removed removed; // owned by the job
};
void writeback_job_destroy(struct writeback_job *job); // NULL is fine

// One finished piece of work: a job, or the block of a slot.
struct writeback_result {
    struct writeback_job *job; // the receiver destroys it; NULL: a block
    uint32_t slot;
    // Of a block. STATUS_OK also when it was on disk already; STATUS_DAMAGED: the bytes in the
    // arena are not that block; STATUS_REFUSED: over the budget; STATUS_CANCELLED: time was up;
    // else the disk's.
    enum status status;
    uint64_t written_bytes; // payload; 0 when nothing was written
};

// `slot_count`: most blocks that are submitted at a time. The disk and the bell outlive the thread.
enum status writeback_start(struct disk *disk, struct bell *bell, uint32_t slot_count,
                            struct writeback **out_writeback) KV_MUST_CHECK;
// Finishes what was submitted as far as `timeout_ms` lets it, answers the rest with
// STATUS_CANCELLED, and ends the thread. Results can still be taken until destroy.
void writeback_stop(struct writeback *writeback, uint32_t timeout_ms);
void writeback_destroy(struct writeback *writeback); // stopped; NULL is fine

// Never blocks; at most slot_count at a time.
void writeback_submit_block(struct writeback *writeback, const struct writeback_block *block);
// Takes the job on success. STATUS_BUSY when WRITEBACK_JOBS_MAX are under way or their
// results wait.
enum status writeback_submit_job(struct writeback *writeback,
                                 struct writeback_job *job) KV_MUST_CHECK;

// False when no result waits.
bool writeback_next_result(struct writeback *writeback, struct writeback_result *out_result);

#endif
