// SPDX-License-Identifier: Apache-2.0
// Every bound that both sides of a border rely on, in one place. Constants only.
#ifndef KVTIER_PROTO_LIMITS_H
#define KVTIER_PROTO_LIMITS_H

enum {
    LIMIT_CONTEXT_TOKENS = 1 << 20,     // longest context any part is built for
    LIMIT_VOCAB_TOKENS = 1 << 20,
    LIMIT_LAYERS = 512,
    LIMIT_HEADS = 512,
    LIMIT_HEAD_DIM = 256,
    LIMIT_EMBEDDING = 1 << 16,
    LIMIT_FEED_FORWARD = 1 << 18,
    LIMIT_THREADS = 256,
    LIMIT_SESSION_NAME_BYTES = 128,     // 1..128 bytes of UTF-8
    LIMIT_SALT_BYTES = 64,
    LIMIT_STOP_STRINGS = 16,
    LIMIT_STOP_BYTES = 256,
    LIMIT_CLIENTS = 64,                 // connections of gpud or kvctl to kvstored
    LIMIT_APPS = 256,                   // connections of apps to gpud
    LIMIT_SEQUENCES = 64,               // --max-num-seqs
    LIMIT_BATCH_TOKENS = 8192,          // --max-num-batched-tokens
    LIMIT_FRAME_BYTES = 64 << 20,       // one message of an app, or of kvstored
    LIMIT_PROMPT_BYTES = 48 << 20,      // text of one prompt
    LIMIT_SETTINGS_BYTES = 64 << 10,    // sampler state and settings in a checkpoint
    LIMIT_URL_BYTES = 256,
    LIMIT_SOCKET_PATH_BYTES = 107,      // sun_path of Linux without its NUL
};

#endif
