// SPDX-License-Identifier: Apache-2.0
// What a person may look at: blocks in memory and on disk, and whether all on disk is whole. What
// needs the disk goes through the inspector; its answer is completed here with what only the store
// knows.

#include "kvstored/store_internal.h"

#include "kvstored/value_stats.h"
#include "proto/block_id.h"
#include "proto/os/clock.h"

#include <stdlib.h>
#include <string.h>

// ---- one block

static void describe_slot(const struct store *store, uint32_t slot, struct kv_block_info *out)
{
    const struct store_slot *info = &store->slots[slot];
    memcpy(out->id, info->id.bytes, sizeof(out->id));
    out->tiers |= KV_TIER_RAM;
    out->token_count = info->token_count;
    out->first_position = info->first_position;
    out->lease_count = info->lease_count;
    out->hit_count = info->hit_count;
    out->age_ms = os_clock_ms() - info->touched_ms;
    out->saving = info->saving || info->want_save;
}

static struct kv_block_info describe_id(const struct store *store, const struct block_id *id)
{
    struct kv_block_info info = {0};
    uint32_t slot;
    memcpy(info.id, id->bytes, sizeof(info.id));
    info.tiers = store_on_disk(store, id) ? KV_TIER_DISK : 0;
    if (block_index_find(&store->index, id, &slot)) {
        describe_slot(store, slot, &info);
    }
    return info;
}

static void answer_from_memory(struct store *store, uint32_t slot, uint64_t ticket)
{
    struct kv_reply reply = {0};
    const struct kv_namespace *name_space = &store->name_space;
    const void *payload = arena_payload(&store->arena, slot);
    reply.block.info = describe_id(store, &store->slots[slot].id);
    reply.block.header = *arena_header(&store->arena, slot);
    reply.block.intact =
        block_verify(&reply.block.header, payload, arena_payload_bytes(&store->arena)) == STATUS_OK;
    value_stats_of(&name_space->groups[0], name_space->block_tokens, payload, &reply.block.keys,
                   &reply.block.values);
    store_answer(store, ticket, KV_OP_BLOCK, &reply);
}

static enum status submit(struct store *store, enum kv_op op, uint64_t ticket,
                          struct inspector_job *job, struct reason *reason)
{
    job->op = op;
    job->ticket = ticket;
    return store_submit_inspector(store, job, reason);
}

static struct inspector_job *new_job(struct reason *reason)
{
    struct inspector_job *job = calloc(1, sizeof(*job));
    if (job == NULL) {
        reason_set(reason, STATUS_NO_MEMORY, "", "store: out of memory");
    }
    return job;
}

enum status store_block(struct store *store, const struct kv_block_request *request,
                        uint64_t ticket, struct reason *reason)
{
    struct block_id id;
    uint32_t slot;
    memcpy(id.bytes, request->id, sizeof(id.bytes));
    if (block_index_find(&store->index, &id, &slot)) {
        answer_from_memory(store, slot, ticket);
        return STATUS_OK;
    }
    if (!store_on_disk(store, &id)) {
        return reason_set(reason, STATUS_NOT_FOUND, "list them with kvctl blocks",
                          "block: held nowhere");
    }
    struct inspector_job *job = new_job(reason);
    if (job == NULL) {
        return STATUS_NO_MEMORY;
    }
    job->block = *request;
    return submit(store, KV_OP_BLOCK, ticket, job, reason);
}

// ---- many blocks

static uint32_t limit_of(const struct kv_blocks_request *request)
{
    return request->limit == 0 ? KV_BLOCK_ROWS_MAX : request->limit;
}

static bool tier_wanted(uint32_t wanted, uint32_t tiers)
{
    return wanted == 0 || (wanted & tiers) != 0;
}

static void add_row(struct kv_block_list *list, uint32_t limit, const struct kv_block_info *info)
{
    list->total_count++;
    if (list->count < limit) {
        list->rows[list->count++] = *info;
    }
}

// The newest first; blocks of one moment in the order of their positions.
static int newest_first(const void *a, const void *b)
{
    const struct kv_block_info *one = a, *other = b;
    if (one->age_ms != other->age_ms) {
        return one->age_ms < other->age_ms ? -1 : 1;
    }
    return one->first_position < other->first_position
               ? -1
               : one->first_position > other->first_position;
}

// Blocks in memory by their last use, then those on disk alone. `rows` has room for all in memory
// and `limit` more.
static void list_all(struct store *store, uint32_t tiers, uint32_t limit,
                     struct kv_block_list *list)
{
    const struct block_index_entry *entry;
    uint32_t cursor = 0, slot;
    while ((entry = block_index_next(&store->index, &cursor)) != NULL) {
        struct kv_block_info info = describe_id(store, &entry->id);
        if (tier_wanted(tiers, info.tiers)) {
            add_row(list, UINT32_MAX, &info);
        }
    }
    if (list->count > 0) {
        qsort(list->rows, list->count, sizeof(*list->rows), newest_first);
    }
    list->count = list->count < limit ? list->count : limit;
    cursor = 0;
    while (tier_wanted(tiers, KV_TIER_DISK) &&
           (entry = block_index_next(&store->on_disk, &cursor)) != NULL) {
        if (!block_index_find(&store->index, &entry->id, &slot)) {
            struct kv_block_info info = describe_id(store, &entry->id);
            add_row(list, limit, &info);
        }
    }
}

// A session's blocks, in the order of its tokens.
static void list_chain(struct store *store, const struct inspector_job *job,
                       struct kv_block_list *list)
{
    uint32_t block_tokens = store->name_space.block_tokens;
    for (uint32_t i = 0; i < job->id_count; i++) {
        struct kv_block_info info = describe_id(store, &job->ids[i]);
        info.token_count = block_tokens;
        info.first_position = i * block_tokens;
        if (tier_wanted(job->blocks.tiers, info.tiers)) {
            add_row(list, limit_of(&job->blocks), &info);
        }
    }
}

enum status store_blocks(struct store *store, const struct kv_blocks_request *request,
                         uint64_t ticket, struct reason *reason)
{
    if (request->session == NULL) {
        struct kv_reply reply = {0};
        size_t room = (size_t)store->index.count + limit_of(request);
        reply.blocks.rows = calloc(room, sizeof(*reply.blocks.rows));
        if (reply.blocks.rows == NULL) {
            return reason_set(reason, STATUS_NO_MEMORY, "use --limit", "blocks: out of memory");
        }
        list_all(store, request->tiers, limit_of(request), &reply.blocks);
        store_answer(store, ticket, KV_OP_BLOCKS, &reply);
        return STATUS_OK;
    }
    enum status status = session_name_check(request->session, reason);
    if (status != STATUS_OK) {
        return status;
    }
    struct inspector_job *job = new_job(reason);
    if (job == NULL) {
        return STATUS_NO_MEMORY;
    }
    strcpy(job->name, request->session);
    job->blocks = (struct kv_blocks_request){.tiers = request->tiers, .limit = request->limit};
    return submit(store, KV_OP_BLOCKS, ticket, job, reason);
}

// ---- verify

enum status store_verify(struct store *store, const struct kv_verify_request *request,
                         uint64_t ticket, struct reason *reason)
{
    struct inspector_job *job = new_job(reason);
    if (job == NULL) {
        return STATUS_NO_MEMORY;
    }
    job->verify = *request;
    return submit(store, KV_OP_VERIFY, ticket, job, reason);
}

// Has the writer remove what is damaged; returns how many removals are under way.
static uint32_t begin_removals(struct store *store, struct store_repair *repair)
{
    const struct verify_damage *damage = &repair->job->damage;
    uint32_t count = 0;
    if (damage->blocks.count > 0) {
        count += store_remove_blocks(store, damage->blocks.ids, damage->blocks.count, repair) ==
                 STATUS_OK;
    }
    for (uint32_t i = 0; i < damage->key_count; i++) {
        count += store_remove_session(store, &damage->keys[i], repair) == STATUS_OK;
    }
    return count;
}

// Damage in the namespace in use: nobody is to be promised it. True when a repair answers later; it
// has the job then.
static bool handle_damage(struct store *store, struct inspector_job *job)
{
    const struct verify_damage *damage = &job->damage;
    store_forget_on_disk(store, damage->blocks.ids, damage->blocks.count);
    if (!job->verify.repair || store->writeback == NULL || store->detaching) {
        return false;
    }
    struct store_repair *repair = calloc(1, sizeof(*repair));
    if (repair == NULL) {
        return false;
    }
    repair->job = job;
    repair->waiting_count = begin_removals(store, repair);
    if (repair->waiting_count == 0) {
        free(repair);
        return false;
    }
    return true;
}

void store_repair_done(struct store *store, struct store_repair *repair,
                       const struct writeback_job *job)
{
    struct kv_verify_reply *reply = &repair->job->reply.verify;
    reply->repaired_count += job->removed.session_count + job->removed.count;
    if (--repair->waiting_count == 0) {
        store_answer(store, repair->job->ticket, KV_OP_VERIFY, &repair->job->reply);
        inspector_job_destroy(repair->job);
        free(repair);
    }
}

// ---- what the inspector answered

static void count_in_memory(struct store *store, const struct inspector_job *job,
                            struct kv_session_list *list)
{
    uint32_t at = 0;
    for (uint32_t row = 0; row < list->count && at < job->id_count; row++) {
        for (uint32_t i = 0; i < list->rows[row].block_count && at < job->id_count; i++, at++) {
            uint32_t slot;
            list->rows[row].ram_block_count +=
                block_index_find(&store->index, &job->ids[at], &slot);
        }
    }
}

// Adds to an answer what only the store knows. False when it is answered later.
static bool complete(struct store *store, struct inspector_job *job)
{
    struct kv_reply *reply = &job->reply;
    struct block_id id;
    switch (job->op) {
    case KV_OP_SESSION_LIST:
        count_in_memory(store, job, &reply->session_list);
        break;
    case KV_OP_BLOCKS:
        reply->blocks.rows = calloc(job->id_count + 1, sizeof(*reply->blocks.rows));
        if (reply->blocks.rows != NULL) {
            list_chain(store, job, &reply->blocks);
        }
        break;
    case KV_OP_BLOCK:
        memcpy(id.bytes, job->block.id, sizeof(id.bytes));
        reply->block.info = describe_id(store, &id);
        reply->block.info.token_count = reply->block.header.token_count;
        reply->block.info.first_position = reply->block.header.first_position;
        break;
    case KV_OP_VERIFY:
        return !handle_damage(store, job);
    default:
        break;
    }
    return true;
}

void store_inspector_done(struct store *store, struct inspector_job *job)
{
    struct kv_reply *reply = &job->reply;
    store->counters.session_damaged_count += job->damaged_session_count;
    if (reply->status == STATUS_OK) {
        if (!complete(store, job)) {
            return;
        }
    } else if (reply->reason.text[0] == '\0') {
        reason_set(&reply->reason, reply->status, "see kvctl status", "%s: failed on disk (%s)",
                   kv_op_name(job->op), status_name(reply->status));
    }
    store_answer(store, job->ticket, job->op, reply); // leaves *reply empty
    inspector_job_destroy(job);
}
