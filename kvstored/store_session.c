// SPDX-License-Identifier: Apache-2.0
// Sessions and the answers that come later. A checkpoint is a small record; with `sync` its answer
// waits until every block of the chain that is in memory has been written, then for the record,
// then for the disk's own buffers. Without a disk, sessions live in memory as long as the store.

#include "kvstored/store_internal.h"

#include "proto/os/clock.h"

#include <stdlib.h>
#include <string.h>

enum { CHECKPOINT_ATTEMPTS = 2 }; // the second one after room was made

// ---- answers

void store_answer(struct store *store, uint64_t ticket, enum kv_op op, struct kv_reply *reply)
{
    reply->op = op;
    reply->epoch = store->epoch;
    struct store_answer *answer = calloc(1, sizeof(*answer));
    if (answer == NULL) {
        kv_reply_finish(reply);
        return;
    }
    answer->completion = (struct store_completion){.ticket = ticket, .reply = *reply};
    *reply = (struct kv_reply){0};
    if (store->last_answer != NULL) {
        store->last_answer->next = answer;
    } else {
        store->first_answer = answer;
    }
    store->last_answer = answer;
}

static void answer_error(struct store *store, uint64_t ticket, enum kv_op op, enum status status,
                         const char *hint, const char *text)
{
    struct kv_reply reply = {0};
    reply.status = reason_set(&reply.reason, status, hint, "%s", text);
    store_answer(store, ticket, op, &reply);
}

bool store_next_completion(struct store *store, struct store_completion *out)
{
    struct store_answer *answer = store->first_answer;
    if (answer == NULL) {
        return false;
    }
    store->first_answer = answer->next;
    if (store->first_answer == NULL) {
        store->last_answer = NULL;
    }
    *out = answer->completion;
    free(answer);
    return true;
}

// ---- sessions in memory

static struct store_memory_session *memory_find(struct store *store, const char *name,
                                                const void *salt, uint32_t salt_bytes, bool scoped)
{
    for (uint32_t i = 0; i < store->memory_session_count; i++) {
        struct store_memory_session *session = &store->memory_sessions[i];
        bool same_user =
            !scoped ||
            (session->checkpoint.salt_bytes == salt_bytes &&
             (salt_bytes == 0 || memcmp(session->checkpoint.salt, salt, salt_bytes) == 0));
        if (same_user && strcmp(session->checkpoint.name, name) == 0) {
            return session;
        }
    }
    return NULL;
}

static enum status memory_put(struct store *store, const struct kv_checkpoint *checkpoint)
{
    struct kv_checkpoint copy;
    struct store_memory_session *session =
        memory_find(store, checkpoint->name, checkpoint->salt, checkpoint->salt_bytes, true);
    if (session == NULL && store->memory_session_count == STORE_MEMORY_SESSIONS) {
        return STATUS_BUSY;
    }
    enum status status = checkpoint_copy(checkpoint, &copy);
    if (status != STATUS_OK) {
        return status;
    }
    uint64_t now = os_clock_wall_ms();
    if (session == NULL) {
        struct store_memory_session *larger =
            realloc(store->memory_sessions, (store->memory_session_count + 1) * sizeof(*larger));
        if (larger == NULL) {
            checkpoint_copy_finish(&copy);
            return STATUS_NO_MEMORY;
        }
        store->memory_sessions = larger;
        session = &larger[store->memory_session_count++];
        *session = (struct store_memory_session){.created_ms = now};
    }
    copy.keep = copy.keep || session->checkpoint.keep;
    checkpoint_copy_finish(&session->checkpoint);
    session->checkpoint = copy;
    session->updated_ms = now;
    return STATUS_OK;
}

static uint32_t whole_blocks(const struct store *store, const struct kv_checkpoint *checkpoint)
{
    return store->has_namespace ? checkpoint->token_count / store->name_space.block_tokens : 0;
}

static void memory_describe(struct store *store, const struct store_memory_session *session,
                            struct kv_session_info *out)
{
    const struct kv_checkpoint *checkpoint = &session->checkpoint;
    struct block_id *ids = NULL;
    uint32_t count = 0, slot;
    *out = (struct kv_session_info){
        .salt_bytes = checkpoint->salt_bytes,
        .token_count = checkpoint->token_count,
        .block_count = whole_blocks(store, checkpoint),
        .created_ms = session->created_ms,
        .updated_ms = session->updated_ms,
        .keep = checkpoint->keep,
    };
    strcpy(out->name, checkpoint->name);
    memcpy(out->salt, checkpoint->salt, checkpoint->salt_bytes);
    memcpy(out->fingerprint, store->name_space.fingerprint, sizeof(out->fingerprint));
    if (checkpoint_chain(checkpoint, store->name_space.fingerprint, store->name_space.block_tokens,
                         &ids, &count) == STATUS_OK) {
        for (uint32_t i = 0; i < count; i++) {
            out->ram_block_count += block_index_find(&store->index, &ids[i], &slot);
        }
        free(ids);
    }
    out->payload_bytes = out->block_count * arena_payload_bytes(&store->arena);
}

static void memory_get(struct store *store, const struct kv_session_request *request, bool scoped,
                       uint64_t ticket)
{
    struct kv_reply reply = {0};
    const struct store_memory_session *session =
        memory_find(store, request->name, request->salt, request->salt_bytes, scoped);
    if (session == NULL) {
        reply.status = reason_set(&reply.reason, STATUS_NOT_FOUND, "list them",
                                  "session %s: not found", request->name);
    } else {
        reply.status = checkpoint_copy(&session->checkpoint, &reply.session_get);
    }
    store_answer(store, ticket, KV_OP_SESSION_GET, &reply);
}

static void memory_list(struct store *store, const struct kv_session_request *request, bool scoped,
                        uint64_t ticket)
{
    struct kv_reply reply = {0};
    struct kv_session_list *list = &reply.session_list;
    list->rows = calloc(store->memory_session_count + 1, sizeof(*list->rows));
    if (list->rows == NULL) {
        answer_error(store, ticket, KV_OP_SESSION_LIST, STATUS_NO_MEMORY, "",
                     "sessions: out of memory");
        return;
    }
    for (uint32_t i = 0; i < store->memory_session_count; i++) {
        const struct store_memory_session *session = &store->memory_sessions[i];
        if (memory_find(store, session->checkpoint.name, request->salt, request->salt_bytes,
                        scoped) == session ||
            !scoped) {
            memory_describe(store, session, &list->rows[list->count++]);
        }
    }
    store_answer(store, ticket, KV_OP_SESSION_LIST, &reply);
}

static void memory_delete(struct store *store, const struct kv_session_request *request,
                          uint64_t ticket)
{
    struct kv_reply reply = {0};
    struct store_memory_session *session =
        memory_find(store, request->name, request->salt, request->salt_bytes, true);
    if (session == NULL) {
        reply.status = reason_set(&reply.reason, STATUS_NOT_FOUND, "list them",
                                  "session %s: not found", request->name);
    } else {
        checkpoint_copy_finish(&session->checkpoint);
        *session = store->memory_sessions[--store->memory_session_count];
    }
    store_answer(store, ticket, KV_OP_SESSION_DELETE, &reply);
}

static void memory_checkpoint(struct store *store, const struct kv_checkpoint *checkpoint,
                              uint64_t ticket)
{
    struct kv_reply reply = {0};
    reply.status = memory_put(store, checkpoint);
    if (reply.status == STATUS_OK) {
        reply.checkpoint.block_count = whole_blocks(store, checkpoint);
    } else {
        reply.status = reason_set(&reply.reason, reply.status, "delete one",
                                  reply.status == STATUS_BUSY ? "session: too many in memory"
                                                              : "session: out of memory");
    }
    store_answer(store, ticket, KV_OP_CHECKPOINT, &reply);
}

// ---- checkpoints on disk

static void pending_free(struct store_pending *pending)
{
    checkpoint_copy_finish(&pending->checkpoint);
    free(pending->ids);
    free(pending);
}

static void pending_remove(struct store *store, struct store_pending *pending)
{
    for (struct store_pending **at = &store->pending; *at != NULL; at = &(*at)->next) {
        if (*at == pending) {
            *at = pending->next;
            pending_free(pending);
            return;
        }
    }
}

static uint32_t durable_count(const struct store *store, const struct store_pending *pending)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < pending->count; i++) {
        count += store_on_disk(store, &pending->ids[i]);
    }
    return count;
}

static void pending_end(struct store *store, struct store_pending *pending, enum status status,
                        const char *why)
{
    struct kv_reply reply = {.status = status};
    if (status == STATUS_OK) {
        uint32_t durable = durable_count(store, pending);
        uint32_t added = durable > pending->durable_before ? durable - pending->durable_before : 0;
        reply.checkpoint = (struct kv_checkpoint_reply){
            .block_count = pending->count,
            .durable_block_count = durable,
            .written_bytes = added * arena_payload_bytes(&store->arena),
        };
    } else {
        reason_set(&reply.reason, status, "see kvctl status", "session %s: not saved: %s",
                   pending->checkpoint.name, why);
    }
    store_answer(store, pending->ticket, KV_OP_CHECKPOINT, &reply);
    pending_remove(store, pending);
}

void store_pending_fail(struct store *store, enum status status, const char *why)
{
    while (store->pending != NULL) {
        pending_end(store, store->pending, status, why);
    }
}

// Blocks of the chain that are in memory, not on disk, and on their way there or waiting for it.
static bool waits_for_blocks(const struct store *store, const struct store_pending *pending)
{
    uint32_t slot;
    for (uint32_t i = 0; i < pending->count; i++) {
        if (!store_on_disk(store, &pending->ids[i]) &&
            block_index_find(&store->index, &pending->ids[i], &slot) &&
            (store->slots[slot].saving || store->slots[slot].want_save)) {
            return true;
        }
    }
    return false;
}

static enum status submit_record(struct store *store, struct store_pending *pending)
{
    struct writeback_job *job = calloc(1, sizeof(*job));
    if (job == NULL) {
        return STATUS_NO_MEMORY;
    }
    job->kind = WRITEBACK_CHECKPOINT;
    job->ticket = pending->ticket;
    const struct kv_checkpoint *checkpoint = &pending->checkpoint;
    checkpoint_key_make(checkpoint->name, checkpoint->salt, checkpoint->salt_bytes, &job->key);
    enum status status = checkpoint_copy(checkpoint, &job->checkpoint);
    if (status == STATUS_OK) {
        status = writeback_submit_job(store->writeback, job);
    }
    if (status != STATUS_OK) {
        writeback_job_destroy(job);
        return status;
    }
    pending->submitted = true;
    pending->attempts++;
    return STATUS_OK;
}

// STATUS_REFUSED inside means the disk budget; to a user that is a lack of space.
static enum status told_status(enum status status)
{
    return status == STATUS_REFUSED ? STATUS_NO_SPACE : status;
}

// Moves one pending checkpoint on; may end it.
static void pending_step(struct store *store, struct store_pending *pending)
{
    const struct store_persistence *persistence = &store->persistence;
    bool stopped = !persistence->ok && !persistence->probing && !persistence->evicting;
    if (pending->submitted) {
        return;
    }
    if (store->disk == NULL || (stopped && persistence->retry_ms > os_clock_ms())) {
        pending_end(store, pending, told_status(persistence->status), persistence->state);
        return;
    }
    bool wait = (pending->checkpoint.sync && waits_for_blocks(store, pending)) ||
                persistence->evicting || stopped;
    if (!wait) {
        enum status status = submit_record(store, pending);
        if (status != STATUS_OK) {
            pending_end(store, pending, status, status_name(status));
        }
    }
}

void store_pending_check(struct store *store)
{
    struct store_pending *pending = store->pending;
    while (pending != NULL) {
        struct store_pending *next = pending->next;
        pending_step(store, pending);
        pending = next;
    }
}

static void checkpoint_done(struct store *store, const struct writeback_job *job)
{
    struct store_pending *pending = store->pending;
    while (pending != NULL && !(pending->submitted && pending->ticket == job->ticket)) {
        pending = pending->next;
    }
    store_write_failed(store, job->status);
    if (pending == NULL) {
        return; // its answer was given when the store gave up on it
    }
    if (job->status == STATUS_REFUSED && pending->attempts < CHECKPOINT_ATTEMPTS) {
        pending->submitted = false;
        store_make_room(store);
        return;
    }
    pending_end(store, pending, told_status(job->status),
                job->status == STATUS_REFUSED ? "the disk budget is full"
                                              : status_name(job->status));
}

void store_job_done(struct store *store, struct writeback_job *job)
{
    if (job->kind == WRITEBACK_CHECKPOINT) {
        checkpoint_done(store, job);
        return;
    }
    struct kv_reply reply = {.status = job->status};
    store_write_failed(store, job->status);
    if (job->status == STATUS_NOT_FOUND) {
        reason_set(&reply.reason, STATUS_NOT_FOUND, "list them", "session: not found");
    } else if (job->status != STATUS_OK) {
        reason_set(&reply.reason, job->status, "see kvctl status",
                   "session: not removed from disk (%s)", status_name(job->status));
    }
    store_answer(store, job->ticket, KV_OP_SESSION_DELETE, &reply);
    store_retry_now(store); // there may be room again
}

// Queues what a `sync` checkpoint needs on disk and counts what is there.
static void save_chain(struct store *store, struct store_pending *pending)
{
    uint32_t slot;
    pending->durable_before = durable_count(store, pending);
    for (uint32_t i = 0; pending->checkpoint.sync && i < pending->count; i++) {
        if (!store_on_disk(store, &pending->ids[i]) &&
            block_index_find(&store->index, &pending->ids[i], &slot)) {
            store_save(store, slot);
        }
    }
}

static enum status begin_checkpoint(struct store *store, const struct kv_checkpoint *checkpoint,
                                    uint64_t ticket)
{
    struct store_pending *pending = calloc(1, sizeof(*pending));
    if (pending == NULL) {
        return STATUS_NO_MEMORY;
    }
    pending->ticket = ticket;
    enum status status = checkpoint_copy(checkpoint, &pending->checkpoint);
    if (status == STATUS_OK) {
        status = checkpoint_chain(checkpoint, store->name_space.fingerprint,
                                  store->name_space.block_tokens, &pending->ids, &pending->count);
    }
    if (status != STATUS_OK) {
        pending_free(pending);
        return status;
    }
    // Behind those that wait already: of two with one name the later one wins.
    struct store_pending **last = &store->pending;
    while (*last != NULL) {
        last = &(*last)->next;
    }
    *last = pending;
    store_retry_now(store);
    save_chain(store, pending);
    store_pending_check(store);
    bell_ring(&store->bell); // a retry happens in store_poll
    return STATUS_OK;
}

static enum status check_identity(const char *name, uint32_t salt_bytes, struct reason *reason)
{
    if (salt_bytes > LIMIT_SALT_BYTES) {
        return reason_set(reason, STATUS_INVALID, "", "session: user identity of %u bytes",
                          salt_bytes);
    }
    return session_name_check(name, reason);
}

enum status store_checkpoint(struct store *store, const struct kv_checkpoint *checkpoint,
                             uint64_t ticket, struct reason *reason)
{
    enum status status = check_identity(checkpoint->name, checkpoint->salt_bytes, reason);
    if (status != STATUS_OK) {
        return status;
    }
    if (!store->has_namespace) {
        return reason_set(reason, STATUS_INVALID, "say hello with a namespace",
                          "session: no namespace is in use");
    }
    if (checkpoint->token_count > LIMIT_CONTEXT_TOKENS ||
        checkpoint->settings_bytes > LIMIT_SETTINGS_BYTES) {
        return reason_set(reason, STATUS_INVALID, "", "session: too long");
    }
    if (!store->has_catalog) {
        if (checkpoint->sync) {
            return reason_set(reason, STATUS_UNREACHABLE, "start kvstored",
                              "session: kvstored is not running");
        }
        memory_checkpoint(store, checkpoint, ticket);
        return STATUS_OK;
    }
    status = begin_checkpoint(store, checkpoint, ticket);
    return status == STATUS_OK ? status : reason_set(reason, status, "", "session: out of memory");
}

// ---- the other calls

enum status store_submit_inspector(struct store *store, struct inspector_job *job,
                                   struct reason *reason)
{
    enum status status =
        store->inspector != NULL ? inspector_submit(store->inspector, job) : STATUS_UNREACHABLE;
    if (status != STATUS_OK) {
        inspector_job_destroy(job);
        return reason_set(reason, status, "try again",
                          status == STATUS_BUSY ? "store: too many questions at a time"
                                                : "store: there is no disk");
    }
    return STATUS_OK;
}

static enum status submit_session_job(struct store *store, enum kv_op op,
                                      const struct kv_session_request *request, bool scoped,
                                      uint64_t ticket, struct reason *reason)
{
    struct inspector_job *job = calloc(1, sizeof(*job));
    if (job == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "session: out of memory");
    }
    job->op = op;
    job->ticket = ticket;
    job->scoped = scoped;
    if (request->name != NULL) {
        strcpy(job->name, request->name);
    }
    if (scoped && request->salt_bytes > 0) {
        memcpy(job->salt, request->salt, request->salt_bytes);
        job->salt_bytes = request->salt_bytes;
    }
    return store_submit_inspector(store, job, reason);
}

enum status store_session_get(struct store *store, const struct kv_session_request *request,
                              bool scoped, uint64_t ticket, struct reason *reason)
{
    enum status status =
        check_identity(request->name != NULL ? request->name : "", request->salt_bytes, reason);
    if (status != STATUS_OK) {
        return status;
    }
    if (!store->has_catalog) {
        memory_get(store, request, scoped, ticket);
        return STATUS_OK;
    }
    return submit_session_job(store, KV_OP_SESSION_GET, request, scoped, ticket, reason);
}

enum status store_session_list(struct store *store, const struct kv_session_request *request,
                               bool scoped, uint64_t ticket, struct reason *reason)
{
    if (request->salt_bytes > LIMIT_SALT_BYTES) {
        return reason_set(reason, STATUS_INVALID, "", "sessions: user identity of %u bytes",
                          request->salt_bytes);
    }
    if (!store->has_catalog) {
        memory_list(store, request, scoped, ticket);
        return STATUS_OK;
    }
    const struct kv_session_request all = {.salt = request->salt,
                                           .salt_bytes = request->salt_bytes};
    return submit_session_job(store, KV_OP_SESSION_LIST, &all, scoped, ticket, reason);
}

static enum status submit_removal(struct store *store, const struct kv_session_request *request,
                                  uint64_t ticket)
{
    struct writeback_job *job = calloc(1, sizeof(*job));
    if (job == NULL) {
        return STATUS_NO_MEMORY;
    }
    job->kind = WRITEBACK_REMOVE_SESSION;
    job->ticket = ticket;
    checkpoint_key_make(request->name, request->salt, request->salt_bytes, &job->key);
    enum status status = store_held_ids(store, &job->held);
    if (status == STATUS_OK) {
        status = writeback_submit_job(store->writeback, job);
    }
    if (status != STATUS_OK) {
        writeback_job_destroy(job);
    }
    return status;
}

enum status store_session_delete(struct store *store, const struct kv_session_request *request,
                                 uint64_t ticket, struct reason *reason)
{
    enum status status =
        check_identity(request->name != NULL ? request->name : "", request->salt_bytes, reason);
    if (status != STATUS_OK) {
        return status;
    }
    if (!store->has_namespace) {
        return reason_set(reason, STATUS_UNSUPPORTED, "say hello with a namespace",
                          "session: no namespace is in use");
    }
    if (!store->has_catalog) {
        memory_delete(store, request, ticket);
        return STATUS_OK;
    }
    if (store->disk == NULL) {
        return reason_set(reason, told_status(store->persistence.status), "see kvctl status",
                          "session: %s", store->persistence.state);
    }
    status = submit_removal(store, request, ticket);
    return status == STATUS_OK
               ? status
               : reason_set(reason, status, "try again", "session: cannot be removed now");
}

void store_sessions_finish(struct store *store)
{
    struct store_completion completion;
    store_pending_fail(store, STATUS_CLOSED, "the store was closed");
    while (store_next_completion(store, &completion)) {
        kv_reply_finish(&completion.reply);
    }
    for (uint32_t i = 0; i < store->memory_session_count; i++) {
        checkpoint_copy_finish(&store->memory_sessions[i].checkpoint);
    }
    free(store->memory_sessions);
}
