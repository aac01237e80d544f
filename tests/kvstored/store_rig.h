// SPDX-License-Identifier: Apache-2.0
// What the tests of the store share: a tiny namespace, sessions of tokens, blocks that verify, and
// a client that leases, fills and publishes as gpud does. Header only; one thread.
#ifndef KVTIER_TESTS_KVSTORED_STORE_RIG_H
#define KVTIER_TESTS_KVSTORED_STORE_RIG_H

#include "kvstored/store.h"
#include "proto/arena_layout.h"
#include "proto/arena_slot.h"
#include "proto/block_id.h"
#include "proto/os/clock.h"
#include "tests/check.h"

enum {
    RIG_BLOCK_TOKENS = 16,
    RIG_PAYLOAD_BYTES = 8192, // 4 layers, 2 heads, 16 dims, keys and values, 2 bytes
    RIG_CLIENT = 7,
};

static inline struct kv_namespace rig_namespace(uint8_t mark)
{
    struct kv_namespace name_space = {
        .fingerprint = {mark},
        .block_tokens = RIG_BLOCK_TOKENS,
        .group_count = 1,
        .groups = {{.layer_count = 4, .kv_heads = 2, .head_dim = 16}},
        .field_count = 1,
        .fields = {{"model", "rig"}},
    };
    assert_int_equal(block_payload_bytes(&name_space.groups[0], RIG_BLOCK_TOKENS),
                     RIG_PAYLOAD_BYTES);
    return name_space;
}

// Tokens of one sequence, the same for the same seed.
static inline void rig_tokens(uint32_t seed, uint32_t *out, uint32_t count)
{
    uint64_t state = seed;
    for (uint32_t i = 0; i < count; i++) {
        out[i] = (uint32_t)(check_random(&state) % 50000);
    }
}

static inline struct store *rig_store(const struct kv_namespace *name_space, uint32_t slot_count,
                                      const char *data_dir, uint64_t disk_bytes)
{
    struct store *store = NULL;
    struct reason reason = {0};
    const struct store_options options = {
        .name_space = name_space,
        .payload_bytes_max = (uint64_t)slot_count * RIG_PAYLOAD_BYTES,
        .data_dir = data_dir,
        .disk_bytes_max = disk_bytes,
        .epoch = 42,
    };
    enum status status = store_create(&options, &store, &reason);
    if (status != STATUS_OK) {
        print_message("store_create: %s\n", reason.text);
    }
    CHECK_OK(status);
    return store;
}

static inline struct arena_layout rig_layout(struct store *store)
{
    struct arena_geometry geometry;
    struct arena_layout layout;
    CHECK_OK(arena_layout_check(store_arena(store), store_arena_bytes(store), &geometry, &layout));
    return layout;
}

static inline struct arena_slot rig_slot(struct store *store, uint32_t slot)
{
    struct arena_layout layout = rig_layout(store);
    return arena_slot_load(arena_word_at(&layout, store_arena(store), slot));
}

static inline struct block_header *rig_header(struct store *store, uint32_t slot)
{
    struct arena_layout layout = rig_layout(store);
    return arena_block_header_at(&layout, store_arena(store), slot);
}

static inline uint8_t *rig_payload(struct store *store, uint32_t slot)
{
    struct arena_layout layout = rig_layout(store);
    return arena_payload_at(&layout, store_arena(store), slot);
}

// One session as a client sees it.
struct rig_session {
    const struct kv_namespace *name_space;
    const uint32_t *tokens;
    uint32_t token_count;
    const char *salt;
    bool persist;
    struct kv_lease lease;
    struct block_id ids[64]; // of the whole blocks
};

static inline void rig_chain(struct rig_session *session)
{
    struct block_id root;
    block_id_root(session->name_space->fingerprint, session->salt, strlen(session->salt),
                  ATTENTION_MODE_EXACT, &root);
    uint32_t count = session->token_count / RIG_BLOCK_TOKENS;
    assert_true(count <= 64);
    block_id_chain(&root, session->tokens, RIG_BLOCK_TOKENS, count, session->ids);
}

// Leases slots for all tokens and `extra` blocks more.
static inline enum status rig_lease(struct store *store, struct rig_session *session,
                                    uint32_t extra, uint64_t client)
{
    uint32_t count = (session->token_count + RIG_BLOCK_TOKENS - 1) / RIG_BLOCK_TOKENS + extra;
    const struct kv_lease_request request = {
        .tokens = session->tokens,
        .token_count = session->token_count,
        .hit_block_max =
            session->token_count > 0 ? (session->token_count - 1) / RIG_BLOCK_TOKENS : 0,
        .block_count = count,
        .salt = session->salt,
        .salt_bytes = (uint32_t)strlen(session->salt),
        .persist = session->persist,
    };
    struct reason reason = {0};
    rig_chain(session);
    return store_lease(store, client, &request, &session->lease, &reason);
}

static inline uint8_t rig_byte(const struct block_id *id, uint32_t at)
{
    return (uint8_t)(id->bytes[at % BLOCK_ID_BYTES] + at);
}

// Writes whole block `index` of the session into its slot and makes it READY.
static inline void rig_fill(struct store *store, struct rig_session *session, uint32_t index)
{
    struct arena_layout layout = rig_layout(store);
    const struct kv_slot_ref *ref = &session->lease.slots[index];
    struct block_header *header = rig_header(store, ref->slot_index);
    uint8_t *payload = rig_payload(store, ref->slot_index);
    *header = (struct block_header){
        .magic = BLOCK_MAGIC,
        .layout_version = BLOCK_LAYOUT_VERSION,
        .header_bytes = BLOCK_HEADER_BYTES,
        .block_tokens = RIG_BLOCK_TOKENS,
        .token_count = RIG_BLOCK_TOKENS,
        .first_position = index * RIG_BLOCK_TOKENS,
        .payload_bytes = RIG_PAYLOAD_BYTES,
        .id = session->ids[index],
    };
    if (index > 0) {
        header->parent_id = session->ids[index - 1];
    } else {
        block_id_root(session->name_space->fingerprint, session->salt, strlen(session->salt),
                      ATTENTION_MODE_EXACT, &header->parent_id);
    }
    memcpy(header->fingerprint, session->name_space->fingerprint, BLOCK_ID_BYTES);
    memcpy(header->tokens, session->tokens + (size_t)index * RIG_BLOCK_TOKENS,
           RIG_BLOCK_TOKENS * sizeof(uint32_t));
    for (uint32_t i = 0; i < RIG_PAYLOAD_BYTES; i++) {
        payload[i] = rig_byte(&header->id, i);
    }
    header->checksum = block_checksum(header, payload);
    assert_true(arena_slot_publish(arena_word_at(&layout, store_arena(store), ref->slot_index),
                                   ref->generation));
}

static inline enum status rig_publish(struct store *store, struct rig_session *session,
                                      uint32_t index, uint64_t client)
{
    struct reason reason = {0};
    const struct kv_publish_request request = {
        .lease_id = session->lease.lease_id, .block_indexes = &index, .block_count = 1};
    return store_publish(store, client, &request, &reason);
}

// Waits until no block of the lease is LOADING.
static inline void rig_wait_loaded(struct store *store, const struct rig_session *session)
{
    uint64_t deadline = os_clock_ms() + 10000;
    for (uint32_t i = 0; i < session->lease.block_count; i++) {
        while (rig_slot(store, session->lease.slots[i].slot_index).state == ARENA_SLOT_LOADING) {
            assert_true(os_clock_ms() < deadline);
            store_wait(store, 100);
            store_poll(store);
        }
    }
}

// Computes what is missing of a leased session and publishes it; returns how many blocks that was.
// Hits are compared byte by byte.
static inline uint32_t rig_compute(struct store *store, struct rig_session *session,
                                   uint64_t client)
{
    uint32_t computed = 0;
    rig_wait_loaded(store, session);
    for (uint32_t i = 0; i < session->token_count / RIG_BLOCK_TOKENS; i++) {
        uint32_t slot = session->lease.slots[i].slot_index;
        if (rig_slot(store, slot).state == ARENA_SLOT_READY) {
            assert_true(block_id_equal(&rig_header(store, slot)->id, &session->ids[i]));
            const uint8_t *payload = rig_payload(store, slot);
            for (uint32_t k = 0; k < RIG_PAYLOAD_BYTES; k++) {
                assert_int_equal(payload[k], rig_byte(&session->ids[i], k));
            }
            continue;
        }
        rig_fill(store, session, i);
        CHECK_OK(rig_publish(store, session, i, client));
        computed++;
    }
    return computed;
}

static inline void rig_release(struct store *store, struct rig_session *session, uint64_t client)
{
    CHECK_OK(store_release(store, client, session->lease.lease_id));
    kv_lease_finish(&session->lease);
}

// A whole request: lease, compute, release. Returns the number of blocks that were computed.
static inline uint32_t rig_request(struct store *store, struct rig_session *session)
{
    CHECK_OK(rig_lease(store, session, 0, RIG_CLIENT));
    uint32_t computed = rig_compute(store, session, RIG_CLIENT);
    rig_release(store, session, RIG_CLIENT);
    return computed;
}

// Waits for the answer to a ticket. The caller finishes it.
static inline struct kv_reply rig_answer(struct store *store, uint64_t ticket)
{
    struct store_completion completion;
    uint64_t deadline = os_clock_ms() + 20000;
    while (!store_next_completion(store, &completion)) {
        assert_true(os_clock_ms() < deadline);
        store_wait(store, 50);
        store_poll(store);
    }
    assert_int_equal(completion.ticket, ticket);
    return completion.reply;
}

static inline struct kv_checkpoint rig_checkpoint(const struct rig_session *session,
                                                  const char *name, bool keep, bool sync)
{
    return (struct kv_checkpoint){
        .name = name,
        .tokens = session->tokens,
        .token_count = session->token_count,
        .salt = session->salt,
        .salt_bytes = (uint32_t)strlen(session->salt),
        .settings = "set",
        .settings_bytes = 3,
        .keep = keep,
        .sync = sync,
    };
}

// Saves a session as `save` does and returns the answer.
static inline struct kv_reply rig_save(struct store *store, const struct rig_session *session,
                                       const char *name, bool keep)
{
    struct kv_checkpoint checkpoint = rig_checkpoint(session, name, keep, true);
    struct reason reason = {0};
    CHECK_OK(store_checkpoint(store, &checkpoint, 1000, &reason));
    return rig_answer(store, 1000);
}

static inline struct kv_status rig_status(struct store *store)
{
    struct kv_status status;
    store_status(store, &status);
    return status;
}

// Nothing is held and nothing leaked: every slot is free or cached.
static inline void rig_check_idle(struct store *store)
{
    struct kv_status status = rig_status(store);
    assert_int_equal(status.lease_count, 0);
    assert_int_equal(status.slot_leased_count, 0);
    assert_int_equal(status.slot_free_count + status.slot_cached_count, status.slot_count);
}

#endif
