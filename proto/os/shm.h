// SPDX-License-Identifier: Apache-2.0
// Shared memory that two processes of one user map, and private memory of the same shape. The
// object is created at its full size but sparse; memory is promised to a range by os_shm_reserve,
// so running out is STATUS_NO_MEMORY there and never a SIGBUS in the middle of attention. Touching
// a range that was not reserved is a mistake. One owner thread for create..close; the memory itself
// is shared as its layout says (proto/arena_layout.h).
#ifndef KVTIER_PROTO_OS_SHM_H
#define KVTIER_PROTO_OS_SHM_H

#include "proto/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct os_shm {
    void *base;
    size_t bytes;
    int handle; // file descriptor
};

// Creates `name` ("/kvtier-…") for this user alone (0600), exclusively, `bytes` long, and maps it.
// STATUS_EXISTS, STATUS_NO_MEMORY, STATUS_PERMISSION, STATUS_IO.
enum status os_shm_create(const char *name, size_t bytes, struct os_shm *out_shm,
                          struct reason *reason) KV_MUST_CHECK;
// The same without a name: no other process can open it.
enum status os_shm_create_private(size_t bytes, struct os_shm *out_shm,
                                  struct reason *reason) KV_MUST_CHECK;
// Maps all of an existing object. STATUS_NOT_FOUND, STATUS_PERMISSION (belongs to another user, or
// others may open it), STATUS_DAMAGED (empty), STATUS_NO_MEMORY, STATUS_IO.
enum status os_shm_open(const char *name, struct os_shm *out_shm,
                        struct reason *reason) KV_MUST_CHECK;
// Unmaps; locks taken through this mapping end. The object stays. Zeroed memory is fine.
void os_shm_close(struct os_shm *shm);
// Removes the name; mappings stay valid. STATUS_NOT_FOUND, STATUS_PERMISSION, STATUS_IO.
enum status os_shm_unlink(const char *name) KV_MUST_CHECK;

// Backs [offset, offset + bytes) with memory; what is backed already stays as it is, the rest reads
// as zeros. STATUS_NO_MEMORY when the system has no more; the range may then be backed in part.
enum status os_shm_reserve(struct os_shm *shm, uint64_t offset, uint64_t bytes) KV_MUST_CHECK;
// Bytes of memory behind the object now.
enum status os_shm_backed_bytes(const struct os_shm *shm, uint64_t *out_bytes) KV_MUST_CHECK;
// Free and total bytes that named objects can have on this system (/dev/shm).
enum status os_shm_capacity(uint64_t *out_free_bytes, uint64_t *out_total_bytes) KV_MUST_CHECK;

// Exclusive lock on the byte at `offset`, held by this mapping until unlock, close or death of the
// process (however it dies; a fork without exec shares it). STATUS_BUSY when another mapping has
// it.
enum status os_shm_lock(struct os_shm *shm, uint64_t offset) KV_MUST_CHECK;
void os_shm_unlock(struct os_shm *shm, uint64_t offset);
// Whether another mapping (of any process) holds the byte. STATUS_IO.
enum status os_shm_lock_held(struct os_shm *shm, uint64_t offset, bool *out_held) KV_MUST_CHECK;

#endif
