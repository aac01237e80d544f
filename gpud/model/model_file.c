// SPDX-License-Identifier: Apache-2.0
// From a checked GGUF head to tensors with roles, and the one pass that reads, hashes and delivers
// the weights. Rules: a tensor whose role we do not know is refused, since ignoring it would change
// the computation; the pass compares the head with the one that was checked, so a file that was
// changed in between is not loaded under the old shapes.
#include "gpud/model/model_file.h"

#include "gpud/model/model_config.h"
#include "proto/hash.h"
#include "proto/os/file_read.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HINT_AGAIN "download the file again, or ask its maker"

enum { NO_TENSOR = UINT32_MAX };

// A tensor's place in the file.
struct placed {
    uint64_t offset;
    uint32_t index;
};

struct model_file {
    struct gguf_source source;
    struct file_read file; // when opened by path
    bool owns_file;
    char *path;
    struct gguf *gguf;
    struct model_config config;
    struct model_roots roots;
    struct model_layer *layers;   // [layer_count]
    struct model_tensor *tensors; // [tensor_count], in the order of the file
    char (*names)[GGUF_NAME_BYTES_MAX + 1];
    uint32_t tensor_count;
    uint32_t rope_factors; // tensor index or NO_TENSOR
    struct placed *order;  // [tensor_count] by offset
};

// What a role's tensor must look like.
struct role {
    const char *name;
    size_t index_offset; // of the index in struct model_layer or model_roots
    uint32_t columns;
    uint32_t rows; // 0 = a vector
};

// The roles of one layer ("blk.N." before the name), by the shapes of `config`.
enum { LAYER_ROLES = 9, ROOT_ROLES = 3 };

static void layer_roles(const struct model_config *config, struct role *out)
{
    uint32_t query = config->heads * config->head_dim;
    uint32_t kv = config->kv_heads * config->head_dim;
    uint32_t width = config->embedding;
    uint32_t wide = config->feed_forward;
    const struct role roles[LAYER_ROLES] = {
        {"attn_norm.weight", offsetof(struct model_layer, attn_norm), width, 0},
        {"attn_q.weight", offsetof(struct model_layer, attn_q), width, query},
        {"attn_k.weight", offsetof(struct model_layer, attn_k), width, kv},
        {"attn_v.weight", offsetof(struct model_layer, attn_v), width, kv},
        {"attn_output.weight", offsetof(struct model_layer, attn_output), query, width},
        {"ffn_norm.weight", offsetof(struct model_layer, ffn_norm), width, 0},
        {"ffn_gate.weight", offsetof(struct model_layer, ffn_gate), width, wide},
        {"ffn_up.weight", offsetof(struct model_layer, ffn_up), width, wide},
        {"ffn_down.weight", offsetof(struct model_layer, ffn_down), wide, width},
    };
    memcpy(out, roles, sizeof(roles));
}

static void root_roles(const struct model_config *config, struct role *out)
{
    const struct role roles[ROOT_ROLES] = {
        {"token_embd.weight", offsetof(struct model_roots, token_embd), config->embedding,
         config->vocab_count},
        {"output_norm.weight", offsetof(struct model_roots, output_norm), config->embedding, 0},
        {"output.weight", offsetof(struct model_roots, output), config->embedding,
         config->vocab_count},
    };
    memcpy(out, roles, sizeof(roles));
}

static uint32_t *role_index(void *owner, const struct role *role)
{
    return (uint32_t *)(void *)((uint8_t *)owner + role->index_offset);
}

// Names of GGUF's tensor types that we do not read, for messages.
static const char *type_name(uint32_t type)
{
    static const char *const names[] = {
        "F32",     "F16",    "Q4_0",    "Q4_1",  "4",      "5",     "Q5_0",  "Q5_1",
        "Q8_0",    "Q8_1",   "Q2_K",    "Q3_K",  "Q4_K",   "Q5_K",  "Q6_K",  "Q8_K",
        "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS",
        "I8",      "I16",    "I32",     "I64",   "F64",    "IQ1_M", "BF16"};
    return type < sizeof(names) / sizeof(names[0]) ? names[type] : "unknown";
}

static enum status check_shape(const struct model_file *model, const struct gguf_tensor *tensor,
                               const struct role *role, struct reason *reason)
{
    uint64_t rows = role->rows == 0 ? 1 : role->rows;
    uint32_t dimensions = role->rows == 0 ? 1 : 2;
    if (tensor->dimension_count != dimensions || tensor->dimensions[0] != role->columns ||
        tensor->dimensions[1] != rows) {
        return reason_set(reason, STATUS_INVALID, HINT_AGAIN,
                          "%s: tensor %s has the shape %llu x %llu (%u dimensions), must be "
                          "%u x %llu (%u)",
                          model->source.name, gguf_label(tensor->name).text,
                          (unsigned long long)tensor->dimensions[0],
                          (unsigned long long)tensor->dimensions[1], tensor->dimension_count,
                          role->columns, (unsigned long long)rows, dimensions);
    }
    bool known = tensor_type_block((enum tensor_type)tensor->type).values != 0;
    if (!known || (role->rows == 0 && tensor->type != TENSOR_TYPE_F32)) {
        return reason_set(reason, STATUS_UNSUPPORTED, "use a file quantized to one of these",
                          "%s: tensor %s has the type %s (%u); supported are %s",
                          model->source.name, gguf_label(tensor->name).text,
                          type_name(tensor->type), tensor->type,
                          role->rows == 0 ? "F32" : "F32, F16, BF16, Q8_0, Q4_0, Q4_1");
    }
    return STATUS_OK;
}

// Gives the tensor at `index` the role, once, after checking its shape and type.
static enum status assign(struct model_file *model, uint32_t index, const struct role *role,
                          void *owner, struct reason *reason)
{
    const struct gguf_tensor *tensor = gguf_tensor(model->gguf, index);
    enum status status = check_shape(model, tensor, role, reason);
    if (status == STATUS_OK) {
        *role_index(owner, role) = index;
    }
    return status;
}

static enum status unknown_tensor(const struct model_file *model, uint32_t index,
                                  struct reason *reason)
{
    return reason_set(reason, STATUS_UNSUPPORTED, "use a plain llama model (docs/MODELS.md)",
                      "%s: tensor %s has no place in a llama model of %u layers",
                      model->source.name, model->names[index], model->config.layer_count);
}

static const struct role *find_role(const struct role *roles, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(roles[i].name, name) == 0) {
            return &roles[i];
        }
    }
    return NULL;
}

// Splits "blk.N.rest"; false when the name is not of that form. N has no leading zeros.
static bool split_layer(const char *name, uint32_t *out_layer, const char **out_rest)
{
    if (strncmp(name, "blk.", 4) != 0 || name[4] < '0' || name[4] > '9') {
        return false;
    }
    uint32_t layer = 0;
    const char *cursor = name + 4;
    while (*cursor >= '0' && *cursor <= '9' && layer <= LIMIT_LAYERS) {
        layer = layer * 10 + (uint32_t)(*cursor++ - '0');
    }
    *out_layer = layer;
    *out_rest = cursor + 1;
    return *cursor == '.' && (name[4] != '0' || cursor == name + 5);
}

static enum status place(struct model_file *model, uint32_t index, const struct role *of_layer,
                         const struct role *of_root, struct reason *reason)
{
    const char *name = model->names[index];
    uint32_t layer = 0;
    const char *rest = NULL;
    if (split_layer(name, &layer, &rest)) {
        const struct role *role = find_role(of_layer, LAYER_ROLES, rest);
        return role == NULL || layer >= model->config.layer_count
                   ? unknown_tensor(model, index, reason)
                   : assign(model, index, role, &model->layers[layer], reason);
    }
    if (strcmp(name, "rope_freqs.weight") == 0) {
        model->rope_factors = index;
        return STATUS_OK;
    }
    const struct role *role = find_role(of_root, ROOT_ROLES, name);
    return role == NULL ? unknown_tensor(model, index, reason)
                        : assign(model, index, role, &model->roots, reason);
}

static enum status missing(const struct model_file *model, const char *prefix, const char *name,
                           struct reason *reason)
{
    return reason_set(reason, STATUS_INVALID, HINT_AGAIN, "%s: tensor %s%s is missing",
                      model->source.name, prefix, name);
}

static enum status check_complete(struct model_file *model, const struct role *of_layer,
                                  struct reason *reason)
{
    for (uint32_t layer = 0; layer < model->config.layer_count; layer++) {
        for (size_t i = 0; i < LAYER_ROLES; i++) {
            if (*role_index(&model->layers[layer], &of_layer[i]) == NO_TENSOR) {
                char prefix[24];
                snprintf(prefix, sizeof(prefix), "blk.%u.", layer);
                return missing(model, prefix, of_layer[i].name, reason);
            }
        }
        model->layers[layer].group = 0;
        model->layers[layer].group_layer = layer;
    }
    if (model->roots.output_norm == NO_TENSOR) {
        return missing(model, "", "output_norm.weight", reason);
    }
    model->config.tied_output = model->roots.output == NO_TENSOR;
    if (model->config.tied_output) {
        model->roots.output = model->roots.token_embd;
    }
    return STATUS_OK;
}

static enum status check_vocabulary(struct model_file *model, uint64_t rows, struct reason *reason)
{
    const struct gguf_value *tokens = NULL;
    enum status status =
        gguf_read_array(model->gguf, "tokenizer.ggml.tokens", GGUF_TYPE_STRING, &tokens, reason);
    if (status != STATUS_OK) {
        return status;
    }
    if (rows == 0 || rows > LIMIT_VOCAB_TOKENS || (tokens != NULL && tokens->count != rows)) {
        return reason_set(reason, STATUS_INVALID, HINT_AGAIN,
                          "%s: token_embd.weight has %llu rows, the vocabulary %llu tokens (1..%d)",
                          model->source.name, (unsigned long long)rows,
                          (unsigned long long)(tokens == NULL ? 0 : tokens->count),
                          LIMIT_VOCAB_TOKENS);
    }
    const struct gguf_number number = {"llama.vocab_size", rows, rows, rows, false};
    uint64_t size = 0;
    status = gguf_read_number(model->gguf, &number, &size, reason);
    model->config.vocab_count = (uint32_t)rows;
    return status;
}

// The vocabulary is as long as token_embd has rows.
static enum status find_vocabulary(struct model_file *model, struct reason *reason)
{
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        if (strcmp(model->names[i], "token_embd.weight") == 0) {
            return check_vocabulary(model, gguf_tensor(model->gguf, i)->dimensions[1], reason);
        }
    }
    return missing(model, "", "token_embd.weight", reason);
}

static enum status allocate_tables(struct model_file *model, struct reason *reason)
{
    uint32_t count = gguf_tensor_count(model->gguf);
    if (count == 0) {
        return reason_set(reason, STATUS_INVALID, "give a model with its weights",
                          "%s: holds a vocabulary only, no weights", model->source.name);
    }
    uint32_t layer_count = model->config.layer_count;
    model->layers = malloc(layer_count * sizeof(*model->layers));
    model->tensors = calloc(count, sizeof(*model->tensors));
    model->names = calloc(count, sizeof(*model->names));
    model->order = calloc(count, sizeof(*model->order));
    if (model->layers == NULL || model->tensors == NULL || model->names == NULL ||
        model->order == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "%s: no memory for its tables",
                          model->source.name);
    }
    memset(model->layers, 0xff, layer_count * sizeof(*model->layers)); // every index NO_TENSOR
    memset(&model->roots, 0xff, sizeof(model->roots));
    model->rope_factors = NO_TENSOR;
    model->tensor_count = count;
    for (uint32_t i = 0; i < count; i++) {
        struct gguf_string name = gguf_tensor(model->gguf, i)->name;
        memcpy(model->names[i], name.text, name.bytes);
    }
    return STATUS_OK;
}

static int compare_placed(const void *a, const void *b)
{
    uint64_t x = ((const struct placed *)a)->offset;
    uint64_t y = ((const struct placed *)b)->offset;
    return (x > y) - (x < y);
}

static void describe_tensors(struct model_file *model)
{
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const struct gguf_tensor *tensor = gguf_tensor(model->gguf, i);
        enum tensor_type type = (enum tensor_type)tensor->type;
        model->tensors[i] = (struct model_tensor){
            .name = model->names[i],
            .type = type,
            .columns = (uint32_t)tensor->dimensions[0],
            .rows = (uint32_t)tensor->dimensions[1],
            .row_bytes = (uint32_t)tensor_row_bytes(type, tensor->dimensions[0]),
            .offset = tensor->offset,
            .bytes = tensor->bytes};
        model->order[i] = (struct placed){tensor->offset, i};
    }
    qsort(model->order, model->tensor_count, sizeof(*model->order), compare_placed);
}

// Llama 3 files carry divisors of the RoPE frequencies as a tensor.
static enum status read_rope_factors(struct model_file *model, struct reason *reason)
{
    if (model->rope_factors == NO_TENSOR) {
        return STATUS_OK;
    }
    struct model_rope *rope = &model->config.rope;
    const struct gguf_tensor *tensor = gguf_tensor(model->gguf, model->rope_factors);
    const struct role role = {"rope_freqs.weight", 0, rope->dimension_count / 2, 0};
    enum status status = check_shape(model, tensor, &role, reason);
    if (status != STATUS_OK) {
        return status;
    }
    status = model->source.read(model->source.context, tensor->offset, rope->factors,
                                (size_t)tensor->bytes);
    for (uint32_t i = 0; status == STATUS_OK && i < rope->dimension_count / 2; i++) {
        if (!isfinite(rope->factors[i]) || rope->factors[i] <= 0) {
            status = STATUS_INVALID;
        }
    }
    rope->has_factors = true;
    return status == STATUS_OK
               ? STATUS_OK
               : reason_set(reason, status, HINT_AGAIN,
                            "%s: rope_freqs.weight cannot be read, or holds a value that is not "
                            "above 0",
                            model->source.name);
}

static enum status read_model(struct model_file *model, struct reason *reason)
{
    enum status status = gguf_open(&model->source, &model->gguf, reason);
    if (status == STATUS_OK) {
        status = model_config_read(model->gguf, &model->config, reason);
    }
    if (status == STATUS_OK) {
        status = allocate_tables(model, reason);
    }
    if (status == STATUS_OK) {
        status = find_vocabulary(model, reason);
    }
    if (status != STATUS_OK) {
        return status;
    }
    struct role of_layer[LAYER_ROLES];
    struct role of_root[ROOT_ROLES];
    layer_roles(&model->config, of_layer);
    root_roles(&model->config, of_root);
    for (uint32_t i = 0; i < model->tensor_count && status == STATUS_OK; i++) {
        status = place(model, i, of_layer, of_root, reason);
    }
    if (status == STATUS_OK) {
        status = check_complete(model, of_layer, reason);
    }
    if (status == STATUS_OK) {
        status = read_rope_factors(model, reason);
    }
    if (status == STATUS_OK) {
        describe_tensors(model);
    }
    return status;
}

enum status model_file_open_source(const struct gguf_source *source, struct model_file **out_model,
                                   struct reason *reason)
{
    struct model_file *model = calloc(1, sizeof(*model));
    if (model == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "%s: no memory", source->name);
    }
    model->source = *source;
    enum status status = read_model(model, reason);
    if (status != STATUS_OK) {
        model_file_close(model);
        return status;
    }
    *out_model = model;
    return STATUS_OK;
}

static enum status read_file(void *context, uint64_t offset, void *out, size_t bytes)
{
    return file_read_at(context, offset, out, bytes);
}

// Sets up the source of a model that reads the file at `path` itself.
static enum status open_path(struct model_file *model, const char *path, struct reason *reason)
{
    model->path = strdup(path);
    if (model->path == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "%s: no memory", path);
    }
    enum status status = file_read_open(path, &model->file, reason);
    if (status != STATUS_OK) {
        return status;
    }
    model->owns_file = true;
    model->source =
        (struct gguf_source){.name = model->path, .context = &model->file, .read = read_file};
    if (file_read_size(&model->file, &model->source.bytes) != STATUS_OK) {
        return reason_set(reason, STATUS_IO, "check the disk", "%s: its size cannot be read", path);
    }
    return read_model(model, reason);
}

enum status model_file_open(const char *path, struct model_file **out_model, struct reason *reason)
{
    struct model_file *model = calloc(1, sizeof(*model));
    if (model == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "%s: no memory", path);
    }
    enum status status = open_path(model, path, reason);
    if (status != STATUS_OK) {
        model_file_close(model);
        return status;
    }
    *out_model = model;
    return STATUS_OK;
}

void model_file_close(struct model_file *model)
{
    if (model == NULL) {
        return;
    }
    gguf_close(model->gguf);
    free(model->layers);
    free(model->tensors);
    free(model->names);
    free(model->order);
    if (model->owns_file) {
        file_read_close(&model->file);
    }
    free(model->path);
    free(model);
}

const struct model_config *model_file_config(const struct model_file *model)
{
    return &model->config;
}

const struct model_layer *model_file_layer(const struct model_file *model, uint32_t layer_index)
{
    return &model->layers[layer_index];
}

const struct model_roots *model_file_roots(const struct model_file *model)
{
    return &model->roots;
}

uint32_t model_file_tensor_count(const struct model_file *model)
{
    return model->tensor_count;
}

const struct model_tensor *model_file_tensor(const struct model_file *model, uint32_t index)
{
    return &model->tensors[index];
}

uint64_t model_file_bytes(const struct model_file *model)
{
    return model->source.bytes;
}

const struct gguf *model_file_gguf(const struct model_file *model)
{
    return model->gguf;
}

void model_rope_frequencies(const struct model_rope *rope, double *out)
{
    for (uint32_t i = 0; i < rope->dimension_count / 2; i++) {
        double exponent = -2.0 * i / rope->dimension_count;
        out[i] = pow(rope->freq_base, exponent) / (double)rope->factors[i];
    }
}

// The pass over the file in progress.
struct load {
    const struct model_file *model;
    const struct model_sink *sink;
    struct reason *reason;
    struct hash hash;
    uint8_t *buffer;   // [MODEL_CHUNK_BYTES]
    uint64_t position; // bytes read and hashed
};

static enum status changed(const struct load *load)
{
    return reason_set(load->reason, STATUS_DAMAGED, "leave the file alone while it is loaded",
                      "%s: changed since it was opened", load->model->source.name);
}

// The next `bytes` bytes (at most MODEL_CHUNK_BYTES) into the buffer and the hash.
static enum status load_bytes(struct load *load, size_t bytes)
{
    const struct gguf_source *source = &load->model->source;
    enum status status = source->read(source->context, load->position, load->buffer, bytes);
    if (status == STATUS_DAMAGED) {
        return reason_set(load->reason, status, HINT_AGAIN,
                          "%s: became shorter than the %llu bytes it had", source->name,
                          (unsigned long long)source->bytes);
    }
    if (status != STATUS_OK) {
        return reason_set(load->reason, status, "check the disk",
                          "%s: reading %zu bytes at %llu failed", source->name, bytes,
                          (unsigned long long)load->position);
    }
    hash_update(&load->hash, load->buffer, bytes);
    size_t head_bytes = 0;
    const uint8_t *head = gguf_head(load->model->gguf, &head_bytes);
    if (load->position < head_bytes) {
        size_t left = head_bytes - (size_t)load->position;
        if (memcmp(head + load->position, load->buffer, left < bytes ? left : bytes) != 0) {
            return changed(load);
        }
    }
    load->position += bytes;
    if (load->sink->progress != NULL) {
        load->sink->progress(load->sink->context, load->position, source->bytes);
    }
    return STATUS_OK;
}

// Head, padding and what follows the last tensor: hashed, not delivered.
static enum status load_until(struct load *load, uint64_t end)
{
    enum status status = STATUS_OK;
    while (status == STATUS_OK && load->position < end) {
        uint64_t left = end - load->position;
        status = load_bytes(load, left < MODEL_CHUNK_BYTES ? (size_t)left : MODEL_CHUNK_BYTES);
    }
    return status;
}

static enum status load_tensor(struct load *load, uint32_t index)
{
    const struct model_tensor *tensor = &load->model->tensors[index];
    uint32_t step = MODEL_CHUNK_BYTES / tensor->row_bytes;
    for (uint32_t row = 0; row < tensor->rows; row += step) {
        uint32_t count = tensor->rows - row < step ? tensor->rows - row : step;
        enum status status = load_bytes(load, (size_t)count * tensor->row_bytes);
        if (status == STATUS_OK && index != load->model->rope_factors) {
            status = load->sink->rows(load->sink->context, index, row, count, load->buffer);
        }
        if (status != STATUS_OK) {
            return status;
        }
    }
    return STATUS_OK;
}

static enum status load_all(struct load *load, uint8_t *out_digest)
{
    const struct model_file *model = load->model;
    enum status status = STATUS_OK;
    hash_init(&load->hash);
    for (uint32_t i = 0; i < model->tensor_count && status == STATUS_OK; i++) {
        status = load_until(load, model->order[i].offset);
        if (status == STATUS_OK) {
            status = load_tensor(load, model->order[i].index);
        }
    }
    if (status == STATUS_OK) {
        status = load_until(load, model->source.bytes);
    }
    uint64_t bytes = model->source.bytes;
    if (status == STATUS_OK && model->owns_file) {
        status = file_read_size(&model->file, &bytes);
    }
    if (status == STATUS_OK && bytes != model->source.bytes) {
        status = changed(load);
    }
    if (status == STATUS_OK) {
        hash_final(&load->hash, out_digest);
    }
    return status;
}

enum status model_file_load(const struct model_file *model, const struct model_sink *sink,
                            uint8_t *out_digest, struct reason *reason)
{
    struct load load = {.model = model, .sink = sink, .reason = reason};
    load.buffer = malloc(MODEL_CHUNK_BYTES);
    if (load.buffer == NULL) {
        return reason_set(reason, STATUS_NO_MEMORY, "", "%s: no memory to read it",
                          model->source.name);
    }
    enum status status = load_all(&load, out_digest);
    free(load.buffer);
    return status;
}
