/* Direct convolution for few channels, where the time of a general implementation goes into
 * padding and packing. All three loops are outer products in registers: a tile of sums, vectors of
 * one operand times single numbers of the other.
 *
 * forward: sums [T pixels of a row][Z vectors of output channels].
 * weights: sums [R pairs of (c, kh)][Q kernel columns][Z vectors of output channels] over all
 * pixels of an image; images are added up one by one. data: for each pixel of dy a row of KW * C
 * products, vectors across (kw, c), is made in a tile [P pixels][F vectors] summed over o, and then
 * added to the pixels of dx under it (col2im).
 *
 * Strides that are compile-time numbers (plain planes, blocks of eight) let the addresses of a
 * tile be constants; 0 stands for strides known at run time. */
#include "kernel/simd/simd.h"
#include "kernel/simd/vector.h"

enum {
    MAX_T1 = 14,                   /* pixels of a tile with one vector of channels */
    MAX_T2 = VL == 16 ? 12 : 6,    /* with two */
    MAX_F = 4,                     /* vectors of a row of products */
    MAX_SUMS = VL == 16 ? 24 : 12, /* vectors of sums that leave registers for operands */
};

#define UNROLL _Pragma("GCC unroll 32")

static int64_t even_part(int64_t n, int64_t most) {
    int64_t parts = (n + most - 1) / most;
    return (n + parts - 1) / parts;
}

/* ---- vectors of output channels, in images of any kind ---- */

/* Where one vector of channels begins in an image. A vector of 16 may lie in two blocks of eight;
 * the second half is NULL where the channels end. */
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
    v8f half[2] = {load8(pixel + g.half[0]), {0}};
    if (g.half[1] >= 0) half[1] = load8(pixel + g.half[1]);
    vf v;
    memcpy(&v, half, sizeof v);
    return v;
#else
    return load(pixel + g.half[0]);
#endif
}

INLINE void store_group(float *pixel, group g, vf v) {
#if KOLO_VECTOR_BYTES == 64
    v8f half[2];
    memcpy(half, &v, sizeof v);
    store8(pixel + g.half[0], half[0]);
    if (g.half[1] >= 0) store8(pixel + g.half[1], half[1]);
#else
    store(pixel + g.half[0], v);
#endif
}

/* ---- margins ---- */

static bool has_margins(const kolo_simd_conv_job *job) { return job->pad_h > 0 || job->pad_w > 0; }

static void clear_margins(const kolo_simd_conv_job *job, float *padded) {
    if (!has_margins(job)) return;
    memset(padded, 0, sizeof(float) * (size_t)(job->x.planes * kolo_simd_padded_plane(job)));
}

/* The image at x with margins: x itself when there are none. */
static const float *with_margins(const kolo_simd_conv_job *job, const float *x, float *padded) {
    if (!has_margins(job)) return x;
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

/* Where channel c of the padded image begins. */
static int64_t padded_channel(const kolo_simd_conv_job *job, int64_t c) {
    return c / job->x.inner * kolo_simd_padded_plane(job) + c % job->x.inner;
}

/* ---- forward ---- */

/* T pixels, Z vectors from channel `lane`; x at the tile's first pixel, y at its result. */
INLINE void forward_tile(const kolo_simd_conv_job *job, const float *x, int64_t lane, float *y,
                         const int T, const int Z, const int STEP) {
    const int64_t step = STEP ? STEP : job->stride_w * job->x.inner;
    const int64_t row = kolo_simd_padded_row(job), inner = job->x.inner, lanes = job->lanes;
    const float *w = job->packed + lane;
    vf sum[MAX_T1][2];
    UNROLL for (int t = 0; t < T; t++) {
        UNROLL for (int z = 0; z < Z; z++) sum[t][z] = load(job->bias + lane + z * VL);
    }
    for (int64_t c = 0; c < job->x.c; c++) {
        const float *corner = x + padded_channel(job, c);
        for (int64_t kh = 0; kh < job->kernel_h; kh++) {
            const float *at = corner + kh * row;
            for (int64_t kw = 0; kw < job->kernel_w; kw++, at += inner, w += lanes) {
                vf weight[2];
                UNROLL for (int z = 0; z < Z; z++) weight[z] = load(w + z * VL);
                UNROLL for (int t = 0; t < T; t++) {
                    vf value = splat(at[t * step]);
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
            store_group(y + t * job->y.inner, g, v);
        }
    }
}

#define TILE(t, z)                                 \
    case t:                                        \
        forward_tile(job, x, lane, y, t, z, STEP); \
        return;

INLINE void forward_tile_1(const kolo_simd_conv_job *job, const float *x, int64_t lane, float *y,
                           int64_t T, const int STEP) {
    switch (T) {
        TILE(1, 1)
        TILE(2, 1) TILE(3, 1) TILE(4, 1) TILE(5, 1) TILE(6, 1) TILE(7, 1) TILE(8, 1) TILE(9, 1)
            TILE(10, 1) TILE(11, 1) TILE(12, 1) TILE(13, 1) TILE(14, 1)
    }
}

INLINE void forward_tile_2(const kolo_simd_conv_job *job, const float *x, int64_t lane, float *y,
                           int64_t T, const int STEP) {
    switch (T) {
        TILE(1, 2)
        TILE(2, 2) TILE(3, 2) TILE(4, 2) TILE(5, 2) TILE(6, 2)
#if KOLO_VECTOR_BYTES == 64
            TILE(7, 2) TILE(8, 2) TILE(9, 2) TILE(10, 2) TILE(11, 2) TILE(12, 2)
#endif
    }
}

INLINE void forward_image(const kolo_simd_conv_job *job, const float *x, float *y, const int STEP) {
    int64_t width = job->y.w;
    for (int64_t oh = 0; oh < job->y.h; oh++) {
        const float *x_row = x + oh * job->stride_h * kolo_simd_padded_row(job);
        float *y_row = y + oh * width * job->y.inner;
        int64_t lane = 0, tile = even_part(width, MAX_T2);
        for (; lane + 2 * VL <= job->lanes; lane += 2 * VL) {
            for (int64_t ow = 0; ow < width; ow += tile) {
                forward_tile_2(job, x_row + ow * job->stride_w * job->x.inner, lane,
                               y_row + ow * job->y.inner, kolo_min_i64(tile, width - ow), STEP);
            }
        }
        tile = even_part(width, MAX_T1);
        for (int64_t ow = 0; lane < job->lanes && ow < width; ow += tile) {
            forward_tile_1(job, x_row + ow * job->stride_w * job->x.inner, lane,
                           y_row + ow * job->y.inner, kolo_min_i64(tile, width - ow), STEP);
        }
    }
}

static void forward_step_1(const kolo_simd_conv_job *job, const float *x, float *y) {
    forward_image(job, x, y, 1);
}
static void forward_step_8(const kolo_simd_conv_job *job, const float *x, float *y) {
    forward_image(job, x, y, 8);
}
static void forward_step_any(const kolo_simd_conv_job *job, const float *x, float *y) {
    forward_image(job, x, y, 0);
}

static void forward(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_conv_job *job = arg;
    int64_t step = job->stride_w * job->x.inner;
    float *padded = job->scratch + part * job->part_stride;
    clear_margins(job, padded);
    for (int64_t n = begin; n < end; n++) {
        const float *x = with_margins(job, job->in_x + n * kolo_simd_image_size(&job->x), padded);
        float *y = job->out + n * kolo_simd_image_size(&job->y);
        if (step == 1) {
            forward_step_1(job, x, y);
        } else if (step == 8) {
            forward_step_8(job, x, y);
        } else {
            forward_step_any(job, x, y);
        }
    }
}

/* ---- gradient of the weights ---- */

/* Adds one image's part of rows (c, kh) = first .. first + R, columns kw .. kw + Q and Z vectors
 * from `lane` to the sums of the part. */
INLINE void weights_tile(const kolo_simd_conv_job *job, const float *x, const float *dy,
                         int64_t first, int64_t kw, int64_t lane, float *sums, const int R,
                         const int Q, const int Z, const int STEP) {
    const int64_t step = STEP ? STEP : job->stride_w * job->x.inner;
    const int64_t inner = STEP ? STEP : job->x.inner;
    const int64_t dy_step = STEP ? 8 : job->y.inner;
    const int64_t row = kolo_simd_padded_row(job);
    const float *from[8];
    group g[2];
    vf sum[8][5][2] = {0};
    UNROLL for (int r = 0; r < R; r++) {
        int64_t c = (first + r) / job->kernel_h, kh = (first + r) % job->kernel_h;
        from[r] = x + padded_channel(job, c) + kh * row + kw * inner;
    }
    UNROLL for (int z = 0; z < Z; z++) g[z] = group_at(&job->y, lane + z * VL);
    for (int64_t oh = 0; oh < job->y.h; oh++) {
        int64_t at = oh * job->stride_h * row;
        for (int64_t ow = 0; ow < job->y.w; ow++, at += step, dy += dy_step) {
            vf grad[2];
            UNROLL for (int z = 0; z < Z; z++) grad[z] = load_group(dy, g[z]);
            UNROLL for (int r = 0; r < R; r++) {
                UNROLL for (int q = 0; q < Q; q++) {
                    vf value = splat(from[r][at + q * inner]);
                    UNROLL for (int z = 0; z < Z; z++) {
                        sum[r][q][z] = mul_add(value, grad[z], sum[r][q][z]);
                    }
                }
            }
        }
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

/* All rows for Q columns and Z vectors, as many rows at once as registers hold. */
INLINE void weights_rows(const kolo_simd_conv_job *job, const float *x, const float *dy, int64_t kw,
                         int64_t lane, float *sums, const int Q, const int Z, const int STEP) {
    const int R = MAX_SUMS / (Q * Z) < 8 ? MAX_SUMS / (Q * Z) : 8;
    int64_t rows = job->x.c * job->kernel_h, r = 0;
    for (; r + R <= rows; r += R) {
        weights_tile(job, x, dy, r, kw, lane, sums, R, Q, Z, STEP);
    }
    for (; r < rows; r++) weights_tile(job, x, dy, r, kw, lane, sums, 1, Q, Z, STEP);
}

INLINE void weights_columns(const kolo_simd_conv_job *job, const float *x, const float *dy,
                            int64_t lane, float *sums, const int Z, const int STEP) {
    int64_t most = even_part(job->kernel_w, 5);
    for (int64_t kw = 0; kw < job->kernel_w; kw += most) {
        switch (kolo_min_i64(most, job->kernel_w - kw)) {
        case 1:
            weights_rows(job, x, dy, kw, lane, sums, 1, Z, STEP);
            break;
        case 2:
            weights_rows(job, x, dy, kw, lane, sums, 2, Z, STEP);
            break;
        case 3:
            weights_rows(job, x, dy, kw, lane, sums, 3, Z, STEP);
            break;
        case 4:
            weights_rows(job, x, dy, kw, lane, sums, 4, Z, STEP);
            break;
        case 5:
            weights_rows(job, x, dy, kw, lane, sums, 5, Z, STEP);
            break;
        }
    }
}

INLINE void weights_image(const kolo_simd_conv_job *job, const float *x, const float *dy,
                          float *sums, const int STEP) {
    int64_t lane = 0;
    for (; lane + 2 * VL <= job->lanes; lane += 2 * VL) {
        weights_columns(job, x, dy, lane, sums, 2, STEP);
    }
    if (lane < job->lanes) weights_columns(job, x, dy, lane, sums, 1, STEP);
}

static void weights_step_1(const kolo_simd_conv_job *job, const float *x, const float *dy,
                           float *sums) {
    weights_image(job, x, dy, sums, 1);
}
static void weights_step_8(const kolo_simd_conv_job *job, const float *x, const float *dy,
                           float *sums) {
    weights_image(job, x, dy, sums, 8);
}
static void weights_step_any(const kolo_simd_conv_job *job, const float *x, const float *dy,
                             float *sums) {
    weights_image(job, x, dy, sums, 0);
}

static void bwd_weights(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_conv_job *job = arg;
    int64_t count = job->x.c * job->kernel_h * job->kernel_w * job->lanes;
    float *padded = job->scratch + part * job->part_stride, *sums = job->out + part * count;
    bool known = job->stride_w == 1 && job->y.inner == 8;
    memset(sums, 0, sizeof(float) * (size_t)count);
    clear_margins(job, padded);
    for (int64_t n = begin; n < end; n++) {
        const float *x = with_margins(job, job->in_x + n * kolo_simd_image_size(&job->x), padded);
        const float *dy = job->in_dy + n * kolo_simd_image_size(&job->y);
        if (known && job->x.inner == 1) {
            weights_step_1(job, x, dy, sums);
        } else if (known && job->x.inner == 8) {
            weights_step_8(job, x, dy, sums);
        } else {
            weights_step_any(job, x, dy, sums);
        }
    }
}

/* ---- gradient of the data ---- */

/* products[p][f] = sum over o of dy[p][o] w[o][kh][f], P pixels of a row of dy, F vectors. */
INLINE void products_tile(const kolo_simd_conv_job *job, const float *dy, const float *w,
                          float *products, const int P, const int F, const int STEP) {
    const int64_t step = STEP ? STEP : job->y.inner, next = job->kernel_h * job->lanes;
    vf sum[8][MAX_F] = {0};
    for (int64_t plane = 0; plane < job->y.planes; plane++) {
        const float *from = dy + plane * kolo_simd_plane_size(&job->y);
        int64_t channels = kolo_min_i64(job->y.inner, job->y.c - plane * job->y.inner);
        for (int64_t o = 0; o < channels; o++, from++, w += next) {
            vf weight[MAX_F];
            UNROLL for (int f = 0; f < F; f++) weight[f] = load(w + f * VL);
            UNROLL for (int p = 0; p < P; p++) {
                vf value = splat(from[p * step]);
                UNROLL for (int f = 0; f < F; f++) {
                    sum[p][f] = mul_add(value, weight[f], sum[p][f]);
                }
            }
        }
    }
    UNROLL for (int p = 0; p < P; p++) {
        UNROLL for (int f = 0; f < F; f++) store(products + p * job->lanes + f * VL, sum[p][f]);
    }
}

#define PRODUCTS(p)                                      \
    case p:                                              \
        products_tile(job, dy, w, products, p, F, STEP); \
        return;

INLINE void products_pixels(const kolo_simd_conv_job *job, const float *dy, const float *w,
                            float *products, int64_t P, const int F, const int STEP) {
    switch (P) { PRODUCTS(1) PRODUCTS(2) PRODUCTS(3) PRODUCTS(4) PRODUCTS(5) PRODUCTS(6) }
}

/* A row of dy, F vectors of each pixel's products. */
INLINE void products_row(const kolo_simd_conv_job *job, const float *dy, const float *w,
                         float *products, const int F, const int STEP) {
    const int most = MAX_SUMS / F < 6 ? MAX_SUMS / F : 6;
    int64_t tile = even_part(job->y.w, most);
    for (int64_t ow = 0; ow < job->y.w; ow += tile) {
        products_pixels(job, dy + ow * job->y.inner, w, products + ow * job->lanes,
                        kolo_min_i64(tile, job->y.w - ow), F, STEP);
    }
}

INLINE void products_all(const kolo_simd_conv_job *job, const float *dy, const float *w,
                         float *products, const int STEP) {
    int64_t vectors = job->lanes / VL, most = even_part(vectors, MAX_F);
    for (int64_t f = 0; f < vectors; f += most) {
        switch (kolo_min_i64(most, vectors - f)) {
        case 1:
            products_row(job, dy, w + f * VL, products + f * VL, 1, STEP);
            break;
        case 2:
            products_row(job, dy, w + f * VL, products + f * VL, 2, STEP);
            break;
        case 3:
            products_row(job, dy, w + f * VL, products + f * VL, 3, STEP);
            break;
        case 4:
            products_row(job, dy, w + f * VL, products + f * VL, 4, STEP);
            break;
        }
    }
}

static void products_step_8(const kolo_simd_conv_job *job, const float *dy, const float *w,
                            float *products) {
    products_all(job, dy, w, products, 8);
}
static void products_step_any(const kolo_simd_conv_job *job, const float *dy, const float *w,
                              float *products) {
    products_all(job, dy, w, products, 0);
}

/* Adds the products of a row of dy to a row of dx with margins, whose pixels hold `octets` times
 * eight floats; lanes above C gather what belongs to other pixels and are dropped by copy_out. */
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

/* From the scratch image without its margins to dx. */
static void copy_out(const kolo_simd_conv_job *job, const float *image, float *dx, int64_t octets) {
    int64_t inner = job->x.inner, row = (job->x.w + 2 * job->pad_w) * 8 * octets;
    for (int64_t plane = 0; plane < job->x.planes; plane++) {
        int64_t c = plane * inner, here = kolo_min_i64(inner, job->x.c - c);
        v8i lane = {0, 1, 2, 3, 4, 5, 6, 7}, kept = lane < (int32_t)kolo_min_i64(here, 8);
        for (int64_t h = 0; h < job->x.h; h++) {
            const float *from = image + (h + job->pad_h) * row + job->pad_w * 8 * octets + c;
            for (int64_t w = 0; w < job->x.w; w++, from += 8 * octets, dx += inner) {
                if (inner == 8) {
                    store8(dx, (v8f)(kept & (v8i)load8(from)));
                    continue;
                }
                for (int64_t i = 0; i < here; i++) dx[i] = from[i];
                for (int64_t i = here; i < inner; i++) dx[i] = 0;
            }
        }
    }
}

static void bwd_data(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_conv_job *job = arg;
    int64_t octets = (job->x.c + 7) / 8, row = (job->x.w + 2 * job->pad_w) * 8 * octets;
    int64_t size = (job->x.h + 2 * job->pad_h) * row;
    float *image = job->scratch + part * job->part_stride, *products = image + size;
    for (int64_t n = begin; n < end; n++) {
        const float *dy = job->in_dy + n * kolo_simd_image_size(&job->y);
        memset(image, 0, sizeof(float) * (size_t)size);
        for (int64_t oh = 0; oh < job->y.h; oh++) {
            const float *dy_row = dy + oh * job->y.w * job->y.inner;
            for (int64_t kh = 0; kh < job->kernel_h; kh++) {
                const float *w = job->packed + kh * job->lanes;
                if (job->y.inner == 8) {
                    products_step_8(job, dy_row, w, products);
                } else {
                    products_step_any(job, dy_row, w, products);
                }
                add_products(job, products, image + (oh * job->stride_h + kh) * row, octets);
            }
        }
        copy_out(job, image, job->out + n * kolo_simd_image_size(&job->x), octets);
    }
}

const kolo_simd_conv_table KOLO_SIMD_TABLE(kolo_simd_conv_) = {
    .forward = forward,
    .bwd_data = bwd_data,
    .bwd_weights = bwd_weights,
    .vector = VL,
};
