// SPDX-License-Identifier: Apache-2.0
// From a message of an app to a request of ours: every text and id is copied out of the frame, and
// what the decoder could not know is checked (names, texts that must be C strings). Pure; ipc
// thread. Never: tokenizes, submits.
#ifndef KVTIER_GPUD_INTAKE_H
#define KVTIER_GPUD_INTAKE_H

#include "gpud/request.h"
#include "proto/gpu_message.h"
#include "proto/status.h"

#include <stdint.h>

// `message` is any op that needs the worker: not HELLO, not STATUS. The identity is that of the
// user `user_id`. The request has no reply yet. STATUS_INVALID (a bad session name, an empty stop
// text, a turn without a role, a NUL where none may be), STATUS_NO_MEMORY.
enum status intake_request(const struct gpu_request *message, uint64_t user_id,
                           struct request **out_request, struct reason *reason) KV_MUST_CHECK;

#endif
