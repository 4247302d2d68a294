/* concat and window on f32 or bf16, along the channels of images in any layout of kolo_simd_image,
 * or along any dimension of plain tensors, which are images of that many channels. Copies runs of
 * channels that are adjacent on both sides, whole planes where possible. Parallel over images. */
#include "base/integer.h"
#include "kernel/simd/simd.h"

#include <string.h>

static int64_t axis_of(const kolo_kernel_spec *spec) {
    const bool joins = spec->op == &kolo_op_concat;
    return spec->attr[joins ? KOLO_CONCAT_AXIS : KOLO_WINDOW_AXIS].i;
}

/* A tensor as images whose channels are dimension `axis`; false: its layout does not allow it. */
static bool image_of(const kolo_tensor *tensor, int64_t axis, kolo_simd_image *image) {
    if (axis == 1) return kolo_simd_image_of(tensor, image);
    if (!kolo_layout_is_plain(&tensor->layout)) return false;
    kolo_simd_image v = {.n = 1, .c = tensor->shape.dim[axis], .h = 1, .w = 1};
    for (int d = 0; d < tensor->shape.rank; d++) {
        if (d < axis) v.n *= tensor->shape.dim[d];
        if (d > axis) v.w *= tensor->shape.dim[d];
    }
    v.inner = v.w == 1 ? v.c : 1;
    v.planes = v.c / v.inner;
    *image = v;
    return true;
}

static double fit(kolo_kernel_spec *spec) {
    kolo_simd_image image;
    double bytes = 0;
    if (!kolo_simd_supports(spec)) return -1;
    for (int i = 0; i < spec->n_in + spec->n_out; i++) {
        const kolo_tensor *t = i < spec->n_in ? &spec->in[i] : &spec->out[i - spec->n_in];
        if (!image_of(t, axis_of(spec), &image)) return -1;
        bytes += (double)kolo_tensor_bytes(t);
    }
    return kolo_kernel_seconds(0, bytes, 1);
}

/* One image of a tensor with elements of `size` bytes. */
typedef struct picture {
    kolo_simd_image image;
    char *bytes; /* NULL: zeros */
    int64_t size;
} picture;

/* The first image. */
static picture picture_of(const kolo_tensor *tensor, int64_t axis, void *bytes) {
    picture p = {.bytes = bytes, .size = (int64_t)kolo_dtype_bytes(tensor->dtype)};
    KOLO_ASSERT(image_of(tensor, axis, &p.image));
    return p;
}

static picture picture_at(const picture *first, int64_t n) {
    picture p = *first;
    p.bytes += n * kolo_simd_image_size(&p.image) * p.size;
    return p;
}

/* Copies `count` channels of one image, from channel from_c of x to channel to_c of y; zeros
 * when x is NULL. */
static void copy(picture y, int64_t to_c, const picture *x, int64_t from_c, int64_t count) {
    const kolo_simd_image *to = &y.image, *from = x ? &x->image : NULL;
    int64_t pixels = to->h * to->w;
    while (count > 0) {
        int64_t run = kolo_min_i64(count, to->inner - to_c % to->inner);
        if (x) run = kolo_min_i64(run, from->inner - from_c % from->inner);
        bool plane = run == to->inner && (!x || run == from->inner);
        size_t bytes = (size_t)(run * y.size * (plane ? pixels : 1));
        char *y_at = y.bytes + kolo_simd_channel(to, to_c) * y.size;
        const char *x_at = x ? x->bytes + kolo_simd_channel(from, from_c) * y.size : NULL;
        for (int64_t p = 0; p < (plane ? 1 : pixels); p++) {
            if (x) {
                memcpy(y_at + p * to->inner * y.size, x_at + p * from->inner * y.size, bytes);
            } else {
                memset(y_at + p * to->inner * y.size, 0, bytes);
            }
        }
        to_c += run;
        from_c += run;
        count -= run;
    }
}

/* ---- images whose channels follow each other whole: rows of bytes ---- */

/* Whether an image is a row: its channels lie one after the other, without padding. */
static bool is_row(const kolo_simd_image *v) {
    return v->inner == 1 || (v->inner == v->c && v->h * v->w == 1);
}

static size_t row_bytes(const picture *p) {
    return (size_t)(kolo_simd_image_size(&p->image) * p->size);
}

/* Rows of a few elements are frequent: a call for each would take longer than to copy them. The
 * last words overlap those before. The next row of x follows this one: it is fetched meanwhile, as
 * processors lose track of several inputs that are read in turn. */
static void copy_row(char *restrict y, const char *restrict x, size_t bytes) {
    typedef uint64_t words __attribute__((vector_size(16), aligned(1), may_alias));
    enum { WORD = 16, LINE = 64, MOST = 8192 };
    size_t i = 0;
    if (bytes < WORD || bytes > MOST) {
        memcpy(y, x, bytes);
        return;
    }
    for (; i + LINE <= bytes; i += LINE) {
        __builtin_prefetch(x + bytes + i);
        for (size_t k = i; k < i + LINE; k += WORD) *(words *)(y + k) = *(const words *)(x + k);
    }
    for (; i + WORD <= bytes; i += WORD) *(words *)(y + i) = *(const words *)(x + i);
    *(words *)(y + bytes - WORD) = *(const words *)(x + bytes - WORD);
}

static void concat_rows(const picture *y, const picture *x, int n_in, int64_t begin, int64_t end) {
    size_t bytes[KOLO_MAX_IO];
    char *to = y->bytes + (size_t)begin * row_bytes(y);
    for (int i = 0; i < n_in; i++) bytes[i] = row_bytes(&x[i]);
    for (int64_t n = begin; n < end; n++) {
        for (int i = 0; i < n_in; i++) {
            copy_row(to, x[i].bytes + (size_t)n * bytes[i], bytes[i]);
            to += bytes[i];
        }
    }
}

/* `inside` channels from `first` of x on, after `before` channels of zeros. */
static void window_rows(const picture *y, const picture *x, int64_t before, int64_t first,
                        int64_t inside, int64_t begin, int64_t end) {
    const size_t of_y = row_bytes(y), of_x = row_bytes(x);
    const size_t channel = of_x / (size_t)x->image.c, zeros = (size_t)before * channel;
    const size_t bytes = (size_t)inside * channel, rest = of_y - zeros - bytes;
    for (int64_t n = begin; n < end; n++) {
        char *to = y->bytes + (size_t)n * of_y;
        if (zeros > 0) memset(to, 0, zeros);
        copy_row(to + zeros, x->bytes + (size_t)n * of_x + (size_t)first * channel, bytes);
        if (rest > 0) memset(to + zeros + bytes, 0, rest);
    }
}

/* ---- loops ---- */

static void concat(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_call *call = arg;
    const kolo_kernel_spec *spec = call->spec;
    const int64_t axis = axis_of(spec);
    const picture to = picture_of(&spec->out[0], axis, call->out[0]);
    picture from[KOLO_MAX_IO];
    bool rows = is_row(&to.image);
    for (int i = 0; i < spec->n_in; i++) {
        from[i] = picture_of(&spec->in[i], axis, call->in[i]);
        rows &= is_row(&from[i].image);
    }
    if (rows) {
        concat_rows(&to, from, spec->n_in, begin, end);
        return;
    }
    for (int64_t n = begin; n < end; n++) {
        picture y = picture_at(&to, n);
        int64_t c = 0;
        for (int i = 0; i < spec->n_in; i++) {
            picture x = picture_at(&from[i], n);
            copy(y, c, &x, 0, x.image.c);
            c += x.image.c;
        }
        copy(y, c, NULL, 0, y.image.planes * y.image.inner - c);
    }
}

static void window(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_call *call = arg;
    const int64_t axis = axis_of(call->spec);
    int64_t first = call->spec->attr[KOLO_WINDOW_FIRST].i, before = kolo_max_i64(-first, 0);
    const picture y_0 = picture_of(&call->spec->out[0], axis, call->out[0]);
    const picture x_0 = picture_of(&call->spec->in[0], axis, call->in[0]);
    const kolo_simd_image *to = &y_0.image;
    int64_t inside = kolo_min_i64(to->c - before, x_0.image.c - kolo_max_i64(first, 0));
    if (is_row(to) && is_row(&x_0.image)) {
        window_rows(&y_0, &x_0, before, kolo_max_i64(first, 0), inside, begin, end);
        return;
    }
    for (int64_t n = begin; n < end; n++) {
        picture y = picture_at(&y_0, n), x = picture_at(&x_0, n);
        copy(y, 0, NULL, 0, before);
        copy(y, before, &x, kolo_max_i64(first, 0), inside);
        copy(y, before + inside, NULL, 0, to->planes * to->inner - before - inside);
    }
}

static void run(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    kolo_simd_image image;
    KOLO_ASSERT(image_of(&spec->out[0], axis_of(spec), &image));
    kolo_kernel_parallel(spec->threads, image.n, spec->op == &kolo_op_concat ? concat : window,
                         call);
}

const kolo_kernel kolo_simd_concat = {
    .name = "simd_concat", .op = &kolo_op_concat, .fit = fit, .run = run};
const kolo_kernel kolo_simd_window = {
    .name = "simd_window", .op = &kolo_op_window, .fit = fit, .run = run};
