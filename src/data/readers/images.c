/* Data sets of encoded images. */
#include "data/readers/images.h"

#include "base/clock.h"
#include "base/integer.h"
#include "base/memory.h"
#include "data/images/image.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Of samples in a row; more is no damage of single files. */
enum { MAX_DAMAGED = 100 };

void kolo_images_init(kolo_images *images) {
    images->size[0] = images->size[1] = 224;
    images->test = 0.1;
}

/* ---- one image ---- */

/* Evaluation takes the centre of the image after its shorter side, relative to the sample, is
 * resized to 8/7 of the sample's (256 for 224), or is left if it is shorter. An image that is
 * smaller than the sample fills it. */
static kolo_status take_centre(const kolo_image *image, const int64_t *size, uint8_t *to) {
    const int64_t h = image->height, w = image->width, H = size[0], W = size[1];
    int64_t height, width;
    if (h * W <= w * H) {
        height = kolo_min_i64(H * 8 / 7, kolo_max_i64(H, h));
        width = kolo_max_i64(height * w / h, W);
    } else {
        width = kolo_min_i64(W * 8 / 7, kolo_max_i64(W, w));
        height = kolo_max_i64(width * h / w, H);
    }
    const kolo_box window = {(height - H + 1) / 2, (width - W + 1) / 2, H, W};
    return kolo_image_resize(image, (kolo_box){0, 0, h, w}, height, width, window, to);
}

/* Adds the time since *since to a stage, if it is kept. */
static void add_time(const kolo_draw *draw, kolo_loader_stage stage, int64_t *since) {
    if (!draw || !draw->stage_ns) return;
    const int64_t now = kolo_now_ns();
    if (*since > 0) draw->stage_ns[stage] += now - *since;
    *since = now;
}

static kolo_status decode(const kolo_images *images, int64_t index, const kolo_draw *draw,
                          kolo_encoded *e, uint8_t *to) {
    const int64_t H = images->size[0], W = images->size[1];
    kolo_image image = {0};
    int64_t since = 0;
    add_time(draw, KOLO_LOADER_READ, &since); /* begins */
    KOLO_TRY(images->fetch(images, index, e));
    add_time(draw, KOLO_LOADER_READ, &since);
    KOLO_TRY(kolo_image_decode(e->bytes, e->length, e->name, &image));
    add_time(draw, KOLO_LOADER_DECODE, &since);
    kolo_status status;
    if (draw && draw->augment->least_area > 0) {
        const kolo_box box = kolo_augment_box(draw, index, image.height, image.width);
        status = kolo_image_resize(&image, box, H, W, (kolo_box){0, 0, H, W}, to);
    } else {
        status = take_centre(&image, images->size, to);
    }
    add_time(draw, KOLO_LOADER_RESIZE, &since);
    kolo_image_fini(&image);
    return status;
}

static void report(const kolo_dataset *d, kolo_images *images, int64_t index) {
    if (atomic_exchange(&images->damaged[index], 1)) return;
    const long long skipped = atomic_fetch_add(&images->skipped, 1) + 1;
    char line[1024];
    snprintf(line, sizeof line,
             "%s: skipped, the next image takes its place%s; %lld skipped by this worker so far",
             kolo_last_error(),
             d->info.split == KOLO_SPLIT_TEST ? " in the test split and counts twice" : "",
             skipped);
    d->opts.warn(d->opts.warn_arg, line);
}

/* Image `index`, or the next one that is not damaged: image *from. */
static kolo_status read_one(const kolo_dataset *d, int64_t index, const kolo_draw *draw, uint8_t *x,
                            int32_t *y, int64_t *from) {
    kolo_images *images = d->own;
    kolo_status status = KOLO_ERR_FORMAT;
    for (int64_t k = 0; k < kolo_min_i64(d->info.count, MAX_DAMAGED); k++) {
        const int64_t i = (index + k) % d->info.count;
        kolo_encoded e = {0};
        *from = i;
        *y = images->labels[i];
        if (atomic_load(&images->damaged[i])) continue;
        status = decode(images, i, draw, &e, x);
        kolo_free(e.name);
        kolo_free(e.owned);
        if (status != KOLO_ERR_FORMAT) return status;
        if (!d->opts.warn) return status;
        report(d, images, i);
    }
    return KOLO_FAIL(KOLO_ERR_FORMAT,
                     "%s: %d images in a row cannot be decoded, the last from sample %" PRId64
                     ": are these images?",
                     d->info.place, (int)kolo_min_i64(d->info.count, MAX_DAMAGED), index);
}

static kolo_status gather(const kolo_dataset *d, const int64_t *indices, int64_t n,
                          const kolo_draw *draw, void *const *data) {
    uint8_t *x = data[KOLO_FIELD_X];
    int32_t *y = data[KOLO_FIELD_Y];
    int64_t damaged = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t from;
        KOLO_TRY(
            read_one(d, indices[i], draw, x + (size_t)i * d->bytes[KOLO_FIELD_X], &y[i], &from));
        damaged += from != indices[i];
        if (draw && draw->used) draw->used[i] = from;
    }
    if (draw && draw->damaged) *draw->damaged += damaged;
    return KOLO_OK;
}

/* ---- data set ---- */

kolo_status kolo_images_open(kolo_dataset *d, int classes) {
    static const float mean[] = {0.485F, 0.456F, 0.406F}, std[] = {0.229F, 0.224F, 0.225F};
    kolo_images *images = d->own;
    const kolo_shape shape = {3, {3, images->size[0], images->size[1]}};
    if (!kolo_image_supported()) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "data set %s: this build reads no images: install libjpeg62-turbo-dev and "
                         "libpng-dev, and build again",
                         d->info.name);
    }
    images->damaged = kolo_zalloc((size_t)d->info.count * sizeof *images->damaged);
    if (!images->damaged) return KOLO_NOMEM((size_t)d->info.count * sizeof *images->damaged);
    d->gather = gather;
    d->encoded = true;
    d->info.classes = classes;
    kolo_dataset_set_fields(&d->info, KOLO_DTYPE_U8, shape, kolo_shape_0());
    memcpy(d->info.fields[KOLO_FIELD_X].mean, mean, sizeof mean); /* of ImageNet */
    memcpy(d->info.fields[KOLO_FIELD_X].std, std, sizeof std);
    return KOLO_OK;
}

void kolo_images_fini(kolo_images *images) {
    kolo_free(images->labels);
    kolo_free(images->damaged);
}
