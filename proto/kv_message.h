// SPDX-License-Identifier: Apache-2.0
// What a client (gpud, kvctl) and kvstored say to each other: one request and one reply struct an
// operation, and their encoding as msgpack maps (docs/PROTOCOL.md). The same structs are the calls
// of the store core (kvstored/store.h), which gpud also runs in-process when kvstored is absent.
// Decoders check every length and range once, here; what they accept is safe to use. Decoded
// pointers point into the message (or into `struct kv_message`'s own storage) and live as long.
// Pure functions, any thread.
#ifndef KVTIER_PROTO_KV_MESSAGE_H
#define KVTIER_PROTO_KV_MESSAGE_H

#include "proto/block.h"
#include "proto/limits.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    KV_PROTOCOL_VERSION = 1,
    KV_FIELD_MAX = 40,          // fields of a namespace fingerprint
    KV_FIELD_NAME_BYTES = 32,
    KV_FIELD_VALUE_BYTES = 80,
    KV_LEASE_BLOCKS_MAX = LIMIT_CONTEXT_TOKENS / BLOCK_TOKENS_MIN,
};

// One input of the namespace fingerprint, as text a person can read and compare.
struct kv_field {
    char name[KV_FIELD_NAME_BYTES];
    char value[KV_FIELD_VALUE_BYTES];
};

// A namespace: everything that must be equal for KV to be reusable, and the slot geometry it implies.
struct kv_namespace {
    uint8_t fingerprint[BLOCK_ID_BYTES];
    uint32_t block_tokens;
    uint32_t group_count; // 1 until window groups are filled in
    struct kv_group groups[BLOCK_GROUP_MAX];
    uint32_t field_count;
    struct kv_field fields[KV_FIELD_MAX];
};

// hello: first message of a connection. kvctl leaves `has_namespace` false.
struct kv_hello_request {
    uint32_t version; // KV_PROTOCOL_VERSION
    const char *program;
    bool has_namespace;
    struct kv_namespace name_space;
    uint64_t arena_bytes_min; // the client needs at least this much KV payload, 0 = whatever there is
};

struct kv_hello_reply {
    uint32_t version;
    uint64_t epoch; // of this kvstored instance; stands in every later message
    uint64_t client_id;
    char arena_name[128]; // shared memory object to map; empty without a namespace
    uint64_t arena_bytes; // size of the mapping
    uint32_t slot_count;  // most slots that the RAM budget holds
};

// Where the KV of a leased block comes from.
enum kv_source {
    KV_SOURCE_NEW = 0,  // slot is FILLING, lent to the client to write
    KV_SOURCE_RAM = 1,  // slot is READY and stays so while leased
    KV_SOURCE_DISK = 2, // slot is LOADING: becomes READY when verified, or FILLING when the load
                        // failed; then it is lent like a NEW one
};

struct kv_slot_ref {
    uint32_t slot_index;
    enum kv_source source;
    uint64_t generation; // constant while leased
};

// lease: look up the blocks of a prompt and reserve a slot for every block the request may need,
// all or nothing: STATUS_BUSY when slots are leased to others, STATUS_REFUSED when they can never
// fit (reason has both numbers).
struct kv_lease_request {
    const uint32_t *tokens; // the whole context before generation, session history included
    uint32_t token_count;
    uint32_t hit_block_max; // only the first so many blocks may be hits: at most (token_count-1)/block_tokens
    uint32_t block_count;   // slots in all: ceil((token_count + max_tokens) / block_tokens)
    const void *salt;       // identity bytes of the user
    uint32_t salt_bytes;
    enum attention_mode mode;
    bool persist; // written to disk behind the write head (named sessions)
};

struct kv_lease {
    uint64_t lease_id;
    uint32_t block_count;
    struct kv_slot_ref *slots; // [block_count]; freed by kv_lease_finish
};

// publish: blocks of a lease, by index in the lease, that are READY now; kvstored checks their
// headers (chain and tokens) and makes them visible to lookups.
struct kv_publish_request {
    uint64_t lease_id;
    const uint32_t *block_indexes;
    uint32_t block_count;
};

// checkpoint: names a session and its tokens; the record replaces an earlier one of that name.
// `sync`: answer only when the record and every closed block of the chain are durable (`save`).
struct kv_checkpoint {
    const char *name; // 1..LIMIT_SESSION_NAME_BYTES, see session_name_check
    const uint32_t *tokens;
    uint32_t token_count;
    const void *salt;
    uint32_t salt_bytes;
    enum attention_mode mode;
    const void *settings; // opaque to kvstored: sampler state and settings
    uint32_t settings_bytes;
    bool keep; // user-saved: routine caching never evicts it
    bool sync;
};

struct kv_checkpoint_reply {
    uint32_t block_count;         // whole blocks of the chain
    uint32_t durable_block_count; // of these, on disk now
    uint64_t written_bytes;       // payload written for this call
};

// One row of `sessions`.
struct kv_session_info {
    char name[LIMIT_SESSION_NAME_BYTES + 1];
    uint8_t fingerprint[BLOCK_ID_BYTES];
    uint32_t token_count;
    uint32_t block_count;
    uint32_t ram_block_count;
    uint32_t disk_block_count;
    uint64_t payload_bytes; // of its blocks
    uint64_t created_ms;    // wall clock, Unix
    uint64_t updated_ms;
    bool keep;
};

// Counters and levels of the store; every field is shown by `kvctl status`.
struct kv_status {
    uint64_t epoch;
    uint64_t uptime_ms;
    uint32_t client_count;
    uint32_t lease_count;
    uint32_t slot_count;          // budget
    uint32_t slot_reserved_count; // backed by memory now
    uint32_t slot_free_count;     // of the budget
    uint32_t slot_leased_count;
    uint32_t slot_cached_count; // READY, no lease
    uint64_t payload_bytes;     // of one block
    uint64_t arena_bytes;
    uint64_t hit_ram_count, hit_disk_count, miss_count, mismatch_count;
    uint64_t evicted_count;
    uint64_t published_count;
    uint64_t loaded_count, load_failed_count;
    uint64_t written_block_count, written_bytes;
    uint64_t write_queue_count;
    uint64_t disk_block_count, disk_bytes, disk_limit_bytes;
    uint64_t session_count;
    uint64_t anonymous_bytes;
    bool persistence_ok;
    char persistence_state[160]; // "ok", or why persistence stopped
    bool has_namespace;
    struct kv_namespace name_space;
};

// STATUS_INVALID with the reason unless `name` (a C string) is 1..128 bytes of UTF-8 without '/', '\\', "..",
// control characters or a Windows device name.
enum status session_name_check(const char *name, struct reason *reason) KV_MUST_CHECK;

void kv_lease_finish(struct kv_lease *lease); // frees slots; zeroed memory is fine

#endif
