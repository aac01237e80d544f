// SPDX-License-Identifier: Apache-2.0
// At stake: a special token that is missed, or one found where a longer one stands. Random names
// and texts over two letters, where prefixes abound, are compared with trying every name.
#include "gpud/model/special_matcher.h"
#include "tests/model/draft_bpe.h"

enum { NAMES = 40 };

// A vocabulary of different names over "<=", which are neighbours; types cycle through
// user-defined, control, unknown, normal.
static void create_names(struct vocabulary *out, uint64_t *random)
{
    static const uint32_t types[] = {4, 3, 2, 1};
    char names[NAMES][12];
    const char *texts[NAMES];
    struct draft draft;
    draft_init(&draft);
    draft_remove(&draft, "tokenizer.ggml.scores");
    for (uint32_t i = 0; i < NAMES; i++) {
        bool twin = true;
        while (twin) {
            uint64_t draw = check_random(random);
            size_t length = 1 + draw % 9;
            for (size_t k = 0; k < length; k++) {
                names[i][k] = draw >> (8 + k) & 1 ? '<' : '=';
            }
            names[i][length] = '\0';
            twin = false;
            for (uint32_t k = 0; k < i; k++) {
                twin |= strcmp(names[i], names[k]) == 0;
            }
        }
        texts[i] = names[i];
    }
    draft_texts(&draft, "tokenizer.ggml.tokens", texts, NAMES);
    struct draft_bytes *body =
        draft_array(&draft, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, NAMES);
    for (uint32_t i = 0; i < NAMES; i++) {
        draft_put_u32(body, types[i % 4]);
    }
    struct gguf *gguf = draft_gguf(&draft);
    CHECK_OK(vocabulary_init(out, gguf, NULL));
    gguf_close(gguf);
}

static uint32_t find_slowly(const struct vocabulary *vocabulary, bool special, const char *text,
                            size_t bytes)
{
    uint32_t best = VOCABULARY_NO_TOKEN;
    size_t best_bytes = 0;
    for (uint32_t token = 0; token < vocabulary->count; token++) {
        struct gguf_string name = vocabulary_name(vocabulary, token);
        bool chosen = token % 4 == 0 || (special && token % 4 < 3);
        if (chosen && name.bytes <= bytes && name.bytes > best_bytes &&
            memcmp(name.text, text, name.bytes) == 0) {
            best = token;
            best_bytes = name.bytes;
        }
    }
    return best;
}

static void check_texts(const struct vocabulary *vocabulary, bool special, uint64_t *random)
{
    struct special_matcher matcher;
    CHECK_OK(special_matcher_init(&matcher, vocabulary, special));
    for (int round = 0; round < 300; round++) {
        size_t bytes = check_random(random) % 14;
        struct check_edge edge = check_edge_create(bytes);
        for (size_t i = 0; i < bytes; i++) {
            edge.data[i] = (uint8_t) "<==<<=x"[check_random(random) % 7];
        }
        const char *text = (const char *)edge.data;
        assert_int_equal(special_matcher_find(&matcher, text, bytes),
                         find_slowly(vocabulary, special, text, bytes));
        check_edge_destroy(&edge);
    }
    special_matcher_finish(&matcher);
}

static void test_longest_name(void **state)
{
    (void)state;
    uint64_t random = check_seed();
    for (int round = 0; round < 20; round++) {
        struct vocabulary vocabulary;
        create_names(&vocabulary, &random);
        check_texts(&vocabulary, false, &random);
        check_texts(&vocabulary, true, &random);
        vocabulary_finish(&vocabulary);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_longest_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
