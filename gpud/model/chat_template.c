// SPDX-License-Identifier: Apache-2.0
// ChatML, and which Jinja templates are exactly it. A file's template counts as ChatML only when,
// apart from the text of its default system message, it is one of those below: a template that
// differs in a detail would render other text than its model was trained on, so it is refused, not
// guessed.
#include "gpud/model/chat_template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOP "{% for message in messages %}"
#define TURN                                                                                       \
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
#define PROMPT                                                                                     \
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
#define OPTIONAL_DEFAULT                                                                           \
    "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% "      \
    "endif "                                                                                       \
    "%}"
// Around the default system message, which is any text that ends no string.
#define SYSTEM_BEFORE                                                                              \
    "{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
#define SYSTEM_AFTER "<|im_end|>\n' }}{% endif %}"

enum { SYSTEM_BYTES_MAX = 4096, WHY_BYTES = 160 };

struct chat_template {
    const struct tokenizer *tokenizer;
    bool usable;
    char why[WHY_BYTES]; // when not usable
    char *system;        // the default system message, or NULL
    uint32_t start, end; // <|im_start|>, <|im_end|>
};

// ---- recognising a template

// The template with "\n" escapes as line feeds: both spellings of one string. NULL: no memory.
static char *unescape(struct gguf_string text)
{
    char *out = malloc(text.bytes + 1);
    size_t end = 0;
    for (size_t i = 0; i < text.bytes && out != NULL; i++) {
        bool escape = text.text[i] == '\\' && i + 1 < text.bytes && text.text[i + 1] == 'n';
        out[end++] = escape ? '\n' : text.text[i];
        i += escape ? 1 : 0;
    }
    if (out != NULL) {
        out[end] = '\0';
    }
    return out;
}

// Moves *cursor over `part`, if it stands there.
static bool take(const char **cursor, const char *part)
{
    size_t bytes = strlen(part);
    if (strncmp(*cursor, part, bytes) != 0) {
        return false;
    }
    *cursor += bytes;
    return true;
}

// A default system message at *cursor, if there is one. False when it is one we cannot use, or no
// memory.
static bool take_system(const char **cursor, char **out_system)
{
    if (!take(cursor, SYSTEM_BEFORE)) {
        return true;
    }
    const char *end = strstr(*cursor, SYSTEM_AFTER);
    size_t bytes = end == NULL ? 0 : (size_t)(end - *cursor);
    bool plain = end != NULL && bytes <= SYSTEM_BYTES_MAX && memchr(*cursor, '\'', bytes) == NULL &&
                 memchr(*cursor, '\\', bytes) == NULL && memmem(*cursor, bytes, "<|im_", 5) == NULL;
    if (!plain) {
        return false;
    }
    *out_system = strndup(*cursor, bytes);
    *cursor = end;
    return *out_system != NULL && take(cursor, SYSTEM_AFTER);
}

// True when `text` is ChatML; *out_system is then its default system message (malloc'ed) or NULL.
static bool is_chatml(const char *text, char **out_system)
{
    char *system = NULL;
    const char *cursor = text;
    (void)take(&cursor, OPTIONAL_DEFAULT);
    bool same = take(&cursor, LOOP) && take_system(&cursor, &system) && take(&cursor, TURN) &&
                take(&cursor, PROMPT);
    if (!same || *cursor != '\0') {
        free(system);
        return false;
    }
    *out_system = system;
    return true;
}

static enum status read_template(struct chat_template *chat, const struct gguf *gguf,
                                 struct reason *reason)
{
    struct gguf_string text;
    enum status status = gguf_read_text(gguf, "tokenizer.chat_template", &text, reason);
    if (status != STATUS_OK) {
        return status;
    }
    if (text.text == NULL) {
        snprintf(chat->why, sizeof(chat->why), "the model has no chat template");
        return STATUS_OK;
    }
    char *plain = memchr(text.text, '\0', text.bytes) != NULL
                      ? unescape((struct gguf_string){"", 0})
                      : unescape(text);
    if (plain == NULL) {
        return STATUS_NO_MEMORY;
    }
    chat->usable = is_chatml(plain, &chat->system);
    if (!chat->usable) {
        snprintf(chat->why, sizeof(chat->why),
                 "the model's chat template (%.60s...) is not supported (supported: chatml)",
                 gguf_label(text).text);
    }
    free(plain);
    return STATUS_OK;
}

static void find_tokens(struct chat_template *chat)
{
    chat->start = tokenizer_find(chat->tokenizer, "<|im_start|>");
    chat->end = tokenizer_find(chat->tokenizer, "<|im_end|>");
    if (chat->usable && (chat->start == TOKENIZER_NO_TOKEN || chat->end == TOKENIZER_NO_TOKEN)) {
        chat->usable = false;
        snprintf(chat->why, sizeof(chat->why),
                 "the vocabulary has no <|im_start|> or <|im_end|>, which chatml needs");
    }
}

enum status chat_template_create(const struct gguf *gguf, const struct tokenizer *tokenizer,
                                 const char *name, struct chat_template **out_template,
                                 struct reason *reason)
{
    if (name != NULL && strcmp(name, "chatml") != 0) {
        return reason_set(reason, STATUS_NOT_FOUND, "use chatml",
                          "the chat template %.60s is not known (known: chatml)", name);
    }
    struct chat_template *chat = calloc(1, sizeof(*chat));
    enum status status = chat == NULL ? STATUS_NO_MEMORY : STATUS_OK;
    if (status == STATUS_OK) {
        chat->tokenizer = tokenizer;
        chat->usable = name != NULL;
        status = name == NULL ? read_template(chat, gguf, reason) : STATUS_OK;
    }
    if (status != STATUS_OK) {
        chat_template_destroy(chat);
        return status != STATUS_NO_MEMORY
                   ? status
                   : reason_set(reason, status, "", "no memory for the chat template");
    }
    find_tokens(chat);
    *out_template = chat;
    return STATUS_OK;
}

void chat_template_destroy(struct chat_template *chat)
{
    if (chat != NULL) {
        free(chat->system);
        free(chat);
    }
}

const char *chat_template_name(const struct chat_template *chat)
{
    return chat->usable ? "chatml" : "none";
}

// ---- encoding

static enum status push_text(const struct chat_template *chat, const char *text,
                             struct token_list *list)
{
    const struct tokenizer_input input = {.text = text, .bytes = strlen(text), .continues = true};
    return tokenizer_encode(chat->tokenizer, &input, list);
}

// <|im_start|>ROLE LF CONTENT: the words of role and content are split as one text, as Jinja
// renders it.
static enum status push_start(const struct chat_template *chat, const char *role,
                              const char *content, struct token_list *list)
{
    size_t bytes = strlen(role) + strlen(content) + 2;
    char *text = malloc(bytes);
    if (text == NULL) {
        return STATUS_NO_MEMORY;
    }
    snprintf(text, bytes, "%s\n%s", role, content);
    enum status status = token_list_push(list, chat->start);
    if (status == STATUS_OK) {
        status = push_text(chat, text, list);
    }
    free(text);
    return status;
}

static enum status push_end(const struct chat_template *chat, struct token_list *list)
{
    enum status status = token_list_push(list, chat->end);
    return status == STATUS_OK ? push_text(chat, "\n", list) : status;
}

static enum status push_turn(const struct chat_template *chat, const char *role,
                             const char *content, struct token_list *list)
{
    enum status status = push_start(chat, role, content, list);
    return status == STATUS_OK ? push_end(chat, list) : status;
}

static enum status push_beginning(const struct chat_template *chat, const struct chat_turns *turns,
                                  struct token_list *list)
{
    enum status status = STATUS_OK;
    if (tokenizer_adds_bos(chat->tokenizer)) {
        status = token_list_push(list, tokenizer_bos(chat->tokenizer));
    }
    if (status == STATUS_OK && chat->system != NULL &&
        strcmp(turns->messages[0].role, "system") != 0) {
        status = push_turn(chat, "system", chat->system, list);
    }
    return status;
}

// Ends the turn that the conversation so far stopped in: after <|im_end|> comes the line feed; an
// answer that was cut off before it gets both; a whole turn, its line feed included, nothing.
static enum status push_seam(const struct chat_template *chat, const struct chat_turns *turns,
                             struct token_list *list)
{
    const uint32_t *context = turns->context;
    size_t count = turns->context_count;
    struct token_list feed = {0};
    enum status status = push_text(chat, "\n", &feed);
    if (status == STATUS_OK && context[count - 1] == chat->end) {
        status = push_text(chat, "\n", list);
    } else if (status == STATUS_OK) {
        bool whole = feed.count == 1 && count >= 2 && context[count - 2] == chat->end &&
                     context[count - 1] == feed.tokens[0];
        status = whole ? STATUS_OK : push_end(chat, list);
    }
    token_list_finish(&feed);
    return status;
}

static enum status push_all(const struct chat_template *chat, const struct chat_turns *turns,
                            struct token_list *list)
{
    enum status status = turns->context_count == 0 ? push_beginning(chat, turns, list)
                                                   : push_seam(chat, turns, list);
    for (size_t i = 0; i < turns->count && status == STATUS_OK; i++) {
        status = push_turn(chat, turns->messages[i].role, turns->messages[i].content, list);
    }
    if (status == STATUS_OK && turns->add_generation_prompt) {
        status = push_start(chat, "assistant", "", list);
    }
    return status;
}

static enum status check_turns(const struct chat_template *chat, const struct chat_turns *turns,
                               struct reason *reason)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    if (!chat->usable) {
        return reason_set(reason, STATUS_UNSUPPORTED, "generate without --chat", "%s", chat->why);
    }
    if (turns->count == 0) {
        return reason_set(reason, STATUS_INVALID, "give at least one message",
                          "the chat has no message");
    }
    for (size_t i = 0; i < turns->count; i++) {
        bool known = false;
        for (size_t k = 0; k < sizeof(roles) / sizeof(roles[0]); k++) {
            known |= strcmp(turns->messages[i].role, roles[k]) == 0;
        }
        if (!known) {
            return reason_set(reason, STATUS_INVALID, "use system, user, assistant or tool",
                              "message %zu has the unknown role %.40s", i, turns->messages[i].role);
        }
    }
    return STATUS_OK;
}

enum status chat_template_encode(const struct chat_template *chat, const struct chat_turns *turns,
                                 struct token_list *list, struct reason *reason)
{
    enum status status = check_turns(chat, turns, reason);
    if (status != STATUS_OK) {
        return status;
    }
    size_t count = list->count;
    status = push_all(chat, turns, list);
    if (status != STATUS_OK) {
        list->count = count;
        return reason_set(reason, status, "send a shorter chat",
                          status == STATUS_REFUSED ? "a message is too long to tokenize"
                                                   : "no memory to tokenize the chat");
    }
    return STATUS_OK;
}
