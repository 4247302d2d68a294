/* Which kind of data a path has: by the files that a folder has, or by the name of a file. */
#include "base/compiler.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/readers/readers.h"

#include <string.h>
#include <strings.h>

/* The first row whose files a folder has. */
static const struct {
    const char *reader, *files[2];
} folders[] = {
    {"cifar10", {"data_batch_1.bin", "test_batch.bin"}},
    {"cifar100", {"train.bin", "test.bin"}},
    {"tokens", {"train.bin", "val.bin"}},
    {"mnist", {"train-images-idx3-ubyte"}},
    {"mnist", {"train-images-idx3-ubyte.gz"}},
    {"voc", {"JPEGImages", "ImageSets/Segmentation"}},
    {"csv", {"train.csv", "test.csv"}},
};

static const struct {
    const char *reader, *end;
} files[] = {
    {"csv", ".csv"},   {"csv", ".tsv"},    {"raw", ".npy"},    {"webdataset", ".tar"},
    {"pack", ".pack"}, {"tokens", ".u16"}, {"tokens", ".u32"}, {"text", ".txt"},
};

static bool has(const char *folder, const char *name) {
    char *path = kolo_format("%s/%s", folder, name);
    const bool there = path && kolo_file_exists(path);
    kolo_free(path);
    return there;
}

typedef struct search {
    const char *path;
    int depth;
    bool found;
} search;

static bool has_images(const char *path, int depth);

static kolo_status look(void *arg, const char *name) {
    search *s = arg;
    const char *dot = strrchr(name, '.');
    if (s->found || name[0] == '.') return KOLO_OK;
    if (s->depth == 0) {
        s->found = dot && (strcasecmp(dot, ".jpg") == 0 || strcasecmp(dot, ".jpeg") == 0 ||
                           strcasecmp(dot, ".png") == 0);
        return KOLO_OK;
    }
    char *path = kolo_format("%s/%s", s->path, name);
    s->found = path && kolo_folder_exists(path) && has_images(path, s->depth - 1);
    kolo_free(path);
    return KOLO_OK;
}

/* Whether a folder has images, `depth` folders below it. */
static bool has_images(const char *path, int depth) {
    search s = {.path = path, .depth = depth};
    return kolo_folder_each(path, look, &s) == KOLO_OK && s.found;
}

static const char *kind_of_folder(const char *path) {
    for (size_t i = 0; i < KOLO_COUNT(folders); i++) {
        const char *second = folders[i].files[1];
        if (has(path, folders[i].files[0]) && (!second || has(path, second))) {
            return folders[i].reader;
        }
    }
    char *train = kolo_format("%s/train", path);
    const bool images = (train && has_images(train, 1)) || has_images(path, 1);
    kolo_free(train);
    return images ? "folder" : NULL;
}

const char *kolo_reader_recognize(const char *spec, bool *exists) {
    char *path = kolo_strdup(spec);
    const char *kind = NULL;
    *exists = false;
    if (!path) return NULL;
    const bool range = strpbrk(spec, "*?[{") != NULL; /* of shards: with commas, perhaps */
    if (!range) path[strcspn(path, ",")] = '\0';
    *exists = kolo_file_exists(path);
    const size_t length =
        range && strstr(path, ".tar") ? (size_t)(strstr(path, ".tar") - path) + 4 : strlen(path);
    for (size_t i = 0; i < KOLO_COUNT(files) && !kind; i++) {
        const size_t n = strlen(files[i].end);
        if (length > n && memcmp(path + length - n, files[i].end, n) == 0) kind = files[i].reader;
    }
    if (*exists && kolo_folder_exists(path)) kind = kind_of_folder(path);
    if (!*exists && !(range && kind && strcmp(kind, "webdataset") == 0)) kind = NULL;
    kolo_free(path);
    return kind;
}
