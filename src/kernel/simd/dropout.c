/* dropout: vectorized on plain f32 or bf16 tensors (dropout.isa.c); element by element, f32
 * only, in other layouts, parallel over images. */
#include "kernel/simd/dropout.h"

#include "base/rng.h"

#include <math.h>

static double fit(kolo_kernel_spec *spec) {
    kolo_simd_image image;
    const kolo_tensor *x = &spec->in[0];
    bool plain = kolo_spec_is_plain(spec);
    bool inner = (spec->attr[KOLO_DROPOUT_ALL].i > 0 && spec->attr[KOLO_DROPOUT_DIM].i > 0) ||
                 spec->attr[KOLO_DROPOUT_SAMPLES].i > 0;
    if (!kolo_simd_supports(spec) || (inner && !plain)) return -1;
    if (!plain && (x->dtype != KOLO_DTYPE_F32 || !kolo_simd_image_of(x, &image) ||
                   !kolo_layout_equal(&x->layout, &spec->out[0].layout))) {
        return -1;
    }
    return kolo_kernel_seconds(0, (plain ? 4.0 : 64.0) * (double)kolo_tensor_bytes(x), 1);
}

typedef struct dice {
    kolo_rng rng;
    uint32_t limit; /* 24-bit threshold: random numbers below it drop the element */
    float scale;
} dice;

/* One image; `place` is the random-number counter of its first element. */
static void drop_image(const dice *d, const kolo_simd_image *v, uint64_t place, const float *x,
                       float *y) {
    int64_t pixels = v->h * v->w;
    for (int64_t c = 0; c < v->planes * v->inner; c++) {
        int64_t at = kolo_simd_channel(v, c);
        for (int64_t p = 0; p < pixels; p++) {
            int64_t i = at + p * v->inner;
            uint32_t four[4] = {0};
            uint64_t of = place + (uint64_t)(c * pixels + p);
            if (c < v->c) kolo_rng_draw(&d->rng, of / 4, four);
            y[i] = c >= v->c || four[of % 4] >> 8 < d->limit ? 0 : x[i] * d->scale;
        }
    }
}

static dice dice_of(const kolo_call *call) {
    const kolo_attr *attr = call->spec->attr;
    double p = attr[KOLO_DROPOUT_P].f;
    return (dice){
        .rng = kolo_rng_make((uint64_t) * (const int64_t *)call->in[1], KOLO_RNG_DROPOUT,
                             (uint64_t)attr[KOLO_DROPOUT_LAYER].i),
        .limit = (uint32_t)ceil(p * 0x1p24),
        .scale = (float)(1 / (1 - p)),
    };
}

/* The random-number counter of row n's first element. */
static uint64_t place_of(const kolo_call *call, int64_t n) {
    const kolo_shape *s = &call->spec->in[0].shape;
    const int64_t *first = call->in[2];
    return (uint64_t)(kolo_dropout_places_of(call->spec->attr, s, *first).first +
                      n * (kolo_shape_count(s) / s->dim[0]));
}

static void drop_images(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_call *call = arg;
    const float *x = call->in[0];
    float *y = call->out[0];
    dice d = dice_of(call);
    kolo_simd_image image;
    KOLO_ASSERT(kolo_simd_image_of(&call->spec->in[0], &image));
    for (int64_t n = begin; n < end; n++) {
        int64_t at = n * kolo_simd_image_size(&image);
        drop_image(&d, &image, place_of(call, n), x + at, y + at);
    }
}

static kolo_status prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    kolo_kernel_loop *loop = kolo_alloc(sizeof *loop);
    if (!loop) return KOLO_NOMEM(sizeof *loop);
    *loop = KOLO_ISA_PICK(kolo_simd_dropout)->dropout;
    *state = (void *)loop;
    *scratch_bytes = 0;
    return KOLO_OK;
}

/* What each row of places needs. */
typedef struct rows_job {
    kolo_simd_dropout_job job;
    kolo_kernel_loop loop;
    kolo_dropout_places places;
} rows_job;

static void drop_rows(const void *arg, int part, int64_t begin, int64_t end) {
    const rows_job *rows = arg;
    for (int64_t i = begin; i < end; i++) {
        kolo_simd_dropout_job job = rows->job;
        const size_t at = (size_t)(i * rows->places.count) * (job.bf16 ? 2 : 4);
        job.x = (const char *)job.x + at;
        job.y = (char *)job.y + at;
        job.place = (uint64_t)kolo_dropout_place(&rows->places, i);
        rows->loop(&job, part, 0, rows->places.count);
    }
}

static void run(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const kolo_tensor *x = &spec->in[0];
    if (!kolo_layout_is_plain(&x->layout)) {
        kolo_kernel_parallel(spec->threads, x->shape.dim[0], drop_images, call);
        return;
    }
    dice d = dice_of(call);
    const kolo_dropout_places places =
        kolo_dropout_places_of(spec->attr, &x->shape, *(const int64_t *)call->in[2]);
    kolo_simd_dropout_job job = {
        .x = call->in[0],
        .y = call->out[0],
        .bf16 = kolo_simd_is_bf16(spec),
        .seed = d.rng.seed,
        .stream = d.rng.stream,
        .place = (uint64_t)places.first,
        .limit = d.limit,
        .scale = d.scale,
    };
    const kolo_kernel_loop loop = *(kolo_kernel_loop *)call->state;
    if (places.rows == 1) {
        kolo_kernel_parallel(spec->threads, places.count, loop, &job);
        return;
    }
    const rows_job rows = {job, loop, places};
    kolo_kernel_parallel(spec->threads, places.rows, drop_rows, &rows);
}

const kolo_kernel kolo_simd_dropout = {
    .name = "simd_dropout",
    .op = &kolo_op_dropout,
    .fit = fit,
    .prepare = prepare,
    .run = run,
    .release = kolo_free,
};
