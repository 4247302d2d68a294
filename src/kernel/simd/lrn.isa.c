/* Local response normalization, tile by tile. The channels of a tile are gathered into a row
 * [channel][pixel], where the sum over a window is the sum of rows shifted by whole channels.
 * The same code handles one pixel with adjacent channels and sixteen pixels of planes. */
#include "kernel/simd/lrn.h"

#include "base/integer.h"
#include "kernel/simd/vector.h"

#include <math.h>

typedef struct tile {
    const kolo_simd_image *image;
    int64_t at, pixels; /* index of its first element in the tensor, number of pixels */
} tile;

INLINE tile tile_at(const kolo_simd_lrn_job *job, int64_t i) {
    const kolo_simd_image *v = &job->image;
    int64_t first = i % job->tiles * job->tile;
    return (tile){v, i / job->tiles * kolo_simd_image_size(v) + first * v->inner,
                  kolo_min_i64(job->tile, v->h * v->w - first)};
}

/* Gathers a tile's channels, including padding, into a row of floats, or scatters them. */
INLINE void gather(tile t, const void *x, float *row, bool bf16) {
    int64_t run = t.pixels * t.image->inner;
    for (int64_t p = 0; p < t.image->planes; p++, row += run) {
        int64_t from = t.at + p * kolo_simd_plane_size(t.image);
        if (bf16) {
            read_numbers(x, from, run, row, true);
        } else {
            memcpy(row, (const float *)x + from, (size_t)run * sizeof *row);
        }
    }
}

INLINE void scatter(tile t, const float *row, void *y, bool bf16) {
    int64_t run = t.pixels * t.image->inner;
    for (int64_t p = 0; p < t.image->planes; p++, row += run) {
        int64_t to = t.at + p * kolo_simd_plane_size(t.image);
        if (bf16) {
            write_numbers(row, run, y, to, true);
        } else {
            memcpy((float *)y + to, row, (size_t)run * sizeof *row);
        }
    }
}

/* s^-beta; beta = 3/4, the usual value, by square roots, which are vectorized. */
INLINE void power(const float *s, float beta, int64_t n, float *out) {
    if (beta == 0.75F) {
        for (int64_t i = 0; i < n; i++) {
            float root = sqrtf(s[i]);
            out[i] = 1 / (root * sqrtf(root));
        }
    } else {
        for (int64_t i = 0; i < n; i++) out[i] = powf(s[i], -beta);
    }
}

/* out[i] = start + factor * sum of values[i + k * step], k below size. */
INLINE void sum_windows(const float *values, int64_t size, int64_t step, float start, float factor,
                        int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++) out[i] = values[i];
    for (int64_t k = 1; k < size; k++) {
        for (int64_t i = 0; i < n; i++) out[i] += values[i + k * step];
    }
    for (int64_t i = 0; i < n; i++) out[i] = start + factor * out[i];
}

/* Zeroes the padding channels, which must not enter a sum and must stay zero in tensors. */
INLINE void clear_padding(tile t, float *row) {
    int64_t n = t.image->c * t.pixels, all = t.image->planes * t.image->inner * t.pixels;
    memset(row + n, 0, sizeof *row * (size_t)(all - n));
}

static void forward(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_lrn_job *job = arg;
    float *scratch = job->scratch + part * job->part_stride;
    for (int64_t i = begin; i < end; i++) {
        tile t = tile_at(job, i);
        int64_t n = job->image.planes * job->image.inner * t.pixels;
        int64_t before = job->size / 2 * t.pixels, behind = (job->size - 1) / 2 * t.pixels;
        float *x = scratch, *s = x + n, *squares = s + n;
        gather(t, job->x, x, job->bf16);
        memset(squares, 0, sizeof *squares * (size_t)before);
        for (int64_t j = 0; j < n; j++) squares[before + j] = x[j] * x[j];
        memset(squares + before + n, 0, sizeof *squares * (size_t)behind);
        sum_windows(squares, job->size, t.pixels, job->k, job->alpha, n, s);
        power(s, job->beta, n, squares);
        for (int64_t j = 0; j < n; j++) x[j] *= squares[j];
        clear_padding(t, x); /* no powers of 0 */
        clear_padding(t, s);
        scatter(t, x, job->y, job->bf16);
        scatter(t, s, job->s_out, job->bf16);
    }
}

static void backward(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_lrn_job *job = arg;
    float *scratch = job->scratch + part * job->part_stride;
    for (int64_t i = begin; i < end; i++) {
        tile t = tile_at(job, i);
        int64_t n = job->image.planes * job->image.inner * t.pixels;
        int64_t counted = job->image.c * t.pixels; /* s is zero in padding, where no power is
                                                    * defined */
        int64_t before = (job->size - 1) / 2 * t.pixels, behind = job->size / 2 * t.pixels;
        float *a = scratch, *b = a + n, *ratios = b + n; /* with margins */
        float *middle = ratios + before;
        memset(ratios, 0, sizeof *ratios * (size_t)(n + before + behind));
        gather(t, job->s, a, job->bf16);
        power(a, job->beta, counted, b);
        for (int64_t j = 0; j < counted; j++) a[j] = b[j] / a[j]; /* s^(-beta - 1) */
        gather(t, job->x, middle, job->bf16);
        for (int64_t j = 0; j < counted; j++) middle[j] *= a[j];
        gather(t, job->dy, a, job->bf16);
        for (int64_t j = 0; j < counted; j++) {
            middle[j] *= a[j];
            b[j] *= a[j];
        }
        clear_padding(t, middle);
        sum_windows(ratios, job->size, t.pixels, 0, -2 * job->alpha * job->beta, n, a);
        gather(t, job->x, ratios, job->bf16);
        for (int64_t j = 0; j < counted; j++) b[j] += a[j] * ratios[j];
        clear_padding(t, b);
        scatter(t, b, job->dx, job->bf16);
    }
}

const kolo_simd_lrn_table KOLO_ISA_SYMBOL(kolo_simd_lrn) = {
    .forward = forward,
    .backward = backward,
};
