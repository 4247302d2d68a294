/* Data sets: checking what a reader filled in, gathering samples. */
#include "data/dataset.h"

#include "base/memory.h"
#include "base/status.h"
#include "data/batch.h"

#include <inttypes.h>
#include <string.h>

/* Labels are indices into weights and gradients: none outside the classes may pass. */
static kolo_status check_labels(const kolo_dataset *d, int field) {
    const kolo_shape *shape = &d->info.fields[field].shape;
    const int32_t *labels = d->data[field], least = shape->rank > 0 ? -1 : 0;
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

const char *kolo_split_name(kolo_split split) {
    static const char *const names[] = {
#define NAME(code, name, help) name,
        KOLO_SPLIT_LIST(NAME)
#undef NAME
    };
    return (size_t)split < KOLO_COUNT(names) ? names[split] : "unknown";
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
        bool images = x->dtype == KOLO_DTYPE_U8;
        KOLO_ASSERT(d->info.count > 0 && d->info.classes > 0 && d->info.place);
        KOLO_ASSERT(d->info.n_fields >= 2 && x->shape.rank == (images ? 3 : 1));
        KOLO_ASSERT(!images || x->shape.dim[0] <= KOLO_MAX_CHANNELS);
        KOLO_ASSERT(d->gather || d->stream || (d->data[KOLO_FIELD_X] && d->data[KOLO_FIELD_Y]));
        for (int f = 0; f < d->info.n_fields; f++) {
            d->bytes[f] = kolo_field_bytes(&d->info.fields[f]);
        }
        bool labels = d->info.fields[KOLO_FIELD_Y].dtype == KOLO_DTYPE_I32;
        if (d->data[KOLO_FIELD_Y] && labels) status = check_labels(d, KOLO_FIELD_Y);
    }
    if (status != KOLO_OK) {
        kolo_dataset_close(d);
        return status;
    }
    *dataset = d;
    return KOLO_OK;
}

/* ---- samples of a program ---- */

static kolo_status gather_by_program(const kolo_dataset *d, const int64_t *indices, int64_t n,
                                     const kolo_draw *draw, void *const *data) {
    return d->by_program(d->own, indices, n, data);
}

static kolo_status check_field(const kolo_source *s, const char *set, int f) {
    const kolo_field *field = &s->fields[f];
    if (!field->name || !*field->name) {
        return KOLO_FAIL(KOLO_ERR_ARG, "field %d of %s has no name", f, set);
    }
    for (int other = 0; other < f; other++) {
        if (strcmp(s->fields[other].name, field->name) != 0) continue;
        return KOLO_FAIL(KOLO_ERR_ARG, "%s has two fields \"%s\"", set, field->name);
    }
    bool valid = (unsigned)field->dtype < KOLO_TENSOR_DTYPE_COUNT && field->shape.rank >= 0 &&
                 field->shape.rank < KOLO_MAX_RANK;
    int64_t room = PTRDIFF_MAX / 8 / s->count; /* of elements in a sample */
    for (int i = 0; valid && i < field->shape.rank; i++) {
        valid = field->shape.dim[i] > 0 && field->shape.dim[i] <= room;
        if (valid) room /= field->shape.dim[i];
    }
    if (!valid) {
        return KOLO_FAIL(
            KOLO_ERR_ARG,
            "field \"%s\" of %s: dtype %d or its shape of rank %d is invalid; a sample "
            "has at most %d dimensions, above 0",
            field->name, set, (int)field->dtype, field->shape.rank, KOLO_MAX_RANK - 1);
    }
    if (s->gather || s->data[f]) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "field \"%s\" of %s has no data: give it, or a gather callback",
                     field->name, set);
}

static kolo_status check_source(const kolo_source *s, const char *set) {
    if (s->count < 1) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s of %" PRId64 " samples: give 1 or more", set, s->count);
    }
    if (s->n_fields < 1 || s->n_fields > KOLO_MAX_FIELDS || !s->fields) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s of %d fields: give 1 to %d, and describe them", set,
                         s->fields ? s->n_fields : 0, KOLO_MAX_FIELDS);
    }
    if (s->classes < 0) return KOLO_FAIL(KOLO_ERR_ARG, "%s of %d classes", set, s->classes);
    for (int f = 0; f < s->n_fields; f++) KOLO_TRY(check_field(s, set, f));
    return KOLO_OK;
}

static kolo_status describe_source(kolo_dataset *d, const kolo_source *s, const char *name) {
    d->info.name = d->info.place = d->place = kolo_strdup(name);
    if (!d->place) return KOLO_NOMEM(strlen(name));
    d->info.count = s->count;
    d->info.classes = s->classes;
    for (int f = 0; f < s->n_fields; f++) {
        d->info.fields[f] = s->fields[f];
        d->info.fields[f].name = d->names[f] = kolo_strdup(s->fields[f].name);
        if (!d->names[f]) return KOLO_NOMEM(strlen(s->fields[f].name));
        d->info.n_fields = f + 1;
        d->bytes[f] = kolo_field_bytes(&d->info.fields[f]);
        d->data[f] = s->data[f];
    }
    if (s->gather) d->gather = gather_by_program;
    d->by_program = s->gather;
    d->own = s->arg;
    return KOLO_OK;
}

kolo_status kolo_dataset_create(const kolo_source *source, kolo_dataset **dataset) {
    if (!source || !dataset) {
        return KOLO_FAIL(KOLO_ERR_ARG, "no %s", source ? "place for a data set" : "samples");
    }
    const char *name = source->name ? source->name : "data of the program";
    KOLO_TRY(check_source(source, name));
    kolo_dataset *d = kolo_zalloc(sizeof *d);
    if (!d) return KOLO_NOMEM(sizeof *d);
    kolo_status status = describe_source(d, source, name);
    for (int f = 0; f < d->info.n_fields && status == KOLO_OK; f++) {
        const kolo_field *y = &d->info.fields[f];
        bool labels = !d->gather && strcmp(y->name, "y") == 0 && y->dtype == KOLO_DTYPE_I32;
        if (labels && d->info.classes > 0) status = check_labels(d, f);
    }
    if (status != KOLO_OK) {
        kolo_dataset_close(d);
        return status;
    }
    *dataset = d;
    return KOLO_OK;
}

/* ---- streams ---- */

kolo_status kolo_dataset_refuse_stream(const kolo_dataset *d, const char *what) {
    if (!d->stream) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "%s in %s is a stream, which training reads once and in order: %s needs data "
                     "with an end",
                     d->info.name, d->info.place, what);
}

/* Goes to a row of a text. Of those before it only the first one is read, for its header. */
static kolo_status go_to_row(const kolo_dataset *d, const kolo_stream_place *place) {
    kolo_dataset_stream *s = d->stream;
    bool there;
    kolo_feed_grows(s->source, false);
    KOLO_TRY(s->read_head(d, &there));
    kolo_feed_grows(s->source, true);
    if (there) KOLO_TRY(kolo_feed_go_to_line(s->source, place->bytes, &there));
    s->lines = place->lines;
    if (there) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT,
                     "%s: no row begins at byte %" PRIu64 ", after the %" PRId64
                     " samples that the run has used: is it the same file?",
                     d->info.place, place->bytes, place->samples);
}

/* Passes over the samples before a place of a stream that has just been opened. */
static kolo_status pass_over(const kolo_dataset *d, const kolo_stream_place *place) {
    kolo_dataset_stream *s = d->stream;
    const int64_t first = place->samples;
    bool there = true;
    if (s->record > 0) {
        KOLO_TRY(kolo_feed_skip(s->source, (uint64_t)first * s->record, &there));
    } else if (s->read_head && place->bytes > 0) {
        return go_to_row(d, place);
    } else {
        void *data[KOLO_MAX_FIELDS] = {NULL};
        s->repeats = true;
        kolo_feed_grows(s->source, false);
        for (int64_t i = 0; i < first && there; i++) KOLO_TRY(s->next(d, data, &there));
        kolo_feed_grows(s->source, true);
        s->repeats = false;
    }
    if (there) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT,
                     "%s has fewer than the %" PRId64 " samples that the run has used: is it the "
                     "same file?",
                     d->info.place, first);
}

kolo_stream_place kolo_dataset_place(const kolo_dataset *d, int64_t samples) {
    const kolo_dataset_stream *s = d->stream;
    kolo_stream_place place = {.samples = samples};
    if (!s->read_head || kolo_feed_is_pipe(s->path)) return place;
    place.bytes = kolo_feed_place(s->source);
    place.lines = s->lines;
    return place;
}

kolo_status kolo_dataset_begin(const kolo_dataset *d, const kolo_stream_place *place) {
    kolo_dataset_stream *s = d->stream;
    if (s->source) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s is a stream that has been read: open it again",
                         d->info.place);
    }
    KOLO_TRY(kolo_feed_open(s->path, s->follow, &s->source));
    s->first = place->samples;
    return place->samples > 0 && !kolo_feed_is_pipe(s->path) ? pass_over(d, place) : KOLO_OK;
}

kolo_status kolo_dataset_next(const kolo_dataset *d, int64_t n, void *const *data, int64_t *got,
                              int64_t *damaged) {
    bool more = true;
    d->stream->damaged = 0;
    *got = 0;
    while (*got < n && more) {
        void *at[KOLO_MAX_FIELDS] = {NULL};
        for (int f = 0; f < d->info.n_fields; f++) {
            at[f] = (char *)data[f] + (size_t)*got * d->bytes[f];
        }
        KOLO_TRY(d->stream->next(d, at, &more));
        *got += more;
    }
    *damaged = d->stream->damaged;
    return KOLO_OK;
}

/* ---- all data sets ---- */

void kolo_dataset_close(kolo_dataset *dataset) {
    if (!dataset) return;
    if (dataset->close) dataset->close(dataset);
    if (dataset->stream) kolo_feed_close(dataset->stream->source);
    kolo_free(dataset->stream);
    for (int f = 0; f < KOLO_MAX_FIELDS; f++) kolo_free(dataset->names[f]);
    kolo_free(dataset->place);
    kolo_free(dataset);
}

const kolo_dataset_info *kolo_dataset_describe(const kolo_dataset *dataset) {
    return &dataset->info;
}

kolo_status kolo_dataset_gather(const kolo_dataset *dataset, const int64_t *indices, int64_t n,
                                void *const *data) {
    return kolo_dataset_gather_for(dataset, indices, n, NULL, data);
}

kolo_status kolo_dataset_gather_for(const kolo_dataset *dataset, const int64_t *indices, int64_t n,
                                    const kolo_draw *draw, void *const *data) {
    KOLO_TRY(kolo_dataset_refuse_stream(dataset, "reading samples by their numbers"));
    for (int64_t i = 0; i < n; i++) {
        if (indices[i] < 0 || indices[i] >= dataset->info.count) {
            return KOLO_FAIL(KOLO_ERR_ARG, "sample %" PRId64 " of %s, which has %" PRId64,
                             indices[i], dataset->info.name, dataset->info.count);
        }
    }
    if (dataset->gather) return dataset->gather(dataset, indices, n, draw, data);
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
