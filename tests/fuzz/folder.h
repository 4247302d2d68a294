#pragma once
/* A folder, for readers that take one: one of its files has any bytes. Sources that include it
 * define _GNU_SOURCE. */
#include "base/compiler.h"
#include "fuzz/file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FUZZ_PATH = 160 };

typedef struct fuzz_folder {
    char root[40];
    const char *const *entries; /* ended by NULL */
} fuzz_folder;

static fuzz_folder fuzz_made;

static inline const char *fuzz_entry(size_t i, char path[FUZZ_PATH]) {
    const char *name = fuzz_made.entries[i];
    const size_t length = strcspn(name, "@") - (name[strlen(name) - 1] == '/');
    snprintf(path, FUZZ_PATH, "%s/%.*s", fuzz_made.root, (int)length, name);
    return path;
}

static inline void fuzz_remove_folder(void) {
    char path[FUZZ_PATH];
    size_t n = 0;
    while (fuzz_made.entries[n]) n++;
    while (n-- > 0) (void)remove(fuzz_entry(n, path));
    (void)remove(fuzz_made.root);
}

/* Makes the folder once, with these entries in their order, and returns its path: "NAME/" is a
 * folder, "NAME@" the file that has the bytes, and others are empty files. */
static inline const char *fuzz_folder_with(const char *const *entries, const uint8_t *bytes,
                                           size_t length) {
    const char *file = fuzz_file(bytes, length);
    if (fuzz_made.entries) return fuzz_made.root;
    fuzz_made = (fuzz_folder){.root = "/tmp/kolo-fuzz-XXXXXX", .entries = entries};
    KOLO_ASSERT(mkdtemp(fuzz_made.root) && atexit(fuzz_remove_folder) == 0);
    for (size_t i = 0; entries[i]; i++) {
        char path[FUZZ_PATH];
        const char kind = entries[i][strlen(entries[i]) - 1];
        FILE *empty = NULL;
        fuzz_entry(i, path);
        const bool made = kind == '/'   ? mkdir(path, 0700) == 0
                          : kind == '@' ? symlink(file, path) == 0
                                        : (empty = fopen(path, "w")) != NULL;
        KOLO_ASSERT(made);
        if (empty) fclose(empty);
    }
    return fuzz_made.root;
}
