// SPDX-License-Identifier: Apache-2.0
// Jobs that may meet several namespaces run over each in turn: the one in use through its open disk
// (LMDB must not open a file twice in a process), others opened for as long as it takes. A
// namespace that cannot be opened is skipped: it says so when it is used.

#include "kvstored/inspector.h"

#include "kvstored/disk_reader.h"
#include "kvstored/value_stats.h"
#include "kvstored/verify.h"
#include "proto/block_id.h"
#include "proto/os/queue.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct inspector {
    const struct catalog *catalog;
    struct disk *active;
    struct bell *bell;
    struct os_thread *thread;
    struct os_queue jobs;    // struct inspector_job *
    struct os_queue results; // struct inspector_job *
    uint32_t job_count;      // submitted, result not taken yet; the caller's thread
    atomic_bool stopping;    // relaxed: it only cuts work short
};

void inspector_job_destroy(struct inspector_job *job)
{
    if (job != NULL) {
        kv_reply_finish(&job->reply);
        verify_damage_finish(&job->damage);
        free(job->ids);
        free(job);
    }
}

// ---- over namespaces

// What a job does with one namespace. STATUS_OK goes on to the next one.
typedef enum status (*visit_disk)(struct inspector *inspector, struct inspector_job *job,
                                  struct disk *disk);

static enum status visit_others(struct inspector *inspector, struct inspector_job *job,
                                visit_disk visit)
{
    struct catalog_name *names, active = {""};
    uint32_t count;
    enum status status = catalog_list(inspector->catalog, &names, &count);
    if (status != STATUS_OK) {
        return status;
    }
    if (inspector->active != NULL) {
        catalog_name_of(disk_namespace(inspector->active)->fingerprint, &active);
    }
    for (uint32_t i = 0; status == STATUS_OK && i < count; i++) {
        char path[CATALOG_PATH_BYTES];
        struct disk *disk;
        if (strcmp(names[i].text, active.text) == 0) {
            continue;
        }
        catalog_path(inspector->catalog, &names[i], path);
        const struct disk_options options = {.folder = path, .bytes_max = DISK_BYTES_MIN};
        if (disk_open(&options, &disk, NULL) == STATUS_OK) {
            status = visit(inspector, job, disk);
            disk_close(disk);
        }
    }
    free(names);
    return status;
}

static enum status visit_all(struct inspector *inspector, struct inspector_job *job,
                             visit_disk visit)
{
    enum status status = STATUS_OK;
    if (inspector->active != NULL) {
        status = visit(inspector, job, inspector->active);
    }
    if (status == STATUS_OK && !job->scoped) {
        status = visit_others(inspector, job, visit);
    }
    return status;
}

// ---- sessions

// What a job does with one session it may see. STATUS_OK goes on to the next one.
typedef enum status (*take_session)(struct inspector_job *job, struct disk *disk,
                                    struct disk_reader *reader,
                                    const struct checkpoint_record *record);

// Whether the job asks for the session of this key: its user's, and of its name when it gives one.
static bool wants(const struct inspector_job *job, const struct checkpoint_key *key)
{
    uint32_t start = 1u + (key->count > 0 ? key->bytes[0] : 0);
    size_t name_bytes = strlen(job->name);
    if (key->count < start) {
        return true; // damaged: to be counted
    }
    if (job->scoped &&
        (start != 1 + job->salt_bytes || memcmp(key->bytes + 1, job->salt, job->salt_bytes) != 0)) {
        return false;
    }
    return name_bytes == 0 || (key->count - start == name_bytes &&
                               memcmp(key->bytes + start, job->name, name_bytes) == 0);
}

static enum status decode_and_take(struct inspector_job *job, struct disk *disk,
                                   struct disk_reader *reader, const struct checkpoint_key *key,
                                   const void *data, size_t bytes, take_session take)
{
    struct checkpoint_record record;
    enum status status = checkpoint_decode(key, data, bytes, &record);
    if (status == STATUS_DAMAGED || status == STATUS_VERSION) {
        job->damaged_session_count++;
        return STATUS_OK;
    }
    if (status == STATUS_OK) {
        status = take(job, disk, reader, &record);
        checkpoint_record_finish(&record);
    }
    return status;
}

static enum status walk_sessions(struct inspector_job *job, struct disk *disk,
                                 struct disk_reader *reader, take_session take)
{
    struct checkpoint_key key;
    const struct checkpoint_key *after = NULL;
    const void *data;
    size_t bytes;
    enum status status = STATUS_OK;
    while (status == STATUS_OK) {
        status = disk_reader_session_after(reader, after, &key, &data, &bytes);
        if (status == STATUS_OK && wants(job, &key)) {
            status = decode_and_take(job, disk, reader, &key, data, bytes, take);
        }
        after = &key;
    }
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

// One session of one user is found by its key.
static enum status find_session(struct inspector_job *job, struct disk *disk,
                                struct disk_reader *reader, take_session take)
{
    struct checkpoint_key key;
    const void *data;
    size_t bytes;
    checkpoint_key_make(job->name, job->salt, job->salt_bytes, &key);
    enum status status = disk_reader_session(reader, &key, &data, &bytes);
    if (status == STATUS_OK) {
        status = decode_and_take(job, disk, reader, &key, data, bytes, take);
    }
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

static enum status visit_sessions(struct inspector_job *job, struct disk *disk, take_session take)
{
    struct disk_reader *reader;
    enum status status = disk_reader_begin(disk, &reader);
    if (status == STATUS_OK) {
        status = job->scoped && job->name[0] != '\0' ? find_session(job, disk, reader, take)
                                                     : walk_sessions(job, disk, reader, take);
        disk_reader_end(reader);
    }
    return status;
}

// Fills in a row; *out_ids [block_count] are the ids of its blocks, for the caller to free().
static enum status describe_session(struct disk *disk, struct disk_reader *reader,
                                    const struct checkpoint_record *record,
                                    struct kv_session_info *out_row, struct block_id **out_ids)
{
    const struct kv_namespace *name_space = disk_namespace(disk);
    const struct kv_checkpoint *checkpoint = &record->checkpoint;
    struct kv_session_info row = {
        .salt_bytes = checkpoint->salt_bytes,
        .token_count = checkpoint->token_count,
        .created_ms = record->created_ms,
        .updated_ms = record->updated_ms,
        .keep = checkpoint->keep,
    };
    enum status status = checkpoint_chain(checkpoint, name_space->fingerprint,
                                          name_space->block_tokens, out_ids, &row.block_count);
    if (status != STATUS_OK) {
        return status;
    }
    memcpy(row.name, checkpoint->name, strlen(checkpoint->name) + 1);
    memcpy(row.salt, checkpoint->salt, checkpoint->salt_bytes);
    memcpy(row.fingerprint, name_space->fingerprint, sizeof(row.fingerprint));
    row.payload_bytes = row.block_count * disk_payload_bytes(disk);
    for (uint32_t i = 0; i < row.block_count; i++) {
        const uint8_t *value;
        row.disk_block_count += disk_reader_block(reader, &(*out_ids)[i], &value) == STATUS_OK;
    }
    *out_row = row;
    return STATUS_OK;
}

static enum status append_ids(struct inspector_job *job, const struct block_id *ids, uint32_t count)
{
    if (count == 0) {
        return STATUS_OK;
    }
    struct block_id *larger = realloc(job->ids, ((size_t)job->id_count + count) * sizeof(*larger));
    if (larger == NULL) {
        return STATUS_NO_MEMORY;
    }
    memcpy(larger + job->id_count, ids, count * sizeof(*ids));
    job->ids = larger;
    job->id_count += count;
    return STATUS_OK;
}

static enum status take_row(struct inspector_job *job, struct disk *disk,
                            struct disk_reader *reader, const struct checkpoint_record *record)
{
    struct kv_session_list *list = &job->reply.session_list;
    struct block_id *ids = NULL;
    if (list->count == KV_SESSIONS_MAX) {
        return STATUS_OK;
    }
    struct kv_session_info *larger =
        realloc(list->rows, ((size_t)list->count + 1) * sizeof(*larger));
    if (larger == NULL) {
        return STATUS_NO_MEMORY;
    }
    list->rows = larger;
    enum status status = describe_session(disk, reader, record, &larger[list->count], &ids);
    if (status == STATUS_OK) {
        status = append_ids(job, ids, larger[list->count].block_count);
        list->count += status == STATUS_OK;
    }
    free(ids);
    return status;
}

// Keeps, of the sessions of the job's name, the one that was updated last.
static enum status take_copy(struct inspector_job *job, struct disk *disk,
                             struct disk_reader *reader, const struct checkpoint_record *record)
{
    struct kv_checkpoint *best = &job->reply.session_get;
    (void)disk;
    (void)reader;
    if (best->name != NULL && record->updated_ms <= job->updated_ms) {
        return STATUS_OK;
    }
    struct kv_checkpoint copy;
    enum status status = checkpoint_copy(&record->checkpoint, &copy);
    if (status == STATUS_OK) {
        checkpoint_copy_finish(best);
        *best = copy;
        job->updated_ms = record->updated_ms;
    }
    return status;
}

static enum status take_chain(struct inspector_job *job, struct disk *disk,
                              struct disk_reader *reader, const struct checkpoint_record *record)
{
    const struct kv_namespace *name_space = disk_namespace(disk);
    struct block_id *ids;
    uint32_t count;
    (void)reader;
    if (job->found && record->updated_ms <= job->updated_ms) {
        return STATUS_OK;
    }
    enum status status = checkpoint_chain(&record->checkpoint, name_space->fingerprint,
                                          name_space->block_tokens, &ids, &count);
    if (status == STATUS_OK) {
        free(job->ids);
        job->ids = ids;
        job->id_count = count;
        job->found = true;
        job->updated_ms = record->updated_ms;
    }
    return status;
}

static enum status not_found(struct inspector_job *job)
{
    if (job->damaged_session_count > 0) {
        return reason_set(&job->reply.reason, STATUS_NOT_FOUND,
                          "kvctl verify lists what is damaged",
                          "session %s: not found, or its record is damaged", job->name);
    }
    return reason_set(&job->reply.reason, STATUS_NOT_FOUND, "list them with kvctl sessions",
                      "session %s: not found", job->name);
}

// ---- what each job is, over one namespace

static enum status list_visit(struct inspector *inspector, struct inspector_job *job,
                              struct disk *disk)
{
    uint32_t before = job->id_count;
    enum status status = visit_sessions(job, disk, take_row);
    if (disk != inspector->active) {
        job->id_count = before; // nobody asks for these
    }
    return status;
}

static enum status get_visit(struct inspector *inspector, struct inspector_job *job,
                             struct disk *disk)
{
    (void)inspector;
    return visit_sessions(job, disk, take_copy);
}

static enum status verify_visit(struct inspector *inspector, struct inspector_job *job,
                                struct disk *disk)
{
    struct kv_verify_reply *reply = &job->reply.verify;
    if (disk == inspector->active) {
        return verify_disk(disk, &inspector->stopping, reply, &job->damage);
    }
    struct verify_damage damage = {0};
    uint64_t repaired = 0;
    enum status status = verify_disk(disk, &inspector->stopping, reply, &damage);
    if (status == STATUS_OK && job->verify.repair) {
        status = verify_repair(disk, &damage, &repaired); // nobody else writes it
        reply->repaired_count += repaired;
    }
    verify_damage_finish(&damage);
    return status;
}

static enum status read_block(struct inspector *inspector, struct inspector_job *job)
{
    struct disk *disk = inspector->active;
    struct kv_block_reply *out = &job->reply.block;
    struct disk_reader *reader;
    struct block_id id;
    const uint8_t *value;
    if (disk == NULL) {
        return STATUS_NOT_FOUND;
    }
    memcpy(id.bytes, job->block.id, sizeof(id.bytes));
    enum status status = disk_reader_begin(disk, &reader);
    if (status != STATUS_OK) {
        return status;
    }
    status = disk_reader_block(reader, &id, &value);
    if (status == STATUS_OK) {
        const struct kv_namespace *name_space = disk_namespace(disk);
        memcpy(out->info.id, id.bytes, sizeof(out->info.id));
        memcpy(&out->header, value, sizeof(out->header));
        out->intact = verify_block(disk, &id, value);
        value_stats_of(&name_space->groups[0], name_space->block_tokens,
                       value + sizeof(struct block_header), &out->keys, &out->values);
    }
    disk_reader_end(reader);
    return status;
}

static enum status run_job(struct inspector *inspector, struct inspector_job *job)
{
    enum status status;
    switch (job->op) {
    case KV_OP_SESSION_LIST:
        return visit_all(inspector, job, list_visit);
    case KV_OP_SESSION_GET:
        status = visit_all(inspector, job, get_visit);
        return status == STATUS_OK && job->reply.session_get.name == NULL ? not_found(job) : status;
    case KV_OP_BLOCKS:
        status = inspector->active != NULL ? visit_sessions(job, inspector->active, take_chain)
                                           : STATUS_OK;
        return status == STATUS_OK && !job->found ? not_found(job) : status;
    case KV_OP_BLOCK:
        return read_block(inspector, job);
    case KV_OP_VERIFY:
        return visit_all(inspector, job, verify_visit);
    default:
        return STATUS_UNSUPPORTED;
    }
}

// ---- the thread

static void inspector_body(void *argument)
{
    struct inspector *inspector = argument;
    struct inspector_job *job;
    while (os_queue_pop(&inspector->jobs, &job, OS_WAIT_FOREVER) == STATUS_OK) {
        // Relaxed: the flag only cuts work short.
        job->reply.op = job->op;
        bool stopping = atomic_load_explicit(&inspector->stopping, memory_order_relaxed);
        enum status status = stopping ? STATUS_CLOSED : run_job(inspector, job);
        if (status != STATUS_OK) {
            struct reason reason = job->reply.reason;
            kv_reply_finish(&job->reply);
            job->reply.reason = reason;
            job->reply.op = job->op;
        }
        job->reply.status = status;
        status = os_queue_try_push(&inspector->results, &job);
        assert(status == STATUS_OK); // sized for everything that can be submitted
        bell_ring(inspector->bell);
    }
}

enum status inspector_start(const struct catalog *catalog, struct disk *active, struct bell *bell,
                            struct inspector **out_inspector)
{
    struct inspector *inspector = calloc(1, sizeof(*inspector));
    if (inspector == NULL) {
        return STATUS_NO_MEMORY;
    }
    inspector->catalog = catalog;
    inspector->active = active;
    inspector->bell = bell;
    atomic_init(&inspector->stopping, false);
    size_t item_bytes = sizeof(struct inspector_job *);
    enum status status = os_queue_init(&inspector->jobs, item_bytes, INSPECTOR_JOBS_MAX);
    if (status == STATUS_OK) {
        status = os_queue_init(&inspector->results, item_bytes, INSPECTOR_JOBS_MAX);
    }
    if (status == STATUS_OK) {
        status = os_thread_start("inspector", inspector_body, inspector, &inspector->thread);
    }
    if (status != STATUS_OK) {
        inspector_destroy(inspector);
        return status;
    }
    *out_inspector = inspector;
    return STATUS_OK;
}

void inspector_stop(struct inspector *inspector)
{
    atomic_store_explicit(&inspector->stopping, true, memory_order_relaxed);
    os_queue_close(&inspector->jobs);
    os_thread_join(inspector->thread);
    inspector->thread = NULL;
}

void inspector_destroy(struct inspector *inspector)
{
    if (inspector == NULL) {
        return;
    }
    assert(inspector->thread == NULL);
    struct inspector_job *job;
    while (inspector->results.items != NULL && inspector_next_result(inspector, &job)) {
        inspector_job_destroy(job);
    }
    os_queue_finish(&inspector->jobs);
    os_queue_finish(&inspector->results);
    free(inspector);
}

enum status inspector_submit(struct inspector *inspector, struct inspector_job *job)
{
    if (inspector->job_count == INSPECTOR_JOBS_MAX) {
        return STATUS_BUSY;
    }
    enum status status = os_queue_try_push(&inspector->jobs, &job);
    if (status == STATUS_OK) {
        inspector->job_count++;
    }
    return status;
}

bool inspector_next_result(struct inspector *inspector, struct inspector_job **out_job)
{
    if (os_queue_pop(&inspector->results, out_job, 0) != STATUS_OK) {
        return false;
    }
    inspector->job_count--;
    return true;
}
