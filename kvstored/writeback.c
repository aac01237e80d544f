// SPDX-License-Identifier: Apache-2.0
// Rules: nothing is told before it is committed; what is written was verified in the same pass, so
// a block that decayed in memory never reaches the disk; a batch that fails fails as a whole and
// changes nothing.

#include "kvstored/writeback.h"

#include "kvstored/disk_reader.h"
#include "kvstored/disk_writer.h"
#include "proto/block_id.h"
#include "proto/os/clock.h"
#include "proto/os/queue.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    BATCH_BLOCKS_MAX = 1024,
    NO_SLOT = -1, // of a queue item that only says: look at the jobs
};

struct batch_item {
    struct writeback_block block;
    enum status status;
    uint64_t written_bytes;
};

struct writeback {
    struct disk *disk;
    struct bell *bell;
    struct os_thread *thread;
    struct os_queue blocks;  // struct writeback_block, and nudges
    struct os_queue jobs;    // struct writeback_job *
    struct os_queue results; // struct writeback_result; room for all that can be under way
    _Atomic uint64_t
        stop_ms;          // os_clock_ms() when the rest is given up; relaxed, it only ever shrinks
    uint32_t job_count;   // submitted, result not taken yet; the caller's thread
    uint32_t batch_count; // blocks in a batch at most
    struct batch_item batch[BATCH_BLOCKS_MAX];
};

void writeback_job_destroy(struct writeback_job *job)
{
    if (job != NULL) {
        checkpoint_copy_finish(&job->checkpoint);
        block_index_finish(&job->held);
        sweep_removed_finish(&job->removed);
        free(job->ids);
        free(job);
    }
}

static bool time_is_up(const struct writeback *writeback)
{
    return os_clock_ms() >= atomic_load_explicit(&writeback->stop_ms, memory_order_relaxed);
}

static void answer(struct writeback *writeback, const struct writeback_result *result)
{
    enum status status = os_queue_try_push(&writeback->results, result);
    assert(status == STATUS_OK); // sized for everything that can be submitted
    bell_ring(writeback->bell);
}

// ---- blocks

// Whether the arena holds the block that was to be written.
static enum status check_block(const struct writeback *writeback,
                               const struct writeback_block *block, struct block_header *out_header)
{
    memcpy(out_header, block->header, sizeof(*out_header));
    const struct kv_namespace *name_space = disk_namespace(writeback->disk);
    if (!block_id_equal(&out_header->id, &block->id) ||
        memcmp(out_header->fingerprint, name_space->fingerprint, BLOCK_ID_BYTES) != 0) {
        return STATUS_DAMAGED;
    }
    enum status status =
        block_verify(out_header, block->payload, disk_payload_bytes(writeback->disk));
    return status == STATUS_OK ? STATUS_OK : STATUS_DAMAGED;
}

static void put_block(struct writeback *writeback, struct disk_writer *writer,
                      struct batch_item *item)
{
    struct block_header header;
    item->written_bytes = 0;
    item->status = check_block(writeback, &item->block, &header);
    if (item->status == STATUS_OK) {
        item->status = disk_writer_put_block(writer, &item->block.id, &header, item->block.payload);
        if (item->status == STATUS_OK) {
            item->written_bytes = header.payload_bytes;
        } else if (item->status == STATUS_EXISTS) {
            item->status = STATUS_OK;
        }
    }
}

// Gives every item of a batch that did not come to be the batch's failure.
static void fail_batch(struct writeback *writeback, uint32_t count, enum status status)
{
    for (uint32_t i = 0; i < count; i++) {
        struct batch_item *item = &writeback->batch[i];
        item->written_bytes = 0;
        if (item->status == STATUS_OK) {
            item->status = status;
        }
    }
}

static void write_batch(struct writeback *writeback, uint32_t count)
{
    struct disk_writer *writer = NULL;
    bool refused = false;
    enum status status = disk_writer_begin(writeback->disk, &writer);
    for (uint32_t i = 0; i < count; i++) {
        struct batch_item *item = &writeback->batch[i];
        item->status = status;
        if (status != STATUS_OK) {
            continue;
        }
        if (refused) {
            item->status =
                STATUS_REFUSED; // a full map may have spoilt the transaction: no more puts
            continue;
        }
        put_block(writeback, writer, item);
        refused = item->status == STATUS_REFUSED;
        if (item->status != STATUS_OK && item->status != STATUS_REFUSED &&
            item->status != STATUS_DAMAGED) {
            status = item->status; // the transaction is lost
        }
    }
    if (writer == NULL) {
        return;
    }
    if (status == STATUS_OK) {
        status = disk_writer_commit(writer);
    } else {
        disk_writer_abort(writer);
    }
    if (status != STATUS_OK) {
        // A full map spoils the transaction, and the commit then fails for no reason of its own.
        fail_batch(writeback, count, refused ? STATUS_REFUSED : status);
    }
}

static void handle_batch(struct writeback *writeback, uint32_t count)
{
    if (time_is_up(writeback)) {
        for (uint32_t i = 0; i < count; i++) {
            writeback->batch[i].status = STATUS_CANCELLED;
            writeback->batch[i].written_bytes = 0;
        }
    } else {
        write_batch(writeback, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct batch_item *item = &writeback->batch[i];
        answer(writeback, &(struct writeback_result){.slot = item->block.slot,
                                                     .status = item->status,
                                                     .written_bytes = item->written_bytes});
    }
}

// ---- jobs

// What an earlier record of the same name leaves to a new one.
static enum status inherit(struct writeback *writeback, const struct writeback_job *job,
                           struct checkpoint_record *record)
{
    struct disk_reader *reader;
    const void *data;
    size_t bytes;
    struct checkpoint_record old;
    enum status status = disk_reader_begin(writeback->disk, &reader);
    if (status != STATUS_OK) {
        return status;
    }
    status = disk_reader_session(reader, &job->key, &data, &bytes);
    if (status == STATUS_OK && checkpoint_decode(&job->key, data, bytes, &old) == STATUS_OK) {
        record->created_ms = old.created_ms;
        record->checkpoint.keep = record->checkpoint.keep || old.checkpoint.keep;
        checkpoint_record_finish(&old);
    }
    disk_reader_end(reader);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

static enum status put_record(struct writeback *writeback, const struct writeback_job *job,
                              const void *data, size_t bytes)
{
    struct disk_writer *writer;
    enum status status = disk_writer_begin(writeback->disk, &writer);
    if (status != STATUS_OK) {
        return status;
    }
    status = disk_writer_put_session(writer, &job->key, data, bytes);
    if (status != STATUS_OK) {
        disk_writer_abort(writer);
        return status;
    }
    status = disk_writer_commit(writer);
    return status == STATUS_OK && job->checkpoint.sync ? disk_sync(writeback->disk) : status;
}

static enum status run_checkpoint(struct writeback *writeback, struct writeback_job *job)
{
    struct checkpoint_record record = {.checkpoint = job->checkpoint};
    record.updated_ms = os_clock_wall_ms();
    record.created_ms = record.updated_ms;
    void *data;
    size_t bytes;
    enum status status = inherit(writeback, job, &record);
    if (status == STATUS_OK) {
        status = checkpoint_encode(&job->key, &record, &data, &bytes);
    }
    if (status == STATUS_OK) {
        status = put_record(writeback, job, data, bytes);
        free(data);
    }
    return status;
}

static enum status run_job(struct writeback *writeback, struct writeback_job *job)
{
    switch (job->kind) {
    case WRITEBACK_CHECKPOINT:
        return run_checkpoint(writeback, job);
    case WRITEBACK_REMOVE_SESSION:
        return sweep_remove_session(writeback->disk, &job->key, &job->held, &job->removed);
    case WRITEBACK_EVICT:
        return sweep_evict(writeback->disk, job->bytes, &job->held, &job->removed);
    case WRITEBACK_REMOVE_BLOCKS:
        return sweep_remove_blocks(writeback->disk, job->ids, job->id_count, &job->removed);
    }
    return STATUS_INVALID;
}

static void run_jobs(struct writeback *writeback)
{
    struct writeback_job *job;
    while (os_queue_pop(&writeback->jobs, &job, 0) == STATUS_OK) {
        job->status = run_job(writeback, job);
        answer(writeback, &(struct writeback_result){.job = job});
    }
}

static void writeback_body(void *argument)
{
    struct writeback *writeback = argument;
    struct writeback_block block;
    while (os_queue_pop(&writeback->blocks, &block, OS_WAIT_FOREVER) == STATUS_OK) {
        run_jobs(writeback);
        uint32_t count = 0;
        do {
            if (block.slot != (uint32_t)NO_SLOT) {
                writeback->batch[count++].block = block;
            }
        } while (count < writeback->batch_count &&
                 os_queue_pop(&writeback->blocks, &block, 0) == STATUS_OK);
        if (count > 0) {
            handle_batch(writeback, count);
        }
        run_jobs(writeback);
    }
}

// ---- the caller's side

static enum status init_queues(struct writeback *writeback, uint32_t slot_count)
{
    enum status status = os_queue_init(&writeback->blocks, sizeof(struct writeback_block),
                                       (size_t)slot_count + WRITEBACK_JOBS_MAX);
    if (status == STATUS_OK) {
        status =
            os_queue_init(&writeback->jobs, sizeof(struct writeback_job *), WRITEBACK_JOBS_MAX);
    }
    if (status == STATUS_OK) {
        status = os_queue_init(&writeback->results, sizeof(struct writeback_result),
                               (size_t)slot_count + WRITEBACK_JOBS_MAX);
    }
    return status;
}

enum status writeback_start(struct disk *disk, struct bell *bell, uint32_t slot_count,
                            struct writeback **out_writeback)
{
    struct writeback *writeback = calloc(1, sizeof(*writeback));
    if (writeback == NULL) {
        return STATUS_NO_MEMORY;
    }
    size_t fitting = DISK_BATCH_BYTES / disk_value_bytes(disk);
    writeback->batch_count = fitting == 0                 ? 1
                             : fitting < BATCH_BLOCKS_MAX ? (uint32_t)fitting
                                                          : BATCH_BLOCKS_MAX;
    writeback->disk = disk;
    writeback->bell = bell;
    atomic_init(&writeback->stop_ms, OS_DEADLINE_NEVER);
    enum status status = init_queues(writeback, slot_count);
    if (status == STATUS_OK) {
        status = os_thread_start("writeback", writeback_body, writeback, &writeback->thread);
    }
    if (status != STATUS_OK) {
        writeback_destroy(writeback);
        return status;
    }
    *out_writeback = writeback;
    return STATUS_OK;
}

void writeback_stop(struct writeback *writeback, uint32_t timeout_ms)
{
    atomic_store_explicit(&writeback->stop_ms, os_clock_deadline(timeout_ms), memory_order_relaxed);
    os_queue_close(&writeback->blocks);
    os_thread_join(writeback->thread);
    writeback->thread = NULL;
}

void writeback_destroy(struct writeback *writeback)
{
    if (writeback == NULL) {
        return;
    }
    assert(writeback->thread == NULL);
    struct writeback_result result;
    while (writeback->results.items != NULL && writeback_next_result(writeback, &result)) {
        writeback_job_destroy(result.job);
    }
    os_queue_finish(&writeback->blocks);
    os_queue_finish(&writeback->jobs);
    os_queue_finish(&writeback->results);
    free(writeback);
}

void writeback_submit_block(struct writeback *writeback, const struct writeback_block *block)
{
    enum status status = os_queue_try_push(&writeback->blocks, block);
    assert(status == STATUS_OK); // a slot is submitted once at a time
}

enum status writeback_submit_job(struct writeback *writeback, struct writeback_job *job)
{
    const struct writeback_block nudge = {.slot = (uint32_t)NO_SLOT};
    if (writeback->job_count == WRITEBACK_JOBS_MAX) {
        return STATUS_BUSY;
    }
    enum status status = os_queue_try_push(&writeback->jobs, &job);
    if (status == STATUS_OK) {
        writeback->job_count++;
        // When there is no room for the nudge, the thread is awake and looks at the jobs anyway.
        (void)!os_queue_try_push(&writeback->blocks, &nudge);
    }
    return status;
}

bool writeback_next_result(struct writeback *writeback, struct writeback_result *out_result)
{
    if (os_queue_pop(&writeback->results, out_result, 0) != STATUS_OK) {
        return false;
    }
    writeback->job_count -= out_result->job != NULL;
    return true;
}
