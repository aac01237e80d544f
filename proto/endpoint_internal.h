// SPDX-License-Identifier: Apache-2.0
// What endpoint*.c share: nng's errors as ours. Only they include this. Pure functions.
#ifndef KVTIER_PROTO_ENDPOINT_INTERNAL_H
#define KVTIER_PROTO_ENDPOINT_INTERNAL_H

#include "proto/status.h"

// The status of an nng error number, 0 included.
enum status endpoint_status(int nng_error);

// The status and the words for a failed listen on, or dial of, `url`.
enum status endpoint_listen_failed(const char *url, int nng_error, struct reason *reason);
enum status endpoint_dial_failed(const char *url, int nng_error, struct reason *reason);

#endif
