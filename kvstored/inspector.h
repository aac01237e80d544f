// SPDX-License-Identifier: Apache-2.0
// The thread that answers questions about what is on disk: sessions of one namespace or of all, one
// block, and verification of everything. Reads in short views, so that writing goes on meanwhile.
// Bounded queues on both sides. Owner: the store's thread.
#ifndef KVTIER_KVSTORED_INSPECTOR_H
#define KVTIER_KVSTORED_INSPECTOR_H

#include "kvstored/bell.h"
#include "kvstored/catalog.h"
#include "kvstored/disk.h"
#include "kvstored/verify.h"
#include "proto/kv_message.h"

#include <stdbool.h>
#include <stdint.h>

enum { INSPECTOR_JOBS_MAX = 256 };

struct inspector;

struct inspector_job {
    enum kv_op op; // SESSION_GET, SESSION_LIST, BLOCK, VERIFY, BLOCKS (of a session: its chain)
    uint64_t ticket;
    bool scoped; // the namespace in use and `salt`; else every namespace and user
    char name[LIMIT_SESSION_NAME_BYTES + 1];
    uint8_t salt[LIMIT_SALT_BYTES];
    uint32_t salt_bytes;
    struct kv_block_request block;
    struct kv_blocks_request blocks; // for the receiver; `session` is NULL
    struct kv_verify_request verify;
    // Filled in by the thread. The reply's memory is the receiver's (kv_reply_finish).
    struct kv_reply reply;
    bool found;          // BLOCKS: a session of that name
    uint64_t updated_ms; // SESSION_GET, BLOCKS: of the session that was found
    // SESSION_LIST: ids of the rows of the namespace in use, which come first, row after row, whole
    // blocks each. BLOCKS: ids of the chain.
    struct block_id *ids; // [id_count]
    uint32_t id_count;
    struct verify_damage damage;    // VERIFY: in the namespace in use; its writer has to repair it
    uint32_t damaged_session_count; // records that were met and could not be read
};
void inspector_job_destroy(struct inspector_job *job); // with its reply; NULL is fine

// `active`: the namespace in use, or NULL; others are opened through the catalog. All outlive the
// thread.
enum status inspector_start(const struct catalog *catalog, struct disk *active, struct bell *bell,
                            struct inspector **out_inspector) KV_MUST_CHECK;
// Answers what is left with STATUS_CLOSED and ends the thread. Results can still be taken until
// destroy.
void inspector_stop(struct inspector *inspector);
void inspector_destroy(struct inspector *inspector); // stopped; NULL is fine

// Takes the job on success. STATUS_BUSY when INSPECTOR_JOBS_MAX are under way or their results
// wait.
enum status inspector_submit(struct inspector *inspector, struct inspector_job *job) KV_MUST_CHECK;
// The receiver destroys the job.
bool inspector_next_result(struct inspector *inspector, struct inspector_job **out_job);

#endif
