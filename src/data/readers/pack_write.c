/* Packing data sets. Tensors grow at the same time, each through a buffer of one block; how long
 * encoded ones are is found by reading, and with `seekable` rewriting, all files once before. */
#include "base/file.h"
#include "base/integer.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/rng.h"
#include "base/text.h"
#include "data/batch.h"
#include "data/images/image.h"
#include "data/readers/images.h"
#include "data/readers/pack.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PARTS = 4 };

/* A tensor that is written from its beginning to its end, and its blocks. */
typedef struct stream {
    int tensor; /* of the file; its blocks are the next one */
    size_t element, bytes, done;
    uint8_t *buffer;
    size_t filled;
    uint64_t *hashes;
} stream;

typedef struct packer {
    kolo_safetensors_writer *writer;
    int tensors;
    stream parts[2][PARTS]; /* by split */
    int64_t *ends[2][2];    /* of encoded images and masks, by split */
    const kolo_pack_opts *opts;
} packer;

static const char *const splits[] = {[KOLO_SPLIT_TRAIN] = "train", [KOLO_SPLIT_TEST] = "test"};

/* ---- streams ---- */

static size_t blocks_of(size_t bytes) { return (bytes + KOLO_PACK_BLOCK - 1) / KOLO_PACK_BLOCK; }

static kolo_status declare(packer *p, int split, int part, const char *name, kolo_dtype dtype,
                           const kolo_shape *shape) {
    stream *s = &p->parts[split][part];
    char tensor[48], blocks[64];
    snprintf(tensor, sizeof tensor, "%s.%s", splits[split], name);
    snprintf(blocks, sizeof blocks, "%s.blocks", tensor);
    s->tensor = p->tensors;
    s->element = kolo_dtype_bytes(dtype);
    s->bytes = (size_t)kolo_shape_count(shape) * s->element;
    const size_t n = blocks_of(s->bytes);
    s->buffer = kolo_alloc(KOLO_PACK_BLOCK);
    s->hashes = kolo_alloc((n + 1) * sizeof *s->hashes);
    if (!s->buffer || !s->hashes) return KOLO_NOMEM(KOLO_PACK_BLOCK);
    p->tensors += 2;
    KOLO_TRY(kolo_safetensors_declare(p->writer, tensor, dtype, shape));
    return kolo_safetensors_declare(p->writer, blocks, KOLO_DTYPE_I64,
                                    &(kolo_shape){1, {(int64_t)n}});
}

static kolo_status flush(packer *p, stream *s) {
    if (s->filled == 0) return KOLO_OK;
    s->hashes[s->done / KOLO_PACK_BLOCK] = kolo_hash_bytes(s->buffer, s->filled);
    KOLO_TRY(kolo_safetensors_put(p->writer, s->tensor, (int64_t)(s->done / s->element),
                                  (int64_t)(s->filled / s->element), s->buffer));
    s->done += s->filled;
    s->filled = 0;
    return KOLO_OK;
}

static kolo_status append(packer *p, stream *s, const void *data, size_t bytes) {
    const uint8_t *from = data;
    while (bytes > 0) {
        const size_t room = KOLO_PACK_BLOCK - s->filled, n = bytes < room ? bytes : room;
        memcpy(s->buffer + s->filled, from, n);
        s->filled += n;
        from += n;
        bytes -= n;
        if (s->filled == KOLO_PACK_BLOCK) KOLO_TRY(flush(p, s));
    }
    return KOLO_OK;
}

/* A file that has changed since its length was read would leave a hole. */
static kolo_status end_stream(packer *p, stream *s) {
    if (!s->buffer) return KOLO_OK;
    KOLO_TRY(flush(p, s));
    if (s->done != s->bytes) {
        return KOLO_FAIL(KOLO_ERR_IO, "a file of the data set changed while it was packed");
    }
    const int64_t n = (int64_t)blocks_of(s->bytes);
    return n > 0 ? kolo_safetensors_put(p->writer, s->tensor + 1, 0, n, s->hashes) : KOLO_OK;
}

/* ---- encoded ---- */

static kolo_images_fetch *fetch_of(const kolo_dataset *d, int which) {
    const kolo_images *images = d->own;
    return which == 0 ? images->fetch : images->fetch_mask;
}

/* Reads the bytes of a file, as they are packed. */
static kolo_status fetch(const packer *p, const kolo_dataset *d, int which, int64_t i,
                         kolo_encoded *e) {
    uint8_t *bytes;
    size_t length;
    KOLO_TRY(fetch_of(d, which)(d->own, i, e));
    if (!p->opts->seekable || which != 0) return KOLO_OK;
    KOLO_TRY(kolo_image_make_seekable((const uint8_t *)e->bytes, e->length, &bytes, &length));
    if (!bytes) return KOLO_OK;
    kolo_free(e->bytes);
    e->bytes = (char *)bytes;
    e->length = length;
    return KOLO_OK;
}

/* Before each sample. */
static kolo_status check_stop(const packer *p) {
    const kolo_pack_opts *o = p->opts;
    if (!o->stopped || !o->stopped(o->stopped_arg)) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_IO, "packing was stopped: nothing is written");
}

/* Calls `each` with the bytes of each file. */
static kolo_status each_file(const kolo_dataset *d, int which, packer *p,
                             kolo_status (*each)(packer *p, const kolo_dataset *d, int which,
                                                 int64_t i, const kolo_encoded *e)) {
    for (int64_t i = 0; i < d->info.count; i++) {
        kolo_encoded e = {0};
        KOLO_TRY(check_stop(p));
        kolo_status status = fetch(p, d, which, i, &e);
        if (status == KOLO_OK) status = each(p, d, which, i, &e);
        kolo_free(e.name);
        kolo_free(e.bytes);
        KOLO_TRY(status);
    }
    return KOLO_OK;
}

static kolo_status add_length(packer *p, const kolo_dataset *d, int which, int64_t i,
                              const kolo_encoded *e) {
    int64_t *ends = p->ends[d->info.split][which];
    ends[i] = (i > 0 ? ends[i - 1] : 0) + (int64_t)e->length;
    return KOLO_OK;
}

static kolo_status add_file(packer *p, const kolo_dataset *d, int which, int64_t i,
                            const kolo_encoded *e) {
    const int64_t *ends = p->ends[d->info.split][which];
    if (ends[i] - (i > 0 ? ends[i - 1] : 0) != (int64_t)e->length) {
        return KOLO_FAIL(KOLO_ERR_IO, "%s: it changed while it was packed", e->name);
    }
    return append(p, &p->parts[d->info.split][2 * which], e->bytes, e->length);
}

static kolo_status declare_encoded(packer *p, const kolo_dataset *d) {
    static const char *const names[2][2] = {{"images", "ends"}, {"masks", "mask_ends"}};
    const int split = (int)d->info.split;
    const kolo_shape count = {1, {d->info.count}};
    for (int which = 0; which < 2 && fetch_of(d, which); which++) {
        const size_t bytes = (size_t)d->info.count * sizeof(int64_t);
        int64_t *ends = p->ends[split][which] = kolo_alloc(bytes);
        if (!ends) return KOLO_NOMEM(bytes);
        KOLO_TRY(each_file(d, which, p, add_length));
        const kolo_shape all = {1, {ends[d->info.count - 1]}};
        KOLO_TRY(declare(p, split, 2 * which, names[which][0], KOLO_DTYPE_U8, &all));
        KOLO_TRY(declare(p, split, 2 * which + 1, names[which][1], KOLO_DTYPE_I64, &count));
    }
    if (fetch_of(d, 1)) return KOLO_OK;
    return declare(p, split, 2, "labels", KOLO_DTYPE_I32, &count);
}

static kolo_status write_encoded(packer *p, const kolo_dataset *d) {
    const kolo_images *images = d->own;
    stream *parts = p->parts[d->info.split];
    const size_t count = (size_t)d->info.count;
    for (int which = 0; which < 2 && fetch_of(d, which); which++) {
        KOLO_TRY(each_file(d, which, p, add_file));
        KOLO_TRY(append(p, &parts[2 * which + 1], p->ends[d->info.split][which],
                        count * sizeof(int64_t)));
    }
    if (fetch_of(d, 1)) return KOLO_OK;
    return append(p, &parts[2], images->labels, count * sizeof *images->labels);
}

/* ---- decoded ---- */

static kolo_status declare_decoded(packer *p, const kolo_dataset *d) {
    for (int f = 0; f < 2; f++) {
        const kolo_field *field = &d->info.fields[f];
        kolo_shape shape = {field->shape.rank + 1, {d->info.count}};
        for (int i = 0; i < field->shape.rank; i++) shape.dim[i + 1] = field->shape.dim[i];
        KOLO_TRY(declare(p, (int)d->info.split, f, field->name, field->dtype, &shape));
    }
    return KOLO_OK;
}

static kolo_status write_decoded(packer *p, const kolo_dataset *d) {
    size_t bytes[2];
    void *sample[2] = {NULL};
    kolo_status status = KOLO_OK;
    for (int f = 0; f < 2 && status == KOLO_OK; f++) {
        bytes[f] = kolo_field_bytes(&d->info.fields[f]);
        sample[f] = kolo_alloc(bytes[f]);
        if (!sample[f]) status = KOLO_NOMEM(bytes[f]);
    }
    for (int64_t i = 0; i < d->info.count && status == KOLO_OK; i++) {
        status = check_stop(p);
        if (status == KOLO_OK) status = kolo_dataset_gather(d, &i, 1, sample);
        for (int f = 0; f < 2 && status == KOLO_OK; f++) {
            status = append(p, &p->parts[d->info.split][f], sample[f], bytes[f]);
        }
    }
    for (int f = 0; f < 2; f++) kolo_free(sample[f]);
    return status;
}

/* ---- file ---- */

static kolo_status set_moments(packer *p, const char *key, const float *moments, int64_t n) {
    kolo_text text = {0};
    for (int64_t c = 0; c < n; c++) {
        char digits[32];
        kolo_double_text((double)moments[c], digits);
        kolo_text_add(&text, "%s%s", c ? " " : "", digits);
    }
    kolo_status status =
        text.failed ? KOLO_NOMEM(text.length) : kolo_safetensors_set(p->writer, key, text.text);
    kolo_text_fini(&text);
    return status;
}

static kolo_status set_metadata(packer *p, const kolo_dataset *d, bool decoded) {
    const kolo_field *x = &d->info.fields[KOLO_FIELD_X];
    const bool images = x->dtype == KOLO_DTYPE_U8;
    char text[64];
    snprintf(text, sizeof text, "%d", (int)KOLO_PACK_VERSION);
    KOLO_TRY(kolo_safetensors_set(p->writer, "kolo_pack", text));
    KOLO_TRY(kolo_safetensors_set(p->writer, "kind", d->info.name));
    snprintf(text, sizeof text, "%d", d->info.classes);
    KOLO_TRY(kolo_safetensors_set(p->writer, "classes", text));
    if (images) KOLO_TRY(set_moments(p, "mean", x->mean, x->shape.dim[0]));
    if (images) KOLO_TRY(set_moments(p, "std", x->std, x->shape.dim[0]));
    if (decoded) return KOLO_OK;
    snprintf(text, sizeof text, "%" PRId64 "x%" PRId64, x->shape.dim[1], x->shape.dim[2]);
    return kolo_safetensors_set(p->writer, "size", text);
}

/* Before the first byte: what was declared must fit beside a file that is replaced. */
static kolo_status check_space(const packer *p, const char *path) {
    uint64_t space;
    double bytes = 0;
    for (int s = 0; s < 2; s++) {
        for (int i = 0; i < PARTS; i++) bytes += (double)p->parts[s][i].bytes;
    }
    if (!kolo_file_space(path, &space) || bytes <= (double)space) return KOLO_OK;
    char all[32], left[32];
    return KOLO_FAIL(KOLO_ERR_IO,
                     "%s: the pack takes %s, and %s are free: free some space, or choose another "
                     "disk",
                     path, kolo_bytes_text(bytes, all), kolo_bytes_text((double)space, left));
}

static kolo_status write_all(packer *p, const kolo_dataset *const *sets, bool decoded,
                             const char *path) {
    kolo_safetensors_place place;
    const kolo_dataset *one = sets[0] ? sets[0] : sets[1];
    KOLO_ASSERT(one);
    KOLO_TRY(set_metadata(p, one, decoded));
    for (int s = 0; s < 2; s++) {
        if (!sets[s]) continue;
        KOLO_TRY(decoded ? declare_decoded(p, sets[s]) : declare_encoded(p, sets[s]));
    }
    KOLO_TRY(check_space(p, path));
    KOLO_TRY(kolo_safetensors_begin(p->writer, &place));
    kolo_free(place.temporary);
    for (int s = 0; s < 2; s++) {
        if (!sets[s]) continue;
        KOLO_TRY(decoded ? write_decoded(p, sets[s]) : write_encoded(p, sets[s]));
        for (int i = 0; i < PARTS; i++) KOLO_TRY(end_stream(p, &p->parts[s][i]));
    }
    return KOLO_OK;
}

static kolo_status check(const kolo_dataset *d) {
    const kolo_dtype x = d->info.fields[KOLO_FIELD_X].dtype;
    if (d->info.n_fields == 2 && (x == KOLO_DTYPE_U8 || x == KOLO_DTYPE_F32)) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "%s cannot be packed: images and tables can; tokens, click logs and labelled "
                     "texts are read from their own files",
                     d->info.name);
}

static bool same_moments(const kolo_field *a, const kolo_field *b) {
    for (int c = 0; c < KOLO_MAX_CHANNELS; c++) {
        if (a->mean[c] != b->mean[c] || a->std[c] != b->std[c]) return false;
    }
    return true;
}

/* The metadata, and the shape of a sample, are those of both splits. */
static kolo_status check_match(const kolo_dataset *train, const kolo_dataset *test) {
    const kolo_dataset_info *a = &train->info, *b = &test->info;
    const kolo_field *x[] = {&a->fields[KOLO_FIELD_X], &b->fields[KOLO_FIELD_X]};
    const kolo_field *y[] = {&a->fields[KOLO_FIELD_Y], &b->fields[KOLO_FIELD_Y]};
    char texts[2][KOLO_SHAPE_TEXT];
    if (!kolo_shape_equal(&x[0]->shape, &x[1]->shape) ||
        !kolo_shape_equal(&y[0]->shape, &y[1]->shape) || a->classes != b->classes) {
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "%s: training samples are %s in %d classes, test samples %s in %d: the "
                         "files do not match: pack one split (--split)",
                         a->place, kolo_shape_text(&x[0]->shape, texts[0]), a->classes,
                         kolo_shape_text(&x[1]->shape, texts[1]), b->classes);
    }
    if (strcmp(a->name, b->name) == 0 && train->encoded == test->encoded &&
        x[0]->dtype == x[1]->dtype && y[0]->dtype == y[1]->dtype && same_moments(x[0], x[1])) {
        return KOLO_OK;
    }
    return KOLO_FAIL(KOLO_ERR_FORMAT,
                     "%s: the splits differ in their kind, or in mean and std: pack one split "
                     "(--split)",
                     a->place);
}

/* Whether `sets`, of which one may be NULL, can be packed like this. */
static kolo_status check_sets(const kolo_dataset *const *sets, const kolo_pack_opts *o,
                              const char *path) {
    for (int s = 0; s < 2; s++) {
        if (!sets[s]) continue;
        KOLO_TRY(check(sets[s]));
        if (kolo_file_same(path, sets[s]->info.place)) {
            return KOLO_FAIL(KOLO_ERR_ARG, "%s is the file that is packed: choose another file",
                             path);
        }
        if ((o->decoded || o->seekable) && !sets[s]->encoded) {
            return KOLO_FAIL(KOLO_ERR_ARG,
                             "--%s has no effect on %s, whose samples are not encoded: omit it",
                             o->decoded ? "decoded" : "seekable", sets[s]->info.name);
        }
    }
    return sets[0] && sets[1] ? check_match(sets[0], sets[1]) : KOLO_OK;
}

/* Whether a file is a pack, which may be damaged, or empty. Headers begin with the version. */
static bool is_pack(const char *path) {
    static const char first[] = "{\"__metadata__\":{\"kolo_pack\":";
    char begin[sizeof(uint64_t) + sizeof first - 1];
    kolo_file *file;
    if (kolo_file_open(path, &file) != KOLO_OK) return false;
    bool is = kolo_file_bytes(file) == 0;
    if (kolo_file_bytes(file) >= sizeof begin) {
        is = kolo_file_read_at(file, 0, begin, sizeof begin) == KOLO_OK &&
             memcmp(begin + sizeof(uint64_t), first, sizeof first - 1) == 0;
    }
    kolo_file_close(file);
    return is;
}

/* Only packs are replaced: another file may belong to the data set that is packed. */
static kolo_status check_replaced(const char *path) {
    if (!kolo_name_exists(path) || is_pack(path)) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "%s exists and is no packed data set, so --replace does not replace it: "
                     "remove it, or choose another file",
                     path);
}

/* Packs the splits, of which one may be NULL. */
static kolo_status write_pack(const kolo_dataset *const *sets, const kolo_pack_opts *o,
                              const char *path) {
    packer p = {.opts = o};
    KOLO_TRY(check_sets(sets, o, path));
    if (o->replace) KOLO_TRY(check_replaced(path));
    const bool decoded = o->decoded || !(sets[0] ? sets[0] : sets[1])->encoded;
    KOLO_TRY(kolo_file_sweep(path));
    KOLO_TRY(kolo_safetensors_create(path, &p.writer));
    kolo_status status = write_all(&p, sets, decoded, path);
    if (status == KOLO_OK) {
        status =
            o->replace ? kolo_safetensors_finish(p.writer) : kolo_safetensors_finish_new(p.writer);
    }
    kolo_safetensors_destroy(p.writer);
    for (int s = 0; s < 2; s++) {
        for (int i = 0; i < 2; i++) kolo_free(p.ends[s][i]);
        for (int i = 0; i < PARTS; i++) {
            kolo_free(p.parts[s][i].buffer);
            kolo_free(p.parts[s][i].hashes);
        }
    }
    return status;
}

/* The splits of a data set by name. What a model would choose is only there to name data that are
 * not packed. */
static kolo_status pack_splits(const char *spec, const kolo_pack_opts *o, const char *path) {
    static const kolo_dataset_opts any = {.context = 1,
                                          .vocabulary = INT32_MAX,
                                          .numbers = 13,
                                          .categories = 26,
                                          .rows = 10000,
                                          .features = 1};
    kolo_dataset *sets[2] = {NULL};
    kolo_status status = KOLO_OK;
    for (int s = 0; s < 2 && status == KOLO_OK; s++) {
        if (s == 0 ? !o->no_train : !o->no_test) {
            status = kolo_dataset_open_for(spec, (kolo_split)s, &any, &sets[s]);
            if (status == KOLO_OK) status = kolo_dataset_refuse_stream(sets[s], "packing");
        }
    }
    if (status == KOLO_OK) status = write_pack((const kolo_dataset *const *)sets, o, path);
    for (int s = 0; s < 2; s++) kolo_dataset_close(sets[s]);
    return status;
}

kolo_status kolo_dataset_pack(const char *spec, const kolo_pack_opts *opts, const char *path) {
    const kolo_pack_opts o = opts ? *opts : (kolo_pack_opts){0};
    if (!path || !*path || (o.no_train && o.no_test)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "to pack takes a file and a split");
    }
    if (o.decoded && o.seekable) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "--seekable is of encoded images, --decoded of their pixels: omit one");
    }
    bool exists = !o.replace && kolo_name_exists(path);
    kolo_status status = exists ? KOLO_ERR_IO : pack_splits(spec, &o, path);
    /* It may have come to exist while the file was written. */
    if (status == KOLO_ERR_IO && !o.replace) exists = kolo_name_exists(path);
    if (!exists) return status;
    return KOLO_FAIL(KOLO_ERR_IO, "%s exists: choose another file%s", path,
                     is_pack(path) ? ", or replace it (--replace)" : "");
}
