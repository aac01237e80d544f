// SPDX-License-Identifier: Apache-2.0
// The two kinds of arena behind one face. What kvstored's arena says of itself is checked once,
// when mapped, against our own computation (arena_layout_check); slot references are checked when
// leased.
#include "gpud/cold_arena.h"

#include "client/kv_client.h"
#include "kvstored/store.h"
#include "proto/arena_layout.h"
#include "proto/arena_lock.h"
#include "proto/block_id.h"
#include "proto/os/clock.h"
#include "proto/os/shm.h"
#include "proto/os/thread.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { PRIVATE_CLIENT_ID = 1 };

struct cold_arena {
    uint32_t references;
    void *base;
    struct arena_layout layout;

    struct kv_client *client; // kvstored's arena, else NULL
    struct os_shm shm;

    struct store *store; // private arena, else NULL
    // Guards every call of `store`, whose one owner at a time is whoever holds it. Taken last.
    struct os_mutex store_mutex;
    uint64_t next_ticket; // guarded by store_mutex
};

// ---- kvstored's arena

static bool geometry_matches(const struct arena_geometry *geometry,
                             const struct kv_namespace *name_space)
{
    size_t group_bytes = name_space->group_count * sizeof(struct kv_group);
    return memcmp(geometry->fingerprint, name_space->fingerprint, BLOCK_ID_BYTES) == 0 &&
           geometry->block_tokens == name_space->block_tokens &&
           geometry->group_count == name_space->group_count &&
           memcmp(geometry->groups, name_space->groups, group_bytes) == 0;
}

static enum status map_arena(struct cold_arena *arena, const struct kv_namespace *name_space,
                             struct reason *reason)
{
    const struct kv_hello_reply *hello = kv_client_hello(arena->client);
    enum status status = os_shm_open(hello->arena_name, &arena->shm, reason);
    if (status != STATUS_OK) {
        return status;
    }
    arena->base = arena->shm.base;
    struct arena_geometry geometry;
    status = arena_layout_check(arena->base, arena->shm.bytes, &geometry, &arena->layout);
    if (status == STATUS_OK && !geometry_matches(&geometry, name_space)) {
        status = STATUS_MISMATCH;
    }
    if (status == STATUS_OK && atomic_load(&arena_header_at(arena->base)->epoch) != hello->epoch) {
        status = STATUS_STALE;
    }
    if (status == STATUS_OK) {
        // Held as long as the mapping: kvstored takes no slot back from us before.
        status = arena_lock_acquire(&arena->shm, &arena->layout, hello->arena_row);
    }
    if (status != STATUS_OK) {
        return reason_set(reason, status, "restart kvstored",
                          "arena %s: not what kvstored said (%s)", hello->arena_name,
                          status_name(status));
    }
    return STATUS_OK;
}

static struct cold_arena *arena_allocate(struct reason *reason)
{
    struct cold_arena *arena = calloc(1, sizeof(*arena));
    if (arena == NULL) {
        reason_set(reason, STATUS_NO_MEMORY, "", "arena: out of memory");
        return NULL;
    }
    arena->references = 1;
    os_mutex_init(&arena->store_mutex);
    return arena;
}

enum status cold_arena_attach(const char *url, const struct kv_namespace *name_space,
                              uint64_t payload_bytes_min, struct cold_arena **out_arena,
                              struct reason *reason)
{
    struct cold_arena *arena = arena_allocate(reason);
    if (arena == NULL) {
        return STATUS_NO_MEMORY;
    }
    const struct kv_client_options options = {
        .url = url,
        .program = "gpud",
        .name_space = name_space,
        .arena_bytes_min = payload_bytes_min,
    };
    enum status status = kv_client_open(&options, &arena->client, reason);
    if (status == STATUS_OK) {
        status = map_arena(arena, name_space, reason);
    }
    if (status != STATUS_OK) {
        cold_arena_destroy(arena);
        return status;
    }
    *out_arena = arena;
    return STATUS_OK;
}

// ---- a private arena

enum status cold_arena_create(const struct kv_namespace *name_space, uint64_t payload_bytes_max,
                              struct cold_arena **out_arena, struct reason *reason)
{
    struct cold_arena *arena = arena_allocate(reason);
    if (arena == NULL) {
        return STATUS_NO_MEMORY;
    }
    struct store_options options = {
        .name_space = name_space,
        .payload_bytes_max = payload_bytes_max,
    };
    os_random(&options.epoch, sizeof(options.epoch));
    enum status status = store_create(&options, &arena->store, reason);
    if (status != STATUS_OK) {
        cold_arena_destroy(arena);
        return status;
    }
    arena->base = store_arena(arena->store);
    struct arena_geometry geometry;
    status =
        arena_layout_check(arena->base, store_arena_bytes(arena->store), &geometry, &arena->layout);
    assert(status == STATUS_OK); // we made it
    *out_arena = arena;
    return STATUS_OK;
}

void cold_arena_destroy(struct cold_arena *arena)
{
    if (arena == NULL) {
        return;
    }
    kv_client_close(arena->client);
    os_shm_close(&arena->shm);
    if (arena->store != NULL) {
        store_destroy(arena->store, 0);
    }
    os_mutex_finish(&arena->store_mutex);
    free(arena);
}

bool cold_arena_is_private(const struct cold_arena *arena)
{
    return arena->client == NULL;
}

bool cold_arena_alive(const struct cold_arena *arena)
{
    return arena->client == NULL || kv_client_alive(arena->client);
}

// ---- requests to the private store

// Starts the operations that are answered by a completion. A list without a salt is of every user.
static enum status store_submit(struct store *store, const struct kv_request *request,
                                uint64_t ticket, struct reason *reason)
{
    switch (request->op) {
    case KV_OP_CHECKPOINT:
        return store_checkpoint(store, &request->checkpoint, ticket, reason);
    case KV_OP_SESSION_GET:
        return store_session_get(store, &request->session, true, ticket, reason);
    case KV_OP_SESSION_LIST:
        return store_session_list(store, &request->session, request->session.salt != NULL, ticket,
                                  reason);
    case KV_OP_SESSION_DELETE:
        return store_session_delete(store, &request->session, ticket, reason);
    default:
        return reason_set(reason, STATUS_UNSUPPORTED, "", "private arena: no operation %s",
                          kv_op_name(request->op));
    }
}

static enum status store_wait_completion(struct store *store, uint64_t ticket,
                                         struct kv_reply *out_reply, struct reason *reason)
{
    struct store_completion completion;
    while (!store_next_completion(store, &completion)) {
        store_wait(store, KV_CLIENT_TIMEOUT_MS);
        store_poll(store);
    }
    assert(completion.ticket == ticket); // one at a time, under store_mutex
    if (completion.reply.status != STATUS_OK) {
        enum status status = completion.reply.status;
        if (reason != NULL) {
            *reason = completion.reply.reason;
        }
        kv_reply_finish(&completion.reply);
        return status;
    }
    *out_reply = completion.reply;
    return STATUS_OK;
}

static enum status store_call(struct cold_arena *arena, const struct kv_request *request,
                              struct kv_reply *out_reply, struct reason *reason)
{
    struct store *store = arena->store;
    struct kv_reply reply = {.op = request->op};
    enum status status = STATUS_OK;
    switch (request->op) {
    case KV_OP_LEASE:
        status = store_lease(store, PRIVATE_CLIENT_ID, &request->lease, &reply.lease, reason);
        break;
    case KV_OP_PUBLISH:
        status = store_publish(store, PRIVATE_CLIENT_ID, &request->publish, reason);
        break;
    case KV_OP_RELEASE:
        status = store_release(store, PRIVATE_CLIENT_ID, request->release.lease_id);
        break;
    case KV_OP_STATUS:
        store_status(store, &reply.state);
        break;
    default:
        status = store_submit(store, request, ++arena->next_ticket, reason);
        if (status == STATUS_OK) {
            return store_wait_completion(store, arena->next_ticket, out_reply, reason);
        }
    }
    if (status == STATUS_OK) {
        *out_reply = reply;
    }
    return status;
}

enum status cold_arena_call(struct cold_arena *arena, const struct kv_request *request,
                            struct kv_reply *out_reply, struct reason *reason)
{
    if (arena->client != NULL) {
        return kv_client_call(arena->client, request, out_reply, reason);
    }
    os_mutex_lock(&arena->store_mutex);
    enum status status = store_call(arena, request, out_reply, reason);
    os_mutex_unlock(&arena->store_mutex);
    return status;
}

// ---- slots

static bool slot_valid(const struct cold_arena *arena, const struct kv_slot_ref *ref, bool may_hit)
{
    const struct arena_class *class = &arena->layout.classes[0];
    uint32_t reserved = atomic_load(&arena_header_at(arena->base)->reserved_count[0]);
    if (ref->slot_index < class->first_slot || ref->slot_index - class->first_slot >= reserved ||
        ref->slot_index - class->first_slot >= class->slot_count) {
        return false;
    }
    struct arena_slot slot = arena_slot_load(cold_arena_word(arena, ref->slot_index));
    if (slot.generation != ref->generation || (!may_hit && ref->source != KV_SOURCE_NEW)) {
        return false;
    }
    switch (ref->source) {
    case KV_SOURCE_NEW:
        return slot.state == ARENA_SLOT_FILLING;
    case KV_SOURCE_RAM:
        return slot.state == ARENA_SLOT_READY;
    case KV_SOURCE_DISK:
        return slot.state != ARENA_SLOT_EMPTY;
    }
    return false;
}

bool cold_arena_lease_valid(const struct cold_arena *arena, const struct kv_lease_request *request,
                            const struct kv_lease *lease)
{
    if (lease->block_count != request->block_count) {
        return false;
    }
    for (uint32_t b = 0; b < lease->block_count; b++) {
        if (!slot_valid(arena, &lease->slots[b], b < request->hit_block_max)) {
            return false;
        }
    }
    return true;
}

uint32_t cold_arena_true_blocks(const struct cold_arena *arena,
                                const struct kv_namespace *name_space,
                                const struct kv_lease_request *request,
                                const struct kv_lease *lease)
{
    uint32_t block_tokens = name_space->block_tokens;
    struct block_id id;
    block_id_root(name_space->fingerprint, request->salt, request->salt_bytes, request->mode, &id);
    for (uint32_t b = 0; b < request->hit_block_max; b++) {
        const uint32_t *tokens = request->tokens + (size_t)b * block_tokens;
        block_id_next(&id, tokens, block_tokens, &id);
        if (lease->slots[b].source != KV_SOURCE_RAM) {
            continue;
        }
        const struct block_header *header = cold_arena_header(arena, lease->slots[b].slot_index);
        if (!block_id_equal(&header->id, &id) ||
            memcmp(header->tokens, tokens, block_tokens * sizeof(*tokens)) != 0) {
            return b;
        }
    }
    return request->hit_block_max;
}

void *cold_arena_payload(const struct cold_arena *arena, uint32_t slot_index)
{
    return arena_payload_at(&arena->layout, arena->base, slot_index);
}

struct block_header *cold_arena_header(const struct cold_arena *arena, uint32_t slot_index)
{
    return arena_block_header_at(&arena->layout, arena->base, slot_index);
}

_Atomic uint64_t *cold_arena_word(const struct cold_arena *arena, uint32_t slot_index)
{
    return arena_word_at(&arena->layout, arena->base, slot_index);
}

void cold_arena_hold(struct cold_arena *arena)
{
    arena->references++;
}

bool cold_arena_drop(struct cold_arena *arena)
{
    assert(arena->references > 0);
    arena->references--;
    return arena->references == 0;
}
