// SPDX-License-Identifier: Apache-2.0
// Chat turns to token ids. Knows ChatML; a template in a model file is used only when it is one
// that we render exactly (docs/MODELS.md), any other is refused by name when chat is asked for.
// Builds ids, not text, so that nothing a user writes becomes a special token. Immutable after
// creation, any thread.
#ifndef KVTIER_GPUD_MODEL_CHAT_TEMPLATE_H
#define KVTIER_GPUD_MODEL_CHAT_TEMPLATE_H

#include "gpud/model/gguf.h"
#include "gpud/model/tokenizer.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct chat_template;

struct chat_message {
    const char *role;    // system, user, assistant or tool
    const char *content; // C string of UTF-8
};

// `name`: NULL takes the model file's own, "chatml" that one. `tokenizer` must outlive the
// template. A model without a template, or with one we cannot render, gives an object whose encode
// is refused with the reason. STATUS_NOT_FOUND for an unknown `name`, STATUS_NO_MEMORY.
enum status chat_template_create(const struct gguf *gguf, const struct tokenizer *tokenizer,
                                 const char *name, struct chat_template **out_template,
                                 struct reason *reason) KV_MUST_CHECK;
void chat_template_destroy(struct chat_template *chat); // NULL is fine

// "chatml", or "none" when encode would be refused.
const char *chat_template_name(const struct chat_template *chat);

struct chat_turns {
    const struct chat_message *messages; // [count]
    size_t count;
    bool add_generation_prompt; // end with the start of the assistant's answer
    // Tokens of the conversation so far, when these turns go on with it; NULL and 0 at its start.
    // An answer that was cut off is closed first; BOS and the model's default system message come
    // only at the start.
    const uint32_t *context;
    size_t context_count;
};

// Appends the tokens of the turns to `list`. STATUS_UNSUPPORTED (no usable template, named),
// STATUS_INVALID (no message, unknown role), STATUS_REFUSED (too long), STATUS_NO_MEMORY.
enum status chat_template_encode(const struct chat_template *chat, const struct chat_turns *turns,
                                 struct token_list *list, struct reason *reason) KV_MUST_CHECK;

#endif
