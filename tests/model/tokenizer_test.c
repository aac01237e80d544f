// SPDX-License-Identifier: Apache-2.0
// At stake: other ids than the model was trained on give another model's answers; user text that
// becomes a special token takes over a conversation; a quadratic merge freezes the daemon. Ids are
// compared with the vectors of llama.cpp for three vocabularies; text goes through encode and
// decode unchanged; work grows with the text, not its square.
#include "tests/model/draft_bpe.h"

#include <time.h>

#define SEPARATOR "\n__ggml_vocab_test__\n"
#define CASES 47

// ---- vectors

static char *read_whole(const char *path, size_t *out_bytes)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return NULL;
    }
    struct draft_bytes bytes = {0};
    char chunk[4096];
    for (size_t count; (count = fread(chunk, 1, sizeof(chunk), file)) > 0;) {
        draft_put(&bytes, chunk, count);
    }
    draft_put(&bytes, "", 1);
    fclose(file);
    *out_bytes = bytes.bytes - 1;
    return (char *)bytes.data;
}

static struct tokenizer *open_tokenizer(const char *path)
{
    struct gguf *gguf = NULL;
    struct tokenizer *tokenizer = NULL;
    struct reason reason = {0};
    if (gguf_open_path(path, &gguf, &reason) != STATUS_OK ||
        tokenizer_create(gguf, &tokenizer, &reason) != STATUS_OK) {
        fail_msg("%s", reason.text);
    }
    gguf_close(gguf);
    return tokenizer;
}

static struct token_list encode(const struct tokenizer *tokenizer, struct tokenizer_input input)
{
    struct token_list list = {0};
    CHECK_OK(tokenizer_encode(tokenizer, &input, &list));
    return list;
}

// Text and back again is the same text.
static void check_round_trip(const struct tokenizer *tokenizer, const char *text, size_t bytes)
{
    struct token_list list = encode(tokenizer, (struct tokenizer_input){text, bytes, 0, 0, 0});
    struct token_text back;
    CHECK_OK(tokenizer_decode(tokenizer, list.tokens, list.count, false, &back));
    assert_int_equal(back.bytes, bytes);
    assert_memory_equal(back.text, text, bytes);
    free(back.text);
    token_list_finish(&list);
}

// The ids of one case against its line of `*expected`, which moves on.
static void check_case(const struct tokenizer *tokenizer, const char *text, size_t bytes,
                       const char **expected, int number)
{
    struct token_list list = encode(tokenizer, (struct tokenizer_input){text, bytes, 0, 0, 0});
    size_t count = 0;
    const char *cursor = *expected;
    for (; *cursor != '\n' && *cursor != '\0'; count++) {
        char *end = NULL;
        unsigned long id = strtoul(cursor, &end, 10);
        assert_true(end != cursor);
        if (count >= list.count || list.tokens[count] != id) {
            fail_msg("case %d: id %zu differs", number, count);
        }
        cursor = end + strspn(end, " ");
    }
    assert_int_equal(count, list.count);
    *expected = cursor + (*cursor == '\n');
    token_list_finish(&list);
}

static void check_vectors(const char *model, const char *texts_path, const char *ids_path)
{
    size_t bytes = 0;
    char *texts = read_whole(texts_path, &bytes);
    char *ids = read_whole(ids_path, &bytes);
    if (texts == NULL || ids == NULL || access(model, R_OK) != 0) {
        print_message("%s or its vectors are not here: skipped\n", model);
        free(texts);
        free(ids);
        skip();
        return;
    }
    struct tokenizer *tokenizer = open_tokenizer(model);
    const char *expected = ids;
    int count = 0;
    for (char *text = texts; text != NULL; count++) {
        char *end = strstr(text, SEPARATOR);
        size_t length = end == NULL ? strlen(text) : (size_t)(end - text);
        check_case(tokenizer, text, length, &expected, count);
        check_round_trip(tokenizer, text, length);
        text = end == NULL ? NULL : end + strlen(SEPARATOR);
    }
    assert_int_equal(count, CASES);
    tokenizer_destroy(tokenizer);
    free(texts);
    free(ids);
}

#define TOKENIZERS KVTIER_SHARED_DIR "/data/tokenizers/"

static void check_shared(const char *name)
{
    char model[512];
    char texts[520];
    char ids[520];
    snprintf(model, sizeof(model), "%sggml-vocab-%s.gguf", TOKENIZERS, name);
    snprintf(texts, sizeof(texts), "%s.inp", model);
    snprintf(ids, sizeof(ids), "%s.out", model);
    check_vectors(model, texts, ids);
}

static void test_gpt2(void **state)
{
    (void)state;
    check_shared("gpt-2");
}

static void test_llama_spm(void **state)
{
    (void)state;
    check_shared("llama-spm");
}

static void test_starcoder(void **state) // the pre-tokenizer of smollm
{
    (void)state;
    check_shared("starcoder");
}

static void test_smollm2(void **state)
{
    (void)state;
    check_vectors(KVTIER_SMOLLM2, TOKENIZERS "ggml-vocab-gpt-2.gguf.inp",
                  KVTIER_TEST_DATA_DIR "/tokenizer_smollm2.out");
}

// ---- byte-level BPE

static struct tokenizer *create_bpe(void)
{
    struct draft draft;
    enum status status;
    struct reason reason = {0};
    draft_init(&draft);
    draft_bpe(&draft);
    struct tokenizer *tokenizer = draft_tokenizer(&draft, &status, &reason);
    if (status != STATUS_OK) {
        fail_msg("%s", reason.text);
    }
    return tokenizer;
}

static void check_ids(const struct tokenizer *tokenizer, struct tokenizer_input input,
                      const uint32_t *expected, size_t count)
{
    struct token_list list = encode(tokenizer, input);
    assert_int_equal(list.count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(list.tokens[i], expected[i]);
    }
    token_list_finish(&list);
}

#define TEXT(literal) .text = (literal), .bytes = sizeof(literal) - 1
#define CHECK_IDS(tokenizer, input, ...)                                                           \
    do {                                                                                           \
        const uint32_t ids[] = {__VA_ARGS__};                                                      \
        check_ids(tokenizer, (struct tokenizer_input)input, ids, sizeof(ids) / sizeof(ids[0]));    \
    } while (0)
#define INPUT(...)                                                                                 \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static void test_bpe_merges_by_rank(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = create_bpe();
    CHECK_IDS(tokenizer, INPUT(TEXT("hello hello")), BPE_HELLO, BPE_SPACE_HELLO);
    CHECK_IDS(tokenizer, INPUT(TEXT("hell")), BPE_HELL);
    CHECK_IDS(tokenizer, INPUT(TEXT("helo")), BPE_HE, 'l', 'o');
    CHECK_IDS(tokenizer, INPUT(TEXT("aaaaaaa")), BPE_AAAA, BPE_AA, 'a');
    CHECK_IDS(tokenizer, INPUT(TEXT("lll")), BPE_LL, 'l'); // equal ranks merge from the left
    check_ids(tokenizer, (struct tokenizer_input){TEXT("")}, NULL, 0);
    tokenizer_destroy(tokenizer);
}

static void test_special_text_stays_text(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = create_bpe();
    struct token_list list = encode(tokenizer, (struct tokenizer_input){TEXT("<|im_end|>")});
    for (size_t i = 0; i < list.count; i++) {
        assert_false(tokenizer_is_special(tokenizer, list.tokens[i]));
    }
    token_list_finish(&list);
    CHECK_IDS(tokenizer, INPUT(TEXT("a<|im_end|>a"), .parse_special = true), 'a', BPE_IM_END, 'a');
    CHECK_IDS(tokenizer, INPUT(TEXT("a<user>a")), 'a', BPE_USER_DEFINED, 'a');
    CHECK_IDS(tokenizer, INPUT(TEXT("<|im_end"), .parse_special = true), '<', '|', 'i', 'm', '_',
              'e', 'n', 'd');
    tokenizer_destroy(tokenizer);
}

static void test_token_bytes(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = create_bpe();
    size_t bytes = 0;
    for (uint32_t byte = 0; byte < 256; byte++) {
        assert_int_equal(tokenizer_token_bytes(tokenizer, byte, false, &bytes)[0], byte);
        assert_int_equal(bytes, 1);
    }
    assert_memory_equal(tokenizer_token_bytes(tokenizer, BPE_SPACE_HELLO, false, &bytes), " hello",
                        6);
    assert_int_equal(bytes, 6);
    (void)tokenizer_token_bytes(tokenizer, BPE_IM_END, false, &bytes);
    assert_int_equal(bytes, 0);
    assert_memory_equal(tokenizer_token_bytes(tokenizer, BPE_IM_END, true, &bytes), "<|im_end|>",
                        10);
    assert_int_equal(bytes, 10);
    (void)tokenizer_token_bytes(tokenizer, BPE_TOKENS, true, &bytes);
    assert_int_equal(bytes, 0);
    assert_int_equal(tokenizer_find(tokenizer, "<|im_start|>"), BPE_IM_START);
    assert_int_equal(tokenizer_find(tokenizer, "nothing"), TOKENIZER_NO_TOKEN);
    assert_true(tokenizer_is_end(tokenizer, BPE_IM_END));
    assert_true(tokenizer_is_end(tokenizer, BPE_END_OF_TEXT)); // by its name
    assert_false(tokenizer_is_end(tokenizer, BPE_IM_START));
    assert_false(tokenizer_is_end(tokenizer, BPE_TOKENS));
    assert_int_equal(tokenizer_vocab_count(tokenizer), BPE_TOKENS);
    assert_int_equal(tokenizer_eos(tokenizer), BPE_IM_END);
    tokenizer_destroy(tokenizer);
}

// Whatever bytes an app sends, they are encoded without loss, ending at an unmapped page.
static void check_any_bytes(const struct tokenizer *tokenizer, const char *often, uint64_t *random)
{
    for (int round = 0; round < 300; round++) {
        size_t bytes = check_random(random) % 200;
        struct check_edge edge = check_edge_create(bytes);
        for (size_t i = 0; i < bytes; i++) {
            uint64_t draw = check_random(random);
            edge.data[i] =
                draw % 3 == 0 ? (uint8_t)(draw >> 8) : (uint8_t)often[draw % strlen(often)];
        }
        check_round_trip(tokenizer, (const char *)edge.data, bytes);
        check_edge_destroy(&edge);
    }
}

static void test_any_bytes(void **state)
{
    (void)state;
    uint64_t random = check_seed();
    struct tokenizer *tokenizer = create_bpe();
    check_any_bytes(tokenizer, "hela <u|\xc3\xa9\xe2\x96\x81", &random);
    tokenizer_destroy(tokenizer);
}

// ---- BOS and EOS

static void test_bos_and_eos(void **state)
{
    (void)state;
    struct draft draft;
    enum status status;
    draft_init(&draft);
    draft_bpe(&draft);
    draft_bool(&draft, "tokenizer.ggml.add_bos_token", 1);
    draft_bool(&draft, "tokenizer.ggml.add_eos_token", 1);
    struct tokenizer *tokenizer = draft_tokenizer(&draft, &status, NULL);
    CHECK_OK(status);
    assert_true(tokenizer_adds_bos(tokenizer));
    CHECK_IDS(tokenizer, INPUT(TEXT("a")), 'a');
    CHECK_IDS(tokenizer, INPUT(TEXT("a"), .add_special = true), BPE_IM_START, 'a', BPE_IM_END);
    CHECK_IDS(tokenizer, INPUT(TEXT(""), .add_special = true), BPE_IM_START, BPE_IM_END);
    // The text brings its own BOS: still exactly one.
    CHECK_IDS(tokenizer, INPUT(TEXT("<|im_start|>a"), .add_special = true, .parse_special = true),
              BPE_IM_START, 'a', BPE_IM_END);
    tokenizer_destroy(tokenizer);
}

// ---- SentencePiece: the draft's own vocabulary

enum { SPM_SPACE = 259, SPM_A, SPM_B, SPM_AB, SPM_SPACE_A, SPM_SPACE_AB, SPM_E_ACUTE };

static struct tokenizer *create_spm(void (*spoil)(struct draft *draft))
{
    struct draft draft;
    enum status status;
    struct reason reason = {0};
    draft_init(&draft);
    if (spoil != NULL) {
        spoil(&draft);
    }
    struct tokenizer *tokenizer = draft_tokenizer(&draft, &status, &reason);
    if (status != STATUS_OK) {
        fail_msg("%s", reason.text);
    }
    return tokenizer;
}

static uint32_t spm_byte(uint8_t byte)
{
    return 3u + byte;
}

static void test_spm(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = create_spm(NULL);
    CHECK_IDS(tokenizer, INPUT(TEXT("ab")), SPM_SPACE_AB);
    CHECK_IDS(tokenizer, INPUT(TEXT("aab")), SPM_SPACE_A, SPM_AB);
    CHECK_IDS(tokenizer, INPUT(TEXT("ab"), .continues = true), SPM_AB);
    CHECK_IDS(tokenizer, INPUT(TEXT("b a"), .add_special = true), 1, SPM_SPACE, SPM_B, SPM_SPACE_A);
    CHECK_IDS(tokenizer, INPUT(TEXT("\xc3\xa9z")), SPM_SPACE, SPM_E_ACUTE, spm_byte('z'));
    CHECK_IDS(tokenizer, INPUT(TEXT("\xe2\x82\xac")), SPM_SPACE, spm_byte(0xe2), spm_byte(0x82),
              spm_byte(0xac));
    CHECK_IDS(tokenizer, INPUT(TEXT("\xc3"), .continues = true), spm_byte(0xc3));
    check_ids(tokenizer, (struct tokenizer_input){TEXT("")}, NULL, 0);
    tokenizer_destroy(tokenizer);
}

// "<s>" and "<0x41>" as a user types them are characters, though the vocabulary has tokens of these
// names.
static void test_spm_special_text_stays_text(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = create_spm(NULL);
    const char *texts[] = {"<s>", "</s>", "<unk>", "<0x41>"};
    for (size_t i = 0; i < 4; i++) {
        struct token_list list =
            encode(tokenizer, (struct tokenizer_input){texts[i], strlen(texts[i]), 0, 0, 1});
        assert_int_equal(list.count, strlen(texts[i]));
        for (size_t k = 0; k < list.count; k++) {
            assert_int_equal(list.tokens[k], texts[i][k] == 'a'   ? (uint32_t)SPM_A
                                             : texts[i][k] == 'b' ? (uint32_t)SPM_B
                                                                  : spm_byte((uint8_t)texts[i][k]));
        }
        token_list_finish(&list);
    }
    CHECK_IDS(tokenizer, INPUT(TEXT("a<s>a"), .parse_special = true), SPM_SPACE_A, 1, SPM_SPACE_A);
    tokenizer_destroy(tokenizer);
}

// Here "<" and "s>" are tokens, so that merging alone would make "<s>", BOS, out of them.
static void spell_bos(struct draft *d)
{
    static const char *const names[] = {"<unk>", "<s>", "</s>", "<", "s", ">", "s>", "<0x0A>"};
    static const uint32_t types[] = {2, 3, 3, 1, 1, 1, 1, 6};
    draft_texts(d, "tokenizer.ggml.tokens", names, 8);
    struct draft_bytes *scores = draft_array(d, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, 8);
    const float score = 0;
    for (int i = 0; i < 8; i++) {
        draft_put(scores, &score, sizeof(score));
    }
    struct draft_bytes *body = draft_array(d, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, 8);
    draft_put(body, types, sizeof(types));
}

static void test_spm_merges_make_no_special_token(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = create_spm(spell_bos);
    CHECK_IDS(tokenizer, INPUT(TEXT("<s>"), .continues = true), 3, 6);
    CHECK_IDS(tokenizer, INPUT(TEXT("\n"), .continues = true), 7);
    tokenizer_destroy(tokenizer);
}

static void test_spm_any_bytes(void **state)
{
    (void)state;
    uint64_t random = check_seed();
    struct tokenizer *tokenizer = create_spm(NULL);
    check_any_bytes(tokenizer, "ab <s>\xc3\xa9",
                    &random); // U+2581 itself would come back as a space
    tokenizer_destroy(tokenizer);
}

// ---- bounds

static double encode_seconds(const struct tokenizer *tokenizer, const char *unit, size_t bytes)
{
    char *text = malloc(bytes);
    assert_non_null(text);
    for (size_t i = 0; i < bytes; i++) {
        text[i] = unit[i % strlen(unit)];
    }
    clock_t start = clock();
    struct token_list list = encode(tokenizer, (struct tokenizer_input){text, bytes, 0, 0, 0});
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    token_list_finish(&list);
    free(text);
    return seconds;
}

// 16 times the text takes about 16 times as long; a quadratic merge would take 256. By ratio, with
// room for a busy machine and for cache sizes.
static void test_linear_in_the_text(void **state)
{
    (void)state;
    static const char *const units[] = {"a", " ", "\n", "7", "<", "\xff", "hello "};
    struct tokenizer *tokenizers[] = {create_bpe(), create_spm(NULL)};
    for (size_t t = 0; t < 2; t++) {
        for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
            double shortest = encode_seconds(tokenizers[t], units[i], 1 << 15);
            double longest = encode_seconds(tokenizers[t], units[i], 1 << 19);
            if (longest > 80 * shortest && longest > 1) {
                fail_msg("%zu, unit %zu: %f s for 32 KiB, %f s for 512 KiB", t, i, shortest,
                         longest);
            }
        }
        tokenizer_destroy(tokenizers[t]);
    }
}

static void test_too_long(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = create_bpe();
    struct token_list list = {0};
    CHECK_OK(token_list_push(&list, 5));
    struct tokenizer_input input = {.text = "", .bytes = (48u << 20) + 1};
    assert_int_equal(tokenizer_encode(tokenizer, &input, &list), STATUS_REFUSED);
    input.bytes = TOKENIZER_WORD_BYTES_MAX + 1;
    char *text = malloc(input.bytes);
    assert_non_null(text);
    memset(text, 'b', input.bytes); // merges with nothing: quick
    memset(text, ' ', 4);
    text[4] = 'b';
    text[5] = ' ';
    input.text = text;
    CHECK_OK(tokenizer_encode(tokenizer, &input, &list)); // its longest word just fits
    list.count = 1;
    memset(text, 'b', input.bytes);
    assert_int_equal(tokenizer_encode(tokenizer, &input, &list), STATUS_REFUSED);
    assert_int_equal(list.count, 1);
    assert_int_equal(list.tokens[0], 5);
    token_list_finish(&list);
    free(text);
    tokenizer_destroy(tokenizer);
}

// ---- refused vocabularies

static void unknown_model(struct draft *d)
{
    draft_text(d, "tokenizer.ggml.model", "bert");
}
static void no_model(struct draft *d)
{
    draft_remove(d, "tokenizer.ggml.model");
}
static void no_scores(struct draft *d)
{
    draft_remove(d, "tokenizer.ggml.scores");
}
static void bad_byte(struct draft *d)
{
    struct draft_bytes *types =
        draft_array(d, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, DRAFT_TOKENS);
    for (int i = 0; i < DRAFT_TOKENS; i++) {
        draft_put_u32(types, 6);
    }
}
static void no_bytes(struct draft *d)
{
    struct draft_bytes *types =
        draft_array(d, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, DRAFT_TOKENS);
    for (int i = 0; i < DRAFT_TOKENS; i++) {
        draft_put_u32(types, 1);
    }
    draft_remove(d, "tokenizer.ggml.unknown_token_id");
}
static void bpe_without_merges(struct draft *d)
{
    draft_bpe(d);
    draft_remove(d, "tokenizer.ggml.merges");
}
static void merge_one(struct draft *d, const char *merge)
{
    draft_bpe(d);
    draft_texts(d, "tokenizer.ggml.merges", &merge, 1);
}
static void merge_without_space(struct draft *d)
{
    merge_one(d, "he");
}
static void merge_space_first(struct draft *d)
{
    merge_one(d, " he");
}
static void merge_space_last(struct draft *d)
{
    merge_one(d, "he ");
}
static void merge_empty(struct draft *d)
{
    merge_one(d, "");
}
static void merge_unknown(struct draft *d)
{
    merge_one(d, "xy z");
}
static void merge_makes_unknown(struct draft *d)
{
    merge_one(d, "x y");
}
static void bpe_other_pre(struct draft *d)
{
    draft_bpe(d);
    draft_text(d, "tokenizer.ggml.pre", "qwen2");
}
static void bpe_bos_unknown(struct draft *d)
{
    draft_bpe(d);
    draft_remove(d, "tokenizer.ggml.bos_token_id");
    draft_bool(d, "tokenizer.ggml.add_bos_token", 1);
}

static const struct draft_fault FAULTS[] = {
    {"bert", unknown_model, STATUS_UNSUPPORTED, "tokenizer bert is not supported (supported: gpt2"},
    {"no model", no_model, STATUS_INVALID, "(none)"},
    {"no scores", no_scores, STATUS_INVALID, "tokenizer.ggml.scores is missing"},
    {"byte token's name", bad_byte, STATUS_INVALID, "must be <0xNN>"},
    {"bytes nobody stands for", no_bytes, STATUS_INVALID, "no token stands for byte"},
    {"no merges", bpe_without_merges, STATUS_INVALID, "tokenizer.ggml.merges is missing"},
    {"merge without space", merge_without_space, STATUS_INVALID, "merge 0 (he)"},
    {"merge, space first", merge_space_first, STATUS_INVALID, "merge 0 ( he)"},
    {"merge, space last", merge_space_last, STATUS_INVALID, "merge 0 (he )"},
    {"empty merge", merge_empty, STATUS_INVALID, "merge 0 ()"},
    {"merge of no token", merge_unknown, STATUS_INVALID, "not in the vocabulary"},
    {"merge to no token", merge_makes_unknown, STATUS_INVALID, "not in the vocabulary"},
    {"pre-tokenizer", bpe_other_pre, STATUS_UNSUPPORTED, "pre-tokenizer qwen2 is not supported"},
    {"no BOS to add", bpe_bos_unknown, STATUS_INVALID, "BOS"},
};

static void test_faults(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(FAULTS) / sizeof(FAULTS[0]); i++) {
        struct draft draft;
        struct reason reason = {0};
        enum status status;
        draft_init(&draft);
        FAULTS[i].spoil(&draft);
        struct tokenizer *tokenizer = draft_tokenizer(&draft, &status, &reason);
        if (status != FAULTS[i].status || strstr(reason.text, FAULTS[i].says) == NULL ||
            tokenizer != NULL || reason.hint[0] == '\0') {
            fail_msg("%s: status %d, \"%s; %s\"", FAULTS[i].what, status, reason.text, reason.hint);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_llama_spm),
        cmocka_unit_test(test_starcoder),
        cmocka_unit_test(test_smollm2),
        cmocka_unit_test(test_bpe_merges_by_rank),
        cmocka_unit_test(test_special_text_stays_text),
        cmocka_unit_test(test_token_bytes),
        cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_bos_and_eos),
        cmocka_unit_test(test_spm),
        cmocka_unit_test(test_spm_special_text_stays_text),
        cmocka_unit_test(test_spm_merges_make_no_special_token),
        cmocka_unit_test(test_spm_any_bytes),
        cmocka_unit_test(test_linear_in_the_text),
        cmocka_unit_test(test_too_long),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
