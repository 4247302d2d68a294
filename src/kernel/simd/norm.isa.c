/* Batch normalization loops, on f32 or bf16 images. Sums run over one plane of one image at a
 * time: in floats over at most CHUNK blocks of pixels, then in doubles over blocks and images.
 * Moments are taken about the plane's first pixel, so a large mean does not cost precision. */
#include "kernel/simd/norm.h"

#include "base/integer.h"
#include "kernel/simd/math.h"

#include <math.h>

enum {
    GROUP = 4,
    BLOCK = GROUP * VL,
    CHUNK = 128,
    PATTERN = 64,
    LINE_BYTES = 64,
    SHORT_BYTES = 16 << 10, /* planes up to this size are fetched before they are next */
};

/* A plane is a flat array when the channels of a pixel divide a block: lane i of a block then is
 * channel i % inner. */
INLINE bool is_flat(const kolo_simd_image *v) { return v->inner <= BLOCK && BLOCK % v->inner == 0; }

/* ---- sums ---- */

/* Accumulates v and v * (x - center), where v is x - center (moments: dy is NULL) or dy where y
 * > 0 and below the ceiling (masked). y is recomputed, bitwise as in `apply`. */
typedef struct source {
    const void *x, *dy;
    bool bf16; /* bf16 inputs; constant after inlining */
    float ceiling;
    int64_t next; /* elements from here to what is fetched meanwhile; 0: nothing */
} source;

/* Coefficients of the current channels. Without a mask only the first is used. */
typedef struct coefficients {
    const float *center, *gate_slope, *beta;
} coefficients;

INLINE source at(source s, int64_t offset) {
    s.x = ahead(s.x, offset, s.bf16);
    if (s.dy) s.dy = ahead(s.dy, offset, s.bf16);
    return s;
}

INLINE coefficients of_channel(coefficients k, int64_t c) {
    k.center += c;
    if (k.beta) {
        k.gate_slope += c;
        k.beta += c;
    }
    return k;
}

/* Fetches n elements from element i on into the second cache. */
INLINE void fetch(const void *p, int64_t i, int64_t n, bool bf16) {
    const char *from = ahead(p, i, bf16);
    for (int64_t b = 0; b < n * (bf16 ? 2 : 4); b += LINE_BYTES) {
        __builtin_prefetch(from + b, 0, 2);
    }
}

/* dy where the forward output was not clipped; x is centered. A ceiling of NaN clips nothing. */
INLINE vf gated(vf dy, vf x, vf slope, vf beta, float ceiling) {
    vf y = x * slope + beta;
    return (vf)((y > 0) & ~(y >= ceiling) & (vi)dy);
}
INLINE bool passes(float x, float slope, float beta, float ceiling) {
    float y = x * slope + beta;
    return y > 0 && !(y >= ceiling);
}

/* The sums of v and of the product, in sum[0..groups*VL) and product[], over `count` blocks,
 * `stride` apart, and the first `more` vectors of a block after them. */
INLINE void sum_vectors(source s, int64_t count, int64_t stride, int groups, int64_t more,
                        bool moments, bool masked, coefficients k, float *sum, float *product) {
    vf middle[GROUP], slope[GROUP], beta[GROUP], total[GROUP] = {{0}}, total_product[GROUP] = {{0}};
    for (int g = 0; g < groups; g++) {
        middle[g] = load(k.center + g * VL);
        if (masked) slope[g] = load(k.gate_slope + g * VL);
        if (masked) beta[g] = load(k.beta + g * VL);
    }
#define ADD_VECTOR(at, to, to_product)                             \
    do {                                                           \
        vf x = load_at(s.x, at, s.bf16) - middle[g], v = x;        \
        if (!moments) v = load_at(s.dy, at, s.bf16);               \
        if (masked) v = gated(v, x, slope[g], beta[g], s.ceiling); \
        (to)[g] += v;                                              \
        (to_product)[g] = mul_add(v, x, (to_product)[g]);          \
    } while (0)
    for (int64_t begin = 0; begin < count; begin += CHUNK) {
        int64_t end = begin + CHUNK < count ? begin + CHUNK : count;
        vf here[GROUP] = {{0}}, here_product[GROUP] = {{0}};
        for (int64_t p = begin; p < end; p++) {
            if (stride == BLOCK) {
                fetch(s.x, p * stride + s.next, BLOCK, s.bf16);
                if (!moments) fetch(s.dy, p * stride + s.next, BLOCK, s.bf16);
            }
            for (int g = 0; g < groups; g++) ADD_VECTOR(p * stride + g * VL, here, here_product);
        }
        for (int g = 0; g < groups; g++) {
            total[g] += here[g];
            total_product[g] += here_product[g];
        }
    }
    for (int g = 0; g < groups; g++) {
        if (g < more) ADD_VECTOR(count * stride + g * VL, total, total_product);
    }
    for (int g = 0; g < groups; g++) {
        store(sum + g * VL, total[g]);
        store(product + g * VL, total_product[g]);
    }
}

/* Scalar version for one lane. */
INLINE void sum_lane(source s, int64_t count, int64_t stride, bool moments, bool masked,
                     coefficients k, float *sum, float *product) {
    for (int64_t p = 0; p < count; p++) {
        float x = element_at(s.x, p * stride, s.bf16) - *k.center, v = x;
        if (!moments) v = element_at(s.dy, p * stride, s.bf16);
        if (masked && !passes(x, *k.gate_slope, *k.beta, s.ceiling)) v = 0;
        *sum += v;
        *product += v * x;
    }
}

/* Repeats from[0..inner) over lanes[0..n); inner divides n, a power of two. */
INLINE void repeat(const float *from, int64_t inner, int64_t n, float *lanes) {
    if (inner == 8) { /* the common case */
        for (int64_t i = 0; i < n; i += 8) store8(lanes + i, load8(from));
    } else if (inner == 1) {
        for (int64_t i = 0; i < n; i += VL) store(lanes + i, splat(*from));
    } else {
        for (int64_t i = 0; i < n; i++) lanes[i] = from[i & (inner - 1)];
    }
}

/* Adds lanes [0, BLOCK) whose numbers are equal but for multiples of `inner`: to the first `inner`.
 */
INLINE void fold_lanes(float *lanes, int64_t inner) {
    for (int64_t half = BLOCK / 2; half >= inner; half /= 2) {
        int64_t i = 0;
        for (; i + VL <= half; i += VL) store(lanes + i, load(lanes + i) + load(lanes + half + i));
        for (; i < half; i++) lanes[i] += lanes[half + i];
    }
}

/* Sums of one plane, for its `inner` channels. */
INLINE void sum_plane(const kolo_simd_image *v, source s, bool moments, bool masked, coefficients k,
                      float *sum, float *product) {
    int64_t pixels = v->h * v->w, inner = v->inner;
    if (is_flat(v)) {
        int64_t size = pixels * inner, blocks = size / BLOCK, more = size % BLOCK / VL;
        float lanes[5][BLOCK];
        coefficients spread = {lanes[0], lanes[3], masked ? lanes[4] : NULL};
        repeat(k.center, inner, BLOCK, lanes[0]);
        if (masked) repeat(k.gate_slope, inner, BLOCK, lanes[3]);
        if (masked) repeat(k.beta, inner, BLOCK, lanes[4]);
        sum_vectors(s, blocks, BLOCK, GROUP, more, moments, masked, spread, lanes[1], lanes[2]);
        for (int64_t i = blocks * BLOCK + more * VL, lane = more * VL; i < size; i++, lane++) {
            sum_lane(at(s, i), 1, 1, moments, masked, of_channel(spread, lane), &lanes[1][lane],
                     &lanes[2][lane]);
        }
        fold_lanes(lanes[1], inner);
        fold_lanes(lanes[2], inner);
        for (int64_t c = 0; c < inner; c++) {
            sum[c] = lanes[1][c];
            product[c] = lanes[2][c];
        }
        return;
    }
    int64_t c = 0;
    for (; c + BLOCK <= inner; c += BLOCK) {
        sum_vectors(at(s, c), pixels, inner, GROUP, 0, moments, masked, of_channel(k, c), sum + c,
                    product + c);
    }
    for (; c + VL <= inner; c += VL) {
        sum_vectors(at(s, c), pixels, inner, 1, 0, moments, masked, of_channel(k, c), sum + c,
                    product + c);
    }
    for (; c < inner; c++) {
        sum[c] = product[c] = 0;
        sum_lane(at(s, c), pixels, inner, moments, masked, of_channel(k, c), &sum[c], &product[c]);
    }
}

/* The sums of one plane: sums[plane][image][3][inner]. */
INLINE float *sums_of(const kolo_simd_norm_job *job, int64_t image, int64_t plane) {
    return job->sums + (plane * job->image.n + image) * 3 * job->image.inner;
}
/* Those of channel c: the first image. */
INLINE const float *sums_of_channel(const kolo_simd_norm_job *job, int64_t c) {
    return sums_of(job, 0, c / job->image.inner) + c % job->image.inner;
}

/* The index, among the planes of all images, of plane `item` of the slab. */
INLINE int64_t plane_of(const kolo_simd_norm_job *job, int64_t item) {
    return item / job->planes * job->image.planes + job->first + item % job->planes;
}

/* The first channel of a plane. */
INLINE int64_t first_channel(const kolo_simd_norm_job *job) {
    return job->first * job->image.inner;
}

/* Elements from plane `item` of the slab to plane `next`, which is read or written after it, or 0
 * where it need not be fetched. The processor does so itself along a run of memory, but a slab has
 * few planes of each image, and short ones end before it begins. */
INLINE int64_t to_plane(const kolo_simd_norm_job *job, int64_t item, int64_t next) {
    const int64_t size = kolo_simd_plane_size(&job->image);
    const int64_t away = plane_of(job, next) - plane_of(job, item);
    return size * (job->bf16 ? 2 : 4) > SHORT_BYTES || away == 1 ? 0 : away * size;
}

/* How many planes before it is read the sums fetch one: from memory, one plane takes less time than
 * another takes to come. */
INLINE int64_t early_of(const kolo_simd_norm_job *job) { return job->past && !job->ahead ? 2 : 1; }

/* Item i: its sums, and the first pixel, which they are centered on. */
INLINE void moments_of(const kolo_simd_norm_job *job, int64_t i, int64_t next, bool bf16) {
    const kolo_simd_image *v = &job->image;
    float *sum = sums_of(job, i / v->planes, i % v->planes), *first = sum + 2 * v->inner;
    source s = at((source){job->x, NULL, bf16, NAN, next}, i * kolo_simd_plane_size(v));
    for (int64_t c = 0; c < v->inner; c++) first[c] = element_at(s.x, c, bf16);
    sum_plane(v, s, true, false, (coefficients){.center = first}, sum, sum + v->inner);
}

static void moments(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_norm_job *job = arg;
    const int64_t early = early_of(job);
    for (int64_t i = begin; i < end; i++) {
        const int64_t next = i + early < end ? to_plane(job, i, i + early) : 0;
        if (job->bf16) {
            moments_of(job, plane_of(job, i), next, true);
        } else {
            moments_of(job, plane_of(job, i), next, false);
        }
    }
}

INLINE void products_of(const kolo_simd_norm_job *job, int64_t i, int64_t next, bool bf16) {
    const kolo_simd_image *v = &job->image;
    int64_t plane = i % v->planes, offset = i * kolo_simd_plane_size(v);
    float *sum = sums_of(job, i / v->planes, plane), *product = sum + v->inner;
    coefficients k = {job->center, job->gate_slope, job->beta};
    source s = at((source){job->x, job->dy, bf16, job->ceiling, next}, offset);
    k = of_channel(k, plane * v->inner);
    if (job->beta) {
        sum_plane(v, s, false, true, k, sum, product);
    } else {
        sum_plane(v, s, false, false, k, sum, product);
    }
}

static void products(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_norm_job *job = arg;
    const int64_t early = early_of(job);
    for (int64_t i = begin; i < end; i++) {
        const int64_t next = i + early < end ? to_plane(job, i, i + early) : 0;
        if (job->bf16) {
            products_of(job, plane_of(job, i), next, true);
        } else {
            products_of(job, plane_of(job, i), next, false);
        }
    }
}

/* ---- coefficients, parallel over channels ---- */

/* The slope of y = slope (x - center) + beta. The backward pass must compute the same float:
 * both start from the stored variance. */
INLINE float line_slope(const kolo_simd_norm_job *job, int64_t c, float var) {
    return (float)((double)job->gamma[c] / sqrt((double)var + job->eps));
}

static void set_line(const kolo_simd_norm_job *job, int64_t c, float mean, float var) {
    job->center[c] = mean;
    job->slope[c] = line_slope(job, c, var);
    job->offset[c] = job->beta[c];
}

static void moments_end(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_norm_job *job = arg;
    int64_t from = first_channel(job);
    const kolo_simd_image *v = &job->image;
    double pixels = (double)(v->h * v->w), images = (double)v->n;
    int64_t lanes = v->inner;
    for (int64_t c = from + begin; c < from + end; c++) {
        const float *sum = sums_of_channel(job, c), *product = sum + lanes;
        const float *first = product + lanes;
        double mean = 0, squares = 0;
        for (int64_t n = 0; n < 3 * v->n; n += 3) {
            mean += (double)first[n * lanes] + (double)sum[n * lanes] / pixels;
        }
        mean /= images;
        for (int64_t n = 0; n < 3 * v->n; n += 3) { /* about the plane's mean, and about the
                                                     * overall mean */
            double here = sum[n * lanes], away = (double)first[n * lanes] + here / pixels - mean;
            squares += (double)product[n * lanes] - here * here / pixels;
            squares += pixels * away * away;
        }
        double var = squares > 0 ? squares / (images * pixels) : 0;
        job->mean_out[c] = (float)mean;
        job->var_out[c] = (float)var;
        set_line(job, c, job->mean_out[c], job->var_out[c]);
    }
}

static void infer_begin(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_norm_job *job = arg;
    int64_t from = first_channel(job);
    for (int64_t c = from + begin; c < from + end; c++) {
        set_line(job, c, job->mean[c], job->var[c]);
    }
}

static void products_begin(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_norm_job *job = arg;
    int64_t from = first_channel(job);
    for (int64_t c = from + begin; c < from + end; c++) {
        job->center[c] = job->mean[c];
        job->gate_slope[c] = line_slope(job, c, job->var[c]);
    }
}

/* dx = slope (dy - offset - (x - center) tilt). */
static void products_end(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_norm_job *job = arg;
    int64_t from = first_channel(job);
    const kolo_simd_image *v = &job->image;
    int64_t lanes = v->inner;
    double count = (double)(v->n * v->h * v->w);
    for (int64_t c = from + begin; c < from + end; c++) {
        const float *sums = sums_of_channel(job, c);
        double sum = 0, product = 0, rstd = 1 / sqrt((double)job->var[c] + job->eps);
        for (int64_t n = 0; n < v->n; n++) {
            sum += (double)sums[n * 3 * lanes];
            product += (double)sums[(n * 3 + 1) * lanes];
        }
        job->dgamma[c] = (float)(product * rstd);
        job->dbeta[c] = (float)sum;
        job->slope[c] = (float)((double)job->gamma[c] * rstd);
        job->offset[c] = (float)(sum / count);
        job->tilt[c] = (float)(product * rstd * rstd / count);
    }
}

/* ---- the elements ---- */

/* What a sweep over a plane fetches while it computes: the plane after it, and the same plane of
 * the next slab, so that its sums find it in a cache: elements from here; 0: nothing. */
typedef struct later {
    int64_t next, slab;
} later;

INLINE later later_of(const kolo_simd_norm_job *job, int64_t item, int64_t begin) {
    const bool another = job->first + item % job->planes + job->planes < job->image.planes;
    return (later){
        .next = item > begin ? to_plane(job, item, item - 1) : 0,
        .slab = job->ahead && another ? job->planes * kolo_simd_plane_size(&job->image) : 0,
    };
}

/* Of PATTERN elements from element i on. */
INLINE void fetch_later(later l, const void *p, int64_t i, bool bf16) {
    fetch(p, i + l.next, PATTERN, bf16);
    fetch(p, i + l.slab, PATTERN, bf16);
}
INLINE void fetch_result(later l, void *p, int64_t i, bool bf16) {
    const char *to = ahead(p, i + l.next, bf16);
    for (int64_t b = 0; b < PATTERN * (bf16 ? 2 : 4); b += LINE_BYTES) {
        __builtin_prefetch(to + b, 1, 2);
    }
}

/* `residual` may be NULL. */
typedef struct plane {
    const void *x, *residual;
    void *y;
    bool bf16, relu, past; /* past: by non-temporal stores of whole aligned vectors */
    float ceiling;
} plane;

/* Coefficients of elements, lane by lane. */
typedef struct coefficients_of_line {
    vf center, slope, offset;
} coefficients_of_line;

INLINE coefficients_of_line line_at(const float *const k[3], int64_t i) {
    return (coefficients_of_line){load(k[0] + i), load(k[1] + i), load(k[2] + i)};
}

INLINE vf on_line(plane p, coefficients_of_line k, vf x, vf residual) {
    vf v = (x - k.center) * k.slope + k.offset;
    if (p.residual) v += residual;
    return p.relu ? smaller(splat(p.ceiling), positive(v)) : v;
}

/* Element i and those after it: a vector, or n lanes of one. */
INLINE void line(plane p, coefficients_of_line k, int64_t i) {
    const vf residual = p.residual ? load_at(p.residual, i, p.bf16) : splat(0);
    put_at(p.y, i, on_line(p, k, load_at(p.x, i, p.bf16), residual), p.bf16, p.past);
}
INLINE void part_of_line(plane p, coefficients_of_line k, int64_t i, int64_t n) {
    const vf residual = p.residual ? load_part_at(p.residual, i, n, p.bf16) : splat(0);
    store_part_at(p.y, i, on_line(p, k, load_part_at(p.x, i, n, p.bf16), residual), n, p.bf16);
}

/* Coefficients of the backward pass; those of the gate are read only with a mask. */
typedef struct tilts {
    vf center, slope, offset, tilt, gate_slope, beta;
} tilts;

INLINE tilts tilts_at(const float *const k[6], bool masked, int64_t i) {
    return (tilts){load(k[0] + i),
                   load(k[1] + i),
                   load(k[2] + i),
                   load(k[3] + i),
                   masked ? load(k[4] + i) : splat(0),
                   masked ? load(k[5] + i) : splat(0)};
}

INLINE vf on_tilt(const source *s, const tilts *k, bool masked, vf x, vf dy) {
    x -= k->center;
    if (masked) dy = gated(dy, x, k->gate_slope, k->beta, s->ceiling);
    return k->slope * (dy - k->offset - x * k->tilt);
}

INLINE void tilted(source s, tilts k, bool masked, bool past, int64_t i, void *dx) {
    const vf x = load_at(s.x, i, s.bf16), dy = load_at(s.dy, i, s.bf16);
    put_at(dx, i, on_tilt(&s, &k, masked, x, dy), s.bf16, past);
}
INLINE void part_of_tilted(source s, tilts k, bool masked, int64_t i, int64_t n, void *dx) {
    const vf x = load_part_at(s.x, i, n, s.bf16), dy = load_part_at(s.dy, i, n, s.bf16);
    store_part_at(dx, i, on_tilt(&s, &k, masked, x, dy), n, s.bf16);
}

/* Coefficients of a plane's channels, repeated over PATTERN lanes when the channels of a pixel
 * divide that, or one vector when they divide that. Returns the elements of a step. */
INLINE int64_t spread(const kolo_simd_image *v, const float *from, float *lanes,
                      const float **spread_to) {
    *spread_to = from;
    if (v->inner > PATTERN || PATTERN % v->inner != 0) return v->inner;
    repeat(from, v->inner, VL % v->inner == 0 ? VL : PATTERN, lanes);
    *spread_to = lanes;
    return PATTERN;
}

/* Calls vector(i, k) for each vector of a plane and part(i, k, n) for n lanes at ends, with the
 * coefficients `k` of their channels, of `step` lanes, and fetch(i) every PATTERN elements. */
#define EACH_ELEMENT(v, size, step, coefficients_at, vector, part, fetch)                    \
    do {                                                                                     \
        const int64_t whole = (size) - (size) % PATTERN;                                     \
        int64_t i = 0;                                                                       \
        if (VL % (v)->inner == 0) { /* the same coefficients in each vector */               \
            const __typeof__(coefficients_at(0)) k = coefficients_at(0);                     \
            for (; i < whole; i += PATTERN) {                                                \
                fetch(i);                                                                    \
                for (int64_t j = 0; j < PATTERN; j += VL) vector(i + j, k);                  \
            }                                                                                \
            for (; i + VL <= (size); i += VL) vector(i, k);                                  \
            if (i < (size)) part(i, k, (size)-i);                                            \
        } else {                                                                             \
            while (i < (size)) {                                                             \
                const int64_t end = kolo_min_i64(i + (step), size);                          \
                fetch(i);                                                                    \
                int64_t lane = 0;                                                            \
                for (; i + VL <= end; i += VL, lane += VL) vector(i, coefficients_at(lane)); \
                if (i < end) part(i, coefficients_at(lane), end - i);                        \
                i = end;                                                                     \
            }                                                                                \
        }                                                                                    \
    } while (0)

INLINE void apply_plane(const kolo_simd_norm_job *job, int64_t item, later l, bool relu, bool adds,
                        bool bf16, bool past) {
    const kolo_simd_image *v = &job->image;
    int64_t size = kolo_simd_plane_size(v), c = item % v->planes * v->inner;
    const float *from[3];
    plane p = {.x = ahead(job->x, item * size, bf16),
               .residual = adds ? ahead(job->residual, item * size, bf16) : NULL,
               .y = ahead_to(job->out, item * size, bf16),
               .bf16 = bf16,
               .relu = relu,
               .past = past,
               .ceiling = job->ceiling};
    float lanes[3][PATTERN];
    int64_t step = spread(v, job->center + c, lanes[0], &from[0]);
    (void)spread(v, job->slope + c, lanes[1], &from[1]);
    (void)spread(v, job->offset + c, lanes[2], &from[2]);
#define LINE_AT(i) line_at(from, i)
#define LINE(i, k) line(p, k, i)
#define PART_OF_LINE(i, k, n) part_of_line(p, k, i, n)
#define FETCH(i)                                                  \
    do {                                                          \
        fetch_later(l, p.x, i, bf16);                             \
        if (adds) fetch(p.residual, (i) + l.next, PATTERN, bf16); \
        if (!past) fetch_result(l, p.y, i, bf16);                 \
    } while (0)
    EACH_ELEMENT(v, size, step, LINE_AT, LINE, PART_OF_LINE, FETCH);
#undef FETCH
}

/* In reverse order: the data that the sums read last is still in cache. */
INLINE void apply_planes(const kolo_simd_norm_job *job, int64_t begin, int64_t end, bool bf16,
                         bool past) {
    for (int64_t i = end - 1; i >= begin; i--) {
        const later l = later_of(job, i, begin);
        if (job->residual) {
            if (job->relu) {
                apply_plane(job, plane_of(job, i), l, true, true, bf16, past);
            } else {
                apply_plane(job, plane_of(job, i), l, false, true, bf16, past);
            }
        } else if (job->relu) {
            apply_plane(job, plane_of(job, i), l, true, false, bf16, past);
        } else {
            apply_plane(job, plane_of(job, i), l, false, false, bf16, past);
        }
    }
}

static void apply(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_norm_job *job = arg;
    if (job->bf16) {
        apply_planes(job, begin, end, true, false);
    } else if (job->past) {
        apply_planes(job, begin, end, false, true);
        stream_end();
    } else {
        apply_planes(job, begin, end, false, false);
    }
}

INLINE void apply_bwd_plane(const kolo_simd_norm_job *job, int64_t item, later l, bool masked,
                            bool bf16, bool past) {
    const kolo_simd_image *v = &job->image;
    int64_t size = kolo_simd_plane_size(v), c = item % v->planes * v->inner;
    source s = at((source){job->x, job->dy, bf16, job->ceiling, 0}, item * size);
    const float *from[6] = {0};
    float lanes[6][PATTERN];
    void *dx = ahead_to(job->out, item * size, bf16);
    int64_t step = spread(v, job->center + c, lanes[0], &from[0]);
    (void)spread(v, job->slope + c, lanes[1], &from[1]);
    (void)spread(v, job->offset + c, lanes[2], &from[2]);
    (void)spread(v, job->tilt + c, lanes[3], &from[3]);
    if (masked) {
        (void)spread(v, job->gate_slope + c, lanes[4], &from[4]);
        (void)spread(v, job->beta + c, lanes[5], &from[5]);
    }
#define TILTS_AT(i) tilts_at(from, masked, i)
#define TILTED(i, k) tilted(s, k, masked, past, i, dx)
#define PART_OF_TILTED(i, k, n) part_of_tilted(s, k, masked, i, n, dx)
#define FETCH(i)                                 \
    do {                                         \
        fetch_later(l, s.x, i, bf16);            \
        fetch_later(l, s.dy, i, bf16);           \
        if (!past) fetch_result(l, dx, i, bf16); \
    } while (0)
    EACH_ELEMENT(v, size, step, TILTS_AT, TILTED, PART_OF_TILTED, FETCH);
#undef FETCH
}

INLINE void apply_bwd_planes(const kolo_simd_norm_job *job, int64_t begin, int64_t end, bool bf16,
                             bool past) {
    for (int64_t i = end - 1; i >= begin; i--) {
        const later l = later_of(job, i, begin);
        if (job->beta) {
            apply_bwd_plane(job, plane_of(job, i), l, true, bf16, past);
        } else {
            apply_bwd_plane(job, plane_of(job, i), l, false, bf16, past);
        }
    }
}

static void apply_bwd(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_norm_job *job = arg;
    if (job->bf16) {
        apply_bwd_planes(job, begin, end, true, false);
    } else if (job->past) {
        apply_bwd_planes(job, begin, end, false, true);
        stream_end();
    } else {
        apply_bwd_planes(job, begin, end, false, false);
    }
}

/* ---- vectors ---- */

/* out = keep * a + factor * b; without b: factor * a. */
static void blend(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_blend_job *job = arg;
    const float *a = job->a, *b = job->b;
    float *out = job->out, keep = job->keep, factor = job->factor;
    if (b) {
        for (int64_t i = begin; i < end; i++) out[i] = keep * a[i] + factor * b[i];
    } else {
        for (int64_t i = begin; i < end; i++) out[i] = factor * a[i];
    }
}

const kolo_simd_norm_table KOLO_ISA_SYMBOL(kolo_simd_norm) = {
    .moments = moments,
    .moments_end = moments_end,
    .infer_begin = infer_begin,
    .products_begin = products_begin,
    .products = products,
    .products_end = products_end,
    .apply = apply,
    .apply_bwd = apply_bwd,
    .blend = blend,
};
