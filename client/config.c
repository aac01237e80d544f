// SPDX-License-Identifier: Apache-2.0
// Environment variables to paths, as INTERFACE "Files" says.
#include "client/config.h"

#include "proto/endpoint.h"
#include "proto/os/folder.h"
#include "proto/os/process.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum status config_paths(struct runtime_paths *out_paths, struct reason *reason)
{
    const struct runtime_environment environment = {
        .kvtier_runtime_dir = getenv("KVTIER_RUNTIME_DIR"),
        .kvtier_data_dir = getenv("KVTIER_DATA_DIR"),
        .kvtier_config_dir = getenv("KVTIER_CONFIG_DIR"),
        .xdg_runtime_dir = getenv("XDG_RUNTIME_DIR"),
        .home = getenv("HOME"),
    };
    return runtime_dir_resolve(&environment, out_paths, reason);
}

enum status config_url(const char *daemon, char *out, struct reason *reason)
{
    struct runtime_paths paths;
    enum status status = config_paths(&paths, reason);
    return status == STATUS_OK ? endpoint_url_make(paths.runtime_dir, daemon, out, reason) : status;
}

static bool join(struct config_path *out, const char *a, const char *b, const char *c)
{
    int bytes = snprintf(out->text, sizeof(out->text), "%s%s%s", a, b, c);
    return bytes > 0 && (size_t)bytes < sizeof(out->text);
}

enum status config_log_path(const char *program, struct config_path *out_path,
                            struct reason *reason)
{
    const char *data = getenv("KVTIER_DATA_DIR");
    const char *state = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    char folder[CONFIG_PATH_BYTES];
    if (data != NULL && data[0] != 0) {
        snprintf(folder, sizeof(folder), "%s/log", data);
    } else if (state != NULL && state[0] == '/') {
        snprintf(folder, sizeof(folder), "%s/kvtier", state);
    } else if (home != NULL && home[0] == '/') {
        snprintf(folder, sizeof(folder), "%s/.local/state/kvtier", home);
    } else {
        return reason_set(reason, STATUS_NOT_FOUND, "set HOME, or KVTIER_DATA_DIR",
                          "logs: there is no home folder");
    }
    char file[64];
    snprintf(file, sizeof(file), "/%s.log", program);
    if (!join(out_path, folder, file, "")) {
        return reason_set(reason, STATUS_INVALID, "use a shorter one", "%s: path too long", folder);
    }
    return os_folder_create(folder, reason);
}

static bool find_in_path(const char *name, struct config_path *out_path)
{
    const char *path = getenv("PATH");
    while (path != NULL && *path != 0) {
        size_t bytes = strcspn(path, ":");
        int written =
            snprintf(out_path->text, sizeof(out_path->text), "%.*s/%s", (int)bytes, path, name);
        if (written > 0 && (size_t)written < sizeof(out_path->text) &&
            process_is_program(out_path->text)) {
            return true;
        }
        path += bytes + (path[bytes] == ':');
    }
    return false;
}

enum status config_find_program(const char *name, struct config_path *out_path,
                                struct reason *reason)
{
    char folder[CONFIG_PATH_BYTES];
    if (process_own_path(folder, sizeof(folder)) == STATUS_OK) {
        *strrchr(folder, '/') = 0;
        char in_tree[128];
        snprintf(in_tree, sizeof(in_tree), "/../%s/%s", name, name);
        if ((join(out_path, folder, "/", name) && process_is_program(out_path->text)) ||
            (join(out_path, folder, in_tree, "") && process_is_program(out_path->text))) {
            return STATUS_OK;
        }
    }
    if (find_in_path(name, out_path)) {
        return STATUS_OK;
    }
    return reason_set(reason, STATUS_NOT_FOUND, "install it, or put its folder into PATH",
                      "%s: not beside gpuctl, nor in PATH", name);
}
