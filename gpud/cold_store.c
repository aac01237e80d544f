// SPDX-License-Identifier: Apache-2.0
// Which arena serves: kvstored's when it answers, else a private one.
//  - A lease holds a reference to its arena: when kvstored goes away, or appears, running requests
//    finish in the arena they began in, whose mapping stays.
//  - Blocks closed in a private arena are not copied to kvstored when it appears; sessions named
//    meanwhile are (their KV is computed again there when they are used).
//  - A release or checkpoint first waits for the mover, so that it sees every block closed before.
#include "gpud/cold_store.h"

#include "client/kv_client.h"
#include "gpud/cold_arena.h"
#include "gpud/mover.h"
#include "proto/os/clock.h"
#include "proto/os/thread.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { RETRY_ATTACH_MS = 1000 }; // an absent kvstored is not asked more often

struct cold_store {
    char *store_url; // "" = private only
    const struct kv_namespace *name_space;
    uint64_t private_payload_bytes_max;
    uint64_t payload_bytes_min;

    struct mover *mover;
    uint64_t attach_again_ms; // os_clock_ms() of the next attempt; worker thread only
    // Guards what follows and the references of arenas, and is never held over a call to an arena.
    // First in rank.
    struct os_mutex mutex;
    struct cold_arena *attached;      // kvstored's, or NULL
    struct cold_arena *private_arena; // or NULL; never both
};

// ---- references

static void drop_arena(struct cold_store *store, struct cold_arena *arena)
{
    os_mutex_lock(&store->mutex);
    bool last = cold_arena_drop(arena);
    os_mutex_unlock(&store->mutex);
    if (last) {
        cold_arena_destroy(arena);
    }
}

// kvstored's arena while it lives, else the private one, with a reference for the caller; NULL when
// there is neither.
static struct cold_arena *hold_current(struct cold_store *store)
{
    os_mutex_lock(&store->mutex);
    struct cold_arena *arena = store->attached != NULL && cold_arena_alive(store->attached)
                                   ? store->attached
                                   : store->private_arena;
    if (arena != NULL) {
        cold_arena_hold(arena);
    }
    os_mutex_unlock(&store->mutex);
    return arena;
}

// ---- attaching

// Names in kvstored the sessions that were named while it was away. Those that exist there win.
static void move_session(struct cold_arena *from, struct cold_arena *to,
                         const struct kv_session_info *info)
{
    struct kv_request get = {.op = KV_OP_SESSION_GET};
    get.session = (struct kv_session_request){
        .name = info->name, .salt = info->salt, .salt_bytes = info->salt_bytes};
    struct kv_reply reply;
    if (cold_arena_call(to, &get, &reply, NULL) == STATUS_OK) {
        kv_reply_finish(&reply);
        return;
    }
    if (cold_arena_call(from, &get, &reply, NULL) != STATUS_OK) {
        return;
    }
    struct kv_request put = {.op = KV_OP_CHECKPOINT, .checkpoint = reply.session_get};
    struct kv_reply answer;
    if (cold_arena_call(to, &put, &answer, NULL) == STATUS_OK) {
        kv_reply_finish(&answer);
    }
    kv_reply_finish(&reply);
}

static void move_sessions(struct cold_arena *from, struct cold_arena *to)
{
    const struct kv_request list = {.op = KV_OP_SESSION_LIST};
    struct kv_reply reply;
    if (cold_arena_call(from, &list, &reply, NULL) != STATUS_OK) {
        return;
    }
    for (uint32_t i = 0; i < reply.session_list.count; i++) {
        move_session(from, to, &reply.session_list.rows[i]);
    }
    kv_reply_finish(&reply);
}

// Replaces what serves from now on; leases keep what they have.
static void use_arenas(struct cold_store *store, struct cold_arena *attached,
                       struct cold_arena *private_arena)
{
    os_mutex_lock(&store->mutex);
    struct cold_arena *old_attached = store->attached;
    struct cold_arena *old_private = store->private_arena;
    store->attached = attached;
    store->private_arena = private_arena;
    os_mutex_unlock(&store->mutex);
    if (old_attached != NULL && old_attached != attached) {
        drop_arena(store, old_attached);
    }
    if (old_private != NULL && old_private != private_arena) {
        drop_arena(store, old_private);
    }
}

static enum status try_attach(struct cold_store *store, struct reason *reason)
{
    if (store->store_url[0] == '\0') {
        return reason_set(reason, STATUS_UNREACHABLE, "", "kvstored: not used");
    }
    struct cold_arena *arena = NULL;
    enum status status = cold_arena_attach(store->store_url, store->name_space,
                                           store->payload_bytes_min, &arena, reason);
    if (status != STATUS_OK) {
        store->attach_again_ms = os_clock_ms() + RETRY_ATTACH_MS;
        return status;
    }
    if (store->private_arena != NULL) {
        move_sessions(store->private_arena, arena);
    }
    use_arenas(store, arena, NULL);
    return STATUS_OK;
}

static enum status need_private(struct cold_store *store, struct reason *reason)
{
    if (store->private_arena != NULL) {
        return STATUS_OK;
    }
    struct cold_arena *arena = NULL;
    enum status status =
        cold_arena_create(store->name_space, store->private_payload_bytes_max, &arena, reason);
    if (status == STATUS_OK) {
        use_arenas(store, NULL, arena);
    }
    return status;
}

void cold_store_attach(struct cold_store *store)
{
    if (cold_store_attached(store) || os_clock_ms() < store->attach_again_ms) {
        return;
    }
    (void)!try_attach(store, NULL); // the private arena goes on serving
}

bool cold_store_attached(const struct cold_store *store)
{
    struct os_mutex *mutex = (struct os_mutex *)&store->mutex; // locking changes nothing else
    os_mutex_lock(mutex);
    bool attached = store->attached != NULL && cold_arena_alive(store->attached);
    os_mutex_unlock(mutex);
    return attached;
}

// ---- creation

// What a person has to mend before gpud can run; anything else is an absent kvstored.
static bool attach_error_is_final(enum status status)
{
    return status == STATUS_REFUSED || status == STATUS_VERSION || status == STATUS_MISMATCH ||
           status == STATUS_INVALID || status == STATUS_PERMISSION;
}

static enum status store_start(struct cold_store *store, struct reason *reason)
{
    enum status status = mover_start(&store->mover);
    if (status != STATUS_OK) {
        return reason_set(reason, status, "", "cold store: its thread could not be started");
    }
    status = try_attach(store, reason);
    if (status == STATUS_OK || attach_error_is_final(status)) {
        return status;
    }
    return need_private(store, reason);
}

enum status cold_store_create(const struct cold_store_options *options,
                              struct cold_store **out_store, bool *out_attached,
                              struct reason *reason)
{
    struct cold_store *store = calloc(1, sizeof(*store));
    if (store == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "cold store: out of memory");
    }
    os_mutex_init(&store->mutex);
    store->name_space = options->name_space;
    store->private_payload_bytes_max = options->private_payload_bytes_max;
    store->payload_bytes_min = options->payload_bytes_min;
    store->store_url = strdup(options->store_url != NULL ? options->store_url : "");
    enum status status = store->store_url != NULL ? store_start(store, reason)
                                                  : reason_set(reason, STATUS_NO_MEMORY, "",
                                                               "cold store: out of memory");
    if (status != STATUS_OK) {
        cold_store_destroy(store);
        return status;
    }
    *out_attached = cold_store_attached(store);
    *out_store = store;
    return STATUS_OK;
}

void cold_store_destroy(struct cold_store *store)
{
    if (store == NULL) {
        return;
    }
    mover_stop(store->mover);
    use_arenas(store, NULL, NULL);
    os_mutex_finish(&store->mutex);
    free(store->store_url);
    free(store);
}

// ---- requests

// Sees to it that somebody serves: kvstored when it answers, else the private arena.
static enum status need_arena(struct cold_store *store, struct reason *reason)
{
    cold_store_attach(store);
    return cold_store_attached(store) ? STATUS_OK : need_private(store, reason);
}

// Carries out a request with whoever serves; when kvstored turns out to be gone, once more with its
// successor or the private arena. On success *out_arena holds a reference for the caller.
static enum status store_call(struct cold_store *store, const struct kv_request *request,
                              struct kv_reply *out_reply, struct cold_arena **out_arena,
                              struct reason *reason)
{
    enum status status = STATUS_UNREACHABLE;
    for (int attempt = 0; attempt < 2; attempt++) {
        status = need_arena(store, reason);
        if (status != STATUS_OK) {
            return status;
        }
        struct cold_arena *arena = hold_current(store);
        if (arena == NULL) { // kvstored went away just now
            status = reason_set(reason, STATUS_UNREACHABLE, "", "cold store: kvstored went away");
            continue;
        }
        status = cold_arena_call(arena, request, out_reply, reason);
        if (status == STATUS_OK) {
            *out_arena = arena;
            return STATUS_OK;
        }
        bool alive = cold_arena_alive(arena);
        drop_arena(store, arena);
        if (alive) {
            return status;
        }
    }
    return status;
}

static void release_lease(struct cold_arena *arena, uint64_t lease_id)
{
    struct kv_request request = {.op = KV_OP_RELEASE, .release = {.lease_id = lease_id}};
    struct kv_reply reply;
    if (cold_arena_alive(arena) && cold_arena_call(arena, &request, &reply, NULL) == STATUS_OK) {
        kv_reply_finish(&reply);
    }
}

enum status cold_store_lease(struct cold_store *store, const struct kv_lease_request *request,
                             struct cold_lease *out_lease, struct reason *reason)
{
    assert(request->token_count > 0);
    assert(request->hit_block_max <= (request->token_count - 1) / store->name_space->block_tokens);
    struct kv_request message = {.op = KV_OP_LEASE, .lease = *request};
    // The second round is for a lease with a wrong block, which is asked for as a miss.
    for (int round = 0; round < 2; round++) {
        struct kv_reply reply;
        struct cold_arena *arena = NULL;
        enum status status = store_call(store, &message, &reply, &arena, reason);
        if (status != STATUS_OK) {
            return status;
        }
        struct kv_lease lease = reply.lease;
        reply.lease = (struct kv_lease){0}; // moved out
        kv_reply_finish(&reply);
        uint32_t hit_block_max = 0;
        if (cold_arena_lease_valid(arena, &message.lease, &lease)) {
            hit_block_max =
                cold_arena_true_blocks(arena, store->name_space, &message.lease, &lease);
            if (hit_block_max == message.lease.hit_block_max) {
                *out_lease = (struct cold_lease){
                    .arena = arena, .lease = lease, .is_private = cold_arena_is_private(arena)};
                return STATUS_OK;
            }
        }
        release_lease(arena, lease.lease_id);
        drop_arena(store, arena);
        kv_lease_finish(&lease);
        message.lease.hit_block_max = hit_block_max;
    }
    return reason_set(reason, STATUS_DAMAGED, "restart kvstored",
                      "cold store: a lease names slots that are not lent");
}

void cold_store_release(struct cold_store *store, struct cold_lease *lease)
{
    if (lease->arena == NULL) {
        return;
    }
    mover_flush(store->mover);
    release_lease(lease->arena, lease->lease.lease_id);
    drop_arena(store, lease->arena);
    kv_lease_finish(&lease->lease);
    *lease = (struct cold_lease){0};
}

// ---- slots of a lease

static const struct kv_slot_ref *slot_at(const struct cold_lease *lease, uint32_t block_index)
{
    assert(block_index < lease->lease.block_count);
    return &lease->lease.slots[block_index];
}

void *cold_lease_payload(const struct cold_lease *lease, uint32_t block_index)
{
    return cold_arena_payload(lease->arena, slot_at(lease, block_index)->slot_index);
}

struct block_header *cold_lease_header(const struct cold_lease *lease, uint32_t block_index)
{
    return cold_arena_header(lease->arena, slot_at(lease, block_index)->slot_index);
}

enum cold_slot_state cold_lease_state(const struct cold_lease *lease, uint32_t block_index)
{
    const struct kv_slot_ref *ref = slot_at(lease, block_index);
    struct arena_slot slot = arena_slot_load(cold_arena_word(lease->arena, ref->slot_index));
    if (slot.generation != ref->generation) {
        return COLD_SLOT_LOADING; // not ours any more: neither read nor written
    }
    switch (slot.state) {
    case ARENA_SLOT_READY:
        return COLD_SLOT_READY;
    case ARENA_SLOT_FILLING:
        return COLD_SLOT_FILLING;
    default:
        return COLD_SLOT_LOADING;
    }
}

void cold_store_publish(struct cold_store *store, struct cold_lease *lease, uint32_t block_index)
{
    const struct kv_slot_ref *ref = slot_at(lease, block_index);
    // False when the slot is lent no more (kvstored ended the lease): then there is nothing to
    // name.
    if (!arena_slot_publish(cold_arena_word(lease->arena, ref->slot_index), ref->generation)) {
        return;
    }
    mover_publish(store->mover, lease->arena, lease->lease.lease_id, block_index);
}

uint64_t cold_store_unpublished_count(const struct cold_store *store)
{
    return mover_failed_count(store->mover);
}

// ---- sessions

// A request whose answer is not bound to an arena afterwards.
static enum status store_ask(struct cold_store *store, const struct kv_request *request,
                             struct kv_reply *out_reply, struct reason *reason)
{
    struct cold_arena *arena = NULL;
    enum status status = store_call(store, request, out_reply, &arena, reason);
    if (status == STATUS_OK) {
        drop_arena(store, arena);
    }
    return status;
}

enum status cold_store_checkpoint(struct cold_store *store, const struct kv_checkpoint *checkpoint,
                                  struct kv_checkpoint_reply *out_reply, struct reason *reason)
{
    if (checkpoint->sync) {
        store->attach_again_ms = 0; // a person waits for this one: ask now
    }
    cold_store_attach(store);
    if (checkpoint->sync && !cold_store_attached(store)) {
        return reason_set(reason, STATUS_UNREACHABLE, "start kvstored",
                          "session %s: kvstored is not running", checkpoint->name);
    }
    mover_flush(store->mover);
    const struct kv_request request = {.op = KV_OP_CHECKPOINT, .checkpoint = *checkpoint};
    struct kv_reply reply;
    enum status status = store_ask(store, &request, &reply, reason);
    if (status == STATUS_OK) {
        *out_reply = reply.checkpoint;
        kv_reply_finish(&reply);
    }
    return status;
}

enum status cold_store_session_get(struct cold_store *store, const char *name, const void *salt,
                                   uint32_t salt_bytes, struct kv_checkpoint **out_checkpoint,
                                   struct reason *reason)
{
    const struct kv_request request = {
        .op = KV_OP_SESSION_GET, .session = {.name = name, .salt = salt, .salt_bytes = salt_bytes}};
    struct kv_reply reply;
    enum status status = store_ask(store, &request, &reply, reason);
    if (status != STATUS_OK) {
        return status;
    }
    struct kv_checkpoint *copy = kv_checkpoint_copy(&reply.session_get);
    kv_reply_finish(&reply);
    if (copy == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "session %s: out of memory", name);
    }
    *out_checkpoint = copy;
    return STATUS_OK;
}

enum status cold_store_session_list(struct cold_store *store, const void *salt, uint32_t salt_bytes,
                                    struct kv_session_info **out_sessions, uint32_t *out_count,
                                    struct reason *reason)
{
    const struct kv_request request = {.op = KV_OP_SESSION_LIST,
                                       .session = {.salt = salt, .salt_bytes = salt_bytes}};
    struct kv_reply reply;
    enum status status = store_ask(store, &request, &reply, reason);
    if (status != STATUS_OK) {
        return status;
    }
    status = kv_session_list_copy(&reply.session_list, out_sessions, out_count);
    kv_reply_finish(&reply);
    return status == STATUS_OK ? status : reason_set(reason, status, "", "sessions: out of memory");
}

enum status cold_store_session_delete(struct cold_store *store, const char *name, const void *salt,
                                      uint32_t salt_bytes, struct reason *reason)
{
    const struct kv_request request = {
        .op = KV_OP_SESSION_DELETE,
        .session = {.name = name, .salt = salt, .salt_bytes = salt_bytes}};
    struct kv_reply reply;
    enum status status = store_ask(store, &request, &reply, reason);
    if (status == STATUS_OK) {
        kv_reply_finish(&reply);
    }
    return status;
}

enum status cold_store_status(struct cold_store *store, struct kv_status *out_status,
                              struct reason *reason)
{
    struct cold_arena *arena = hold_current(store);
    if (arena == NULL) {
        return reason_set(reason, STATUS_UNREACHABLE, "start kvstored",
                          "cold store: kvstored is not running");
    }
    const struct kv_request request = {.op = KV_OP_STATUS};
    struct kv_reply reply;
    enum status status = cold_arena_call(arena, &request, &reply, reason);
    drop_arena(store, arena);
    if (status == STATUS_OK) {
        *out_status = reply.state;
        kv_reply_finish(&reply);
    }
    return status;
}
