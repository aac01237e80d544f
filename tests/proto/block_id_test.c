// SPDX-License-Identifier: Apache-2.0
// At stake: a hit means the same computation, on this machine and after any restart. Ids are
// compared with vectors computed by Python's hashlib and xxhash from the text of block_id.h; every
// byte of header and payload is damaged once and must be found.
#include "tests/check.h"

#include "proto/block_id.h"

enum { PAYLOAD_BYTES = 4000, TOKENS = 16 };

static void expect_id(const struct block_id *id, const char *hex)
{
    char text[2 * BLOCK_ID_BYTES + 1];
    for (int i = 0; i < BLOCK_ID_BYTES; i++) {
        snprintf(text + 2 * i, 3, "%02x", id->bytes[i]);
    }
    assert_string_equal(text, hex);
}

static void make_root(struct block_id *out)
{
    uint8_t fingerprint[BLOCK_ID_BYTES];
    for (int i = 0; i < BLOCK_ID_BYTES; i++) {
        fingerprint[i] = (uint8_t)i;
    }
    block_id_root(fingerprint, "uid:1000", 8, ATTENTION_MODE_EXACT, out);
}

// A sealed block with tokens 100.. after the root above.
static void make_block(struct block_header *header, uint8_t *payload)
{
    memset(header, 0, sizeof(*header));
    header->magic = BLOCK_MAGIC;
    header->layout_version = BLOCK_LAYOUT_VERSION;
    header->header_bytes = BLOCK_HEADER_BYTES;
    header->block_tokens = TOKENS;
    header->token_count = TOKENS;
    header->payload_bytes = PAYLOAD_BYTES;
    make_root(&header->parent_id);
    for (uint32_t i = 0; i < TOKENS; i++) {
        header->tokens[i] = 100 + i;
    }
    for (int i = 0; i < BLOCK_ID_BYTES; i++) {
        header->fingerprint[i] = (uint8_t)i;
    }
    block_id_next(&header->parent_id, header->tokens, TOKENS, &header->id);
    for (int i = 0; i < PAYLOAD_BYTES; i++) {
        payload[i] = (uint8_t)(i * 7 + 3);
    }
    header->checksum = block_checksum(header, payload);
}

static void ids_are_the_documented_hashes(void **state)
{
    (void)state;
    struct block_id root;
    make_root(&root);
    expect_id(&root, "45a228167d78b5aca6dbea6343581c458b42633617716f419520b73579f9b766");
    uint32_t tokens[2 * TOKENS];
    for (uint32_t i = 0; i < 2 * TOKENS; i++) {
        tokens[i] = 100 + i;
    }
    struct block_id ids[2];
    block_id_chain(&root, tokens, TOKENS, 2, ids);
    expect_id(&ids[0], "0ea8de151b27141459c31ef5b5099e1b9ad862e587a15d6badd70729c7de8aa4");
    expect_id(&ids[1], "bcbe827b0399a7244da18d4b981286e7801a542a04b5dd4288dfdbf5eae67d0e");
    uint8_t fingerprint[BLOCK_ID_BYTES];
    for (int i = 0; i < BLOCK_ID_BYTES; i++) {
        fingerprint[i] = (uint8_t)i;
    }
    block_id_root(fingerprint, NULL, 0, ATTENTION_MODE_SPARSE, &root);
    expect_id(&root, "9c54229e59ab43523f2d48614a39470a9270ba0d382a28684564dfb794315a02");
    block_id_chain(&root, tokens, TOKENS, 0, ids); // no block: nothing is written
    expect_id(&ids[0], "0ea8de151b27141459c31ef5b5099e1b9ad862e587a15d6badd70729c7de8aa4");
}

static void every_input_counts(void **state)
{
    (void)state;
    uint8_t fingerprint[BLOCK_ID_BYTES] = {0};
    struct block_id roots[5];
    block_id_root(fingerprint, "ab", 2, ATTENTION_MODE_EXACT, &roots[0]);
    block_id_root(fingerprint, "a", 1, ATTENTION_MODE_EXACT, &roots[1]);
    block_id_root(fingerprint, "ab", 2, ATTENTION_MODE_SPARSE, &roots[2]);
    block_id_root(fingerprint, NULL, 0, ATTENTION_MODE_EXACT, &roots[3]);
    fingerprint[31] = 1;
    block_id_root(fingerprint, "ab", 2, ATTENTION_MODE_EXACT, &roots[4]);
    for (int i = 0; i < 5; i++) {
        for (int k = 0; k < i; k++) {
            assert_false(block_id_equal(&roots[i], &roots[k]));
        }
    }
    const uint32_t tokens[2] = {1, 2};
    struct block_id one;
    struct block_id two;
    block_id_next(&roots[0], tokens, 1, &one);
    block_id_next(&roots[0], tokens, 2, &two);
    assert_false(block_id_equal(&one, &two));
    block_id_next(&roots[1], tokens, 2, &one);
    assert_false(block_id_equal(&one, &two));
}

static void a_sealed_block_verifies(void **state)
{
    (void)state;
    static uint8_t payload[PAYLOAD_BYTES];
    struct block_header header;
    make_block(&header, payload);
    assert_true(header.checksum == UINT64_C(0xd55f6212e37bbbd1));
    CHECK_OK(block_header_check(&header, PAYLOAD_BYTES));
    CHECK_OK(block_verify(&header, payload, PAYLOAD_BYTES));
    assert_int_equal(block_verify(&header, payload, PAYLOAD_BYTES + 1), STATUS_DAMAGED);
}

static void any_damaged_byte_is_found(void **state)
{
    (void)state;
    static uint8_t payload[PAYLOAD_BYTES];
    struct block_header header;
    make_block(&header, payload);
    uint64_t seed = check_seed();
    for (size_t i = 0; i < sizeof(header); i++) {
        uint8_t *byte = (uint8_t *)&header + i;
        uint8_t flip = (uint8_t)(1u << check_random(&seed) % 8);
        *byte ^= flip;
        enum status status = block_verify(&header, payload, PAYLOAD_BYTES);
        assert_true(status == STATUS_DAMAGED || status == STATUS_VERSION);
        *byte ^= flip;
    }
    for (size_t i = 0; i < sizeof(payload); i++) {
        uint8_t flip = (uint8_t)(1u << check_random(&seed) % 8);
        payload[i] ^= flip;
        assert_int_equal(block_verify(&header, payload, PAYLOAD_BYTES), STATUS_DAMAGED);
        payload[i] ^= flip;
    }
    CHECK_OK(block_verify(&header, payload, PAYLOAD_BYTES));
}

// What a checksum does not cover: a well-sealed header that says something we do not serve.
static void sealed_nonsense_is_refused(void **state)
{
    (void)state;
    static uint8_t payload[PAYLOAD_BYTES];
    struct block_header good;
    make_block(&good, payload);
    for (int i = 0; i < 11; i++) {
        struct block_header bad = good;
        switch (i) {
        case 0:
            bad.block_tokens = 17;
            break;
        case 1:
            bad.token_count = TOKENS - 1;
            break;
        case 2:
            bad.group = BLOCK_GROUP_MAX;
            break;
        case 3:
            bad.format = KV_FORMAT_INT4 + 1;
            break;
        case 4:
            bad.mode = ATTENTION_MODE_SPARSE + 1;
            break;
        case 5:
            bad.first_position = TOKENS + 1;
            break;
        case 6:
            bad.tokens[BLOCK_TOKENS_MAX - 1] = 1;
            break;
        case 7:
            bad.reserved[sizeof(bad.reserved) - 1] = 1;
            break;
        case 8:
            bad.tokens[3]++; // the id is then another block's
            break;
        case 9:
            bad.digest_bytes = 64;
            break;
        default:
            bad.header_bytes = 512;
            break;
        }
        bad.checksum = block_checksum(&bad, payload);
        assert_int_equal(block_verify(&bad, payload, PAYLOAD_BYTES), STATUS_DAMAGED);
    }
    struct block_header other = good;
    other.layout_version++;
    assert_int_equal(block_header_check(&other, PAYLOAD_BYTES), STATUS_VERSION);
}

static void sizes_follow_the_documented_layout(void **state)
{
    (void)state;
    const struct kv_group group = {.layer_count = 30, .kv_heads = 3, .head_dim = 64};
    assert_int_equal(block_head_bytes(&group, 32), 64 * 32 * 2);
    assert_int_equal(block_payload_bytes(&group, 32), 30 * 3 * 2 * 64 * 32 * 2);
    assert_int_equal(block_layer_offset(&group, 32, 1), 3 * 2 * 64 * 32 * 2);
    assert_int_equal(block_slot_bytes(1), 4096);
    assert_int_equal(block_slot_bytes(4096), 4096);
    assert_int_equal(block_slot_bytes(4097), 8192);
    assert_true(block_tokens_valid(16) && block_tokens_valid(128));
    assert_false(block_tokens_valid(0) || block_tokens_valid(8) || block_tokens_valid(48) ||
                 block_tokens_valid(256));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_the_documented_hashes),
        cmocka_unit_test(every_input_counts),
        cmocka_unit_test(a_sealed_block_verifies),
        cmocka_unit_test(any_damaged_byte_is_found),
        cmocka_unit_test(sealed_nonsense_is_refused),
        cmocka_unit_test(sizes_follow_the_documented_layout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
