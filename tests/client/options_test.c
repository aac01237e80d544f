// SPDX-License-Identifier: Apache-2.0
// At stake: a mistyped command line does something else than it says. Every malformed option must
// give one clear error and change nothing that is used; every well-formed one its value.
#include "tests/check.h"

#include "client/options.h"

struct targets {
    bool flag;
    const char *text;
    int64_t number;
    double real;
    struct option_list list;
    bool number_given;
};

static enum options_result parse(struct targets *targets, struct reason *reason, int *out_first,
                                 const char *const *words)
{
    const struct option_spec specs[] = {
        {.name = "flag",
         .letter = 'f',
         .kind = OPTION_FLAG,
         .help = "a flag",
         .target = &targets->flag},
        {.name = "text",
         .kind = OPTION_TEXT,
         .value = "T",
         .help = "a text",
         .target = &targets->text},
        {.name = "number",
         .letter = 'n',
         .kind = OPTION_INTEGER,
         .value = "N",
         .help = "a number",
         .target = &targets->number,
         .minimum = -1,
         .maximum = 100,
         .given = &targets->number_given},
        {.name = "real",
         .kind = OPTION_REAL,
         .value = "R",
         .help = "a real",
         .target = &targets->real,
         .minimum = 0,
         .maximum = 1},
        {.name = "list",
         .kind = OPTION_LIST,
         .value = "T",
         .help = "texts",
         .target = &targets->list},
    };
    const struct options_command command = {.name = "x y",
                                            .arguments = "NAME",
                                            .summary = "Tests.",
                                            .specs = specs,
                                            .spec_count = sizeof(specs) / sizeof(specs[0]),
                                            .positional_max = 1};
    char *argv[16] = {"y"};
    int argc = 1;
    for (; words[argc - 1] != NULL; argc++) {
        argv[argc] = (char *)words[argc - 1];
    }
    *reason = (struct reason){0};
    return options_parse(&command, argc, argv, out_first, reason);
}

static void test_values(void **state)
{
    (void)state;
    struct targets t = {0};
    struct reason reason;
    int first = 0;
    const char *words[] = {"--flag", "--text=a b", "-n",     "-1",  "--real", "0.5",
                           "--list", "one",        "--list", "two", "rest",   NULL};
    assert_int_equal(parse(&t, &reason, &first, words), OPTIONS_RUN);
    assert_true(t.flag && t.number_given);
    assert_string_equal(t.text, "a b");
    assert_int_equal(t.number, -1);
    assert_true(t.real == 0.5);
    assert_int_equal(t.list.count, 2);
    assert_string_equal(t.list.items[1], "two");
    assert_int_equal(first, 11);
}

static void test_malformed(void **state)
{
    (void)state;
    static const char *const cases[][4] = {
        {"--nothing", NULL},      {"-z", NULL},
        {"--number", NULL},       {"--number", "x", NULL},
        {"--number", "", NULL},   {"--number", "1x", NULL},
        {"--number", " 1", NULL}, {"--number", "101", NULL},
        {"--number", "-2", NULL}, {"--number", "99999999999999999999", NULL},
        {"--number=", NULL},      {"--real", "nan", NULL},
        {"--real", "2", NULL},    {"--real", "0.5.", NULL},
        {"--real", "inf", NULL},  {"--flag=1", NULL},
        {"--num", "3", NULL},     {"--tex=a", NULL},
        {"a", "b", NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct targets t = {0};
        struct reason reason;
        int first = 0;
        assert_int_equal(parse(&t, &reason, &first, cases[i]), OPTIONS_BAD);
        assert_true(reason.text[0] != 0);
        assert_non_null(strstr(reason.hint, "x y --help"));
        assert_null(strchr(reason.text, '\n'));
    }
}

static void test_help(void **state)
{
    (void)state;
    struct targets t = {0};
    struct reason reason;
    int first = 0;
    assert_int_equal(parse(&t, &reason, &first, (const char *const[]){"--help", NULL}),
                     OPTIONS_HELP);
    assert_int_equal(parse(&t, &reason, &first, (const char *const[]){"-h", NULL}), OPTIONS_HELP);
    // After "--" nothing is an option.
    assert_int_equal(parse(&t, &reason, &first, (const char *const[]){"--", "--help", NULL}),
                     OPTIONS_RUN);
    assert_int_equal(first, 2);
}

static void test_too_many_in_list(void **state)
{
    (void)state;
    struct targets t = {.list = {.count = OPTION_LIST_MAX}};
    struct reason reason;
    int first = 0;
    assert_int_equal(parse(&t, &reason, &first, (const char *const[]){"--list", "a", NULL}),
                     OPTIONS_BAD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_too_many_in_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
