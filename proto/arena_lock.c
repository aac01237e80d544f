// SPDX-License-Identifier: Apache-2.0
// A client's lock is the first byte of its row of the client table.
#include "proto/arena_lock.h"

#include <assert.h>

static uint64_t lock_offset(const struct arena_layout *layout, uint32_t row)
{
    assert(row < LIMIT_CLIENTS);
    return layout->client_offset + row * sizeof(struct arena_client);
}

enum status arena_lock_acquire(struct os_shm *shm, const struct arena_layout *layout, uint32_t row)
{
    return os_shm_lock(shm, lock_offset(layout, row));
}

void arena_lock_release(struct os_shm *shm, const struct arena_layout *layout, uint32_t row)
{
    os_shm_unlock(shm, lock_offset(layout, row));
}

enum status arena_lock_held(struct os_shm *shm, const struct arena_layout *layout, uint32_t row,
                            bool *out_held)
{
    return os_shm_lock_held(shm, lock_offset(layout, row), out_held);
}
