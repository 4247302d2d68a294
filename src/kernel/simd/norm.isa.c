/* Batch normalization loops, on f32 or bf16 images. Sums run over one plane of one image at a
 * time: in floats over at most CHUNK blocks of pixels, then in doubles over blocks and images.
 * Moments are taken about the plane's first pixel, so a large mean does not cost precision. */
#include "kernel/simd/norm.h"

#include "kernel/simd/vector.h"

#include <math.h>

enum {
    GROUP = 4,
    BLOCK = GROUP * VL,
    CHUNK = 128,
    PATTERN = 64,
    LINE_BYTES = 64,
    SHORT_BYTES = 16 << 10, /* planes up to this size are fetched ahead */
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

/* dy where the forward output was not clipped; x is centered. A ceiling of NaN clips nothing. */
INLINE vf gated(vf dy, vf x, vf slope, vf beta, float ceiling) {
    vf y = x * slope + beta;
    return (vf)((y > 0) & ~(y >= ceiling) & (vi)dy);
}
INLINE bool passes(float x, float slope, float beta, float ceiling) {
    float y = x * slope + beta;
    return y > 0 && !(y >= ceiling);
}

/* Accumulates sum[0..groups*VL) and product[] over `count` blocks, `stride` apart. */
INLINE void sum_vectors(source s, int64_t count, int64_t stride, int groups, bool moments,
                        bool masked, coefficients k, float *sum, float *product) {
    vf middle[GROUP], slope[GROUP], beta[GROUP], total[GROUP], total_product[GROUP];
    for (int g = 0; g < groups; g++) {
        middle[g] = load(k.center + g * VL);
        if (masked) slope[g] = load(k.gate_slope + g * VL);
        if (masked) beta[g] = load(k.beta + g * VL);
        total[g] = load(sum + g * VL);
        total_product[g] = load(product + g * VL);
    }
    for (int64_t begin = 0; begin < count; begin += CHUNK) {
        int64_t end = begin + CHUNK < count ? begin + CHUNK : count;
        vf here[GROUP] = {{0}}, here_product[GROUP] = {{0}};
        for (int64_t p = begin; p < end; p++) {
            for (int g = 0; g < groups; g++) {
                int64_t at = p * stride + g * VL;
                vf x = load_at(s.x, at, s.bf16) - middle[g], v = x;
                if (!moments) v = load_at(s.dy, at, s.bf16);
                if (masked) v = gated(v, x, slope[g], beta[g], s.ceiling);
                here[g] += v;
                here_product[g] = mul_add(v, x, here_product[g]);
            }
        }
        for (int g = 0; g < groups; g++) {
            total[g] += here[g];
            total_product[g] += here_product[g];
        }
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
    for (int64_t c = 0; c < inner; c++) sum[c] = product[c] = 0;
    if (is_flat(v)) {
        int64_t blocks = pixels * inner / BLOCK, rest = pixels * inner % BLOCK;
        int64_t vectors = inner <= VL ? rest / VL : 0, done = blocks * BLOCK + vectors * VL;
        float lanes[5][BLOCK] = {{0}};
        coefficients spread = {lanes[0], lanes[3], masked ? lanes[4] : NULL};
        repeat(k.center, inner, BLOCK, lanes[0]);
        if (masked) repeat(k.gate_slope, inner, BLOCK, lanes[3]);
        if (masked) repeat(k.beta, inner, BLOCK, lanes[4]);
        sum_vectors(s, blocks, BLOCK, GROUP, moments, masked, spread, lanes[1], lanes[2]);
        sum_vectors(at(s, blocks * BLOCK), vectors, VL, 1, moments, masked, spread, lanes[1],
                    lanes[2]);
        for (int64_t i = 0; i < pixels * inner - done; i++) {
            sum_lane(at(s, done + i), 1, 1, moments, masked, of_channel(spread, i), &lanes[1][i],
                     &lanes[2][i]);
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
        sum_vectors(at(s, c), pixels, inner, GROUP, moments, masked, of_channel(k, c), sum + c,
                    product + c);
    }
    for (; c + VL <= inner; c += VL) {
        sum_vectors(at(s, c), pixels, inner, 1, moments, masked, of_channel(k, c), sum + c,
                    product + c);
    }
    for (; c < inner; c++) {
        sum_lane(at(s, c), pixels, inner, moments, masked, of_channel(k, c), &sum[c], &product[c]);
    }
}

/* The sums of one plane: sums[image][3][lanes]. */
INLINE float *sums_of(const kolo_simd_norm_job *job, int64_t image, int64_t plane) {
    return job->sums + (image * 3 * job->image.planes + plane) * job->image.inner;
}

/* Item i: its sums, and the first pixel, which they are centered on. */
INLINE void moments_of(const kolo_simd_norm_job *job, int64_t i, bool bf16) {
    const kolo_simd_image *v = &job->image;
    int64_t lanes = v->planes * v->inner;
    float *sum = sums_of(job, i / v->planes, i % v->planes), *first = sum + 2 * lanes;
    source s = at((source){job->x, NULL, bf16, NAN}, i * kolo_simd_plane_size(v));
    for (int64_t c = 0; c < v->inner; c++) first[c] = element_at(s.x, c, bf16);
    sum_plane(v, s, true, false, (coefficients){.center = first}, sum, sum + lanes);
}

/* The index, among the planes of all images, of plane `item` of the slab. */
INLINE int64_t plane_of(const kolo_simd_norm_job *job, int64_t item) {
    return item / job->planes * job->image.planes + job->first + item % job->planes;
}

/* The first channel of a plane. */
INLINE int64_t first_channel(const kolo_simd_norm_job *job) {
    return job->first * job->image.inner;
}

/* Fetches plane `next` of the slab, which is read or written after `item`. The processor does so
 * itself along a run of memory, but a slab has few planes of each image, and short ones end before
 * it begins. */
INLINE void fetch_plane(const kolo_simd_norm_job *job, const void *tensor, int64_t item,
                        int64_t next, bool writes) {
    const int64_t size = kolo_simd_plane_size(&job->image), bytes = size * (job->bf16 ? 2 : 4);
    const int64_t here = plane_of(job, item), there = plane_of(job, next);
    if (bytes > SHORT_BYTES || there == here + 1 || there == here - 1) return;
    const char *p = ahead(tensor, there * size, job->bf16);
    for (int64_t i = 0; i < bytes; i += LINE_BYTES) {
        if (writes) {
            __builtin_prefetch(p + i, 1, 2);
        } else {
            __builtin_prefetch(p + i, 0, 2);
        }
    }
}

static void moments(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_norm_job *job = arg;
    const int64_t early = job->past ? 2 : 1; /* from memory: one plane takes less than it comes */
    for (int64_t i = begin; i < end; i++) {
        if (i + early < end) fetch_plane(job, job->x, i, i + early, false);
        if (job->bf16) {
            moments_of(job, plane_of(job, i), true);
        } else {
            moments_of(job, plane_of(job, i), false);
        }
    }
}

INLINE void products_of(const kolo_simd_norm_job *job, int64_t i, bool bf16) {
    const kolo_simd_image *v = &job->image;
    int64_t plane = i % v->planes, offset = i * kolo_simd_plane_size(v);
    float *sum = sums_of(job, i / v->planes, plane), *product = sum + v->planes * v->inner;
    coefficients k = {job->center, job->gate_slope, job->beta};
    source s = at((source){job->x, job->dy, bf16, job->ceiling}, offset);
    k = of_channel(k, plane * v->inner);
    if (job->beta) {
        sum_plane(v, s, false, true, k, sum, product);
    } else {
        sum_plane(v, s, false, false, k, sum, product);
    }
}

static void products(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_norm_job *job = arg;
    for (int64_t i = begin; i < end; i++) {
        if (i + 1 < end) {
            fetch_plane(job, job->x, i, i + 1, false);
            fetch_plane(job, job->dy, i, i + 1, false);
        }
        if (job->bf16) {
            products_of(job, plane_of(job, i), true);
        } else {
            products_of(job, plane_of(job, i), false);
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
    int64_t lanes = v->planes * v->inner;
    for (int64_t c = from + begin; c < from + end; c++) {
        const float *sum = job->sums + c, *product = sum + lanes, *first = product + lanes;
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
    int64_t lanes = v->planes * v->inner;
    double count = (double)(v->n * v->h * v->w);
    for (int64_t c = from + begin; c < from + end; c++) {
        double sum = 0, product = 0, rstd = 1 / sqrt((double)job->var[c] + job->eps);
        for (int64_t n = 0; n < v->n; n++) {
            sum += (double)job->sums[n * 3 * lanes + c];
            product += (double)job->sums[(n * 3 + 1) * lanes + c];
        }
        job->dgamma[c] = (float)(product * rstd);
        job->dbeta[c] = (float)sum;
        job->slope[c] = (float)((double)job->gamma[c] * rstd);
        job->offset[c] = (float)(sum / count);
        job->tilt[c] = (float)(product * rstd * rstd / count);
    }
}

/* ---- the elements ---- */

/* Elements [i, end) of a plane; the coefficients start at element i. `residual` may be NULL. */
typedef struct plane {
    const void *x, *residual;
    void *y;
    bool bf16, relu, past; /* past: by non-temporal stores of whole aligned vectors */
    float ceiling;
} plane;

INLINE vf clipped(plane p, vf v) { return p.relu ? smaller(splat(p.ceiling), positive(v)) : v; }
INLINE float clipped_1(plane p, float v) {
    if (p.relu && v < 0) return 0;
    return p.relu && v > p.ceiling ? p.ceiling : v;
}

INLINE void line(plane p, const float *center, const float *slope, const float *offset, int64_t i,
                 int64_t end) {
    int64_t k = 0;
    for (; i + VL <= end; i += VL, k += VL) {
        vf v = (load_at(p.x, i, p.bf16) - load(center + k)) * load(slope + k) + load(offset + k);
        if (p.residual) v += load_at(p.residual, i, p.bf16);
        put_at(p.y, i, clipped(p, v), p.bf16, p.past);
    }
    for (; i < end; i++, k++) {
        float v = (element_at(p.x, i, p.bf16) - center[k]) * slope[k] + offset[k];
        if (p.residual) v += element_at(p.residual, i, p.bf16);
        set_element(p.y, i, clipped_1(p, v), p.bf16);
    }
}

/* Coefficients of the backward pass; those of the gate are read only with a mask. */
typedef struct tilts {
    const float *center, *slope, *offset, *tilt, *gate_slope, *beta;
} tilts;

/* Elements [i, end) of a plane, with coefficients as in `line`. */
INLINE void tilted(source s, tilts k, bool masked, bool past, int64_t i, int64_t end, void *dx) {
    int64_t c = 0;
    for (; i + VL <= end; i += VL, c += VL) {
        vf dy = load_at(s.dy, i, s.bf16), x = load_at(s.x, i, s.bf16) - load(k.center + c);
        if (masked) {
            dy = gated(dy, x, load(k.gate_slope + c), load(k.beta + c), s.ceiling);
        }
        vf v = load(k.slope + c) * (dy - load(k.offset + c) - x * load(k.tilt + c));
        put_at(dx, i, v, s.bf16, past);
    }
    for (; i < end; i++, c++) {
        float x = element_at(s.x, i, s.bf16) - k.center[c], dy = element_at(s.dy, i, s.bf16);
        if (masked && !passes(x, k.gate_slope[c], k.beta[c], s.ceiling)) dy = 0;
        set_element(dx, i, k.slope[c] * (dy - k.offset[c] - x * k.tilt[c]), s.bf16);
    }
}

/* Coefficients of a plane's channels, repeated over PATTERN lanes when the channels of a pixel
 * divide that. Returns the number of lanes. */
INLINE int64_t spread(const kolo_simd_image *v, const float *from, float *lanes,
                      const float **spread_to) {
    *spread_to = from;
    if (v->inner > PATTERN || PATTERN % v->inner != 0) return v->inner;
    repeat(from, v->inner, PATTERN, lanes);
    *spread_to = lanes;
    return PATTERN;
}

INLINE void apply_plane(const kolo_simd_norm_job *job, int64_t item, bool relu, bool adds,
                        bool bf16, bool past) {
    const kolo_simd_image *v = &job->image;
    int64_t size = kolo_simd_plane_size(v), c = item % v->planes * v->inner, i = 0;
    const float *center, *slope, *offset;
    plane p = {.x = ahead(job->x, item * size, bf16),
               .residual = adds ? ahead(job->residual, item * size, bf16) : NULL,
               .y = ahead_to(job->out, item * size, bf16),
               .bf16 = bf16,
               .relu = relu,
               .past = past,
               .ceiling = job->ceiling};
    float lanes[3][PATTERN];
    int64_t step = spread(v, job->center + c, lanes[0], &center);
    (void)spread(v, job->slope + c, lanes[1], &slope);
    (void)spread(v, job->offset + c, lanes[2], &offset);
    if (step == PATTERN) {
        for (; i + PATTERN <= size; i += PATTERN) line(p, center, slope, offset, i, i + PATTERN);
        line(p, center, slope, offset, i, size);
    } else {
        for (; i < size; i += step) line(p, center, slope, offset, i, i + step);
    }
}

/* In reverse order: the data that the sums read last is still in cache. */
INLINE void apply_planes(const kolo_simd_norm_job *job, int64_t begin, int64_t end, bool bf16,
                         bool past) {
    for (int64_t i = end - 1; i >= begin; i--) {
        if (i > begin) {
            fetch_plane(job, job->x, i, i - 1, false);
            if (!past) fetch_plane(job, job->out, i, i - 1, true);
            if (job->residual) fetch_plane(job, job->residual, i, i - 1, false);
        }
        if (job->residual) {
            if (job->relu) {
                apply_plane(job, plane_of(job, i), true, true, bf16, past);
            } else {
                apply_plane(job, plane_of(job, i), false, true, bf16, past);
            }
        } else if (job->relu) {
            apply_plane(job, plane_of(job, i), true, false, bf16, past);
        } else {
            apply_plane(job, plane_of(job, i), false, false, bf16, past);
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

INLINE void apply_bwd_plane(const kolo_simd_norm_job *job, int64_t item, bool masked, bool bf16,
                            bool past) {
    const kolo_simd_image *v = &job->image;
    int64_t size = kolo_simd_plane_size(v), c = item % v->planes * v->inner, i = 0;
    source s = at((source){job->x, job->dy, bf16, job->ceiling}, item * size);
    tilts k = {0};
    float lanes[6][PATTERN];
    void *dx = ahead_to(job->out, item * size, bf16);
    int64_t step = spread(v, job->center + c, lanes[0], &k.center);
    (void)spread(v, job->slope + c, lanes[1], &k.slope);
    (void)spread(v, job->offset + c, lanes[2], &k.offset);
    (void)spread(v, job->tilt + c, lanes[3], &k.tilt);
    if (masked) {
        (void)spread(v, job->gate_slope + c, lanes[4], &k.gate_slope);
        (void)spread(v, job->beta + c, lanes[5], &k.beta);
    }
    if (step == PATTERN) {
        for (; i + PATTERN <= size; i += PATTERN) tilted(s, k, masked, past, i, i + PATTERN, dx);
        tilted(s, k, masked, past, i, size, dx);
    } else {
        for (; i < size; i += step) tilted(s, k, masked, past, i, i + step, dx);
    }
}

INLINE void apply_bwd_planes(const kolo_simd_norm_job *job, int64_t begin, int64_t end, bool bf16,
                             bool past) {
    for (int64_t i = end - 1; i >= begin; i--) {
        if (job->beta) {
            apply_bwd_plane(job, plane_of(job, i), true, bf16, past);
        } else {
            apply_bwd_plane(job, plane_of(job, i), false, bf16, past);
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
