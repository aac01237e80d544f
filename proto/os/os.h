// SPDX-License-Identifier: Apache-2.0
// The operating system behind our own names: everything that differs between POSIX and Windows
// lives under proto/os, one header a concern, implemented in <concern>_posix.c (and later
// <concern>_windows.c). This header includes them all for mains and tests; modules include the one
// they use.
#ifndef KVTIER_PROTO_OS_OS_H
#define KVTIER_PROTO_OS_OS_H

#include "proto/os/clock.h"
#include "proto/os/file.h"
#include "proto/os/file_lock.h"
#include "proto/os/file_read.h"
#include "proto/os/folder.h"
#include "proto/os/machine.h"
#include "proto/os/queue.h"
#include "proto/os/service.h"
#include "proto/os/shm.h"
#include "proto/os/terminal.h"
#include "proto/os/thread.h"

#endif
