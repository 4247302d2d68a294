/* Synthetic images for segmentation, generated on access. One to four discs and boxes of other
 * classes lie on a background of class 0, later shapes on top, each with an unlabelled border of
 * one pixel, as annotations have. Each class has a colour, and a pixel is the mean of its class's
 * colour and noise. Colours depend on the seed only, so training generalizes to the test split. */
#include "base/integer.h"
#include "base/memory.h"
#include "base/rng.h"
#include "data/readers/readers.h"
#include "data/readers/synthetic.h"

#include <inttypes.h>
#include <stdlib.h>

enum { MAX_SHAPES = 4, SHAPE_DRAWS = 1 + MAX_SHAPES };

typedef struct synthetic_seg {
    kolo_synthetic settings;
    kolo_rng colours, shapes, noise;
} synthetic_seg;

typedef struct shape {
    int64_t y, x, height, width; /* centre; half of height and width */
    int32_t label;
    bool disc;
} shape;

/* Maps a draw to [0, bound). */
static int64_t below(uint32_t draw, int64_t bound) {
    return (int64_t)((uint64_t)draw * (uint64_t)bound >> 32);
}

/* Half a size, between a tenth and a third of the image. */
static int64_t half_size(uint32_t draw, int64_t whole) {
    return whole / 10 + 1 + below(draw, whole / 4 + 1);
}

static shape draw_shape(const synthetic_seg *own, uint64_t counter) {
    const kolo_synthetic *s = &own->settings;
    uint32_t a[4], b[4];
    kolo_rng_draw(&own->shapes, 2 * counter, a);
    kolo_rng_draw(&own->shapes, 2 * counter + 1, b);
    return (shape){
        .y = below(a[0], s->height),
        .x = below(a[1], s->width),
        .height = half_size(a[2], s->height),
        .width = half_size(a[3], s->width),
        .label = s->classes > 1 ? 1 + (int32_t)below(b[0], s->classes - 1) : 0,
        .disc = b[1] >> 31,
    };
}

/* Whether a pixel is inside a shape shrunk by `by` pixels on all sides. */
static bool within(const shape *s, int64_t y, int64_t x, int64_t by) {
    double h = (double)(s->height - by), w = (double)(s->width - by);
    double dy = (double)(y - s->y), dx = (double)(x - s->x);
    if (h <= 0 || w <= 0) return false;
    if (s->disc) return dy * dy * w * w + dx * dx * h * h <= h * h * w * w;
    return dy >= -h && dy <= h && dx >= -w && dx <= w;
}

static void make_labels(const synthetic_seg *own, int64_t index, int32_t *labels) {
    const kolo_synthetic *s = &own->settings;
    uint32_t draw[4];
    uint64_t first = (uint64_t)index * SHAPE_DRAWS;
    kolo_rng_draw(&own->shapes, 2 * first, draw);
    int64_t n = 1 + below(draw[0], MAX_SHAPES);
    for (int64_t i = 0; i < s->height * s->width; i++) labels[i] = 0;
    for (int64_t k = 0; k < n; k++) {
        shape it = draw_shape(own, first + 1 + (uint64_t)k);
        for (int64_t y = 0; y < s->height; y++) {
            for (int64_t x = 0; x < s->width; x++) {
                if (!within(&it, y, x, 0)) continue;
                labels[y * s->width + x] = within(&it, y, x, 1) ? it.label : -1;
            }
        }
    }
}

/* Pixels without a label are noise. */
static void paint(const synthetic_seg *own, int64_t index, const int32_t *labels, uint8_t *sample) {
    const kolo_synthetic *s = &own->settings;
    int64_t pixels = s->height * s->width;
    uint64_t stride = kolo_round_up((size_t)(s->channels * pixels), 16);
    kolo_synthetic_fill(&own->noise, (uint64_t)index * stride, sample,
                        (size_t)(s->channels * pixels));
    uint8_t colour[KOLO_MAX_CHANNELS] = {0};
    int32_t of = -1;
    for (int64_t i = 0; i < pixels; i++) {
        if (labels[i] < 0) continue;
        if (labels[i] != of) {
            of = labels[i];
            kolo_synthetic_fill(&own->colours, 16 * (uint64_t)of, colour, (size_t)s->channels);
        }
        for (int64_t c = 0; c < s->channels; c++) {
            uint8_t *at = &sample[c * pixels + i];
            *at = (uint8_t)((*at + colour[c]) / 2);
        }
    }
}

static kolo_status gather(const kolo_dataset *d, const int64_t *indices, int64_t n,
                          const kolo_draw *draw, void *const *data) {
    const synthetic_seg *own = d->own;
    int64_t pixels = own->settings.height * own->settings.width;
    uint8_t *x = data[KOLO_FIELD_X];
    int32_t *y = data[KOLO_FIELD_Y];
    for (int64_t i = 0; i < n; i++, x += d->bytes[KOLO_FIELD_X], y += pixels) {
        make_labels(own, indices[i], y);
        paint(own, indices[i], y, x);
    }
    return KOLO_OK;
}

static void close_seg(kolo_dataset *d) { kolo_free(d->own); }

kolo_status kolo_read_synthetic_seg(const kolo_reader *reader, const char *argument,
                                    kolo_dataset *d) {
    kolo_synthetic s = {.n = 1000, .channels = 3, .height = 128, .width = 128, .classes = 5};
    KOLO_TRY(kolo_synthetic_parse(reader, argument, &s));
    d->close = close_seg;
    d->place = kolo_strdup(argument ? argument : "");
    synthetic_seg *own = d->own = kolo_zalloc(sizeof *own);
    if (!d->place || !own) return KOLO_NOMEM(sizeof *own);
    bool train = d->info.split == KOLO_SPLIT_TRAIN;
    *own = (synthetic_seg){
        .settings = s,
        .colours = kolo_rng_make(s.seed, KOLO_RNG_SYNTHETIC, KOLO_SYNTHETIC_PATTERNS),
        .noise = kolo_rng_make(s.seed, KOLO_RNG_SYNTHETIC,
                               train ? KOLO_SYNTHETIC_TRAIN : KOLO_SYNTHETIC_TEST),
        .shapes = kolo_rng_make(s.seed, KOLO_RNG_SYNTHETIC,
                                train ? KOLO_SYNTHETIC_TRAIN_SHAPES : KOLO_SYNTHETIC_TEST_SHAPES),
    };
    d->gather = gather;
    d->info.place = d->place;
    d->info.count = kolo_synthetic_count(&s, d->info.split);
    kolo_dataset_set_fields(&d->info, KOLO_DTYPE_U8,
                            (kolo_shape){3, {s.channels, s.height, s.width}},
                            kolo_shape_2(s.height, s.width));
    d->info.classes = (int)s.classes;
    for (int64_t c = 0; c < s.channels; c++) {
        d->info.fields[KOLO_FIELD_X].mean[c] = 0.5F;
        d->info.fields[KOLO_FIELD_X].std[c] = 0.2041F; /* of the mean of two uniform draws:
                                                          sqrt(1 / 24) */
    }
    return KOLO_OK;
}
