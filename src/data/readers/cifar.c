/* CIFAR-10 and CIFAR-100 (Krizhevsky, 2009), the binary version: records of one or two bytes of
 * labels and an image of 3 x 32 x 32 bytes, planes of red, green and blue. All labels are
 * checked on opening; records are read as they are needed. */
#include "base/file.h"
#include "base/memory.h"
#include "data/readers/readers.h"

#include <inttypes.h>
#include <string.h>

enum { MAX_FILES = 5, MAX_LABELS = 2, PIXELS = 32 * 32, IMAGE = 3 * PIXELS };

typedef struct form {
    const char *train[MAX_FILES + 1], *test[MAX_FILES + 1]; /* files, ended by NULL */
    size_t labels;                                          /* bytes; the last one counts */
} form;

static const form cifar10 = {
    .train = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
              "data_batch_5.bin"},
    .test = {"test_batch.bin"},
    .labels = 1,
};
/* A coarse label of 20 and a fine one of 100. */
static const form cifar100 = {.train = {"train.bin"}, .test = {"test.bin"}, .labels = 2};

typedef struct cifar {
    kolo_file *file[MAX_FILES];
    int64_t end[MAX_FILES]; /* one past the last sample of each file */
    int files;
    size_t labels;
} cifar;

static void close_cifar(kolo_dataset *d) {
    cifar *own = d->own;
    if (!own) return;
    for (int f = 0; f < own->files; f++) kolo_file_close(own->file[f]);
    kolo_free(own);
}

static kolo_status read_record(const cifar *own, int64_t sample, int classes, uint8_t *record) {
    const size_t bytes = own->labels + IMAGE;
    int f = 0;
    while (sample >= own->end[f]) f++;
    const uint64_t at = (uint64_t)(sample - (f ? own->end[f - 1] : 0)) * bytes;
    KOLO_TRY(kolo_file_read_at(own->file[f], at, record, bytes));
    if (record[own->labels - 1] < classes) return KOLO_OK;
    return kolo_file_changed(own->file[f], at);
}

static kolo_status gather(const kolo_dataset *d, const int64_t *indices, int64_t n,
                          const kolo_draw *draw, void *const *data) {
    const cifar *own = d->own;
    uint8_t *x = data[KOLO_FIELD_X], record[MAX_LABELS + IMAGE];
    int32_t *y = data[KOLO_FIELD_Y];
    for (int64_t i = 0; i < n; i++) {
        KOLO_TRY(read_record(own, indices[i], d->info.classes, record));
        y[i] = record[own->labels - 1];
        memcpy(x + i * IMAGE, record + own->labels, IMAGE);
    }
    return KOLO_OK;
}

static kolo_status check_labels(const cifar *own, const kolo_file_view *view, const char *path,
                                int classes) {
    const size_t record = own->labels + IMAGE;
    const uint8_t *bytes = view->data;
    for (size_t at = own->labels - 1; at < view->bytes; at += record) {
        if (bytes[at] < classes) continue;
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "%s: label %d of sample %zu is outside 0..%d: the file is damaged, or not "
                         "of the binary version",
                         path, bytes[at], at / record, classes - 1);
    }
    return KOLO_OK;
}

static kolo_status check_file(const cifar *own, const char *path, size_t bytes, int classes) {
    const size_t record = own->labels + IMAGE;
    kolo_file_view view = {0};
    if (bytes == 0) return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: an empty file: download it again", path);
    if (bytes % record != 0) {
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "%s: %zu bytes are not a multiple of %zu, the bytes of a sample: the file "
                         "is truncated, or not of the binary version: download it again",
                         path, bytes, record);
    }
    KOLO_TRY(kolo_file_map(path, &view));
    const kolo_status status = check_labels(own, &view, path, classes);
    kolo_file_unmap(&view);
    return status;
}

static kolo_status add_file(kolo_dataset *d, cifar *own, const char *path, int classes) {
    const int f = own->files;
    KOLO_TRY(kolo_file_open(path, &own->file[f]));
    own->files++;
    const size_t bytes = (size_t)kolo_file_bytes(own->file[f]);
    KOLO_TRY(check_file(own, path, bytes, classes));
    d->info.count += (int64_t)(bytes / (own->labels + IMAGE));
    own->end[f] = d->info.count;
    return KOLO_OK;
}

static kolo_status read_form(const kolo_reader *reader, const form *files, const char *argument,
                             kolo_dataset *d) {
    KOLO_TRY(kolo_reader_folder(reader, argument, "the *.bin files", d));
    cifar *own = d->own = kolo_zalloc(sizeof *own);
    if (!own) return KOLO_NOMEM(sizeof *own);
    d->close = close_cifar;
    d->gather = gather;
    own->labels = files->labels;
    const char *const *file = d->info.split == KOLO_SPLIT_TRAIN ? files->train : files->test;
    for (; *file; file++) {
        char *path;
        KOLO_TRY(kolo_reader_file(
            d->place, *file, "give the folder of the binary version, as it is unpacked", &path));
        kolo_status status = add_file(d, own, path, reader->classes);
        kolo_free(path);
        if (status != KOLO_OK) return status;
    }
    d->info.classes = reader->classes;
    kolo_dataset_set_fields(&d->info, KOLO_DTYPE_U8, (kolo_shape){3, {3, 32, 32}}, kolo_shape_0());
    kolo_reader_moments(reader, &d->info.fields[KOLO_FIELD_X]);
    return KOLO_OK;
}

kolo_status kolo_read_cifar10(const kolo_reader *reader, const char *argument, kolo_dataset *d) {
    return read_form(reader, &cifar10, argument, d);
}

kolo_status kolo_read_cifar100(const kolo_reader *reader, const char *argument, kolo_dataset *d) {
    return read_form(reader, &cifar100, argument, d);
}
