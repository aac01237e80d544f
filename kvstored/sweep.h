// SPDX-License-Identifier: Apache-2.0
// Removing from disk what nobody needs: a session with the blocks that no other session's chain
// holds, or the least valuable sessions until enough is free. Works in bounded transactions,
// records of sessions first, so that a crash leaves at most blocks without a session, which the
// next eviction takes first. The writing thread. Blocks on disk.
#ifndef KVTIER_KVSTORED_SWEEP_H
#define KVTIER_KVSTORED_SWEEP_H

#include "kvstored/block_index.h"
#include "kvstored/checkpoint.h"
#include "kvstored/disk.h"

// What was removed. Zeroed memory is an empty list.
struct sweep_removed {
    struct block_id *ids; // [count]
    uint32_t count;
    uint32_t capacity;
    uint32_t session_count;
};
void sweep_removed_finish(struct sweep_removed *removed);

// Removes the session under `key`. Blocks in `held` stay. STATUS_NOT_FOUND, STATUS_NO_MEMORY,
// STATUS_IO, STATUS_NO_SPACE, STATUS_DAMAGED; what was removed by then is in *removed.
enum status sweep_remove_session(struct disk *disk, const struct checkpoint_key *key,
                                 const struct block_index *held,
                                 struct sweep_removed *removed) KV_MUST_CHECK;

// Frees at least `bytes`, if it can: first blocks of no session, then whole sessions that are not
// `keep` and not live (their last block in `held`), the one updated longest ago first.
// STATUS_REFUSED when nothing could be removed; errors as above.
enum status sweep_evict(struct disk *disk, uint64_t bytes, const struct block_index *held,
                        struct sweep_removed *removed) KV_MUST_CHECK;

// Removes blocks by id; those that are not there are skipped.
enum status sweep_remove_blocks(struct disk *disk, const struct block_id *ids, uint32_t count,
                                struct sweep_removed *removed) KV_MUST_CHECK;

#endif
