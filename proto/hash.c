// SPDX-License-Identifier: Apache-2.0
// libsodium behind our own names. sodium_init chooses the fastest BLAKE2b of this CPU; it is cheap
// and thread-safe to call again, and without it the slow portable one is used.
#include "proto/hash.h"

#include <assert.h>
#include <sodium.h>

static_assert(sizeof(struct hash) >= sizeof(crypto_generichash_state), "state fits");
static_assert(_Alignof(struct hash) >= _Alignof(crypto_generichash_state), "state is aligned");
static_assert(HASH_KEY_BYTES == crypto_shorthash_siphash24_KEYBYTES, "key length");

static crypto_generichash_state *state_of(struct hash *hash)
{
    return (crypto_generichash_state *)(void *)hash->opaque;
}

void hash_init(struct hash *hash)
{
    int ready = sodium_init();
    assert(ready >= 0);
    (void)crypto_generichash_init(state_of(hash), NULL, 0, HASH_BYTES);
}

void hash_update(struct hash *hash, const void *data, size_t bytes)
{
    (void)crypto_generichash_update(state_of(hash), data, bytes);
}

void hash_field(struct hash *hash, const void *data, size_t bytes)
{
    uint8_t length[8];
    for (unsigned i = 0; i < sizeof(length); i++) {
        length[i] = (uint8_t)((uint64_t)bytes >> (8 * i));
    }
    hash_update(hash, length, sizeof(length));
    hash_update(hash, data, bytes);
}

void hash_final(struct hash *hash, uint8_t *out)
{
    (void)crypto_generichash_final(state_of(hash), out, HASH_BYTES);
}

void hash_random_key(uint8_t *out_key)
{
    int ready = sodium_init();
    assert(ready >= 0);
    randombytes_buf(out_key, HASH_KEY_BYTES);
}

uint64_t hash_keyed(const uint8_t *key, const void *data, size_t bytes)
{
    uint64_t out = 0;
    (void)crypto_shorthash_siphash24((unsigned char *)&out, data, bytes, key);
    return out;
}
