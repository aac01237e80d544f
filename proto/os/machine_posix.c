// SPDX-License-Identifier: Apache-2.0
// machine.h over /proc, the container's memory limit (cgroup v2, as seen from inside) and sched.
#include "proto/os/machine.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_BYTES = 256 };

// The number of "name: NUMBER kB" in a /proc file, in bytes.
static enum status read_field(const char *path, const char *name, uint64_t *out_bytes)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return STATUS_IO;
    }
    enum status status = STATUS_IO;
    char line[LINE_BYTES];
    size_t length = strlen(name);
    while (status != STATUS_OK && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, name, length) == 0 && line[length] == ':') {
            *out_bytes = strtoull(line + length + 1, NULL, 10) * 1024u;
            status = STATUS_OK;
        }
    }
    fclose(file);
    return status;
}

// The one number in a file; `fallback` when there is no file or no number ("max").
static uint64_t read_number(const char *path, uint64_t fallback)
{
    char line[LINE_BYTES];
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return fallback;
    }
    uint64_t number = fallback;
    if (fgets(line, sizeof(line), file) != NULL && line[0] >= '0' && line[0] <= '9') {
        number = strtoull(line, NULL, 10);
    }
    fclose(file);
    return number;
}

enum status os_machine_memory(struct os_memory *out_memory)
{
    struct os_memory memory;
    if (read_field("/proc/meminfo", "MemTotal", &memory.total_bytes) != STATUS_OK ||
        read_field("/proc/meminfo", "MemAvailable", &memory.available_bytes) != STATUS_OK) {
        return STATUS_IO;
    }
    uint64_t limit = read_number("/sys/fs/cgroup/memory.max", UINT64_MAX);
    if (limit < memory.total_bytes) {
        uint64_t used = read_number("/sys/fs/cgroup/memory.current", 0);
        uint64_t left = used < limit ? limit - used : 0;
        memory.total_bytes = limit;
        memory.available_bytes = left < memory.available_bytes ? left : memory.available_bytes;
    }
    *out_memory = memory;
    return STATUS_OK;
}

enum status os_machine_process(struct os_process_memory *out_memory)
{
    struct os_process_memory memory;
    if (read_field("/proc/self/status", "VmRSS", &memory.resident_bytes) != STATUS_OK ||
        read_field("/proc/self/status", "RssAnon", &memory.anonymous_bytes) != STATUS_OK) {
        return STATUS_IO;
    }
    *out_memory = memory;
    return STATUS_OK;
}

uint32_t os_machine_cpu_count(void)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0 && CPU_COUNT(&allowed) > 0) {
        return (uint32_t)CPU_COUNT(&allowed);
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN); // more CPUs than cpu_set_t holds
    return online > 0 ? (uint32_t)online : 1;
}

uint64_t os_machine_user_id(void)
{
    return (uint64_t)geteuid();
}

uint64_t os_machine_process_id(void)
{
    return (uint64_t)getpid();
}
