// SPDX-License-Identifier: Apache-2.0
// What a client (gpud, kvctl) and kvstored say to each other: one request and one reply struct an
// operation, and their encoding as msgpack maps (docs/PROTOCOL.md). The same structs are the calls
// of the store core (kvstored/store.h), which gpud also runs in-process when kvstored is absent.
// Decoders check every type, length and range once, here; what they accept is safe to use. What
// decoded pointers point to belongs to the kv_request or kv_reply and lives until its finish, which
// frees each of them.
// Unknown fields are ignored. Pure functions, any thread.
#ifndef KVTIER_PROTO_KV_MESSAGE_H
#define KVTIER_PROTO_KV_MESSAGE_H

#include "proto/block.h"
#include "proto/limits.h"
#include "proto/session_name.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    KV_PROTOCOL_VERSION = 1,
    KV_FIELD_MAX = 40, // fields of a namespace fingerprint
    KV_FIELD_NAME_BYTES = 32,
    KV_FIELD_VALUE_BYTES = 80,
    KV_LEASE_BLOCKS_MAX = LIMIT_CONTEXT_TOKENS / BLOCK_TOKENS_MIN,
    KV_PROGRAM_BYTES = 32,       // name of a client's program
    KV_SESSIONS_MAX = 1 << 16,   // rows of one session_list
    KV_BLOCK_ROWS_MAX = 1 << 16, // rows of one blocks
    KV_DAMAGED_MAX = 256,        // rows of one verify; damage beyond is counted, not listed
};

enum kv_op {
    KV_OP_HELLO = 1, // first message of a connection
    KV_OP_LEASE,
    KV_OP_PUBLISH,
    KV_OP_RELEASE,
    KV_OP_CHECKPOINT,
    KV_OP_SESSION_GET,
    KV_OP_SESSION_LIST,
    KV_OP_SESSION_DELETE,
    KV_OP_STATUS,
    KV_OP_BLOCKS,
    KV_OP_BLOCK,
    KV_OP_VERIFY,
    KV_OP_END // one past the last
};

// One input of the namespace fingerprint, as text a person can read and compare.
struct kv_field {
    char name[KV_FIELD_NAME_BYTES];
    char value[KV_FIELD_VALUE_BYTES];
};

// A namespace: everything that must be equal for KV to be reusable, and the slot geometry it
// implies.
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
    uint64_t
        arena_bytes_min; // the client needs at least this much KV payload, 0 = whatever there is
};

struct kv_hello_reply {
    uint32_t version;
    uint64_t epoch; // of this kvstored instance; stands in every later message
    uint64_t client_id;
    char arena_name[128]; // shared memory object to map; empty without a namespace
    uint64_t arena_bytes; // size of the mapping
    uint32_t slot_count;  // most slots that the RAM budget holds
    uint32_t arena_row; // of the arena's client table: lock it (proto/arena_lock.h) while any slot
                        // is in use, also after the connection is gone
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
    uint32_t hit_block_max; // only the first so many blocks may be hits: at most
                            // (token_count-1)/block_tokens
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
    const char *name; // 1..LIMIT_SESSION_NAME_BYTES, see session_name.h
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

// release: gives a lease back.
struct kv_release_request {
    uint64_t lease_id;
};

// session_get, session_delete, session_list (name NULL): a session is named by (namespace, salt,
// name). A client that said hello with a namespace sees that namespace and the given salt; one
// without (kvctl) sees every namespace and user, `salt` is ignored, and of several sessions with
// the name the one updated last answers get. delete without a namespace: STATUS_UNSUPPORTED.
struct kv_session_request {
    const char *name;
    const void *salt;
    uint32_t salt_bytes;
};
// Reply of session_get: struct kv_checkpoint (`sync` false). Reply of session_delete: nothing.

// One row of `sessions`.
struct kv_session_info {
    char name[LIMIT_SESSION_NAME_BYTES + 1];
    uint8_t fingerprint[BLOCK_ID_BYTES];
    uint8_t salt[LIMIT_SALT_BYTES];
    uint32_t salt_bytes;
    uint32_t token_count;
    uint32_t block_count;
    uint32_t ram_block_count;
    uint32_t disk_block_count;
    uint64_t payload_bytes; // of its blocks
    uint64_t created_ms;    // wall clock, Unix
    uint64_t updated_ms;
    bool keep;
};

struct kv_session_list {
    uint32_t count;
    struct kv_session_info *rows; // [count]
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
    uint64_t disk_other_bytes; // of disk_bytes: namespaces that are not in use
    uint32_t namespace_count;  // on disk
    uint64_t session_count;
    uint64_t session_damaged_count; // checkpoints found damaged
    uint64_t anonymous_bytes;       // of the process that holds the store
    bool persistence_ok;
    char persistence_state[160]; // "ok", or why persistence stopped
    bool has_namespace;
    struct kv_namespace name_space;
};

// Where a payload is; also the tier that `blocks` is restricted to. Bits.
enum kv_tier { KV_TIER_RAM = 1, KV_TIER_DISK = 2 };

// blocks: one row a block of the namespace in use, newest first in RAM, then those on disk alone.
struct kv_blocks_request {
    const char *session; // only the whole blocks of this session, in order; NULL = all
    uint32_t tiers;      // enum kv_tier bits; 0 = any
    uint32_t limit;      // rows at most, 0 = KV_BLOCK_ROWS_MAX
};

struct kv_block_info {
    uint8_t id[BLOCK_ID_BYTES];
    uint32_t tiers;          // enum kv_tier bits; 0 = of the session's chain, but held nowhere
    uint32_t token_count;    // the fields from here on are 0 when the block is not in RAM,
    uint32_t first_position; // unless a session was named
    uint32_t lease_count;
    uint64_t hit_count;
    uint64_t age_ms; // since it was last used
    bool saving;     // queued for disk
};

struct kv_block_list {
    uint64_t total_count; // rows there would be without the limit
    uint32_t count;
    struct kv_block_info *rows; // [count]
};

// block: everything about one block of the namespace in use. STATUS_NOT_FOUND when it is held
// nowhere.
struct kv_block_request {
    uint8_t id[BLOCK_ID_BYTES];
};

// Statistics of the keys or the values of one payload.
struct kv_value_stats {
    double minimum, maximum, mean, rms;
    uint64_t not_finite_count;
};

struct kv_block_reply {
    struct kv_block_info info;
    struct block_header header; // as stored
    bool intact;                // checksum, id and ranges agree
    struct kv_value_stats keys, values;
};

// verify: reads every payload and checkpoint on disk, of every namespace, and compares checksums
// and tokens. `repair`: damaged ones are dropped.
struct kv_verify_request {
    bool repair;
};

struct kv_damaged {
    uint8_t fingerprint[BLOCK_ID_BYTES];
    bool is_session;
    uint8_t id[BLOCK_ID_BYTES];              // of the block
    char name[LIMIT_SESSION_NAME_BYTES + 1]; // of the session; may be empty
};

struct kv_verify_reply {
    uint64_t namespace_count, session_count, block_count, payload_bytes; // read
    uint64_t damaged_count, repaired_count;
    uint32_t count;
    struct kv_damaged *rows; // [count], the first KV_DAMAGED_MAX
};

// One request of any op. Release, status take no more than is shown here.
struct kv_request {
    enum kv_op op;
    uint64_t epoch; // from the hello reply; 0 in hello
    union {
        struct kv_hello_request hello;
        struct kv_lease_request lease;
        struct kv_publish_request publish;
        struct kv_release_request release;
        struct kv_checkpoint checkpoint;
        struct kv_session_request session; // SESSION_GET, SESSION_LIST, SESSION_DELETE
        struct kv_blocks_request blocks;
        struct kv_block_request block;
        struct kv_verify_request verify;
    };
};

// The answer to a request of `op`. The union holds something only when status is STATUS_OK.
struct kv_reply {
    enum kv_op op;
    uint64_t epoch; // of the instance that answers
    enum status status;
    struct reason reason;
    union {
        struct kv_hello_reply hello;
        struct kv_lease lease;
        struct kv_checkpoint_reply checkpoint;
        struct kv_checkpoint session_get;
        struct kv_session_list session_list;
        struct kv_status state;
        struct kv_block_list blocks;
        struct kv_block_reply block;
        struct kv_verify_reply verify;
    };
};

// The message as bytes; *out_data is the caller's to free(). STATUS_NO_MEMORY; STATUS_INVALID when
// a field is out of its range.
enum status kv_request_encode(const struct kv_request *request, void **out_data,
                              size_t *out_bytes) KV_MUST_CHECK;
enum status kv_reply_encode(const struct kv_reply *reply, void **out_data,
                            size_t *out_bytes) KV_MUST_CHECK;

// From bytes that may be anything. STATUS_DAMAGED when they are not such a message,
// STATUS_UNSUPPORTED for an op this build does not know, STATUS_NO_MEMORY. `out` needs its finish
// only after STATUS_OK. The bytes may go after the call.
enum status kv_request_decode(const void *data, size_t bytes, struct kv_request *out,
                              struct reason *reason) KV_MUST_CHECK;
// STATUS_DAMAGED also when the answer is to another op.
enum status kv_reply_decode(const void *data, size_t bytes, enum kv_op op, struct kv_reply *out,
                            struct reason *reason) KV_MUST_CHECK;

// Frees what decoding took; zeroed memory is fine.
void kv_request_finish(struct kv_request *request);
// Frees every pointer of the reply, decoded or taken with malloc by whoever filled it in. Move a
// lease out by zeroing `reply->lease`.
void kv_reply_finish(struct kv_reply *reply);

// Stable lower-case name of an op ("session_get").
const char *kv_op_name(enum kv_op op);

void kv_lease_finish(struct kv_lease *lease); // frees slots; zeroed memory is fine

#endif
