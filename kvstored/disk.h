// SPDX-License-Identifier: Apache-2.0
// One namespace on disk: an LMDB environment in a folder of its own, with its blocks, its sessions
// and the namespace it belongs to (docs/STORE.md). Opened and closed by one thread, never twice at
// a time in a process; read through disk_reader.h by any thread, written through disk_writer.h by
// one. The map has its full size from the start, so it never moves. Never: verifies payloads.
#ifndef KVTIER_KVSTORED_DISK_H
#define KVTIER_KVSTORED_DISK_H

#include "proto/kv_message.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DISK_BYTES_MIN = 16 << 20 }; // of a budget

struct disk;

struct disk_options {
    const char *folder;
    const struct kv_namespace *name_space; // NULL: whichever the folder holds; nothing is created
    uint64_t bytes_max;                    // physical bytes the file may grow to
};

struct disk_levels {
    uint64_t block_count;
    uint64_t session_count;
    uint64_t used_bytes; // pages in use
    uint64_t file_bytes; // length of the file: pages in use and free ones
};

// STATUS_DAMAGED when the file is not a database, or is shorter than its tables; STATUS_VERSION;
// STATUS_MISMATCH when it belongs to another namespace; STATUS_NOT_FOUND (name_space NULL);
// STATUS_PERMISSION, STATUS_NO_SPACE, STATUS_NO_MEMORY, STATUS_IO. Waits for no other process.
enum status disk_open(const struct disk_options *options, struct disk **out_disk,
                      struct reason *reason) KV_MUST_CHECK;
// No reader or writer may be open. NULL is fine.
void disk_close(struct disk *disk);

const struct kv_namespace *disk_namespace(const struct disk *disk);
uint64_t disk_payload_bytes(const struct disk *disk);
// Length of every block's value: header, payload, and padding to whole pages.
size_t disk_value_bytes(const struct disk *disk);

// Levels as of the last commit. Any thread. STATUS_IO, STATUS_DAMAGED.
enum status disk_levels(struct disk *disk, struct disk_levels *out_levels) KV_MUST_CHECK;

// Makes all that was committed survive a power cut. Blocks. The writing thread.
enum status disk_sync(struct disk *disk) KV_MUST_CHECK;

#endif
