// SPDX-License-Identifier: Apache-2.0
// A consistent view of one namespace on disk. Short-lived: while one is open, pages that are freed
// after it began cannot be used again. One thread a reader. Returned pointers live until its end.
// Lengths are checked, contents are not.
#ifndef KVTIER_KVSTORED_DISK_READER_H
#define KVTIER_KVSTORED_DISK_READER_H

#include "kvstored/checkpoint.h"
#include "kvstored/disk.h"

struct disk_reader;

// STATUS_BUSY when too many are open, STATUS_DAMAGED, STATUS_NO_MEMORY, STATUS_IO.
enum status disk_reader_begin(struct disk *disk, struct disk_reader **out_reader) KV_MUST_CHECK;
void disk_reader_end(struct disk_reader *reader); // NULL is fine

// A block's value, disk_value_bytes long: header, then payload. Reads no page of it: os_prefetch
// first, then touch. STATUS_NOT_FOUND; STATUS_DAMAGED when its length is another.
enum status disk_reader_block(struct disk_reader *reader, const struct block_id *id,
                              const uint8_t **out_value) KV_MUST_CHECK;
// The block whose id follows `after` in byte order (NULL: the first). *out_value is NULL when its
// length is wrong. STATUS_NOT_FOUND at the end, STATUS_DAMAGED when the tables are.
enum status disk_reader_block_after(struct disk_reader *reader, const struct block_id *after,
                                    struct block_id *out_id,
                                    const uint8_t **out_value) KV_MUST_CHECK;

// A session's record, to be decoded with its key. STATUS_NOT_FOUND, STATUS_DAMAGED.
enum status disk_reader_session(struct disk_reader *reader, const struct checkpoint_key *key,
                                const void **out_data, size_t *out_bytes) KV_MUST_CHECK;
// The session whose key follows `after` (NULL: the first). STATUS_NOT_FOUND at the end,
// STATUS_DAMAGED.
enum status disk_reader_session_after(struct disk_reader *reader,
                                      const struct checkpoint_key *after,
                                      struct checkpoint_key *out_key, const void **out_data,
                                      size_t *out_bytes) KV_MUST_CHECK;

#endif
