/* MNIST-like data sets: four IDX files in one folder, images and labels of two splits, plain or
 * gzipped, with or without the suffix ".gz". */
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/readers/idx.h"
#include "data/readers/readers.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

typedef struct mnist {
    kolo_idx images, labels;
    int32_t *wide_labels; /* widened from the bytes of the file */
} mnist;

/* Samples of gzipped files are in memory, those of others are read as they are needed. */
static void close_mnist(kolo_dataset *d) {
    mnist *m = d->own;
    if (!m) return;
    kolo_idx_fini(&m->images);
    kolo_idx_fini(&m->labels);
    kolo_free(m->wide_labels);
    kolo_free(m);
}

/* Opens folder/file, else folder/file.gz. */
static kolo_status open_one(const char *folder, const char *file, kolo_idx_kind kind,
                            kolo_idx *idx) {
    char *plain = kolo_format("%s/%s", folder, file),
         *packed = kolo_format("%s/%s.gz", folder, file);
    struct stat st;
    kolo_status status;
    if (!plain || !packed) {
        status = KOLO_NOMEM(strlen(folder) + strlen(file));
    } else if (stat(plain, &st) == 0) {
        status = kolo_idx_open(plain, kind, idx);
    } else if (stat(packed, &st) == 0) {
        status = kolo_idx_open(packed, kind, idx);
    } else {
        status =
            KOLO_FAIL(KOLO_ERR_IO,
                      "%s: neither %s nor %s.gz exists: give the folder that holds the IDX files",
                      folder, file, file);
    }
    kolo_free(plain);
    kolo_free(packed);
    return status;
}

static kolo_status gather(const kolo_dataset *d, const int64_t *indices, int64_t n,
                          const kolo_draw *draw, void *const *data) {
    const mnist *m = d->own;
    const size_t bytes = d->bytes[KOLO_FIELD_X];
    uint8_t *x = data[KOLO_FIELD_X];
    int32_t *y = data[KOLO_FIELD_Y];
    for (int64_t i = 0; i < n; i++) {
        KOLO_TRY(
            kolo_idx_read(&m->images, (uint64_t)indices[i] * bytes, bytes, x + (size_t)i * bytes));
        y[i] = m->wide_labels[indices[i]];
    }
    return KOLO_OK;
}

/* Widens all labels from bytes. */
static kolo_status take_labels(mnist *m) {
    const size_t count = (size_t)m->labels.dim[0];
    uint8_t *bytes = kolo_alloc(count);
    m->wide_labels = kolo_alloc(count * sizeof *m->wide_labels);
    kolo_status status = bytes && m->wide_labels ? kolo_idx_read(&m->labels, 0, count, bytes)
                                                 : KOLO_NOMEM(count * sizeof *m->wide_labels);
    for (size_t i = 0; status == KOLO_OK && i < count; i++) m->wide_labels[i] = bytes[i];
    kolo_free(bytes);
    kolo_idx_fini(&m->labels);
    return status;
}

kolo_status kolo_read_mnist(const kolo_reader *reader, const char *argument, kolo_dataset *d) {
    KOLO_TRY(kolo_reader_folder(reader, argument, "the IDX files", d));
    const char *folder = d->place;
    d->close = close_mnist;
    mnist *m = d->own = kolo_zalloc(sizeof *m);
    if (!m) return KOLO_NOMEM(sizeof *m);

    bool train = d->info.split == KOLO_SPLIT_TRAIN;
    const char *images = train ? "train-images-idx3-ubyte" : "t10k-images-idx3-ubyte";
    const char *labels = train ? "train-labels-idx1-ubyte" : "t10k-labels-idx1-ubyte";
    KOLO_TRY(open_one(folder, labels, KOLO_IDX_LABELS, &m->labels));
    KOLO_TRY(open_one(folder, images, KOLO_IDX_IMAGES, &m->images));
    int64_t count = m->images.dim[0];
    if (m->labels.dim[0] != count) {
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "%s: %" PRId64 " images in %s but %" PRId64
                         " labels in %s: download both files again",
                         folder, count, images, m->labels.dim[0], labels);
    }
    KOLO_TRY(take_labels(m));
    const kolo_shape image = {3, {1, m->images.dim[1], m->images.dim[2]}};
    d->data[KOLO_FIELD_X] = m->images.data;
    d->data[KOLO_FIELD_Y] = m->wide_labels;
    if (!m->images.data) d->gather = gather;
    d->info.count = count;
    d->info.classes = reader->classes;
    kolo_dataset_set_fields(&d->info, KOLO_DTYPE_U8, image, kolo_shape_0());
    kolo_reader_moments(reader, &d->info.fields[KOLO_FIELD_X]);
    return KOLO_OK;
}
