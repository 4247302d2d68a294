/* Batch normalisation loops. Sums run over one plane of one image at a time, in floats over at most
 * CHUNK blocks of pixels, and are added up over the images in doubles; moments are taken about the
 * plane's first pixel, so a large mean costs no precision. */
#include "kernel/simd/simd.h"
#include "kernel/simd/vector.h"

#include <math.h>

enum { GROUP = 4, BLOCK = GROUP * VL, CHUNK = 128, PATTERN = 64 };

/* A plane is a flat run of numbers when the channels of a pixel divide a block: lane i of a block
 * is then channel i % inner. */
INLINE bool is_flat(const kolo_simd_image *v) { return v->inner <= BLOCK && BLOCK % v->inner == 0; }

/* ---- sums ---- */

/* What is summed: v and v * (x - center), where v is x - center itself (moments: dy is NULL), or dy
 * where y > 0 (masked). That y is computed again, to the bit as `apply` did. */
typedef struct source {
    const float *x, *dy;
} source;

/* Of the channels at hand. Without a mask only the first is read. */
typedef struct coefficients {
    const float *center, *gate_slope, *beta;
} coefficients;

INLINE source at(source s, int64_t offset) {
    if (s.x) s.x += offset;
    if (s.dy) s.dy += offset;
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

/* dy where the output of the forward pass was positive; x is centered. */
INLINE vf gated(vf dy, vf x, vf slope, vf beta) { return (vf)((x * slope + beta > 0) & (vi)dy); }

/* Adds to sum[0..groups*VL) and product[] over `count` blocks that lie `stride` apart. */
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
                vf x = load(s.x + at) - middle[g], v = x;
                if (!moments) v = load(s.dy + at);
                if (masked) v = gated(v, x, slope[g], beta[g]);
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

/* The same for one lane. */
INLINE void sum_lane(source s, int64_t count, int64_t stride, bool moments, bool masked,
                     coefficients k, float *sum, float *product) {
    for (int64_t p = 0; p < count; p++) {
        float x = s.x[p * stride] - *k.center, v = moments ? x : s.dy[p * stride];
        if (masked && !(x * *k.gate_slope + *k.beta > 0)) v = 0;
        *sum += v;
        *product += v * x;
    }
}

/* lanes[0..n) = from[0..inner), again and again; inner divides n. */
INLINE void repeat(const float *from, int64_t inner, int64_t n, float *lanes) {
    for (int64_t i = 0; i < n; i += inner) {
        for (int64_t c = 0; c < inner; c++) lanes[i + c] = from[c];
    }
}

/* Sums of one plane; the coefficients, sum and product are of its `inner` channels. */
INLINE void sum_plane(const kolo_simd_image *v, source s, bool moments, bool masked, coefficients k,
                      float *sum, float *product) {
    int64_t pixels = v->h * v->w, inner = v->inner;
    for (int64_t c = 0; c < inner; c++) sum[c] = product[c] = 0;
    if (is_flat(v)) {
        int64_t blocks = pixels * inner / BLOCK, rest = pixels * inner % BLOCK;
        float lanes[5][BLOCK] = {{0}};
        coefficients spread = {lanes[0], lanes[3], masked ? lanes[4] : NULL};
        repeat(k.center, inner, BLOCK, lanes[0]);
        if (masked) repeat(k.gate_slope, inner, BLOCK, lanes[3]);
        if (masked) repeat(k.beta, inner, BLOCK, lanes[4]);
        sum_vectors(s, blocks, BLOCK, GROUP, moments, masked, spread, lanes[1], lanes[2]);
        for (int64_t i = 0; i < rest; i++) {
            sum_lane(at(s, blocks * BLOCK + i), 1, 1, moments, masked, of_channel(spread, i),
                     &lanes[1][i], &lanes[2][i]);
        }
        for (int64_t i = 0; i < BLOCK; i += inner) {
            for (int64_t c = 0; c < inner; c++) {
                sum[c] += lanes[1][i + c];
                product[c] += lanes[2][i + c];
            }
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

/* Where the sums of one item lie: sums[image][2][lanes]. */
INLINE float *sums_of(const kolo_simd_norm_job *job, int64_t image, int64_t plane) {
    return job->sums + (image * 2 * job->image.planes + plane) * job->image.inner;
}

static void moments(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_norm_job *job = arg;
    const kolo_simd_image *v = &job->image;
    for (int64_t i = begin; i < end; i++) {
        float *sum = sums_of(job, i / v->planes, i % v->planes);
        source s = {.x = job->x + i * kolo_simd_plane_size(v)};
        sum_plane(v, s, true, false, (coefficients){.center = s.x}, sum,
                  sum + v->planes * v->inner);
    }
}

static void products(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_norm_job *job = arg;
    const kolo_simd_image *v = &job->image;
    for (int64_t i = begin; i < end; i++) {
        int64_t plane = i % v->planes, offset = i * kolo_simd_plane_size(v);
        float *sum = sums_of(job, i / v->planes, plane), *product = sum + v->planes * v->inner;
        coefficients k = {job->center, job->gate_slope, job->beta};
        source s = at((source){job->x, job->dy}, offset);
        k = of_channel(k, plane * v->inner);
        if (job->beta) {
            sum_plane(v, s, false, true, k, sum, product);
        } else {
            sum_plane(v, s, false, false, k, sum, product);
        }
    }
}

/* ---- coefficients: items are channels ---- */

/* Of y = slope (x - center) + beta. The backward pass must find the same float: both begin with the
 * variance as it is kept. */
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
    const kolo_simd_image *v = &job->image;
    double pixels = (double)(v->h * v->w), images = (double)v->n;
    int64_t lanes = v->planes * v->inner, size = kolo_simd_image_size(v);
    for (int64_t c = begin; c < end; c++) {
        const float *sum = job->sums + c, *first = job->x + kolo_simd_channel(v, c);
        double mean = 0, squares = 0;
        for (int64_t n = 0; n < v->n; n++) {
            mean += (double)first[n * size] + (double)sum[n * 2 * lanes] / pixels;
        }
        mean /= images;
        for (int64_t n = 0; n < v->n; n++) { /* about the plane's mean, and that about the whole */
            double here = sum[n * 2 * lanes], away = (double)first[n * size] + here / pixels - mean;
            squares += (double)sum[(n * 2 + 1) * lanes] - here * here / pixels;
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
    for (int64_t c = begin; c < end; c++) {
        set_line(job, c, job->mean[c], job->var[c]);
    }
}

static void products_begin(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_norm_job *job = arg;
    for (int64_t c = begin; c < end; c++) {
        job->center[c] = job->mean[c];
        job->gate_slope[c] = line_slope(job, c, job->var[c]);
    }
}

/* dx = slope (dy - offset - (x - center) tilt). */
static void products_end(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_norm_job *job = arg;
    const kolo_simd_image *v = &job->image;
    int64_t lanes = v->planes * v->inner;
    double count = (double)(v->n * v->h * v->w);
    for (int64_t c = begin; c < end; c++) {
        double sum = 0, product = 0, rstd = 1 / sqrt((double)job->var[c] + job->eps);
        for (int64_t n = 0; n < v->n; n++) {
            sum += (double)job->sums[n * 2 * lanes + c];
            product += (double)job->sums[(n * 2 + 1) * lanes + c];
        }
        job->dgamma[c] = (float)(product * rstd);
        job->dbeta[c] = (float)sum;
        job->slope[c] = (float)((double)job->gamma[c] * rstd);
        job->offset[c] = (float)(sum / count);
        job->tilt[c] = (float)(product * rstd * rstd / count);
    }
}

/* ---- the elements ---- */

/* `add` is the residual, NULL where there is none. */
INLINE void line(const float *x, const float *center, const float *slope, const float *offset,
                 const float *add, bool relu, int64_t n, float *y) {
    int64_t i = 0;
    for (; i + VL <= n; i += VL) {
        vf v = (load(x + i) - load(center + i)) * load(slope + i) + load(offset + i);
        if (add) v += load(add + i);
        store(y + i, relu ? positive(v) : v);
    }
    for (; i < n; i++) {
        float v = (x[i] - center[i]) * slope[i] + offset[i];
        if (add) v += add[i];
        y[i] = relu && !(v > 0) ? 0 : v;
    }
}

/* Coefficients of the gradient's elements; the gate's are read with a mask only. */
typedef struct tilts {
    const float *center, *slope, *offset, *tilt, *gate_slope, *beta;
} tilts;

INLINE void tilted(source s, tilts k, bool masked, int64_t n, float *dx) {
    int64_t i = 0;
    for (; i + VL <= n; i += VL) {
        vf dy = load(s.dy + i), x = load(s.x + i) - load(k.center + i);
        if (masked) dy = gated(dy, x, load(k.gate_slope + i), load(k.beta + i));
        store(dx + i, load(k.slope + i) * (dy - load(k.offset + i) - x * load(k.tilt + i)));
    }
    for (; i < n; i++) {
        float x = s.x[i] - k.center[i], dy = s.dy[i];
        if (masked && !(x * k.gate_slope[i] + k.beta[i] > 0)) dy = 0;
        dx[i] = k.slope[i] * (dy - k.offset[i] - x * k.tilt[i]);
    }
}

/* Coefficients of a plane's channels, repeated over PATTERN lanes where pixels divide that; else as
 * they stand. Gives the number of lanes. */
INLINE int64_t spread(const kolo_simd_image *v, const float *from, float *lanes,
                      const float **spread_to) {
    *spread_to = from;
    if (v->inner > PATTERN || PATTERN % v->inner != 0) return v->inner;
    repeat(from, v->inner, PATTERN, lanes);
    *spread_to = lanes;
    return PATTERN;
}

INLINE void apply_plane(const kolo_simd_norm_job *job, int64_t item, bool relu, bool adds) {
    const kolo_simd_image *v = &job->image;
    int64_t size = kolo_simd_plane_size(v), c = item % v->planes * v->inner, i = 0;
    const float *x = job->x + item * size, *center, *slope, *offset;
    const float *add = adds ? job->residual + item * size : NULL;
    float lanes[3][PATTERN], *y = job->out + item * size;
    int64_t step = spread(v, job->center + c, lanes[0], &center);
    (void)spread(v, job->slope + c, lanes[1], &slope);
    (void)spread(v, job->offset + c, lanes[2], &offset);
    if (step == PATTERN) {
        for (; i + PATTERN <= size; i += PATTERN) {
            line(x + i, center, slope, offset, adds ? add + i : NULL, relu, PATTERN, y + i);
        }
        line(x + i, center, slope, offset, adds ? add + i : NULL, relu, size - i, y + i);
    } else {
        for (; i < size; i += step) {
            line(x + i, center, slope, offset, adds ? add + i : NULL, relu, step, y + i);
        }
    }
}

/* Backwards over the items: what the sums read last is still in a cache. */
static void apply(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_norm_job *job = arg;
    for (int64_t i = end - 1; i >= begin; i--) {
        if (job->residual) {
            if (job->relu) {
                apply_plane(job, i, true, true);
            } else {
                apply_plane(job, i, false, true);
            }
        } else if (job->relu) {
            apply_plane(job, i, true, false);
        } else {
            apply_plane(job, i, false, false);
        }
    }
}

INLINE void apply_bwd_plane(const kolo_simd_norm_job *job, int64_t item, bool masked) {
    const kolo_simd_image *v = &job->image;
    int64_t size = kolo_simd_plane_size(v), c = item % v->planes * v->inner, i = 0;
    source s = at((source){job->x, job->dy}, item * size);
    tilts k = {0};
    float lanes[6][PATTERN], *dx = job->out + item * size;
    int64_t step = spread(v, job->center + c, lanes[0], &k.center);
    (void)spread(v, job->slope + c, lanes[1], &k.slope);
    (void)spread(v, job->offset + c, lanes[2], &k.offset);
    (void)spread(v, job->tilt + c, lanes[3], &k.tilt);
    if (masked) {
        (void)spread(v, job->gate_slope + c, lanes[4], &k.gate_slope);
        (void)spread(v, job->beta + c, lanes[5], &k.beta);
    }
    if (step == PATTERN) {
        for (; i + PATTERN <= size; i += PATTERN) tilted(at(s, i), k, masked, PATTERN, dx + i);
        tilted(at(s, i), k, masked, size - i, dx + i);
    } else {
        for (; i < size; i += step) tilted(at(s, i), k, masked, step, dx + i);
    }
}

static void apply_bwd(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_norm_job *job = arg;
    for (int64_t i = end - 1; i >= begin; i--) {
        if (job->beta) {
            apply_bwd_plane(job, i, true);
        } else {
            apply_bwd_plane(job, i, false);
        }
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

const kolo_simd_norm_table KOLO_SIMD_TABLE(kolo_simd_norm_) = {
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
