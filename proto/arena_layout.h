// SPDX-License-Identifier: Apache-2.0
// The shared arena, byte for byte: kvstored creates it, clients map it. Offsets and ids only, never
// pointers. Little-endian, as all machines we build for.
//
//     0              struct arena_header (one page)
//     client_offset  struct arena_client [LIMIT_CLIENTS]
//     word_offset    slot words, u64 [slot_count]           proto/arena_slot.h
//     bitmap_offset  u64 [LIMIT_CLIENTS][bitmap_words]      slots a client uses (ARCHITECTURE §6)
//     tail_offset    u8 [LIMIT_CLIENTS][ARENA_TAILS][ARENA_TAIL_BYTES]  tail records of live
//     sessions header_offset  struct block_header [slot_count] payload        for each class:
//     [slot_count] payloads, slot_bytes apart, page-aligned
//
// Slots of a group form a class of one size: slots first_slot .. first_slot + slot_count - 1.
// Memory behind it is reserved in this order (proto/os/shm.h): everything before tail_offset when
// the arena is made; a client's tails when it registers; headers and payloads of slots in steps,
// then reserved_count of the class is raised. Slots at or above reserved_count must not be touched.
//
// Each side computes or checks a `struct arena_layout` of its own once and uses only that: numbers
// in shared memory are never trusted twice. Pure functions, any thread.
#ifndef KVTIER_PROTO_ARENA_LAYOUT_H
#define KVTIER_PROTO_ARENA_LAYOUT_H

#include "proto/block.h"
#include "proto/limits.h"
#include "proto/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    ARENA_LAYOUT_VERSION = 1,
    ARENA_SLOTS_MAX = 1 << 24,     // of all classes together
    ARENA_TAILS = LIMIT_SEQUENCES, // live sessions of a client
    ARENA_TAIL_BYTES = 4096,
};

#define ARENA_MAGIC 0x31616e6572614b56u // "VKarena1" in little-endian

// The slots of one group.
struct arena_class {
    uint32_t first_slot;
    uint32_t slot_count;
    uint64_t payload_bytes; // of a block
    uint64_t slot_bytes;    // distance of two payloads: whole pages
    uint64_t payload_offset;
};

struct arena_layout {
    uint32_t class_count;                        // = groups, 1..BLOCK_GROUP_MAX
    uint32_t slot_count;                         // of all classes
    struct arena_class classes[BLOCK_GROUP_MAX]; // unused ones are zero
    uint64_t client_offset;
    uint64_t word_offset;
    uint64_t bitmap_offset;
    uint64_t bitmap_words; // of one client: one bit a slot
    uint64_t tail_offset;
    uint64_t header_offset;
    uint64_t total_bytes; // whole pages
};

// One row of the client table, ARENA_CLIENT_BYTES long.
struct arena_client {
    _Atomic uint64_t client_id; // 0: free
    _Atomic uint64_t epoch;     // of the kvstored that registered it
    uint64_t process_id;        // information only; whether it lives is asked of its lock
    uint8_t reserved[104];      // 0
};

struct arena_header {
    _Atomic uint64_t magic; // ARENA_MAGIC, written last
    uint32_t layout_version;
    uint32_t header_bytes;  // sizeof(struct arena_header)
    _Atomic uint64_t epoch; // random, of the kvstored that owns it now
    uint64_t owner_uid;
    uint8_t fingerprint[BLOCK_ID_BYTES]; // namespace
    uint32_t block_tokens;
    uint32_t group_count;
    struct kv_group groups[BLOCK_GROUP_MAX]; // unused ones are zero
    _Atomic uint32_t
        reserved_count[BLOCK_GROUP_MAX]; // slots of a class that have memory behind them
    struct arena_layout layout;
};

static_assert(sizeof(struct arena_header) <= BLOCK_PAGE_BYTES, "the header is one page");
static_assert(sizeof(struct arena_client) == 128, "frozen layout");

// What an arena is made for. slot_counts: most slots of each group.
struct arena_geometry {
    uint8_t fingerprint[BLOCK_ID_BYTES];
    uint32_t block_tokens;
    uint32_t group_count;
    struct kv_group groups[BLOCK_GROUP_MAX];
    uint32_t slot_counts[BLOCK_GROUP_MAX];
};

// Computes every offset; overflow-safe. STATUS_INVALID for group_count, block_tokens, group fields
// or slot counts out of range; STATUS_REFUSED when it is larger than a mapping can be.
enum status arena_layout_compute(const struct arena_geometry *geometry,
                                 struct arena_layout *out_layout) KV_MUST_CHECK;

// Writes the header page of a new arena (memory reserved and zero), the magic last.
void arena_header_init(void *base, const struct arena_geometry *geometry,
                       const struct arena_layout *layout, uint64_t epoch, uint64_t owner_uid);

// Checks a mapped arena of `file_bytes` before anything else of it is used: every field is compared
// with what arena_layout_compute says for its geometry. Copies geometry and layout out.
// STATUS_DAMAGED, STATUS_VERSION.
enum status arena_layout_check(const void *base, uint64_t file_bytes,
                               struct arena_geometry *out_geometry,
                               struct arena_layout *out_layout) KV_MUST_CHECK;

// Typed views of the mapping.
static inline struct arena_header *arena_header_at(void *base)
{
    return (struct arena_header *)base;
}

// Pointers into a mapped arena. An index out of range is an assert: check those from outside first.
struct arena_client *arena_client_at(const struct arena_layout *layout, void *base, uint32_t row);
_Atomic uint64_t *arena_word_at(const struct arena_layout *layout, void *base, uint32_t slot);
_Atomic uint64_t *arena_bitmap_at(const struct arena_layout *layout, void *base, uint32_t row);
uint8_t *arena_tail_at(const struct arena_layout *layout, void *base, uint32_t row, uint32_t tail);
struct block_header *arena_block_header_at(const struct arena_layout *layout, void *base,
                                           uint32_t slot);
void *arena_payload_at(const struct arena_layout *layout, void *base, uint32_t slot);
// The class (= group index) of a slot.
uint32_t arena_class_of(const struct arena_layout *layout, uint32_t slot);

// A byte range to reserve.
struct arena_range {
    uint64_t offset;
    uint64_t bytes;
};
struct arena_range arena_range_fixed(const struct arena_layout *layout); // all before tail_offset
struct arena_range arena_range_tails(const struct arena_layout *layout, uint32_t row);
// Headers and payloads of slots first..first+count-1 of a class (first relative to the class).
struct arena_range arena_range_headers(const struct arena_layout *layout, uint32_t class_index,
                                       uint32_t first, uint32_t count);
struct arena_range arena_range_payloads(const struct arena_layout *layout, uint32_t class_index,
                                        uint32_t first, uint32_t count);

#endif
