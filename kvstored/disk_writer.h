// SPDX-License-Identifier: Apache-2.0
// One transaction that writes to a namespace on disk. The writing thread only, one at a time. Keep
// them at most DISK_BATCH_BYTES large. After any error but STATUS_NOT_FOUND, STATUS_EXISTS or
// STATUS_REFUSED only abort is allowed. All may block on disk.
#ifndef KVTIER_KVSTORED_DISK_WRITER_H
#define KVTIER_KVSTORED_DISK_WRITER_H

#include "kvstored/checkpoint.h"
#include "kvstored/disk.h"

enum { DISK_BATCH_BYTES = 32 << 20, DISK_BATCH_REMOVALS = 256 };

struct disk_writer;

// STATUS_DAMAGED (also after an earlier write of the tables failed: open it anew), STATUS_NO_SPACE,
// STATUS_NO_MEMORY, STATUS_IO.
enum status disk_writer_begin(struct disk *disk, struct disk_writer **out_writer) KV_MUST_CHECK;
// Durable against a crash of the process; against a power cut after disk_sync. Ends the writer,
// also on failure: STATUS_NO_SPACE, STATUS_IO.
enum status disk_writer_commit(struct disk_writer *writer) KV_MUST_CHECK;
void disk_writer_abort(struct disk_writer *writer); // NULL is fine

// Adds a block: header and payload [disk_payload_bytes] are copied, not checked. STATUS_EXISTS when
// the id is there; STATUS_REFUSED when it would take the namespace over its budget.
enum status disk_writer_put_block(struct disk_writer *writer, const struct block_id *id,
                                  const struct block_header *header,
                                  const void *payload) KV_MUST_CHECK;
// STATUS_NOT_FOUND.
enum status disk_writer_remove_block(struct disk_writer *writer,
                                     const struct block_id *id) KV_MUST_CHECK;
// Adds or replaces a session's record. STATUS_REFUSED over the budget.
enum status disk_writer_put_session(struct disk_writer *writer, const struct checkpoint_key *key,
                                    const void *data, size_t bytes) KV_MUST_CHECK;
// STATUS_NOT_FOUND.
enum status disk_writer_remove_session(struct disk_writer *writer,
                                       const struct checkpoint_key *key) KV_MUST_CHECK;

#endif
