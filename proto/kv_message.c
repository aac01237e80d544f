// SPDX-License-Identifier: Apache-2.0
// Every message is described by one table of its fields (kv_field.h); this file holds the tables
// and what stands around them in a message: op, epoch, status. A struct that failed to decode owns
// nothing.

#include "proto/kv_message.h"

#include "proto/codec.h"
#include "proto/codec_reader.h"
#include "proto/kv_field.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

// clang-format off
#define AT(type, member) .offset = offsetof(type, member), .size = sizeof(((type *)0)->member)
#define PLAIN(kind, type, member) {#member, kind, AT(type, member)}
#define U32(type, member, low, high) {#member, FIELD_U32, AT(type, member), .min = (low), .max = (high)}
#define U64(type, member) PLAIN(FIELD_U64, type, member)
#define F64(type, member) PLAIN(FIELD_F64, type, member)
#define BOOL(type, member) PLAIN(FIELD_BOOL, type, member)
#define FIXED(type, member) PLAIN(FIELD_FIXED, type, member)
#define CHARS(type, member) PLAIN(FIELD_CHARS, type, member)
#define TEXT(type, member, bytes) {#member, FIELD_TEXT, AT(type, member), .max = (bytes)}
#define OPTIONAL_TEXT(type, member, bytes) \
    {#member, FIELD_TEXT, true, AT(type, member), .max = (bytes)}
#define COUNTED(kind, type, member, counter, most) \
    {#member, kind, AT(type, member), .count_offset = offsetof(type, counter), .max = (most)}
#define NESTED(kind, type, member, counter, most, table) \
    {#member, kind, AT(type, member), .count_offset = offsetof(type, counter), .max = (most), .nested = &(table##_table)}
#define TABLE(name, type) \
    static const struct kv_table name##_table = {name##_fields, sizeof(name##_fields) / sizeof(name##_fields[0]), sizeof(type)}
// clang-format on

static const struct kv_field_spec group_fields[] = {
    U32(struct kv_group, kind, KV_GROUP_FULL, KV_GROUP_RECURRENT),
    U32(struct kv_group, window_tokens, 0, LIMIT_CONTEXT_TOKENS),
    U32(struct kv_group, layer_count, 1, LIMIT_LAYERS),
    U32(struct kv_group, kv_heads, 1, LIMIT_HEADS),
    U32(struct kv_group, head_dim, 1, LIMIT_HEAD_DIM),
    U32(struct kv_group, format, KV_FORMAT_F16, KV_FORMAT_INT4),
};
TABLE(group, struct kv_group);

static const struct kv_field_spec field_fields[] = {
    CHARS(struct kv_field, name),
    CHARS(struct kv_field, value),
};
TABLE(field, struct kv_field);

static const struct kv_field_spec namespace_fields[] = {
    FIXED(struct kv_namespace, fingerprint),
    U32(struct kv_namespace, block_tokens, BLOCK_TOKENS_MIN, BLOCK_TOKENS_MAX),
    NESTED(FIELD_ITEMS, struct kv_namespace, groups, group_count, BLOCK_GROUP_MAX, group),
    NESTED(FIELD_ITEMS, struct kv_namespace, fields, field_count, KV_FIELD_MAX, field),
};
TABLE(namespace, struct kv_namespace);

static const struct kv_field_spec hello_fields[] = {
    U32(struct kv_hello_request, version, 0, UINT32_MAX),
    TEXT(struct kv_hello_request, program, KV_PROGRAM_BYTES),
    NESTED(FIELD_PRESENT, struct kv_hello_request, name_space, has_namespace, 1, namespace),
    U64(struct kv_hello_request, arena_bytes_min),
};
TABLE(hello, struct kv_hello_request);

// The epoch of a hello reply, and of a status, is that of the message.
static const struct kv_field_spec hello_reply_fields[] = {
    U32(struct kv_hello_reply, version, 0, UINT32_MAX),
    U64(struct kv_hello_reply, client_id),
    CHARS(struct kv_hello_reply, arena_name),
    U64(struct kv_hello_reply, arena_bytes),
    U32(struct kv_hello_reply, slot_count, 0, UINT32_MAX),
    U32(struct kv_hello_reply, arena_row, 0, LIMIT_CLIENTS - 1),
};
TABLE(hello_reply, struct kv_hello_reply);

static const struct kv_field_spec lease_fields[] = {
    COUNTED(FIELD_U32S, struct kv_lease_request, tokens, token_count, LIMIT_CONTEXT_TOKENS),
    U32(struct kv_lease_request, hit_block_max, 0, KV_LEASE_BLOCKS_MAX),
    U32(struct kv_lease_request, block_count, 1, KV_LEASE_BLOCKS_MAX),
    COUNTED(FIELD_BIN, struct kv_lease_request, salt, salt_bytes, LIMIT_SALT_BYTES),
    U32(struct kv_lease_request, mode, ATTENTION_MODE_EXACT, ATTENTION_MODE_SPARSE),
    BOOL(struct kv_lease_request, persist),
};
TABLE(lease, struct kv_lease_request);

static const struct kv_field_spec lease_reply_fields[] = {
    U64(struct kv_lease, lease_id),
    COUNTED(FIELD_SLOTS, struct kv_lease, slots, block_count, KV_LEASE_BLOCKS_MAX),
};
TABLE(lease_reply, struct kv_lease);

static const struct kv_field_spec publish_fields[] = {
    U64(struct kv_publish_request, lease_id),
    COUNTED(FIELD_U32S, struct kv_publish_request, block_indexes, block_count, KV_LEASE_BLOCKS_MAX),
};
TABLE(publish, struct kv_publish_request);

static const struct kv_field_spec release_fields[] = {U64(struct kv_release_request, lease_id)};
TABLE(release, struct kv_release_request);

static const struct kv_field_spec checkpoint_fields[] = {
    TEXT(struct kv_checkpoint, name, LIMIT_SESSION_NAME_BYTES),
    COUNTED(FIELD_U32S, struct kv_checkpoint, tokens, token_count, LIMIT_CONTEXT_TOKENS),
    COUNTED(FIELD_BIN, struct kv_checkpoint, salt, salt_bytes, LIMIT_SALT_BYTES),
    U32(struct kv_checkpoint, mode, ATTENTION_MODE_EXACT, ATTENTION_MODE_SPARSE),
    COUNTED(FIELD_BIN, struct kv_checkpoint, settings, settings_bytes, LIMIT_SETTINGS_BYTES),
    BOOL(struct kv_checkpoint, keep),
    BOOL(struct kv_checkpoint, sync),
};
TABLE(checkpoint, struct kv_checkpoint);

static const struct kv_field_spec checkpoint_reply_fields[] = {
    U32(struct kv_checkpoint_reply, block_count, 0, UINT32_MAX),
    U32(struct kv_checkpoint_reply, durable_block_count, 0, UINT32_MAX),
    U64(struct kv_checkpoint_reply, written_bytes),
};
TABLE(checkpoint_reply, struct kv_checkpoint_reply);

static const struct kv_field_spec session_fields[] = {
    OPTIONAL_TEXT(struct kv_session_request, name, LIMIT_SESSION_NAME_BYTES),
    COUNTED(FIELD_BIN, struct kv_session_request, salt, salt_bytes, LIMIT_SALT_BYTES),
};
TABLE(session, struct kv_session_request);

static const struct kv_field_spec session_info_fields[] = {
    CHARS(struct kv_session_info, name),
    FIXED(struct kv_session_info, fingerprint),
    FIXED(struct kv_session_info, salt),
    U32(struct kv_session_info, salt_bytes, 0, LIMIT_SALT_BYTES),
    U32(struct kv_session_info, token_count, 0, UINT32_MAX),
    U32(struct kv_session_info, block_count, 0, UINT32_MAX),
    U32(struct kv_session_info, ram_block_count, 0, UINT32_MAX),
    U32(struct kv_session_info, disk_block_count, 0, UINT32_MAX),
    U64(struct kv_session_info, payload_bytes),
    U64(struct kv_session_info, created_ms),
    U64(struct kv_session_info, updated_ms),
    BOOL(struct kv_session_info, keep),
};
TABLE(session_info, struct kv_session_info);

static const struct kv_field_spec session_list_fields[] = {
    NESTED(FIELD_ROWS, struct kv_session_list, rows, count, KV_SESSIONS_MAX, session_info),
};
TABLE(session_list, struct kv_session_list);

static const struct kv_field_spec status_fields[] = {
    U64(struct kv_status, uptime_ms),
    U32(struct kv_status, client_count, 0, UINT32_MAX),
    U32(struct kv_status, lease_count, 0, UINT32_MAX),
    U32(struct kv_status, slot_count, 0, UINT32_MAX),
    U32(struct kv_status, slot_reserved_count, 0, UINT32_MAX),
    U32(struct kv_status, slot_free_count, 0, UINT32_MAX),
    U32(struct kv_status, slot_leased_count, 0, UINT32_MAX),
    U32(struct kv_status, slot_cached_count, 0, UINT32_MAX),
    U64(struct kv_status, payload_bytes),
    U64(struct kv_status, arena_bytes),
    U64(struct kv_status, hit_ram_count),
    U64(struct kv_status, hit_disk_count),
    U64(struct kv_status, miss_count),
    U64(struct kv_status, mismatch_count),
    U64(struct kv_status, evicted_count),
    U64(struct kv_status, published_count),
    U64(struct kv_status, loaded_count),
    U64(struct kv_status, load_failed_count),
    U64(struct kv_status, written_block_count),
    U64(struct kv_status, written_bytes),
    U64(struct kv_status, write_queue_count),
    U64(struct kv_status, disk_block_count),
    U64(struct kv_status, disk_bytes),
    U64(struct kv_status, disk_limit_bytes),
    U64(struct kv_status, disk_other_bytes),
    U32(struct kv_status, namespace_count, 0, UINT32_MAX),
    U64(struct kv_status, session_count),
    U64(struct kv_status, session_damaged_count),
    U64(struct kv_status, anonymous_bytes),
    BOOL(struct kv_status, persistence_ok),
    CHARS(struct kv_status, persistence_state),
    NESTED(FIELD_PRESENT, struct kv_status, name_space, has_namespace, 1, namespace),
};
TABLE(status, struct kv_status);

static const struct kv_field_spec blocks_fields[] = {
    OPTIONAL_TEXT(struct kv_blocks_request, session, LIMIT_SESSION_NAME_BYTES),
    U32(struct kv_blocks_request, tiers, 0, KV_TIER_RAM | KV_TIER_DISK),
    U32(struct kv_blocks_request, limit, 0, KV_BLOCK_ROWS_MAX),
};
TABLE(blocks, struct kv_blocks_request);

static const struct kv_field_spec block_info_fields[] = {
    FIXED(struct kv_block_info, id),
    U32(struct kv_block_info, tiers, 0, KV_TIER_RAM | KV_TIER_DISK),
    U32(struct kv_block_info, token_count, 0, BLOCK_TOKENS_MAX),
    U32(struct kv_block_info, first_position, 0, LIMIT_CONTEXT_TOKENS),
    U32(struct kv_block_info, lease_count, 0, UINT32_MAX),
    U64(struct kv_block_info, hit_count),
    U64(struct kv_block_info, age_ms),
    BOOL(struct kv_block_info, saving),
};
TABLE(block_info, struct kv_block_info);

static const struct kv_field_spec block_list_fields[] = {
    U64(struct kv_block_list, total_count),
    NESTED(FIELD_ROWS, struct kv_block_list, rows, count, KV_BLOCK_ROWS_MAX, block_info),
};
TABLE(block_list, struct kv_block_list);

static const struct kv_field_spec block_fields[] = {FIXED(struct kv_block_request, id)};
TABLE(block, struct kv_block_request);

static const struct kv_field_spec value_stats_fields[] = {
    F64(struct kv_value_stats, minimum),
    F64(struct kv_value_stats, maximum),
    F64(struct kv_value_stats, mean),
    F64(struct kv_value_stats, rms),
    U64(struct kv_value_stats, not_finite_count),
};
TABLE(value_stats, struct kv_value_stats);

static const struct kv_field_spec block_reply_fields[] = {
    NESTED(FIELD_STRUCT, struct kv_block_reply, info, info, 1, block_info),
    FIXED(struct kv_block_reply, header),
    BOOL(struct kv_block_reply, intact),
    NESTED(FIELD_STRUCT, struct kv_block_reply, keys, keys, 1, value_stats),
    NESTED(FIELD_STRUCT, struct kv_block_reply, values, values, 1, value_stats),
};
TABLE(block_reply, struct kv_block_reply);

static const struct kv_field_spec verify_fields[] = {BOOL(struct kv_verify_request, repair)};
TABLE(verify, struct kv_verify_request);

static const struct kv_field_spec damaged_fields[] = {
    FIXED(struct kv_damaged, fingerprint),
    BOOL(struct kv_damaged, is_session),
    FIXED(struct kv_damaged, id),
    CHARS(struct kv_damaged, name),
};
TABLE(damaged, struct kv_damaged);

static const struct kv_field_spec verify_reply_fields[] = {
    U64(struct kv_verify_reply, namespace_count),
    U64(struct kv_verify_reply, session_count),
    U64(struct kv_verify_reply, block_count),
    U64(struct kv_verify_reply, payload_bytes),
    U64(struct kv_verify_reply, damaged_count),
    U64(struct kv_verify_reply, repaired_count),
    NESTED(FIELD_ROWS, struct kv_verify_reply, rows, count, KV_DAMAGED_MAX, damaged),
};
TABLE(verify_reply, struct kv_verify_reply);

static const struct kv_table empty_table = {NULL, 0, 0};

// What an op's request and reply consist of. Both unions start at one offset for every op.
static const struct op_tables {
    const char *name;
    const struct kv_table *request;
    const struct kv_table *reply;
} ops[KV_OP_END] = {
    [KV_OP_HELLO] = {"hello", &hello_table, &hello_reply_table},
    [KV_OP_LEASE] = {"lease", &lease_table, &lease_reply_table},
    [KV_OP_PUBLISH] = {"publish", &publish_table, &empty_table},
    [KV_OP_RELEASE] = {"release", &release_table, &empty_table},
    [KV_OP_CHECKPOINT] = {"checkpoint", &checkpoint_table, &checkpoint_reply_table},
    [KV_OP_SESSION_GET] = {"session_get", &session_table, &checkpoint_table},
    [KV_OP_SESSION_LIST] = {"session_list", &session_table, &session_list_table},
    [KV_OP_SESSION_DELETE] = {"session_delete", &session_table, &empty_table},
    [KV_OP_STATUS] = {"status", &empty_table, &status_table},
    [KV_OP_BLOCKS] = {"blocks", &blocks_table, &block_list_table},
    [KV_OP_BLOCK] = {"block", &block_table, &block_reply_table},
    [KV_OP_VERIFY] = {"verify", &verify_table, &verify_reply_table},
};

// Ends a message and hands its bytes out.
static enum status finish_message(struct codec_writer *writer, enum status so_far, void **out_data,
                                  size_t *out_bytes)
{
    const uint8_t *data;
    size_t bytes;
    enum status result = so_far;
    if (result == STATUS_OK) {
        result = codec_writer_finish(writer, &data, &bytes);
    }
    if (result == STATUS_OK) {
        void *copy = malloc(bytes);
        if (copy != NULL) {
            *out_data = memcpy(copy, data, bytes);
            *out_bytes = bytes;
        } else {
            result = STATUS_NO_MEMORY;
        }
    }
    codec_writer_free(writer);
    return result;
}

enum status kv_request_encode(const struct kv_request *request, void **out_data, size_t *out_bytes)
{
    assert(request->op >= KV_OP_HELLO && request->op < KV_OP_END);
    struct codec_writer writer;
    codec_writer_init(&writer, LIMIT_FRAME_BYTES);
    codec_put_u64(&writer, "op", request->op);
    codec_put_u64(&writer, "epoch", request->epoch);
    enum status result = kv_table_encode(ops[request->op].request, &request->hello, &writer);
    return finish_message(&writer, result, out_data, out_bytes);
}

enum status kv_reply_encode(const struct kv_reply *reply, void **out_data, size_t *out_bytes)
{
    struct codec_writer writer;
    codec_writer_init(&writer, LIMIT_FRAME_BYTES);
    codec_put_u64(&writer, "op", reply->op);
    codec_put_u64(&writer, "epoch", reply->epoch);
    codec_put_u64(&writer, "status", reply->status);
    enum status result = STATUS_OK;
    if (reply->status == STATUS_OK) {
        assert(reply->op >= KV_OP_HELLO && reply->op < KV_OP_END);
        result = kv_table_encode(ops[reply->op].reply, &reply->hello, &writer);
    } else {
        codec_put_text(&writer, "reason", reply->reason.text);
        codec_put_text(&writer, "hint", reply->reason.hint);
    }
    return finish_message(&writer, result, out_data, out_bytes);
}

// Ranges that a table cannot say.
static void check_namespace(struct codec_reader *reader, const struct kv_namespace *name_space)
{
    if (!block_tokens_valid(name_space->block_tokens)) {
        codec_reader_fail(reader, "block_tokens: not 16, 32, 64 or 128");
    } else if (name_space->group_count == 0) {
        codec_reader_fail(reader, "groups: none");
    }
}

// A damaged message in the words of this border: what the codec calls invalid is not of our making.
static enum status finish_decode(const struct codec_reader *reader, struct reason *reason)
{
    enum status result = codec_reader_status(reader, reason);
    return result == STATUS_INVALID ? STATUS_DAMAGED : result;
}

enum status kv_request_decode(const void *data, size_t bytes, struct kv_request *out,
                              struct reason *reason)
{
    struct codec_reader reader;
    struct codec_map map;
    struct kv_request request = {0};
    uint32_t op = 0;
    codec_reader_init(&reader, data, bytes, &map);
    if (!codec_get_u32(&map, "op", 0, UINT32_MAX, &op)) {
        return finish_decode(&reader, reason);
    }
    if (op < KV_OP_HELLO || op >= KV_OP_END) {
        return reason_set(reason, STATUS_UNSUPPORTED, "install both programs from one version",
                          "request: operation %u is not known here", op);
    }
    request.op = (enum kv_op)op;
    codec_get_u64(&map, "epoch", &request.epoch);
    kv_table_decode(ops[op].request, &map, &request.hello);
    if (op == KV_OP_HELLO && request.hello.has_namespace) {
        check_namespace(&reader, &request.hello.name_space);
    }
    enum status result = finish_decode(&reader, reason);
    if (result != STATUS_OK) {
        kv_request_finish(&request);
        return result;
    }
    *out = request;
    return STATUS_OK;
}

enum status kv_reply_decode(const void *data, size_t bytes, enum kv_op op, struct kv_reply *out,
                            struct reason *reason)
{
    assert(op >= KV_OP_HELLO && op < KV_OP_END);
    struct codec_reader reader;
    struct codec_map map;
    struct kv_reply reply = {.op = op};
    uint32_t answered = 0, code = 0;
    codec_reader_init(&reader, data, bytes, &map);
    codec_get_u32(&map, "op", 0, UINT32_MAX, &answered);
    codec_get_u64(&map, "epoch", &reply.epoch);
    codec_get_u32(&map, "status", 0, INT32_MAX, &code);
    reply.status = status_from_wire(code);
    if (reply.status != STATUS_OK) {
        codec_opt_text(&map, "reason", reply.reason.text, sizeof(reply.reason.text));
        codec_opt_text(&map, "hint", reply.reason.hint, sizeof(reply.reason.hint));
    } else if (answered != (uint32_t)op) {
        codec_reader_fail(&reader, "op: answer to another request");
    } else {
        kv_table_decode(ops[op].reply, &map, &reply.hello);
        if (op == KV_OP_HELLO) {
            reply.hello.epoch = reply.epoch;
        } else if (op == KV_OP_STATUS) {
            reply.state.epoch = reply.epoch;
        }
    }
    enum status result = finish_decode(&reader, reason);
    if (result != STATUS_OK) {
        reply.status = STATUS_OK; // so that what the body came to own is freed
        kv_reply_finish(&reply);
        return result;
    }
    *out = reply;
    return STATUS_OK;
}

void kv_request_finish(struct kv_request *request)
{
    if (request->op >= KV_OP_HELLO && request->op < KV_OP_END) {
        kv_table_free(ops[request->op].request, &request->hello);
    }
    memset(request, 0, sizeof(*request));
}

void kv_reply_finish(struct kv_reply *reply)
{
    if (reply->status == STATUS_OK && reply->op >= KV_OP_HELLO && reply->op < KV_OP_END) {
        kv_table_free(ops[reply->op].reply, &reply->hello);
    }
    memset(reply, 0, sizeof(*reply));
}

const char *kv_op_name(enum kv_op op)
{
    return op >= KV_OP_HELLO && op < KV_OP_END ? ops[op].name : "unknown";
}

void kv_lease_finish(struct kv_lease *lease)
{
    free(lease->slots);
    memset(lease, 0, sizeof(*lease));
}
