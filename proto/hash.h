// SPDX-License-Identifier: Apache-2.0
// Cryptographic identity (BLAKE2b-256, incremental) and a keyed 64-bit hash (SipHash-2-4) for hash
// tables whose keys come from outside, so that nobody can choose keys that collide. The one place
// that includes sodium.h besides block_id.c. Pure functions on the caller's memory, any thread.
#ifndef KVTIER_PROTO_HASH_H
#define KVTIER_PROTO_HASH_H

#include <stddef.h>
#include <stdint.h>

enum { HASH_BYTES = 32, HASH_KEY_BYTES = 16 };

// State of a hash in progress; needs no finish.
struct hash {
    _Alignas(64) uint8_t opaque[384];
};

// Starts a hash, and adds data to it.
void hash_init(struct hash *hash);
void hash_update(struct hash *hash, const void *data, size_t bytes);
// Adds `bytes` as u64 little-endian, then the data: ("ab", "c") and ("a", "bc") differ.
void hash_field(struct hash *hash, const void *data, size_t bytes);
// out [HASH_BYTES]; the state is used up.
void hash_final(struct hash *hash, uint8_t *out);

// A fresh random key [HASH_KEY_BYTES] for hash_keyed. Its value must never reach an output.
void hash_random_key(uint8_t *out_key);
uint64_t hash_keyed(const uint8_t *key, const void *data, size_t bytes);

#endif
