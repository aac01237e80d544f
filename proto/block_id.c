// SPDX-License-Identifier: Apache-2.0
// The chain of block ids and the checksum of a closed block. Numbers are hashed little-endian, which
// is this machine's order on every platform we build for (asserted below).
#include "proto/block_id.h"

#include "proto/hash.h"

#include <assert.h>
#include <string.h>
#include <xxhash.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "blocks are little-endian in memory");
static_assert((int)HASH_BYTES == (int)BLOCK_ID_BYTES, "ids are BLAKE2b-256");

void block_id_root(const uint8_t *fingerprint, const void *salt, size_t salt_bytes,
                   enum attention_mode mode, struct block_id *out_root)
{
    uint32_t mode_number = (uint32_t)mode;
    struct hash hash;
    hash_init(&hash);
    hash_field(&hash, "kvtier-root", strlen("kvtier-root"));
    hash_field(&hash, fingerprint, BLOCK_ID_BYTES);
    hash_field(&hash, salt, salt_bytes);
    hash_field(&hash, &mode_number, sizeof(mode_number));
    hash_final(&hash, out_root->bytes);
}

void block_id_next(const struct block_id *parent, const uint32_t *tokens, uint32_t token_count,
                   struct block_id *out_id)
{
    struct hash hash;
    hash_init(&hash);
    hash_field(&hash, "kvtier-block", strlen("kvtier-block"));
    hash_field(&hash, parent->bytes, BLOCK_ID_BYTES);
    hash_field(&hash, tokens, token_count * sizeof(*tokens));
    hash_final(&hash, out_id->bytes);
}

void block_id_chain(const struct block_id *root, const uint32_t *tokens, uint32_t block_tokens,
                    uint32_t block_count, struct block_id *out_ids)
{
    const struct block_id *parent = root;
    for (uint32_t i = 0; i < block_count; i++) {
        block_id_next(parent, tokens + (size_t)i * block_tokens, block_tokens, &out_ids[i]);
        parent = &out_ids[i];
    }
}

bool block_id_equal(const struct block_id *a, const struct block_id *b)
{
    return memcmp(a->bytes, b->bytes, BLOCK_ID_BYTES) == 0;
}

uint64_t block_checksum(const struct block_header *header, const void *payload)
{
    struct block_header zeroed = *header;
    zeroed.checksum = 0;
    uint64_t payload_hash = XXH3_64bits(payload, header->payload_bytes);
    return XXH3_64bits_withSeed(&zeroed, sizeof(zeroed), payload_hash);
}

static bool bytes_are_zero(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

static bool header_ranges_valid(const struct block_header *header)
{
    return block_tokens_valid(header->block_tokens) &&
           header->token_count == header->block_tokens && header->group < BLOCK_GROUP_MAX &&
           header->format <= KV_FORMAT_INT4 && header->mode <= ATTENTION_MODE_SPARSE &&
           header->first_position % header->block_tokens == 0 && header->digest_bytes == 0 &&
           header->rotation == 0;
}

enum status block_header_check(const struct block_header *header, uint64_t expected_payload_bytes)
{
    if (header->magic != BLOCK_MAGIC) {
        return STATUS_DAMAGED;
    }
    if (header->layout_version != BLOCK_LAYOUT_VERSION) {
        return STATUS_VERSION;
    }
    if (header->header_bytes != BLOCK_HEADER_BYTES ||
        header->payload_bytes != expected_payload_bytes || !header_ranges_valid(header)) {
        return STATUS_DAMAGED;
    }
    size_t unused = BLOCK_TOKENS_MAX - header->token_count;
    const uint32_t *rest = header->tokens + header->token_count;
    if (!bytes_are_zero((const uint8_t *)rest, unused * sizeof(*rest)) ||
        !bytes_are_zero(header->reserved, sizeof(header->reserved))) {
        return STATUS_DAMAGED;
    }
    struct block_id id;
    block_id_next(&header->parent_id, header->tokens, header->token_count, &id);
    return block_id_equal(&id, &header->id) ? STATUS_OK : STATUS_DAMAGED;
}

enum status block_verify(const struct block_header *header, const void *payload,
                         uint64_t expected_payload_bytes)
{
    enum status status = block_header_check(header, expected_payload_bytes);
    if (status != STATUS_OK) {
        return status;
    }
    return block_checksum(header, payload) == header->checksum ? STATUS_OK : STATUS_DAMAGED;
}
