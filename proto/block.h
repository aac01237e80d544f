// SPDX-License-Identifier: Apache-2.0
// The frozen layout of a KV block: header, groups, formats, slot sizes. The same bytes stand in the
// shared arena, in LMDB and in export files, little-endian. Plain data and pure functions; any
// thread. Never change a field: raise BLOCK_LAYOUT_VERSION, which is part of the fingerprint, so
// old blocks are never served again.
//
// Words: a *block* is block_tokens consecutive tokens of one sequence; a *group* is the set of
// layers with the same attention span; a *payload* is the KV of one block in one group; a *slot* is
// a place that holds one payload (docs/GLOSSARY.md).
//
// Payload of a group in format f16, for layer l (position within the group) and KV head h:
//     [layer_count][kv_heads] of { K: [head_dim][block_tokens] f16, V: [block_tokens][head_dim] f16 }
// Keys lie dimension-major (lanes are tokens), values token-major (lanes are dimensions):
// docs/NUMERICS.md says why. Keys are stored after RoPE. Unused token positions are zero.
#ifndef KVTIER_PROTO_BLOCK_H
#define KVTIER_PROTO_BLOCK_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    BLOCK_LAYOUT_VERSION = 1,
    BLOCK_MAGIC = 0x3142564b, // "KVB1" in little-endian
    BLOCK_TOKENS_MIN = 16,    // block_tokens is 16, 32, 64 or 128
    BLOCK_TOKENS_MAX = 128,
    BLOCK_TOKENS_DEFAULT = 32,
    BLOCK_ID_BYTES = 32,
    BLOCK_GROUP_MAX = 4,
    BLOCK_HEADER_BYTES = 1024,
    BLOCK_PAGE_BYTES = 4096,
};

enum kv_format { KV_FORMAT_F16 = 0, KV_FORMAT_INT8 = 1, KV_FORMAT_INT4 = 2 };

enum kv_group_kind { KV_GROUP_FULL = 0, KV_GROUP_WINDOW = 1, KV_GROUP_RECURRENT = 2 };

enum attention_mode { ATTENTION_MODE_EXACT = 0, ATTENTION_MODE_SPARSE = 1 };

// Identity of a block: BLAKE2b-256, see proto/block_id.h.
struct block_id {
    uint8_t bytes[BLOCK_ID_BYTES];
};

// One group of layers with the same attention span.
struct kv_group {
    enum kv_group_kind kind;
    uint32_t window_tokens; // KV_GROUP_WINDOW only, else 0
    uint32_t layer_count;
    uint32_t kv_heads;
    uint32_t head_dim;     // of keys and of values
    enum kv_format format; // of closed blocks; open ones are always f16
};

// Written once per closed block. The checksum covers the payload and this header with `checksum` 0
// (all BLOCK_HEADER_BYTES of it, so the tokens too): block_checksum in proto/block_id.h.
struct block_header {
    uint32_t magic;          // BLOCK_MAGIC
    uint16_t layout_version; // BLOCK_LAYOUT_VERSION
    uint16_t header_bytes;   // BLOCK_HEADER_BYTES
    uint8_t group;           // index of the group in its model
    uint8_t format;          // enum kv_format
    uint8_t mode;            // enum attention_mode
    uint8_t rotation;        // log2 of the Hadamard size keys and values are rotated by; 0 = none
    uint16_t block_tokens;   // capacity
    uint16_t token_count;    // tokens held; = block_tokens in a closed block
    uint32_t digest_bytes;   // after the payload; 0 until sparse attention is built
    uint32_t first_position; // position of tokens[0] in its sequence, a multiple of block_tokens
    uint64_t payload_bytes;
    uint64_t checksum;       // XXH3-64
    struct block_id id;
    struct block_id parent_id;               // of the preceding block; the chain's root for block 0
    uint8_t fingerprint[BLOCK_ID_BYTES];     // namespace
    uint32_t tokens[BLOCK_TOKENS_MAX];       // unused ones are 0
    uint8_t reserved[BLOCK_HEADER_BYTES - 648]; // 0
};

static_assert(sizeof(struct block_header) == BLOCK_HEADER_BYTES, "frozen layout");
static_assert(offsetof(struct block_header, id) == 40, "frozen layout");
static_assert(offsetof(struct block_header, tokens) == 136, "frozen layout");

// True for the block sizes that the kernels and the arena are made for.
static inline bool block_tokens_valid(uint64_t block_tokens)
{
    return block_tokens >= BLOCK_TOKENS_MIN && block_tokens <= BLOCK_TOKENS_MAX &&
           (block_tokens & (block_tokens - 1)) == 0;
}

// Bytes of K or V of one (layer, KV head) in f16.
static inline size_t block_head_bytes(const struct kv_group *group, uint32_t block_tokens)
{
    return (size_t)group->head_dim * block_tokens * sizeof(uint16_t);
}

// Bytes from the start of a payload to layer `layer_index` (position within the group), f16.
static inline size_t block_layer_offset(const struct kv_group *group, uint32_t block_tokens,
                                        uint32_t layer_index)
{
    return 2 * block_head_bytes(group, block_tokens) * group->kv_heads * layer_index;
}

// Payload bytes of one f16 block of a group: the slot size in open form, and closed with f16 KV.
static inline size_t block_payload_bytes(const struct kv_group *group, uint32_t block_tokens)
{
    return block_layer_offset(group, block_tokens, group->layer_count);
}

// Distance between two payloads in the arena: whole pages.
static inline size_t block_slot_bytes(size_t payload_bytes)
{
    return (payload_bytes + BLOCK_PAGE_BYTES - 1) / BLOCK_PAGE_BYTES * BLOCK_PAGE_BYTES;
}

#endif
