// SPDX-License-Identifier: Apache-2.0
// At stake: a session record that reads back as something else than was written. Every byte of
// records and of keys is flipped, every length is tried, and values of two keys are exchanged.
#include "kvstored/checkpoint.h"
#include "proto/block_id.h"
#include "tests/check.h"

static const uint32_t tokens[] = {5, 6, 7, 8, 9};

static struct checkpoint_record record_of(uint32_t token_count, uint32_t settings_bytes)
{
    return (struct checkpoint_record){
        .checkpoint = {.name = "ignored",
                       .tokens = tokens,
                       .token_count = token_count,
                       .settings = "settings",
                       .settings_bytes = settings_bytes,
                       .mode = ATTENTION_MODE_SPARSE,
                       .keep = true},
        .created_ms = 11,
        .updated_ms = 22,
    };
}

static void comes_back_as_it_went(void **state)
{
    (void)state;
    for (uint32_t count = 0; count <= 5; count++) {
        struct checkpoint_key key;
        struct checkpoint_record record = record_of(count, count), back;
        void *data;
        size_t bytes;
        checkpoint_key_make("name", "salt", 4, &key);
        CHECK_OK(checkpoint_encode(&key, &record, &data, &bytes));
        struct check_edge edge = check_edge_create(bytes);
        memcpy(edge.data, data, bytes);
        CHECK_OK(checkpoint_decode(&key, edge.data, bytes, &back));
        assert_string_equal(back.checkpoint.name, "name");
        assert_int_equal(back.checkpoint.salt_bytes, 4);
        assert_memory_equal(back.checkpoint.salt, "salt", 4);
        assert_int_equal(back.checkpoint.token_count, count);
        assert_memory_equal(back.checkpoint.tokens, tokens, count * 4);
        assert_int_equal(back.checkpoint.settings_bytes, count);
        assert_memory_equal(back.checkpoint.settings, "settings", count);
        assert_int_equal(back.checkpoint.mode, ATTENTION_MODE_SPARSE);
        assert_true(back.checkpoint.keep);
        assert_int_equal(back.created_ms, 11);
        assert_int_equal(back.updated_ms, 22);
        checkpoint_record_finish(&back);
        check_edge_destroy(&edge);
        free(data);
    }
}

static void any_flipped_bit_is_damage(void **state)
{
    (void)state;
    struct checkpoint_key key;
    struct checkpoint_record record = record_of(5, 8), back;
    void *data;
    size_t bytes;
    checkpoint_key_make("name", "salt", 4, &key);
    CHECK_OK(checkpoint_encode(&key, &record, &data, &bytes));
    for (size_t i = 0; i < bytes * 8; i++) {
        ((uint8_t *)data)[i / 8] ^= (uint8_t)(1u << i % 8);
        enum status status = checkpoint_decode(&key, data, bytes, &back);
        assert_true(status == STATUS_DAMAGED || status == STATUS_VERSION);
        ((uint8_t *)data)[i / 8] ^= (uint8_t)(1u << i % 8);
    }
    for (size_t i = 0; i < (size_t)key.count * 8; i++) {
        key.bytes[i / 8] ^= (uint8_t)(1u << i % 8);
        assert_int_equal(checkpoint_decode(&key, data, bytes, &back), STATUS_DAMAGED);
        key.bytes[i / 8] ^= (uint8_t)(1u << i % 8);
    }
    CHECK_OK(checkpoint_decode(&key, data, bytes, &back));
    checkpoint_record_finish(&back);
    free(data);
}

static void any_other_length_is_damage(void **state)
{
    (void)state;
    struct checkpoint_key key;
    struct checkpoint_record record = record_of(5, 8), back;
    void *data;
    size_t bytes;
    checkpoint_key_make("name", "", 0, &key);
    CHECK_OK(checkpoint_encode(&key, &record, &data, &bytes));
    for (size_t length = 0; length < bytes; length++) {
        struct check_edge edge = check_edge_create(length);
        memcpy(edge.data, data, length);
        assert_int_equal(checkpoint_decode(&key, edge.data, length, &back), STATUS_DAMAGED);
        check_edge_destroy(&edge);
    }
    for (uint32_t count = 0; count < 2; count++) { // a key without a name
        struct checkpoint_key cut = key;
        cut.count = count;
        assert_int_equal(checkpoint_decode(&cut, data, bytes, &back), STATUS_DAMAGED);
    }
    free(data);
}

static void limits_are_kept(void **state)
{
    (void)state;
    struct checkpoint_key key;
    struct checkpoint_record record = record_of(5, 8);
    void *data;
    size_t bytes;
    checkpoint_key_make("n", "", 0, &key);
    record.checkpoint.token_count = LIMIT_CONTEXT_TOKENS + 1;
    assert_int_equal(checkpoint_encode(&key, &record, &data, &bytes), STATUS_INVALID);
    record = record_of(5, LIMIT_SETTINGS_BYTES + 1);
    assert_int_equal(checkpoint_encode(&key, &record, &data, &bytes), STATUS_INVALID);
}

// ("ab", "c") and ("a", "bc") are two sessions.
static void keys_do_not_run_together(void **state)
{
    (void)state;
    struct checkpoint_key one, other;
    checkpoint_key_make("c", "ab", 2, &one);
    checkpoint_key_make("bc", "a", 1, &other);
    assert_int_equal(one.count, other.count);
    assert_memory_not_equal(one.bytes, other.bytes, one.count);
}

static void chains_have_whole_blocks_only(void **state)
{
    (void)state;
    static const uint32_t many[40] = {1, 2, 3};
    uint8_t fingerprint[BLOCK_ID_BYTES] = {9};
    struct block_id *ids;
    uint32_t count;
    struct kv_checkpoint checkpoint = {.tokens = many, .salt = "u", .salt_bytes = 1};
    for (uint32_t tokens_count = 0; tokens_count <= 40; tokens_count++) {
        checkpoint.token_count = tokens_count;
        CHECK_OK(checkpoint_chain(&checkpoint, fingerprint, 16, &ids, &count));
        assert_int_equal(count, tokens_count / 16);
        assert_int_equal(ids != NULL, count > 0);
        if (count > 0) {
            struct block_id root, first;
            block_id_root(fingerprint, "u", 1, ATTENTION_MODE_EXACT, &root);
            block_id_next(&root, many, 16, &first);
            assert_true(block_id_equal(&first, &ids[0]));
        }
        free(ids);
    }
}

static void copies_are_their_own(void **state)
{
    (void)state;
    struct kv_checkpoint copy;
    const struct kv_checkpoint empty = {.name = "e"};
    struct checkpoint_record record = record_of(5, 8);
    CHECK_OK(checkpoint_copy(&record.checkpoint, &copy));
    assert_ptr_not_equal(copy.tokens, tokens);
    assert_memory_equal(copy.tokens, tokens, sizeof(tokens));
    checkpoint_copy_finish(&copy);
    CHECK_OK(checkpoint_copy(&empty, &copy));
    assert_string_equal(copy.name, "e");
    checkpoint_copy_finish(&copy);
    checkpoint_copy_finish(&copy); // zeroed
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comes_back_as_it_went),
        cmocka_unit_test(any_flipped_bit_is_damage),
        cmocka_unit_test(any_other_length_is_damage),
        cmocka_unit_test(limits_are_kept),
        cmocka_unit_test(keys_do_not_run_together),
        cmocka_unit_test(chains_have_whole_blocks_only),
        cmocka_unit_test(copies_are_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
