// SPDX-License-Identifier: Apache-2.0
// Which blocks a session needs follows from its tokens, so no reference counts are stored that
// could be wrong after a crash: they are counted anew each time, which costs one hash a block and
// happens only when something is removed. A damaged record is nobody's reference.

#include "kvstored/sweep.h"

#include "kvstored/disk_reader.h"
#include "kvstored/disk_writer.h"

#include <stdlib.h>
#include <string.h>

// A session that may be evicted.
struct candidate {
    struct checkpoint_key key;
    uint64_t updated_ms;
};

struct candidates {
    struct candidate *items;
    uint32_t count;
};

void sweep_removed_finish(struct sweep_removed *removed)
{
    free(removed->ids);
    memset(removed, 0, sizeof(*removed));
}

static enum status removed_add(struct sweep_removed *removed, const struct block_id *id)
{
    if (removed->count == removed->capacity) {
        uint32_t capacity = removed->capacity == 0 ? 64 : 2 * removed->capacity;
        struct block_id *larger = realloc(removed->ids, capacity * sizeof(*larger));
        if (larger == NULL) {
            return STATUS_NO_MEMORY;
        }
        removed->ids = larger;
        removed->capacity = capacity;
    }
    removed->ids[removed->count++] = *id;
    return STATUS_OK;
}

static bool same_key(const struct checkpoint_key *a, const struct checkpoint_key *b)
{
    return a->count == b->count && memcmp(a->bytes, b->bytes, a->count) == 0;
}

static bool contains(const struct block_index *set, const struct block_id *id)
{
    uint32_t value;
    return block_index_find(set, id, &value);
}

// ---- sessions

// Calls `visit` with every session whose record is whole, until it fails.
static enum status each_session(struct disk *disk,
                                enum status (*visit)(void *context,
                                                     const struct checkpoint_key *key,
                                                     const struct checkpoint_record *record),
                                void *context)
{
    struct disk_reader *reader;
    struct checkpoint_key key;
    const struct checkpoint_key *after = NULL;
    const void *data;
    size_t bytes;
    enum status status = disk_reader_begin(disk, &reader);
    if (status != STATUS_OK) {
        return status;
    }
    while ((status = disk_reader_session_after(reader, after, &key, &data, &bytes)) == STATUS_OK) {
        struct checkpoint_record record;
        status = checkpoint_decode(&key, data, bytes, &record);
        if (status == STATUS_OK) {
            status = visit(context, &key, &record);
            checkpoint_record_finish(&record);
        }
        if (status == STATUS_NO_MEMORY) {
            break;
        }
        after = &key;
    }
    disk_reader_end(reader);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

// Ids that the sessions need, but those of `except` (NULL: none).
struct references {
    struct disk *disk;
    const struct checkpoint_key *except;
    struct block_index ids;
};

static enum status add_references(void *context, const struct checkpoint_key *key,
                                  const struct checkpoint_record *record)
{
    struct references *references = context;
    const struct kv_namespace *name_space = disk_namespace(references->disk);
    struct block_id *ids;
    uint32_t count;
    if (references->except != NULL && same_key(key, references->except)) {
        return STATUS_OK;
    }
    enum status status = checkpoint_chain(&record->checkpoint, name_space->fingerprint,
                                          name_space->block_tokens, &ids, &count);
    for (uint32_t i = 0; status == STATUS_OK && i < count; i++) {
        status = block_index_insert(&references->ids, &ids[i], 0);
        if (status == STATUS_EXISTS) {
            status = STATUS_OK;
        }
    }
    free(ids);
    return status;
}

static enum status collect_references(struct disk *disk, const struct checkpoint_key *except,
                                      struct block_index *out_ids)
{
    struct references references = {.disk = disk, .except = except};
    enum status status = block_index_init(&references.ids, 0);
    if (status == STATUS_OK) {
        status = each_session(disk, add_references, &references);
    }
    if (status != STATUS_OK) {
        block_index_finish(&references.ids);
        return status;
    }
    *out_ids = references.ids;
    return STATUS_OK;
}

static enum status read_session(struct disk *disk, const struct checkpoint_key *key,
                                struct checkpoint_record *out_record)
{
    struct disk_reader *reader;
    const void *data;
    size_t bytes;
    enum status status = disk_reader_begin(disk, &reader);
    if (status != STATUS_OK) {
        return status;
    }
    status = disk_reader_session(reader, key, &data, &bytes);
    if (status == STATUS_OK) {
        status = checkpoint_decode(key, data, bytes, out_record);
    }
    disk_reader_end(reader);
    return status;
}

static enum status remove_record(struct disk *disk, const struct checkpoint_key *key)
{
    struct disk_writer *writer;
    enum status status = disk_writer_begin(disk, &writer);
    if (status != STATUS_OK) {
        return status;
    }
    status = disk_writer_remove_session(writer, key);
    if (status != STATUS_OK) {
        disk_writer_abort(writer);
        return status;
    }
    return disk_writer_commit(writer);
}

// ---- blocks

// Removes ids[0..count) in one transaction and adds those that were there to *removed.
static enum status remove_batch(struct disk *disk, const struct block_id *ids, uint32_t count,
                                struct sweep_removed *removed)
{
    struct disk_writer *writer;
    uint32_t before = removed->count;
    enum status status = disk_writer_begin(disk, &writer);
    if (status != STATUS_OK) {
        return status;
    }
    for (uint32_t i = 0; status == STATUS_OK && i < count; i++) {
        status = disk_writer_remove_block(writer, &ids[i]);
        if (status == STATUS_OK) {
            status = removed_add(removed, &ids[i]);
        } else if (status == STATUS_NOT_FOUND) {
            status = STATUS_OK;
        }
    }
    if (status == STATUS_OK) {
        status = disk_writer_commit(writer);
    } else {
        disk_writer_abort(writer);
    }
    if (status != STATUS_OK) {
        removed->count = before;
    }
    return status;
}

enum status sweep_remove_blocks(struct disk *disk, const struct block_id *ids, uint32_t count,
                                struct sweep_removed *removed)
{
    enum status status = STATUS_OK;
    for (uint32_t i = 0; status == STATUS_OK && i < count; i += DISK_BATCH_REMOVALS) {
        uint32_t left = count - i;
        status = remove_batch(disk, ids + i,
                              left < DISK_BATCH_REMOVALS ? left : DISK_BATCH_REMOVALS, removed);
    }
    return status;
}

enum status sweep_remove_session(struct disk *disk, const struct checkpoint_key *key,
                                 const struct block_index *held, struct sweep_removed *removed)
{
    struct checkpoint_record record = {0};
    struct block_index needed = {0};
    struct block_id *ids = NULL;
    uint32_t count = 0;
    const struct kv_namespace *name_space = disk_namespace(disk);
    enum status found = read_session(disk, key, &record);
    if (found != STATUS_OK && found != STATUS_DAMAGED && found != STATUS_VERSION) {
        return found;
    }
    // A damaged record goes too; its blocks are left to the next eviction.
    enum status status = STATUS_OK;
    if (found == STATUS_OK) {
        status = checkpoint_chain(&record.checkpoint, name_space->fingerprint,
                                  name_space->block_tokens, &ids, &count);
    }
    if (status == STATUS_OK) {
        status = collect_references(disk, key, &needed);
    }
    if (status == STATUS_OK) {
        status = remove_record(disk, key);
    }
    if (status == STATUS_OK) {
        removed->session_count++;
        uint32_t kept = 0;
        for (uint32_t i = 0; i < count; i++) {
            if (!contains(&needed, &ids[i]) && !contains(held, &ids[i])) {
                ids[kept++] = ids[i];
            }
        }
        status = sweep_remove_blocks(disk, ids, kept, removed);
    }
    block_index_finish(&needed);
    free(ids);
    checkpoint_record_finish(&record);
    return status;
}

// ---- eviction

static uint64_t removed_bytes(const struct disk *disk, const struct sweep_removed *removed)
{
    return removed->count * (uint64_t)disk_value_bytes(disk);
}

// Blocks in no session's chain and not held, at most `most` of them.
static enum status find_orphans(struct disk *disk, const struct block_index *needed,
                                const struct block_index *held, uint64_t most,
                                struct sweep_removed *out_orphans)
{
    struct disk_reader *reader;
    struct block_id id;
    const struct block_id *after = NULL;
    const uint8_t *value;
    enum status status = disk_reader_begin(disk, &reader);
    if (status != STATUS_OK) {
        return status;
    }
    while (out_orphans->count < most &&
           (status = disk_reader_block_after(reader, after, &id, &value)) == STATUS_OK) {
        if (!contains(needed, &id) && !contains(held, &id)) {
            status = removed_add(out_orphans, &id);
            if (status != STATUS_OK) {
                break;
            }
        }
        after = &id;
    }
    disk_reader_end(reader);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

static enum status evict_orphans(struct disk *disk, uint64_t bytes, const struct block_index *held,
                                 struct sweep_removed *removed)
{
    struct block_index needed;
    struct sweep_removed orphans = {0};
    enum status status = collect_references(disk, NULL, &needed);
    if (status != STATUS_OK) {
        return status;
    }
    status = find_orphans(disk, &needed, held, bytes / disk_value_bytes(disk) + 1, &orphans);
    block_index_finish(&needed);
    if (status == STATUS_OK) {
        status = sweep_remove_blocks(disk, orphans.ids, orphans.count, removed);
    }
    sweep_removed_finish(&orphans);
    return status;
}

struct candidate_search {
    struct disk *disk;
    const struct block_index *held;
    struct candidates found;
};

// Whether the last whole block of a session is held: its user is at work.
static enum status is_live(const struct candidate_search *search,
                           const struct checkpoint_record *record, bool *out_live)
{
    const struct kv_namespace *name_space = disk_namespace(search->disk);
    struct block_id *ids;
    uint32_t count;
    enum status status = checkpoint_chain(&record->checkpoint, name_space->fingerprint,
                                          name_space->block_tokens, &ids, &count);
    if (status == STATUS_OK) {
        *out_live = count > 0 && contains(search->held, &ids[count - 1]);
        free(ids);
    }
    return status;
}

static enum status add_candidate(void *context, const struct checkpoint_key *key,
                                 const struct checkpoint_record *record)
{
    struct candidate_search *search = context;
    bool live = false;
    if (record->checkpoint.keep) {
        return STATUS_OK;
    }
    enum status status = is_live(search, record, &live);
    if (status != STATUS_OK || live) {
        return status;
    }
    struct candidate *larger =
        realloc(search->found.items, (search->found.count + 1) * sizeof(*larger));
    if (larger == NULL) {
        return STATUS_NO_MEMORY;
    }
    search->found.items = larger;
    larger[search->found.count++] =
        (struct candidate){.key = *key, .updated_ms = record->updated_ms};
    return STATUS_OK;
}

static int older_first(const void *a, const void *b)
{
    const struct candidate *one = a, *other = b;
    return one->updated_ms < other->updated_ms ? -1 : one->updated_ms > other->updated_ms;
}

enum status sweep_evict(struct disk *disk, uint64_t bytes, const struct block_index *held,
                        struct sweep_removed *removed)
{
    uint32_t before = removed->count + removed->session_count;
    struct candidate_search search = {.disk = disk, .held = held};
    enum status status = evict_orphans(disk, bytes, held, removed);
    if (status == STATUS_OK && removed_bytes(disk, removed) < bytes) {
        status = each_session(disk, add_candidate, &search);
    }
    if (status == STATUS_OK && search.found.count > 0) {
        qsort(search.found.items, search.found.count, sizeof(*search.found.items), older_first);
    }
    for (uint32_t i = 0;
         status == STATUS_OK && i < search.found.count && removed_bytes(disk, removed) < bytes;
         i++) {
        status = sweep_remove_session(disk, &search.found.items[i].key, held, removed);
    }
    free(search.found.items);
    if (status == STATUS_OK && removed->count + removed->session_count == before) {
        return STATUS_REFUSED;
    }
    return status;
}
