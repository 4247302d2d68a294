/* The reader of packed data sets. */
#include "data/readers/pack.h"

#include "base/compiler.h"
#include "base/integer.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/rng.h"
#include "base/text.h"
#include "data/readers/images.h"
#include "data/readers/readers.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CLASSES = 1 << 24, PARTS = 5 };

/* A tensor and its blocks. */
typedef struct part {
    const kolo_safetensors_entry *entry;
    uint64_t *hashes;
    atomic_uchar *good; /* blocks that were checked */
} part;

typedef struct pack {
    kolo_images images; /* of encoded ones */
    kolo_safetensors *file;
    bool owns;
    const char *path;
    part parts[PARTS];
    int n_parts;
    const part *x, *y;         /* decoded */
    const part *bytes, *masks; /* encoded */
    int64_t *ends, *mask_ends; /* where their images and masks end */
} pack;

static void close_pack(kolo_dataset *d) {
    pack *own = d->own;
    if (!own) return;
    kolo_images_fini(&own->images);
    for (int i = 0; i < own->n_parts; i++) {
        kolo_free(own->parts[i].hashes);
        kolo_free(own->parts[i].good);
    }
    kolo_free(own->ends);
    kolo_free(own->mask_ends);
    if (own->owns) kolo_safetensors_close(own->file);
    kolo_free(own);
}

/* ---- blocks ---- */

/* Reads bytes of a tensor. IO, not FORMAT: a damaged pack is no damaged image, which may be
 * skipped. */
static kolo_status read_part(const pack *own, const kolo_safetensors_entry *e, size_t first,
                             void *to, size_t n) {
    const kolo_status status = kolo_safetensors_read(own->file, e, first, to, n);
    if (status != KOLO_ERR_FORMAT) return status;
    return KOLO_FAIL(KOLO_ERR_IO, "%s", kolo_last_error());
}

/* Reads block b into `room`, of KOLO_PACK_BLOCK bytes, and compares its hash. */
static kolo_status check_block(const pack *own, const part *p, size_t b, uint8_t *room) {
    const size_t at = b * KOLO_PACK_BLOCK, rest = p->entry->bytes - at;
    const size_t n = rest < KOLO_PACK_BLOCK ? rest : KOLO_PACK_BLOCK;
    KOLO_TRY(read_part(own, p->entry, at, room, n));
    if (kolo_hash_bytes(room, n) != p->hashes[b]) {
        return KOLO_FAIL(KOLO_ERR_IO,
                         "%s: block %zu of tensor \"%s\" is damaged: pack the data set again",
                         own->path, b, p->entry->name);
    }
    atomic_store_explicit(&p->good[b], 1, memory_order_relaxed);
    return KOLO_OK;
}

static kolo_status check_new_block(const pack *own, const part *p, size_t b) {
    uint8_t *room = kolo_alloc(KOLO_PACK_BLOCK);
    if (!room) return KOLO_NOMEM(KOLO_PACK_BLOCK);
    const kolo_status status = check_block(own, p, b, room);
    kolo_free(room);
    return status;
}

/* Reads bytes [first, first + n), and checks the blocks of them that were not checked before. */
static kolo_status read_checked(const pack *own, const part *p, size_t first, void *to, size_t n) {
    if (n == 0) return KOLO_OK;
    for (size_t b = first / KOLO_PACK_BLOCK; b <= (first + n - 1) / KOLO_PACK_BLOCK; b++) {
        if (atomic_load_explicit(&p->good[b], memory_order_relaxed)) continue;
        KOLO_TRY(check_new_block(own, p, b));
    }
    return read_part(own, p->entry, first, to, n);
}

/* The tensor NAME of the split, with its blocks. */
static kolo_status find_part(const kolo_dataset *d, pack *own, const char *name, const part **to) {
    char tensor[48], blocks[64];
    snprintf(tensor, sizeof tensor, "%s.%s", d->info.split == KOLO_SPLIT_TRAIN ? "train" : "test",
             name);
    snprintf(blocks, sizeof blocks, "%s.blocks", tensor);
    const kolo_safetensors_entry *e = kolo_safetensors_find(own->file, tensor);
    const kolo_safetensors_entry *h = kolo_safetensors_find(own->file, blocks);
    const size_t n = e ? (e->bytes + KOLO_PACK_BLOCK - 1) / KOLO_PACK_BLOCK : 0;
    if (!e || !h || h->dtype != KOLO_DTYPE_I64 || h->bytes != n * sizeof(int64_t)) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: tensor \"%s\" or its blocks are missing: damaged",
                         own->path, tensor);
    }
    part *p = &own->parts[own->n_parts];
    *p = (part){e, kolo_alloc(h->bytes + 1), kolo_zalloc(n + 1)};
    own->n_parts++;
    if (!p->hashes || !p->good) return KOLO_NOMEM(h->bytes);
    *to = p;
    return read_part(own, h, 0, p->hashes, h->bytes);
}

static kolo_status fail_shape(const pack *own, const part *p) {
    return KOLO_FAIL(KOLO_ERR_FORMAT,
                     "%s: tensor \"%s\" does not fit the others of the data set: damaged",
                     own->path, p->entry->name);
}

/* ---- decoded ---- */

static kolo_status check_labels(const kolo_dataset *d, const int32_t *labels, int64_t n) {
    const pack *own = d->own;
    const int32_t least = d->info.fields[KOLO_FIELD_Y].shape.rank > 0 ? -1 : 0;
    for (int64_t i = 0; i < n; i++) {
        if (labels[i] >= least && labels[i] < d->info.classes) continue;
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: label %" PRId32 " is outside 0..%d: damaged",
                         own->path, labels[i], d->info.classes - 1);
    }
    return KOLO_OK;
}

static kolo_status gather(const kolo_dataset *d, const int64_t *indices, int64_t n,
                          const kolo_draw *draw, void *const *data) {
    const pack *own = d->own;
    const part *const parts[] = {[KOLO_FIELD_X] = own->x, [KOLO_FIELD_Y] = own->y};
    for (int f = 0; f < 2; f++) {
        const size_t bytes = d->bytes[f];
        const bool labels = f == KOLO_FIELD_Y && d->info.fields[f].dtype == KOLO_DTYPE_I32;
        for (int64_t i = 0; i < n; i++) {
            char *to = (char *)data[f] + (size_t)i * bytes;
            KOLO_TRY(read_checked(own, parts[f], (size_t)indices[i] * bytes, to, bytes));
            if (!labels) continue;
            KOLO_TRY(check_labels(d, (const int32_t *)(const void *)to,
                                  (int64_t)(bytes / sizeof(int32_t))));
        }
    }
    return KOLO_OK;
}

/* The shape of a sample of a tensor [n, ...]. */
static kolo_shape sample_of(const kolo_shape *all) {
    kolo_shape shape = {all->rank - 1, {0}};
    for (int i = 1; i < all->rank; i++) shape.dim[i - 1] = all->dim[i];
    return shape;
}

static kolo_status take_decoded(kolo_dataset *d, pack *own) {
    KOLO_TRY(find_part(d, own, "x", &own->x));
    KOLO_TRY(find_part(d, own, "y", &own->y));
    const kolo_safetensors_entry *x = own->x->entry, *y = own->y->entry;
    const bool images =
        x->dtype == KOLO_DTYPE_U8 && x->shape.rank == 4 && x->shape.dim[1] <= KOLO_MAX_CHANNELS;
    const bool rows = x->dtype == KOLO_DTYPE_F32 && x->shape.rank == 2;
    if ((!images && !rows) || x->bytes == 0) return fail_shape(own, own->x);
    const bool map = images && y->shape.rank == 3 && y->shape.dim[1] == x->shape.dim[2] &&
                     y->shape.dim[2] == x->shape.dim[3] && y->dtype == KOLO_DTYPE_I32;
    const bool one =
        y->shape.rank == 1 && (y->dtype == KOLO_DTYPE_I32 || y->dtype == KOLO_DTYPE_F32);
    if ((!map && !one) || y->shape.dim[0] != x->shape.dim[0]) return fail_shape(own, own->y);
    d->info.count = x->shape.dim[0];
    kolo_dataset_set_fields(&d->info, x->dtype, sample_of(&x->shape), sample_of(&y->shape));
    d->info.fields[KOLO_FIELD_Y].dtype = y->dtype;
    d->gather = gather;
    return KOLO_OK;
}

/* ---- encoded ---- */

static kolo_status fetch_from(const pack *own, const part *bytes, const int64_t *ends,
                              int64_t index, kolo_encoded *e) {
    const size_t first = index > 0 ? (size_t)ends[index - 1] : 0, end = (size_t)ends[index];
    e->name = kolo_format("%s: sample %" PRId64 " of tensor \"%s\"", own->path, index,
                          bytes->entry->name);
    e->length = end - first;
    e->bytes = kolo_alloc(e->length + 1);
    if (!e->name || !e->bytes) return KOLO_NOMEM(e->length);
    return read_checked(own, bytes, first, e->bytes, e->length);
}

static kolo_status fetch(const kolo_images *images, int64_t index, kolo_encoded *e) {
    const pack *own = (const pack *)images;
    return fetch_from(own, own->bytes, own->ends, index, e);
}

static kolo_status fetch_mask(const kolo_images *images, int64_t index, kolo_encoded *e) {
    const pack *own = (const pack *)images;
    return fetch_from(own, own->masks, own->mask_ends, index, e);
}

/* Reads a small tensor of `n` elements as a whole, for kolo_free; n of 0: any number. */
static kolo_status read_list(const pack *own, const part *p, kolo_dtype dtype, int64_t n,
                             void **to) {
    const kolo_safetensors_entry *e = p->entry;
    if (e->dtype != dtype || e->shape.rank != 1 || e->bytes == 0) return fail_shape(own, p);
    if (n > 0 && e->shape.dim[0] != n) return fail_shape(own, p);
    void *list = kolo_alloc(e->bytes);
    if (!list) return KOLO_NOMEM(e->bytes);
    const kolo_status status = read_checked(own, p, 0, list, e->bytes);
    if (status != KOLO_OK) {
        kolo_free(list);
        return status;
    }
    *to = list;
    return KOLO_OK;
}

/* Ends grow up to the end of the bytes. */
static kolo_status check_ends(const pack *own, const part *ends, const int64_t *list,
                              const part *bytes) {
    const int64_t n = ends->entry->shape.dim[0];
    for (int64_t i = 0; i < n; i++) {
        if (list[i] < (i > 0 ? list[i - 1] : 0)) return fail_shape(own, ends);
    }
    if (bytes->entry->dtype != KOLO_DTYPE_U8 || bytes->entry->shape.rank != 1 ||
        list[n - 1] != (int64_t)bytes->entry->bytes) {
        return fail_shape(own, bytes);
    }
    return KOLO_OK;
}

/* Reads where the *n files in `bytes` end; *n of 0: any number, which it becomes. */
static kolo_status take_ends(const kolo_dataset *d, pack *own, const char *name, const part *bytes,
                             int64_t *n, int64_t **ends) {
    const part *p;
    void *list;
    KOLO_TRY(find_part(d, own, name, &p));
    KOLO_TRY(read_list(own, p, KOLO_DTYPE_I64, *n, &list));
    *ends = list;
    *n = p->entry->shape.dim[0];
    return check_ends(own, p, list, bytes);
}

static kolo_status take_labels(const kolo_dataset *d, pack *own, int classes) {
    const part *labels;
    void *list;
    KOLO_TRY(find_part(d, own, "labels", &labels));
    KOLO_TRY(read_list(own, labels, KOLO_DTYPE_I32, d->info.count, &list));
    own->images.labels = list;
    for (int64_t i = 0; i < d->info.count; i++) {
        if (own->images.labels[i] < 0 || own->images.labels[i] >= classes) {
            return fail_shape(own, labels);
        }
    }
    return KOLO_OK;
}

static kolo_status take_encoded(kolo_dataset *d, pack *own, const kolo_pack_request *opts,
                                bool masks, int classes) {
    const char *text = kolo_safetensors_metadata(own->file, "size");
    const kolo_data_key key = {.value = own->images.size, .min = 1, .max = 8192};
    KOLO_TRY(find_part(d, own, "images", &own->bytes));
    KOLO_TRY(take_ends(d, own, "ends", own->bytes, &d->info.count, &own->ends));
    if (masks) {
        KOLO_TRY(find_part(d, own, "masks", &own->masks));
        KOLO_TRY(take_ends(d, own, "mask_ends", own->masks, &d->info.count, &own->mask_ends));
        own->images.fetch_mask = fetch_mask;
    } else {
        KOLO_TRY(take_labels(d, own, classes));
    }
    if (!text || !kolo_key_size(&key, text, text + strlen(text))) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: the metadata have no size of a sample: damaged",
                         own->path);
    }
    if (opts->size[0] > 0) memcpy(own->images.size, opts->size, sizeof own->images.size);
    own->images.scaled = opts->scaled;
    own->images.fetch = fetch;
    return kolo_images_open(d, classes);
}

/* ---- both ---- */

/* Numbers with blanks between, of the channels. */
static bool read_moments(const char *text, float *to) {
    for (int i = 0; text && *text; i++) {
        char *end;
        const double x = kolo_parse_double(text, &end);
        if (end == text || i == KOLO_MAX_CHANNELS || !(x >= -1e6 && x <= 1e6)) return false;
        to[i] = (float)x;
        if (*end != ' ' && *end) return false;
        text = end + (*end == ' ');
    }
    return true;
}

static kolo_status read_classes(const pack *own, int *classes) {
    const char *text = kolo_safetensors_metadata(own->file, "classes");
    char *end;
    const long n = text ? strtol(text, &end, 10) : 0;
    if (n < 1 || n > MAX_CLASSES || *end) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: the metadata lack the number of classes: damaged",
                         own->path);
    }
    *classes = (int)n;
    return KOLO_OK;
}

static kolo_status take(kolo_dataset *d, pack *own, const kolo_pack_request *opts) {
    const char *test = d->info.split == KOLO_SPLIT_TRAIN ? "train" : "test";
    const char *version = kolo_safetensors_metadata(own->file, "kolo_pack");
    const char *kind = kolo_safetensors_metadata(own->file, "kind");
    char name[32];
    int classes;
    if (!version || !kind) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: no packed data set: give a file of kolo data pack",
                         own->path);
    }
    if (strcmp(version, "1") != 0) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "%s: a packed data set of version %.20s, and this kolo reads version %d: "
                         "pack it again",
                         own->path, version, (int)KOLO_PACK_VERSION);
    }
    KOLO_TRY(read_classes(own, &classes));
    snprintf(name, sizeof name, "%s.x", test);
    const bool decoded = kolo_safetensors_find(own->file, name);
    snprintf(name, sizeof name, "%s.images", test);
    if (!decoded && !kolo_safetensors_find(own->file, name)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: no %s split: it was packed from a data set without one",
                         own->path, test);
    }
    if (decoded && (opts->size[0] > 0 || opts->scaled)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: its images are decoded and have one size: leave %s out",
                         own->path, opts->scaled ? "decode=scaled" : "size=");
    }
    snprintf(name, sizeof name, "%s.masks", test);
    const bool masks = kolo_safetensors_find(own->file, name);
    if (masks && opts->scaled) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s: its images have masks and are decoded exactly: leave decode=scaled "
                         "out",
                         own->path);
    }
    KOLO_TRY(decoded ? take_decoded(d, own) : take_encoded(d, own, opts, masks, classes));
    d->info.name = kind;
    d->info.classes = classes;
    kolo_field *x = &d->info.fields[KOLO_FIELD_X];
    if (!read_moments(kolo_safetensors_metadata(own->file, "mean"), x->mean) ||
        !read_moments(kolo_safetensors_metadata(own->file, "std"), x->std)) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: the metadata have an invalid mean or std: damaged",
                         own->path);
    }
    return KOLO_OK;
}

kolo_status kolo_pack_take(kolo_dataset *d, kolo_safetensors *file, const char *path,
                           const kolo_pack_request *opts) {
    pack *own = d->own = kolo_zalloc(sizeof *own);
    if (!own) return KOLO_NOMEM(sizeof *own);
    d->close = close_pack;
    own->file = file;
    own->path = d->info.place = path;
    return take(d, own, opts);
}

/* The hashes of blocks do not cover the metadata and the shapes. */
static kolo_status check_header(const kolo_safetensors *file, const char *path) {
    KOLO_TRY(kolo_safetensors_check_header(file));
    if (kolo_safetensors_has_hashes(file) || !kolo_safetensors_metadata(file, "kolo_pack")) {
        return KOLO_OK;
    }
    return KOLO_FAIL(KOLO_ERR_FORMAT,
                     "%s: the header of the packed data set has no hash: damaged: pack the data "
                     "set again",
                     path);
}

kolo_status kolo_read_pack(const kolo_reader *reader, const char *argument, kolo_dataset *d) {
    kolo_pack_request opts = {0};
    const kolo_data_key keys[] = {
        {"size", kolo_key_size, opts.size, 1, 8192, "size=HxW, or size=N for a square"},
        KOLO_IMAGES_DECODE(&opts.scaled),
        {NULL},
    };
    kolo_safetensors *file;
    KOLO_TRY(kolo_keys_parse_after(reader, "FILE", argument, keys, &d->place));
    KOLO_TRY(kolo_safetensors_open(d->place, &file));
    kolo_status status = check_header(file, d->place);
    if (status == KOLO_OK) status = kolo_pack_take(d, file, d->place, &opts);
    if (d->own) {
        ((pack *)d->own)->owns = true;
    } else {
        kolo_safetensors_close(file);
    }
    return status;
}
