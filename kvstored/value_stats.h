// SPDX-License-Identifier: Apache-2.0
// What the keys and values of one payload look like, for `kvctl block`. Pure, any thread.
#ifndef KVTIER_KVSTORED_VALUE_STATS_H
#define KVTIER_KVSTORED_VALUE_STATS_H

#include "proto/block.h"
#include "proto/kv_message.h"

// `payload` holds block_payload_bytes of `group` in format f16; other formats give zeros.
void value_stats_of(const struct kv_group *group, uint32_t block_tokens, const void *payload,
                    struct kv_value_stats *out_keys, struct kv_value_stats *out_values);

#endif
