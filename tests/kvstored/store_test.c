// SPDX-License-Identifier: Apache-2.0
// At stake: that a slot is never in two hands or in none, that a hit is exactly the block that was
// asked for, and that what was promised stays. Deterministic cases for each rule, then random
// clients against the invariants. Disk is in store_disk_test.c.
#include "kvstored/store_internal.h"
#include "tests/kvstored/store_rig.h"

#include <fcntl.h>

enum { SLOTS = 24 };

static const struct kv_slot_ref *slot_of(const struct rig_session *session, uint32_t index)
{
    return &session->lease.slots[index];
}

static void second_request_hits_in_memory(void **state)
{
    (void)state;
    struct kv_namespace name_space = rig_namespace(1);
    struct store *store = rig_store(&name_space, SLOTS, NULL, 0);
    uint32_t tokens[100];
    rig_tokens(1, tokens, 100);
    struct rig_session session = {&name_space, tokens, 100, "u", false, {0}, {{{0}}}};
    assert_int_equal(rig_request(store, &session), 6);
    assert_int_equal(rig_request(store, &session), 0);
    struct kv_status status = rig_status(store);
    assert_int_equal(status.hit_ram_count, 6);
    assert_int_equal(status.published_count, 6);
    assert_int_equal(status.slot_cached_count, 6);
    rig_check_idle(store);
    store_destroy(store, 0);
}

static void a_whole_prompt_is_never_all_hits(void **state)
{
    (void)state;
    struct kv_namespace name_space = rig_namespace(1);
    struct store *store = rig_store(&name_space, SLOTS, NULL, 0);
    uint32_t tokens[64];
    rig_tokens(1, tokens, 64);
    struct rig_session session = {&name_space, tokens, 64, "u", false, {0}, {{{0}}}};
    assert_int_equal(rig_request(store, &session), 4);
    // Block 3 is computed again, since the last token needs a step; its copy stays private.
    assert_int_equal(rig_request(store, &session), 1);
    assert_int_equal(rig_status(store).slot_cached_count, 4);
    rig_check_idle(store);
    store_destroy(store, 0);
}

static void users_modes_and_tokens_do_not_mix(void **state)
{
    (void)state;
    struct kv_namespace name_space = rig_namespace(1);
    struct store *store = rig_store(&name_space, SLOTS, NULL, 0);
    uint32_t tokens[50];
    rig_tokens(1, tokens, 50);
    struct rig_session session = {&name_space, tokens, 50, "u", false, {0}, {{{0}}}};
    assert_int_equal(rig_request(store, &session), 3);
    struct rig_session other = {&name_space, tokens, 50, "v", false, {0}, {{{0}}}};
    assert_int_equal(rig_request(store, &other), 3);
    tokens[20] ^= 1; // in block 1: block 0 hits alone
    assert_int_equal(rig_request(store, &session), 2);
    store_destroy(store, 0);
}

static void later_blocks_hit_after_a_hole(void **state)
{
    (void)state;
    struct kv_namespace name_space = rig_namespace(1);
    struct store *store = rig_store(&name_space, SLOTS, NULL, 0);
    uint32_t tokens[70];
    rig_tokens(3, tokens, 70);
    struct rig_session session = {&name_space, tokens, 70, "u", false, {0}, {{{0}}}};
    CHECK_OK(rig_lease(store, &session, 0, RIG_CLIENT));
    rig_fill(store, &session, 0);
    CHECK_OK(rig_publish(store, &session, 0, RIG_CLIENT));
    for (uint32_t i = 2; i < 4; i++) { // 1 is never published
        rig_fill(store, &session, i);
        CHECK_OK(rig_publish(store, &session, i, RIG_CLIENT));
    }
    rig_release(store, &session, RIG_CLIENT);
    CHECK_OK(rig_lease(store, &session, 0, RIG_CLIENT));
    assert_int_equal(slot_of(&session, 0)->source, KV_SOURCE_RAM);
    assert_int_equal(slot_of(&session, 1)->source, KV_SOURCE_NEW);
    assert_int_equal(slot_of(&session, 2)->source, KV_SOURCE_RAM);
    assert_int_equal(slot_of(&session, 3)->source, KV_SOURCE_RAM);
    assert_int_equal(slot_of(&session, 4)->source, KV_SOURCE_NEW);
    rig_release(store, &session, RIG_CLIENT);
    rig_check_idle(store);
    store_destroy(store, 0);
}

static void leases_are_all_or_nothing(void **state)
{
    (void)state;
    struct kv_namespace name_space = rig_namespace(1);
    struct store *store = rig_store(&name_space, 8, NULL, 0);
    uint32_t tokens[400];
    rig_tokens(1, tokens, 400);
    struct rig_session big = {&name_space, tokens, 9 * 16, "u", false, {0}, {{{0}}}};
    assert_int_equal(rig_lease(store, &big, 0, RIG_CLIENT), STATUS_REFUSED);
    struct rig_session first = {&name_space, tokens, 5 * 16, "u", false, {0}, {{{0}}}};
    CHECK_OK(rig_lease(store, &first, 0, RIG_CLIENT));
    struct rig_session second = {&name_space, tokens, 4 * 16, "v", false, {0}, {{{0}}}};
    assert_int_equal(rig_lease(store, &second, 0, RIG_CLIENT), STATUS_BUSY);
    assert_int_equal(rig_status(store).slot_free_count, 3);
    assert_int_equal(rig_status(store).lease_count, 1);
    rig_release(store, &first, RIG_CLIENT);
    CHECK_OK(rig_lease(store, &second, 0, RIG_CLIENT));
    rig_release(store, &second, RIG_CLIENT);
    rig_check_idle(store);
    store_destroy(store, 0);
}

// Memory that runs out in the middle of a lease: nothing of it stays.
static void a_lease_that_finds_no_memory_is_undone(void **state)
{
    (void)state;
    enum { MANY = 20000 };
    struct kv_namespace name_space = rig_namespace(1);
    struct store *store = rig_store(&name_space, MANY, NULL, 0);
    uint32_t *tokens = calloc(MANY * 16, sizeof(*tokens));
    struct rig_session small = {&name_space, tokens, 33, "u", false, {0}, {{{0}}}};
    assert_int_equal(rig_request(store, &small), 2); // hits of the lease to come
    const struct kv_lease_request request = {.tokens = tokens,
                                             .token_count = MANY * 16,
                                             .hit_block_max = 2,
                                             .block_count = MANY,
                                             .salt = "u",
                                             .salt_bytes = 1};
    struct kv_lease lease;
    struct reason reason = {0};
    int memory = store->arena.shm.handle;
    store->arena.shm.handle = open("/dev/null", O_RDWR); // which has no memory to give
    assert_int_not_equal(store_lease(store, RIG_CLIENT, &request, &lease, &reason), STATUS_OK);
    close(store->arena.shm.handle);
    store->arena.shm.handle = memory;
    assert_true(reason.text[0] != '\0');
    rig_check_idle(store);
    assert_int_equal(rig_status(store).slot_cached_count, 2);
    CHECK_OK(store_lease(store, RIG_CLIENT, &request, &lease, &reason));
    CHECK_OK(store_release(store, RIG_CLIENT, lease.lease_id));
    kv_lease_finish(&lease);
    rig_check_idle(store);
    free(tokens);
    store_destroy(store, 0);
}

// A hit that was promised is neither evicted nor changed however hard others ask for slots.
static void leased_blocks_are_never_evicted(void **state)
{
    (void)state;
    struct kv_namespace name_space = rig_namespace(1);
    struct store *store = rig_store(&name_space, 8, NULL, 0);
    uint32_t tokens[4 * 16 + 1], more[16 * 4];
    rig_tokens(1, tokens, 65);
    struct rig_session session = {&name_space, tokens, 65, "u", false, {0}, {{{0}}}};
    assert_int_equal(rig_request(store, &session), 4);
    CHECK_OK(rig_lease(store, &session, 0, RIG_CLIENT)); // 4 hits and a new slot
    for (uint32_t i = 0; i < 20; i++) {
        rig_tokens(100 + i, more, 48);
        struct rig_session other = {&name_space, more, 48, "u", false, {0}, {{{0}}}};
        assert_int_equal(rig_request(store, &other), 3);
    }
    assert_true(rig_status(store).evicted_count > 0);
    assert_int_equal(rig_compute(store, &session, RIG_CLIENT), 0);
    rig_release(store, &session, RIG_CLIENT);
    store_destroy(store, 0);
}

static void the_end_of_a_chain_is_evicted_first(void **state)
{
    (void)state;
    struct kv_namespace name_space = rig_namespace(1);
    struct store *store = rig_store(&name_space, 8, NULL, 0);
    uint32_t tokens[16 * 6 + 1], more[32];
    rig_tokens(1, tokens, 97);
    struct rig_session session = {&name_space, tokens, 97, "u", false, {0}, {{{0}}}};
    assert_int_equal(rig_request(store, &session), 6);
    rig_tokens(2, more, 32);
    struct rig_session other = {&name_space, more, 32, "u", false, {0}, {{{0}}}};
    rig_request(store, &other); // two free slots
    rig_tokens(3, more, 32);
    rig_request(store, &other); // evicts two
    CHECK_OK(rig_lease(store, &session, 0, RIG_CLIENT));
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(slot_of(&session, i)->source, KV_SOURCE_RAM);
    }
    assert_int_equal(slot_of(&session, 4)->source, KV_SOURCE_NEW);
    rig_release(store, &session, RIG_CLIENT);
    store_destroy(store, 0);
}

static void what_was_not_published_is_not_found(void **state)
{
    (void)state;
    struct kv_namespace name_space = rig_namespace(1);
    struct store *store = rig_store(&name_space, SLOTS, NULL, 0);
    uint32_t tokens[33];
    rig_tokens(1, tokens, 33);
    struct rig_session session = {&name_space, tokens, 33, "u", false, {0}, {{{0}}}};
    CHECK_OK(rig_lease(store, &session, 0, RIG_CLIENT));
    rig_fill(store, &session, 0); // READY, then the client dies
    uint64_t generation = slot_of(&session, 0)->generation;
    uint32_t slot = slot_of(&session, 0)->slot_index;
    store_release_client(store, RIG_CLIENT);
    kv_lease_finish(&session.lease);
    assert_int_equal(rig_slot(store, slot).state, ARENA_SLOT_EMPTY);
    assert_true(rig_slot(store, slot).generation > generation);
    rig_check_idle(store);
    assert_int_equal(rig_status(store).slot_cached_count, 0);
    store_destroy(store, 0);
}

// Every way in which a header can lie about its place.
static void headers_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    struct kv_namespace name_space = rig_namespace(1);
    struct store *store = rig_store(&name_space, SLOTS, NULL, 0);
    uint32_t tokens[49];
    rig_tokens(1, tokens, 49);
    for (uint32_t lie = 0; lie < 9; lie++) {
        struct rig_session session = {&name_space, tokens, 49, "u", false, {0}, {{{0}}}};
        CHECK_OK(rig_lease(store, &session, 0, RIG_CLIENT));
        if (slot_of(&session, 0)->source == KV_SOURCE_NEW) {
            rig_fill(store, &session, 0);
            CHECK_OK(rig_publish(store, &session, 0, RIG_CLIENT));
        }
        rig_fill(store, &session, 1);
        struct block_header *header = rig_header(store, slot_of(&session, 1)->slot_index);
        switch (lie) {
        case 0:
            header->tokens[3]++; // the id no longer follows from the tokens
            break;
        case 1: // the id follows, but these are not the lease's tokens
            header->tokens[3]++;
            block_id_next(&header->parent_id, header->tokens, RIG_BLOCK_TOKENS, &header->id);
            break;
        case 2:
            header->parent_id.bytes[0] ^= 1;
            block_id_next(&header->parent_id, header->tokens, RIG_BLOCK_TOKENS, &header->id);
            break;
        case 3:
            header->fingerprint[5] ^= 1;
            break;
        case 4:
            header->mode = ATTENTION_MODE_SPARSE;
            break;
        case 5:
            header->first_position = 32;
            break;
        case 6:
            header->token_count = 15;
            header->tokens[15] = 0;
            block_id_next(&header->parent_id, header->tokens, 15, &header->id);
            break;
        case 7:
            header->payload_bytes--;
            break;
        default:
            header->magic ^= 1;
            break;
        }
        assert_int_equal(rig_publish(store, &session, 1, RIG_CLIENT), STATUS_DAMAGED);
        rig_release(store, &session, RIG_CLIENT);
        assert_int_equal(rig_status(store).slot_cached_count, 1);
    }
    rig_check_idle(store);
    store_destroy(store, 0);
}

static void publishing_what_is_not_lent_is_refused(void **state)
{
    (void)state;
    struct kv_namespace name_space = rig_namespace(1);
    struct store *store = rig_store(&name_space, SLOTS, NULL, 0);
    uint32_t tokens[49];
    rig_tokens(1, tokens, 49);
    struct rig_session session = {&name_space, tokens, 49, "u", false, {0}, {{{0}}}};
    CHECK_OK(rig_lease(store, &session, 0, RIG_CLIENT));
    assert_int_equal(rig_publish(store, &session, 0, RIG_CLIENT), STATUS_INVALID); // FILLING
    rig_fill(store, &session, 0);
    assert_int_equal(rig_publish(store, &session, 0, RIG_CLIENT + 1), STATUS_STALE);
    CHECK_OK(rig_publish(store, &session, 0, RIG_CLIENT));
    assert_int_equal(rig_publish(store, &session, 0, RIG_CLIENT), STATUS_INVALID); // twice
    assert_int_equal(rig_publish(store, &session, 99, RIG_CLIENT), STATUS_INVALID);
    assert_int_equal(store_release(store, RIG_CLIENT + 1, session.lease.lease_id),
                     STATUS_NOT_FOUND);
    rig_release(store, &session, RIG_CLIENT);
    assert_int_equal(rig_publish(store, &session, 0, RIG_CLIENT), STATUS_STALE);
    store_destroy(store, 0);
}

// A client that scribbles over a cached block's tokens must not make anybody read it.
static void tokens_are_compared_on_every_hit(void **state)
{
    (void)state;
    struct kv_namespace name_space = rig_namespace(1);
    struct store *store = rig_store(&name_space, SLOTS, NULL, 0);
    uint32_t tokens[33];
    rig_tokens(1, tokens, 33);
    struct rig_session session = {&name_space, tokens, 33, "u", false, {0}, {{{0}}}};
    CHECK_OK(rig_lease(store, &session, 0, RIG_CLIENT));
    rig_compute(store, &session, RIG_CLIENT);
    uint32_t slot = slot_of(&session, 1)->slot_index;
    rig_release(store, &session, RIG_CLIENT);
    rig_header(store, slot)->tokens[7]++;
    assert_int_equal(rig_request(store, &session), 1);
    assert_int_equal(rig_status(store).mismatch_count, 1);
    assert_int_equal(rig_request(store, &session), 0);
    store_destroy(store, 0);
}

static void malformed_leases_are_refused(void **state)
{
    (void)state;
    struct kv_namespace name_space = rig_namespace(1);
    struct store *store = rig_store(&name_space, SLOTS, NULL, 0);
    uint32_t tokens[40] = {0};
    const struct kv_lease_request requests[] = {
        {.tokens = tokens, .token_count = 40, .block_count = 0},
        {.tokens = tokens, .token_count = 40, .block_count = 2},
        {.tokens = tokens, .token_count = 40, .block_count = 3, .hit_block_max = 3},
        {.tokens = tokens, .token_count = 40, .block_count = UINT32_MAX},
    };
    for (size_t i = 0; i < sizeof(requests) / sizeof(*requests); i++) {
        struct kv_lease lease;
        struct reason reason = {0};
        assert_int_equal(store_lease(store, 1, &requests[i], &lease, &reason), STATUS_INVALID);
        assert_true(reason.text[0] != '\0');
    }
    rig_check_idle(store);
    store_destroy(store, 0);
}

static void namespaces(void **state)
{
    (void)state;
    struct kv_namespace one = rig_namespace(1), two = rig_namespace(2), odd = rig_namespace(1);
    struct reason reason = {0};
    struct store *store = rig_store(NULL, SLOTS, NULL, 0);
    assert_null(store_namespace(store));
    assert_null(store_arena(store));
    assert_int_equal(store_use_namespace(store, &one, (SLOTS + 1) * RIG_PAYLOAD_BYTES, &reason),
                     STATUS_REFUSED);
    CHECK_OK(store_use_namespace(store, &one, SLOTS * RIG_PAYLOAD_BYTES, &reason));
    uint32_t tokens[33];
    rig_tokens(1, tokens, 33);
    struct rig_session session = {&one, tokens, 33, "u", false, {0}, {{{0}}}};
    assert_int_equal(rig_request(store, &session), 2);
    CHECK_OK(store_use_namespace(store, &one, 0, &reason)); // the cache is kept
    assert_int_equal(rig_request(store, &session), 0);
    odd.groups[0].layer_count++;
    assert_int_equal(store_use_namespace(store, &odd, 0, &reason), STATUS_MISMATCH);
    CHECK_OK(rig_lease(store, &session, 0, RIG_CLIENT));
    assert_int_equal(store_use_namespace(store, &two, 0, &reason), STATUS_BUSY);
    rig_release(store, &session, RIG_CLIENT);
    CHECK_OK(store_use_namespace(store, &two, 0, &reason)); // and dropped
    session.name_space = &two;
    assert_int_equal(rig_request(store, &session), 2);
    two.group_count = 2;
    two.fingerprint[0] = 9;
    assert_int_equal(store_use_namespace(store, &two, 0, &reason), STATUS_UNSUPPORTED);
    store_destroy(store, 0);
}

static void sessions_in_memory(void **state)
{
    (void)state;
    struct kv_namespace name_space = rig_namespace(1);
    struct store *store = rig_store(&name_space, SLOTS, NULL, 0);
    uint32_t tokens[40];
    rig_tokens(1, tokens, 40);
    struct rig_session session = {&name_space, tokens, 40, "u", false, {0}, {{{0}}}};
    struct kv_checkpoint checkpoint = rig_checkpoint(&session, "one", false, true);
    struct reason reason = {0};
    assert_int_equal(store_checkpoint(store, &checkpoint, 1, &reason), STATUS_UNREACHABLE);
    checkpoint.sync = false;
    CHECK_OK(store_checkpoint(store, &checkpoint, 2, &reason));
    struct kv_reply reply = rig_answer(store, 2);
    assert_int_equal(reply.checkpoint.block_count, 2);
    kv_reply_finish(&reply);
    const struct kv_session_request mine = {.name = "one", .salt = "u", .salt_bytes = 1};
    const struct kv_session_request theirs = {.name = "one", .salt = "v", .salt_bytes = 1};
    CHECK_OK(store_session_get(store, &mine, true, 3, &reason));
    reply = rig_answer(store, 3);
    CHECK_OK(reply.status);
    assert_int_equal(reply.session_get.token_count, 40);
    assert_memory_equal(reply.session_get.tokens, tokens, sizeof(tokens));
    kv_reply_finish(&reply);
    CHECK_OK(store_session_get(store, &theirs, true, 4, &reason));
    reply = rig_answer(store, 4);
    assert_int_equal(reply.status, STATUS_NOT_FOUND);
    kv_reply_finish(&reply);
    CHECK_OK(store_session_list(store, &mine, true, 5, &reason));
    reply = rig_answer(store, 5);
    assert_int_equal(reply.session_list.count, 1);
    assert_string_equal(reply.session_list.rows[0].name, "one");
    kv_reply_finish(&reply);
    CHECK_OK(store_session_delete(store, &mine, 6, &reason));
    reply = rig_answer(store, 6);
    CHECK_OK(reply.status);
    kv_reply_finish(&reply);
    CHECK_OK(store_session_get(store, &mine, true, 7, &reason));
    reply = rig_answer(store, 7);
    assert_int_equal(reply.status, STATUS_NOT_FOUND);
    kv_reply_finish(&reply);
    assert_int_equal(
        store_session_get(store, &(struct kv_session_request){.name = "../x"}, true, 8, &reason),
        STATUS_INVALID);
    store_destroy(store, 0);
}

// ---- random clients

enum { CLIENTS = 3, LEASES = 6, FAMILIES = 5, STEPS = 8000 };

struct actor {
    bool active;
    uint64_t client;
    uint32_t tokens[16 * 12];
    struct rig_session session;
    uint32_t next; // block to compute
};

// What the store says it has must add up with what the actors hold.
static void check_books(struct store *store, const struct actor *actors)
{
    struct kv_status status = rig_status(store);
    uint32_t leases = 0;
    static bool lent[SLOTS];
    memset(lent, 0, sizeof(lent));
    for (int i = 0; i < LEASES; i++) {
        leases += actors[i].active;
        for (uint32_t b = 0; actors[i].active && b < actors[i].session.lease.block_count; b++) {
            const struct kv_slot_ref *ref = &actors[i].session.lease.slots[b];
            struct arena_slot slot = rig_slot(store, ref->slot_index);
            assert_int_equal(slot.generation, ref->generation); // nobody took it away
            if (ref->source == KV_SOURCE_NEW && slot.state == ARENA_SLOT_FILLING) {
                assert_false(lent[ref->slot_index]); // in two hands
                lent[ref->slot_index] = true;
            }
        }
    }
    assert_int_equal(status.lease_count, leases);
    assert_int_equal(status.slot_free_count + status.slot_cached_count + status.slot_leased_count,
                     SLOTS);
}

static void begin(struct store *store, struct actor *actor, const struct kv_namespace *name_space,
                  uint64_t *random)
{
    uint32_t family = (uint32_t)(check_random(random) % FAMILIES);
    rig_tokens(family, actor->tokens, 16 * 12);
    uint32_t count = 1 + (uint32_t)(check_random(random) % (16 * 10));
    if (check_random(random) % 3 == 0) {
        actor->tokens[check_random(random) % count] ^= 1; // a fork
    }
    actor->session = (struct rig_session){
        name_space, actor->tokens, count,  check_random(random) % 4 == 0 ? "v" : "u",
        false,      {0},           {{{0}}}};
    actor->client = 1 + check_random(random) % CLIENTS;
    actor->next = 0;
    enum status status =
        rig_lease(store, &actor->session, (uint32_t)(check_random(random) % 3), actor->client);
    assert_true(status == STATUS_OK || status == STATUS_BUSY);
    actor->active = status == STATUS_OK;
}

static void advance(struct store *store, struct actor *actor, uint64_t *random)
{
    struct rig_session *session = &actor->session;
    if (actor->next == session->token_count / RIG_BLOCK_TOKENS || check_random(random) % 20 == 0) {
        if (check_random(random) % 2 == 0) {
            rig_release(store, session, actor->client);
            actor->active = false;
        }
        return;
    }
    uint32_t index = actor->next++;
    uint32_t slot = session->lease.slots[index].slot_index;
    if (rig_slot(store, slot).state == ARENA_SLOT_READY) {
        assert_true(block_id_equal(&rig_header(store, slot)->id, &session->ids[index]));
        assert_int_equal(rig_payload(store, slot)[77], rig_byte(&session->ids[index], 77));
    } else {
        rig_fill(store, session, index);
        CHECK_OK(rig_publish(store, session, index, actor->client));
    }
}

static void kill_client(struct store *store, struct actor *actors, uint64_t client)
{
    store_release_client(store, client);
    for (int i = 0; i < LEASES; i++) {
        if (actors[i].active && actors[i].client == client) {
            kv_lease_finish(&actors[i].session.lease);
            actors[i].active = false;
        }
    }
}

static void random_clients_never_break_the_books(void **state)
{
    (void)state;
    static struct actor actors[LEASES];
    struct kv_namespace name_space = rig_namespace(1);
    struct store *store = rig_store(&name_space, SLOTS, NULL, 0);
    uint64_t random = check_seed();
    memset(actors, 0, sizeof(actors));
    for (int step = 0; step < STEPS; step++) {
        struct actor *actor = &actors[check_random(&random) % LEASES];
        if (!actor->active) {
            begin(store, actor, &name_space, &random);
        } else {
            advance(store, actor, &random);
        }
        if (check_random(&random) % 200 == 0) {
            kill_client(store, actors, 1 + check_random(&random) % CLIENTS);
        }
        check_books(store, actors);
    }
    assert_true(rig_status(store).hit_ram_count > 100);
    assert_true(rig_status(store).evicted_count > 100);
    for (uint64_t client = 1; client <= CLIENTS; client++) {
        kill_client(store, actors, client);
    }
    rig_check_idle(store);
    store_destroy(store, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(second_request_hits_in_memory),
        cmocka_unit_test(a_whole_prompt_is_never_all_hits),
        cmocka_unit_test(users_modes_and_tokens_do_not_mix),
        cmocka_unit_test(later_blocks_hit_after_a_hole),
        cmocka_unit_test(leases_are_all_or_nothing),
        cmocka_unit_test(a_lease_that_finds_no_memory_is_undone),
        cmocka_unit_test(leased_blocks_are_never_evicted),
        cmocka_unit_test(the_end_of_a_chain_is_evicted_first),
        cmocka_unit_test(what_was_not_published_is_not_found),
        cmocka_unit_test(headers_that_do_not_fit_are_refused),
        cmocka_unit_test(publishing_what_is_not_lent_is_refused),
        cmocka_unit_test(tokens_are_compared_on_every_hit),
        cmocka_unit_test(malformed_leases_are_refused),
        cmocka_unit_test(namespaces),
        cmocka_unit_test(sessions_in_memory),
        cmocka_unit_test(random_clients_never_break_the_books),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
