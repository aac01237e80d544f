// SPDX-License-Identifier: Apache-2.0
// What the tests of kernels share: the set named on the command line (`--kernels c|avx2|avx512`),
// random floats, and equality of float arrays by bits. Header only; one thread.
#ifndef KVTIER_TESTS_KERNELS_CHECK_H
#define KVTIER_TESTS_KERNELS_CHECK_H

#include "gpud/kernels/kernels.h"
#include "tests/check.h"

enum { CHECK_SKIPPED = 77 }; // CTest's SKIP_RETURN_CODE

// The set under test, from the arguments; exits as skipped when this CPU cannot run it.
static inline enum kernel_set check_set_from_arguments(int count, char **arguments)
{
    enum kernel_set set = KERNEL_SET_C;
    if (count == 3 && strcmp(arguments[1], "--kernels") == 0) {
        if (!kernels_set_parse(arguments[2], &set)) {
            fprintf(stderr, "unknown set %s\n", arguments[2]);
            exit(2);
        }
    }
    if (!kernels_set_supported(set)) {
        printf("skipped: this CPU cannot run the %s kernels\n", kernels_set_name(set));
        exit(CHECK_SKIPPED);
    }
    return set;
}

static inline struct kernels *check_kernels_create(struct kernels_options options)
{
    struct kernels *kernels = NULL;
    struct reason reason = {0};
    CHECK_OK(kernels_create(&options, &kernels, &reason));
    return kernels;
}

// Uniform in -scale..scale.
static inline float check_float(uint64_t *state, float scale)
{
    return ((float)(check_random(state) >> 40) * 0x1p-23f - 1.0f) * scale;
}

static inline float *check_floats(uint64_t *state, size_t count, float scale)
{
    float *values = malloc((count + 1) * sizeof(*values));
    assert_non_null(values);
    for (size_t i = 0; i < count; i++) {
        values[i] = check_float(state, scale);
    }
    return values;
}

// Equal bit for bit; any NaN equals any other.
static inline void check_floats_equal(const float *got, const float *want, size_t count,
                                      const char *what)
{
    for (size_t i = 0; i < count; i++) {
        bool both_nan = got[i] != got[i] && want[i] != want[i];
        if (!both_nan && memcmp(&got[i], &want[i], sizeof(float)) != 0) {
            fail_msg("%s: value %zu of %zu is %a, expected %a", what, i, count, (double)got[i],
                     (double)want[i]);
        }
    }
}

#endif
