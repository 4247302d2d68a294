/* Data sets: finding the reader of a name, checking what it filled, gathering samples. */
#include "data/dataset.h"

#include "base/compiler.h"
#include "base/memory.h"
#include "base/text.h"

#include <inttypes.h>
#include <string.h>

const kolo_reader kolo_readers[] = {
    {
        .name = "fashion-mnist",
        .argument = "[:DIR]",
        .help = "Fashion-MNIST, 28x28 grey images of 10 kinds of clothing",
        .open = kolo_read_mnist,
        .folder = "/usr/share/datasets/fashion-mnist",
        .package = "dataset-fashion-mnist",
        .classes = 10,
        .mean = 0.2860F,
        .std = 0.3530F,
    },
    {
        .name = "mnist",
        .argument = ":DIR",
        .help = "MNIST, 28x28 grey images of handwritten digits",
        .open = kolo_read_mnist,
        .classes = 10,
        .mean = 0.1307F,
        .std = 0.3081F,
    },
    {
        .name = "synthetic",
        .argument = "[:N=60000,test=10000,shape=1x28x28,classes=10,seed=0]",
        .help = "made in memory; one noisy pattern per class, so it can be learnt",
        .open = kolo_read_synthetic,
    },
    {
        .name = "synthetic-seg",
        .argument = "[:N=1000,test=200,shape=3x128x128,classes=5,seed=0]",
        .help = "made in memory; discs and boxes before a background, with a label for each pixel",
        .open = kolo_read_synthetic_seg,
    },
    {
        .name = "text",
        .argument = ":FILE",
        .help = "the bytes of a file as tokens",
        .open = kolo_read_tokens,
        .token_bytes = 1,
    },
    {
        .name = "tokens",
        .argument = ":FILE or :DIR",
        .help = "tokens of two bytes in a file (of four in *.u32), or in train.bin and val.bin",
        .open = kolo_read_tokens,
        .token_bytes = 2,
    },
    {
        .name = "synthetic-tokens",
        .argument = "[:N=65536,test=1024,seed=0]",
        .help = "windows of made-up tokens, most of which follow from the one before",
        .open = kolo_read_synthetic_tokens,
    },
    {.name = NULL},
};

static kolo_status unknown_name(const char *name) {
    const char *names[KOLO_COUNT(kolo_readers)] = {NULL};
    kolo_text known = {0};
    for (size_t i = 0; kolo_readers[i].name; i++) {
        names[i] = kolo_readers[i].name;
        kolo_text_add(&known, "%s%s", i ? ", " : "", names[i]);
    }
    const char *closest = kolo_closest(name, names);
    kolo_status status =
        closest
            ? KOLO_FAIL(KOLO_ERR_ARG, "unknown data set \"%s\": did you mean %s?", name, closest)
            : KOLO_FAIL(KOLO_ERR_ARG, "unknown data set \"%s\": known are %s", name,
                        known.failed ? "fashion-mnist" : known.text);
    kolo_text_fini(&known);
    return status;
}

kolo_status kolo_dataset_open(const char *spec, kolo_split split, kolo_dataset **dataset) {
    return kolo_dataset_open_for(spec, split, NULL, dataset);
}

kolo_status kolo_dataset_open_for(const char *spec, kolo_split split, const kolo_dataset_opts *opts,
                                  kolo_dataset **dataset) {
    if (!spec || !*spec) {
        return KOLO_FAIL(KOLO_ERR_ARG, "no data set named: write for example fashion-mnist");
    }
    const char *colon = strchr(spec, ':');
    size_t length = colon ? (size_t)(colon - spec) : strlen(spec);
    for (const kolo_reader *r = kolo_readers; r->name; r++) {
        if (strlen(r->name) == length && strncmp(r->name, spec, length) == 0) {
            return kolo_dataset_open_with(r, colon ? colon + 1 : NULL, split, opts, dataset);
        }
    }
    char name[64];
    size_t shown = length < sizeof name ? length : sizeof name - 1;
    memcpy(name, spec, shown);
    name[shown] = '\0';
    return unknown_name(name);
}

/* Labels decide which weights a step touches: none outside the classes gets past here. */
static kolo_status check_labels(const kolo_dataset *d) {
    int32_t least = d->info.label.rank > 0 ? -1 : 0;
    for (int64_t i = 0; i < d->info.count * d->sample_labels; i++) {
        if (d->labels[i] < least || d->labels[i] >= d->info.classes) {
            return KOLO_FAIL(KOLO_ERR_FORMAT,
                             "%s in %s: label %" PRId32 " of sample %" PRId64
                             " is outside 0..%d: the file is damaged or of another data set",
                             d->info.name, d->info.place, d->labels[i], i / d->sample_labels,
                             d->info.classes - 1);
        }
    }
    return KOLO_OK;
}

kolo_status kolo_dataset_open_with(const kolo_reader *reader, const char *argument,
                                   kolo_split split, const kolo_dataset_opts *opts,
                                   kolo_dataset **dataset) {
    if (split != KOLO_SPLIT_TRAIN && split != KOLO_SPLIT_TEST) {
        return KOLO_FAIL(KOLO_ERR_ARG, "split %d of data set %s: there are train and test",
                         (int)split, reader->name);
    }
    kolo_dataset *d = kolo_zalloc(sizeof *d);
    if (!d) return KOLO_NOMEM(sizeof *d);
    d->info.name = reader->name;
    d->info.split = split;
    if (opts) d->opts = *opts;
    kolo_status status =
        d->opts.pairs ? kolo_pairs_open(reader, argument, d) : reader->open(reader, argument, d);
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
            return KOLO_FAIL(KOLO_ERR_ARG, "sample %" PRId64 " of %s: it holds %" PRId64,
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
