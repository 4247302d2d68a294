/* concat and channel_window on images in any layouts that kolo_simd_image covers: copies of runs of
 * channels that are adjacent on both sides, whole planes where they can be. Items are images. */
#include "kernel/simd/simd.h"

#include <string.h>

static double fit(kolo_kernel_spec *spec) {
    kolo_simd_image image;
    double bytes = 0;
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32)) return -1;
    for (int i = 0; i < spec->n_in + spec->n_out; i++) {
        const kolo_tensor *t = i < spec->n_in ? &spec->in[i] : &spec->out[i - spec->n_in];
        if (!kolo_simd_image_of(t, &image)) return -1;
        bytes += (double)kolo_tensor_bytes(t);
    }
    return kolo_kernel_seconds(0, bytes, 1);
}

/* Copies `count` channels of one image, from x's from_c on to y's to_c on; zeros without x. */
static void copy(const kolo_simd_image *to, float *y, int64_t to_c, const kolo_simd_image *from,
                 const float *x, int64_t from_c, int64_t count) {
    int64_t pixels = to->h * to->w;
    while (count > 0) {
        int64_t run = kolo_min_i64(count, to->inner - to_c % to->inner);
        if (x) run = kolo_min_i64(run, from->inner - from_c % from->inner);
        float *y_at = y + kolo_simd_channel(to, to_c);
        const float *x_at = x ? x + kolo_simd_channel(from, from_c) : NULL;
        size_t bytes = sizeof(float) * (size_t)run;
        bool plane = run == to->inner && (!x || run == from->inner);
        if (plane) bytes *= (size_t)pixels;
        for (int64_t p = 0; p < (plane ? 1 : pixels); p++) {
            if (x) {
                memcpy(y_at + p * to->inner, x_at + p * from->inner, bytes);
            } else {
                memset(y_at + p * to->inner, 0, bytes);
            }
        }
        to_c += run;
        from_c += run;
        count -= run;
    }
}

static void concat(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_call *call = arg;
    const kolo_kernel_spec *spec = call->spec;
    kolo_simd_image to, from;
    KOLO_ASSERT(kolo_simd_image_of(&spec->out[0], &to));
    for (int64_t n = begin; n < end; n++) {
        float *y = (float *)call->out[0] + n * kolo_simd_image_size(&to);
        int64_t c = 0;
        for (int i = 0; i < spec->n_in; i++) {
            KOLO_ASSERT(kolo_simd_image_of(&spec->in[i], &from));
            const float *x = (const float *)call->in[i] + n * kolo_simd_image_size(&from);
            copy(&to, y, c, &from, x, 0, from.c);
            c += from.c;
        }
        copy(&to, y, to.c, NULL, NULL, 0, to.planes * to.inner - to.c);
    }
}

static void window(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_call *call = arg;
    kolo_simd_image to, from;
    KOLO_ASSERT(kolo_simd_image_of(&call->spec->out[0], &to));
    KOLO_ASSERT(kolo_simd_image_of(&call->spec->in[0], &from));
    int64_t first = call->spec->attr[KOLO_WINDOW_FIRST].i, before = kolo_max_i64(-first, 0);
    int64_t inside = kolo_min_i64(to.c - before, from.c - kolo_max_i64(first, 0));
    for (int64_t n = begin; n < end; n++) {
        float *y = (float *)call->out[0] + n * kolo_simd_image_size(&to);
        const float *x = (const float *)call->in[0] + n * kolo_simd_image_size(&from);
        copy(&to, y, 0, NULL, NULL, 0, before);
        copy(&to, y, before, &from, x, kolo_max_i64(first, 0), inside);
        copy(&to, y, before + inside, NULL, NULL, 0, to.planes * to.inner - before - inside);
    }
}

static void run(const kolo_call *call) {
    bool joins = call->spec->op == &kolo_op_concat;
    kolo_simd_parallel(call->spec->threads, call->spec->out[0].shape.dim[0],
                       joins ? concat : window, call);
}

const kolo_kernel kolo_simd_concat = {
    .name = "simd_concat", .op = &kolo_op_concat, .fit = fit, .run = run};
const kolo_kernel kolo_simd_channel_window = {
    .name = "simd_channel_window", .op = &kolo_op_channel_window, .fit = fit, .run = run};
