/* Data sets: checking what a reader filled in, gathering samples. */
#include "data/dataset.h"

#include "base/memory.h"
#include "base/status.h"

#include <inttypes.h>
#include <string.h>

/* Labels are indices into weights and gradients: none outside the classes may pass. */
static kolo_status check_labels(const kolo_dataset *d) {
    int32_t least = d->info.label.rank > 0 ? -1 : 0;
    for (int64_t i = 0; i < d->info.count * d->sample_labels; i++) {
        if (d->labels[i] < least || d->labels[i] >= d->info.classes) {
            return KOLO_FAIL(
                KOLO_ERR_FORMAT,
                "%s in %s: label %" PRId32 " of sample %" PRId64
                " is outside 0..%d: the file is damaged or belongs to another data set",
                d->info.name, d->info.place, d->labels[i], i / d->sample_labels,
                d->info.classes - 1);
        }
    }
    return KOLO_OK;
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
        bool tokens = d->info.dtype == KOLO_DTYPE_I32;
        KOLO_ASSERT(d->info.count > 0 && d->info.classes > 0 && d->info.place);
        KOLO_ASSERT(d->info.sample.rank == (tokens ? 1 : 3));
        KOLO_ASSERT(tokens || d->info.sample.dim[0] <= KOLO_MAX_CHANNELS);
        KOLO_ASSERT(d->gather || (d->samples && d->labels));
        d->sample_bytes =
            (size_t)kolo_shape_count(&d->info.sample) * kolo_dtype_bytes(d->info.dtype);
        d->sample_labels = kolo_shape_count(&d->info.label);
        if (d->labels) status = check_labels(d);
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
                                uint8_t *samples, int32_t *labels) {
    for (int64_t i = 0; i < n; i++) {
        if (indices[i] < 0 || indices[i] >= dataset->info.count) {
            return KOLO_FAIL(KOLO_ERR_ARG, "sample %" PRId64 " of %s, which has %" PRId64,
                             indices[i], dataset->info.name, dataset->info.count);
        }
    }
    if (dataset->gather) return dataset->gather(dataset, indices, n, samples, labels);
    size_t bytes = dataset->sample_bytes;
    int64_t each = dataset->sample_labels;
    for (int64_t i = 0; i < n; i++) {
        memcpy(samples + (size_t)i * bytes, dataset->samples + (size_t)indices[i] * bytes, bytes);
        memcpy(labels + i * each, dataset->labels + indices[i] * each,
               (size_t)each * sizeof *labels);
    }
    return KOLO_OK;
}
