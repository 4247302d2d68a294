/* Pascal VOC segmentation: JPEGImages/NAME.jpg and a PNG of SegmentationClass/NAME.png that has the
 * class of each pixel, 255 for none. Names are the lines of a set in ImageSets/Segmentation, one
 * for each split. Names are kept, files are read as they are needed. */
#include "base/compiler.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/readers/images.h"
#include "data/readers/readers.h"

#include <inttypes.h>
#include <string.h>

static const size_t max_file = (size_t)1 << 30;
static const char sets[] = "ImageSets/Segmentation";

typedef struct voc {
    kolo_images images;
    int64_t classes;
    const char *root;          /* the data set's place */
    char masks[KOLO_KEY_TEXT]; /* the folder of the masks */
    char *text;                /* the file of the set, cut into names */
    char **names;
    size_t count, capacity;
} voc;

static void close_voc(kolo_dataset *d) {
    voc *own = d->own;
    if (!own) return;
    kolo_images_fini(&own->images);
    kolo_free(own->text);
    kolo_free(own->names);
    kolo_free(own);
}

/* ---- files ---- */

static char *path_of(const voc *own, bool mask, const char *name) {
    return kolo_format("%s/%s/%s.%s", own->root, mask ? own->masks : "JPEGImages", name,
                       mask ? "png" : "jpg");
}

static kolo_status read(const voc *own, int64_t index, bool mask, kolo_encoded *e) {
    e->name = path_of(own, mask, own->names[index]);
    if (!e->name) return KOLO_NOMEM(strlen(own->root));
    return kolo_file_read(e->name, max_file, &e->bytes, &e->length);
}

static kolo_status fetch(const kolo_images *images, int64_t index, kolo_encoded *e) {
    return read((const voc *)images, index, false, e);
}

static kolo_status fetch_mask(const kolo_images *images, int64_t index, kolo_encoded *e) {
    return read((const voc *)images, index, true, e);
}

/* ---- names ---- */

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/* The file `mask` or the image of the newest name, of a line of the set. */
static kolo_status check_file(const voc *own, const char *set, int64_t line, bool mask) {
    char *path = path_of(own, mask, own->names[own->count - 1]);
    if (!path) return KOLO_NOMEM(strlen(own->root));
    const bool found = kolo_file_exists(path);
    kolo_status status =
        found ? KOLO_OK
              : KOLO_FAIL(KOLO_ERR_IO,
                          "%s: no such file, which line %" PRId64 " of %s/%s.txt names: add it, or "
                          "remove the line",
                          path, line, sets, set);
    kolo_free(path);
    return status;
}

static kolo_status add_name(voc *own, const char *set, int64_t line, char *name) {
    if (strpbrk(name, "/ \t") || *name == '.') {
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "%s/%s/%s.txt: line %" PRId64
                         ": \"%.40s\" is no name of an image, such as "
                         "2007_000032",
                         own->root, sets, set, line, name);
    }
    if (!KOLO_GROW(own->names, own->count, own->capacity)) {
        return KOLO_NOMEM(2 * own->capacity * sizeof *own->names);
    }
    own->names[own->count++] = name;
    KOLO_TRY(check_file(own, set, line, false));
    return check_file(own, set, line, true);
}

static kolo_status add_names(voc *own, const char *set) {
    int64_t line = 1;
    for (char *at = own->text; *at; line++) {
        char *name = at + strspn(at, " \t\r"), *end = at + strcspn(at, "\n");
        at = *end ? end + 1 : end;
        while (end > name && is_blank(end[-1])) end--;
        if (end <= name) continue;
        *end = '\0';
        KOLO_TRY(add_name(own, set, line, name));
    }
    if (own->count > 0) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "%s/%s/%s.txt: no names of images", own->root, sets, set);
}

static kolo_status read_set(voc *own, const char *set) {
    char *folder = kolo_format("%s/%s", own->root, sets), *path = NULL;
    char *file = kolo_format("%s.txt", set);
    size_t bytes;
    kolo_status status = folder && file ? KOLO_OK : KOLO_NOMEM(strlen(own->root));
    if (status == KOLO_OK && !kolo_folder_exists(folder)) {
        status = KOLO_FAIL(KOLO_ERR_IO,
                           "%s: no folder %s: give the folder of a year, such as "
                           "VOCdevkit/VOC2012",
                           own->root, sets);
    }
    if (status == KOLO_OK) {
        status = kolo_reader_file(
            folder, file, "give train=SET and test=SET, the names of the sets of images", &path);
    }
    if (status == KOLO_OK) status = kolo_file_read(path, max_file, &own->text, &bytes);
    if (status == KOLO_OK) status = add_names(own, set);
    kolo_free(folder);
    kolo_free(file);
    kolo_free(path);
    return status;
}

kolo_status kolo_read_voc(const kolo_reader *reader, const char *argument, kolo_dataset *d) {
    voc *own = d->own = kolo_zalloc(sizeof *own);
    if (!own) return KOLO_NOMEM(sizeof *own);
    d->close = close_voc;
    *own = (voc){.images = {.size = {512, 512}}, .classes = 21, .masks = "SegmentationClass"};
    char train[KOLO_KEY_TEXT] = "train", test[KOLO_KEY_TEXT] = "val";
    const kolo_data_key keys[] = {
        {"size", kolo_key_size, own->images.size, 1, 8192, "size=HxW, or size=N for a square"},
        {"classes", kolo_key_count, &own->classes, 1, 255, "classes=NUMBER, 1 to 255"},
        {"train", kolo_key_text, train, .write = "train=SET, such as train or trainval"},
        {"test", kolo_key_text, test, .write = "test=SET, such as val"},
        {"masks", kolo_key_text, own->masks, .write = "masks=FOLDER, such as SegmentationClass"},
        {NULL},
    };
    char *path = NULL;
    KOLO_TRY(kolo_keys_parse_after(reader, "DIR", argument, keys, &path));
    kolo_status status = kolo_reader_folder(reader, path, "JPEGImages and SegmentationClass", d);
    kolo_free(path);
    KOLO_TRY(status);
    own->root = d->place;
    KOLO_TRY(read_set(own, d->info.split == KOLO_SPLIT_TRAIN ? train : test));
    d->info.count = (int64_t)own->count;
    own->images.fetch = fetch;
    own->images.fetch_mask = fetch_mask;
    return kolo_images_open(d, (int)own->classes);
}
