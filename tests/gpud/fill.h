// SPDX-License-Identifier: Apache-2.0
// Makes a closed block out of nothing: header and payload that verify, for tests of what carries
// blocks and never looks into them. Header only.
#ifndef KVTIER_TESTS_GPUD_FILL_H
#define KVTIER_TESTS_GPUD_FILL_H

#include "proto/block_id.h"
#include "proto/kv_message.h"
#include "tests/check.h"

// Block `block_index` of a sequence of `tokens`, whose predecessor (or root) is *parent, which
// becomes this block's id.
static inline void fill_block(const struct kv_namespace *name_space, const uint32_t *tokens,
                              uint32_t block_index, struct block_id *parent,
                              struct block_header *header, void *payload)
{
    uint32_t block_tokens = name_space->block_tokens;
    *header = (struct block_header){
        .magic = BLOCK_MAGIC,
        .layout_version = BLOCK_LAYOUT_VERSION,
        .header_bytes = BLOCK_HEADER_BYTES,
        .block_tokens = (uint16_t)block_tokens,
        .token_count = (uint16_t)block_tokens,
        .first_position = block_index * block_tokens,
        .payload_bytes = block_payload_bytes(&name_space->groups[0], block_tokens),
        .parent_id = *parent,
    };
    memcpy(header->tokens, tokens + (size_t)block_index * block_tokens,
           block_tokens * sizeof(*tokens));
    memcpy(header->fingerprint, name_space->fingerprint, BLOCK_ID_BYTES);
    block_id_next(parent, header->tokens, block_tokens, &header->id);
    memset(payload, (int)block_index + 1, header->payload_bytes);
    header->checksum = block_checksum(header, payload);
    *parent = header->id;
}

#endif
