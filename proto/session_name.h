// SPDX-License-Identifier: Apache-2.0
// What a session may be called. Both daemons and the client tools check with this one function, so
// that a name that one takes is taken by all, and may become a file name on any system. Pure, any
// thread.
#ifndef KVTIER_PROTO_SESSION_NAME_H
#define KVTIER_PROTO_SESSION_NAME_H

#include "proto/status.h"

// STATUS_INVALID with the reason unless `name` (a C string) is 1..LIMIT_SESSION_NAME_BYTES bytes of
// UTF-8 without '/', '\\', "..", control characters or a Windows device name.
enum status session_name_check(const char *name, struct reason *reason) KV_MUST_CHECK;

#endif
