// SPDX-License-Identifier: Apache-2.0
// At stake: a setting that is silently not what the user wrote. Sources and their order, every kind
// of bad line and option, and sizes at their edges.
#include "proto/config_file.h"
#include "tests/check.h"

static const struct config_spec specs[] = {
    {.name = "swap-space", .value_name = "SIZE", .fallback = "auto", .help = "memory"},
    {.name = "model", .value_name = "FILE", .help = "the model"},
    {.name = "threads", .value_name = "N", .fallback = "2", .help = "threads"},
    {.name = "part", .value_name = "X", .fallback = "0.9", .help = "part"},
    {.name = "caching", .fallback = "true", .help = "cache"},
    {.name = "loud", .help = "flag"},
    {.name = "help", .help = "this", .command_only = true},
};

static struct config *create(void)
{
    struct config *config = NULL;
    CHECK_OK(config_create(specs, sizeof(specs) / sizeof(*specs), &config));
    return config;
}

// Reads options given as one string, parts separated by '|'.
static enum status options(struct config *config, const char *text, struct reason *reason)
{
    char copy[4096], *argv[32] = {"program"};
    int argc = 1;
    snprintf(copy, sizeof(copy), "%s", text);
    for (char *part = strtok(copy, "|"); part != NULL; part = strtok(NULL, "|")) {
        argv[argc++] = part;
    }
    return config_read_options(config, argc, argv, reason);
}

static enum status file(struct config *config, const char *text, struct reason *reason)
{
    char folder[256], path[300];
    check_folder_create(folder);
    snprintf(path, sizeof(path), "%s/x.conf", folder);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs(text, out);
    fclose(out);
    enum status status = config_read_file(config, path, reason);
    check_folder_remove(folder);
    return status;
}

static void sources_beat_each_other_in_order(void **state)
{
    (void)state;
    struct config *config = create();
    struct reason reason = {0};
    assert_string_equal(config_text(config, "swap-space"), "auto");
    assert_null(config_text(config, "model"));
    assert_true(config_flag(config, "caching"));
    assert_false(config_flag(config, "loud"));
    assert_false(config_given(config, "threads"));
    CHECK_OK(options(config, "--threads|4|--model=a=b.gguf|--no-caching|--loud", &reason));
    CHECK_OK(file(config, "# comment\n[section]\nthreads = 8\nswap-space=12G ; note\nloud = no\n",
                  &reason));
    assert_string_equal(config_text(config, "threads"), "4"); // the command line wins
    assert_string_equal(config_text(config, "swap-space"), "12G");
    assert_string_equal(config_text(config, "model"), "a=b.gguf");
    assert_false(config_flag(config, "caching"));
    assert_true(config_flag(config, "loud"));
    assert_true(config_given(config, "threads"));
    CHECK_OK(options(config, "--threads|5|--threads=6", &reason)); // the last one
    assert_string_equal(config_text(config, "threads"), "6");
    config_destroy(config);
}

static void bad_options_are_named(void **state)
{
    (void)state;
    static const char *const bad[] = {"--nope", "--nope=1",   "--threads", "stray",          "-x",
                                      "--",     "--no-model", "--no-nope", "--caching=maybe"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct config *config = create();
        struct reason reason = {0};
        assert_int_equal(options(config, bad[i], &reason), STATUS_INVALID);
        assert_true(reason.text[0] != '\0');
        config_destroy(config);
    }
    char long_value[CONFIG_VALUE_BYTES + 100];
    memset(long_value, 'x', sizeof(long_value));
    memcpy(long_value, "--model=", 8);
    long_value[sizeof(long_value) - 1] = '\0';
    struct config *config = create();
    struct reason reason = {0};
    assert_int_equal(options(config, long_value, &reason), STATUS_INVALID);
    config_destroy(config);
}

static void bad_lines_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *line;
    } bad[] = {
        {"threads = 2\nnope = 3\n", "line 2"},
        {"\n\nhelp = true\n", "line 3"},
        {"loud = perhaps\n", "line 1"},
        {"just words\n", "line 1"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct config *config = create();
        struct reason reason = {0};
        assert_int_equal(file(config, bad[i].text, &reason), STATUS_INVALID);
        assert_non_null(strstr(reason.text, bad[i].line));
        config_destroy(config);
    }
    struct config *config = create();
    struct reason reason = {0};
    assert_int_equal(config_read_file(config, "/nonexistent/x.conf", &reason), STATUS_NOT_FOUND);
    assert_int_equal(config_read_file(config, "/", &reason), STATUS_IO);
    config_destroy(config);
}

static void typed_values(void **state)
{
    (void)state;
    struct config *config = create();
    struct reason reason = {0};
    int64_t number = 0;
    double real = 0;
    uint64_t size = 0;
    CHECK_OK(config_integer(config, "threads", 1, 256, &number, &reason));
    assert_int_equal(number, 2);
    CHECK_OK(config_real(config, "part", 0.1, 1, &real, &reason));
    assert_true(real == 0.9);
    CHECK_OK(config_size(config, "swap-space", 1 << 30, 77, &size, &reason));
    assert_int_equal(size, 77);
    CHECK_OK(options(config, "--swap-space=2", &reason));
    CHECK_OK(config_size(config, "swap-space", 1 << 30, 77, &size, &reason));
    assert_int_equal(size, 2ull << 30);
    static const char *const bad[] = {"0",  "257", "x",   "",
                                      " 3", "3 ",  "3.5", "99999999999999999999"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        char option[64];
        snprintf(option, sizeof(option), "--threads=%s", bad[i]);
        CHECK_OK(options(config, option, &reason));
        assert_int_equal(config_integer(config, "threads", 1, 256, &number, &reason),
                         STATUS_INVALID);
        assert_non_null(strstr(reason.text, "threads"));
        assert_non_null(strstr(reason.text, "command line"));
    }
    CHECK_OK(options(config, "--part=nan", &reason));
    assert_int_equal(config_real(config, "part", 0, 1, &real, &reason), STATUS_INVALID);
    CHECK_OK(options(config, "--swap-space=lots", &reason));
    assert_int_equal(config_size(config, "swap-space", 1, 1, &size, &reason), STATUS_INVALID);
    config_destroy(config);
}

static void what_is_printed_can_be_read(void **state)
{
    (void)state;
    struct config *config = create(), *again = create();
    struct reason reason = {0};
    char *text = NULL;
    size_t bytes = 0;
    CHECK_OK(options(config, "--threads=4|--model=m.gguf|--no-caching", &reason));
    FILE *out = open_memstream(&text, &bytes);
    config_print(config, out);
    fclose(out);
    assert_non_null(strstr(text, "threads = 4  ; command line"));
    assert_non_null(strstr(text, "swap-space = auto  ; default"));
    assert_null(strstr(text, "help"));
    CHECK_OK(file(again, text, &reason));
    assert_string_equal(config_text(again, "threads"), "4");
    assert_string_equal(config_text(again, "model"), "m.gguf");
    assert_false(config_flag(again, "caching"));
    free(text);
    out = open_memstream(&text, &bytes);
    config_help(config, out);
    fclose(out);
    for (size_t i = 0; i < sizeof(specs) / sizeof(*specs); i++) {
        assert_non_null(strstr(text, specs[i].name));
    }
    free(text);
    config_destroy(config);
    config_destroy(again);
}

static void sizes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"7", 7000},
        {"512M", 512ull << 20},
        {"12G", 12ull << 30},
        {"12GiB", 12ull << 30},
        {"1.5g", 3ull << 29},
        {"3kb", 3072},
        {"1T", 1ull << 40},
        {"100B", 100},
        {"0.5KiB", 512},
    };
    static const char *const bad[] = {"",    "G",   "-1",  "1 G",          "1GG",    "1P", "0x10",
                                      "1e3", "1.G", ".5G", "99999999999T", "12GiBs", "+5"};
    uint64_t bytes;
    char text[32];
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        CHECK_OK(size_parse(good[i].text, 1000, &bytes));
        assert_int_equal(bytes, good[i].bytes);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        assert_int_equal(size_parse(bad[i], 1, &bytes), STATUS_INVALID);
    }
    size_format(17, text);
    assert_string_equal(text, "17 bytes");
    size_format(12ull << 30, text);
    assert_string_equal(text, "12 GiB");
    size_format((12ull << 30) + (1 << 29), text);
    assert_string_equal(text, "12.5 GiB");
    size_format(UINT64_MAX, text);
    assert_non_null(strstr(text, "TiB"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sources_beat_each_other_in_order),
        cmocka_unit_test(bad_options_are_named),
        cmocka_unit_test(bad_lines_are_named),
        cmocka_unit_test(typed_values),
        cmocka_unit_test(what_is_printed_can_be_read),
        cmocka_unit_test(sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
