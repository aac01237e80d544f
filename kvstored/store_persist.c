// SPDX-License-Identifier: Apache-2.0
// The store's side of the disk's threads. A payload's persistence is a small machine of its own:
//
//     NONE ── store_save ──▶ SAVING ── result ok ──▶ SAVED (its id is in `on_disk`)
//      ▲                        │
//      └──── result not ok ─────┘ (want_save: again when there is room, or persistence recovers)
//
// Persistence that stops (full disk, failing sync) is a state in words and a time to try again;
// serving goes on, and blocks that wait to be written may then be evicted.

#include "kvstored/disk_reader.h"
#include "kvstored/store_internal.h"

#include "proto/block_id.h"
#include "proto/config_file.h"
#include "proto/os/clock.h"
#include "proto/os/disk_file.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RESULTS_STEP = 1024,       // results taken in one after another
    ROOM_BYTES_MIN = 32 << 20, // freed at least when the budget is full
};

// ---- state

static void settle_all(struct store *store)
{
    for (uint32_t slot = 0; slot < store->arena.slot_count; slot++) {
        if (store->slots[slot].want_save) {
            store_slot_settle(store, slot);
        }
    }
}

static const char *why_stopped(enum status status)
{
    switch (status) {
    case STATUS_REFUSED:
        return "the disk budget is full, and nothing may be evicted";
    case STATUS_NO_SPACE:
        return "the disk is full";
    case STATUS_PERMISSION:
        return "the store's folder cannot be written";
    case STATUS_DAMAGED:
        return "the store's tables are damaged";
    case STATUS_NO_MEMORY:
        return "out of memory";
    default:
        return "the disk reports errors";
    }
}

static void stop_persistence(struct store *store, enum status status, const char *why)
{
    struct store_persistence *persistence = &store->persistence;
    persistence->ok = false;
    persistence->probing = false;
    persistence->status = status;
    persistence->retry_ms = os_clock_ms() + STORE_RETRY_MS;
    snprintf(persistence->state, sizeof(persistence->state), "stopped: %s", why);
    settle_all(store);
}

void store_write_failed(struct store *store, enum status status)
{
    if (status == STATUS_NO_SPACE || status == STATUS_IO || status == STATUS_DAMAGED ||
        status == STATUS_PERMISSION) {
        stop_persistence(store, status, why_stopped(status));
    }
}

static void resume_persistence(struct store *store)
{
    struct store_persistence *persistence = &store->persistence;
    if (!persistence->ok) {
        persistence->ok = true;
        persistence->probing = false;
        snprintf(persistence->state, sizeof(persistence->state), "ok");
        settle_all(store);
    }
}

// ---- writing

bool store_on_disk(const struct store *store, const struct block_id *id)
{
    uint32_t value;
    return store->disk != NULL && block_index_find(&store->on_disk, id, &value);
}

static void submit_block(struct store *store, uint32_t slot)
{
    struct store_slot *info = &store->slots[slot];
    info->want_save = false;
    info->saving = true;
    writeback_submit_block(store->writeback, &(struct writeback_block){
                                                 .slot = slot,
                                                 .id = info->id,
                                                 .header = arena_header(&store->arena, slot),
                                                 .payload = arena_payload(&store->arena, slot),
                                             });
    store_slot_settle(store, slot);
}

void store_save(struct store *store, uint32_t slot)
{
    struct store_slot *info = &store->slots[slot];
    assert(info->indexed);
    if (!store->has_catalog || info->saving || info->damaged) {
        return;
    }
    if (store_on_disk(store, &info->id)) {
        info->want_save = false;
    } else if (store->disk != NULL && (store->persistence.ok || store->persistence.probing) &&
               !store->persistence.evicting && !store->detaching) {
        submit_block(store, slot);
        return;
    } else {
        info->want_save = true;
    }
    store_slot_settle(store, slot);
}

// Submits what waits to be written; false when nothing does.
static bool save_waiting(struct store *store)
{
    bool any = false;
    for (uint32_t slot = 0; slot < store->arena.slot_count; slot++) {
        if (store->slots[slot].want_save) {
            store_save(store, slot);
            any = any || store->slots[slot].saving;
        }
    }
    return any;
}

void store_forget_on_disk(struct store *store, const struct block_id *ids, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        block_index_remove(&store->on_disk, &ids[i]);
    }
}

static struct writeback_job *new_job(enum writeback_job_kind kind)
{
    struct writeback_job *job = calloc(1, sizeof(*job));
    if (job != NULL) {
        job->kind = kind;
    }
    return job;
}

enum status store_remove_blocks(struct store *store, const struct block_id *ids, uint32_t count,
                                struct store_repair *repair)
{
    struct writeback_job *job = new_job(WRITEBACK_REMOVE_BLOCKS);
    if (job == NULL) {
        return STATUS_NO_MEMORY;
    }
    job->ids = malloc(count * sizeof(*ids));
    enum status status = STATUS_NO_MEMORY;
    if (job->ids != NULL) {
        memcpy(job->ids, ids, count * sizeof(*ids));
        job->id_count = count;
        job->repair = repair;
        status = writeback_submit_job(store->writeback, job);
    }
    if (status != STATUS_OK) {
        writeback_job_destroy(job);
    }
    return status;
}

enum status store_remove_session(struct store *store, const struct checkpoint_key *key,
                                 struct store_repair *repair)
{
    struct writeback_job *job = new_job(WRITEBACK_REMOVE_SESSION);
    enum status status = job != NULL ? store_held_ids(store, &job->held) : STATUS_NO_MEMORY;
    if (status == STATUS_OK) {
        job->key = *key;
        job->repair = repair;
        status = writeback_submit_job(store->writeback, job);
    }
    if (status != STATUS_OK) {
        writeback_job_destroy(job);
    }
    return status;
}

// How much to free: what waits, and some more so that it is not asked for again at once.
static uint64_t room_wanted(const struct store *store)
{
    uint64_t bytes = 0;
    for (uint32_t slot = 0; slot < store->arena.slot_count; slot++) {
        if (store->slots[slot].want_save || store->slots[slot].saving) {
            bytes += disk_value_bytes(store->disk);
        }
    }
    uint64_t more = store->disk_bytes_max / 16;
    return bytes + (more < ROOM_BYTES_MIN ? more : ROOM_BYTES_MIN);
}

void store_make_room(struct store *store)
{
    if (store->persistence.evicting || store->disk == NULL) {
        return;
    }
    struct writeback_job *job = new_job(WRITEBACK_EVICT);
    enum status status = job != NULL ? store_held_ids(store, &job->held) : STATUS_NO_MEMORY;
    if (status == STATUS_OK) {
        job->bytes = room_wanted(store);
        status = writeback_submit_job(store->writeback, job);
    }
    if (status != STATUS_OK) {
        writeback_job_destroy(job);
        stop_persistence(store, status, why_stopped(status));
        return;
    }
    store->persistence.evicting = true;
}

static void room_made(struct store *store, const struct writeback_job *job)
{
    store->persistence.evicting = false;
    if (job->status == STATUS_OK) {
        save_waiting(store);
    } else {
        stop_persistence(store, job->status, why_stopped(job->status));
    }
}

// What a write came to.
static void block_written(struct store *store, const struct writeback_result *result)
{
    struct store_slot *info = &store->slots[result->slot];
    info->saving = false;
    switch (result->status) {
    case STATUS_OK:
        if (block_index_insert(&store->on_disk, &info->id, 0) == STATUS_NO_MEMORY) {
            break; // it is on disk, and is found again at the next start
        }
        store->counters.written_block_count += result->written_bytes > 0;
        store->counters.written_bytes += result->written_bytes;
        resume_persistence(store);
        break;
    case STATUS_DAMAGED: // it decayed in memory: nobody is to find it
        store->counters.mismatch_count++;
        info->damaged = true;
        break;
    case STATUS_REFUSED:
        info->want_save = true;
        store_make_room(store);
        break;
    case STATUS_CANCELLED:
        info->want_save = true;
        break;
    default:
        info->want_save = true;
        stop_persistence(store, result->status, why_stopped(result->status));
        break;
    }
}

static void job_finished(struct store *store, struct writeback_job *job)
{
    store_forget_on_disk(store, job->removed.ids, job->removed.count);
    if (job->repair != NULL) {
        store_repair_done(store, job->repair, job);
    } else if (job->kind == WRITEBACK_EVICT) {
        room_made(store, job);
    } else if (job->kind != WRITEBACK_REMOVE_BLOCKS) { // that is a service: nobody waits for it
        store_job_done(store, job);
    }
    writeback_job_destroy(job);
}

// Takes results in, up to RESULTS_STEP blocks; false when there are no more.
static bool take_written(struct store *store)
{
    uint32_t slots[RESULTS_STEP];
    uint32_t count = 0;
    struct writeback_result result;
    bool more = true;
    while (count < RESULTS_STEP && (more = writeback_next_result(store->writeback, &result))) {
        if (result.job != NULL) {
            job_finished(store, result.job);
        } else {
            block_written(store, &result);
            slots[count++] = result.slot;
        }
    }
    // The last first, so that the end of a chain is evicted before its start.
    for (uint32_t i = count; i > 0; i--) {
        store_slot_settle(store, slots[i - 1]);
    }
    return more;
}

// ---- reading

void store_load(struct store *store, uint32_t slot, const struct block_id *id, struct lease *lease,
                uint32_t block_index)
{
    struct store_slot *info = &store->slots[slot];
    *info =
        (struct store_slot){.loading = true, .loader_lease = lease, .loader_block = block_index};
    loader_submit(store->loader, &(struct loader_block){
                                     .slot = slot,
                                     .id = *id,
                                     .header = arena_header(&store->arena, slot),
                                     .payload = arena_payload(&store->arena, slot),
                                 });
}

// The tokens that the waiting lease means, against those that came from disk.
static bool loaded_tokens_match(struct store *store, const struct lease *lease,
                                uint32_t block_index, const struct block_header *header)
{
    uint32_t block_tokens = store->name_space.block_tokens;
    const uint32_t *tokens = lease_tokens(lease, block_index, block_tokens);
    return tokens != NULL && memcmp(header->tokens, tokens, block_tokens * sizeof(*tokens)) == 0;
}

// A block is READY in the slot of a lease that waited for it.
static void finish_load(struct store *store, uint32_t slot, struct lease *lease,
                        uint32_t block_index)
{
    struct lease_block *block = &lease->blocks[block_index];
    arena_slot_finish_load(arena_word(&store->arena, slot), arena_generation(&store->arena, slot));
    store->counters.loaded_count++;
    if (store_slot_index(store, slot, arena_header(&store->arena, slot))) {
        block->stage = LEASE_BLOCK_CACHED;
        store->slots[slot].lease_count = 1;
        store->slots[slot].hit_count = 1;
        store_slot_settle(store, slot);
    } else {
        block->stage = LEASE_BLOCK_PRIVATE;
    }
}

// What was promised from disk cannot be read: the slot is lent to be computed, like that of a miss.
static void fail_load(struct store *store, uint32_t slot, struct lease *lease, uint32_t block_index,
                      enum status status)
{
    struct lease_block *block = &lease->blocks[block_index];
    block->stage = LEASE_BLOCK_LENT;
    store->counters.load_failed_count++;
    if (status == STATUS_DAMAGED || status == STATUS_NOT_FOUND) {
        store_forget_on_disk(store, &block->id, 1);
    }
    if (status == STATUS_DAMAGED) {
        (void)!store_remove_blocks(store, &block->id, 1, NULL); // else the next read finds it again
    }
    arena_slot_fail_load(arena_word(&store->arena, slot), arena_generation(&store->arena, slot));
}

static void block_loaded(struct store *store, const struct loader_result *result)
{
    uint32_t slot = result->slot;
    struct store_slot *info = &store->slots[slot];
    struct lease *lease = info->loader_lease;
    uint32_t block_index = info->loader_block;
    enum status status = result->status;
    *info = (struct store_slot){0};
    if (lease == NULL) {
        arena_release(&store->arena, slot); // nobody waits any more
        return;
    }
    lease->loading_count--;
    if (status == STATUS_OK &&
        !loaded_tokens_match(store, lease, block_index, arena_header(&store->arena, slot))) {
        store->counters.mismatch_count++;
        status = STATUS_DAMAGED;
    }
    if (status == STATUS_OK) {
        finish_load(store, slot, lease, block_index);
    } else {
        fail_load(store, slot, lease, block_index, status);
    }
}

// ---- attaching

// Ids of all blocks on disk: leaf pages alone are read, no payload.
static enum status list_blocks(struct disk *disk, struct block_index *out_ids)
{
    struct disk_reader *reader;
    struct block_index ids;
    struct block_id id;
    const struct block_id *after = NULL;
    const uint8_t *value;
    enum status status = disk_reader_begin(disk, &reader);
    if (status != STATUS_OK) {
        return status;
    }
    status = block_index_init(&ids, 0);
    while (status == STATUS_OK) {
        status = disk_reader_block_after(reader, after, &id, &value);
        if (status == STATUS_OK && value != NULL) {
            status = block_index_insert(&ids, &id, 0);
        }
        after = &id;
    }
    disk_reader_end(reader);
    if (status != STATUS_NOT_FOUND) {
        block_index_finish(&ids);
        return status;
    }
    *out_ids = ids;
    return STATUS_OK;
}

// Also when the disk was full at the start: the budget is settled then.
static enum status budget_too_small(const struct store *store, struct reason *reason)
{
    char budget[32], others[32], minimum[32];
    size_format(store->disk_bytes_max, budget);
    size_format(store->disk_other_bytes, others);
    size_format(DISK_BYTES_MIN, minimum);
    return reason_set(reason, STATUS_REFUSED, "",
                      "the disk budget of %s less %s of other models is under %s; free disk and "
                      "restart kvstored, or raise --disk-space",
                      budget, others, minimum);
}

// Opens the disk and reads its index; a damaged one is moved out of the way and begun anew.
static enum status open_disk(struct store *store, bool damaged, struct disk **out_disk,
                             char *out_aside, struct reason *reason)
{
    struct catalog_name name;
    char path[CATALOG_PATH_BYTES];
    catalog_name_of(store->name_space.fingerprint, &name);
    catalog_path(&store->catalog, &name, path);
    enum status status =
        catalog_usage(&store->catalog, &name, &store->disk_other_bytes, &store->disk_other_count);
    if (status != STATUS_OK) {
        return reason_set(reason, status, "check the store's folder", "store: cannot be listed");
    }
    if (store->disk_other_bytes + DISK_BYTES_MIN > store->disk_bytes_max) {
        return budget_too_small(store, reason);
    }
    const struct disk_options options = {
        .folder = path,
        .name_space = &store->name_space,
        .bytes_max = store->disk_bytes_max - store->disk_other_bytes,
    };
    if (damaged) {
        (void)!catalog_set_aside(&store->catalog, &name, out_aside); // else it is met again
    }
    for (int attempt = 0; attempt < 2; attempt++) {
        struct disk *disk = NULL;
        status = disk_open(&options, &disk, reason);
        if (status == STATUS_OK) {
            status = list_blocks(disk, &store->on_disk);
            if (status == STATUS_OK) {
                *out_disk = disk;
                return STATUS_OK;
            }
            disk_close(disk);
        }
        if (status != STATUS_DAMAGED ||
            catalog_set_aside(&store->catalog, &name, out_aside) != STATUS_OK) {
            break;
        }
    }
    return status;
}

static enum status start_threads(struct store *store)
{
    uint32_t slot_count = store->arena.slot_count;
    enum status status = writeback_start(store->disk, &store->bell, slot_count, &store->writeback);
    if (status == STATUS_OK) {
        status = loader_start(store->disk, &store->bell, slot_count, &store->loader);
        if (status != STATUS_OK) {
            writeback_stop(store->writeback, 0);
            writeback_destroy(store->writeback);
            store->writeback = NULL;
        }
    }
    return status;
}

void store_disk_attach(struct store *store, bool damaged)
{
    struct reason reason = {0};
    char aside[OS_NAME_BYTES] = "";
    assert(store->disk == NULL && store->has_catalog && store->has_namespace);
    enum status status = open_disk(store, damaged, &store->disk, aside, &reason);
    if (status == STATUS_OK) {
        status = start_threads(store);
        if (status != STATUS_OK) {
            disk_close(store->disk);
            store->disk = NULL;
            block_index_finish(&store->on_disk);
        }
    }
    if (status != STATUS_OK) {
        stop_persistence(store, status, reason.text[0] != '\0' ? reason.text : why_stopped(status));
        return;
    }
    resume_persistence(store);
    if (aside[0] != '\0') {
        snprintf(store->persistence.state, sizeof(store->persistence.state),
                 "ok; a damaged store was set aside as %s", aside);
    }
    (void)save_waiting(store);
}

// What the threads did not come to any more.
static void forget_disk_work(struct store *store)
{
    for (uint32_t slot = 0; slot < store->arena.slot_count; slot++) {
        assert(!store->slots[slot].saving && !store->slots[slot].loading);
    }
    store->persistence.evicting = false;
    store->persistence.probing = false;
}

void store_disk_detach(struct store *store, uint32_t timeout_ms)
{
    if (store->disk == NULL) {
        return;
    }
    store->detaching = true;
    loader_stop(store->loader);
    // What still waits for its blocks gets its record behind them.
    uint64_t deadline = os_clock_deadline(timeout_ms);
    while (store->pending != NULL && os_clock_left(deadline) > 0) {
        store_poll(store);
        if (store->pending != NULL) {
            bell_wait(&store->bell, os_clock_left(deadline));
        }
    }
    writeback_stop(store->writeback, os_clock_left(deadline));
    store_poll(store);
    forget_disk_work(store);
    writeback_destroy(store->writeback);
    loader_destroy(store->loader);
    disk_close(store->disk);
    block_index_finish(&store->on_disk);
    store->writeback = NULL;
    store->loader = NULL;
    store->disk = NULL;
    store->detaching = false;
}

enum status store_inspector_start(struct store *store, struct reason *reason)
{
    enum status status =
        inspector_start(&store->catalog, store->disk, &store->bell, &store->inspector);
    return status == STATUS_OK
               ? status
               : reason_set(reason, status, "", "store: a thread cannot be started");
}

void store_inspector_stop(struct store *store)
{
    struct inspector_job *job;
    if (store->inspector == NULL) {
        return;
    }
    inspector_stop(store->inspector);
    while (inspector_next_result(store->inspector, &job)) {
        store_inspector_done(store, job);
    }
    inspector_destroy(store->inspector);
    store->inspector = NULL;
}

// ---- taking in

void store_retry_now(struct store *store)
{
    if (store->has_catalog && store->has_namespace && !store->persistence.ok &&
        !store->persistence.probing) {
        store->persistence.retry_ms = 0;
    }
}

// Tries again what stopped: a disk that could not be opened, or spoiled itself, is opened anew.
static void retry_persistence(struct store *store)
{
    struct store_persistence *persistence = &store->persistence;
    if (!store->has_catalog || !store->has_namespace || persistence->ok || persistence->probing ||
        persistence->evicting || store->detaching || os_clock_ms() < persistence->retry_ms) {
        return;
    }
    if (store->disk == NULL || persistence->status == STATUS_DAMAGED) {
        bool damaged = store->disk != NULL; // found so when it was written
        store_inspector_stop(store);
        store_disk_detach(store, 0);
        store_disk_attach(store, damaged);
        if (store_inspector_start(store, NULL) != STATUS_OK) {
            persistence->retry_ms = os_clock_ms() + STORE_RETRY_MS;
        }
        return;
    }
    persistence->probing = true;
    persistence->retry_ms = os_clock_ms() + STORE_RETRY_MS;
    if (!save_waiting(store)) {
        resume_persistence(store); // nothing waits: the next write shows
    }
}

void store_poll(struct store *store)
{
    struct loader_result loaded;
    struct inspector_job *job;
    while (store->loader != NULL && loader_next_result(store->loader, &loaded)) {
        block_loaded(store, &loaded);
    }
    while (store->writeback != NULL && take_written(store)) {
    }
    while (store->inspector != NULL && inspector_next_result(store->inspector, &job)) {
        store_inspector_done(store, job);
    }
    retry_persistence(store);
    store_pending_check(store);
}
