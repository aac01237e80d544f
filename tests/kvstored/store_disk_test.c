// SPDX-License-Identifier: Apache-2.0
// At stake: that what was saved is there after a restart, that nothing that is not exactly the
// saved block is ever served, and that a disk that fails stops persistence and nothing else. The
// store runs as in kvstored, with its threads; damage is done to the closed file, one byte at a
// time.
#include "tests/kvstored/store_rig.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { SLOTS = 200, DISK_BYTES = 64 << 20, LITTLE_DISK_BYTES = 16 << 20 };

struct fixture {
    char folder[256];
    struct kv_namespace name_space;
    struct store *store;
    uint32_t tokens[16 * 62];
    struct rig_session session;
};

static void open_store(struct fixture *fixture)
{
    fixture->store = rig_store(&fixture->name_space, SLOTS, fixture->folder, DISK_BYTES);
}

static void close_store(struct fixture *fixture)
{
    store_destroy(fixture->store, 10000);
    fixture->store = NULL;
}

static void restart(struct fixture *fixture)
{
    close_store(fixture);
    open_store(fixture);
}

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    check_folder_create(fixture->folder);
    fixture->name_space = rig_namespace(1);
    rig_tokens(1, fixture->tokens, 16 * 62);
    fixture->session =
        (struct rig_session){&fixture->name_space, fixture->tokens, 100, "u", true, {0}, {{{0}}}};
    open_store(fixture);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    store_destroy(fixture->store, 0);
    check_folder_remove(fixture->folder);
    free(fixture);
    return 0;
}

static void data_path(const struct fixture *fixture, char *out)
{
    snprintf(out, 512, "%s/store/0100000000000000/data.mdb", fixture->folder);
}

static uint8_t *read_file(const char *path, size_t *out_bytes)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    struct stat info;
    assert_int_equal(fstat(fileno(file), &info), 0);
    uint8_t *data = malloc((size_t)info.st_size);
    assert_int_equal(fread(data, 1, (size_t)info.st_size, file), info.st_size);
    fclose(file);
    *out_bytes = (size_t)info.st_size;
    return data;
}

static void flip(const char *path, size_t at)
{
    int file = open(path, O_RDWR);
    uint8_t byte;
    assert_true(file >= 0);
    assert_int_equal(pread(file, &byte, 1, (off_t)at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(file, &byte, 1, (off_t)at), 1);
    close(file);
}

// Where the header of the block lies in the file.
static size_t find_block(const struct fixture *fixture, const struct block_id *id)
{
    char path[512];
    size_t bytes;
    data_path(fixture, path);
    uint8_t *data = read_file(path, &bytes);
    size_t found = 0;
    for (size_t at = 16; at + sizeof(struct block_header) < bytes; at += 4096) {
        if (memcmp(data + at + offsetof(struct block_header, id), id, sizeof(*id)) == 0) {
            found = at;
        }
    }
    free(data);
    assert_true(found > 0);
    return found;
}

static struct kv_reply get_session(struct store *store, const char *name, const char *salt)
{
    struct reason reason = {0};
    const struct kv_session_request request = {
        .name = name, .salt = salt, .salt_bytes = (uint32_t)strlen(salt)};
    CHECK_OK(store_session_get(store, &request, true, 77, &reason));
    return rig_answer(store, 77);
}

static void delete_session(struct store *store, const char *name)
{
    struct reason reason = {0};
    const struct kv_session_request request = {.name = name, .salt = "u", .salt_bytes = 1};
    CHECK_OK(store_session_delete(store, &request, 78, &reason));
    struct kv_reply reply = rig_answer(store, 78);
    CHECK_OK(reply.status);
    kv_reply_finish(&reply);
}

// ---- saved and found again

static void saved_blocks_survive_a_restart(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(rig_request(fixture->store, &fixture->session), 6);
    struct kv_reply reply = rig_save(fixture->store, &fixture->session, "one", true);
    CHECK_OK(reply.status);
    assert_int_equal(reply.checkpoint.block_count, 6);
    assert_int_equal(reply.checkpoint.durable_block_count, 6);
    kv_reply_finish(&reply);
    for (int round = 0; round < 3; round++) { // resuming consumes nothing
        restart(fixture);
        reply = get_session(fixture->store, "one", "u");
        CHECK_OK(reply.status);
        assert_int_equal(reply.session_get.token_count, 100);
        assert_memory_equal(reply.session_get.tokens, fixture->tokens, 400);
        assert_int_equal(reply.session_get.settings_bytes, 3);
        assert_memory_equal(reply.session_get.settings, "set", 3);
        assert_true(reply.session_get.keep);
        kv_reply_finish(&reply);
        assert_int_equal(rig_request(fixture->store, &fixture->session), 0);
        struct kv_status status = rig_status(fixture->store);
        assert_int_equal(status.hit_disk_count, 6);
        assert_int_equal(status.loaded_count, 6);
        assert_int_equal(status.written_block_count, 0); // and writes nothing again
        assert_int_equal(rig_request(fixture->store, &fixture->session), 0); // from memory now
        assert_int_equal(rig_status(fixture->store).hit_ram_count, 6);
        rig_check_idle(fixture->store);
    }
}

static void saving_again_writes_no_payload(void **state)
{
    struct fixture *fixture = *state;
    fixture->session.persist = false;
    rig_request(fixture->store, &fixture->session);
    assert_int_equal(rig_status(fixture->store).disk_block_count, 0);
    struct kv_reply reply = rig_save(fixture->store, &fixture->session, "one", false);
    assert_int_equal(reply.checkpoint.written_bytes, 6 * RIG_PAYLOAD_BYTES);
    kv_reply_finish(&reply);
    reply = rig_save(fixture->store, &fixture->session, "one", false);
    assert_int_equal(reply.checkpoint.written_bytes, 0);
    assert_int_equal(reply.checkpoint.durable_block_count, 6);
    kv_reply_finish(&reply);
    assert_int_equal(rig_status(fixture->store).written_block_count, 6);
}

static void blocks_of_unnamed_requests_stay_in_memory(void **state)
{
    struct fixture *fixture = *state;
    fixture->session.persist = false;
    rig_request(fixture->store, &fixture->session);
    restart(fixture);
    assert_int_equal(rig_request(fixture->store, &fixture->session), 6);
}

static void a_second_use_goes_to_disk(void **state)
{
    struct fixture *fixture = *state;
    fixture->session.persist = false;
    rig_request(fixture->store, &fixture->session);
    rig_request(fixture->store, &fixture->session);
    restart(fixture);
    assert_int_equal(rig_status(fixture->store).session_count, 0);
    assert_int_equal(rig_request(fixture->store, &fixture->session), 0);
    assert_int_equal(rig_status(fixture->store).hit_disk_count, 6);
}

// Queued writes are finished by an orderly stop.
static void an_orderly_stop_writes_what_is_queued(void **state)
{
    struct fixture *fixture = *state;
    fixture->session.token_count = 16 * 60 + 1;
    assert_int_equal(rig_request(fixture->store, &fixture->session), 60);
    restart(fixture);
    assert_int_equal(rig_request(fixture->store, &fixture->session), 0);
}

static void sessions_of_users_are_apart(void **state)
{
    struct fixture *fixture = *state;
    struct kv_reply reply = rig_save(fixture->store, &fixture->session, "one", false);
    kv_reply_finish(&reply);
    reply = get_session(fixture->store, "one", "v");
    assert_int_equal(reply.status, STATUS_NOT_FOUND);
    kv_reply_finish(&reply);
    struct reason reason = {0};
    const struct kv_session_request theirs = {.salt = "v", .salt_bytes = 1};
    CHECK_OK(store_session_list(fixture->store, &theirs, true, 5, &reason));
    reply = rig_answer(fixture->store, 5);
    assert_int_equal(reply.session_list.count, 0);
    kv_reply_finish(&reply);
    CHECK_OK(store_session_list(fixture->store, &theirs, false, 6, &reason)); // kvctl sees all
    reply = rig_answer(fixture->store, 6);
    assert_int_equal(reply.session_list.count, 1);
    assert_string_equal(reply.session_list.rows[0].name, "one");
    assert_memory_equal(reply.session_list.rows[0].salt, "u", 1);
    kv_reply_finish(&reply);
    assert_int_equal(rig_status(fixture->store).session_count, 1);
}

static void lists_count_blocks_by_tier(void **state)
{
    struct fixture *fixture = *state;
    struct reason reason = {0};
    rig_request(fixture->store, &fixture->session);
    struct kv_reply reply = rig_save(fixture->store, &fixture->session, "one", false);
    kv_reply_finish(&reply);
    const struct kv_session_request all = {0};
    CHECK_OK(store_session_list(fixture->store, &all, false, 6, &reason));
    reply = rig_answer(fixture->store, 6);
    assert_int_equal(reply.session_list.rows[0].block_count, 6);
    assert_int_equal(reply.session_list.rows[0].ram_block_count, 6);
    assert_int_equal(reply.session_list.rows[0].disk_block_count, 6);
    kv_reply_finish(&reply);
    restart(fixture);
    CHECK_OK(store_session_list(fixture->store, &all, false, 7, &reason));
    reply = rig_answer(fixture->store, 7);
    assert_int_equal(reply.session_list.rows[0].ram_block_count, 0);
    assert_int_equal(reply.session_list.rows[0].disk_block_count, 6);
    kv_reply_finish(&reply);
    const struct kv_blocks_request blocks = {.session = "one"};
    CHECK_OK(store_blocks(fixture->store, &blocks, 8, &reason));
    reply = rig_answer(fixture->store, 8);
    CHECK_OK(reply.status);
    assert_int_equal(reply.blocks.count, 6);
    assert_int_equal(reply.blocks.rows[5].tiers, KV_TIER_DISK);
    assert_int_equal(reply.blocks.rows[5].first_position, 80);
    struct kv_block_request one;
    memcpy(one.id, reply.blocks.rows[5].id, sizeof(one.id));
    kv_reply_finish(&reply);
    CHECK_OK(store_block(fixture->store, &one, 9, &reason));
    reply = rig_answer(fixture->store, 9);
    CHECK_OK(reply.status);
    assert_true(reply.block.intact);
    assert_int_equal(reply.block.header.first_position, 80);
    kv_reply_finish(&reply);
    // All blocks: those in memory, the newest first, then those on disk alone; cut by the limit.
    uint32_t tokens[33];
    rig_tokens(2, tokens, 33);
    struct rig_session other = {&fixture->name_space, tokens, 33, "u", false, {0}, {{{0}}}};
    rig_request(fixture->store, &other);
    os_sleep_ms(5);
    rig_tokens(3, tokens, 33);
    rig_request(fixture->store, &other);
    const struct kv_blocks_request all_blocks = {.limit = 5};
    CHECK_OK(store_blocks(fixture->store, &all_blocks, 11, &reason));
    reply = rig_answer(fixture->store, 11);
    assert_int_equal(reply.blocks.total_count, 10);
    assert_int_equal(reply.blocks.count, 5);
    assert_memory_equal(reply.blocks.rows[0].id, &other.ids[0], BLOCK_ID_BYTES);
    assert_memory_equal(reply.blocks.rows[1].id, &other.ids[1], BLOCK_ID_BYTES);
    assert_int_equal(reply.blocks.rows[3].tiers, KV_TIER_RAM);
    assert_int_equal(reply.blocks.rows[4].tiers, KV_TIER_DISK);
    kv_reply_finish(&reply);
    one.id[0] ^= 1;
    assert_int_equal(store_block(fixture->store, &one, 10, &reason), STATUS_NOT_FOUND);
}

// ---- deleting

static void deleting_keeps_what_others_need(void **state)
{
    struct fixture *fixture = *state;
    struct rig_session fork = fixture->session;
    uint32_t tokens[100];
    memcpy(tokens, fixture->tokens, sizeof(tokens));
    tokens[60] ^= 1; // blocks 0..2 are shared
    fork.tokens = tokens;
    rig_request(fixture->store, &fixture->session);
    rig_request(fixture->store, &fork);
    struct kv_reply reply = rig_save(fixture->store, &fixture->session, "one", true);
    kv_reply_finish(&reply);
    reply = rig_save(fixture->store, &fork, "two", true);
    kv_reply_finish(&reply);
    assert_int_equal(rig_status(fixture->store).disk_block_count, 9);
    delete_session(fixture->store, "one");
    assert_int_equal(rig_status(fixture->store).disk_block_count, 6);
    reply = get_session(fixture->store, "one", "u");
    assert_int_equal(reply.status, STATUS_NOT_FOUND);
    kv_reply_finish(&reply);
    restart(fixture);
    assert_int_equal(rig_request(fixture->store, &fork), 0);
    delete_session(fixture->store, "two");
    assert_int_equal(rig_status(fixture->store).disk_block_count, 0);
    struct reason reason = {0};
    const struct kv_session_request request = {.name = "two", .salt = "u", .salt_bytes = 1};
    CHECK_OK(store_session_delete(fixture->store, &request, 78, &reason));
    reply = rig_answer(fixture->store, 78);
    assert_int_equal(reply.status, STATUS_NOT_FOUND);
    kv_reply_finish(&reply);
}

// Blocks of a lease are not taken from under it.
static void deleting_spares_what_is_leased(void **state)
{
    struct fixture *fixture = *state;
    rig_request(fixture->store, &fixture->session);
    struct kv_reply reply = rig_save(fixture->store, &fixture->session, "one", false);
    kv_reply_finish(&reply);
    CHECK_OK(rig_lease(fixture->store, &fixture->session, 0, RIG_CLIENT));
    delete_session(fixture->store, "one");
    assert_int_equal(rig_status(fixture->store).disk_block_count, 6);
    rig_release(fixture->store, &fixture->session, RIG_CLIENT);
}

// ---- damage

static void save_and_close(struct fixture *fixture)
{
    rig_request(fixture->store, &fixture->session);
    struct kv_reply reply = rig_save(fixture->store, &fixture->session, "one", true);
    CHECK_OK(reply.status);
    kv_reply_finish(&reply);
    close_store(fixture);
}

static void a_flipped_byte_is_a_miss(void **state)
{
    struct fixture *fixture = *state;
    static const size_t places[] = {
        offsetof(struct block_header, magic),
        offsetof(struct block_header, layout_version),
        offsetof(struct block_header, mode),
        offsetof(struct block_header, first_position),
        offsetof(struct block_header, payload_bytes),
        offsetof(struct block_header, checksum),
        offsetof(struct block_header, id) + 31,
        offsetof(struct block_header, parent_id) + 3,
        offsetof(struct block_header, fingerprint) + 9,
        offsetof(struct block_header, tokens) + 5,
        offsetof(struct block_header, tokens) + 4 * 20,
        offsetof(struct block_header, reserved) + 100,
        sizeof(struct block_header),
        sizeof(struct block_header) + 5000,
        sizeof(struct block_header) + RIG_PAYLOAD_BYTES - 1,
    };
    char path[512];
    data_path(fixture, path);
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        // From nothing each time, so that the file holds no older copy of the block.
        close_store(fixture);
        check_folder_remove(fixture->folder);
        open_store(fixture);
        save_and_close(fixture);
        rig_chain(&fixture->session);
        flip(path, find_block(fixture, &fixture->session.ids[2]) + places[i]);
        open_store(fixture);
        assert_int_equal(rig_request(fixture->store, &fixture->session), 1); // block 2 alone
        struct kv_status status = rig_status(fixture->store);
        assert_int_equal(status.load_failed_count, 1);
        assert_int_equal(status.loaded_count, 5);
        rig_check_idle(fixture->store);
    }
}

// Values of two blocks exchanged: each is a whole block, under a wrong key.
static void swapped_blocks_are_misses(void **state)
{
    struct fixture *fixture = *state;
    enum { VALUE = sizeof(struct block_header) + RIG_PAYLOAD_BYTES };
    char path[512];
    uint8_t one[VALUE], two[VALUE];
    data_path(fixture, path);
    save_and_close(fixture);
    off_t first = (off_t)find_block(fixture, &fixture->session.ids[1]);
    off_t second = (off_t)find_block(fixture, &fixture->session.ids[4]);
    int file = open(path, O_RDWR);
    assert_int_equal(pread(file, one, VALUE, first), VALUE);
    assert_int_equal(pread(file, two, VALUE, second), VALUE);
    assert_int_equal(pwrite(file, two, VALUE, first), VALUE);
    assert_int_equal(pwrite(file, one, VALUE, second), VALUE);
    close(file);
    open_store(fixture);
    assert_int_equal(rig_request(fixture->store, &fixture->session), 2);
    assert_int_equal(rig_status(fixture->store).load_failed_count, 2);
}

static void verify_finds_and_repairs(void **state)
{
    struct fixture *fixture = *state;
    char path[512];
    struct reason reason = {0};
    data_path(fixture, path);
    save_and_close(fixture);
    flip(path, find_block(fixture, &fixture->session.ids[3]) + 2000);
    open_store(fixture);
    for (int round = 0; round < 3; round++) {
        const struct kv_verify_request request = {.repair = round == 1};
        CHECK_OK(store_verify(fixture->store, &request, 5, &reason));
        struct kv_reply reply = rig_answer(fixture->store, 5);
        CHECK_OK(reply.status);
        assert_int_equal(reply.verify.session_count, 1);
        assert_int_equal(reply.verify.block_count, round == 2 ? 5 : 6);
        assert_int_equal(reply.verify.damaged_count, round == 2 ? 0 : 1);
        assert_int_equal(reply.verify.repaired_count, round == 1);
        if (round < 2) {
            assert_memory_equal(reply.verify.rows[0].id, &fixture->session.ids[3], BLOCK_ID_BYTES);
        }
        kv_reply_finish(&reply);
    }
}

static void a_damaged_checkpoint_is_not_found(void **state)
{
    struct fixture *fixture = *state;
    char path[512];
    size_t bytes;
    data_path(fixture, path);
    save_and_close(fixture);
    uint8_t *data = read_file(path, &bytes);
    size_t at = 0;
    for (size_t i = 0; i + 64 < bytes; i++) { // the record's tokens
        if (memcmp(data + i, fixture->tokens + 10, 40) == 0 &&
            memcmp(data + i - 40, fixture->tokens, 40) == 0 &&
            memcmp(data + i - 80, "KVS1", 4) == 0) {
            at = i;
        }
    }
    free(data);
    assert_true(at > 0);
    flip(path, at + 1);
    open_store(fixture);
    struct kv_reply reply = get_session(fixture->store, "one", "u");
    assert_int_equal(reply.status, STATUS_NOT_FOUND);
    assert_non_null(strstr(reply.reason.text, "damaged"));
    kv_reply_finish(&reply);
    assert_int_equal(rig_status(fixture->store).session_damaged_count, 1);
    struct reason reason = {0};
    const struct kv_verify_request request = {0};
    CHECK_OK(store_verify(fixture->store, &request, 5, &reason));
    reply = rig_answer(fixture->store, 5);
    assert_int_equal(reply.verify.damaged_count, 1);
    assert_true(reply.verify.rows[0].is_session);
    assert_string_equal(reply.verify.rows[0].name, "one");
    kv_reply_finish(&reply);
    // Saving it again mends it.
    reply = rig_save(fixture->store, &fixture->session, "one", true);
    CHECK_OK(reply.status);
    kv_reply_finish(&reply);
    reply = get_session(fixture->store, "one", "u");
    CHECK_OK(reply.status);
    kv_reply_finish(&reply);
}

// A block that decays in memory before it is written never reaches the disk.
static void decay_in_memory_is_not_written(void **state)
{
    struct fixture *fixture = *state;
    fixture->session.persist = false;
    CHECK_OK(rig_lease(fixture->store, &fixture->session, 0, RIG_CLIENT));
    rig_compute(fixture->store, &fixture->session, RIG_CLIENT);
    rig_payload(fixture->store, fixture->session.lease.slots[2].slot_index)[100] ^= 1;
    rig_release(fixture->store, &fixture->session, RIG_CLIENT);
    struct kv_reply reply = rig_save(fixture->store, &fixture->session, "one", true);
    CHECK_OK(reply.status);
    assert_int_equal(reply.checkpoint.durable_block_count, 5);
    kv_reply_finish(&reply);
    assert_int_equal(rig_request(fixture->store, &fixture->session), 1); // and is not served
    rig_check_idle(fixture->store);
}

static void a_file_that_is_no_database_is_set_aside(void **state)
{
    struct fixture *fixture = *state;
    char path[512], command[700];
    data_path(fixture, path);
    save_and_close(fixture);
    for (int how = 0; how < 3; how++) {
        int file = open(path, O_RDWR);
        assert_true(file >= 0);
        if (how == 0) {
            assert_int_equal(pwrite(file, "junk", 4, 16), 4); // magic of the first page
        } else {
            assert_int_equal(ftruncate(file, how == 1 ? 5000 : 100), 0);
        }
        close(file);
        open_store(fixture);
        struct kv_status status = rig_status(fixture->store);
        assert_true(status.persistence_ok);
        assert_non_null(strstr(status.persistence_state, "set aside"));
        assert_int_equal(rig_request(fixture->store, &fixture->session), 6);
        save_and_close(fixture); // a sound store again
    }
    snprintf(command, sizeof(command), "test $(ls -d %s/store/*.damaged-* | wc -l) = 3",
             fixture->folder);
    assert_int_equal(system(command), 0);
    open_store(fixture);
}

// Cut after its first pages, the rest reads as zeros: misses, or a store that is set aside; never a
// wrong byte.
static void a_cut_file_serves_nothing_wrong(void **state)
{
    struct fixture *fixture = *state;
    char path[512];
    struct stat info;
    data_path(fixture, path);
    save_and_close(fixture);
    assert_int_equal(stat(path, &info), 0);
    for (off_t length = info.st_size - 4096; length >= 8192; length -= 4096 * 3) {
        assert_int_equal(truncate(path, length), 0);
        open_store(fixture);
        rig_request(fixture->store, &fixture->session); // compares every hit
        // The first save may be what finds the damage; the next one has a new store.
        struct kv_reply reply = rig_save(fixture->store, &fixture->session, "one", true);
        assert_true(reply.status == STATUS_OK || reply.status == STATUS_DAMAGED);
        kv_reply_finish(&reply);
        save_and_close(fixture);
    }
    open_store(fixture);
}

// ---- a disk that does not take more

static void budget_evicts_the_oldest_sessions(void **state)
{
    struct fixture *fixture = *state;
    char name[32];
    close_store(fixture);
    fixture->store = rig_store(&fixture->name_space, SLOTS, fixture->folder, LITTLE_DISK_BYTES);
    uint32_t tokens[16 * 60];
    struct rig_session session = {&fixture->name_space, tokens, 16 * 60, "u", true, {0}, {{{0}}}};
    for (uint32_t i = 0; i < 40; i++) { // 2400 blocks where 1200 fit
        rig_tokens(1000 + i, tokens, 16 * 60);
        assert_int_equal(rig_request(fixture->store, &session), 60);
        snprintf(name, sizeof(name), "s%u", i);
        struct kv_reply reply = rig_save(fixture->store, &session, name, i == 3);
        CHECK_OK(reply.status);
        assert_int_equal(reply.checkpoint.durable_block_count, 60);
        kv_reply_finish(&reply);
        assert_true(rig_status(fixture->store).disk_bytes <= LITTLE_DISK_BYTES);
    }
    assert_true(rig_status(fixture->store).persistence_ok);
    static const uint32_t kept[] = {3, 39, 38, 30}, gone[] = {0, 1, 2, 4, 10};
    for (size_t i = 0; i < 4; i++) {
        snprintf(name, sizeof(name), "s%u", kept[i]);
        struct kv_reply reply = get_session(fixture->store, name, "u");
        CHECK_OK(reply.status);
        kv_reply_finish(&reply);
    }
    for (size_t i = 0; i < 5; i++) {
        snprintf(name, sizeof(name), "s%u", gone[i]);
        struct kv_reply reply = get_session(fixture->store, name, "u");
        assert_int_equal(reply.status, STATUS_NOT_FOUND);
        kv_reply_finish(&reply);
    }
    rig_check_idle(fixture->store);
}

// Kept sessions are never evicted: over quota is an error that says so, and serving goes on.
static void kept_sessions_fill_the_budget(void **state)
{
    struct fixture *fixture = *state;
    char name[32];
    close_store(fixture);
    fixture->store = rig_store(&fixture->name_space, SLOTS, fixture->folder, LITTLE_DISK_BYTES);
    uint32_t tokens[16 * 60], saved = 0;
    enum status status = STATUS_OK;
    struct rig_session session = {&fixture->name_space, tokens, 16 * 60, "u", true, {0}, {{{0}}}};
    for (uint32_t i = 0; status == STATUS_OK; i++) {
        assert_true(i < 40);
        rig_tokens(1000 + i, tokens, 16 * 60);
        rig_request(fixture->store, &session);
        snprintf(name, sizeof(name), "s%u", i);
        struct kv_reply reply = rig_save(fixture->store, &session, name, true);
        status = reply.status;
        saved += status == STATUS_OK;
        if (status != STATUS_OK) {
            assert_int_equal(status, STATUS_NO_SPACE);
            assert_non_null(strstr(reply.reason.text, "budget"));
        }
        kv_reply_finish(&reply);
    }
    assert_true(saved > 10);
    struct kv_status levels = rig_status(fixture->store);
    assert_false(levels.persistence_ok);
    assert_non_null(strstr(levels.persistence_state, "stopped"));
    rig_tokens(9999, tokens, 16 * 60);
    assert_int_equal(rig_request(fixture->store, &session), 60); // serving goes on
    for (uint32_t i = 0; i < saved; i++) {
        snprintf(name, sizeof(name), "s%u", i);
        struct kv_reply reply = get_session(fixture->store, name, "u");
        CHECK_OK(reply.status);
        kv_reply_finish(&reply);
    }
    delete_session(fixture->store, "s0"); // makes room: it recovers
    struct kv_reply reply = rig_save(fixture->store, &session, "late", false);
    CHECK_OK(reply.status);
    kv_reply_finish(&reply);
    assert_true(rig_status(fixture->store).persistence_ok);
}

static void a_full_disk_stops_persistence_alone(void **state)
{
    struct fixture *fixture = *state;
    struct rlimit before, little;
    save_and_close(fixture);
    open_store(fixture);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    little = before;
    little.rlim_cur = 100 * 1024; // less than the file has
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    uint32_t tokens[16 * 60];
    rig_tokens(5, tokens, 16 * 60);
    struct rig_session session = {&fixture->name_space, tokens, 16 * 60, "u", true, {0}, {{{0}}}};
    assert_int_equal(rig_request(fixture->store, &session), 60);
    struct kv_reply reply = rig_save(fixture->store, &session, "two", false);
    assert_int_equal(reply.status, STATUS_NO_SPACE);
    kv_reply_finish(&reply);
    struct kv_status status = rig_status(fixture->store);
    assert_false(status.persistence_ok);
    assert_non_null(strstr(status.persistence_state, "full"));
    assert_int_equal(rig_request(fixture->store, &session), 1);          // hits in memory go on
    assert_int_equal(rig_request(fixture->store, &fixture->session), 0); // and from disk
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    reply = rig_save(fixture->store, &session, "two", false); // a save tries at once
    CHECK_OK(reply.status);
    assert_int_equal(reply.checkpoint.durable_block_count, 60);
    kv_reply_finish(&reply);
    assert_true(rig_status(fixture->store).persistence_ok);
}

// As when the disk was full at the start: the state names the numbers and what to do, whole.
static void budget_under_the_least(void **state)
{
    struct fixture *fixture = *state;
    char folder[256];
    check_folder_create(folder);
    struct store *store = rig_store(&fixture->name_space, 8, folder, 10 << 20);
    struct kv_status status = rig_status(store);
    assert_false(status.persistence_ok);
    assert_non_null(strstr(status.persistence_state, "10 MiB"));
    assert_non_null(strstr(status.persistence_state, "16 MiB"));
    assert_non_null(strstr(status.persistence_state, "raise --disk-space"));
    store_destroy(store, 0);
    check_folder_remove(folder);
}

static void one_process_a_store(void **state)
{
    struct fixture *fixture = *state;
    struct store *second = NULL;
    struct reason reason = {0};
    const struct store_options options = {
        .payload_bytes_max = 1 << 20, .data_dir = fixture->folder, .disk_bytes_max = DISK_BYTES};
    assert_int_equal(store_create(&options, &second, &reason), STATUS_BUSY);
    assert_non_null(strstr(reason.text, "in use by process"));
}

// Sessions of another namespace stay visible without being in the way.
static void namespaces_are_apart(void **state)
{
    struct fixture *fixture = *state;
    struct reason reason = {0};
    struct kv_namespace other = rig_namespace(2);
    rig_request(fixture->store, &fixture->session);
    struct kv_reply reply = rig_save(fixture->store, &fixture->session, "one", false);
    kv_reply_finish(&reply);
    CHECK_OK(store_use_namespace(fixture->store, &other, 0, &reason));
    reply = get_session(fixture->store, "one", "u");
    assert_int_equal(reply.status, STATUS_NOT_FOUND);
    kv_reply_finish(&reply);
    struct rig_session session = fixture->session;
    session.name_space = &other;
    assert_int_equal(rig_request(fixture->store, &session), 6);
    const struct kv_session_request any = {.name = "one"};
    CHECK_OK(store_session_get(fixture->store, &any, false, 3, &reason));
    reply = rig_answer(fixture->store, 3);
    CHECK_OK(reply.status);
    assert_int_equal(reply.session_get.token_count, 100);
    kv_reply_finish(&reply);
    assert_int_equal(rig_status(fixture->store).namespace_count, 2);
    CHECK_OK(store_use_namespace(fixture->store, &fixture->name_space, 0, &reason));
    assert_int_equal(rig_request(fixture->store, &fixture->session), 0);
}

// Leases that end while their blocks load give their slots back, and load again.
static void ten_thousand_cancelled_loads(void **state)
{
    struct fixture *fixture = *state;
    fixture->session.token_count = 16 * 60 + 1;
    save_and_close(fixture);
    fixture->store = rig_store(&fixture->name_space, 70, fixture->folder, DISK_BYTES);
    uint32_t tokens[16 * 65];
    struct rig_session filler = {&fixture->name_space, tokens, 16 * 62, "u", false, {0}, {{{0}}}};
    uint64_t random = check_seed();
    uint64_t cancelled = 0;
    while (cancelled < 10000) {
        CHECK_OK(rig_lease(fixture->store, &fixture->session, 0, RIG_CLIENT));
        for (uint32_t i = 0; i < 60; i++) {
            cancelled += fixture->session.lease.slots[i].source == KV_SOURCE_DISK;
        }
        if (check_random(&random) % 8 == 0) {
            rig_compute(fixture->store, &fixture->session, RIG_CLIENT);
        }
        rig_release(fixture->store, &fixture->session, RIG_CLIENT);
        store_poll(fixture->store);
        rig_tokens((uint32_t)check_random(&random), tokens, 16 * 62);
        while (rig_lease(fixture->store, &filler, 0, RIG_CLIENT) != STATUS_OK) {
            store_wait(fixture->store, 10); // slots that are still loading
            store_poll(fixture->store);
        }
        rig_release(fixture->store, &filler, RIG_CLIENT);
        rig_tokens(1, tokens, 16 * 62);
    }
    uint64_t deadline = os_clock_ms() + 5000;
    while (rig_status(fixture->store).slot_leased_count > 0 && os_clock_ms() < deadline) {
        store_wait(fixture->store, 10);
        store_poll(fixture->store);
    }
    rig_check_idle(fixture->store);
}

int main(void)
{
#define CASE(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(saved_blocks_survive_a_restart),
        CASE(saving_again_writes_no_payload),
        CASE(blocks_of_unnamed_requests_stay_in_memory),
        CASE(a_second_use_goes_to_disk),
        CASE(an_orderly_stop_writes_what_is_queued),
        CASE(sessions_of_users_are_apart),
        CASE(lists_count_blocks_by_tier),
        CASE(deleting_keeps_what_others_need),
        CASE(deleting_spares_what_is_leased),
        CASE(a_flipped_byte_is_a_miss),
        CASE(swapped_blocks_are_misses),
        CASE(verify_finds_and_repairs),
        CASE(a_damaged_checkpoint_is_not_found),
        CASE(decay_in_memory_is_not_written),
        CASE(a_file_that_is_no_database_is_set_aside),
        CASE(a_cut_file_serves_nothing_wrong),
        CASE(budget_evicts_the_oldest_sessions),
        CASE(kept_sessions_fill_the_budget),
        CASE(a_full_disk_stops_persistence_alone),
        CASE(budget_under_the_least),
        CASE(one_process_a_store),
        CASE(namespaces_are_apart),
        CASE(ten_thousand_cancelled_loads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
