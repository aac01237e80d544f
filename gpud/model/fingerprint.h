// SPDX-License-Identifier: Apache-2.0
// The namespace fingerprint: everything that decides what KV bytes mean, as named fields, and their
// BLAKE2b-256. Equal fingerprints mean the same computation (ARCHITECTURE, "Identity"); when two
// differ, fingerprint_difference names the field. Pure functions, any thread.
#ifndef KVTIER_GPUD_MODEL_FINGERPRINT_H
#define KVTIER_GPUD_MODEL_FINGERPRINT_H

#include "gpud/model/model_file.h"
#include "proto/block.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FINGERPRINT_VERSION = 1,
    FINGERPRINT_BYTES = BLOCK_ID_BYTES,
    FINGERPRINT_FIELDS_MAX = 32,
    FINGERPRINT_NAME_BYTES = 32,
    FINGERPRINT_VALUE_BYTES = 96,
};

struct fingerprint_field {
    char name[FINGERPRINT_NAME_BYTES];
    char value[FINGERPRINT_VALUE_BYTES]; // for people and for the hash; numbers exact, digests in
                                         // hex
};

struct fingerprint {
    uint8_t bytes[FINGERPRINT_BYTES];
    uint32_t field_count;
    struct fingerprint_field fields[FINGERPRINT_FIELDS_MAX]; // in the order they are hashed
};

struct fingerprint_input {
    const struct model_config *config; // its groups carry the KV formats in use
    const uint8_t *model_digest;       // [MODEL_DIGEST_BYTES] of model_file_load
    uint32_t block_tokens;
    uint32_t rotation;    // as in the block header
    const char *numerics; // "cpu-1"
};

void fingerprint_build(const struct fingerprint_input *input, struct fingerprint *out);

// The fields as one text, "name=value" lines (LF), for the record that kvstored keeps. Returns the
// length without the NUL; cuts off at `capacity`.
size_t fingerprint_text(const struct fingerprint *fingerprint, char *out, size_t capacity);

// out [2 * FINGERPRINT_BYTES + 1]: lower-case hex.
void fingerprint_hex(const uint8_t *bytes, char *out);

// The first field that differs between a fingerprint and the text of another one; false when none
// does.
bool fingerprint_difference(const struct fingerprint *ours, const char *theirs,
                            struct fingerprint_field *out_ours, char *out_theirs_value);

#endif
