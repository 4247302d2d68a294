/* Direct convolution for few channels, where general implementations spend their time on padding
 * and packing. All three loops are outer products with register blocking: a tile of
 * accumulators, vectors of one operand times scalars of the other.
 *
 * forward: accumulators [T pixels of a row][Z vectors of output channels]. With one vector and
 * stride one, each element of x is used for all KW output pixels that it contributes to.
 *
 * weights: accumulators [R pairs of (c, kh)][Q kernel columns][Z vectors of output channels],
 * over all pixels of an image; images are added one after the other. With one vector and stride
 * one, each element of x is used for all kernel columns of some adjacent pixels.
 *
 * data: one row of dx at a time. For each pixel of the contributing rows of dy, KW * C products,
 * vectorized over (kw, c), are accumulated over kh and o in a tile [P pixels][F vectors], then
 * added to the pixels of dx that they belong to.
 *
 * Pairs: eight channels are half of a vector of 16. Then the halves of vectors are two images, and
 * the image with margins has a vector for each element of both.
 *
 * Strides and kernel sizes known at compile time (plain planes, channel blocks) make the
 * addresses within a tile constant; 0 stands for a run-time value. Tiles are sized by the
 * register file: 16 registers, 32 with AVX-512. */
#include "kernel/simd/conv.h"

#include "base/integer.h"
#include "kernel/simd/vector.h"

enum {
    MAX_T1 = VL == 16 ? 14 : 7,    /* pixels per tile with one vector of channels */
    MAX_T2 = VL == 16 ? 14 : 6,    /* with two */
    MAX_P = VL == 16 ? 12 : 6,     /* pixels of dy, and */
    MAX_F = 4,                     /* vectors of their products */
    MAX_R = 8,                     /* rows and */
    MAX_Q = 5,                     /* columns of kernels */
    MAX_T = 4,                     /* pixels of dy at a time */
    MAX_SUMS = VL == 16 ? 25 : 12, /* accumulators, leaving registers for operands */
};

#define UNROLL _Pragma("GCC unroll 32")
#define NOINLINE __attribute__((noinline))

static int64_t even_part(int64_t n, int64_t most) {
    int64_t parts = (n + most - 1) / most;
    return (n + parts - 1) / parts;
}

/* ---- vectors of output channels, in images of any kind ---- */

/* The offsets of one vector of channels in an image. A vector of 16 may span two blocks of
 * eight; the second half is -1 past the last channel. */
typedef struct group {
    int64_t half[VL == 16 ? 2 : 1];
} group;

static group group_at(const kolo_simd_image *v, int64_t c) {
    group g = {{kolo_simd_channel(v, c)}};
#if KOLO_VECTOR_BYTES == 64
    g.half[1] = c + 8 < v->planes * v->inner ? kolo_simd_channel(v, c + 8) : -1;
#endif
    return g;
}

INLINE vf load_group(const float *pixel, group g) {
#if KOLO_VECTOR_BYTES == 64
    if (g.half[1] == g.half[0] + 8) return load(pixel + g.half[0]);
    __m512 low = _mm512_castps256_ps512((__m256)load8(pixel + g.half[0]));
    v8f high = g.half[1] >= 0 ? load8(pixel + g.half[1]) : (v8f){0};
    return (vf)_mm512_insertf32x8(low, (__m256)high, 1);
#else
    return load(pixel + g.half[0]);
#endif
}

INLINE void store_group(float *pixel, group g, vf v) {
#if KOLO_VECTOR_BYTES == 64
    if (g.half[1] == g.half[0] + 8) {
        store(pixel + g.half[0], v);
        return;
    }
    store8(pixel + g.half[0], (v8f)_mm512_castps512_ps256((__m512)v));
    if (g.half[1] >= 0) store8(pixel + g.half[1], (v8f)_mm512_extractf32x8_ps((__m512)v, 1));
#else
    store(pixel + g.half[0], v);
#endif
}

/* ---- margins ---- */

static void clear_margins(const kolo_simd_conv_job *job, float *padded, bool pairs) {
    if (!kolo_simd_has_margins(job)) return;
    const int64_t elements = job->x.planes * kolo_simd_padded_plane(job);
    memset(padded, 0, sizeof(float) * (size_t)(elements * (pairs ? VL : 1)));
}

/* The image at x with zero padding; x itself when there is no padding. */
static const float *with_margins(const kolo_simd_conv_job *job, const float *x, float *padded) {
    if (!kolo_simd_has_margins(job)) return x;
    int64_t row = kolo_simd_padded_row(job), from_row = job->x.w * job->x.inner;
    for (int64_t p = 0; p < job->x.planes; p++) {
        float *to =
            padded + p * kolo_simd_padded_plane(job) + job->pad_h * row + job->pad_w * job->x.inner;
        for (int64_t h = 0; h < job->x.h; h++, to += row, x += from_row) {
            memcpy(to, x, sizeof(float) * (size_t)from_row);
        }
    }
    return padded;
}

/* The offset of channel c in the padded image. */
static int64_t padded_channel(const kolo_simd_conv_job *job, int64_t c) {
    return c / job->x.inner * kolo_simd_padded_plane(job) + c % job->x.inner;
}

/* Element i of an image, or of a pair of images, for all channels. */
INLINE vf element(const float *x, int64_t i, const int PAIR) {
    return PAIR ? load(x + i * VL) : splat(x[i]);
}

#if KOLO_VECTOR_BYTES == 64
/* The images at x and `second` with zero padding, a vector for each element of both. */
static const float *pair_with_margins(const kolo_simd_conv_job *job, const float *x,
                                      const float *second, float *padded) {
    const int64_t row = kolo_simd_padded_row(job), from_row = job->x.w * job->x.inner;
    for (int64_t p = 0; p < job->x.planes; p++) {
        float *to =
            padded +
            (p * kolo_simd_padded_plane(job) + job->pad_h * row + job->pad_w * job->x.inner) * VL;
        for (int64_t h = 0; h < job->x.h; h++, to += row * VL, x += from_row, second += from_row) {
            for (int64_t i = 0; i < from_row; i++) {
                const __m512 low = _mm512_set1_ps(x[i]);
                store(to + i * VL, (vf)_mm512_insertf32x8(low, _mm256_set1_ps(second[i]), 1));
            }
        }
    }
    return padded;
}

INLINE vf load_pair(const float *first, const float *second) {
    const __m512 low = _mm512_castps256_ps512((__m256)load8(first));
    return (vf)_mm512_insertf32x8(low, (__m256)load8(second), 1);
}
INLINE void store_pair(float *first, float *second, vf v) {
    store8(first, (v8f)_mm512_castps512_ps256((__m512)v));
    store8(second, (v8f)_mm512_extractf32x8_ps((__m512)v, 1));
}
#else
INLINE vf load_pair(const float *first, const float *second) { return load(first); }
INLINE void store_pair(float *first, float *second, vf v) { store(first, v); }
#endif

/* ---- forward ---- */

/* One kernel row: each element of x in turn, for all output pixels that it contributes to. */
INLINE void forward_sweep(vf sum[MAX_T1][2], const float *at, const float *w, int64_t lanes,
                          const int T, const int STEP, const int KW, const int PAIR) {
    vf weight[5];
    UNROLL for (int kw = 0; kw < KW; kw++) weight[kw] = load(w + kw * lanes);
    UNROLL for (int i = 0; i < T + KW - 1; i++) {
        vf value = element(at, i * STEP, PAIR);
        UNROLL for (int kw = 0; kw < KW; kw++) {
            if (i < kw || i >= T + kw) continue;
            sum[i - kw][0] = mul_add(value, weight[kw], sum[i - kw][0]);
        }
    }
}

/* T pixels, Z vectors from channel `lane`; x at the tile's first pixel, y at its result. */
INLINE void forward_tile(const kolo_simd_conv_job *job, const float *x, int64_t lane, float *y,
                         const int T, const int Z, const int STEP, const int KW, const int PAIR) {
    const int64_t floats = PAIR ? VL : 1;
    const int64_t step = STEP ? STEP : job->stride_w * job->x.inner;
    const int64_t row = kolo_simd_padded_row(job), inner = job->x.inner, lanes = job->lanes;
    const float *w = job->packed + lane;
    vf sum[MAX_T1][2];
    UNROLL for (int t = 0; t < T; t++) {
        UNROLL for (int z = 0; z < Z; z++) sum[t][z] = load(job->bias + lane + z * VL);
    }
    for (int64_t c = 0; c < job->x.c; c++) {
        const float *corner = x + padded_channel(job, c) * floats;
        for (int64_t kh = 0; kh < job->kernel_h; kh++) {
            const float *at = corner + kh * row * floats;
            if (KW) {
                forward_sweep(sum, at, w, lanes, T, STEP, KW, PAIR);
                w += KW * lanes;
                continue;
            }
            for (int64_t kw = 0; kw < job->kernel_w; kw++, at += inner * floats, w += lanes) {
                vf weight[2];
                UNROLL for (int z = 0; z < Z; z++) weight[z] = load(w + z * VL);
                UNROLL for (int t = 0; t < T; t++) {
                    vf value = element(at, t * step, PAIR);
                    UNROLL for (int z = 0; z < Z; z++) {
                        sum[t][z] = mul_add(value, weight[z], sum[t][z]);
                    }
                }
            }
        }
    }
    UNROLL for (int z = 0; z < Z; z++) {
        group g = group_at(&job->y, lane + z * VL);
        UNROLL for (int t = 0; t < T; t++) {
            vf v = sum[t][z];
            if (job->relu) v = positive(v);
            float *pixel = y + t * job->y.inner;
            if (PAIR) {
                store_pair(pixel, pixel + kolo_simd_image_size(&job->y), v);
            } else {
                store_group(pixel, g, v);
            }
        }
    }
}

#define TILE(t)                                              \
    case t:                                                  \
        forward_tile(job, x, lane, y, t, Z, STEP, KW, PAIR); \
        break;

/* All pixels of a row, Z vectors from channel `lane`. */
INLINE void forward_row(const kolo_simd_conv_job *job, const float *x, int64_t lane, float *y,
                        const int Z, const int STEP, const int KW, const int PAIR) {
    const int most = Z == 2 ? MAX_T2 : MAX_T1;
    int64_t tile = even_part(job->y.w, most), left = job->y.w;
    for (; left > 0; left -= tile) {
        switch (kolo_min_i64(tile, left)) {
            TILE(1)
            TILE(2)
            TILE(3)
            TILE(4)
            TILE(5)
            TILE(6)
            TILE(7)
#if KOLO_VECTOR_BYTES == 64
            TILE(8)
            TILE(9)
            TILE(10)
            TILE(11)
            TILE(12)
            TILE(13)
            TILE(14)
#endif
        }
        x += tile * job->stride_w * job->x.inner * (PAIR ? VL : 1);
        y += tile * job->y.inner;
    }
}

typedef void (*row_loop)(const kolo_simd_conv_job *job, const float *x, int64_t lane, float *y);

/* Separate functions keep compile times bounded: forward_Z_STEP_KW, pair_STEP_KW. */
#define FORWARD_ROW(name, z, step, kw, pair)                                               \
    static NOINLINE void name(const kolo_simd_conv_job *job, const float *x, int64_t lane, \
                              float *y) {                                                  \
        forward_row(job, x, lane, y, z, step, kw, pair);                                   \
    }
#define FORWARD(z, step, kw) FORWARD_ROW(forward_##z##_##step##_##kw, z, step, kw, false)
FORWARD(1, 1, 5)
FORWARD(1, 1, 3)
FORWARD(1, 1, 0)
FORWARD(1, 8, 5)
FORWARD(1, 8, 0)
FORWARD(1, 0, 0)
FORWARD(2, 1, 0)
FORWARD(2, 8, 0)
FORWARD(2, 0, 0)
#if KOLO_VECTOR_BYTES == 64
FORWARD(1, 16, 0)
FORWARD(2, 16, 0)
FORWARD_ROW(pair_1_5, 1, 1, 5, true)
FORWARD_ROW(pair_1_3, 1, 1, 3, true)
FORWARD_ROW(pair_0_0, 1, 0, 0, true)
#endif

static void forward_image(const kolo_simd_conv_job *job, const float *x, int64_t x_row, float *y,
                          row_loop one, row_loop two) {
    for (int64_t oh = 0; oh < job->y.h; oh++) {
        const float *from = x + oh * job->stride_h * x_row;
        float *y_row = y + oh * job->y.w * job->y.inner;
        int64_t lane = 0;
        for (; lane + 2 * VL <= job->lanes; lane += 2 * VL) two(job, from, lane, y_row);
        if (lane < job->lanes) one(job, from, lane, y_row);
    }
}

/* Pairs of images [begin, end); returns the first image without a partner. */
static int64_t forward_pairs(const kolo_simd_conv_job *job, float *padded, int64_t begin,
                             int64_t end) {
#if KOLO_VECTOR_BYTES == 64
    const int64_t x_size = kolo_simd_image_size(&job->x), y_size = kolo_simd_image_size(&job->y);
    const bool one = job->stride_w == 1 && job->x.inner == 1;
    const row_loop loop = one && job->kernel_w == 5   ? pair_1_5
                          : one && job->kernel_w == 3 ? pair_1_3
                                                      : pair_0_0;
    clear_margins(job, padded, true);
    for (; begin + 2 <= end; begin += 2) {
        const float *first = job->in_x + begin * x_size;
        const float *x = pair_with_margins(job, first, first + x_size, padded);
        forward_image(job, x, kolo_simd_padded_row(job) * VL, job->out + begin * y_size, loop,
                      loop);
    }
#endif
    return begin;
}

static void forward(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_conv_job *job = arg;
    row_loop one = forward_1_0_0, two = forward_2_0_0;
    const int64_t step = job->stride_w == 1 ? job->x.inner : 0, kw = job->kernel_w;
    if (step == 1) {
        one = kw == 5 ? forward_1_1_5 : kw == 3 ? forward_1_1_3 : forward_1_1_0;
        two = forward_2_1_0;
    } else if (step == 8) {
        one = kw == 5 ? forward_1_8_5 : forward_1_8_0;
        two = forward_2_8_0;
    }
#if KOLO_VECTOR_BYTES == 64
    if (step == 16) {
        one = forward_1_16_0;
        two = forward_2_16_0;
    }
#endif
    float *padded = job->scratch + part * job->part_stride;
    if (job->pairs) begin = forward_pairs(job, padded, begin, end);
    clear_margins(job, padded, false);
    for (int64_t n = begin; n < end; n++) {
        const float *x = with_margins(job, job->in_x + n * kolo_simd_image_size(&job->x), padded);
        forward_image(job, x, kolo_simd_padded_row(job),
                      job->out + n * kolo_simd_image_size(&job->y), one, two);
    }
}

/* ---- gradient of the weights ---- */

/* Adds T pixels of a row: x is at their first pixel in each row (c, kh), stride one unless T is
 * one. */
INLINE void weights_pixels(vf sum[MAX_R][MAX_Q][2], const float *const from[MAX_R], int64_t at,
                           int64_t inner, vf grad[MAX_T][2], const int T, const int R, const int Q,
                           const int Z, const int PAIR) {
    UNROLL for (int r = 0; r < R; r++) {
        UNROLL for (int i = 0; i < T + Q - 1; i++) {
            vf value = element(from[r] + at, i * inner, PAIR);
            UNROLL for (int q = 0; q < Q; q++) {
                if (i < q || i >= T + q) continue;
                UNROLL for (int z = 0; z < Z; z++) {
                    sum[r][q][z] = mul_add(value, grad[i - q][z], sum[r][q][z]);
                }
            }
        }
    }
}

#define WEIGHTS_PIXELS(t)                                                                   \
    for (; ow + (t) <= job->y.w; ow += t, at += (t)*step, dy += (t)*dy_step) {              \
        vf grad[MAX_T][2];                                                                  \
        UNROLL for (int i = 0; i < (t); i++) {                                              \
            UNROLL for (int z = 0; z < Z; z++) {                                            \
                const float *pixel = dy + i * dy_step;                                      \
                grad[i][z] = PAIR ? load_pair(pixel, pixel + kolo_simd_image_size(&job->y)) \
                                  : load_group(pixel, g[z]);                                \
            }                                                                               \
        }                                                                                   \
        weights_pixels(sum, from, at, inner, grad, t, R, Q, Z, PAIR);                       \
    }

/* Adds one image's contribution, or that of a pair, to rows (c, kh) = first .. first + R, columns
 * kw .. kw + Q and Z vectors from `lane` of the partial sums. */
INLINE void weights_tile(const kolo_simd_conv_job *job, const float *x, const float *dy,
                         int64_t first, int64_t kw, int64_t lane, float *sums, const int R,
                         const int Q, const int Z, const int PAIR) {
    const int64_t floats = PAIR ? VL : 1, inner = job->x.inner, dy_step = job->y.inner;
    const int64_t row = kolo_simd_padded_row(job) * floats, step = job->stride_w * inner * floats;
    const float *from[MAX_R];
    group g[2];
    vf sum[MAX_R][MAX_Q][2] = {0};
    UNROLL for (int r = 0; r < R; r++) {
        int64_t c = (first + r) / job->kernel_h, kh = (first + r) % job->kernel_h;
        from[r] = x + (padded_channel(job, c) + kw * inner) * floats + kh * row;
    }
    UNROLL for (int z = 0; z < Z && !PAIR; z++) g[z] = group_at(&job->y, lane + z * VL);
    for (int64_t oh = 0; oh < job->y.h; oh++) {
        int64_t at = oh * job->stride_h * row, ow = 0;
        if (Z == 1 && job->stride_w == 1) {
            if (VL == 16) WEIGHTS_PIXELS(MAX_T)
            WEIGHTS_PIXELS(2)
        }
        WEIGHTS_PIXELS(1)
    }
    UNROLL for (int r = 0; r < R; r++) {
        UNROLL for (int q = 0; q < Q; q++) {
            float *to = sums + ((first + r) * job->kernel_w + kw + q) * job->lanes + lane;
            UNROLL for (int z = 0; z < Z; z++) {
                store(to + z * VL, load(to + z * VL) + sum[r][q][z]);
            }
        }
    }
}

#define WEIGHTS_ROWS(r)                                                               \
    case r:                                                                           \
        if ((r) <= most) weights_tile(job, x, dy, at, kw, lane, sums, r, Q, Z, PAIR); \
        break;

/* All rows for Q columns and Z vectors, in tiles of nearly equal height. */
INLINE void weights_rows(const kolo_simd_conv_job *job, const float *x, const float *dy, int64_t kw,
                         int64_t lane, float *sums, const int Q, const int Z, const int PAIR) {
    const int most = MAX_SUMS / (Q * Z) < MAX_R ? MAX_SUMS / (Q * Z) : MAX_R;
    int64_t rows = job->x.c * job->kernel_h, tile = even_part(rows, most);
    for (int64_t at = 0; at < rows; at += tile) {
        switch (kolo_min_i64(tile, rows - at)) {
            WEIGHTS_ROWS(1)
            WEIGHTS_ROWS(2)
            WEIGHTS_ROWS(3)
            WEIGHTS_ROWS(4)
            WEIGHTS_ROWS(5)
            WEIGHTS_ROWS(6)
            WEIGHTS_ROWS(7)
            WEIGHTS_ROWS(8)
        }
    }
}

typedef void (*columns_loop)(const kolo_simd_conv_job *job, const float *x, const float *dy,
                             int64_t kw, int64_t lane, float *sums);

/* weights_Q_Z, pair_weights_Q */
#define WEIGHTS_LOOP(name, q, z, pair)                                                        \
    static NOINLINE void name(const kolo_simd_conv_job *job, const float *x, const float *dy, \
                              int64_t kw, int64_t lane, float *sums) {                        \
        weights_rows(job, x, dy, kw, lane, sums, q, z, pair);                                 \
    }
#define WEIGHTS(q, z) WEIGHTS_LOOP(weights_##q##_##z, q, z, false)
WEIGHTS(1, 1)
WEIGHTS(2, 1)
WEIGHTS(3, 1)
WEIGHTS(4, 1)
WEIGHTS(5, 1)
WEIGHTS(1, 2)
WEIGHTS(2, 2)
WEIGHTS(3, 2)
WEIGHTS(4, 2)
WEIGHTS(5, 2)
static const columns_loop weights_loops[2][MAX_Q] = {
    {weights_1_1, weights_2_1, weights_3_1, weights_4_1, weights_5_1},
    {weights_1_2, weights_2_2, weights_3_2, weights_4_2, weights_5_2},
};

/* All columns and lanes of one image, or of a pair, by loops for one and for two vectors. */
static void weights_image(const kolo_simd_conv_job *job, const columns_loop *one,
                          const columns_loop *two, const float *x, const float *dy, float *sums) {
    int64_t most = even_part(job->kernel_w, MAX_Q);
    for (int64_t lane = 0; lane < job->lanes; lane += 2 * VL) {
        const columns_loop *of_lane = lane + VL < job->lanes ? two : one;
        for (int64_t kw = 0; kw < job->kernel_w; kw += most) {
            int64_t columns = kolo_min_i64(most, job->kernel_w - kw);
            of_lane[columns - 1](job, x, dy, kw, lane, sums);
        }
    }
}

#if KOLO_VECTOR_BYTES == 64
WEIGHTS_LOOP(pair_weights_1, 1, 1, true)
WEIGHTS_LOOP(pair_weights_2, 2, 1, true)
WEIGHTS_LOOP(pair_weights_3, 3, 1, true)
WEIGHTS_LOOP(pair_weights_4, 4, 1, true)
WEIGHTS_LOOP(pair_weights_5, 5, 1, true)
static const columns_loop pair_weights_loops[MAX_Q] = {
    pair_weights_1, pair_weights_2, pair_weights_3, pair_weights_4, pair_weights_5};
#endif

/* As forward_pairs. */
static int64_t weights_pairs(const kolo_simd_conv_job *job, float *padded, int64_t begin,
                             int64_t end, float *sums) {
#if KOLO_VECTOR_BYTES == 64
    const int64_t x_size = kolo_simd_image_size(&job->x), y_size = kolo_simd_image_size(&job->y);
    clear_margins(job, padded, true);
    for (; begin + 2 <= end; begin += 2) {
        const float *first = job->in_x + begin * x_size;
        const float *x = pair_with_margins(job, first, first + x_size, padded);
        weights_image(job, pair_weights_loops, NULL, x, job->in_dy + begin * y_size, sums);
    }
#endif
    return begin;
}

static void bwd_weights(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_conv_job *job = arg;
    int64_t count = job->x.c * job->kernel_h * job->kernel_w * job->lanes;
    float *padded = job->scratch + part * job->part_stride, *sums = job->out + part * count;
    memset(sums, 0, sizeof(float) * (size_t)count);
    if (job->pairs) begin = weights_pairs(job, padded, begin, end, sums);
    clear_margins(job, padded, false);
    for (int64_t n = begin; n < end; n++) {
        const float *x = with_margins(job, job->in_x + n * kolo_simd_image_size(&job->x), padded);
        const float *dy = job->in_dy + n * kolo_simd_image_size(&job->y);
        weights_image(job, weights_loops[0], weights_loops[1], x, dy, sums);
    }
}

/* ---- gradient of the data ---- */

/* The rows of dy, with kh = first, first + stride, ..., that contribute to one row of dx. */
typedef struct dy_rows {
    const float *dy; /* the row for kernel row `first`; the next is one row before */
    int64_t first, count;
} dy_rows;

/* products[p][f] = sum over kh and o of dy[kh][p][o] w[kh][o][f]: P pixels, F vectors. */
INLINE void products_tile(const kolo_simd_conv_job *job, const dy_rows *rows, int64_t ow,
                          int64_t vector, float *products, const int P, const int F,
                          const int STEP) {
    const int64_t step = STEP ? STEP : job->y.inner, lanes = job->lanes;
    vf sum[MAX_P][MAX_F] = {0};
    for (int64_t i = 0; i < rows->count; i++) {
        const float *dy = rows->dy - i * job->y.w * step + ow * step;
        const float *w =
            job->packed + (rows->first + i * job->stride_h) * job->y.c * lanes + vector * VL;
        for (int64_t plane = 0; plane < job->y.planes; plane++) {
            const float *from = dy + plane * kolo_simd_plane_size(&job->y);
            int64_t channels = kolo_min_i64(job->y.inner, job->y.c - plane * job->y.inner);
            for (int64_t o = 0; o < channels; o++, w += lanes) {
                vf weight[MAX_F];
                UNROLL for (int f = 0; f < F; f++) weight[f] = load(w + f * VL);
                UNROLL for (int p = 0; p < P; p++) {
                    vf value = splat(from[p * step + o]);
                    UNROLL for (int f = 0; f < F; f++) {
                        sum[p][f] = mul_add(value, weight[f], sum[p][f]);
                    }
                }
            }
        }
    }
    products += ow * lanes + vector * VL;
    UNROLL for (int p = 0; p < P; p++) {
        UNROLL for (int f = 0; f < F; f++) store(products + p * lanes + f * VL, sum[p][f]);
    }
}

#define PRODUCTS(p)                                                                  \
    case p:                                                                          \
        if ((p) <= most) products_tile(job, rows, ow, vector, products, p, F, STEP); \
        break;

/* F vectors of products for each pixel. */
INLINE void products_row(const kolo_simd_conv_job *job, const dy_rows *rows, int64_t vector,
                         float *products, const int F, const int STEP) {
    const int most = MAX_SUMS / F < MAX_P ? MAX_SUMS / F : MAX_P;
    int64_t tile = even_part(job->y.w, most);
    for (int64_t ow = 0; ow < job->y.w; ow += tile) {
        switch (kolo_min_i64(tile, job->y.w - ow)) {
            PRODUCTS(1)
            PRODUCTS(2)
            PRODUCTS(3)
            PRODUCTS(4)
            PRODUCTS(5)
            PRODUCTS(6)
#if KOLO_VECTOR_BYTES == 64
            PRODUCTS(7)
            PRODUCTS(8)
            PRODUCTS(9)
            PRODUCTS(10)
            PRODUCTS(11)
            PRODUCTS(12)
#endif
        }
    }
}

typedef void (*products_loop)(const kolo_simd_conv_job *job, const dy_rows *rows, int64_t vector,
                              float *products);

/* products_F_STEP */
#define PRODUCTS_ROW(f, step)                                                                      \
    static NOINLINE void products_##f##_##step(const kolo_simd_conv_job *job, const dy_rows *rows, \
                                               int64_t vector, float *products) {                  \
        products_row(job, rows, vector, products, f, step);                                        \
    }
PRODUCTS_ROW(1, 8)
PRODUCTS_ROW(2, 8)
PRODUCTS_ROW(3, 8)
PRODUCTS_ROW(4, 8)
#if KOLO_VECTOR_BYTES == 64
PRODUCTS_ROW(1, 16)
PRODUCTS_ROW(2, 16)
PRODUCTS_ROW(3, 16)
PRODUCTS_ROW(4, 16)
#endif
PRODUCTS_ROW(1, 0)
PRODUCTS_ROW(2, 0)
PRODUCTS_ROW(3, 0)
PRODUCTS_ROW(4, 0)

static void all_products(const kolo_simd_conv_job *job, const dy_rows *rows, float *products) {
    static const products_loop any[MAX_F] = {products_1_0, products_2_0, products_3_0,
                                             products_4_0};
    static const products_loop by_8[MAX_F] = {products_1_8, products_2_8, products_3_8,
                                              products_4_8};
    const products_loop *loops = job->y.inner == 8 ? by_8 : any;
#if KOLO_VECTOR_BYTES == 64
    static const products_loop by_16[MAX_F] = {products_1_16, products_2_16, products_3_16,
                                               products_4_16};
    if (job->y.inner == 16) loops = by_16;
#endif
    int64_t vectors = job->lanes / VL, most = even_part(vectors, MAX_F);
    for (int64_t vector = 0; vector < vectors; vector += most) {
        int64_t count = kolo_min_i64(most, vectors - vector);
        loops[count - 1](job, rows, vector, products);
    }
}

/* Adds the products to a padded row of dx, whose pixels hold `octets` times eight floats; lanes
 * above C accumulate values of other pixels, which copy_row drops. */
static void add_products(const kolo_simd_conv_job *job, const float *products, float *row,
                         int64_t octets) {
    for (int64_t i = 0; i < octets; i++) {
        for (int64_t kw = 0; kw < job->kernel_w; kw++) {
            const float *from = products + kw * job->x.c + 8 * i;
            float *to = row + kw * 8 * octets + 8 * i;
            for (int64_t ow = 0; ow < job->y.w; ow++) {
                store8(to, load8(to) + load8(from));
                from += job->lanes;
                to += job->stride_w * 8 * octets;
            }
        }
    }
}

/* Copies the row without padding to the row of dx. */
static void copy_row(const kolo_simd_conv_job *job, const float *row, float *dx, int64_t octets) {
    int64_t inner = job->x.inner;
    const v8i lane = {0, 1, 2, 3, 4, 5, 6, 7};
    for (int64_t plane = 0; plane < job->x.planes; plane++) {
        int64_t c = plane * inner, here = kolo_min_i64(inner, job->x.c - c);
        v8i kept = lane < (int32_t)kolo_min_i64(here, 8);
        const float *from = row + job->pad_w * 8 * octets + c;
        float *to = dx + plane * kolo_simd_plane_size(&job->x);
        for (int64_t w = 0; w < job->x.w; w++, from += 8 * octets, to += inner) {
            if (inner == 8) {
                store8(to, (v8f)(kept & (v8i)load8(from)));
                continue;
            }
            for (int64_t i = 0; i < here; i++) to[i] = from[i];
            for (int64_t i = here; i < inner; i++) to[i] = 0;
        }
    }
}

/* The rows of one image of `dy` that contribute to row h of dx. */
static dy_rows rows_above(const kolo_simd_conv_job *job, const float *dy, int64_t h) {
    int64_t stride = job->stride_h, top = h + job->pad_h; /* = oh * stride + kh */
    dy_rows rows = {.first = top % stride};
    if (top / stride > job->y.h - 1) rows.first = top - (job->y.h - 1) * stride;
    int64_t oh = (top - rows.first) / stride;
    for (int64_t kh = rows.first; kh < job->kernel_h && kh <= top; kh += stride) rows.count++;
    rows.dy = dy + oh * job->y.w * job->y.inner;
    return rows;
}

static void bwd_data(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_conv_job *job = arg;
    int64_t octets = (job->x.c + 7) / 8, floats = (job->x.w + 2 * job->pad_w) * 8 * octets;
    float *row = job->scratch + part * job->part_stride, *products = row + floats;
    for (int64_t n = begin; n < end; n++) {
        const float *dy = job->in_dy + n * kolo_simd_image_size(&job->y);
        float *dx = job->out + n * kolo_simd_image_size(&job->x);
        for (int64_t h = 0; h < job->x.h; h++, dx += job->x.w * job->x.inner) {
            dy_rows rows = rows_above(job, dy, h);
            memset(row, 0, sizeof(float) * (size_t)floats);
            if (rows.count > 0) {
                all_products(job, &rows, products);
                add_products(job, products, row, octets);
            }
            copy_row(job, row, dx, octets);
        }
    }
}

const kolo_simd_conv_table KOLO_ISA_SYMBOL(kolo_simd_conv) = {
    .forward = forward,
    .bwd_data = bwd_data,
    .bwd_weights = bwd_weights,
    .vector = VL,
};
