// SPDX-License-Identifier: Apache-2.0
// The head of a GGUF file, parsed once with every length checked before use. Rules:
//   1. The head buffer is taken at its largest size (or the file's) before parsing and never moves,
//   so
//      values point into it; pages that are not filled cost nothing.
//   2. Only reader_need reads the source; a length is compared with what the file holds before
//      anything is added to it, so nothing overflows.
//   3. Counts are bounded before memory is taken by them.
#include "gpud/model/gguf.h"

#include "proto/os/file_read.h"

#include <stdlib.h>
#include <string.h>

#define HINT_AGAIN "download the file again, or ask its maker"

enum {
    READ_CHUNK_BYTES = 256 << 10,
    ALIGNMENT_DEFAULT = 32,
    ALIGNMENT_MIN = 8,
    ALIGNMENT_MAX = 1 << 20,
};

struct gguf {
    char *name;
    uint8_t *head;
    size_t head_bytes;
    struct gguf_value *values; // in the order of the file
    uint32_t value_count;
    struct gguf_tensor *tensors; // in the order of the file
    uint32_t tensor_count;
    uint64_t alignment;
};

// The parse in progress: `cursor` <= `loaded` <= `limit` in `gguf->head`.
struct reader {
    const struct gguf_source *source;
    struct gguf *gguf;
    size_t limit; // size of the head buffer
    size_t loaded;
    size_t cursor;
    struct reason *reason;
};

// Bytes of one value; 0 for strings and arrays, whose length is in the file.
static const uint8_t TYPE_BYTES[GGUF_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

static uint64_t load_le(const uint8_t *data, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++) {
        value |= (uint64_t)data[i] << (8 * i);
    }
    return value;
}

struct gguf_label gguf_label(struct gguf_string string)
{
    struct gguf_label label = {{0}};
    size_t count = string.bytes < 60 ? string.bytes : 60;
    for (size_t i = 0; i < count; i++) {
        char c = string.text[i];
        label.text[i] = c >= ' ' && c <= '~' ? c : '?';
    }
    return label;
}

// Makes `bytes` bytes from the cursor on readable, reading ahead in chunks.
static enum status reader_need(struct reader *reader, uint64_t bytes, const char *what)
{
    if (bytes <= reader->loaded - reader->cursor) {
        return STATUS_OK;
    }
    if (bytes > reader->source->bytes - reader->cursor) {
        return reason_set(reader->reason, STATUS_INVALID, HINT_AGAIN,
                          "%s: the file ends (%llu bytes) inside %s", reader->source->name,
                          (unsigned long long)reader->source->bytes, what);
    }
    if (bytes > reader->limit - reader->cursor) {
        return reason_set(reader->reason, STATUS_INVALID, HINT_AGAIN,
                          "%s: metadata is longer than %d MiB at %s", reader->source->name,
                          GGUF_HEAD_BYTES_MAX >> 20, what);
    }
    size_t end = reader->cursor + (size_t)bytes;
    size_t ahead = reader->loaded + READ_CHUNK_BYTES;
    end = end < ahead ? ahead : end;
    end = end > reader->limit ? reader->limit : end;
    size_t count = end - reader->loaded;
    enum status status = reader->source->read(reader->source->context, reader->loaded,
                                              reader->gguf->head + reader->loaded, count);
    if (status != STATUS_OK) {
        return reason_set(
            reader->reason, status, "check the disk, and that nothing changes the file",
            "%s: reading %zu bytes at %zu failed", reader->source->name, count, reader->loaded);
    }
    reader->loaded = end;
    return STATUS_OK;
}

static enum status read_integer(struct reader *reader, unsigned bytes, const char *what,
                                uint64_t *out)
{
    enum status status = reader_need(reader, bytes, what);
    if (status == STATUS_OK) {
        *out = load_le(reader->gguf->head + reader->cursor, bytes);
        reader->cursor += bytes;
    }
    return status;
}

static enum status read_string(struct reader *reader, const char *what, struct gguf_string *out)
{
    uint64_t bytes = 0;
    enum status status = read_integer(reader, 8, what, &bytes);
    if (status != STATUS_OK) {
        return status;
    }
    status = reader_need(reader, bytes, what);
    if (status == STATUS_OK) {
        *out =
            (struct gguf_string){(const char *)reader->gguf->head + reader->cursor, (size_t)bytes};
        reader->cursor += (size_t)bytes;
    }
    return status;
}

static enum status read_preamble(struct reader *reader)
{
    const char *name = reader->source->name;
    uint64_t magic = 0;
    uint64_t version = 0;
    enum status status = read_integer(reader, 4, "the magic number", &magic);
    if (status != STATUS_OK) {
        return status;
    }
    if (magic != 0x46554747) { // "GGUF"
        return reason_set(reader->reason, STATUS_INVALID, "give a model in GGUF form",
                          "%s: is not a GGUF file (it starts with %08llx)", name,
                          (unsigned long long)magic);
    }
    status = read_integer(reader, 4, "the version", &version);
    if (status != STATUS_OK) {
        return status;
    }
    if (version == 0x02000000 || version == 0x03000000) {
        return reason_set(reader->reason, STATUS_UNSUPPORTED, "convert it to little-endian",
                          "%s: is a big-endian GGUF file", name);
    }
    if (version != 2 && version != 3) {
        return reason_set(reader->reason, STATUS_UNSUPPORTED, "convert it to GGUF version 3",
                          "%s: GGUF version %llu is not one of 2, 3", name,
                          (unsigned long long)version);
    }
    return STATUS_OK;
}

static enum status read_counts(struct reader *reader)
{
    uint64_t tensors = 0;
    uint64_t values = 0;
    enum status status = read_integer(reader, 8, "the number of tensors", &tensors);
    if (status == STATUS_OK) {
        status = read_integer(reader, 8, "the number of metadata values", &values);
    }
    if (status != STATUS_OK) {
        return status;
    }
    if (tensors > GGUF_TENSORS_MAX || values > GGUF_VALUES_MAX) {
        return reason_set(reader->reason, STATUS_INVALID, HINT_AGAIN,
                          "%s: says it has %llu tensors and %llu metadata values (at most %d, %d)",
                          reader->source->name, (unsigned long long)tensors,
                          (unsigned long long)values, GGUF_TENSORS_MAX, GGUF_VALUES_MAX);
    }
    struct gguf *gguf = reader->gguf;
    gguf->values = calloc((size_t)values + 1, sizeof(*gguf->values));
    gguf->tensors = calloc((size_t)tensors + 1, sizeof(*gguf->tensors));
    if (gguf->values == NULL || gguf->tensors == NULL) {
        return reason_set(reader->reason, STATUS_NO_MEMORY, "", "%s: no memory for its tables",
                          reader->source->name);
    }
    gguf->value_count = (uint32_t)values;
    gguf->tensor_count = (uint32_t)tensors;
    return STATUS_OK;
}

static enum status read_type(struct reader *reader, const struct gguf_value *value,
                             enum gguf_type *out)
{
    uint64_t type = 0;
    enum status status = read_integer(reader, 4, "a value's type", &type);
    if (status != STATUS_OK) {
        return status;
    }
    if (type >= GGUF_TYPE_COUNT) {
        return reason_set(reader->reason, STATUS_INVALID, HINT_AGAIN,
                          "%s: metadata %s has the unknown type %llu", reader->source->name,
                          gguf_label(value->key).text, (unsigned long long)type);
    }
    *out = (enum gguf_type)type;
    return STATUS_OK;
}

static enum status read_array_head(struct reader *reader, struct gguf_value *value)
{
    enum status status = read_type(reader, value, &value->element_type);
    if (status != STATUS_OK) {
        return status;
    }
    if (value->element_type == GGUF_TYPE_ARRAY) {
        return reason_set(reader->reason, STATUS_INVALID, HINT_AGAIN,
                          "%s: metadata %s is an array of arrays", reader->source->name,
                          gguf_label(value->key).text);
    }
    return read_integer(reader, 8, "an array's length", &value->count);
}

// Moves over the value's elements, which checks that they are there.
static enum status skip_elements(struct reader *reader, const struct gguf_value *value)
{
    struct gguf_label label = gguf_label(value->key);
    if (value->element_type == GGUF_TYPE_STRING) {
        // Bounded by the head: each string takes at least its 8 bytes of length.
        for (uint64_t i = 0; i < value->count; i++) {
            struct gguf_string string;
            enum status status = read_string(reader, label.text, &string);
            if (status != STATUS_OK) {
                return status;
            }
        }
        return STATUS_OK;
    }
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(value->count, (uint64_t)TYPE_BYTES[value->element_type], &bytes)) {
        bytes = UINT64_MAX;
    }
    enum status status = reader_need(reader, bytes, label.text);
    if (status == STATUS_OK) {
        reader->cursor += (size_t)bytes;
    }
    return status;
}

static enum status read_value(struct reader *reader, struct gguf_value *value)
{
    enum status status = read_string(reader, "a metadata key", &value->key);
    if (status != STATUS_OK) {
        return status;
    }
    if (value->key.bytes == 0 || value->key.bytes > GGUF_KEY_BYTES_MAX) {
        return reason_set(reader->reason, STATUS_INVALID, HINT_AGAIN,
                          "%s: a metadata key is %zu bytes long (1..%d)", reader->source->name,
                          value->key.bytes, GGUF_KEY_BYTES_MAX);
    }
    status = read_type(reader, value, &value->type);
    if (status != STATUS_OK) {
        return status;
    }
    value->element_type = value->type;
    value->count = 1;
    if (value->type == GGUF_TYPE_ARRAY) {
        status = read_array_head(reader, value);
    }
    if (status != STATUS_OK) {
        return status;
    }
    size_t start = reader->cursor;
    status = skip_elements(reader, value);
    value->data = reader->gguf->head + start;
    value->data_bytes = reader->cursor - start;
    return status;
}

static int compare_strings(const struct gguf_string *a, const struct gguf_string *b)
{
    size_t shared = a->bytes < b->bytes ? a->bytes : b->bytes;
    int order = memcmp(a->text, b->text, shared);
    return order != 0 ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static int compare_names(const void *a, const void *b)
{
    return compare_strings(*(const struct gguf_string *const *)a,
                           *(const struct gguf_string *const *)b);
}

// STATUS_INVALID when two of `count` names, `stride` bytes apart, are equal.
static enum status check_unique(struct reader *reader, const struct gguf_string *first,
                                size_t stride, uint32_t count, const char *what)
{
    const struct gguf_string **names = calloc((size_t)count + 1, sizeof(*names));
    if (names == NULL) {
        return reason_set(reader->reason, STATUS_NO_MEMORY, "", "%s: no memory for its tables",
                          reader->source->name);
    }
    for (uint32_t i = 0; i < count; i++) {
        names[i] = (const struct gguf_string *)(const void *)((const uint8_t *)first + i * stride);
    }
    qsort(names, count, sizeof(*names), compare_names);
    enum status status = STATUS_OK;
    for (uint32_t i = 1; i < count && status == STATUS_OK; i++) {
        if (compare_strings(names[i - 1], names[i]) == 0) {
            status =
                reason_set(reader->reason, STATUS_INVALID, HINT_AGAIN, "%s: has two %s named %s",
                           reader->source->name, what, gguf_label(*names[i]).text);
        }
    }
    free(names);
    return status;
}

static enum status read_values(struct reader *reader)
{
    struct gguf *gguf = reader->gguf;
    for (uint32_t i = 0; i < gguf->value_count; i++) {
        enum status status = read_value(reader, &gguf->values[i]);
        if (status != STATUS_OK) {
            return status;
        }
    }
    enum status status = check_unique(reader, &gguf->values[0].key, sizeof(gguf->values[0]),
                                      gguf->value_count, "metadata values");
    if (status != STATUS_OK) {
        return status;
    }
    const struct gguf_number number = {.key = "general.alignment",
                                       .minimum = ALIGNMENT_MIN,
                                       .maximum = ALIGNMENT_MAX,
                                       .fallback = ALIGNMENT_DEFAULT};
    status = gguf_read_number(gguf, &number, &gguf->alignment, reader->reason);
    if (status == STATUS_OK && (gguf->alignment & (gguf->alignment - 1)) != 0) {
        status = reason_set(reader->reason, STATUS_INVALID, HINT_AGAIN,
                            "%s: general.alignment is %llu, which is not a power of two",
                            reader->source->name, (unsigned long long)gguf->alignment);
    }
    return status;
}

static enum status read_dimensions(struct reader *reader, struct gguf_tensor *tensor)
{
    uint64_t count = 0;
    enum status status = read_integer(reader, 4, "a tensor's dimensions", &count);
    if (status != STATUS_OK) {
        return status;
    }
    if (count == 0 || count > GGUF_DIMENSIONS_MAX) {
        return reason_set(reader->reason, STATUS_INVALID, HINT_AGAIN,
                          "%s: tensor %s has %llu dimensions (1..%d)", reader->source->name,
                          gguf_label(tensor->name).text, (unsigned long long)count,
                          GGUF_DIMENSIONS_MAX);
    }
    tensor->dimension_count = (uint32_t)count;
    for (uint32_t i = 0; i < GGUF_DIMENSIONS_MAX; i++) {
        tensor->dimensions[i] = 1;
        if (i < count) {
            status = read_integer(reader, 8, "a tensor's dimensions", &tensor->dimensions[i]);
        }
        if (status != STATUS_OK) {
            return status;
        }
        if (tensor->dimensions[i] == 0) {
            return reason_set(reader->reason, STATUS_INVALID, HINT_AGAIN,
                              "%s: tensor %s has a dimension of 0", reader->source->name,
                              gguf_label(tensor->name).text);
        }
    }
    return STATUS_OK;
}

// Sets the tensor's bytes from its type and shape; types we do not read keep 0.
static enum status measure_tensor(struct reader *reader, struct gguf_tensor *tensor)
{
    struct tensor_type_block block = tensor_type_block((enum tensor_type)tensor->type);
    uint64_t rows = 1;
    bool overflow = tensor->dimensions[0] > INT64_MAX;
    for (uint32_t i = 1; i < GGUF_DIMENSIONS_MAX; i++) {
        overflow |= __builtin_mul_overflow(rows, tensor->dimensions[i], &rows);
    }
    uint64_t row_bytes = block.values == 0 ? 0 : 1;
    if (block.values != 0 && tensor->dimensions[0] % block.values != 0) {
        return reason_set(reader->reason, STATUS_INVALID, HINT_AGAIN,
                          "%s: tensor %s has rows of %llu values, not a multiple of its type's %u",
                          reader->source->name, gguf_label(tensor->name).text,
                          (unsigned long long)tensor->dimensions[0], block.values);
    }
    if (block.values != 0) {
        overflow |= __builtin_mul_overflow(tensor->dimensions[0] / block.values,
                                           (uint64_t)block.bytes, &row_bytes);
    }
    overflow |= __builtin_mul_overflow(rows, row_bytes, &tensor->bytes);
    if (overflow) {
        return reason_set(reader->reason, STATUS_INVALID, HINT_AGAIN,
                          "%s: tensor %s has dimensions whose product overflows",
                          reader->source->name, gguf_label(tensor->name).text);
    }
    return STATUS_OK;
}

static enum status read_tensor(struct reader *reader, struct gguf_tensor *tensor)
{
    enum status status = read_string(reader, "a tensor's name", &tensor->name);
    if (status != STATUS_OK) {
        return status;
    }
    if (tensor->name.bytes == 0 || tensor->name.bytes > GGUF_NAME_BYTES_MAX ||
        memchr(tensor->name.text, '\0', tensor->name.bytes) != NULL) {
        return reason_set(reader->reason, STATUS_INVALID, HINT_AGAIN,
                          "%s: a tensor's name is %zu bytes long (1..%d) or holds a NUL",
                          reader->source->name, tensor->name.bytes, GGUF_NAME_BYTES_MAX);
    }
    status = read_dimensions(reader, tensor);
    uint64_t type = 0;
    if (status == STATUS_OK) {
        status = read_integer(reader, 4, "a tensor's type", &type);
    }
    if (status == STATUS_OK) {
        status = read_integer(reader, 8, "a tensor's offset", &tensor->offset);
    }
    tensor->type = (uint32_t)type;
    return status == STATUS_OK ? measure_tensor(reader, tensor) : status;
}

// Offsets are relative to the data section, which starts at `data_start`; makes them absolute.
static enum status place_tensor(struct reader *reader, struct gguf_tensor *tensor,
                                uint64_t data_start)
{
    if (tensor->offset % reader->gguf->alignment != 0) {
        return reason_set(reader->reason, STATUS_INVALID, HINT_AGAIN,
                          "%s: tensor %s is at %llu, not aligned to %llu", reader->source->name,
                          gguf_label(tensor->name).text, (unsigned long long)tensor->offset,
                          (unsigned long long)reader->gguf->alignment);
    }
    uint64_t end = 0;
    bool overflow = __builtin_add_overflow(tensor->offset, data_start, &tensor->offset);
    overflow |= __builtin_add_overflow(tensor->offset, tensor->bytes, &end);
    if (overflow || end > reader->source->bytes) {
        return reason_set(reader->reason, STATUS_INVALID, HINT_AGAIN,
                          "%s: tensor %s (%llu bytes at %llu) lies past the file's end at %llu",
                          reader->source->name, gguf_label(tensor->name).text,
                          (unsigned long long)tensor->bytes, (unsigned long long)tensor->offset,
                          (unsigned long long)reader->source->bytes);
    }
    return STATUS_OK;
}

static int compare_offsets(const void *a, const void *b)
{
    const struct gguf_tensor *x = *(const struct gguf_tensor *const *)a;
    const struct gguf_tensor *y = *(const struct gguf_tensor *const *)b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static enum status check_overlap(struct reader *reader)
{
    struct gguf *gguf = reader->gguf;
    const struct gguf_tensor **order = calloc((size_t)gguf->tensor_count + 1, sizeof(*order));
    if (order == NULL) {
        return reason_set(reader->reason, STATUS_NO_MEMORY, "", "%s: no memory for its tables",
                          reader->source->name);
    }
    for (uint32_t i = 0; i < gguf->tensor_count; i++) {
        order[i] = &gguf->tensors[i];
    }
    qsort(order, gguf->tensor_count, sizeof(*order), compare_offsets);
    enum status status = STATUS_OK;
    for (uint32_t i = 1; i < gguf->tensor_count && status == STATUS_OK; i++) {
        if (order[i - 1]->offset + order[i - 1]->bytes > order[i]->offset) {
            status =
                reason_set(reader->reason, STATUS_INVALID, HINT_AGAIN,
                           "%s: tensors %s and %s overlap", reader->source->name,
                           gguf_label(order[i - 1]->name).text, gguf_label(order[i]->name).text);
        }
    }
    free(order);
    return status;
}

static enum status read_tensors(struct reader *reader)
{
    struct gguf *gguf = reader->gguf;
    for (uint32_t i = 0; i < gguf->tensor_count; i++) {
        enum status status = read_tensor(reader, &gguf->tensors[i]);
        if (status != STATUS_OK) {
            return status;
        }
    }
    enum status status = check_unique(reader, &gguf->tensors[0].name, sizeof(gguf->tensors[0]),
                                      gguf->tensor_count, "tensors");
    uint64_t data_start = reader->cursor;
    data_start = (data_start + gguf->alignment - 1) / gguf->alignment * gguf->alignment;
    for (uint32_t i = 0; i < gguf->tensor_count && status == STATUS_OK; i++) {
        status = place_tensor(reader, &gguf->tensors[i], data_start);
    }
    return status == STATUS_OK ? check_overlap(reader) : status;
}

static enum status read_head(struct reader *reader)
{
    enum status status = read_preamble(reader);
    if (status == STATUS_OK) {
        status = read_counts(reader);
    }
    if (status == STATUS_OK) {
        status = read_values(reader);
    }
    if (status == STATUS_OK) {
        status = read_tensors(reader);
    }
    reader->gguf->head_bytes = reader->cursor;
    return status;
}

enum status gguf_open(const struct gguf_source *source, struct gguf **out_gguf,
                      struct reason *reason)
{
    size_t limit =
        source->bytes < GGUF_HEAD_BYTES_MAX ? (size_t)source->bytes : (size_t)GGUF_HEAD_BYTES_MAX;
    enum status status = STATUS_NO_MEMORY;
    struct gguf *gguf = calloc(1, sizeof(*gguf));
    if (gguf != NULL) {
        gguf->name = strdup(source->name);
        gguf->head = malloc(limit + 1);
    }
    if (gguf == NULL || gguf->name == NULL || gguf->head == NULL) {
        reason_set(reason, status, "", "%s: no memory for its head", source->name);
        goto failed;
    }
    struct reader reader = {.source = source, .gguf = gguf, .limit = limit, .reason = reason};
    status = read_head(&reader);
    if (status != STATUS_OK) {
        goto failed;
    }
    *out_gguf = gguf;
    return STATUS_OK;
failed:
    gguf_close(gguf);
    return status;
}

static enum status read_file(void *context, uint64_t offset, void *out, size_t bytes)
{
    return file_read_at(context, offset, out, bytes);
}

enum status gguf_open_path(const char *path, struct gguf **out_gguf, struct reason *reason)
{
    struct file_read file;
    enum status status = file_read_open(path, &file, reason);
    if (status != STATUS_OK) {
        return status;
    }
    struct gguf_source source = {.name = path, .context = &file, .read = read_file};
    status = file_read_size(&file, &source.bytes);
    if (status == STATUS_OK) {
        status = gguf_open(&source, out_gguf, reason);
    } else {
        reason_set(reason, status, "check the disk", "%s: its size cannot be read", path);
    }
    file_read_close(&file);
    return status;
}

void gguf_close(struct gguf *gguf)
{
    if (gguf != NULL) {
        free(gguf->name);
        free(gguf->head);
        free(gguf->values);
        free(gguf->tensors);
        free(gguf);
    }
}

const char *gguf_name(const struct gguf *gguf)
{
    return gguf->name;
}

uint32_t gguf_tensor_count(const struct gguf *gguf)
{
    return gguf->tensor_count;
}

const struct gguf_tensor *gguf_tensor(const struct gguf *gguf, uint32_t index)
{
    return &gguf->tensors[index];
}

const uint8_t *gguf_head(const struct gguf *gguf, size_t *out_bytes)
{
    *out_bytes = gguf->head_bytes;
    return gguf->head;
}

bool gguf_string_equal(struct gguf_string string, const char *text)
{
    return string.bytes == strlen(text) && memcmp(string.text, text, string.bytes) == 0;
}

const struct gguf_value *gguf_find(const struct gguf *gguf, const char *key)
{
    for (uint32_t i = 0; i < gguf->value_count; i++) {
        if (gguf_string_equal(gguf->values[i].key, key)) {
            return &gguf->values[i];
        }
    }
    return NULL;
}
