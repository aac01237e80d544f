// SPDX-License-Identifier: Apache-2.0
// The namespace fingerprint: everything that decides what KV bytes mean, as named fields, and their
// BLAKE2b-256. Equal fingerprints mean the same computation (ARCHITECTURE, "Identity"); when two
// differ, fingerprint_difference names the field. Pure functions, any thread.
#ifndef KVTIER_GPUD_MODEL_FINGERPRINT_H
#define KVTIER_GPUD_MODEL_FINGERPRINT_H

#include "gpud/model/model_file.h"
#include "proto/block.h"
#include "proto/kv_message.h"

#include <stdint.h>

enum {
    FINGERPRINT_VERSION = 1, // of the fields and their order
    FINGERPRINT_TEXT_BYTES = 2 * BLOCK_ID_BYTES + 1,
};

struct fingerprint_input {
    const struct model_config *config;
    const struct kv_group *groups; // [config->group_count], with the KV formats in use
    const uint8_t *model_digest;   // [MODEL_DIGEST_BYTES] of model_file_load
    uint32_t block_tokens;
    uint32_t rotation;    // as in the block header; 0 = none
    const char *numerics; // "cpu-1"
};

// Fills the whole of `out`: the fields (numbers exact, digests in hex) and, hashed over every name
// and value, each length-prefixed, the fingerprint; and the geometry.
void fingerprint_build(const struct fingerprint_input *input, struct kv_namespace *out);

// The first field of `a` that `b` lacks or has with another value (`*out_other`, NULL when it lacks
// it); NULL when every field is equal. Pointers into `a` and `b`.
const struct kv_field *fingerprint_difference(const struct kv_namespace *a,
                                              const struct kv_namespace *b,
                                              const struct kv_field **out_other);

// out [FINGERPRINT_TEXT_BYTES]: `bytes` [BLOCK_ID_BYTES] in lower-case hex.
void fingerprint_text(const uint8_t *bytes, char *out);

#endif
