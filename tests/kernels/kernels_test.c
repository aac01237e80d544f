// SPDX-License-Identifier: Apache-2.0
// At stake: the choice of the instruction set is what users name and what the log shows; a set this
// CPU lacks must be refused with words, never run. Every status that creation returns is provoked
// here.

#include "tests/kernels/kernels_check.h"

static struct kernels_options small_options(enum kernel_set set)
{
    return (struct kernels_options){.set = set,
                                    .thread_count = 2,
                                    .row_count_max = 4,
                                    .column_count_max = 64,
                                    .heads_max = 2,
                                    .head_dim_max = 16,
                                    .block_tokens = 16,
                                    .block_count_max = 4};
}

static void test_names(void **unused)
{
    (void)unused;
    for (int i = KERNEL_SET_AUTO; i <= KERNEL_SET_NEON; i++) {
        enum kernel_set set = KERNEL_SET_C;
        assert_true(kernels_set_parse(kernels_set_name((enum kernel_set)i), &set));
        assert_int_equal(set, i);
    }
    enum kernel_set set = KERNEL_SET_C;
    assert_false(kernels_set_parse("sse9", &set));
    assert_string_equal(kernels_set_name((enum kernel_set)99), "unknown");
}

static void test_auto_chooses_a_set(void **unused)
{
    (void)unused;
    struct kernels *kernels = check_kernels_create(small_options(KERNEL_SET_AUTO));
    assert_int_not_equal(kernels_set(kernels), KERNEL_SET_AUTO);
    assert_true(kernels_set_supported(kernels_set(kernels)));
    assert_true(kernels_workspace_bytes(kernels) > 0);
    kernels_destroy(kernels);
    kernels_destroy(NULL);
}

static void test_unsupported_set_is_refused(void **unused)
{
    (void)unused;
    assert_false(kernels_set_supported(KERNEL_SET_NEON));
    struct kernels_options options = small_options(KERNEL_SET_NEON);
    struct kernels *kernels = NULL;
    struct reason reason = {0};
    assert_int_equal(kernels_create(&options, &kernels, &reason), STATUS_UNSUPPORTED);
    assert_null(kernels);
    assert_non_null(strstr(reason.text, "neon"));
}

static void test_no_memory(void **unused)
{
    (void)unused;
    struct kernels_options options = small_options(KERNEL_SET_C);
    options.heads_max = options.row_count_max = options.column_count_max = 0x7fffffffu;
    options.head_dim_max = 0x7fffffffu / 64;
    struct kernels *kernels = NULL;
    struct reason reason = {0};
    assert_int_equal(kernels_create(&options, &kernels, &reason), STATUS_NO_MEMORY);
    assert_null(kernels);
    assert_non_null(strstr(reason.text, "memory"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_auto_chooses_a_set),
        cmocka_unit_test(test_unsupported_set_is_refused),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
