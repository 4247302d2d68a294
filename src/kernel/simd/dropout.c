/* dropout: four draws at a time on plain tensors, one by one where channels are elsewhere. Items
 * are images. */
#include "base/rng.h"
#include "kernel/simd/simd.h"

#include <math.h>

static double fit(kolo_kernel_spec *spec) {
    kolo_simd_image image;
    const kolo_tensor *x = &spec->in[0];
    bool plain = kolo_spec_is_plain(spec);
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32)) return -1;
    if (!plain &&
        (!kolo_simd_image_of(x, &image) || !kolo_layout_equal(&x->layout, &spec->out[0].layout))) {
        return -1;
    }
    return kolo_kernel_seconds(0, (plain ? 32.0 : 64.0) * (double)kolo_tensor_bytes(x), 1);
}

typedef struct dice {
    kolo_rng rng;
    uint32_t limit; /* of 24 bits: what is drawn below it is dropped */
    float scale;
} dice;

/* Elements that lie as they are drawn, the first being number `place`. */
static void drop_run(const dice *d, uint64_t place, const float *x, int64_t n, float *y) {
    uint32_t four[4];
    for (int64_t i = 0; i < n; i++, place++) {
        if (i == 0 || place % 4 == 0) kolo_rng_draw(&d->rng, place / 4, four);
        y[i] = four[place % 4] >> 8 < d->limit ? 0 : x[i] * d->scale;
    }
}

/* One image, whose first element is number `place`. */
static void drop_image(const dice *d, const kolo_simd_image *v, uint64_t place, const float *x,
                       float *y) {
    int64_t pixels = v->h * v->w;
    for (int64_t c = 0; c < v->planes * v->inner; c++) {
        int64_t at = kolo_simd_channel(v, c);
        for (int64_t p = 0; p < pixels; p++) {
            int64_t i = at + p * v->inner;
            if (c < v->c) {
                drop_run(d, place + (uint64_t)(c * pixels + p), &x[i], 1, &y[i]);
            } else {
                y[i] = 0;
            }
        }
    }
}

static void loop(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_call *call = arg;
    const kolo_tensor *t = &call->spec->in[0];
    const float *x = call->in[0], *draw = call->in[1], *first = call->in[2];
    float *y = call->out[0];
    double p = call->spec->attr[KOLO_DROPOUT_P].f;
    dice d = {
        .rng = kolo_rng_make((uint64_t)(int64_t)*draw, KOLO_RNG_DROPOUT,
                             (uint64_t)call->spec->attr[KOLO_DROPOUT_LAYER].i),
        .limit = (uint32_t)ceil(p * 0x1p24),
        .scale = (float)(1 / (1 - p)),
    };
    int64_t row = kolo_shape_count(&t->shape) / t->shape.dim[0];
    kolo_simd_image image;
    bool plain = kolo_layout_is_plain(&t->layout);
    if (!plain) KOLO_ASSERT(kolo_simd_image_of(t, &image));
    for (int64_t n = begin; n < end; n++) {
        uint64_t place = (uint64_t)(((int64_t)*first + n) * row);
        if (plain) {
            drop_run(&d, place, x + n * row, row, y + n * row);
        } else {
            int64_t at = n * kolo_simd_image_size(&image);
            drop_image(&d, &image, place, x + at, y + at);
        }
    }
}

static void run(const kolo_call *call) {
    kolo_simd_parallel(call->spec->threads, call->spec->in[0].shape.dim[0], loop, call);
}

const kolo_kernel kolo_simd_dropout = {
    .name = "simd_dropout", .op = &kolo_op_dropout, .fit = fit, .run = run};
