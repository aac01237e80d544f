// SPDX-License-Identifier: Apache-2.0
// Whether a client of the arena lives: it holds the lock of its row of the client table, given by
// the system and taken away when the process ends in any way (ARCHITECTURE §6). Locks belong to a
// mapping (struct os_shm), so two mappings in one process count as two clients. Owner thread of the
// mapping.
#ifndef KVTIER_PROTO_ARENA_LOCK_H
#define KVTIER_PROTO_ARENA_LOCK_H

#include "proto/arena_layout.h"
#include "proto/os/shm.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stdint.h>

// Client: locks its row. STATUS_BUSY when another has it, STATUS_IO.
enum status arena_lock_acquire(struct os_shm *shm, const struct arena_layout *layout,
                               uint32_t row) KV_MUST_CHECK;
void arena_lock_release(struct os_shm *shm, const struct arena_layout *layout, uint32_t row);

// kvstored: whether another mapping holds the row. STATUS_IO (take it as held: touch nothing).
enum status arena_lock_held(struct os_shm *shm, const struct arena_layout *layout, uint32_t row,
                            bool *out_held) KV_MUST_CHECK;

#endif
