// SPDX-License-Identifier: Apache-2.0
// At stake: kvstored and its clients misunderstanding each other, or one of them reading past a
// message. Every op there and back; messages cut at every length (the end at an unmapped page),
// with every byte changed, and answers to other questions.
#include "proto/kv_message.h"
#include "tests/check.h"

static const uint32_t tokens[] = {1, 2, 0xfffffffe};
static const uint32_t indexes[] = {0, 7};
static struct kv_slot_ref slots[] = {{3, KV_SOURCE_RAM, 99}, {4, KV_SOURCE_NEW, 1}};
static struct kv_session_info sessions[] = {
    {.name = "one",
     .fingerprint = {1},
     .salt = "u",
     .salt_bytes = 1,
     .token_count = 5,
     .keep = true},
    {.name = "zwei"},
};
static struct kv_block_info blocks[] = {
    {.id = {9}, .tiers = KV_TIER_RAM, .token_count = 32, .saving = true}};
static struct kv_damaged damaged[] = {{.is_session = true, .name = "x"}, {.id = {5}}};

static struct kv_namespace name_space_make(void)
{
    return (struct kv_namespace){
        .fingerprint = {1, 2},
        .block_tokens = 32,
        .group_count = 2,
        .groups = {{.layer_count = 30, .kv_heads = 3, .head_dim = 64},
                   {.kind = KV_GROUP_WINDOW,
                    .window_tokens = 512,
                    .layer_count = 1,
                    .kv_heads = 1,
                    .head_dim = 16}},
        .field_count = 1,
        .fields = {{"rope.base", "10000"}},
    };
}

static struct kv_request request_make(enum kv_op op)
{
    struct kv_request request = {.op = op, .epoch = 77};
    switch (op) {
    case KV_OP_HELLO:
        request.hello = (struct kv_hello_request){.version = 1,
                                                  .program = "gpud",
                                                  .has_namespace = true,
                                                  .name_space = name_space_make(),
                                                  .arena_bytes_min = 5};
        break;
    case KV_OP_LEASE:
        request.lease = (struct kv_lease_request){.tokens = tokens,
                                                  .token_count = 3,
                                                  .block_count = 2,
                                                  .salt = "us",
                                                  .salt_bytes = 2,
                                                  .mode = ATTENTION_MODE_SPARSE,
                                                  .persist = true};
        break;
    case KV_OP_PUBLISH:
        request.publish = (struct kv_publish_request){4, indexes, 2};
        break;
    case KV_OP_RELEASE:
        request.release.lease_id = 4;
        break;
    case KV_OP_CHECKPOINT:
        request.checkpoint = (struct kv_checkpoint){.name = "one",
                                                    .tokens = tokens,
                                                    .token_count = 3,
                                                    .settings = "\0\1",
                                                    .settings_bytes = 2,
                                                    .sync = true};
        break;
    case KV_OP_SESSION_GET:
    case KV_OP_SESSION_DELETE:
        request.session = (struct kv_session_request){"one", "u", 1};
        break;
    case KV_OP_BLOCKS:
        request.blocks = (struct kv_blocks_request){"one", KV_TIER_DISK, 10};
        break;
    case KV_OP_BLOCK:
        request.block.id[0] = 4;
        break;
    case KV_OP_VERIFY:
        request.verify.repair = true;
        break;
    default:
        break;
    }
    return request;
}

static struct kv_reply reply_make(enum kv_op op)
{
    struct kv_reply reply = {.op = op, .epoch = 78};
    switch (op) {
    case KV_OP_HELLO:
        reply.hello = (struct kv_hello_reply){1, 78, 2, "/kvtier-1", 4096, 7, 3};
        break;
    case KV_OP_LEASE:
        reply.lease = (struct kv_lease){4, 2, slots};
        break;
    case KV_OP_CHECKPOINT:
        reply.checkpoint = (struct kv_checkpoint_reply){3, 2, 1};
        break;
    case KV_OP_SESSION_GET:
        reply.session_get = (struct kv_checkpoint){.name = "one",
                                                   .tokens = tokens,
                                                   .token_count = 3,
                                                   .salt = "u",
                                                   .salt_bytes = 1,
                                                   .keep = true};
        break;
    case KV_OP_SESSION_LIST:
        reply.session_list = (struct kv_session_list){2, sessions};
        break;
    case KV_OP_STATUS:
        reply.state = (struct kv_status){.hit_ram_count = 5,
                                         .persistence_ok = true,
                                         .persistence_state = "ok",
                                         .has_namespace = true,
                                         .name_space = name_space_make()};
        break;
    case KV_OP_BLOCKS:
        reply.blocks = (struct kv_block_list){9, 1, blocks};
        break;
    case KV_OP_BLOCK:
        reply.block = (struct kv_block_reply){.info = blocks[0],
                                              .header = {.magic = BLOCK_MAGIC},
                                              .intact = true,
                                              .keys = {-1, 2, 0.5, 1, 3}};
        break;
    case KV_OP_VERIFY:
        reply.verify = (struct kv_verify_reply){.damaged_count = 2, .count = 2, .rows = damaged};
        break;
    default:
        break;
    }
    return reply;
}

// Two encodings are equal exactly when all fields are: the tables write every field.
static void requests_go_there_and_back(void **state)
{
    (void)state;
    for (enum kv_op op = KV_OP_HELLO; op < KV_OP_END; op++) {
        struct kv_request request = request_make(op), back;
        struct reason reason = {0};
        void *first, *second;
        size_t first_bytes, second_bytes;
        CHECK_OK(kv_request_encode(&request, &first, &first_bytes));
        CHECK_OK(kv_request_decode(first, first_bytes, &back, &reason));
        assert_int_equal(back.op, op);
        assert_int_equal(back.epoch, 77);
        CHECK_OK(kv_request_encode(&back, &second, &second_bytes));
        assert_int_equal(first_bytes, second_bytes);
        assert_memory_equal(first, second, first_bytes);
        free(first);
        free(second);
        kv_request_finish(&back);
    }
}

static void replies_go_there_and_back(void **state)
{
    (void)state;
    for (enum kv_op op = KV_OP_HELLO; op < KV_OP_END; op++) {
        struct kv_reply reply = reply_make(op), back;
        struct reason reason = {0};
        void *first, *second;
        size_t first_bytes, second_bytes;
        CHECK_OK(kv_reply_encode(&reply, &first, &first_bytes));
        CHECK_OK(kv_reply_decode(first, first_bytes, op, &back, &reason));
        assert_int_equal(back.epoch, 78);
        CHECK_OK(kv_reply_encode(&back, &second, &second_bytes));
        assert_int_equal(first_bytes, second_bytes);
        assert_memory_equal(first, second, first_bytes);
        enum kv_op other = op == KV_OP_HELLO ? KV_OP_LEASE : KV_OP_HELLO;
        struct kv_reply wrong;
        assert_int_equal(kv_reply_decode(first, first_bytes, other, &wrong, &reason),
                         STATUS_DAMAGED);
        free(first);
        free(second);
        kv_reply_finish(&back);
    }
}

static void errors_carry_their_words(void **state)
{
    (void)state;
    struct kv_reply reply = {.op = KV_OP_LEASE,
                             .epoch = 1,
                             .status = STATUS_REFUSED,
                             .reason = {"lease: needs 5, has 4", "raise it"}};
    struct kv_reply back;
    struct reason reason = {0};
    void *data;
    size_t bytes;
    CHECK_OK(kv_reply_encode(&reply, &data, &bytes));
    CHECK_OK(kv_reply_decode(data, bytes, KV_OP_LEASE, &back, &reason));
    assert_int_equal(back.status, STATUS_REFUSED);
    assert_string_equal(back.reason.text, "lease: needs 5, has 4");
    assert_string_equal(back.reason.hint, "raise it");
    kv_reply_finish(&back);
    free(data);
}

static void cut_messages_are_refused(void **state)
{
    (void)state;
    for (enum kv_op op = KV_OP_HELLO; op < KV_OP_END; op++) {
        struct kv_request request = request_make(op), back;
        struct kv_reply reply = reply_make(op), reply_back;
        struct reason reason = {0};
        void *data;
        size_t bytes;
        CHECK_OK(kv_request_encode(&request, &data, &bytes));
        for (size_t length = 0; length < bytes; length++) {
            struct check_edge edge = check_edge_create(length);
            memcpy(edge.data, data, length);
            assert_int_equal(kv_request_decode(edge.data, length, &back, &reason), STATUS_DAMAGED);
            check_edge_destroy(&edge);
        }
        free(data);
        CHECK_OK(kv_reply_encode(&reply, &data, &bytes));
        for (size_t length = 0; length < bytes; length += length < 200 ? 1 : 13) {
            struct check_edge edge = check_edge_create(length);
            memcpy(edge.data, data, length);
            assert_int_equal(kv_reply_decode(edge.data, length, op, &reply_back, &reason),
                             STATUS_DAMAGED);
            check_edge_destroy(&edge);
        }
        free(data);
    }
}

// Whatever is changed, it is refused or it is a message that encodes again; nothing leaks or
// crashes.
static void changed_messages_are_safe(void **state)
{
    (void)state;
    uint64_t random = check_seed();
    for (enum kv_op op = KV_OP_HELLO; op < KV_OP_END; op++) {
        struct kv_request request = request_make(op), back;
        struct reason reason = {0};
        void *data, *again;
        size_t bytes, again_bytes;
        CHECK_OK(kv_request_encode(&request, &data, &bytes));
        for (int i = 0; i < 3000; i++) {
            uint8_t *at = (uint8_t *)data + check_random(&random) % bytes;
            uint8_t old = *at;
            *at = (uint8_t)check_random(&random);
            if (kv_request_decode(data, bytes, &back, &reason) == STATUS_OK) {
                CHECK_OK(kv_request_encode(&back, &again, &again_bytes));
                free(again);
                kv_request_finish(&back);
            }
            *at = old;
        }
        free(data);
    }
}

static void ranges_are_kept(void **state)
{
    (void)state;
    void *data;
    size_t bytes;
    struct kv_request request = request_make(KV_OP_LEASE);
    request.lease.token_count = LIMIT_CONTEXT_TOKENS + 1;
    assert_int_equal(kv_request_encode(&request, &data, &bytes), STATUS_INVALID);
    request = request_make(KV_OP_LEASE);
    request.lease.salt_bytes = LIMIT_SALT_BYTES + 1;
    assert_int_equal(kv_request_encode(&request, &data, &bytes), STATUS_INVALID);
    request = request_make(KV_OP_CHECKPOINT);
    request.checkpoint.name = NULL;
    assert_int_equal(kv_request_encode(&request, &data, &bytes), STATUS_INVALID);
    struct kv_request back;
    struct reason reason = {0};
    request = request_make(KV_OP_HELLO);
    request.hello.name_space.block_tokens = 33; // in range, and no block size
    CHECK_OK(kv_request_encode(&request, &data, &bytes));
    assert_int_equal(kv_request_decode(data, bytes, &back, &reason), STATUS_DAMAGED);
    assert_non_null(strstr(reason.text, "block_tokens"));
    free(data);
    request = request_make(KV_OP_HELLO);
    request.hello.name_space.group_count = 0;
    CHECK_OK(kv_request_encode(&request, &data, &bytes));
    assert_int_equal(kv_request_decode(data, bytes, &back, &reason), STATUS_DAMAGED);
    free(data);
}

static void unknown_ops_are_told_apart(void **state)
{
    (void)state;
    static const uint8_t message[] = {0x82, 0xa2, 'o', 'p', 0x63, 0xa5, 'e', 'p', 'o', 'c', 'h', 1};
    struct kv_request back;
    struct reason reason = {0};
    assert_int_equal(kv_request_decode(message, sizeof(message), &back, &reason),
                     STATUS_UNSUPPORTED);
    assert_non_null(strstr(reason.text, "99"));
    assert_string_equal(kv_op_name((enum kv_op)99), "unknown");
    for (enum kv_op op = KV_OP_HELLO; op < KV_OP_END; op++) {
        assert_string_not_equal(kv_op_name(op), "unknown");
    }
}

// A longest lease is a message of bearable size.
static void a_longest_lease_fits(void **state)
{
    (void)state;
    uint32_t *many = calloc(LIMIT_CONTEXT_TOKENS, sizeof(*many));
    struct kv_slot_ref *refs = calloc(KV_LEASE_BLOCKS_MAX, sizeof(*refs));
    struct kv_request request = {.op = KV_OP_LEASE}, back;
    struct kv_reply reply = {.op = KV_OP_LEASE}, reply_back;
    struct reason reason = {0};
    void *data;
    size_t bytes;
    request.lease = (struct kv_lease_request){
        .tokens = many, .token_count = LIMIT_CONTEXT_TOKENS, .block_count = KV_LEASE_BLOCKS_MAX};
    CHECK_OK(kv_request_encode(&request, &data, &bytes));
    CHECK_OK(kv_request_decode(data, bytes, &back, &reason));
    assert_int_equal(back.lease.token_count, LIMIT_CONTEXT_TOKENS);
    kv_request_finish(&back);
    free(data);
    for (uint32_t i = 0; i < KV_LEASE_BLOCKS_MAX; i++) {
        refs[i] = (struct kv_slot_ref){UINT32_MAX, KV_SOURCE_DISK, UINT64_MAX};
    }
    reply.lease = (struct kv_lease){1, KV_LEASE_BLOCKS_MAX, refs};
    CHECK_OK(kv_reply_encode(&reply, &data, &bytes));
    assert_true(bytes < 2 << 20);
    CHECK_OK(kv_reply_decode(data, bytes, KV_OP_LEASE, &reply_back, &reason));
    assert_int_equal(reply_back.lease.block_count, KV_LEASE_BLOCKS_MAX);
    kv_reply_finish(&reply_back);
    free(data);
    free(many);
    free(refs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_go_there_and_back), cmocka_unit_test(replies_go_there_and_back),
        cmocka_unit_test(errors_carry_their_words),   cmocka_unit_test(cut_messages_are_refused),
        cmocka_unit_test(changed_messages_are_safe),  cmocka_unit_test(ranges_are_kept),
        cmocka_unit_test(unknown_ops_are_told_apart), cmocka_unit_test(a_longest_lease_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
