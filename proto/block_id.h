// SPDX-License-Identifier: Apache-2.0
// Identity and integrity of blocks: the hash chain of ids and the checksum of a closed block. Pure
// functions, any thread. ARCHITECTURE "Identity": a hit means the same computation.
//
//     root  = H("kvtier-root",  fingerprint, salt, mode)       H = BLAKE2b-256 (libsodium), each field
//     id[i] = H("kvtier-block", id[i-1] or root, tokens u32le) length-prefixed (u64le) before its bytes
#ifndef KVTIER_PROTO_BLOCK_ID_H
#define KVTIER_PROTO_BLOCK_ID_H

#include "proto/block.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The chain's start: `fingerprint` is BLOCK_ID_BYTES long, `salt` the identity bytes of the user
// (may be empty). Sparse modes append their parameters to the salt.
void block_id_root(const uint8_t *fingerprint, const void *salt, size_t salt_bytes,
                   enum attention_mode mode, struct block_id *out_root);

// The id of the block that follows `parent` and holds `tokens`.
void block_id_next(const struct block_id *parent, const uint32_t *tokens, uint32_t token_count,
                   struct block_id *out_id);

// Ids of the first `block_count` whole blocks of `tokens` [block_count * block_tokens].
void block_id_chain(const struct block_id *root, const uint32_t *tokens, uint32_t block_tokens,
                    uint32_t block_count, struct block_id *out_ids);

// Compares all bytes.
bool block_id_equal(const struct block_id *a, const struct block_id *b);

// XXH3-64 of the header with its checksum field taken as 0, seeded with the XXH3-64 of the payload
// (payload_bytes), so that both are covered and neither is copied.
uint64_t block_checksum(const struct block_header *header, const void *payload);

// Checks what a header from disk, arena or wire says of itself: magic, versions, ranges, sizes
// against `expected_payload_bytes`, unused fields zero, and id = H(parent_id, tokens).
// STATUS_VERSION or STATUS_DAMAGED; does not read the payload.
enum status block_header_check(const struct block_header *header, uint64_t expected_payload_bytes)
    KV_MUST_CHECK;

// block_header_check, then the checksum of the payload: STATUS_DAMAGED when it differs.
enum status block_verify(const struct block_header *header, const void *payload,
                         uint64_t expected_payload_bytes) KV_MUST_CHECK;

#endif
