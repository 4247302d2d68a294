/* Folders of images: DIR/CLASS/NAME.jpg, or DIR/train/CLASS/NAME.jpg beside DIR/val or DIR/test.
 * Classes are the sorted names of the folders, those of train where there is one; images are sorted
 * by name within a class. Names are kept, files are read as they are needed. */
#include "base/compiler.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/readers/images.h"
#include "data/readers/readers.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const size_t max_file = (size_t)1 << 30;

/* Names, in sorted order. */
typedef struct names {
    char **items;
    size_t count, capacity;
    kolo_arena arena;
    const char *folder; /* while they are collected */
    bool folders;       /* of folders, else of images */
} names;

typedef struct folder {
    kolo_images images;
    char *root;    /* DIR, DIR/train, ... */
    names classes; /* their folders */
    names files;   /* of all classes, one after the other */
    char **of;     /* by sample: its file */
} folder;

/* ---- names ---- */

static void names_fini(names *n) {
    kolo_free(n->items);
    kolo_arena_fini(&n->arena);
    *n = (names){0};
}

static bool is_image(const char *name) {
    static const char *const ends[] = {".jpg", ".jpeg", ".png"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < KOLO_COUNT(ends); i++) {
        if (strcasecmp(dot, ends[i]) == 0) return true;
    }
    return false;
}

static kolo_status add_name(void *arg, const char *name) {
    names *n = arg;
    bool wanted = name[0] != '.' && (n->folders || is_image(name));
    if (wanted && n->folders) {
        char *path = kolo_format("%s/%s", n->folder, name);
        if (!path) return KOLO_NOMEM(strlen(name));
        wanted = kolo_folder_exists(path);
        kolo_free(path);
    }
    if (!wanted) return KOLO_OK;
    if (!KOLO_GROW(n->items, n->count, n->capacity)) return KOLO_NOMEM(n->capacity * 2);
    n->items[n->count] = kolo_arena_strdup(&n->arena, name);
    if (!n->items[n->count]) return KOLO_NOMEM(strlen(name));
    n->count++;
    return KOLO_OK;
}

static int compare(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Appends the names in a folder. */
static kolo_status collect(const char *path, bool folders, names *n) {
    const size_t before = n->count;
    n->folder = path;
    n->folders = folders;
    KOLO_TRY(kolo_folder_each(path, add_name, n));
    if (n->count > before) qsort(n->items + before, n->count - before, sizeof *n->items, compare);
    return KOLO_OK;
}

/* ---- data set ---- */

static void close_folder(kolo_dataset *d) {
    folder *own = d->own;
    if (!own) return;
    kolo_images_fini(&own->images);
    names_fini(&own->classes);
    names_fini(&own->files);
    kolo_free(own->root);
    kolo_free(own->of);
    kolo_free(own);
}

static kolo_status fetch(const kolo_images *images, int64_t index, kolo_encoded *e) {
    const folder *own = (const folder *)images;
    e->name = kolo_format("%s/%s/%s", own->root, own->classes.items[images->labels[index]],
                          own->of[index]);
    if (!e->name) return KOLO_NOMEM(strlen(own->root));
    return kolo_file_read(e->name, max_file, &e->bytes, &e->length);
}

/* Sets the folder of the split; *whole: it has no other samples. */
static kolo_status choose_root(const kolo_dataset *d, folder *own, char **train, bool *whole) {
    static const char *const tests[] = {"val", "test"};
    *train = kolo_format("%s/train", d->place);
    if (!*train) return KOLO_NOMEM(strlen(d->place));
    *whole = kolo_folder_exists(*train);
    if (!*whole || d->info.split == KOLO_SPLIT_TRAIN) {
        own->root = kolo_strdup(*whole ? *train : d->place);
        return own->root ? KOLO_OK : KOLO_NOMEM(strlen(d->place));
    }
    for (size_t i = 0; i < KOLO_COUNT(tests); i++) {
        kolo_free(own->root);
        own->root = kolo_format("%s/%s", d->place, tests[i]);
        if (!own->root) return KOLO_NOMEM(strlen(d->place));
        if (kolo_folder_exists(own->root)) return KOLO_OK;
    }
    return KOLO_FAIL(KOLO_ERR_IO,
                     "%s: a folder train, but neither val nor test for the test split: add one, "
                     "train with --no-eval, or evaluate and predict with --split train",
                     d->place);
}

/* The files of one class; `ends` gets their end in own->files. */
static kolo_status collect_class(folder *own, size_t class, bool required, size_t *end) {
    const char *name = own->classes.items[class];
    const size_t before = own->files.count;
    char *path = kolo_format("%s/%s", own->root, name);
    if (!path) return KOLO_NOMEM(strlen(name));
    kolo_status status = KOLO_OK;
    if (required || kolo_folder_exists(path)) status = collect(path, false, &own->files);
    if (status == KOLO_OK && required && own->files.count == before) {
        status =
            KOLO_FAIL(KOLO_ERR_FORMAT,
                      "%s: no image of this class (.jpg, .jpeg, .png): add some, or remove the "
                      "folder",
                      path);
    }
    kolo_free(path);
    *end = own->files.count;
    return status;
}

/* A class of the test split that the training split lacks. */
static kolo_status check_classes(const folder *own) {
    names here = {0};
    kolo_status status = collect(own->root, true, &here);
    for (size_t i = 0; i < here.count && status == KOLO_OK; i++) {
        if (own->classes.count > 0 && bsearch(&here.items[i], own->classes.items,
                                              own->classes.count, sizeof *here.items, compare)) {
            continue;
        }
        status = KOLO_FAIL(KOLO_ERR_FORMAT, "%s/%s: no such class in train: remove the folder",
                           own->root, here.items[i]);
    }
    names_fini(&here);
    return status;
}

/* Labels all files, and keeps those of the split. */
static kolo_status take_split(kolo_dataset *d, folder *own, const size_t *ends, bool whole) {
    const int64_t count = (int64_t)own->files.count;
    int64_t test = whole ? 0 : (int64_t)((double)count * own->images.test + 0.5), kept = 0;
    if (!whole && test < 1) test = 1;
    if (count <= test) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: %" PRId64 " images are too few for %s", own->root,
                         count, whole ? "a split" : "a training and a test split");
    }
    own->of = kolo_alloc((size_t)count * sizeof *own->of);
    own->images.labels = kolo_alloc((size_t)count * sizeof *own->images.labels);
    if (!own->of || !own->images.labels) return KOLO_NOMEM((size_t)count * sizeof *own->of);
    int32_t class = 0;
    for (int64_t i = 0; i < count; i++) {
        while ((size_t)i >= ends[class]) class ++;
        const bool tests = !whole && kolo_split_takes(own->images.seed, i, count, &test);
        if (!whole && tests != (d->info.split == KOLO_SPLIT_TEST)) continue;
        own->of[kept] = own->files.items[i];
        own->images.labels[kept++] = class;
    }
    d->info.count = kept;
    return KOLO_OK;
}

static kolo_status collect_all(kolo_dataset *d, folder *own, const char *train, bool whole) {
    const bool has_all = !whole || d->info.split == KOLO_SPLIT_TRAIN;
    KOLO_TRY(collect(whole ? train : d->place, true, &own->classes));
    if (own->classes.count == 0) {
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "%s: no folders: give a folder that has one for each class, with its "
                         "images",
                         whole ? train : d->place);
    }
    if (!has_all) KOLO_TRY(check_classes(own));
    size_t *ends = kolo_alloc(own->classes.count * sizeof *ends);
    if (!ends) return KOLO_NOMEM(own->classes.count * sizeof *ends);
    kolo_status status = KOLO_OK;
    for (size_t c = 0; c < own->classes.count && status == KOLO_OK; c++) {
        status = collect_class(own, c, has_all, &ends[c]);
    }
    if (status == KOLO_OK) status = take_split(d, own, ends, whole);
    kolo_free(ends);
    return status;
}

kolo_status kolo_read_folder(const kolo_reader *reader, const char *argument, kolo_dataset *d) {
    folder *own = d->own = kolo_zalloc(sizeof *own);
    if (!own) return KOLO_NOMEM(sizeof *own);
    d->close = close_folder;
    kolo_images_init(&own->images);
    const kolo_data_key keys[] = {KOLO_IMAGES_KEYS(&own->images), {NULL}};
    char *train = NULL, *path = NULL;
    bool whole;
    KOLO_TRY(kolo_keys_parse_after(reader, "DIR", argument, keys, &path));
    kolo_status status = kolo_reader_folder(reader, path, "a folder of images for each class", d);
    kolo_free(path);
    KOLO_TRY(status);
    status = choose_root(d, own, &train, &whole);
    if (status == KOLO_OK && whole) {
        status = kolo_keys_refuse_split(reader->name, argument,
                                        "for a folder with a folder train, which is a split");
    }
    if (status == KOLO_OK) status = collect_all(d, own, train, whole);
    kolo_free(train);
    KOLO_TRY(status);
    own->images.fetch = fetch;
    return kolo_images_open(d, (int)own->classes.count);
}
