// SPDX-License-Identifier: Apache-2.0
// What this machine has and what this process uses. Any thread; reads small system files.
#ifndef KVTIER_PROTO_OS_MACHINE_H
#define KVTIER_PROTO_OS_MACHINE_H

#include "proto/status.h"

#include <stdint.h>

struct os_memory {
    uint64_t total_bytes;     // physical RAM, or the container's limit when that is lower
    uint64_t available_bytes; // what can be had without swapping, as the system estimates it
};

struct os_process_memory {
    uint64_t resident_bytes;  // all of RAM this process maps, shared memory included
    uint64_t anonymous_bytes; // its own: heap, stacks, private mappings
};

enum status os_machine_memory(struct os_memory *out_memory) KV_MUST_CHECK;          // STATUS_IO
enum status os_machine_process(struct os_process_memory *out_memory) KV_MUST_CHECK; // STATUS_IO
// CPUs this process may run on, at least 1.
uint32_t os_machine_cpu_count(void);
uint64_t os_machine_user_id(void); // effective uid
uint64_t os_machine_process_id(void);

#endif
