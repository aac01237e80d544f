// SPDX-License-Identifier: Apache-2.0
// A doubly linked list through an array: every operation is a handful of stores, none allocates.

#include "kvstored/eviction.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum status eviction_init(struct eviction *eviction, uint32_t slot_count)
{
    *eviction = (struct eviction){
        .slot_count = slot_count, .newest = EVICTION_NONE, .oldest = EVICTION_NONE};
    eviction->links = calloc(slot_count, sizeof(*eviction->links));
    return eviction->links != NULL ? STATUS_OK : STATUS_NO_MEMORY;
}

void eviction_finish(struct eviction *eviction)
{
    free(eviction->links);
    memset(eviction, 0, sizeof(*eviction));
}

void eviction_remove(struct eviction *eviction, uint32_t slot)
{
    assert(slot < eviction->slot_count);
    struct eviction_link *link = &eviction->links[slot];
    if (!link->listed) {
        return;
    }
    if (link->newer != EVICTION_NONE) {
        eviction->links[link->newer].older = link->older;
    } else {
        eviction->newest = link->older;
    }
    if (link->older != EVICTION_NONE) {
        eviction->links[link->older].newer = link->newer;
    } else {
        eviction->oldest = link->newer;
    }
    link->listed = false;
    eviction->count--;
}

void eviction_touch(struct eviction *eviction, uint32_t slot)
{
    eviction_remove(eviction, slot);
    struct eviction_link *link = &eviction->links[slot];
    *link =
        (struct eviction_link){.newer = EVICTION_NONE, .older = eviction->newest, .listed = true};
    if (eviction->newest != EVICTION_NONE) {
        eviction->links[eviction->newest].newer = slot;
    } else {
        eviction->oldest = slot;
    }
    eviction->newest = slot;
    eviction->count++;
}

bool eviction_listed(const struct eviction *eviction, uint32_t slot)
{
    return eviction->links[slot].listed;
}

uint32_t eviction_victim(const struct eviction *eviction)
{
    return eviction->oldest;
}
