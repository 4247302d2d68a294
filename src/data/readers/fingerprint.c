/* A hash of some samples, by which ranks detect that they read different data. */
#include "base/memory.h"
#include "base/rng.h"
#include "data/readers/images.h"
#include "data/readers/readers.h"

enum { SAMPLES = 16 };

static void mix(uint64_t *hash, const void *bytes, size_t n) {
    const uint64_t both[] = {*hash, kolo_hash_bytes(bytes, n)};
    *hash = kolo_hash_bytes(both, sizeof both);
}

static void mix_number(uint64_t *hash, int64_t number) { mix(hash, &number, sizeof number); }

static void mix_fields(uint64_t *hash, const kolo_dataset_info *info) {
    mix_number(hash, info->classes);
    for (int f = 0; f < info->n_fields; f++) {
        const kolo_field *field = &info->fields[f];
        mix_number(hash, field->dtype);
        for (int i = 0; i < field->shape.rank; i++) mix_number(hash, field->shape.dim[i]);
    }
}

static kolo_status mix_file(uint64_t *hash, const kolo_images *images, kolo_images_fetch *fetch,
                            int64_t index) {
    kolo_encoded e = {0};
    const kolo_status status = fetch(images, index, &e);
    if (status == KOLO_OK) mix(hash, e.bytes, e.length);
    kolo_free(e.name);
    kolo_free(e.bytes);
    return status;
}

/* The files of an image: what they decode to may depend on the version of a library. */
static kolo_status mix_image(uint64_t *hash, const kolo_dataset *d, int64_t index) {
    const kolo_images *images = d->own;
    KOLO_TRY(mix_file(hash, images, images->fetch, index));
    if (images->fetch_mask) return mix_file(hash, images, images->fetch_mask, index);
    mix_number(hash, images->labels[index]);
    return KOLO_OK;
}

static kolo_status mix_sample(uint64_t *hash, const kolo_dataset *d, int64_t index) {
    void *data[KOLO_MAX_FIELDS] = {NULL};
    kolo_status status = KOLO_OK;
    for (int f = 0; f < d->info.n_fields && status == KOLO_OK; f++) {
        data[f] = kolo_alloc(d->bytes[f]);
        if (!data[f]) status = KOLO_NOMEM(d->bytes[f]);
    }
    if (status == KOLO_OK) status = kolo_dataset_gather(d, &index, 1, data);
    for (int f = 0; f < d->info.n_fields; f++) {
        if (status == KOLO_OK) mix(hash, data[f], d->bytes[f]);
        kolo_free(data[f]);
    }
    return status;
}

kolo_status kolo_dataset_fingerprint(const kolo_dataset *d, uint64_t *hash) {
    const int64_t last = d->info.count - 1, steps = last < SAMPLES ? last : SAMPLES - 1;
    *hash = 0;
    if (d->stream || d->names[0]) return KOLO_OK;
    mix_number(hash, d->info.count);
    mix_fields(hash, &d->info);
    if (d->encoded) mix_number(hash, ((const kolo_images *)d->own)->scaled);
    for (int64_t i = 0; i <= steps; i++) {
        const int64_t index = steps > 0 ? last * i / steps : 0;
        const kolo_status status =
            d->encoded ? mix_image(hash, d, index) : mix_sample(hash, d, index);
        if (status == KOLO_ERR_NOMEM) return status;
        mix_number(hash, status); /* training reports a sample that cannot be read */
    }
    return KOLO_OK;
}
