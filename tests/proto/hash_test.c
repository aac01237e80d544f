// SPDX-License-Identifier: Apache-2.0
// At stake: fingerprints and ids are made of these. Compared with published vectors: BLAKE2b-256 as
// Python's hashlib computes it, SipHash-2-4 from the paper of Aumasson and Bernstein.
#include "tests/check.h"

#include "proto/hash.h"

static void expect_digest(const uint8_t *digest, const char *hex)
{
    char text[2 * HASH_BYTES + 1];
    for (int i = 0; i < HASH_BYTES; i++) {
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    }
    assert_string_equal(text, hex);
}

static void digests_are_blake2b(void **state)
{
    (void)state;
    struct hash hash;
    uint8_t digest[HASH_BYTES];
    hash_init(&hash);
    hash_update(&hash, "a", 1);
    hash_update(&hash, "bc", 2); // in parts as in one
    hash_final(&hash, digest);
    expect_digest(digest, "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
    hash_init(&hash);
    hash_field(&hash, "abc", 3);
    hash_final(&hash, digest);
    expect_digest(digest, "3bdc62cfd65e3b78e3d90e32e0a91ebfbc229c30abe54e6abd16c5d4def0db7b");
}

static void keyed_hash_is_siphash(void **state)
{
    (void)state;
    uint8_t key[HASH_KEY_BYTES];
    uint8_t data[15];
    for (uint8_t i = 0; i < HASH_KEY_BYTES; i++) {
        key[i] = i;
    }
    for (uint8_t i = 0; i < sizeof(data); i++) {
        data[i] = i;
    }
    assert_true(hash_keyed(key, data, sizeof(data)) == UINT64_C(0xa129ca6149be45e5));
    uint8_t other[HASH_KEY_BYTES];
    hash_random_key(key);
    hash_random_key(other);
    assert_memory_not_equal(key, other, HASH_KEY_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(digests_are_blake2b),
        cmocka_unit_test(keyed_hash_is_siphash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
