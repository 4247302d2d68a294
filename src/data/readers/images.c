/* Data sets of encoded images. */
#include "data/readers/images.h"

#include "base/compiler.h"
#include "base/integer.h"
#include "base/memory.h"
#include "data/images/image.h"
#include "data/readers/read_ahead.h"
#include "data/stage_time.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Of samples in a row; more is no damage of single files. */
enum { MAX_DAMAGED = 100 };

void kolo_images_init(kolo_images *images) {
    images->size[0] = images->size[1] = 224;
    images->test = 0.1;
}

bool kolo_images_parse_decode(const kolo_data_key *key, const char *text, const char *end) {
    static const char *const modes[] = {"exact", "scaled"};
    const size_t length = (size_t)(end - text);
    for (size_t i = 0; i < KOLO_COUNT(modes); i++) {
        if (length != strlen(modes[i]) || memcmp(text, modes[i], length) != 0) continue;
        *(bool *)key->value = i == 1;
        return true;
    }
    return false;
}

/* ---- one image ---- */

/* How a sample comes from an image: `from` is resized to size[0] x size[1], whose first pixel is at
 * (at[0], at[1]) of the sample. What lies outside is cut off; around it the sample is black, and
 * has no label. */
typedef struct view {
    kolo_box from;
    int64_t size[2], at[2];
} view;

/* Evaluation of a class takes the centre of the image after its shorter side, relative to the
 * sample, is resized to 8/7 of the sample's (256 for 224), or is left if it is shorter. An image
 * that is smaller than the sample fills it. */
static view centre(int64_t h, int64_t w, const int64_t *size) {
    const int64_t H = size[0], W = size[1];
    int64_t height, width;
    if (h * W <= w * H) {
        height = kolo_min_i64(H * 8 / 7, kolo_max_i64(H, h));
        width = kolo_max_i64(height * w / h, W);
    } else {
        width = kolo_min_i64(W * 8 / 7, kolo_max_i64(W, w));
        height = kolo_max_i64(width * h / w, H);
    }
    return (view){{0, 0, h, w}, {height, width}, {-((height - H + 1) / 2), -((width - W + 1) / 2)}};
}

/* Evaluation of a mask takes all of it: an image that does not fit the sample shrinks until it
 * does. */
static view whole(int64_t h, int64_t w, const int64_t *size) {
    const int64_t H = size[0], W = size[1];
    int64_t height = h, width = w;
    if (h > H || w > W) {
        height = h * W <= w * H ? kolo_max_i64((2 * h * W + w) / (2 * w), 1) : H;
        width = h * W <= w * H ? W : kolo_max_i64((2 * w * H + h) / (2 * h), 1);
    }
    return (view){{0, 0, h, w}, {height, width}, {(H - height) / 2, (W - width) / 2}};
}

/* The sample that an image becomes. */
typedef struct request {
    const kolo_images *images;
    int64_t index;
    const kolo_draw *draw;
} request;

/* Of an image of height x width. */
static view choose_view(const request *w, int64_t height, int64_t width) {
    const int64_t *size = w->images->size;
    const kolo_augment *augment = w->draw ? w->draw->augment : NULL;
    if (augment && augment->least_area > 0) {
        const kolo_box box = kolo_augment_box(w->draw, w->index, height, width);
        return (view){box, {size[0], size[1]}, {0, 0}};
    }
    view v = w->images->fetch_mask ? whole(height, width, size) : centre(height, width, size);
    if (augment && augment->scale[1] > 0) {
        kolo_augment_scale(w->draw, w->index, size, v.size, v.at);
    }
    return v;
}

/* The part of the resized image that is in the sample, and where it is there. */
static kolo_box window_of(const view *v, const int64_t *size, int64_t *to) {
    int64_t first[2], count[2];
    for (int d = 0; d < 2; d++) {
        first[d] = kolo_max_i64(-v->at[d], 0);
        to[d] = kolo_max_i64(v->at[d], 0);
        count[d] = kolo_min_i64(v->size[d] - first[d], size[d] - to[d]);
    }
    return (kolo_box){first[0], first[1], count[0], count[1]};
}

/* What of an image its sample needs (kolo_image_choice). */
static kolo_box choose_part(const void *arg, int64_t height, int64_t width, int64_t *shrink) {
    const request *w = arg;
    const view v = choose_view(w, height, width);
    int64_t to[2];
    const kolo_box window = window_of(&v, w->images->size, to);
    for (*shrink = w->images->scaled ? 8 : 1; *shrink > 1; *shrink /= 2) {
        if (v.from.height >= *shrink * v.size[0] && v.from.width >= *shrink * v.size[1]) break;
    }
    return kolo_image_needs(v.from, v.size[0], v.size[1], window);
}

static kolo_status take_image(const kolo_images *images, const kolo_image *image, const view *v,
                              uint8_t *x) {
    const int64_t H = images->size[0], W = images->size[1];
    int64_t to[2];
    const kolo_box w = window_of(v, images->size, to);
    if (w.height == H && w.width == W) {
        return kolo_image_resize(image, v->from, v->size[0], v->size[1], w, x);
    }
    uint8_t *part = kolo_alloc((size_t)(3 * w.height * w.width));
    if (!part) return KOLO_NOMEM((size_t)(3 * w.height * w.width));
    kolo_status status = kolo_image_resize(image, v->from, v->size[0], v->size[1], w, part);
    memset(x, 0, (size_t)(3 * H * W));
    for (int64_t i = 0; i < 3 * w.height && status == KOLO_OK; i++) {
        const int64_t c = i / w.height, y = to[0] + i % w.height;
        memcpy(x + (c * H + y) * W + to[1], part + i * w.width, (size_t)w.width);
    }
    kolo_free(part);
    return status;
}

/* A class that the data set does not have is an error of its description, not of the file. */
static kolo_status take_mask(const kolo_images *images, const kolo_image *mask, const char *name,
                             const view *v, int32_t *labels) {
    enum { NONE = 255 };
    const int64_t W = images->size[1];
    int64_t to[2];
    const kolo_box w = window_of(v, images->size, to);
    uint8_t *part = kolo_alloc((size_t)(w.height * w.width));
    if (!part) return KOLO_NOMEM((size_t)(w.height * w.width));
    kolo_mask_resize(mask, v->from, v->size[0], v->size[1], w, part);
    memset(labels, 0xff, (size_t)(images->size[0] * W) * sizeof *labels); /* -1 */
    int most = 0;
    for (int64_t y = 0; y < w.height; y++) {
        int32_t *row = labels + (to[0] + y) * W + to[1];
        for (int64_t x = 0; x < w.width; x++) {
            const uint8_t class = part[y * w.width + x];
            if (class == NONE) continue;
            row[x] = class;
            if (class > most) most = class;
        }
    }
    kolo_free(part);
    if (most < images->classes) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "%s: a pixel of class %d, which is outside 0..%d and is not %d, no label: "
                     "give classes=%d or more",
                     name, most, images->classes - 1, NONE, most + 1);
}

static kolo_status check_sizes(const kolo_image *image, const kolo_image *mask, const char *name) {
    if (mask->height == image->height && mask->width == image->width) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT,
                     "%s: a mask of %" PRId64 "x%" PRId64 " pixels for an image of %" PRId64
                     "x%" PRId64,
                     name, mask->width, mask->height, image->width, image->height);
}

/* The files of a sample, and what is in them. */
typedef struct source {
    kolo_encoded files[KOLO_READ_AHEAD_FILES]; /* the image, and its mask */
    kolo_image pixels, classes;
    kolo_image_memory *memory; /* of pixels */
} source;

static void source_fini(source *s) {
    for (size_t i = 0; i < KOLO_COUNT(s->files); i++) {
        kolo_free(s->files[i].name);
        kolo_free(s->files[i].bytes);
    }
    kolo_image_fini(&s->pixels);
    kolo_image_fini(&s->classes);
}

static kolo_status decode(const kolo_images *images, int64_t index, const kolo_draw *draw,
                          source *s, uint8_t *x, int32_t *y) {
    const bool masks = images->fetch_mask != NULL;
    int64_t since = 0, *times = draw ? draw->stage_ns : NULL;
    kolo_stage_time_add(times, KOLO_LOADER_READ, &since); /* begins */
    KOLO_TRY(kolo_read_ahead_take(images->ahead, index, s->files));
    kolo_stage_time_add(times, KOLO_LOADER_READ, &since);
    /* Annotators saw the image as it is stored, as the sizes of masks show. */
    const request w = {images, index, draw};
    const kolo_image_choice choice = {choose_part, &w};
    const kolo_image_request asked = {
        .choice = draw && draw->whole ? NULL : &choice,
        .turned = !masks,
        .keeps_grey = true,
        .memory = s->memory,
    };
    const kolo_encoded *image = &s->files[0], *mask = &s->files[1];
    KOLO_TRY(kolo_image_decode_part((const uint8_t *)image->bytes, image->length, image->name,
                                    &asked, &s->pixels));
    if (masks) {
        KOLO_TRY(
            kolo_mask_decode((const uint8_t *)mask->bytes, mask->length, mask->name, &s->classes));
        KOLO_TRY(check_sizes(&s->pixels, &s->classes, mask->name));
    }
    kolo_stage_time_add(times, KOLO_LOADER_DECODE, &since);
    const view v = choose_view(&w, s->pixels.height, s->pixels.width);
    KOLO_TRY(take_image(images, &s->pixels, &v, x));
    if (masks) KOLO_TRY(take_mask(images, &s->classes, mask->name, &v, y));
    kolo_stage_time_add(times, KOLO_LOADER_RESIZE, &since);
    return KOLO_OK;
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

/* Image `index`, or the next one that is not damaged: image *from. Whether one is may depend on the
 * part that its sample needs, so it is tried each time: samples are the same on each worker. */
static kolo_status read_one(const kolo_dataset *d, int64_t index, const kolo_draw *draw,
                            kolo_image_memory *memory, uint8_t *x, int32_t *y, int64_t *from) {
    kolo_images *images = d->own;
    kolo_status status = KOLO_ERR_FORMAT;
    for (int64_t k = 0; k < kolo_min_i64(d->info.count, MAX_DAMAGED); k++) {
        const int64_t i = (index + k) % d->info.count;
        source s = {.memory = memory};
        *from = i;
        if (images->labels) *y = images->labels[i];
        status = decode(images, i, draw, &s, x, y);
        source_fini(&s);
        if (status != KOLO_ERR_FORMAT) return status;
        if (!d->opts.warn) return status;
        report(d, images, i);
    }
    return KOLO_FAIL(KOLO_ERR_FORMAT,
                     "%s: %d images in a row cannot be decoded, the last from sample %" PRId64
                     ": are these images?",
                     d->info.place, (int)kolo_min_i64(d->info.count, MAX_DAMAGED), index);
}

static kolo_status read_all(const kolo_dataset *d, const int64_t *indices, int64_t n,
                            const kolo_draw *draw, kolo_image_memory *memory, void *const *data) {
    uint8_t *x = data[KOLO_FIELD_X];
    int32_t *y = data[KOLO_FIELD_Y];
    const size_t labels = d->bytes[KOLO_FIELD_Y] / sizeof *y;
    int64_t damaged = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t from;
        KOLO_TRY(read_one(d, indices[i], draw, memory, x + (size_t)i * d->bytes[KOLO_FIELD_X],
                          y + (size_t)i * labels, &from));
        damaged += from != indices[i];
        if (draw && draw->used) draw->used[i] = from;
    }
    if (draw && draw->damaged) *draw->damaged += damaged;
    return KOLO_OK;
}

static kolo_status gather(const kolo_dataset *d, const int64_t *indices, int64_t n,
                          const kolo_draw *draw, void *const *data) {
    const kolo_images *images = d->own;
    kolo_image_memory *memory;
    KOLO_TRY(kolo_image_pool_take(images->pool, &memory));
    const kolo_status status = read_all(d, indices, n, draw, memory, data);
    kolo_image_pool_give(images->pool, memory);
    return status;
}

/* ---- data set ---- */

static kolo_status read_files(const void *arg, int64_t index, kolo_encoded *files) {
    const kolo_images *images = arg;
    KOLO_TRY(images->fetch(images, index, &files[0]));
    return images->fetch_mask ? images->fetch_mask(images, index, &files[1]) : KOLO_OK;
}

static void announce(const kolo_dataset *d, const int64_t *indices, int64_t n) {
    const kolo_images *images = d->own;
    kolo_read_ahead_announce(images->ahead, indices, n);
}

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
    KOLO_TRY(kolo_image_pool_create(&images->pool));
    KOLO_TRY(kolo_read_ahead_create(read_files, images, &images->ahead));
    d->gather = gather;
    d->announce = announce;
    d->encoded = true;
    d->info.classes = images->classes = classes;
    kolo_dataset_set_fields(&d->info, KOLO_DTYPE_U8, shape,
                            images->fetch_mask ? kolo_shape_2(images->size[0], images->size[1])
                                               : kolo_shape_0());
    memcpy(d->info.fields[KOLO_FIELD_X].mean, mean, sizeof mean); /* of ImageNet */
    memcpy(d->info.fields[KOLO_FIELD_X].std, std, sizeof std);
    return KOLO_OK;
}

void kolo_images_fini(kolo_images *images) {
    kolo_read_ahead_destroy(images->ahead);
    kolo_image_pool_destroy(images->pool);
    kolo_free(images->labels);
    kolo_free(images->damaged);
}
