// SPDX-License-Identifier: Apache-2.0
// What the tests of the disk's modules share: a disk in a scratch folder, blocks that verify,
// sessions. Header only; one thread.
#ifndef KVTIER_TESTS_KVSTORED_DISK_RIG_H
#define KVTIER_TESTS_KVSTORED_DISK_RIG_H

#include "kvstored/checkpoint.h"
#include "kvstored/disk.h"
#include "kvstored/disk_reader.h"
#include "kvstored/disk_writer.h"
#include "tests/kvstored/store_rig.h"

struct disk_rig {
    char folder[256];
    struct kv_namespace name_space;
    struct disk *disk;
};

static inline enum status disk_rig_open(struct disk_rig *rig, uint64_t bytes_max)
{
    struct reason reason = {0};
    const struct disk_options options = {
        .folder = rig->folder, .name_space = &rig->name_space, .bytes_max = bytes_max};
    enum status status = disk_open(&options, &rig->disk, &reason);
    assert_true(status == STATUS_OK || reason.text[0] != '\0');
    return status;
}

static inline void disk_rig_init(struct disk_rig *rig)
{
    *rig = (struct disk_rig){.name_space = rig_namespace(1)};
    check_folder_create(rig->folder);
    CHECK_OK(disk_rig_open(rig, 32 << 20));
}

static inline void disk_rig_finish(struct disk_rig *rig)
{
    disk_close(rig->disk);
    check_folder_remove(rig->folder);
}

// A block in memory.
struct rig_block {
    struct block_header header;
    uint8_t payload[RIG_PAYLOAD_BYTES];
};

// Block `index` of the sequence of rig_tokens(seed), of user "u".
static inline void rig_block_make(const struct kv_namespace *name_space, uint32_t seed,
                                  uint32_t index, struct rig_block *out)
{
    uint32_t tokens[16 * 64];
    struct block_id ids[64], root;
    rig_tokens(seed, tokens, 16 * 64);
    block_id_root(name_space->fingerprint, "u", 1, ATTENTION_MODE_EXACT, &root);
    block_id_chain(&root, tokens, RIG_BLOCK_TOKENS, index + 1, ids);
    out->header = (struct block_header){
        .magic = BLOCK_MAGIC,
        .layout_version = BLOCK_LAYOUT_VERSION,
        .header_bytes = BLOCK_HEADER_BYTES,
        .block_tokens = RIG_BLOCK_TOKENS,
        .token_count = RIG_BLOCK_TOKENS,
        .first_position = index * RIG_BLOCK_TOKENS,
        .payload_bytes = RIG_PAYLOAD_BYTES,
        .id = ids[index],
        .parent_id = index > 0 ? ids[index - 1] : root,
    };
    memcpy(out->header.fingerprint, name_space->fingerprint, BLOCK_ID_BYTES);
    memcpy(out->header.tokens, tokens + index * RIG_BLOCK_TOKENS, RIG_BLOCK_TOKENS * 4);
    for (uint32_t i = 0; i < RIG_PAYLOAD_BYTES; i++) {
        out->payload[i] = rig_byte(&out->header.id, i);
    }
    out->header.checksum = block_checksum(&out->header, out->payload);
}

// Puts blocks [0, count) of a sequence on disk.
static inline void disk_rig_put_chain(struct disk_rig *rig, uint32_t seed, uint32_t count)
{
    struct disk_writer *writer;
    struct rig_block block;
    CHECK_OK(disk_writer_begin(rig->disk, &writer));
    for (uint32_t i = 0; i < count; i++) {
        rig_block_make(&rig->name_space, seed, i, &block);
        enum status status =
            disk_writer_put_block(writer, &block.header.id, &block.header, block.payload);
        assert_true(status == STATUS_OK || status == STATUS_EXISTS);
    }
    CHECK_OK(disk_writer_commit(writer));
}

// Puts a session of `count` blocks of a sequence.
static inline void disk_rig_put_session(struct disk_rig *rig, const char *name, uint32_t seed,
                                        uint32_t count, bool keep, uint64_t updated_ms)
{
    uint32_t tokens[16 * 64];
    struct disk_writer *writer;
    struct checkpoint_key key;
    void *data;
    size_t bytes;
    rig_tokens(seed, tokens, 16 * 64);
    const struct checkpoint_record record = {
        .checkpoint = {.name = name,
                       .tokens = tokens,
                       .token_count = count * RIG_BLOCK_TOKENS,
                       .salt = "u",
                       .salt_bytes = 1,
                       .keep = keep},
        .created_ms = 1,
        .updated_ms = updated_ms,
    };
    checkpoint_key_make(name, "u", 1, &key);
    CHECK_OK(checkpoint_encode(&key, &record, &data, &bytes));
    CHECK_OK(disk_writer_begin(rig->disk, &writer));
    CHECK_OK(disk_writer_put_session(writer, &key, data, bytes));
    CHECK_OK(disk_writer_commit(writer));
    free(data);
}

// Overwrites the value of a session with something that is no record.
static inline void disk_rig_spoil_session(struct disk_rig *rig, const char *name)
{
    struct disk_writer *writer;
    struct checkpoint_key key;
    uint8_t junk[100] = {1};
    checkpoint_key_make(name, "u", 1, &key);
    CHECK_OK(disk_writer_begin(rig->disk, &writer));
    CHECK_OK(disk_writer_put_session(writer, &key, junk, sizeof(junk)));
    CHECK_OK(disk_writer_commit(writer));
}

// Puts a block whose payload is not what its checksum says.
static inline void disk_rig_put_damaged(struct disk_rig *rig, uint32_t seed, uint32_t index)
{
    struct disk_writer *writer;
    struct rig_block block;
    rig_block_make(&rig->name_space, seed, index, &block);
    block.payload[17] ^= 1;
    CHECK_OK(disk_writer_begin(rig->disk, &writer));
    CHECK_OK(disk_writer_put_block(writer, &block.header.id, &block.header, block.payload));
    CHECK_OK(disk_writer_commit(writer));
}

static inline bool disk_rig_has(struct disk_rig *rig, uint32_t seed, uint32_t index)
{
    struct disk_reader *reader;
    struct rig_block block;
    const uint8_t *value;
    rig_block_make(&rig->name_space, seed, index, &block);
    CHECK_OK(disk_reader_begin(rig->disk, &reader));
    enum status status = disk_reader_block(reader, &block.header.id, &value);
    disk_reader_end(reader);
    assert_true(status == STATUS_OK || status == STATUS_NOT_FOUND);
    return status == STATUS_OK;
}

static inline bool disk_rig_has_session(struct disk_rig *rig, const char *name)
{
    struct disk_reader *reader;
    struct checkpoint_key key;
    const void *data;
    size_t bytes;
    checkpoint_key_make(name, "u", 1, &key);
    CHECK_OK(disk_reader_begin(rig->disk, &reader));
    enum status status = disk_reader_session(reader, &key, &data, &bytes);
    disk_reader_end(reader);
    return status == STATUS_OK;
}

#endif
