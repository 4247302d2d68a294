/* Data sets: checking what a reader filled in, gathering samples. */
#include "data/dataset.h"

#include "base/memory.h"
#include "base/status.h"
#include "data/batch.h"

#include <inttypes.h>
#include <string.h>

/* Labels are indices into weights and gradients: none outside the classes may pass. */
static kolo_status check_labels(const kolo_dataset *d) {
    const kolo_shape *shape = &d->info.fields[KOLO_FIELD_Y].shape;
    const int32_t *labels = d->data[KOLO_FIELD_Y], least = shape->rank > 0 ? -1 : 0;
    int64_t each = kolo_shape_count(shape);
    for (int64_t i = 0; i < d->info.count * each; i++) {
        if (labels[i] < least || labels[i] >= d->info.classes) {
            return KOLO_FAIL(
                KOLO_ERR_FORMAT,
                "%s in %s: label %" PRId32 " of sample %" PRId64
                " is outside 0..%d: the file is damaged or belongs to another data set",
                d->info.name, d->info.place, labels[i], i / each, d->info.classes - 1);
        }
    }
    return KOLO_OK;
}

void kolo_dataset_set_fields(kolo_dataset_info *info, kolo_dtype dtype, kolo_shape sample,
                             kolo_shape label) {
    info->n_fields = 2;
    info->fields[KOLO_FIELD_X] = (kolo_field){.name = "x", .dtype = dtype, .shape = sample};
    info->fields[KOLO_FIELD_Y] = (kolo_field){.name = "y", .dtype = KOLO_DTYPE_I32, .shape = label};
}

kolo_status kolo_dataset_open_with(const kolo_reader *reader, kolo_reader_open *open,
                                   const char *argument, kolo_split split,
                                   const kolo_dataset_opts *opts, kolo_dataset **dataset) {
    if (split != KOLO_SPLIT_TRAIN && split != KOLO_SPLIT_TEST) {
        return KOLO_FAIL(KOLO_ERR_ARG, "split %d of data set %s: choose train or test", (int)split,
                         reader->name);
    }
    kolo_dataset *d = kolo_zalloc(sizeof *d);
    if (!d) return KOLO_NOMEM(sizeof *d);
    d->info.name = reader->name;
    d->info.split = split;
    if (opts) d->opts = *opts;
    kolo_status status = open(reader, argument, d);
    if (status == KOLO_OK) {
        const kolo_field *x = &d->info.fields[KOLO_FIELD_X];
        bool tokens = x->dtype == KOLO_DTYPE_I32;
        KOLO_ASSERT(d->info.count > 0 && d->info.classes > 0 && d->info.place);
        KOLO_ASSERT(d->info.n_fields == 2 && x->shape.rank == (tokens ? 1 : 3));
        KOLO_ASSERT(tokens || x->shape.dim[0] <= KOLO_MAX_CHANNELS);
        KOLO_ASSERT(d->gather || (d->data[KOLO_FIELD_X] && d->data[KOLO_FIELD_Y]));
        for (int f = 0; f < d->info.n_fields; f++) {
            d->bytes[f] = kolo_field_bytes(&d->info.fields[f]);
        }
        if (!d->gather) status = check_labels(d);
    }
    if (status != KOLO_OK) {
        kolo_dataset_close(d);
        return status;
    }
    *dataset = d;
    return KOLO_OK;
}

void kolo_dataset_close(kolo_dataset *dataset) {
    if (!dataset) return;
    if (dataset->close) dataset->close(dataset);
    kolo_free(dataset->place);
    kolo_free(dataset);
}

const kolo_dataset_info *kolo_dataset_describe(const kolo_dataset *dataset) {
    return &dataset->info;
}

kolo_status kolo_dataset_gather(const kolo_dataset *dataset, const int64_t *indices, int64_t n,
                                void *const *data) {
    for (int64_t i = 0; i < n; i++) {
        if (indices[i] < 0 || indices[i] >= dataset->info.count) {
            return KOLO_FAIL(KOLO_ERR_ARG, "sample %" PRId64 " of %s, which has %" PRId64,
                             indices[i], dataset->info.name, dataset->info.count);
        }
    }
    if (dataset->gather) return dataset->gather(dataset, indices, n, data);
    for (int f = 0; f < dataset->info.n_fields; f++) {
        const char *from = dataset->data[f];
        char *to = data[f];
        size_t bytes = dataset->bytes[f];
        for (int64_t i = 0; i < n; i++) {
            memcpy(to + (size_t)i * bytes, from + (size_t)indices[i] * bytes, bytes);
        }
    }
    return KOLO_OK;
}
