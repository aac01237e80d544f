// SPDX-License-Identifier: Apache-2.0
// At stake: a daemon that runs with other settings than its user wrote. Every option is read from
// the command line and from the file, in that order of strength; everything malformed, unknown or
// unsupported gives one line that names it, and nothing is made.
#include "tests/check.h"

#include "gpud/config.h"

#include <sys/stat.h>

struct place {
    char folder[256];
    char file[300];
};

static struct place place;

static enum status load(const char *const *options, struct gpu_config *config,
                        enum gpu_config_action *out_action, struct reason *reason)
{
    char *argv[24] = {"gpud"};
    int argc = 1;
    for (; options[argc - 1] != NULL; argc++) {
        argv[argc] = (char *)options[argc - 1];
    }
    *reason = (struct reason){0};
    return gpu_config_load(argc, argv, config, out_action, reason);
}

static void load_good(const char *const *options, struct gpu_config *config)
{
    struct reason reason;
    enum gpu_config_action action;
    if (load(options, config, &action, &reason) != STATUS_OK) {
        fail_msg("%s", reason.text);
    }
    assert_int_equal(action, GPU_CONFIG_RUN);
}

static void write_file(const char *text)
{
    FILE *file = fopen(place.file, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void test_defaults(void **state)
{
    (void)state;
    struct gpu_config config;
    load_good((const char *const[]){"--model", "m.gguf", NULL}, &config);
    assert_string_equal(config.model, "m.gguf");
    assert_int_equal(config.context_tokens, 0);
    assert_true(config.vram_bytes == 0);
    assert_int_equal(config.block_tokens, 32);
    assert_true(config.prefix_caching);
    assert_int_equal(config.sequences_max, 8);
    assert_int_equal(config.batch_tokens_max, 512);
    assert_int_equal(config.kernel_set, KERNEL_SET_AUTO);
    assert_true(config.thread_count >= 1);
    assert_int_equal(config.log_level, LOG_LEVEL_INFO);
    assert_string_equal(config.chat_template, "");
    assert_non_null(strstr(config.url, "/run/gpud.sock"));
    assert_non_null(strstr(config.store_url, "/run/kvstored.sock"));
}

static void test_options(void **state)
{
    (void)state;
    struct gpu_config config;
    load_good((const char *const[]){"--model=a.gguf",
                                    "--max-model-len",
                                    "4096",
                                    "--vram",
                                    "1.5G",
                                    "--block-size=16",
                                    "--kv-cache-dtype",
                                    "f16",
                                    "--no-enable-prefix-caching",
                                    "--max-num-seqs",
                                    "3",
                                    "--max-num-batched-tokens",
                                    "7",
                                    "--device",
                                    "cpu",
                                    "--kernels",
                                    "c",
                                    "--threads",
                                    "2",
                                    NULL},
              &config);
    assert_int_equal(config.context_tokens, 4096);
    assert_true(config.vram_bytes == UINT64_C(3) << 29);
    assert_int_equal(config.block_tokens, 16);
    assert_false(config.prefix_caching);
    assert_int_equal(config.sequences_max, 3);
    assert_int_equal(config.batch_tokens_max, 7);
    assert_int_equal(config.kernel_set, KERNEL_SET_C);
    assert_int_equal(config.thread_count, 2);

    load_good((const char *const[]){"--model", "a", "--store", "none", "--listen",
                                    "ipc:///tmp/kvt/g.sock", "--log-level", "debug",
                                    "--chat-template", "chatml", NULL},
              &config);
    assert_string_equal(config.store_url, "");
    assert_string_equal(config.url, "ipc:///tmp/kvt/g.sock");
    assert_int_equal(config.log_level, LOG_LEVEL_DEBUG);
    assert_string_equal(config.chat_template, "chatml");
}

static void test_file(void **state)
{
    (void)state;
    struct gpu_config config;
    write_file("# ours\nmodel = f.gguf\nthreads = 3\nenable-prefix-caching = false\n");
    load_good((const char *const[]){NULL}, &config);
    assert_string_equal(config.model, "f.gguf");
    assert_int_equal(config.thread_count, 3);
    assert_false(config.prefix_caching);
    load_good((const char *const[]){"--threads", "1", NULL}, &config); // beats the file
    assert_int_equal(config.thread_count, 1);
    assert_string_equal(config.model, "f.gguf");
    unlink(place.file);
}

static void refuse(const char *const *options, enum status status)
{
    struct gpu_config config;
    struct reason reason;
    enum gpu_config_action action;
    enum status got = load(options, &config, &action, &reason);
    if (got != status) {
        fail_msg("%s %s: %s, not %s", options[0], options[1], status_name(got),
                 status_name(status));
    }
    assert_true(reason.text[0] != 0);
    assert_null(strchr(reason.text, '\n'));
}

static void test_malformed_options(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"--fly", NULL, NULL},
        {"model.gguf", NULL, NULL},
        {"--threads", NULL, NULL},
        {"--threads", "0", NULL},
        {"--threads", "257", NULL},
        {"--threads", "two", NULL},
        {"--threads", "", NULL},
        {"--threads", "2x", NULL},
        {"--max-model-len", "0", NULL},
        {"--max-model-len", "-1", NULL},
        {"--max-model-len", "99999999", NULL},
        {"--max-num-seqs", "0", NULL},
        {"--max-num-seqs", "65", NULL},
        {"--max-num-batched-tokens", "0", NULL},
        {"--max-num-batched-tokens", "8193", NULL},
        {"--block-size", "24", NULL},
        {"--block-size", "8", NULL},
        {"--block-size", "256", NULL},
        {"--vram", "0", NULL},
        {"--vram", "-1G", NULL},
        {"--vram", "12Q", NULL},
        {"--vram", "99999999999999999999", NULL},
        {"--kernels", "sse", NULL},
        {"--log-level", "loud", NULL},
        {"--listen", "tcp://1.2.3.4:5", NULL},
        {"--listen", "ipc://relative", NULL},
        {"--store", "kvstored", NULL},
        {"--config", "/nonexistent/gpud.conf", NULL},
        {"--enable-prefix-caching=maybe", NULL, NULL},
    };
    write_file("model = m.gguf\n");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        refuse(cases[i], STATUS_INVALID);
    }
    refuse((const char *const[]){"--device", "cuda", NULL}, STATUS_UNSUPPORTED);
    refuse((const char *const[]){"--kv-cache-dtype", "int8", NULL}, STATUS_UNSUPPORTED);
    unlink(place.file);
    refuse((const char *const[]){"--threads", "1", NULL}, STATUS_INVALID); // no model
}

static void test_malformed_file(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "fly = 1\n",
        "threads\n",
        "threads = none\n",
        "model = m.gguf\n=\n",
        "[section\n",
        "config = a\n",
        "vram = much\n",
        "block-size = 33\n",
        "device = cuda\n",
        "help = true\n",
        "enable-prefix-caching = 2\n",
    };
    static const char *const options[] = {"--model", "m.gguf", NULL};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gpu_config config;
        struct reason reason;
        enum gpu_config_action action;
        write_file(cases[i]);
        if (load(options, &config, &action, &reason) == STATUS_OK) {
            fail_msg("accepted: %s", cases[i]);
        }
        assert_true(reason.text[0] != 0);
        assert_null(strchr(reason.text, '\n'));
    }
    unlink(place.file);
}

// Each is answered without a model, a folder or anything else being made.
static void test_answers(void **state)
{
    (void)state;
    static const char *const words[] = {"--help", "--version", "--print-config"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        struct gpu_config config;
        struct reason reason;
        enum gpu_config_action action;
        CHECK_OK(load((const char *const[]){words[i], NULL}, &config, &action, &reason));
        assert_int_equal(action, GPU_CONFIG_DONE);
    }
}

static int make_place(void **state)
{
    (void)state;
    char path[320];
    check_folder_create(place.folder);
    snprintf(place.file, sizeof(place.file), "%s/gpud.conf", place.folder);
    setenv("KVTIER_CONFIG_DIR", place.folder, 1);
    setenv("KVTIER_DATA_DIR", place.folder, 1);
    snprintf(path, sizeof(path), "%s/run", place.folder);
    setenv("KVTIER_RUNTIME_DIR", path, 1);
    return 0;
}

static int remove_place(void **state)
{
    (void)state;
    check_folder_remove(place.folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),       cmocka_unit_test(test_options),
        cmocka_unit_test(test_file),           cmocka_unit_test(test_malformed_options),
        cmocka_unit_test(test_malformed_file), cmocka_unit_test(test_answers),
    };
    return cmocka_run_group_tests(tests, make_place, remove_place);
}
