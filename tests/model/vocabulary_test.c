// SPDX-License-Identifier: Apache-2.0
// At stake: arrays of different lengths, ids past the end and twin names, each an index out of
// bounds or a wrong token later. Every one is refused with the key or token named; every name finds
// its token.
#include "gpud/model/vocabulary.h"
#include "tests/model/draft_bpe.h"

#include <math.h>

static void no_tokens(struct draft *d)
{
    draft_remove(d, "tokenizer.ggml.tokens");
}
static void empty_tokens(struct draft *d)
{
    draft_texts(d, "tokenizer.ggml.tokens", NULL, 0);
}
static void tokens_of_numbers(struct draft *d)
{
    draft_put_u32(draft_array(d, "tokenizer.ggml.tokens", GGUF_TYPE_UINT32, 1), 0);
}
static void twin_names(struct draft *d)
{
    static const char *const names[] = {"<unk>", "<s>", "<s>"};
    draft_texts(d, "tokenizer.ggml.tokens", names, 3);
}
static void one_token_less(struct draft *d)
{
    static const char *const names[] = {"<unk>", "<s>", "</s>"};
    draft_texts(d, "tokenizer.ggml.tokens", names, 3);
}
static void short_scores(struct draft *d)
{
    const float score = 0;
    draft_put(draft_array(d, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, 1), &score, 4);
}
static void score_nan(struct draft *d)
{
    struct draft_bytes *scores =
        draft_array(d, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, DRAFT_TOKENS);
    const float score = NAN;
    for (int i = 0; i < DRAFT_TOKENS; i++) {
        draft_put(scores, &score, sizeof(score));
    }
}
static void scores_as_text(struct draft *d)
{
    draft_text(d, "tokenizer.ggml.scores", "0");
}
static void type_7(struct draft *d)
{
    struct draft_bytes *types =
        draft_array(d, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, DRAFT_TOKENS);
    for (int i = 0; i < DRAFT_TOKENS; i++) {
        draft_put_u32(types, i == 5 ? 7 : 1);
    }
}
static void bos_past_end(struct draft *d)
{
    draft_u32(d, "tokenizer.ggml.bos_token_id", DRAFT_TOKENS);
}
static void eot_past_end(struct draft *d)
{
    draft_u32(d, "tokenizer.ggml.eot_token_id", 1u << 31);
}
static void eos_as_text(struct draft *d)
{
    draft_text(d, "tokenizer.ggml.eos_token_id", "2");
}

static void long_token(struct draft *d)
{
    static char name[VOCABULARY_TOKEN_BYTES_MAX + 2];
    memset(name, 'x', VOCABULARY_TOKEN_BYTES_MAX + 1);
    const char *names[] = {name};
    draft_texts(d, "tokenizer.ggml.tokens", names, 1);
}

static const struct draft_fault FAULTS[] = {
    {"no tokens", no_tokens, STATUS_INVALID, "0 tokens"},
    {"empty", empty_tokens, STATUS_INVALID, "0 tokens"},
    {"numbers", tokens_of_numbers, STATUS_INVALID, "must be an array of text"},
    {"twins", twin_names, STATUS_INVALID, "tokens 1 and 2 have the same name <s>"},
    {"types for more", one_token_less, STATUS_INVALID, "token_type has 266 entries for 3 tokens"},
    {"short scores", short_scores, STATUS_INVALID, "scores has 1 entries for 266 tokens"},
    {"NaN", score_nan, STATUS_INVALID, "score of token 0 is not finite"},
    {"scores as text", scores_as_text, STATUS_INVALID, "must be an array of float32"},
    {"type 7", type_7, STATUS_INVALID, "token 5 has the unknown type 7"},
    {"BOS past the end", bos_past_end, STATUS_INVALID, "bos_token_id is 266, must be 0..265"},
    {"EOT past the end", eot_past_end, STATUS_INVALID, "eot_token_id is 2147483648"},
    {"EOS as text", eos_as_text, STATUS_INVALID, "eos_token_id is text"},
    {"4097 bytes", long_token, STATUS_INVALID, "token 0 is 4097 bytes long"},
};

static void test_faults(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(FAULTS) / sizeof(FAULTS[0]); i++) {
        struct draft draft;
        struct vocabulary vocabulary;
        struct reason reason = {0};
        draft_init(&draft);
        FAULTS[i].spoil(&draft);
        struct gguf *gguf = draft_gguf(&draft);
        enum status status = vocabulary_init(&vocabulary, gguf, &reason);
        if (status != FAULTS[i].status || strstr(reason.text, FAULTS[i].says) == NULL ||
            reason.hint[0] == '\0') {
            fail_msg("%s: status %d, \"%s; %s\"", FAULTS[i].what, status, reason.text, reason.hint);
        }
        gguf_close(gguf);
    }
}

static void test_names_find_their_tokens(void **state)
{
    (void)state;
    struct draft draft;
    struct vocabulary vocabulary;
    draft_init(&draft);
    struct gguf *gguf = draft_gguf(&draft);
    CHECK_OK(vocabulary_init(&vocabulary, gguf, NULL));
    gguf_close(gguf);
    assert_int_equal(vocabulary.count, DRAFT_TOKENS);
    for (uint32_t token = 0; token < vocabulary.count; token++) {
        struct gguf_string name = vocabulary_name(&vocabulary, token);
        assert_int_equal(vocabulary_find(&vocabulary, name.text, name.bytes), token);
        assert_int_equal(vocabulary_is_special(&vocabulary, token), token < 3);
        assert_int_equal(vocabulary.ends[token], token == 2);
    }
    assert_int_equal(vocabulary_find(&vocabulary, "<0x41", 5), VOCABULARY_NO_TOKEN);
    assert_int_equal(vocabulary_find(&vocabulary, "", 0), VOCABULARY_NO_TOKEN);
    assert_int_equal(vocabulary_find(&vocabulary, "longer than any", 15), VOCABULARY_NO_TOKEN);
    assert_int_equal(vocabulary.bos, 1);
    assert_int_equal(vocabulary.eos, 2);
    assert_int_equal(vocabulary.eot, VOCABULARY_NO_TOKEN);
    vocabulary_finish(&vocabulary);
}

// Holes (tokens without a name) are no error and found by no text.
static void test_holes(void **state)
{
    (void)state;
    static const char *const names[] = {"", "", "a", ""};
    struct draft draft;
    struct vocabulary vocabulary;
    draft_init(&draft);
    draft_texts(&draft, "tokenizer.ggml.tokens", names, 4);
    draft_remove(&draft, "tokenizer.ggml.scores");
    draft_remove(&draft, "tokenizer.ggml.token_type");
    struct gguf *gguf = draft_gguf(&draft);
    CHECK_OK(vocabulary_init(&vocabulary, gguf, NULL));
    gguf_close(gguf);
    assert_int_equal(vocabulary_find(&vocabulary, "a", 1), 2);
    assert_int_equal(vocabulary_find(&vocabulary, "", 0), VOCABULARY_NO_TOKEN);
    assert_null(vocabulary.scores);
    vocabulary_finish(&vocabulary);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_names_find_their_tokens),
        cmocka_unit_test(test_holes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
