// SPDX-License-Identifier: Apache-2.0
// What endpoint*.c share: nng's errors as ours, and parts. Only they include this. Pure functions.
#ifndef KVTIER_PROTO_ENDPOINT_INTERNAL_H
#define KVTIER_PROTO_ENDPOINT_INTERNAL_H

#include "proto/endpoint.h"
#include "proto/status.h"

#include <stddef.h>
#include <stdint.h>

// The status of an nng error number, 0 included.
enum status endpoint_status(int nng_error);

// The status and the words for a failed listen on, or dial of, `url`.
enum status endpoint_listen_failed(const char *url, int nng_error, struct reason *reason);
enum status endpoint_dial_failed(const char *url, int nng_error, struct reason *reason);

// Bytes of all parts together; SIZE_MAX when they overflow.
size_t endpoint_parts_bytes(const struct stream_part *parts, uint32_t part_count);

#endif
