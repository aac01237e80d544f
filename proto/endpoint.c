// SPDX-License-Identifier: Apache-2.0
// URLs and errors of the endpoints.
#include "proto/endpoint.h"

#include "proto/endpoint_internal.h"
#include "proto/limits.h"

#include <nng/nng.h>
#include <stdio.h>
#include <string.h>

static const char scheme[] = "ipc://";

enum status endpoint_url_check(const char *url, struct reason *reason)
{
    size_t scheme_bytes = strlen(scheme);
    if (strncmp(url, scheme, scheme_bytes) != 0 || url[scheme_bytes] != '/') {
        return reason_set(reason, STATUS_INVALID, "use ipc:///absolute/path.sock",
                          "%.200s: is not an ipc:// URL with an absolute path", url);
    }
    size_t path_bytes = strlen(url + scheme_bytes);
    if (path_bytes > LIMIT_SOCKET_PATH_BYTES) {
        return reason_set(reason, STATUS_INVALID, "use a shorter path, see KVTIER_RUNTIME_DIR",
                          "%.200s: the socket's path has %zu bytes, the system takes %d", url,
                          path_bytes, LIMIT_SOCKET_PATH_BYTES);
    }
    return STATUS_OK;
}

enum status endpoint_url_make(const char *directory, const char *name, char *out,
                              struct reason *reason)
{
    char url[2 * LIMIT_URL_BYTES];
    int length = snprintf(url, sizeof(url), "%s%s/%s.sock", scheme, directory, name);
    if (length < 0 || (size_t)length >= sizeof(url)) {
        return reason_set(reason, STATUS_INVALID, "use a shorter folder",
                          "%.200s: too long for a socket's folder", directory);
    }
    enum status status = endpoint_url_check(url, reason);
    if (status == STATUS_OK) {
        memcpy(out, url, (size_t)length + 1); // at most 107 bytes and the scheme
    }
    return status;
}

enum status endpoint_status(int nng_error)
{
    switch (nng_error) {
    case 0:
        return STATUS_OK;
    case NNG_ENOMEM:
    case NNG_ENOFILES:
        return STATUS_NO_MEMORY;
    case NNG_ETIMEDOUT:
        return STATUS_TIMEOUT;
    case NNG_EADDRINUSE:
        return STATUS_BUSY;
    case NNG_EPERM:
        return STATUS_PERMISSION;
    case NNG_EMSGSIZE:
        return STATUS_REFUSED;
    case NNG_ECLOSED:
    case NNG_ECONNRESET:
    case NNG_ECONNSHUT:
    case NNG_ECONNABORTED:
    case NNG_ECANCELED:
        return STATUS_CLOSED;
    case NNG_ECONNREFUSED:
    case NNG_ENOENT:
    case NNG_EUNREACHABLE:
    case NNG_EPEERAUTH:
    case NNG_EPROTO:
        return STATUS_UNREACHABLE;
    case NNG_EINVAL:
    case NNG_EADDRINVAL:
        return STATUS_INVALID;
    default:
        return STATUS_IO;
    }
}

enum status endpoint_listen_failed(const char *url, int nng_error, struct reason *reason)
{
    enum status status = endpoint_status(nng_error);
    if (nng_error == NNG_ENOENT) {
        status = STATUS_NOT_FOUND;
    }
    return reason_set(reason, status,
                      status == STATUS_BUSY ? "stop the other one or choose another URL"
                                            : "check the folder of the socket",
                      "%s: cannot listen: %s", url, nng_strerror(nng_error));
}

enum status endpoint_dial_failed(const char *url, int nng_error, struct reason *reason)
{
    enum status status = endpoint_status(nng_error);
    if (status == STATUS_CLOSED) {
        status = STATUS_UNREACHABLE; // accepted and closed at once: full, or just stopping
    }
    return reason_set(reason, status, "start it, or see its log", "%s: cannot connect: %s", url,
                      nng_strerror(nng_error));
}

size_t endpoint_parts_bytes(const struct stream_part *parts, uint32_t part_count)
{
    size_t total = 0;
    for (uint32_t i = 0; i < part_count; i++) {
        if (__builtin_add_overflow(total, parts[i].bytes, &total)) {
            return SIZE_MAX;
        }
    }
    return total;
}
