// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target over a kept corpus without libFuzzer, so that every build replays what fuzzing
// once found: replay FOLDER. Each input ends at the end of its own allocation, for the sanitizers
// to see.
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
        return 1;
    }
    long bytes = ftell(file);
    rewind(file);
    uint8_t *data = malloc(bytes > 0 ? (size_t)bytes : 1);
    int failed = bytes < 0 || data == NULL || fread(data, 1, (size_t)bytes, file) != (size_t)bytes;
    fclose(file);
    if (!failed) {
        LLVMFuzzerTestOneInput(data, (size_t)bytes);
    }
    free(data);
    return failed;
}

int main(int argc, char **argv)
{
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    int count = 0;
    int failed = folder == NULL;
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        char path[4096];
        if (entry->d_name[0] == '.') {
            continue;
        }
        snprintf(path, sizeof(path), "%s/%s", argv[1], entry->d_name);
        failed |= replay_file(path);
        count++;
    }
    if (folder != NULL) {
        closedir(folder);
    }
    printf("%d inputs\n", count);
    return failed || count == 0;
}
