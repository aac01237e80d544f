// SPDX-License-Identifier: Apache-2.0
// Single events (start, progress, ids, the end) have a place of their own; tokens and score rows
// share a ring of compact items, their text and tops lie in arrays beside it. An item stays in the
// ring until the pop after the one that handed it out, so that what the event points to holds until
// then.
#include "gpud/reply.h"

#include "proto/os/thread.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

// A token or a score row.
struct item {
    uint32_t id;
    uint32_t position;   // score
    uint32_t top_count;  // score
    uint32_t text_bytes; // token
    size_t text_offset;  // token: in `text`
    double lse;          // score
    double next_logprob; // score
    uint64_t logits_hash;
    bool has_next;
    bool has_logits_hash;
};

struct reply {
    // Guards everything below; a leaf.
    struct os_mutex mutex;
    void (*wake)(void *context, uint64_t tag); // NULL once ipc dropped it
    void *wake_context;
    uint64_t tag;
    uint32_t reference_count;
    bool asleep; // the last pop found nothing
    bool cancelled;
    bool ended; // DONE or ERROR was put

    // Single events that wait, in the order they are popped in; a bit each.
    bool has_ids, has_start, has_progress, has_sessions, has_saved, has_text, has_end;
    struct reply_ids ids;
    struct reply_start start;
    struct reply_progress progress;
    struct reply_sessions sessions;
    struct kv_checkpoint_reply saved;
    struct reply_text text_result;
    struct reply_event end; // DONE or ERROR

    // Memory that given results point to.
    uint32_t *ids_memory;
    struct kv_session_info *sessions_memory;
    char *text_memory;

    bool is_score;
    struct item *items; // [capacity.item_count], a ring
    struct reply_capacity capacity;
    uint32_t first;    // index of the oldest item
    uint32_t count;    // items, the one that was handed out included
    bool handed_out;   // the oldest item is with ipc
    char *text;        // [capacity.text_bytes]; filled front to back, from the front again when the
    size_t text_used;  // ring is empty
    uint32_t *top_ids; // [item_count, top_count]
    float *top_logits; // [item_count, top_count]
};

const char *finish_reason_name(enum finish_reason reason)
{
    static const char *const names[] = {
        [FINISH_REASON_NONE] = "",         [FINISH_REASON_STOP] = "stop",
        [FINISH_REASON_LENGTH] = "length", [FINISH_REASON_CANCELLED] = "cancelled",
        [FINISH_REASON_ERROR] = "error",
    };
    return names[reason];
}

// ---- ipc

enum status reply_create(void (*wake)(void *context, uint64_t tag), void *context, uint64_t tag,
                         struct reply **out_reply)
{
    struct reply *reply = calloc(1, sizeof(*reply));
    if (reply == NULL) {
        return STATUS_NO_MEMORY;
    }
    os_mutex_init(&reply->mutex);
    reply->wake = wake;
    reply->wake_context = context;
    reply->tag = tag;
    reply->reference_count = 2;
    reply->asleep = true;
    *out_reply = reply;
    return STATUS_OK;
}

static void reply_free(struct reply *reply)
{
    os_mutex_finish(&reply->mutex);
    free(reply->ids_memory);
    free(reply->sessions_memory);
    free(reply->text_memory);
    free(reply->items);
    free(reply->text);
    free(reply->top_ids);
    free(reply->top_logits);
    free(reply);
}

// What was handed out by the last pop is done with.
static void take_back(struct reply *reply)
{
    if (!reply->handed_out) {
        return;
    }
    reply->handed_out = false;
    reply->first = (reply->first + 1) % reply->capacity.item_count;
    reply->count--;
    if (reply->count == 0) {
        reply->first = 0; // so that a reader that keeps up touches little memory
        reply->text_used = 0;
    }
}

static bool pop_single(bool *has, struct reply_event *out_event, enum reply_event_kind kind)
{
    if (!*has) {
        return false;
    }
    *has = false;
    out_event->kind = kind;
    return true;
}

static void pop_item(struct reply *reply, struct reply_event *out_event)
{
    const struct item *item = &reply->items[reply->first];
    reply->handed_out = true;
    if (!reply->is_score) {
        out_event->kind = REPLY_EVENT_TOKEN;
        out_event->token = (struct reply_token){
            .id = item->id,
            .text = reply->text + item->text_offset,
            .text_bytes = item->text_bytes,
            .has_logits_hash = item->has_logits_hash,
            .logits_hash = item->logits_hash,
        };
        return;
    }
    size_t top = (size_t)reply->first * reply->capacity.top_count;
    out_event->kind = REPLY_EVENT_SCORE;
    out_event->score = (struct reply_score){
        .position = item->position,
        .id = item->id,
        .lse = item->lse,
        .top_count = item->top_count,
        .top_ids = item->top_count == 0 ? NULL : reply->top_ids + top,
        .top_logits = item->top_count == 0 ? NULL : reply->top_logits + top,
        .has_next = item->has_next,
        .next_logprob = item->next_logprob,
        .has_logits_hash = item->has_logits_hash,
        .logits_hash = item->logits_hash,
    };
}

static bool pop_locked(struct reply *reply, struct reply_event *out)
{
    take_back(reply);
    if (pop_single(&reply->has_ids, out, REPLY_EVENT_IDS)) {
        out->ids = reply->ids;
    } else if (pop_single(&reply->has_start, out, REPLY_EVENT_START)) {
        out->start = reply->start;
    } else if (pop_single(&reply->has_progress, out, REPLY_EVENT_PROGRESS)) {
        out->progress = reply->progress;
    } else if (reply->count > 0) {
        pop_item(reply, out);
    } else if (pop_single(&reply->has_sessions, out, REPLY_EVENT_SESSIONS)) {
        out->sessions = reply->sessions;
    } else if (pop_single(&reply->has_saved, out, REPLY_EVENT_SAVED)) {
        out->saved = reply->saved;
    } else if (pop_single(&reply->has_text, out, REPLY_EVENT_TEXT)) {
        out->text = reply->text_result;
    } else if (pop_single(&reply->has_end, out, reply->end.kind)) {
        *out = reply->end;
    } else {
        return false;
    }
    return true;
}

bool reply_pop(struct reply *reply, struct reply_event *out_event)
{
    os_mutex_lock(&reply->mutex);
    bool popped = pop_locked(reply, out_event);
    reply->asleep = !popped;
    os_mutex_unlock(&reply->mutex);
    return popped;
}

void reply_cancel(struct reply *reply)
{
    os_mutex_lock(&reply->mutex);
    reply->cancelled = true;
    os_mutex_unlock(&reply->mutex);
}

static void give_up_reference(struct reply *reply)
{
    assert(reply->reference_count > 0);
    bool last = --reply->reference_count == 0;
    os_mutex_unlock(&reply->mutex);
    if (last) {
        reply_free(reply);
    }
}

void reply_drop(struct reply *reply)
{
    if (reply == NULL) {
        return;
    }
    os_mutex_lock(&reply->mutex);
    reply->wake = NULL;
    reply->cancelled = true;
    give_up_reference(reply);
}

void reply_release(struct reply *reply)
{
    if (reply == NULL) {
        return;
    }
    os_mutex_lock(&reply->mutex);
    give_up_reference(reply);
}

// ---- worker and engine

enum status reply_reserve(struct reply *reply, const struct reply_capacity *capacity)
{
    size_t top = (size_t)capacity->item_count * capacity->top_count;
    struct item *items = malloc((size_t)capacity->item_count * sizeof(*items) + 1);
    char *text = malloc(capacity->text_bytes + 1);
    uint32_t *top_ids = malloc(top * sizeof(*top_ids) + 1);
    float *top_logits = malloc(top * sizeof(*top_logits) + 1);
    if (items == NULL || text == NULL || top_ids == NULL || top_logits == NULL) {
        free(items);
        free(text);
        free(top_ids);
        free(top_logits);
        return STATUS_NO_MEMORY;
    }
    os_mutex_lock(&reply->mutex);
    assert(reply->items == NULL);
    reply->capacity = *capacity;
    reply->items = items;
    reply->text = text;
    reply->top_ids = top_ids;
    reply->top_logits = top_logits;
    os_mutex_unlock(&reply->mutex);
    return STATUS_OK;
}

bool reply_cancelled(const struct reply *reply)
{
    struct os_mutex *mutex = (struct os_mutex *)&reply->mutex; // locking changes nothing else
    os_mutex_lock(mutex);
    bool cancelled = reply->cancelled;
    os_mutex_unlock(mutex);
    return cancelled;
}

uint32_t reply_room(struct reply *reply)
{
    os_mutex_lock(&reply->mutex);
    uint32_t room = reply->capacity.item_count - reply->count;
    os_mutex_unlock(&reply->mutex);
    return room;
}

static void lock_for_put(struct reply *reply)
{
    os_mutex_lock(&reply->mutex);
    assert(!reply->ended);
}

// Ends a put: unlocks, and wakes ipc when it waits.
static void put_done(struct reply *reply)
{
    void (*wake)(void *context, uint64_t tag) = reply->asleep ? reply->wake : NULL;
    void *context = reply->wake_context;
    uint64_t tag = reply->tag;
    reply->asleep = false;
    os_mutex_unlock(&reply->mutex);
    if (wake != NULL) {
        wake(context, tag);
    }
}

void reply_put_start(struct reply *reply, const struct reply_start *start)
{
    lock_for_put(reply);
    reply->start = *start;
    reply->has_start = true;
    put_done(reply);
}

void reply_put_progress(struct reply *reply, const struct reply_progress *progress)
{
    lock_for_put(reply);
    reply->progress = *progress;
    reply->has_progress = true;
    put_done(reply);
}

// A free item at the end of the ring, for its index.
static uint32_t push_item(struct reply *reply, bool is_score)
{
    assert(reply->count < reply->capacity.item_count);
    reply->is_score = is_score;
    return (reply->first + reply->count++) % reply->capacity.item_count;
}

void reply_put_token(struct reply *reply, const struct reply_token *token)
{
    lock_for_put(reply);
    assert(token->text_bytes <= reply->capacity.text_bytes - reply->text_used);
    reply->items[push_item(reply, false)] = (struct item){
        .id = token->id,
        .text_offset = reply->text_used,
        .text_bytes = token->text_bytes,
        .has_logits_hash = token->has_logits_hash,
        .logits_hash = token->logits_hash,
    };
    if (token->text_bytes > 0) {
        memcpy(reply->text + reply->text_used, token->text, token->text_bytes);
        reply->text_used += token->text_bytes;
    }
    put_done(reply);
}

void reply_put_score(struct reply *reply, const struct reply_score *score)
{
    lock_for_put(reply);
    assert(score->top_count <= reply->capacity.top_count);
    uint32_t index = push_item(reply, true);
    reply->items[index] = (struct item){
        .id = score->id,
        .position = score->position,
        .top_count = score->top_count,
        .lse = score->lse,
        .has_next = score->has_next,
        .next_logprob = score->next_logprob,
        .has_logits_hash = score->has_logits_hash,
        .logits_hash = score->logits_hash,
    };
    size_t top = (size_t)index * reply->capacity.top_count;
    for (uint32_t i = 0; i < score->top_count; i++) {
        reply->top_ids[top + i] = score->top_ids[i];
        reply->top_logits[top + i] = score->top_logits[i];
    }
    put_done(reply);
}

void reply_give_ids(struct reply *reply, uint32_t *ids, uint32_t count, uint32_t vocab_count)
{
    lock_for_put(reply);
    assert(reply->ids_memory == NULL);
    reply->ids_memory = ids;
    reply->ids = (struct reply_ids){.ids = ids, .count = count, .vocab_count = vocab_count};
    reply->has_ids = true;
    put_done(reply);
}

void reply_give_sessions(struct reply *reply, struct kv_session_info *rows, uint32_t count)
{
    lock_for_put(reply);
    assert(reply->sessions_memory == NULL);
    reply->sessions_memory = rows;
    reply->sessions = (struct reply_sessions){.rows = rows, .count = count};
    reply->has_sessions = true;
    put_done(reply);
}

void reply_give_text(struct reply *reply, char *text, size_t bytes)
{
    lock_for_put(reply);
    assert(reply->text_memory == NULL);
    reply->text_memory = text;
    reply->text_result = (struct reply_text){.text = text, .bytes = bytes};
    reply->has_text = true;
    put_done(reply);
}

void reply_put_saved(struct reply *reply, const struct kv_checkpoint_reply *saved)
{
    lock_for_put(reply);
    reply->saved = *saved;
    reply->has_saved = true;
    put_done(reply);
}

void reply_put_done(struct reply *reply, const struct reply_done *done)
{
    lock_for_put(reply);
    reply->end = (struct reply_event){.kind = REPLY_EVENT_DONE, .done = *done};
    reply->has_end = true;
    reply->ended = true;
    put_done(reply);
}

void reply_put_error(struct reply *reply, enum status status, const struct reason *reason)
{
    lock_for_put(reply);
    reply->end = (struct reply_event){.kind = REPLY_EVENT_ERROR,
                                      .error = {.status = status, .reason = *reason}};
    reply->has_end = true;
    reply->ended = true;
    put_done(reply);
}
