// SPDX-License-Identifier: Apache-2.0
// Offsets of the arena. Checking an arena is computing its layout again from its geometry and
// comparing all of it: there is no second formula that could disagree.
#include "proto/arena_layout.h"

#include <assert.h>
#include <string.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the arena is little-endian in memory");

// Largest mapping we make: half of a 47-bit address space.
#define ARENA_BYTES_MAX (UINT64_C(1) << 46)

// Adds a region of count * bytes at *offset, rounded up to whole pages. False when it is too large.
static bool add_region(uint64_t *offset, uint64_t count, uint64_t bytes, uint64_t *out_start)
{
    uint64_t total;
    if (__builtin_mul_overflow(count, bytes, &total) || total > ARENA_BYTES_MAX - *offset) {
        return false;
    }
    *out_start = *offset;
    *offset += (total + BLOCK_PAGE_BYTES - 1) / BLOCK_PAGE_BYTES * BLOCK_PAGE_BYTES;
    return *offset <= ARENA_BYTES_MAX;
}

static bool group_valid(const struct kv_group *group)
{
    bool window_valid =
        group->kind == KV_GROUP_WINDOW
            ? group->window_tokens > 0 && group->window_tokens <= LIMIT_CONTEXT_TOKENS
            : group->window_tokens == 0;
    return (unsigned)group->kind <= KV_GROUP_RECURRENT && window_valid && group->layer_count >= 1 &&
           group->layer_count <= LIMIT_LAYERS && group->kv_heads >= 1 &&
           group->kv_heads <= LIMIT_HEADS && group->head_dim >= 1 &&
           group->head_dim <= LIMIT_HEAD_DIM && (unsigned)group->format <= KV_FORMAT_INT4;
}

static bool geometry_valid(const struct arena_geometry *geometry)
{
    if (geometry->group_count < 1 || geometry->group_count > BLOCK_GROUP_MAX ||
        !block_tokens_valid(geometry->block_tokens)) {
        return false;
    }
    uint64_t slot_count = 0;
    for (uint32_t i = 0; i < geometry->group_count; i++) {
        if (!group_valid(&geometry->groups[i]) || geometry->slot_counts[i] < 1) {
            return false;
        }
        slot_count += geometry->slot_counts[i];
    }
    return slot_count <= ARENA_SLOTS_MAX;
}

// Sizes of the classes; their payload_offset follows when the tables before it are placed.
static void size_classes(const struct arena_geometry *geometry, struct arena_layout *layout)
{
    layout->class_count = geometry->group_count;
    for (uint32_t i = 0; i < geometry->group_count; i++) {
        struct arena_class *class = &layout->classes[i];
        class->first_slot = layout->slot_count;
        class->slot_count = geometry->slot_counts[i];
        // A slot holds the open form too, so f16 is its size whatever the closed format.
        class->payload_bytes = block_payload_bytes(&geometry->groups[i], geometry->block_tokens);
        class->slot_bytes = block_slot_bytes(class->payload_bytes);
        layout->slot_count += class->slot_count;
    }
}

enum status arena_layout_compute(const struct arena_geometry *geometry,
                                 struct arena_layout *out_layout)
{
    if (!geometry_valid(geometry)) {
        return STATUS_INVALID;
    }
    struct arena_layout layout;
    memset(&layout, 0, sizeof(layout)); // padding too: layouts are compared byte by byte
    size_classes(geometry, &layout);
    layout.bitmap_words = (layout.slot_count + 63) / 64;
    uint64_t end = BLOCK_PAGE_BYTES;
    bool fits =
        add_region(&end, LIMIT_CLIENTS, sizeof(struct arena_client), &layout.client_offset) &&
        add_region(&end, layout.slot_count, sizeof(uint64_t), &layout.word_offset) &&
        add_region(&end, LIMIT_CLIENTS, layout.bitmap_words * 8, &layout.bitmap_offset) &&
        add_region(&end, LIMIT_CLIENTS, ARENA_TAILS * ARENA_TAIL_BYTES, &layout.tail_offset) &&
        add_region(&end, layout.slot_count, BLOCK_HEADER_BYTES, &layout.header_offset);
    for (uint32_t i = 0; fits && i < layout.class_count; i++) {
        struct arena_class *class = &layout.classes[i];
        fits = add_region(&end, class->slot_count, class->slot_bytes, &class->payload_offset);
    }
    if (!fits) {
        return STATUS_REFUSED;
    }
    layout.total_bytes = end;
    *out_layout = layout;
    return STATUS_OK;
}

void arena_header_init(void *base, const struct arena_geometry *geometry,
                       const struct arena_layout *layout, uint64_t epoch, uint64_t owner_uid)
{
    struct arena_header *header = arena_header_at(base);
    header->layout_version = ARENA_LAYOUT_VERSION;
    header->header_bytes = sizeof(*header);
    atomic_store_explicit(&header->epoch, epoch, memory_order_relaxed);
    header->owner_uid = owner_uid;
    memcpy(header->fingerprint, geometry->fingerprint, sizeof(header->fingerprint));
    header->block_tokens = geometry->block_tokens;
    header->group_count = geometry->group_count;
    memcpy(header->groups, geometry->groups, sizeof(geometry->groups[0]) * geometry->group_count);
    header->layout = *layout;
    // Release: who sees the magic sees the header. A daemon that died before is seen as no arena.
    atomic_store_explicit(&header->magic, ARENA_MAGIC, memory_order_release);
}

static void read_geometry(const struct arena_header *header, const struct arena_layout *claimed,
                          struct arena_geometry *out)
{
    memset(out, 0, sizeof(*out));
    memcpy(out->fingerprint, header->fingerprint, sizeof(out->fingerprint));
    out->block_tokens = header->block_tokens;
    out->group_count = header->group_count;
    for (uint32_t i = 0; i < BLOCK_GROUP_MAX && i < out->group_count; i++) {
        out->groups[i] = header->groups[i];
        out->slot_counts[i] = claimed->classes[i].slot_count;
    }
}

enum status arena_layout_check(const void *base, uint64_t file_bytes,
                               struct arena_geometry *out_geometry, struct arena_layout *out_layout)
{
    if (file_bytes < BLOCK_PAGE_BYTES) {
        return STATUS_DAMAGED;
    }
    const struct arena_header *header = base;
    if (atomic_load_explicit(&header->magic, memory_order_acquire) != ARENA_MAGIC) {
        return STATUS_DAMAGED;
    }
    if (header->layout_version != ARENA_LAYOUT_VERSION) {
        return STATUS_VERSION;
    }
    struct arena_layout claimed = header->layout;
    struct arena_geometry geometry;
    struct arena_layout computed;
    read_geometry(header, &claimed, &geometry);
    if (header->header_bytes != sizeof(*header) ||
        arena_layout_compute(&geometry, &computed) != STATUS_OK ||
        memcmp(&claimed, &computed, sizeof(computed)) != 0 || computed.total_bytes != file_bytes) {
        return STATUS_DAMAGED;
    }
    for (uint32_t i = 0; i < BLOCK_GROUP_MAX; i++) {
        uint32_t reserved = atomic_load_explicit(&header->reserved_count[i], memory_order_relaxed);
        if (reserved > computed.classes[i].slot_count) {
            return STATUS_DAMAGED;
        }
    }
    *out_geometry = geometry;
    *out_layout = computed;
    return STATUS_OK;
}

static uint8_t *at(void *base, uint64_t offset)
{
    return (uint8_t *)base + offset;
}

struct arena_client *arena_client_at(const struct arena_layout *layout, void *base, uint32_t row)
{
    assert(row < LIMIT_CLIENTS);
    return (struct arena_client *)(void *)at(base, layout->client_offset +
                                                       row * sizeof(struct arena_client));
}

_Atomic uint64_t *arena_word_at(const struct arena_layout *layout, void *base, uint32_t slot)
{
    assert(slot < layout->slot_count);
    return (_Atomic uint64_t *)(void *)at(base, layout->word_offset + slot * sizeof(uint64_t));
}

_Atomic uint64_t *arena_bitmap_at(const struct arena_layout *layout, void *base, uint32_t row)
{
    assert(row < LIMIT_CLIENTS);
    uint64_t offset = layout->bitmap_offset + row * layout->bitmap_words * sizeof(uint64_t);
    return (_Atomic uint64_t *)(void *)at(base, offset);
}

uint8_t *arena_tail_at(const struct arena_layout *layout, void *base, uint32_t row, uint32_t tail)
{
    assert(row < LIMIT_CLIENTS && tail < ARENA_TAILS);
    uint64_t index = (uint64_t)row * ARENA_TAILS + tail;
    return at(base, layout->tail_offset + index * ARENA_TAIL_BYTES);
}

struct block_header *arena_block_header_at(const struct arena_layout *layout, void *base,
                                           uint32_t slot)
{
    assert(slot < layout->slot_count);
    uint64_t offset = layout->header_offset + (uint64_t)slot * BLOCK_HEADER_BYTES;
    return (struct block_header *)(void *)at(base, offset);
}

uint32_t arena_class_of(const struct arena_layout *layout, uint32_t slot)
{
    assert(slot < layout->slot_count);
    uint32_t index = 0;
    while (slot - layout->classes[index].first_slot >= layout->classes[index].slot_count) {
        index++;
    }
    return index;
}

void *arena_payload_at(const struct arena_layout *layout, void *base, uint32_t slot)
{
    const struct arena_class *class = &layout->classes[arena_class_of(layout, slot)];
    uint64_t index = slot - class->first_slot;
    return at(base, class->payload_offset + index * class->slot_bytes);
}

struct arena_range arena_range_fixed(const struct arena_layout *layout)
{
    return (struct arena_range){.offset = 0, .bytes = layout->tail_offset};
}

struct arena_range arena_range_tails(const struct arena_layout *layout, uint32_t row)
{
    assert(row < LIMIT_CLIENTS);
    uint64_t bytes = ARENA_TAILS * ARENA_TAIL_BYTES;
    return (struct arena_range){.offset = layout->tail_offset + row * bytes, .bytes = bytes};
}

static const struct arena_class *class_with(const struct arena_layout *layout, uint32_t class_index,
                                            uint32_t first, uint32_t count)
{
    assert(class_index < layout->class_count);
    const struct arena_class *class = &layout->classes[class_index];
    assert(first <= class->slot_count && count <= class->slot_count - first);
    return class;
}

struct arena_range arena_range_headers(const struct arena_layout *layout, uint32_t class_index,
                                       uint32_t first, uint32_t count)
{
    const struct arena_class *class = class_with(layout, class_index, first, count);
    uint64_t slot = (uint64_t) class->first_slot + first;
    return (struct arena_range){.offset = layout->header_offset + slot * BLOCK_HEADER_BYTES,
                                .bytes = (uint64_t)count * BLOCK_HEADER_BYTES};
}

struct arena_range arena_range_payloads(const struct arena_layout *layout, uint32_t class_index,
                                        uint32_t first, uint32_t count)
{
    const struct arena_class *class = class_with(layout, class_index, first, count);
    return (struct arena_range){.offset = class->payload_offset + first * class->slot_bytes,
                                .bytes = count * class->slot_bytes};
}
