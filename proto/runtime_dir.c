// SPDX-License-Identifier: Apache-2.0
// Paths by the table of INTERFACE "Files".
#include "proto/runtime_dir.h"

#include "proto/hash.h"
#include "proto/limits.h"
#include "proto/os/folder.h"
#include "proto/os/machine.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool is_set(const char *value)
{
    return value != NULL && value[0] != '\0';
}

// out = base + suffix, without slashes at the end of either. `variable` names base's origin.
static enum status join(const char *base, const char *suffix, const char *variable, char *out,
                        struct reason *reason)
{
    if (base[0] != '/') {
        return reason_set(reason, STATUS_INVALID, "set it to an absolute path",
                          "%s=%.200s: is not an absolute path", variable, base);
    }
    size_t length = strlen(base);
    while (length > 0 && base[length - 1] == '/') {
        length--;
    }
    if (length + strlen(suffix) >= RUNTIME_PATH_BYTES || length + strlen(suffix) == 0) {
        return reason_set(reason, STATUS_INVALID, "choose another folder", "%s=%.200s: %s",
                          variable, base, length == 0 ? "is the root folder" : "is too long");
    }
    memcpy(out, base, length);
    strcpy(out + length, suffix);
    return STATUS_OK;
}

static enum status resolve_runtime(const struct runtime_environment *environment, char *out,
                                   struct reason *reason)
{
    if (is_set(environment->kvtier_runtime_dir)) {
        return join(environment->kvtier_runtime_dir, "", "KVTIER_RUNTIME_DIR", out, reason);
    }
    if (environment->system_service) {
        return join("/run", "/kvtier", "the service", out, reason);
    }
    if (is_set(environment->xdg_runtime_dir)) {
        return join(environment->xdg_runtime_dir, "/kvtier", "XDG_RUNTIME_DIR", out, reason);
    }
    char suffix[48];
    snprintf(suffix, sizeof(suffix), "/kvtier-%" PRIu64, os_machine_user_id());
    return join("/tmp", suffix, "the default", out, reason);
}

struct home_path {
    const char *override_value; // of its variable
    const char *variable;
    const char *service_path;
    const char *home_suffix;
};

static enum status resolve_home(const struct runtime_environment *environment,
                                const struct home_path *path, char *out, struct reason *reason)
{
    if (is_set(path->override_value)) {
        return join(path->override_value, "", path->variable, out, reason);
    }
    if (environment->system_service) {
        return join(path->service_path, "", "the service", out, reason);
    }
    if (!is_set(environment->home)) {
        return reason_set(reason, STATUS_INVALID, "set HOME", "%s: neither it nor HOME is set",
                          path->variable);
    }
    return join(environment->home, path->home_suffix, "HOME", out, reason);
}

enum status runtime_dir_resolve(const struct runtime_environment *environment,
                                struct runtime_paths *out_paths, struct reason *reason)
{
    const struct home_path data = {environment->kvtier_data_dir, "KVTIER_DATA_DIR",
                                   "/var/lib/kvtier", "/.local/share/kvtier"};
    const struct home_path config = {environment->kvtier_config_dir, "KVTIER_CONFIG_DIR",
                                     "/etc/kvtier", "/.config/kvtier"};
    // An instance with a data folder of its own keeps its logs there too: two never meet.
    const struct home_path state = {environment->kvtier_data_dir, "KVTIER_DATA_DIR",
                                    "/var/log/kvtier", "/.local/state/kvtier"};
    struct runtime_paths paths;
    enum status status = resolve_runtime(environment, paths.runtime_dir, reason);
    if (status == STATUS_OK) {
        status = resolve_home(environment, &data, paths.data_dir, reason);
    }
    if (status == STATUS_OK) {
        status = resolve_home(environment, &config, paths.config_dir, reason);
    }
    if (status == STATUS_OK) {
        status = resolve_home(environment, &state, paths.state_dir, reason);
    }
    if (status == STATUS_OK) {
        *out_paths = paths;
    }
    return status;
}

enum status runtime_dir_prepare(const char *runtime_dir, struct reason *reason)
{
    size_t socket_bytes = strlen(runtime_dir) + strlen("/kvstored.sock");
    if (socket_bytes > LIMIT_SOCKET_PATH_BYTES) {
        return reason_set(reason, STATUS_INVALID, "set KVTIER_RUNTIME_DIR to a shorter path",
                          "%s: its sockets' paths would have %zu bytes, the system takes %d",
                          runtime_dir, socket_bytes, LIMIT_SOCKET_PATH_BYTES);
    }
    return os_folder_create(runtime_dir, reason);
}

enum status runtime_dir_arena_name(const char *runtime_dir, char *out)
{
    struct os_folder_identity identity;
    enum status status = os_folder_identify(runtime_dir, &identity);
    if (status != STATUS_OK) {
        return status;
    }
    uint8_t digest[HASH_BYTES];
    struct hash hash;
    hash_init(&hash);
    hash_field(&hash, &identity.device, sizeof(identity.device));
    hash_field(&hash, &identity.inode, sizeof(identity.inode));
    hash_final(&hash, digest);
    int length =
        snprintf(out, RUNTIME_ARENA_NAME_BYTES, "/kvtier-%" PRIu64 "-", os_machine_user_id());
    for (unsigned i = 0; i < 8; i++) {
        length +=
            snprintf(out + length, RUNTIME_ARENA_NAME_BYTES - (size_t)length, "%02x", digest[i]);
    }
    return STATUS_OK;
}
