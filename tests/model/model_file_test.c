// SPDX-License-Identifier: Apache-2.0
// At stake: weights under a wrong role or shape, a tensor that is silently ignored, a file that
// changes while it is loaded. Every such file is refused with the tensor's name; a load delivers
// every row of every tensor once, in file order, and hashes every byte of the file.
#include "tests/model/draft.h"

#include "gpud/model/model_file.h"
#include "proto/hash.h"

#include <math.h>

// ---- refused files

static void no_weights(struct draft *d)
{
    d->tensor_count = 0;
}
static void no_embedding(struct draft *d)
{
    draft_drop(d, "token_embd.weight");
}
static void no_output_norm(struct draft *d)
{
    draft_drop(d, "output_norm.weight");
}
static void no_query(struct draft *d)
{
    draft_drop(d, "blk.1.attn_q.weight");
}
static void bias(struct draft *d)
{
    draft_tensor(d, "blk.0.attn_q.bias", TENSOR_TYPE_F32, 64, 0);
}
static void third_layer(struct draft *d)
{
    draft_tensor(d, "blk.2.attn_norm.weight", TENSOR_TYPE_F32, 64, 0);
}
static void zero_layer(struct draft *d)
{
    draft_tensor(d, "blk.00.attn_norm.weight", TENSOR_TYPE_F32, 64, 0);
}
static void huge_layer(struct draft *d)
{
    draft_tensor(d, "blk.4294967296.attn_norm.weight", TENSOR_TYPE_F32, 64, 0);
}
static void stray(struct draft *d)
{
    draft_tensor(d, "rope_table", TENSOR_TYPE_F32, 64, 0);
}
static void narrow_query(struct draft *d)
{
    draft_find(d, "blk.0.attn_q.weight")->dimensions[1]--;
}
static void turned_down(struct draft *d)
{
    struct draft_tensor *tensor = draft_find(d, "blk.0.ffn_down.weight");
    tensor->dimensions[0] = 64;
    tensor->dimensions[1] = 96;
}
static void flat_matrix(struct draft *d)
{
    struct draft_tensor *tensor = draft_find(d, "blk.0.ffn_down.weight");
    tensor->dimension_count = 1;
    tensor->dimensions[0] = 96 * 64;
}
static void deep_matrix(struct draft *d)
{
    struct draft_tensor *tensor = draft_find(d, "blk.0.ffn_down.weight");
    tensor->dimension_count = 3;
    tensor->dimensions[2] = 2;
}
static void half_norm(struct draft *d)
{
    draft_find(d, "blk.0.attn_norm.weight")->type = TENSOR_TYPE_F16;
}
static void k_quant(struct draft *d)
{
    draft_find(d, "blk.0.attn_q.weight")->type = 12;
}
static void unknown_type(struct draft *d)
{
    draft_find(d, "blk.0.attn_q.weight")->type = 999;
}
static void other_vocabulary(struct draft *d)
{
    draft_find(d, "token_embd.weight")->dimensions[1]--;
}
static void other_size(struct draft *d)
{
    draft_u32(d, "llama.vocab_size", DRAFT_TOKENS + 1);
}
static void short_factors(struct draft *d)
{
    draft_tensor(d, "rope_freqs.weight", TENSOR_TYPE_F32, 7, 0);
}

static const struct draft_fault FAULTS[] = {
    {"vocabulary only", no_weights, STATUS_INVALID, "no weights"},
    {"no token_embd", no_embedding, STATUS_INVALID, "token_embd.weight is missing"},
    {"no output_norm", no_output_norm, STATUS_INVALID, "output_norm.weight is missing"},
    {"no attn_q", no_query, STATUS_INVALID, "blk.1.attn_q.weight is missing"},
    {"a bias", bias, STATUS_UNSUPPORTED, "blk.0.attn_q.bias has no place"},
    {"layer 2 of 2", third_layer, STATUS_UNSUPPORTED, "blk.2.attn_norm.weight has no place"},
    {"layer 00", zero_layer, STATUS_UNSUPPORTED, "blk.00.attn_norm.weight has no place"},
    {"layer 2^32", huge_layer, STATUS_UNSUPPORTED, "blk.4294967296.attn_norm.weight has no place"},
    {"stray tensor", stray, STATUS_UNSUPPORTED, "rope_table has no place"},
    {"rows", narrow_query, STATUS_INVALID, "blk.0.attn_q.weight has the shape 64 x 63"},
    {"turned", turned_down, STATUS_INVALID, "blk.0.ffn_down.weight has the shape 64 x 96"},
    {"flat", flat_matrix, STATUS_INVALID, "(1 dimensions)"},
    {"deep", deep_matrix, STATUS_INVALID, "(3 dimensions)"},
    {"F16 norm", half_norm, STATUS_UNSUPPORTED, "type F16 (1); supported are F32"},
    {"Q4_K", k_quant, STATUS_UNSUPPORTED, "type Q4_K (12); supported are F32, F16"},
    {"type 999", unknown_type, STATUS_UNSUPPORTED, "type unknown (999)"},
    {"fewer rows than tokens", other_vocabulary, STATUS_INVALID, "265 rows, the vocabulary 266"},
    {"vocab_size", other_size, STATUS_INVALID, "llama.vocab_size is 267"},
    {"rope factors", short_factors, STATUS_INVALID, "rope_freqs.weight has the shape 7"},
};

static void test_faults(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(FAULTS) / sizeof(FAULTS[0]); i++) {
        struct draft draft;
        draft_init(&draft);
        FAULTS[i].spoil(&draft);
        draft_layout(&draft);
        struct draft_bytes bytes = draft_write(&draft);
        struct draft_file file = {bytes.data, bytes.bytes, 0};
        struct gguf_source source = draft_source(&file);
        struct model_file *model = NULL;
        struct reason reason = {0};
        enum status status = model_file_open_source(&source, &model, &reason);
        if (status != FAULTS[i].status || strstr(reason.text, FAULTS[i].says) == NULL ||
            model != NULL || reason.hint[0] == '\0') {
            fail_msg("%s: status %d, \"%s; %s\"", FAULTS[i].what, status, reason.text, reason.hint);
        }
        free(bytes.data);
        draft_finish(&draft);
    }
}

// ---- a load

// Checks what a load delivers against the bytes of the file.
struct watcher {
    const struct model_file *model;
    const uint8_t *file;
    uint32_t rows[DRAFT_TENSORS_MAX]; // delivered so far
    uint64_t last_offset;
    uint64_t progress;
    uint32_t fail_after; // rows calls until the sink fails; 0 = never
    uint64_t *shrink;    // the file's size, to cut while loading
};

static enum status take_rows(void *context, uint32_t index, uint32_t first, uint32_t count,
                             const void *bytes)
{
    struct watcher *watcher = context;
    const struct model_tensor *tensor = model_file_tensor(watcher->model, index);
    uint64_t offset = tensor->offset + (uint64_t)first * tensor->row_bytes;
    assert_int_equal(first, watcher->rows[index]);
    assert_true(count > 0 && first + count <= tensor->rows);
    assert_true(offset >= watcher->last_offset);
    assert_memory_equal(bytes, watcher->file + offset, (size_t)count * tensor->row_bytes);
    watcher->rows[index] += count;
    watcher->last_offset = offset;
    if (watcher->shrink != NULL) {
        *watcher->shrink = offset;
    }
    return watcher->fail_after > 0 && --watcher->fail_after == 0 ? STATUS_NO_MEMORY : STATUS_OK;
}

static void take_progress(void *context, uint64_t done, uint64_t total)
{
    struct watcher *watcher = context;
    assert_true(done > watcher->progress && done <= total);
    watcher->progress = done;
}

struct loaded {
    struct draft draft;
    struct draft_bytes bytes;
    struct draft_file file;
    struct gguf_source source;
    struct model_file *model;
    struct watcher watcher;
    struct model_sink sink;
    struct reason reason;
};

static void loaded_open(struct loaded *loaded, void (*spoil)(struct draft *draft))
{
    memset(loaded, 0, sizeof(*loaded));
    draft_init(&loaded->draft);
    if (spoil != NULL) {
        spoil(&loaded->draft);
        draft_layout(&loaded->draft);
    }
    loaded->bytes = draft_write(&loaded->draft);
    loaded->file = (struct draft_file){loaded->bytes.data, loaded->bytes.bytes, 0};
    loaded->source = draft_source(&loaded->file);
    CHECK_OK(model_file_open_source(&loaded->source, &loaded->model, &loaded->reason));
    loaded->watcher.model = loaded->model;
    loaded->watcher.file = loaded->bytes.data;
    loaded->sink = (struct model_sink){&loaded->watcher, take_rows, take_progress};
}

static void loaded_close(struct loaded *loaded)
{
    model_file_close(loaded->model);
    free(loaded->bytes.data);
    draft_finish(&loaded->draft);
}

static void test_load_delivers_every_row(void **state)
{
    (void)state;
    struct loaded loaded;
    uint8_t digest[HASH_BYTES];
    uint8_t expected[HASH_BYTES];
    struct hash hash;
    loaded_open(&loaded, NULL);
    CHECK_OK(model_file_load(loaded.model, &loaded.sink, digest, &loaded.reason));
    for (uint32_t i = 0; i < model_file_tensor_count(loaded.model); i++) {
        assert_int_equal(loaded.watcher.rows[i], model_file_tensor(loaded.model, i)->rows);
    }
    assert_int_equal(loaded.watcher.progress, loaded.bytes.bytes);
    hash_init(&hash);
    hash_update(&hash, loaded.bytes.data, loaded.bytes.bytes);
    hash_final(&hash, expected);
    assert_memory_equal(digest, expected, sizeof(digest));
    loaded_close(&loaded);
}

// More rows than one chunk holds.
static void large_output(struct draft *d)
{
    draft_u32(d, "llama.feed_forward_length", 40000);
    for (int layer = 0; layer < DRAFT_LAYERS; layer++) {
        char name[64];
        snprintf(name, sizeof(name), "blk.%d.ffn_gate.weight", layer);
        draft_find(d, name)->dimensions[1] = 40000;
        draft_find(d, name)->type = TENSOR_TYPE_F32;
        snprintf(name, sizeof(name), "blk.%d.ffn_up.weight", layer);
        draft_find(d, name)->dimensions[1] = 40000;
        snprintf(name, sizeof(name), "blk.%d.ffn_down.weight", layer);
        draft_find(d, name)->dimensions[0] = 40000;
    }
}

static void test_load_in_chunks(void **state)
{
    (void)state;
    struct loaded loaded;
    uint8_t digest[HASH_BYTES];
    loaded_open(&loaded, large_output);
    CHECK_OK(model_file_load(loaded.model, &loaded.sink, digest, &loaded.reason));
    for (uint32_t i = 0; i < model_file_tensor_count(loaded.model); i++) {
        assert_int_equal(loaded.watcher.rows[i], model_file_tensor(loaded.model, i)->rows);
    }
    loaded_close(&loaded);
}

static void test_roles(void **state)
{
    (void)state;
    struct loaded loaded;
    loaded_open(&loaded, NULL);
    const struct model_layer *layer = model_file_layer(loaded.model, 1);
    const struct model_roots *roots = model_file_roots(loaded.model);
    const struct {
        uint32_t index;
        const char *name;
    } expected[] = {{layer->attn_norm, "blk.1.attn_norm.weight"},
                    {layer->attn_q, "blk.1.attn_q.weight"},
                    {layer->attn_k, "blk.1.attn_k.weight"},
                    {layer->attn_v, "blk.1.attn_v.weight"},
                    {layer->attn_output, "blk.1.attn_output.weight"},
                    {layer->ffn_norm, "blk.1.ffn_norm.weight"},
                    {layer->ffn_gate, "blk.1.ffn_gate.weight"},
                    {layer->ffn_up, "blk.1.ffn_up.weight"},
                    {layer->ffn_down, "blk.1.ffn_down.weight"},
                    {roots->token_embd, "token_embd.weight"},
                    {roots->output_norm, "output_norm.weight"},
                    {roots->output, "output.weight"}};
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        assert_string_equal(model_file_tensor(loaded.model, expected[i].index)->name,
                            expected[i].name);
    }
    const struct model_tensor *down = model_file_tensor(loaded.model, layer->ffn_down);
    assert_int_equal(down->columns, DRAFT_FEED_FORWARD);
    assert_int_equal(down->rows, DRAFT_EMBEDDING);
    assert_int_equal(down->row_bytes, DRAFT_FEED_FORWARD / 32 * 34);
    assert_int_equal(layer->group, 0);
    assert_int_equal(layer->group_layer, 1);
    assert_int_equal(model_file_config(loaded.model)->vocab_count, DRAFT_TOKENS);
    assert_false(model_file_config(loaded.model)->tied_output);
    loaded_close(&loaded);
}

static void tie(struct draft *d)
{
    draft_drop(d, "output.weight");
}

static void test_tied_output(void **state)
{
    (void)state;
    struct loaded loaded;
    loaded_open(&loaded, tie);
    assert_true(model_file_config(loaded.model)->tied_output);
    assert_int_equal(model_file_roots(loaded.model)->output,
                     model_file_roots(loaded.model)->token_embd);
    loaded_close(&loaded);
}

static void add_factors(struct draft *d)
{
    draft_tensor(d, "rope_freqs.weight", TENSOR_TYPE_F32, 8, 0);
}

// The factors stand in the file's last bytes; the config gets them, the sink does not.
static void test_rope_factors(void **state)
{
    (void)state;
    struct loaded loaded;
    struct model_file *model = NULL;
    uint8_t digest[HASH_BYTES];
    double frequencies[8];
    memset(&loaded, 0, sizeof(loaded));
    draft_init(&loaded.draft);
    add_factors(&loaded.draft);
    draft_layout(&loaded.draft);
    loaded.bytes = draft_write(&loaded.draft);
    float *factors = (float *)(void *)(loaded.bytes.data + loaded.bytes.bytes - 8 * sizeof(float));
    for (int i = 0; i < 8; i++) {
        factors[i] = 1 + i;
    }
    loaded.file = (struct draft_file){loaded.bytes.data, loaded.bytes.bytes, 0};
    loaded.source = draft_source(&loaded.file);
    CHECK_OK(model_file_open_source(&loaded.source, &model, NULL));
    assert_true(model_file_config(model)->rope.has_factors);
    model_rope_frequencies(&model_file_config(model)->rope, frequencies);
    for (int i = 0; i < 8; i++) {
        double expected = pow((double)1e14f, -2.0 * i / 16) / (1 + i);
        assert_true(fabs(frequencies[i] - expected) <= 1e-15 * expected);
    }
    loaded.watcher = (struct watcher){.model = model, .file = loaded.bytes.data};
    loaded.sink = (struct model_sink){&loaded.watcher, take_rows, NULL};
    CHECK_OK(model_file_load(model, &loaded.sink, digest, NULL));
    assert_int_equal(loaded.watcher.rows[model_file_tensor_count(model) - 1], 0);
    model_file_close(model);
    model = NULL;
    factors[3] = -1;
    assert_int_equal(model_file_open_source(&loaded.source, &model, &loaded.reason),
                     STATUS_INVALID);
    assert_non_null(strstr(loaded.reason.text, "rope_freqs.weight"));
    free(loaded.bytes.data);
    draft_finish(&loaded.draft);
}

static void test_file_shrinks(void **state)
{
    (void)state;
    struct loaded loaded;
    uint8_t digest[HASH_BYTES] = {7};
    loaded_open(&loaded, NULL);
    loaded.watcher.shrink = &loaded.file.bytes;
    assert_int_equal(model_file_load(loaded.model, &loaded.sink, digest, &loaded.reason),
                     STATUS_DAMAGED);
    assert_non_null(strstr(loaded.reason.text, "draft.gguf: became shorter"));
    assert_int_equal(digest[0], 7);
    loaded_close(&loaded);
}

static void test_head_changes(void **state)
{
    (void)state;
    struct loaded loaded;
    uint8_t digest[HASH_BYTES];
    loaded_open(&loaded, NULL);
    loaded.bytes.data[100] ^= 1;
    assert_int_equal(model_file_load(loaded.model, &loaded.sink, digest, &loaded.reason),
                     STATUS_DAMAGED);
    assert_non_null(strstr(loaded.reason.text, "draft.gguf: changed"));
    loaded_close(&loaded);
}

static void test_sink_fails(void **state)
{
    (void)state;
    struct loaded loaded;
    uint8_t digest[HASH_BYTES];
    loaded_open(&loaded, NULL);
    loaded.watcher.fail_after = 3;
    assert_int_equal(model_file_load(loaded.model, &loaded.sink, digest, &loaded.reason),
                     STATUS_NO_MEMORY);
    assert_int_equal(loaded.watcher.fail_after, 0);
    loaded_close(&loaded);
}

static void write_path(const char *path, const struct draft_bytes *bytes, size_t count)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes->data, 1, count, file), count);
    fclose(file);
}

static void test_path(void **state)
{
    (void)state;
    struct loaded loaded;
    uint8_t from_memory[HASH_BYTES];
    uint8_t from_file[HASH_BYTES];
    char folder[256];
    char path[300];
    struct model_file *model = NULL;
    loaded_open(&loaded, NULL);
    CHECK_OK(model_file_load(loaded.model, &loaded.sink, from_memory, NULL));
    check_folder_create(folder);
    snprintf(path, sizeof(path), "%s/model.gguf", folder);
    assert_int_equal(model_file_open(path, &model, &loaded.reason), STATUS_NOT_FOUND);
    write_path(path, &loaded.bytes, loaded.bytes.bytes);
    CHECK_OK(model_file_open(path, &model, NULL));
    loaded.watcher = (struct watcher){.model = model, .file = loaded.bytes.data};
    CHECK_OK(model_file_load(model, &loaded.sink, from_file, NULL));
    assert_memory_equal(from_file, from_memory, HASH_BYTES);
    write_path(path, &loaded.bytes, loaded.bytes.bytes - 40); // cut while open
    loaded.watcher = (struct watcher){.model = model, .file = loaded.bytes.data};
    assert_int_equal(model_file_load(model, &loaded.sink, from_file, &loaded.reason),
                     STATUS_DAMAGED);
    assert_non_null(strstr(loaded.reason.text, path));
    model_file_close(model);
    check_folder_remove(folder);
    loaded_close(&loaded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults),         cmocka_unit_test(test_load_delivers_every_row),
        cmocka_unit_test(test_load_in_chunks), cmocka_unit_test(test_roles),
        cmocka_unit_test(test_tied_output),    cmocka_unit_test(test_rope_factors),
        cmocka_unit_test(test_file_shrinks),   cmocka_unit_test(test_head_changes),
        cmocka_unit_test(test_sink_fails),     cmocka_unit_test(test_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
