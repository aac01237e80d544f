// SPDX-License-Identifier: Apache-2.0
// At stake: a file from the net decides lengths, counts and offsets; one that is not checked is a
// crash or worse. Every malformed head gives one error that names file and fault, with bounded
// reading; every valid one cut at any length is refused; nothing is read past the end (the input
// ends at an unmapped page).
#include "tests/model/draft.h"

#include "proto/os/file_read.h"

#include <sys/resource.h>
#include <sys/wait.h>

static enum status open_bytes(const uint8_t *data, size_t bytes, struct reason *reason)
{
    struct draft_file file = {data, bytes, 0};
    struct gguf_source source = draft_source(&file);
    struct gguf *gguf = NULL;
    enum status status = gguf_open(&source, &gguf, reason);
    assert_true((status == STATUS_OK) == (gguf != NULL));
    gguf_close(gguf);
    return status;
}

static void check_fault(const struct draft_fault *fault)
{
    struct draft draft;
    struct reason reason = {0};
    draft_init(&draft);
    fault->spoil(&draft);
    struct draft_bytes bytes = draft_write(&draft);
    struct check_edge edge = check_edge_create(bytes.bytes);
    memcpy(edge.data, bytes.data, bytes.bytes);
    enum status status = open_bytes(edge.data, bytes.bytes, &reason);
    if (status != fault->status || strstr(reason.text, fault->says) == NULL ||
        strstr(reason.text, "draft.gguf: ") != reason.text || reason.hint[0] == '\0') {
        fail_msg("%s: status %d, \"%s; %s\"", fault->what, status, reason.text, reason.hint);
    }
    check_edge_destroy(&edge);
    free(bytes.data);
    draft_finish(&draft);
}

// ---- ways to spoil a file

static void bad_magic(struct draft *d)
{
    d->magic = 0x46554748;
}
static void version_1(struct draft *d)
{
    d->version = 1;
}
static void version_4(struct draft *d)
{
    d->version = 4;
}
static void big_endian(struct draft *d)
{
    d->version = 0x03000000;
}
static void huge_tensor_count(struct draft *d)
{
    d->tensor_count_written = 1ull << 63;
}
static void huge_value_count(struct draft *d)
{
    d->value_count_written = 1ull << 63;
}
static void one_value_more(struct draft *d)
{
    d->value_count_written = d->value_count + 1;
}
static void one_tensor_more(struct draft *d)
{
    d->tensor_count_written = d->tensor_count + 1;
    d->data_bytes = 0;
}
static void alignment_0(struct draft *d)
{
    draft_u32(d, "general.alignment", 0);
}
static void alignment_24(struct draft *d)
{
    draft_u32(d, "general.alignment", 24);
}
static void alignment_text(struct draft *d)
{
    draft_text(d, "general.alignment", "32");
}
static void alignment_huge(struct draft *d)
{
    draft_u32(d, "general.alignment", 1u << 31);
}
static void unknown_type(struct draft *d)
{
    draft_put_u32(draft_value(d, "x", 13), 0);
}
static void unknown_element(struct draft *d)
{
    draft_array(d, "x", 99, 1);
}
static void array_of_arrays(struct draft *d)
{
    draft_put_u64(draft_array(d, "x", GGUF_TYPE_ARRAY, 1), 0);
}
static void huge_array(struct draft *d)
{
    draft_array(d, "x", GGUF_TYPE_UINT64, 1ull << 63);
}
static void huge_byte_array(struct draft *d)
{
    draft_array(d, "x", GGUF_TYPE_UINT8, UINT64_MAX);
}
static void huge_text_array(struct draft *d)
{
    draft_array(d, "x", GGUF_TYPE_STRING, 1ull << 63);
}
static void huge_text(struct draft *d)
{
    draft_put_u64(draft_value(d, "x", GGUF_TYPE_STRING), 1ull << 63);
}
static void text_to_max(struct draft *d)
{
    draft_put_u64(draft_value(d, "x", GGUF_TYPE_STRING), UINT64_MAX);
}
static void empty_key(struct draft *d)
{
    draft_u32(d, "", 1);
}
static void twin_keys(struct draft *d)
{
    draft_u32(d, "x", 1);
    draft_u32(d, "y", 1);
    d->values[d->value_count - 1].key[0] = 'x';
}
static void twin_tensors(struct draft *d)
{
    strcpy(d->tensors[1].name, d->tensors[0].name);
}
static void long_name(struct draft *d)
{
    memset(d->tensors[1].name, 'n', 65);
    d->tensors[1].name[65] = '\0';
}
static void empty_name(struct draft *d)
{
    d->tensors[1].name[0] = '\0';
}
static void dimensions_0(struct draft *d)
{
    d->tensors[0].dimension_count = 0;
}
static void dimensions_5(struct draft *d)
{
    d->tensors[0].dimension_count = 5;
    d->tensors[0].dimensions[2] = d->tensors[0].dimensions[3] = d->tensors[0].dimensions[4] = 1;
}
static void dimensions_max(struct draft *d)
{
    d->tensors[0].dimension_count = UINT32_MAX;
}
static void dimension_0(struct draft *d)
{
    d->tensors[0].dimensions[1] = 0;
}
static void rows_overflow(struct draft *d)
{
    d->tensors[0].dimensions[1] = 1ull << 62;
}
static void columns_overflow(struct draft *d)
{
    d->tensors[0].dimensions[0] = 1ull << 63;
    d->tensors[0].dimensions[1] = 1;
}
static void product_overflow(struct draft *d)
{
    d->tensors[0].dimension_count = 4;
    for (int i = 0; i < 4; i++) {
        d->tensors[0].dimensions[i] = 1ull << 20;
    }
}
static void odd_row(struct draft *d)
{
    d->tensors[2].dimensions[0] = 33;
}
static void unaligned(struct draft *d)
{
    d->tensors[1].offset += 4;
}
static void overlapping(struct draft *d)
{
    d->tensors[2].offset = d->tensors[1].offset;
}
static void past_end(struct draft *d)
{
    d->tensors[1].offset = d->data_bytes;
}
static void offset_max(struct draft *d)
{
    d->tensors[1].offset = UINT64_MAX - 31;
}
static void short_data(struct draft *d)
{
    d->data_bytes -= 64;
}

static const struct draft_fault FAULTS[] = {
    {"magic", bad_magic, STATUS_INVALID, "is not a GGUF file"},
    {"version 1", version_1, STATUS_UNSUPPORTED, "version 1"},
    {"version 4", version_4, STATUS_UNSUPPORTED, "version 4"},
    {"big endian", big_endian, STATUS_UNSUPPORTED, "big-endian"},
    {"2^63 tensors", huge_tensor_count, STATUS_INVALID, "9223372036854775808 tensors"},
    {"2^63 values", huge_value_count, STATUS_INVALID, "9223372036854775808 metadata values"},
    {"a value too few", one_value_more, STATUS_INVALID, ""},
    {"a tensor too few", one_tensor_more, STATUS_INVALID, ""},
    {"alignment 0", alignment_0, STATUS_INVALID, "general.alignment is 0"},
    {"alignment 24", alignment_24, STATUS_INVALID, "not a power of two"},
    {"alignment text", alignment_text, STATUS_INVALID, "general.alignment is text"},
    {"alignment 2^31", alignment_huge, STATUS_INVALID, "general.alignment is 2147483648"},
    {"value type", unknown_type, STATUS_INVALID, "unknown type 13"},
    {"element type", unknown_element, STATUS_INVALID, "unknown type 99"},
    {"array of arrays", array_of_arrays, STATUS_INVALID, "array of arrays"},
    {"2^63 numbers", huge_array, STATUS_INVALID, "the file ends"},
    {"2^64-1 bytes", huge_byte_array, STATUS_INVALID, "the file ends"},
    {"2^63 texts", huge_text_array, STATUS_INVALID, "the file ends"},
    {"text of 2^63", huge_text, STATUS_INVALID, "the file ends"},
    {"text of 2^64-1", text_to_max, STATUS_INVALID, "the file ends"},
    {"empty key", empty_key, STATUS_INVALID, "0 bytes long"},
    {"twin keys", twin_keys, STATUS_INVALID, "two metadata values named x"},
    {"twin tensors", twin_tensors, STATUS_INVALID, "two tensors named token_embd.weight"},
    {"long name", long_name, STATUS_INVALID, "65 bytes long"},
    {"empty name", empty_name, STATUS_INVALID, "0 bytes long"},
    {"0 dimensions", dimensions_0, STATUS_INVALID, "has 0 dimensions"},
    {"5 dimensions", dimensions_5, STATUS_INVALID, "has 5 dimensions"},
    {"2^32-1 dimensions", dimensions_max, STATUS_INVALID, "has 4294967295 dimensions"},
    {"dimension of 0", dimension_0, STATUS_INVALID, "a dimension of 0"},
    {"rows overflow", rows_overflow, STATUS_INVALID, "overflows"},
    {"columns overflow", columns_overflow, STATUS_INVALID, "overflows"},
    {"product overflows", product_overflow, STATUS_INVALID, "overflows"},
    {"row not whole blocks", odd_row, STATUS_INVALID, "not a multiple"},
    {"unaligned", unaligned, STATUS_INVALID, "not aligned"},
    {"overlapping", overlapping, STATUS_INVALID, "overlap"},
    {"past the end", past_end, STATUS_INVALID, "past the file's end"},
    {"offset near 2^64", offset_max, STATUS_INVALID, "past the file's end"},
    {"data too short", short_data, STATUS_INVALID, "past the file's end"},
};

static void test_faults(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(FAULTS) / sizeof(FAULTS[0]); i++) {
        check_fault(&FAULTS[i]);
    }
}

static void test_cut_at_every_length(void **state)
{
    (void)state;
    struct draft draft;
    draft_init(&draft);
    struct draft_bytes bytes = draft_write(&draft);
    size_t head = bytes.bytes - draft.data_bytes;
    for (size_t length = 0; length < bytes.bytes; length += length < head + 64 ? 1 : 997) {
        struct check_edge edge = check_edge_create(length);
        memcpy(edge.data, bytes.data, length);
        struct reason reason = {0};
        assert_int_equal(open_bytes(edge.data, length, &reason), STATUS_INVALID);
        assert_true(reason.text[0] != '\0');
        check_edge_destroy(&edge);
    }
    assert_int_equal(open_bytes(bytes.data, bytes.bytes, NULL), STATUS_OK);
    free(bytes.data);
    draft_finish(&draft);
}

static void test_every_byte_changed(void **state)
{
    (void)state;
    uint64_t random = check_seed();
    struct draft draft;
    draft_init(&draft);
    struct draft_bytes bytes = draft_write(&draft);
    size_t head = bytes.bytes - draft.data_bytes;
    for (size_t i = 0; i < head; i++) {
        uint8_t kept = bytes.data[i];
        bytes.data[i] ^= (uint8_t)(1 + check_random(&random) % 255);
        struct reason reason = {0};
        enum status status = open_bytes(bytes.data, bytes.bytes, &reason);
        assert_true(status == STATUS_OK || reason.text[0] != '\0');
        bytes.data[i] = kept;
    }
    free(bytes.data);
    draft_finish(&draft);
}

static void test_what_was_written_is_read(void **state)
{
    (void)state;
    struct draft draft;
    draft_init(&draft);
    draft_put_u64(draft_value(&draft, "n64", GGUF_TYPE_UINT64), 77);
    draft_put(draft_value(&draft, "minus", GGUF_TYPE_INT8), "\xff", 1);
    draft_f32(&draft, "infinite", __builtin_inff());
    draft_bool(&draft, "bool2", 2);
    struct draft_bytes bytes = draft_write(&draft);
    struct draft_file file = {bytes.data, bytes.bytes, 0};
    struct gguf_source source = draft_source(&file);
    struct gguf *gguf = NULL;
    struct reason reason = {0};
    CHECK_OK(gguf_open(&source, &gguf, NULL));
    assert_int_equal(gguf_tensor_count(gguf), draft.tensor_count);
    for (uint32_t i = 0; i < draft.tensor_count; i++) {
        const struct gguf_tensor *tensor = gguf_tensor(gguf, i);
        assert_true(gguf_string_equal(tensor->name, draft.tensors[i].name));
        assert_int_equal(tensor->bytes, draft.tensors[i].bytes);
        assert_int_equal(tensor->offset, bytes.bytes - draft.data_bytes + draft.tensors[i].offset);
    }
    uint64_t number = 0;
    double real = 0;
    bool flag = false;
    struct gguf_string text;
    const struct gguf_value *array = NULL;
    CHECK_OK(gguf_read_number(gguf, &(struct gguf_number){"n64", 0, 77, 0, true}, &number, NULL));
    assert_int_equal(number, 77);
    CHECK_OK(gguf_read_number(gguf, &(struct gguf_number){"none", 0, 1, 5, false}, &number, NULL));
    assert_int_equal(number, 5);
    const struct gguf_number wrong[] = {{"n64", 0, 76, 0, true},
                                        {"n64", 78, 99, 0, true},
                                        {"none", 0, 1, 0, true},
                                        {"minus", 0, 255, 0, true},
                                        {"general.name", 0, 1, 0, true}};
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(gguf_read_number(gguf, &wrong[i], &number, &reason), STATUS_INVALID);
        assert_non_null(strstr(reason.text, wrong[i].key));
    }
    CHECK_OK(gguf_read_float(gguf, "llama.rope.freq_base", 1, &real, NULL));
    assert_true(real == (double)1e14f);
    assert_int_equal(gguf_read_float(gguf, "infinite", 1, &real, &reason), STATUS_INVALID);
    assert_int_equal(gguf_read_float(gguf, "n64", 1, &real, &reason), STATUS_INVALID);
    assert_int_equal(gguf_read_bool(gguf, "bool2", false, &flag, &reason), STATUS_INVALID);
    assert_int_equal(gguf_read_text(gguf, "n64", &text, &reason), STATUS_INVALID);
    CHECK_OK(gguf_read_text(gguf, "general.name", &text, NULL));
    assert_true(gguf_string_equal(text, "draft"));
    assert_int_equal(
        gguf_read_array(gguf, "tokenizer.ggml.tokens", GGUF_TYPE_FLOAT32, &array, &reason),
        STATUS_INVALID);
    CHECK_OK(gguf_read_array(gguf, "tokenizer.ggml.tokens", GGUF_TYPE_STRING, &array, NULL));
    size_t cursor = 0;
    assert_true(gguf_string_equal(gguf_string_next(array, &cursor), "<unk>"));
    assert_true(gguf_string_equal(gguf_string_next(array, &cursor), "<s>"));
    gguf_close(gguf);
    free(bytes.data);
    draft_finish(&draft);
}

static void test_labels_are_printable(void **state)
{
    (void)state;
    char raw[200];
    for (size_t i = 0; i < sizeof(raw); i++) {
        raw[i] = (char)i;
    }
    struct gguf_label label = gguf_label((struct gguf_string){raw, sizeof(raw)});
    assert_int_equal(strlen(label.text), 60);
    for (size_t i = 0; i < 60; i++) {
        assert_true(label.text[i] >= ' ' && label.text[i] <= '~');
    }
}

// A terabyte that is a valid start and then zeros: without bounds it would be read whole.
static enum status read_endless(void *context, uint64_t offset, void *out, size_t bytes)
{
    struct draft_file *file = context;
    memset(out, 0, bytes);
    if (offset < file->bytes) {
        size_t left = file->bytes - offset;
        memcpy(out, file->data + offset, left < bytes ? left : bytes);
    }
    file->read_bytes += bytes;
    return STATUS_OK;
}

static void open_endless(uint32_t element_type, uint64_t count)
{
    struct draft draft;
    draft_init(&draft);
    draft.tensor_count = 0;
    draft_array(&draft, "endless", element_type, count);
    draft.data_bytes = 0;
    struct draft_bytes bytes = draft_write(&draft);
    struct draft_file file = {bytes.data, bytes.bytes, 0};
    struct gguf_source source = {"endless.gguf", 1ull << 40, &file, read_endless};
    struct gguf *gguf = NULL;
    struct reason reason = {0};
    assert_int_equal(gguf_open(&source, &gguf, &reason), STATUS_INVALID);
    assert_non_null(strstr(reason.text, "longer than 32 MiB"));
    assert_true(file.read_bytes <= GGUF_HEAD_BYTES_MAX);
    free(bytes.data);
    draft_finish(&draft);
}

static void test_endless_head_is_bounded(void **state)
{
    (void)state;
    open_endless(GGUF_TYPE_STRING, 1ull << 37);
    open_endless(GGUF_TYPE_UINT64, 1ull << 34);
    open_endless(GGUF_TYPE_UINT8, 1ull << 39);
}

static long peak_kib(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

// In a child, whose peak is its own.
static void test_memory_is_bounded(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); // their shadow memory counts too
#endif
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        long before = peak_kib();
        open_endless(GGUF_TYPE_STRING, 1ull << 37);
        open_endless(GGUF_TYPE_UINT8, 1ull << 39);
        _exit(peak_kib() - before < 64 << 10 ? 0 : 1);
    }
    int result = 0;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result) && WEXITSTATUS(result) == 0);
}

static enum status read_nothing(void *context, uint64_t offset, void *out, size_t bytes)
{
    (void)context;
    (void)offset;
    (void)out;
    (void)bytes;
    return STATUS_IO;
}

static void test_reading_fails(void **state)
{
    (void)state;
    struct gguf_source source = {"broken.gguf", 1 << 20, NULL, read_nothing};
    struct gguf *gguf = NULL;
    struct reason reason = {0};
    assert_int_equal(gguf_open(&source, &gguf, &reason), STATUS_IO);
    assert_non_null(strstr(reason.text, "broken.gguf"));
}

static void test_paths(void **state)
{
    (void)state;
    struct gguf *gguf = NULL;
    struct reason reason = {0};
    char folder[256];
    char path[300];
    check_folder_create(folder);
    snprintf(path, sizeof(path), "%s/none.gguf", folder);
    assert_int_equal(gguf_open_path(path, &gguf, &reason), STATUS_NOT_FOUND);
    assert_non_null(strstr(reason.text, path));
    assert_int_equal(gguf_open_path(folder, &gguf, &reason), STATUS_INVALID);
    struct draft draft;
    draft_init(&draft);
    struct draft_bytes bytes = draft_write(&draft);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes.data, 1, bytes.bytes, file), bytes.bytes);
    fclose(file);
    CHECK_OK(gguf_open_path(path, &gguf, &reason));
    assert_string_equal(gguf_name(gguf), path);
    gguf_close(gguf);
    free(bytes.data);
    draft_finish(&draft);
    check_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_cut_at_every_length),
        cmocka_unit_test(test_every_byte_changed),
        cmocka_unit_test(test_what_was_written_is_read),
        cmocka_unit_test(test_labels_are_printable),
        cmocka_unit_test(test_endless_head_is_bounded),
        cmocka_unit_test(test_memory_is_bounded),
        cmocka_unit_test(test_reading_fails),
        cmocka_unit_test(test_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
