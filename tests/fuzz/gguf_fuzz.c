// SPDX-License-Identifier: Apache-2.0
// The whole path of a model file from outside: head, configuration, roles, a load, the tokenizer
// and a chat. Nothing may crash, leak, read past the input or take long; what is accepted must be
// usable.
#include "gpud/model/chat_template.h"
#include "gpud/model/model_file.h"
#include "gpud/model/tokenizer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

struct input {
    const uint8_t *data;
    size_t bytes;
};

static enum status read_input(void *context, uint64_t offset, void *out, size_t bytes)
{
    const struct input *input = context;
    if (offset > input->bytes || bytes > input->bytes - offset) {
        return STATUS_DAMAGED;
    }
    memcpy(out, input->data + offset, bytes);
    return STATUS_OK;
}

// Touches every byte, so that the sanitizer sees a row that is not there.
static enum status take_rows(void *context, uint32_t index, uint32_t first, uint32_t count,
                             const void *bytes)
{
    const struct model_file *model = context;
    const struct model_tensor *tensor = model_file_tensor(model, index);
    const uint8_t *data = bytes;
    volatile uint8_t sum = 0;
    (void)first;
    for (size_t i = 0; i < (size_t)count * tensor->row_bytes; i++) {
        sum = (uint8_t)(sum + data[i]);
    }
    return STATUS_OK;
}

static void use_tokenizer(const struct gguf *gguf, const struct tokenizer *tokenizer)
{
    static const char text[] =
        "hello  world's 123 \xc3\xa9\xff<s></s><|im_end|>\n\n \xe2\x96\x81 aaab";
    struct token_list list = {0};
    struct token_text back = {0};
    struct reason reason;
    for (int flags = 0; flags < 4; flags++) {
        const struct tokenizer_input input = {text, sizeof(text) - 1, flags & 1, flags & 2, false};
        if (tokenizer_encode(tokenizer, &input, &list) != STATUS_OK) {
            abort();
        }
    }
    if (tokenizer_decode(tokenizer, list.tokens, list.count, true, &back) != STATUS_OK) {
        abort();
    }
    free(back.text);
    struct chat_template *chat = NULL;
    if (chat_template_create(gguf, tokenizer, NULL, &chat, &reason) == STATUS_OK) {
        const struct chat_message message = {"user", text};
        const struct chat_turns turns = {&message, 1, true, list.tokens, list.count};
        (void)!chat_template_encode(chat, &turns, &list, &reason);
        chat_template_destroy(chat);
    }
    token_list_finish(&list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct input input = {data, bytes};
    struct gguf_source source = {"fuzz.gguf", bytes, &input, read_input};
    struct gguf *gguf = NULL;
    struct model_file *model = NULL;
    struct tokenizer *tokenizer = NULL;
    struct reason reason;
    if (gguf_open(&source, &gguf, &reason) == STATUS_OK) {
        if (tokenizer_create(gguf, &tokenizer, &reason) == STATUS_OK) {
            use_tokenizer(gguf, tokenizer);
            tokenizer_destroy(tokenizer);
        }
        gguf_close(gguf);
    }
    if (model_file_open_source(&source, &model, &reason) == STATUS_OK) {
        uint8_t digest[MODEL_DIGEST_BYTES];
        const struct model_sink sink = {(void *)model, take_rows, NULL};
        if (model_file_load(model, &sink, digest, &reason) != STATUS_OK) {
            abort();
        }
        model_file_close(model);
    }
    return 0;
}
