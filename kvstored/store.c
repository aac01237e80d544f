// SPDX-License-Identifier: Apache-2.0
// Creation, the namespace in use, and levels. A namespace brings everything that has its shape:
// arena, index, eviction list, disk and threads; changing it ends them all and begins anew.

#include "kvstored/store.h"

#include "kvstored/store_internal.h"
#include "proto/arena_lock.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- namespace

static uint64_t payload_bytes_of(const struct kv_namespace *name_space)
{
    return block_payload_bytes(&name_space->groups[0], name_space->block_tokens);
}

// Slots that the budget holds.
static uint32_t slots_of(const struct store *store, const struct kv_namespace *name_space)
{
    uint64_t count = store->payload_bytes_max / payload_bytes_of(name_space);
    return count > ARENA_SLOTS_MAX ? ARENA_SLOTS_MAX : (uint32_t)count;
}

static enum status check_namespace(const struct store *store, const struct kv_namespace *name_space,
                                   uint64_t arena_bytes_min, struct reason *reason)
{
    if (name_space->group_count != 1 || name_space->groups[0].format != KV_FORMAT_F16 ||
        name_space->groups[0].kind != KV_GROUP_FULL) {
        return reason_set(reason, STATUS_UNSUPPORTED, "update kvstored",
                          "namespace: only one group of full attention in f16 is built");
    }
    uint64_t payload = payload_bytes_of(name_space);
    uint64_t budget = slots_of(store, name_space) * payload;
    uint64_t needed = arena_bytes_min > payload ? arena_bytes_min : payload;
    if (budget < needed) {
        return reason_set(reason, STATUS_REFUSED,
                          "raise --swap-space of kvstored, or lower "
                          "--max-model-len of gpud",
                          "arena: %llu bytes of KV are needed, the budget is %llu",
                          (unsigned long long)needed, (unsigned long long)store->payload_bytes_max);
    }
    return STATUS_OK;
}

static bool same_geometry(const struct kv_namespace *a, const struct kv_namespace *b)
{
    return a->block_tokens == b->block_tokens && a->group_count == b->group_count &&
           memcmp(a->groups, b->groups, a->group_count * sizeof(a->groups[0])) == 0;
}

static void end_namespace(struct store *store, uint32_t timeout_ms)
{
    store_inspector_stop(store);
    store_disk_detach(store, timeout_ms);
    store_pending_fail(store, STATUS_CLOSED, "the namespace was changed");
    free(store->slots);
    store->slots = NULL;
    eviction_finish(&store->eviction);
    block_index_finish(&store->index);
    arena_finish(&store->arena);
    store->has_namespace = false;
}

static enum status begin_memory(struct store *store, const struct kv_namespace *name_space,
                                struct reason *reason)
{
    const struct arena_options options = {
        .name = store->arena_name[0] != '\0' ? store->arena_name : NULL,
        .name_space = name_space,
        .slot_count = slots_of(store, name_space),
        .epoch = store->epoch,
    };
    enum status status = arena_init(&store->arena, &options, reason);
    if (status != STATUS_OK) {
        return status;
    }
    store->slots = calloc(options.slot_count, sizeof(*store->slots));
    status = store->slots != NULL ? eviction_init(&store->eviction, options.slot_count)
                                  : STATUS_NO_MEMORY;
    if (status == STATUS_OK) {
        status = block_index_init(&store->index, options.slot_count);
    }
    return status == STATUS_OK ? status : reason_set(reason, status, "", "store: out of memory");
}

static enum status begin_namespace(struct store *store, const struct kv_namespace *name_space,
                                   struct reason *reason)
{
    enum status status = begin_memory(store, name_space, reason);
    if (status != STATUS_OK) {
        end_namespace(store, 0);
        return status;
    }
    store->name_space = *name_space;
    store->has_namespace = true;
    if (store->has_catalog) {
        store_disk_attach(store, false);
    }
    return STATUS_OK;
}

enum status store_use_namespace(struct store *store, const struct kv_namespace *name_space,
                                uint64_t arena_bytes_min, struct reason *reason)
{
    enum status status = check_namespace(store, name_space, arena_bytes_min, reason);
    if (status != STATUS_OK) {
        return status;
    }
    if (store->has_namespace && memcmp(store->name_space.fingerprint, name_space->fingerprint,
                                       sizeof(name_space->fingerprint)) == 0) {
        return same_geometry(&store->name_space, name_space)
                   ? STATUS_OK
                   : reason_set(reason, STATUS_MISMATCH, "",
                                "namespace: known with another geometry");
    }
    if (store->leases.count > 0) {
        return reason_set(reason, STATUS_BUSY, "stop the other gpud",
                          "namespace: another one has %u requests running", store->leases.count);
    }
    end_namespace(store, STORE_DETACH_MS);
    status = begin_namespace(store, name_space, reason);
    if (store->has_catalog) {
        enum status started = store_inspector_start(store, reason);
        status = status == STATUS_OK ? started : status;
    }
    return status;
}

const struct kv_namespace *store_namespace(const struct store *store)
{
    return store->has_namespace ? &store->name_space : NULL;
}

// ---- creation

static enum status open_store(struct store *store, const struct store_options *options,
                              struct reason *reason)
{
    enum status status = STATUS_OK;
    if (options->data_dir != NULL) {
        status = catalog_open(options->data_dir, &store->catalog, reason);
        store->has_catalog = status == STATUS_OK;
    }
    if (status == STATUS_OK && options->name_space != NULL) {
        status = store_use_namespace(store, options->name_space, 0, reason);
    } else if (status == STATUS_OK && store->has_catalog) {
        status = store_inspector_start(store, reason);
    }
    return status;
}

enum status store_create(const struct store_options *options, struct store **out_store,
                         struct reason *reason)
{
    struct store *store = calloc(1, sizeof(*store));
    if (store == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "store: out of memory");
    }
    store->payload_bytes_max = options->payload_bytes_max;
    store->disk_bytes_max = options->disk_bytes_max;
    store->epoch = options->epoch;
    if (options->arena_name != NULL) {
        assert(strlen(options->arena_name) < sizeof(store->arena_name));
        strcpy(store->arena_name, options->arena_name);
    }
    bell_init(&store->bell, options->wake, options->wake_context);
    store->persistence.ok = options->data_dir != NULL;
    snprintf(store->persistence.state, sizeof(store->persistence.state), "%s",
             options->data_dir != NULL ? "ok" : "off: sessions are kept in memory");
    enum status status = open_store(store, options, reason);
    if (status != STATUS_OK) {
        store_destroy(store, 0);
        return status;
    }
    *out_store = store;
    return STATUS_OK;
}

void store_destroy(struct store *store, uint32_t timeout_ms)
{
    if (store == NULL) {
        return;
    }
    store_inspector_stop(store);
    store_disk_detach(store, timeout_ms);
    while (store->leases.first != NULL) {
        lease_destroy(&store->leases, store->leases.first); // their slots go with the arena
    }
    end_namespace(store, 0);
    store_sessions_finish(store);
    if (store->has_catalog) {
        catalog_close(&store->catalog);
    }
    bell_finish(&store->bell);
    free(store);
}

void *store_arena(const struct store *store)
{
    return store->arena.shm.base;
}

size_t store_arena_bytes(const struct store *store)
{
    return store->arena.shm.bytes;
}

uint32_t store_slot_count(const struct store *store)
{
    return store->arena.slot_count;
}

bool store_row_held(struct store *store, uint32_t row)
{
    bool held = true;
    if (!store->has_namespace) {
        return false;
    }
    // When it cannot be asked, it is taken as held: nothing is touched.
    return arena_lock_held(&store->arena.shm, &store->arena.layout, row, &held) != STATUS_OK ||
           held;
}

void store_wait(struct store *store, uint32_t timeout_ms)
{
    bell_wait(&store->bell, timeout_ms);
}

// ---- levels

static void arena_levels(const struct store *store, struct kv_status *out)
{
    const struct arena *arena = &store->arena;
    uint32_t indexed = store->index.count;
    out->slot_count = arena->slot_count;
    out->slot_reserved_count = arena->reserved_count;
    out->slot_free_count = arena->free_count + (arena->slot_count - arena->reserved_count);
    out->slot_cached_count = 0;
    out->payload_bytes = arena_payload_bytes(arena);
    out->arena_bytes = arena->shm.bytes;
    out->write_queue_count = 0;
    for (uint32_t slot = 0; slot < arena->slot_count; slot++) {
        const struct store_slot *info = &store->slots[slot];
        out->slot_cached_count += info->indexed && info->lease_count == 0;
        out->write_queue_count += info->saving || info->want_save;
    }
    assert(out->slot_cached_count <= indexed);
    out->slot_leased_count = arena->slot_count - out->slot_free_count - out->slot_cached_count;
}

static void disk_levels_of(const struct store *store, struct kv_status *out)
{
    struct disk_levels levels = {0};
    out->disk_limit_bytes = store->disk_bytes_max;
    out->disk_other_bytes = store->disk_other_bytes;
    out->namespace_count = store->disk_other_count + (store->disk != NULL);
    out->disk_block_count = store->on_disk.count;
    out->disk_bytes = store->disk_other_bytes;
    if (store->disk != NULL && disk_levels(store->disk, &levels) == STATUS_OK) {
        out->session_count = levels.session_count;
        out->disk_bytes += levels.file_bytes;
    }
}

void store_persistence(const struct store *store, struct store_persistence_state *out_state)
{
    out_state->ok = store->persistence.ok || !store->has_catalog;
    snprintf(out_state->text, sizeof(out_state->text), "%s", store->persistence.state);
}

void store_status(const struct store *store, struct kv_status *out_status)
{
    *out_status = store->counters;
    out_status->epoch = store->epoch;
    out_status->lease_count = store->leases.count;
    out_status->session_count = store->memory_session_count;
    out_status->persistence_ok = store->persistence.ok;
    snprintf(out_status->persistence_state, sizeof(out_status->persistence_state), "%s",
             store->persistence.state);
    if (store->has_namespace) {
        arena_levels(store, out_status);
        out_status->has_namespace = true;
        out_status->name_space = store->name_space;
    }
    if (store->has_catalog) {
        disk_levels_of(store, out_status);
    }
}
