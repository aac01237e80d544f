// SPDX-License-Identifier: Apache-2.0
// At stake: a missing entry of a set is a jump to address 0 in the middle of a step. Every table
// that this CPU can run is complete, and names itself.

#include "gpud/kernels/kernels_backend.h"
#include "tests/check.h"

static void check_complete(const struct kernels_backend *backend)
{
    for (int kind = 0; kind < MATRIX_KIND_COUNT; kind++) {
        assert_non_null(backend->matmul[kind]);
    }
    assert_non_null(backend->quantize);
    assert_non_null(backend->rms_norm);
    assert_non_null(backend->rope);
    assert_non_null(backend->silu_mul);
    assert_non_null(backend->add);
    assert_non_null(backend->narrow);
    assert_non_null(backend->widen);
    assert_non_null(backend->attend);
    assert_non_null(backend->merge);
    assert_non_null(backend->finish);
    assert_int_equal(backend->attend_panel == NULL, backend->merge_panel == NULL);
}

static void test_tables_are_complete(void **unused)
{
    (void)unused;
    for (int set = KERNEL_SET_C; set <= KERNEL_SET_NEON; set++) {
        const struct kernels_backend *backend = kernels_backend_find((enum kernel_set)set);
        assert_int_equal(backend != NULL, kernels_set_supported((enum kernel_set)set));
        if (backend != NULL) {
            assert_int_equal(backend->set, set);
            check_complete(backend);
        }
    }
}

static void test_plain_c_is_always_there(void **unused)
{
    (void)unused;
    assert_non_null(kernels_backend_find(KERNEL_SET_C));
    assert_null(kernels_backend_find(KERNEL_SET_AUTO)); // chosen above, not a table
    assert_null(kernels_backend_find((enum kernel_set)99));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables_are_complete),
        cmocka_unit_test(test_plain_c_is_always_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
