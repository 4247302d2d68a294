/* Convolution by Winograd's minimal filtering, F(4x4, 3x3) and F(2x2, 5x5): 36 multiplications
 * for a tile of 4 x 4 results, where direct convolution needs 144, and for 2 x 2 results, where
 * it needs 100 (Lavin, Gray: Fast Algorithms for Convolutional Neural Networks, CVPR 2016,
 * section 4).
 *
 * With tiles y of the result, windows d of the image (6 x 6, overlapping) and filters g:
 *
 *     y = A' [(G g G') . (B' d B)] A          dg = G' [(A dy A') . (B' d B)] G
 *
 * The products at each of the 36 points, summed over channels (for the gradient: over tiles),
 * are a matrix product. Its operands are packed as panels of P lanes, [point][panel][tile or
 * row][P]: transforms write whole cache lines, and the product reads lines in sequence.
 *
 * The interpolation points are 0, +-5/8, +-3/2 and infinity, with about half the rounding error
 * of 0, +-1, +-2 (measured; docs/winograd.md). Both forms use the same windows and points and
 * share their loops, unrolled for each number of taps. Sums run over channels in order and over
 * tiles in the order of the job's blocks, so the partition does not affect the result. */
#include "kernel/simd/winograd.h"

#include "base/integer.h"
#include "kernel/simd/vector.h"

enum {
    WINDOW = KOLO_SIMD_WINO_WINDOW,
    POINTS = WINDOW * WINDOW,
    MOST = 5,                  /* taps, or rows of a tile */
    P = 2 * VL,                /* lanes per panel */
    MAX_R = VL == 16 ? 14 : 6, /* rows of a product in registers, two vectors each */
    DEPTH = 256,               /* channels whose filters stay in L1 */
    LINE = 16,                 /* floats per cache line */
};

#define UNROLL _Pragma("GCC unroll 36")
#define NOINLINE __attribute__((noinline))

#define A1 0.625F
#define A2 (A1 * A1)
#define A3 (A2 * A1)
#define B1 1.5F
#define B2 (B1 * B1)
#define B3 (B2 * B1)
#define OF_0                                                                           \
    (1 / (A2 * B2)) /* 1 / m'(point), where m is the polynomial with the finite points \
                     * as roots */
#define OF_A (1 / (2 * A2 * (A2 - B2)))
#define OF_B (1 / (2 * B2 * (B2 - A2)))

/* ---- transforms of one dimension ---- */

INLINE vf times(float a, vf x, vf plus) { return mul_add(splat(a), x, plus); }

/* B': transforms a window to points. */
INLINE void window_points(const vf d[WINDOW], vf p[WINDOW]) {
    vf even_a = times(-B2, d[2], d[4]), odd_a = times(-B2, d[1], d[3]);
    vf even_b = times(-A2, d[2], d[4]), odd_b = times(-A2, d[1], d[3]);
    p[0] = times(-B2, times(-A2, d[0], d[2]), even_b);
    p[1] = times(A1, odd_a, even_a);
    p[2] = times(-A1, odd_a, even_a);
    p[3] = times(B1, odd_b, even_b);
    p[4] = times(-B1, odd_b, even_b);
    p[5] = times(-B2, odd_b, times(-A2, d[3], d[5]));
}

/* The n-th power of a point. */
static const float a_to[MOST] = {1, A1, A2, A3, A2 *A2}, b_to[MOST] = {1, B1, B2, B3, B2 *B2};

/* Evaluates a polynomial of n coefficients at the points: even and odd part at 5/8 and 3/2,
 * scaled, and the last coefficient for infinity. */
INLINE void evaluate(const vf c[], const int n, float of_0, float of_a, float of_b, vf p[WINDOW]) {
    vf even_a = splat(of_a) * c[0], even_b = splat(of_b) * c[0];
    vf odd_a = splat(of_a * A1) * c[1], odd_b = splat(of_b * B1) * c[1];
    UNROLL for (int k = 2; k < MOST && k < n; k++) {
        vf *a = k % 2 ? &odd_a : &even_a, *b = k % 2 ? &odd_b : &even_b;
        *a = times(of_a * a_to[k], c[k], *a);
        *b = times(of_b * b_to[k], c[k], *b);
    }
    p[0] = splat(of_0) * c[0];
    p[1] = even_a + odd_a;
    p[2] = even_a - odd_a;
    p[3] = even_b + odd_b;
    p[4] = even_b - odd_b;
    p[5] = c[n - 1];
}

/* The transpose of the above. */
INLINE void accumulate(const vf p[WINDOW], const int n, float of_0, float of_a, float of_b,
                       vf c[]) {
    vf even_a = splat(of_a) * (p[1] + p[2]), odd_a = splat(of_a) * (p[1] - p[2]);
    vf even_b = splat(of_b) * (p[3] + p[4]), odd_b = splat(of_b) * (p[3] - p[4]);
    c[0] = times(of_0, p[0], even_a + even_b);
    UNROLL for (int k = 1; k < MOST && k < n; k++) {
        vf rest = splat(a_to[k]) * (k % 2 ? odd_a : even_a);
        if (k == n - 1) rest += p[5];
        c[k] = times(b_to[k], k % 2 ? odd_b : even_b, rest);
    }
}

/* A: transforms a tile of n rows to points; A': points to a tile. */
INLINE void tile_points(const vf y[], const int n, vf p[WINDOW]) { evaluate(y, n, 1, 1, 1, p); }
INLINE void tile_of_points(const vf p[WINDOW], const int n, vf y[]) {
    accumulate(p, n, 1, 1, 1, y);
}

/* G: transforms a filter of n taps to points; G': points to a filter. */
INLINE void filter_points(const vf g[], const int n, vf p[WINDOW]) {
    evaluate(g, n, OF_0, OF_A, OF_B, p);
}
INLINE void filter_of_points(const vf p[WINDOW], const int n, vf g[]) {
    accumulate(p, n, OF_0, OF_A, OF_B, g);
}

/* ---- tiles of images ---- */

/* One tile: its image and position. */
typedef struct place {
    int64_t n, h, w; /* image, row and column of the tile */
} place;

static place place_of(const kolo_simd_wino_job *job, int64_t tile) {
    int64_t row = tile / job->tiles_w;
    return (place){row / job->tiles_h, row % job->tiles_h, tile % job->tiles_w};
}

static void next_place(const kolo_simd_wino_job *job, place *at) {
    if (++at->w < job->tiles_w) return;
    at->w = 0;
    if (++at->h < job->tiles_h) return;
    at->h = 0;
    at->n++;
}

/* The part of a square of pixels inside an image: rows [h, h_end), columns [w, w_end) of the
 * square, whose first pixel is `offset` floats from the image's (possibly outside). */
typedef struct square {
    int64_t offset;
    int h, h_end, w, w_end;
} square;

static square square_of(const kolo_simd_image *image, int64_t h, int64_t w, int size) {
    return (square){
        .offset = (h * image->w + w) * image->inner,
        .h = (int)kolo_max_i64(0, -h),
        .h_end = (int)kolo_min_i64(size, image->h - h),
        .w = (int)kolo_max_i64(0, -w),
        .w_end = (int)kolo_min_i64(size, image->w - w),
    };
}

static bool is_whole(const square *s, int size) {
    return s->h == 0 && s->w == 0 && s->h_end == size && s->w_end == size;
}

/* Iterates over vectors of channels: the offset in an image's first pixel, and the channels left
 * in its plane. As kolo_simd_channel, without divisions. */
typedef struct channel_place {
    int64_t offset, left;
} channel_place;

INLINE void next_channels(const kolo_simd_image *v, channel_place *at) {
    at->offset += VL;
    at->left -= VL;
    if (at->left > 0) return;
    at->offset += kolo_simd_plane_size(v) - v->inner;
    at->left = v->inner;
}

/* `to`: first vector of the tile at point 0; the image starts at the vector's channel. */
INLINE void transform_window(const float *image, const kolo_simd_image *v, square s, bool whole,
                             float *to, int64_t point_stride) {
    const int64_t row = v->w * v->inner, step = v->inner;
    vf half[WINDOW][WINDOW], d[WINDOW], p[WINDOW];
    UNROLL for (int j = 0; j < WINDOW; j++) {
        bool column = whole || (j >= s.w && j < s.w_end);
        UNROLL for (int i = 0; i < WINDOW; i++) {
            bool inside = whole || (column && i >= s.h && i < s.h_end);
            d[i] = inside ? load(image + s.offset + i * row + j * step) : (vf){0};
        }
        window_points(d, p);
        UNROLL for (int i = 0; i < WINDOW; i++) half[i][j] = p[i];
    }
    UNROLL for (int i = 0; i < WINDOW; i++) {
        window_points(half[i], p);
        UNROLL for (int j = 0; j < WINDOW; j++) store(to + (i * WINDOW + j) * point_stride, p[j]);
    }
}

INLINE void transform_tile(const float *image, const kolo_simd_image *v, square s, const int tile,
                           bool whole, float *to, int64_t point_stride) {
    const int64_t row = v->w * v->inner, step = v->inner;
    vf half[WINDOW][MOST], y[MOST], p[WINDOW];
    UNROLL for (int j = 0; j < tile; j++) {
        UNROLL for (int i = 0; i < tile; i++) {
            bool inside = whole || (j < s.w_end && i < s.h_end);
            y[i] = inside ? load(image + s.offset + i * row + j * step) : (vf){0};
        }
        tile_points(y, tile, p);
        UNROLL for (int i = 0; i < WINDOW; i++) half[i][j] = p[i];
    }
    UNROLL for (int i = 0; i < WINDOW; i++) {
        tile_points(half[i], tile, p);
        UNROLL for (int j = 0; j < WINDOW; j++) store(to + (i * WINDOW + j) * point_stride, p[j]);
    }
}

/* All channels of one square: a tile of that size, or (0) a window; `to` is the square's row of
 * the first panel. */
INLINE void transform_square(const float *image, const kolo_simd_image *v, square s, const int tile,
                             const bool whole, float *to, int64_t rows, int64_t point_stride) {
    int64_t channels = v->planes * v->inner;
    channel_place x = {0, v->inner};
    for (int64_t c = 0; c < channels; c += VL, next_channels(v, &x)) {
        float *at = to + c / P * rows * P + c % P;
        if (tile == 0) {
            transform_window(image + x.offset, v, s, whole, at, point_stride);
        } else {
            transform_tile(image + x.offset, v, s, tile, whole, at, point_stride);
        }
    }
    if (tile == 0 || channels % P == 0) return; /* scalar reads of window lanes */
    for (int i = 0; i < POINTS; i++) {
        store(to + channels / P * rows * P + VL + i * point_stride, (vf){0});
    }
}

typedef void (*square_loop)(const float *image, const kolo_simd_image *v, square s, float *to,
                            int64_t rows, int64_t point_stride);

#define SQUARE(name, tile, whole)                                                                \
    static NOINLINE void name(const float *image, const kolo_simd_image *v, square s, float *to, \
                              int64_t rows, int64_t point_stride) {                              \
        transform_square(image, v, s, tile, whole, to, rows, point_stride);                      \
    }
SQUARE(whole_window, 0, true)
SQUARE(part_window, 0, false)
SQUARE(whole_tile_4, 4, true)
SQUARE(part_tile_4, 4, false)
SQUARE(whole_tile_2, 2, true)
SQUARE(part_tile_2, 2, false)

/* Transforms the windows of tiles [first, first + count) into rows 0, 1, ... of the panels at v. */
static void read_windows(const kolo_simd_wino_job *job, int64_t first, int64_t count, float *v) {
    place at = place_of(job, first);
    for (int64_t i = 0; i < count; i++, next_place(job, &at)) {
        const float *image = job->in_x + at.n * kolo_simd_image_size(&job->x);
        square s = square_of(&job->x, at.h * job->tile - job->pad_h, at.w * job->tile - job->pad_w,
                             WINDOW);
        (is_whole(&s, WINDOW) ? whole_window : part_window)(image, &job->x, s, v + i * P,
                                                            job->block, job->x_stride);
    }
}

static void read_tiles(const kolo_simd_wino_job *job, int64_t first, int64_t count, float *v) {
    place at = place_of(job, first);
    const int tile = job->tile;
    square_loop whole = tile == 4 ? whole_tile_4 : whole_tile_2;
    square_loop ragged = tile == 4 ? part_tile_4 : part_tile_2;
    for (int64_t i = 0; i < count; i++, next_place(job, &at)) {
        const float *image = job->in_y + at.n * kolo_simd_image_size(&job->y);
        square s = square_of(&job->y, at.h * tile, at.w * tile, tile);
        (is_whole(&s, tile) ? whole : ragged)(image, &job->y, s, v + i * P, job->block,
                                              job->y_stride);
    }
}

/* Transforms one vector of channels of one tile from products to y. */
INLINE void write_vector(const kolo_simd_wino_job *job, const float *from, vf bias, square s,
                         const int tile, float *y) {
    const int64_t row = job->y.w * job->y.inner, step = job->y.inner;
    vf half[MOST][WINDOW], p[WINDOW], t[MOST];
    UNROLL for (int j = 0; j < WINDOW; j++) {
        UNROLL for (int i = 0; i < WINDOW; i++) {
            p[i] = load(from + (i * WINDOW + j) * job->y_stride);
        }
        tile_of_points(p, tile, t);
        UNROLL for (int i = 0; i < tile; i++) half[i][j] = t[i];
    }
    y += s.offset;
    UNROLL for (int i = 0; i < tile; i++, y += row) {
        if (i >= s.h_end) break;
        tile_of_points(half[i], tile, t);
        UNROLL for (int j = 0; j < tile; j++) {
            vf value = t[j] + bias;
            if (job->relu) value = positive(value);
            if (j < s.w_end) store(y + j * step, value);
        }
    }
}

INLINE void write_tiles_of(const kolo_simd_wino_job *job, int64_t first, int64_t count,
                           const int tile, const float *m) {
    place at = place_of(job, first);
    const kolo_simd_image *v = &job->y;
    int64_t channels = v->planes * v->inner;
    for (int64_t i = 0; i < count; i++, next_place(job, &at)) {
        float *image = job->out + at.n * kolo_simd_image_size(v);
        square s = square_of(v, at.h * tile, at.w * tile, tile);
        channel_place y = {0, v->inner};
        for (int64_t c = 0; c < channels; c += VL, next_channels(v, &y)) {
            const float *from = m + (c / P * job->block + i) * P + c % P;
            write_vector(job, from, load(job->bias + c), s, tile, image + y.offset);
        }
    }
}

static void write_tiles(const kolo_simd_wino_job *job, int64_t first, int64_t count,
                        const float *m) {
    if (job->tile == 4) {
        write_tiles_of(job, first, count, 4, m);
    } else {
        write_tiles_of(job, first, count, 2, m);
    }
}

/* ---- filters ---- */

/* Vectors of a panel that hold channels of y: the last panel may have one. */
INLINE int vectors_of(const kolo_simd_wino_job *job, int64_t panel) {
    return job->y.planes * job->y.inner - panel * P > VL ? 2 : 1;
}

/* VL lanes of one tap, zero-padded. */
INLINE vf load_lanes(const kolo_simd_wino_job *job, const float *w, int64_t lane) {
    const int32_t *at = job->lane_at + lane;
    if (lane + VL <= job->lanes && at[VL - 1] - at[0] == VL - 1) return load(w + at[0]);
    float gathered[VL] = {0};
    for (int64_t i = 0; i < kolo_min_i64(VL, job->lanes - lane); i++) gathered[i] = w[at[i]];
    return load(gathered);
}

INLINE void store_lanes(const kolo_simd_wino_job *job, float *w, int64_t lane, vf v) {
    const int32_t *at = job->lane_at + lane;
    if (lane + VL <= job->lanes && at[VL - 1] - at[0] == VL - 1) {
        store(w + at[0], v);
        return;
    }
    float scattered[VL];
    store(scattered, v);
    for (int64_t i = 0; i < kolo_min_i64(VL, job->lanes - lane); i++) w[at[i]] = scattered[i];
}

/* Transforms the filters of one row of a panel: [P] at each point, `stride` floats apart. */
INLINE void read_filter_row(const kolo_simd_wino_job *job, const int taps, int64_t panel,
                            int64_t row, float *to, int64_t stride) {
    const float *w = job->weights + job->row_at[row];
    for (int z = 0; z < vectors_of(job, panel); z++, to += VL) {
        vf half[WINDOW][MOST], g[MOST], p[WINDOW];
        UNROLL for (int j = 0; j < taps; j++) {
            UNROLL for (int i = 0; i < taps; i++) {
                g[i] = load_lanes(job, w + job->tap_at[i * taps + j], panel * P + z * VL);
            }
            filter_points(g, taps, p);
            UNROLL for (int i = 0; i < WINDOW; i++) half[i][j] = p[i];
        }
        UNROLL for (int i = 0; i < WINDOW; i++) {
            filter_points(half[i], taps, p);
            UNROLL for (int j = 0; j < WINDOW; j++) store(to + (i * WINDOW + j) * stride, p[j]);
        }
    }
}

INLINE void write_filter_row(const kolo_simd_wino_job *job, const int taps, int64_t panel,
                             int64_t row, const float *from, int64_t stride) {
    float *w = job->out + job->row_at[row];
    for (int z = 0; z < vectors_of(job, panel); z++, from += VL) {
        vf half[MOST][WINDOW], p[WINDOW], g[MOST];
        UNROLL for (int j = 0; j < WINDOW; j++) {
            UNROLL for (int i = 0; i < WINDOW; i++) p[i] = load(from + (i * WINDOW + j) * stride);
            filter_of_points(p, taps, g);
            UNROLL for (int i = 0; i < taps; i++) half[i][j] = g[i];
        }
        UNROLL for (int i = 0; i < taps; i++) {
            filter_of_points(half[i], taps, g);
            UNROLL for (int j = 0; j < taps; j++) {
                store_lanes(job, w + job->tap_at[i * taps + j], panel * P + z * VL, g[j]);
            }
        }
    }
}

/* Transforms the filters of rows [begin, end) of a panel, [row][P] at each point. */
static NOINLINE void read_filter_rows(const kolo_simd_wino_job *job, int64_t panel, int64_t begin,
                                      int64_t end, float *to, int64_t stride) {
    for (int64_t row = begin; row < end; row++, to += P) {
        if (job->tile == 4) {
            read_filter_row(job, 3, panel, row, to, stride);
        } else {
            read_filter_row(job, 5, panel, row, to, stride);
        }
    }
}

static NOINLINE void write_filter_rows(const kolo_simd_wino_job *job, int64_t panel, int64_t begin,
                                       int64_t end, const float *from, int64_t stride) {
    for (int64_t row = begin; row < end; row++, from += P) {
        if (job->tile == 4) {
            write_filter_row(job, 3, panel, row, from, stride);
        } else {
            write_filter_row(job, 5, panel, row, from, stride);
        }
    }
}

/* Parallel over rows of all panels. */
static void read_filters(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_wino_job *job = arg;
    for (int64_t at = begin; at < end;) {
        const int64_t panel = at / job->rows, row = at % job->rows;
        const int64_t count = kolo_min_i64(job->rows - row, end - at);
        read_filter_rows(job, panel, row, row + count, job->filters + at * P, job->filter_stride);
        at += count;
    }
}

/* Parallel over rows of all panels. */
static void write_filters(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_wino_job *job = arg;
    for (int64_t at = begin; at < end;) {
        const int64_t panel = at / job->rows, row = at % job->rows;
        const int64_t count = kolo_min_i64(job->rows - row, end - at);
        write_filter_rows(job, panel, row, row + count, job->filters + at * P, job->filter_stride);
        at += count;
    }
}

/* ---- products ---- */

/* The microkernel: sums[r][P] (+)= sum over `depth` terms of a[r] b[P]. Forward: a holds R
 * tiles, whose channels are adjacent within a panel's row and P apart between panels. Gradient:
 * a holds R channels of a panel's row, terms are rows. b: one row of P per term, of which Z
 * vectors count. */
INLINE void product(const float *a, int64_t panel, const float *b, int64_t depth, float *sums,
                    bool more, const int R, const int Z, const bool over_rows) {
    vf sum[MAX_R][2] = {0};
    if (more) {
        UNROLL for (int r = 0; r < R; r++) {
            UNROLL for (int z = 0; z < Z; z++) sum[r][z] = load(sums + r * P + z * VL);
        }
    }
    int64_t step = over_rows ? depth : P;
    for (; depth > 0; depth -= step, a += panel) {
        int64_t terms = kolo_min_i64(step, depth);
        for (int64_t i = 0; i < terms; i++, b += P) {
            vf right[2];
            UNROLL for (int z = 0; z < Z; z++) right[z] = load(b + z * VL);
            const float *left = over_rows ? a + i * P : a + i;
            if (!over_rows && i < R * P / LINE) __builtin_prefetch(a + panel + i * LINE);
            UNROLL for (int r = 0; r < R; r++) {
                vf value = splat(left[over_rows ? r : r * P]);
                UNROLL for (int z = 0; z < Z; z++) sum[r][z] = mul_add(value, right[z], sum[r][z]);
            }
        }
    }
    UNROLL for (int r = 0; r < R; r++) {
        UNROLL for (int z = 0; z < Z; z++) store(sums + r * P + z * VL, sum[r][z]);
    }
}

typedef void (*product_loop)(const float *a, int64_t panel, const float *b, int64_t depth,
                             float *sums, bool more);

/* channels_R_Z, tiles_R_Z */
#define PRODUCT(r, z)                                                                      \
    static NOINLINE void channels_##r##_##z(const float *a, int64_t panel, const float *b, \
                                            int64_t depth, float *sums, bool more) {       \
        product(a, panel, b, depth, sums, more, r, z, false);                              \
    }                                                                                      \
    static NOINLINE void tiles_##r##_##z(const float *a, int64_t panel, const float *b,    \
                                         int64_t depth, float *sums, bool more) {          \
        product(a, panel, b, depth, sums, more, r, z, true);                               \
    }
#define PRODUCTS(r) PRODUCT(r, 1) PRODUCT(r, 2)
PRODUCTS(1)
PRODUCTS(2)
PRODUCTS(3)
PRODUCTS(4)
PRODUCTS(5)
PRODUCTS(6)
#define LOOPS_6(name, z) \
    NULL, name##_1_##z, name##_2_##z, name##_3_##z, name##_4_##z, name##_5_##z, name##_6_##z
#if KOLO_VECTOR_BYTES == 64
PRODUCTS(7)
PRODUCTS(8)
PRODUCTS(9)
PRODUCTS(10)
PRODUCTS(11)
PRODUCTS(12)
PRODUCTS(13)
PRODUCTS(14)
#define LOOPS(name, z)                                                                            \
    {                                                                                             \
        LOOPS_6(name, z), name##_7_##z, name##_8_##z, name##_9_##z, name##_10_##z, name##_11_##z, \
            name##_12_##z, name##_13_##z, name##_14_##z                                           \
    }
#else
#define LOOPS(name, z) \
    { LOOPS_6(name, z) }
#endif
/* Indexed by the number of vectors minus one, and R. */
static const product_loop channel_loops[2][MAX_R + 1] = {LOOPS(channels, 1), LOOPS(channels, 2)};
static const product_loop tile_loops[2][MAX_R + 1] = {LOOPS(tiles, 1), LOOPS(tiles, 2)};

INLINE const product_loop *loops_of(const kolo_simd_wino_job *job, int64_t panel,
                                    const product_loop loops[2][MAX_R + 1]) {
    return loops[vectors_of(job, panel) - 1];
}

static int64_t even_part(int64_t n, int64_t most) {
    int64_t parts = (n + most - 1) / most;
    return (n + parts - 1) / parts;
}

/* The filters of some channels and a panel: at each point [channel][P], `stride` floats apart. */
typedef struct filter_block {
    int64_t first, depth, panel;
    const float *at;
    int64_t stride;
} filter_block;

/* m[point][panel][tile] (+)= sum over the block's channels of v[point][channel][tile] filters. */
static void multiply_panel(const kolo_simd_wino_job *job, const filter_block *f, int64_t point,
                           int64_t count, const float *v, float *m) {
    const float *a = v + point * job->x_stride + f->first * job->block;
    float *sums = m + point * job->y_stride + f->panel * job->block * P;
    const product_loop *loops = loops_of(job, f->panel, channel_loops);
    const int64_t part = even_part(count, MAX_R);
    for (int64_t t = 0; t < count; t += part) {
        loops[kolo_min_i64(part, count - t)](a + t * P, job->block * P, f->at + point * f->stride,
                                             f->depth, sums + t * P, f->first > 0);
    }
}

/* The products of `count` tiles with all filters. */
static void multiply(const kolo_simd_wino_job *job, int64_t count, const float *v, float *m) {
    for (int64_t point = 0; point < POINTS; point++) {
        for (int64_t c = 0; c < job->rows; c += DEPTH) {
            for (int64_t panel = 0; panel < job->panels; panel++) {
                const filter_block f = {c, kolo_min_i64(DEPTH, job->rows - c), panel,
                                        job->filters + (panel * job->rows + c) * P,
                                        job->filter_stride};
                multiply_panel(job, &f, point, count, v, m);
            }
        }
    }
}

/* Parallel over tiles. */
static void forward(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_wino_job *job = arg;
    float *v = job->scratch + part * job->part_stride, *m = v + POINTS * job->x_stride;
    for (int64_t first = begin; first < end; first += job->block) {
        int64_t count = kolo_min_i64(job->block, end - first);
        read_windows(job, first, count, v);
        multiply(job, count, v, m);
        write_tiles(job, first, count, m);
    }
}

/* Parallel over tiles of the job's block. */
static void read_block(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_wino_job *job = arg;
    float *v = job->scratch, *z = v + POINTS * job->x_stride;
    read_windows(job, job->first + begin, end - begin, v + begin * P);
    if (job->in_y) read_tiles(job, job->first + begin, end - begin, z + begin * P);
}

/* Parallel over panels: transforms filters as they are needed, `filter_rows` at a time. */
static void multiply_tiles(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_wino_job *job = arg;
    const float *v = job->scratch;
    float *m = job->scratch + POINTS * job->x_stride;
    float *filters = job->filters + part * POINTS * job->filter_stride;
    for (int64_t c = 0; c < job->rows; c += job->filter_rows) {
        const int64_t depth = kolo_min_i64(job->filter_rows, job->rows - c);
        for (int64_t panel = begin; panel < end; panel++) {
            const filter_block f = {c, depth, panel, filters, job->filter_stride};
            read_filter_rows(job, panel, c, c + depth, filters, job->filter_stride);
            for (int64_t point = 0; point < POINTS; point++) {
                multiply_panel(job, &f, point, job->count, v, m);
            }
        }
    }
}

/* Parallel over tiles of the job's block. */
static void write_block(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_wino_job *job = arg;
    const float *m = job->scratch + POINTS * job->x_stride;
    write_tiles(job, job->first + begin, end - begin, m + begin * P);
}

/* sums[row][P] (+)= sum over the block's tiles of windows times tiles, for rows [begin, end) of a
 * panel. */
static void multiply_rows(const kolo_simd_wino_job *job, int64_t point, int64_t panel,
                          int64_t begin, int64_t end, float *sums) {
    const float *v = job->scratch + point * job->x_stride;
    const float *z =
        job->scratch + POINTS * job->x_stride + point * job->y_stride + panel * job->block * P;
    const product_loop *loops = loops_of(job, panel, tile_loops);
    for (int64_t c = begin; c < end; c += P) {
        const int64_t here = kolo_min_i64(P, end - c), step = even_part(here, MAX_R);
        for (int64_t r = 0; r < here; r += step) {
            loops[kolo_min_i64(step, here - r)](v + c * job->block + r, 0, z, job->count,
                                                sums + (c - begin + r) * P, job->first > 0);
        }
    }
}

/* Parallel over panels of all points: filters (+)= sum over the block's tiles. */
static void multiply_block(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_wino_job *job = arg;
    for (int64_t item = begin; item < end; item++) {
        const int64_t point = item / job->panels, panel = item % job->panels;
        multiply_rows(job, point, panel, 0, job->rows,
                      job->filters + point * job->filter_stride + panel * job->rows * P);
    }
}

/* Parallel over panels, of the only block: filters are written `filter_rows` at a time. */
static void multiply_filters(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_wino_job *job = arg;
    float *filters = job->filters + part * POINTS * job->filter_stride;
    for (int64_t c = 0; c < job->rows; c += job->filter_rows) {
        const int64_t last = kolo_min_i64(c + job->filter_rows, job->rows);
        for (int64_t panel = begin; panel < end; panel++) {
            for (int64_t point = 0; point < POINTS; point++) {
                multiply_rows(job, point, panel, c, last, filters + point * job->filter_stride);
            }
            write_filter_rows(job, panel, c, last, filters, job->filter_stride);
        }
    }
}

const kolo_simd_wino_table KOLO_ISA_SYMBOL(kolo_simd_wino) = {
    .read_filters = read_filters,
    .write_filters = write_filters,
    .forward = forward,
    .read_block = read_block,
    .multiply_tiles = multiply_tiles,
    .write_block = write_block,
    .multiply_block = multiply_block,
    .multiply_filters = multiply_filters,
    .vector = VL,
};
