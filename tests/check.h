// SPDX-License-Identifier: Apache-2.0
// What every test of ours starts from: cmocka with its includes in the right order, equality of
// bytes that says where they differ, seeds that are printed and can be given, memory that ends at
// an unmapped page, and a scratch folder that is removed at exit. Header only; one thread.
#ifndef KVTIER_TESTS_CHECK_H
#define KVTIER_TESTS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define CHECK_OK(expression) assert_int_equal((expression), 0)

// The seed of this run: KVTIER_TEST_SEED when set, else the clock; printed either way.
static inline uint64_t check_seed(void)
{
    const char *text = getenv("KVTIER_TEST_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 10) : (uint64_t)time(NULL);
    print_message("seed %llu (set KVTIER_TEST_SEED to repeat)\n", (unsigned long long)seed);
    return seed;
}

// splitmix64, Steele, Lea and Flood 2014: the next number of a test's random sequence.
static inline uint64_t check_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

// `bytes` bytes that end exactly at an unmapped page, so that reading or writing one more is a crash.
struct check_edge {
    uint8_t *data;
    void *base;
    size_t mapped_bytes;
};

static inline struct check_edge check_edge_create(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t body = (bytes + page - 1) / page * page;
    struct check_edge edge = {.mapped_bytes = body + page};
    edge.base = mmap(NULL, edge.mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                     -1, 0);
    assert_true(edge.base != MAP_FAILED);
    assert_int_equal(mprotect((uint8_t *)edge.base + body, page, PROT_NONE), 0);
    edge.data = (uint8_t *)edge.base + body - bytes;
    return edge;
}

static inline void check_edge_destroy(struct check_edge *edge)
{
    munmap(edge->base, edge->mapped_bytes);
}

// A fresh folder under TMPDIR (or /tmp); `path` must hold 256 bytes. Removed by check_folder_remove.
static inline void check_folder_create(char *path)
{
    const char *parent = getenv("TMPDIR");
    snprintf(path, 256, "%s/kvtier-test-XXXXXX", parent != NULL ? parent : "/tmp");
    assert_non_null(mkdtemp(path));
}

static inline void check_folder_remove(const char *path)
{
    char command[300];
    snprintf(command, sizeof(command), "rm -rf -- '%s'", path);
    assert_int_equal(system(command), 0);
}

#endif
