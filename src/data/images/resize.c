/* Antialiased bilinear resizing: the triangle filter, stretched by the ratio where an image
 * shrinks, first along rows, then along columns, with 8-bit results and fixed-point weights of 22
 * bits, which makes the bytes those of Pillow. Only the rows and columns of the window are
 * computed. Where an image has a shrink, the part to resize may begin and end within a pixel. */
#include "base/integer.h"
#include "base/memory.h"
#include "base/status.h"
#include "data/images/image.h"

#include <math.h>

enum { BITS = 22 };

/* The weights of a dimension: output i is the sum of weight[i * taps + k] * input[first[i] + k], k
 * < count[i]. */
typedef struct filter {
    int64_t taps;
    int32_t *first, *count, *weight;
} filter;

static void filter_fini(filter *f) {
    kolo_free(f->first);
    *f = (filter){0};
}

/* A side to resize, in pixels that are `shrink` of the image. */
typedef struct side {
    int64_t base, in; /* the pixels that it touches */
    double offset;    /* of the side in them */
    double scale;     /* of them for one of the result */
} side;

static side side_of(int64_t first, int64_t count, int64_t shrink, int64_t out) {
    const int64_t base = first / shrink;
    return (side){
        .base = base,
        .in = (first + count + shrink - 1) / shrink - base,
        .offset = (double)(first % shrink) / (double)shrink,
        .scale = (double)count / (double)out / (double)shrink,
    };
}

/* Output `from` to `from` + `n` of a side. */
static kolo_status filter_init(const side *s, int64_t from, int64_t n, filter *f) {
    const double scale = s->scale, stretch = scale > 1 ? scale : 1;
    const int64_t in = s->in;
    f->taps = (int64_t)ceil(stretch) * 2 + 1;
    f->first = kolo_alloc((size_t)(n * (f->taps + 2)) * sizeof *f->first);
    if (!f->first) return KOLO_NOMEM((size_t)(n * (f->taps + 2)) * sizeof *f->first);
    f->count = f->first + n;
    f->weight = f->count + n;
    for (int64_t i = 0; i < n; i++) {
        const double centre = s->offset + ((double)(from + i) + 0.5) * scale;
        const int64_t low = kolo_max_i64((int64_t)(centre - stretch + 0.5), 0);
        const int64_t high = kolo_min_i64((int64_t)(centre + stretch + 0.5), in);
        double sum = 0;
        for (int64_t k = low; k < high; k++) {
            sum += fmax(0, 1 - fabs(((double)k - centre + 0.5) * (1 / stretch)));
        }
        f->first[i] = (int32_t)low;
        f->count[i] = (int32_t)(high - low);
        for (int64_t k = low; k < high; k++) {
            double w = fmax(0, 1 - fabs(((double)k - centre + 0.5) * (1 / stretch)));
            if (sum != 0) w /= sum;
            f->weight[i * f->taps + k - low] = (int32_t)(0.5 + w * (1 << BITS));
        }
    }
    return KOLO_OK;
}

static uint8_t to_byte(int32_t sum) {
    sum >>= BITS;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/* One row of pixels, of which the filter's first one is `x0`, to three rows of `n` bytes. */
static void along_row(const uint8_t *from, int64_t x0, ptrdiff_t column, const filter *f, int64_t n,
                      uint8_t *to) {
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *pixel = from + (x0 + f->first[i]) * column;
        const int32_t *weight = f->weight + i * f->taps;
        int32_t sum[3] = {1 << (BITS - 1), 1 << (BITS - 1), 1 << (BITS - 1)};
        for (int32_t k = 0; k < f->count[i]; k++, pixel += column) {
            for (int c = 0; c < 3; c++) sum[c] += pixel[c] * weight[k];
        }
        for (int c = 0; c < 3; c++) to[c * n + i] = to_byte(sum[c]);
    }
}

/* Row i of the result of one plane, from rows `stride` bytes apart, of which the first is `top`. */
static void along_column(const uint8_t *restrict from, int64_t stride, int64_t top, const filter *f,
                         int64_t i, int64_t n, int32_t *restrict sums, uint8_t *restrict to) {
    for (int64_t x = 0; x < n; x++) sums[x] = 1 << (BITS - 1);
    for (int32_t k = 0; k < f->count[i]; k++) {
        const uint8_t *row = from + (f->first[i] + k - top) * stride;
        const int32_t weight = f->weight[i * f->taps + k];
        for (int64_t x = 0; x < n; x++) sums[x] += row[x] * weight;
    }
    for (int64_t x = 0; x < n; x++) to[x] = to_byte(sums[x]);
}

/* (y, x): the pixel of the part in memory where the filters begin; may lie outside of it. */
static kolo_status resize_by(const kolo_image *image, int64_t y0, int64_t x0, const filter *rows,
                             const filter *columns, kolo_box window, uint8_t *to) {
    const int64_t n = window.width, last = window.height - 1;
    const int64_t top = rows->first[0], bottom = rows->first[last] + rows->count[last];
    const size_t bytes = (size_t)(3 * n * (bottom - top));
    uint8_t *between = kolo_alloc(bytes); /* [row, 3, n] */
    int32_t *sums = kolo_alloc((size_t)n * sizeof *sums);
    if (between && sums) {
        for (int64_t y = top; y < bottom; y++) {
            along_row(image->origin + (y0 + y) * image->row, x0, image->column, columns, n,
                      between + (y - top) * 3 * n);
        }
        for (int64_t i = 0; i < 3 * window.height; i++) {
            const int64_t c = i / window.height, y = i % window.height;
            along_column(between + c * n, 3 * n, top, rows, y, n, sums, to + i * n);
        }
    }
    const bool good = between && sums;
    kolo_free(between);
    kolo_free(sums);
    return good ? KOLO_OK : KOLO_NOMEM(bytes);
}

/* Whether the pixels that a filter reads, the first of them `base`, lie in `count` from `first`. */
static bool holds(const filter *f, int64_t n, int64_t base, int64_t first, int64_t count) {
    return base + f->first[0] >= first && base + f->first[n - 1] + f->count[n - 1] <= first + count;
}

kolo_status kolo_image_resize(const kolo_image *image, kolo_box from, int64_t height, int64_t width,
                              kolo_box window, uint8_t *to) {
    const kolo_box *held = &image->held;
    const side y = side_of(from.y + image->before[0], from.height, image->shrink, height);
    const side x = side_of(from.x + image->before[1], from.width, image->shrink, width);
    filter rows = {0}, columns = {0};
    kolo_status status = filter_init(&y, window.y, window.height, &rows);
    if (status == KOLO_OK) status = filter_init(&x, window.x, window.width, &columns);
    if (status == KOLO_OK) {
        KOLO_ASSERT(holds(&rows, window.height, y.base, held->y, held->height));
        KOLO_ASSERT(holds(&columns, window.width, x.base, held->x, held->width));
        status = resize_by(image, y.base - held->y, x.base - held->x, &rows, &columns, window, to);
    }
    filter_fini(&rows);
    filter_fini(&columns);
    return status;
}

/* The pixels of a side under the filters of a window, and two more: rounding, and the edge of a
 * larger pixel. */
static void needs_side(int64_t first, int64_t in, int64_t out, int64_t from, int64_t n, int64_t *at,
                       int64_t *count) {
    const double scale = (double)in / (double)out, reach = (scale > 1 ? scale : 1) + 2;
    const int64_t low = (int64_t)floor(((double)from + 0.5) * scale - reach);
    const int64_t high = (int64_t)ceil(((double)(from + n) - 0.5) * scale + reach);
    *at = first + kolo_max_i64(low, 0);
    *count = first + kolo_min_i64(high, in) - *at;
}

kolo_box kolo_image_needs(kolo_box from, int64_t height, int64_t width, kolo_box window) {
    kolo_box part;
    needs_side(from.y, from.height, height, window.y, window.height, &part.y, &part.height);
    needs_side(from.x, from.width, width, window.x, window.width, &part.x, &part.width);
    return part;
}

void kolo_mask_resize(const kolo_image *mask, kolo_box from, int64_t height, int64_t width,
                      kolo_box window, uint8_t *to) {
    for (int64_t y = 0; y < window.height; y++) {
        const int64_t at = from.y + (2 * (window.y + y) + 1) * from.height / (2 * height);
        const uint8_t *row = mask->origin + at * mask->row;
        for (int64_t x = 0; x < window.width; x++) {
            const int64_t by = from.x + (2 * (window.x + x) + 1) * from.width / (2 * width);
            *to++ = row[by * mask->column];
        }
    }
}
