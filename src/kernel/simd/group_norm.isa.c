/* Group normalization loops, on f32 or bf16. A group is read from memory once, if it fits into the
 * cache: its later sweeps find it there. The sweeps over a group fetch the next one meanwhile, so
 * that the memory does not wait for them. */
#include "kernel/simd/group_norm.h"

#include "kernel/simd/row_sums.h"

#include <math.h>

enum { FETCHED = 32 << 10 }; /* elements of a group that is fetched ahead, at most */

/* y = (x - mean) scale + offset, for n elements. */
INLINE void map(const void *x, int64_t n, float mean, float scale, float offset, void *y, bool bf16,
                bool past) {
    const vf by = splat(scale), to = splat(offset);
    int64_t i = 0;
    for (; i + VL <= n; i += VL) {
        put_at(y, i, mul_add(load_at(x, i, bf16) - mean, by, to), bf16, past);
    }
    if (i == n) return;
    const vf rest = load_part_at(x, i, n - i, bf16);
    store_part_at(y, i, mul_add(rest - mean, by, to), n - i, bf16);
}

INLINE void forward_rows(const kolo_simd_group_norm_job *job, int64_t begin, int64_t end, bool bf16,
                         bool past) {
    const int64_t p = job->pixels, size = job->channels * p;
    for (int64_t r = begin; r < end; r++) {
        const int64_t first = r % job->groups * job->channels;
        const void *x = ahead(job->x, r * size, bf16);
        void *y = ahead_to(job->out, r * size, bf16);
        const float mean = sum_row(x, size, bf16) / (float)size;
        const float rstd = 1 / sqrtf(sum_squares(x, mean, size, bf16) / (float)size + job->eps);
        job->mean[r] = mean;
        job->rstd[r] = rstd;
        if (!job->gamma) {
            map(x, size, mean, rstd, 0, y, bf16, past);
            continue;
        }
        for (int64_t c = 0; c < job->channels; c++) {
            map(ahead(x, c * p, bf16), p, mean, rstd * job->gamma[first + c], job->beta[first + c],
                ahead_to(y, c * p, bf16), bf16, past);
        }
    }
}

/* The sums of dy and of dy (x - mean), over n elements. Fetches what is `later` elements behind
 * dy. */
INLINE void sum_pair(const void *dy, const void *x, int64_t n, float mean, int64_t later, bool bf16,
                     float *of_dy, float *of_h) {
    enum { BWD_CHAINS = 2 };
    vf a[BWD_CHAINS] = {{0}}, b[BWD_CHAINS] = {{0}};
    int64_t i = 0;
    for (; i + BWD_CHAINS * VL <= n; i += BWD_CHAINS * VL) {
        for (int k = 0; k < BWD_CHAINS; k++) {
            __builtin_prefetch(ahead(dy, later + i + k * VL, bf16), 0, 2);
            const vf d = load_at(dy, i + k * VL, bf16);
            a[k] += d;
            b[k] = mul_add(d, load_at(x, i + k * VL, bf16) - mean, b[k]);
        }
    }
    for (; i < n; i += VL) {
        const bool whole = i + VL <= n;
        const vf d = whole ? load_at(dy, i, bf16) : load_part_at(dy, i, n - i, bf16);
        const vf v = whole ? load_at(x, i, bf16) : load_part_at(x, i, n - i, bf16);
        a[0] += d;
        b[0] = mul_add(d, v - mean, b[0]); /* d is 0 behind the end */
    }
    *of_dy = sum_lanes(a[0] + a[1]);
    *of_h = sum_lanes(b[0] + b[1]);
}

/* dx = dy scale - (x - mean) tilt - shift, for n elements. dx may be dy or x. Fetches what is
 * `later` elements behind x. */
INLINE void slope(const void *dy, const void *x, int64_t n, float mean, float scale, float tilt,
                  float shift, int64_t later, void *dx, bool bf16, bool past) {
    const vf by = splat(scale), turn = splat(-tilt), down = splat(shift);
    int64_t i = 0;
    for (; i + VL <= n; i += VL) {
        __builtin_prefetch(ahead(x, later + i, bf16), 0, 2);
        const vf h = load_at(x, i, bf16) - mean, d = load_at(dy, i, bf16);
        put_at(dx, i, mul_add(d, by, mul_add(h, turn, -down)), bf16, past);
    }
    if (i == n) return;
    const vf h = load_part_at(x, i, n - i, bf16) - mean, d = load_part_at(dy, i, n - i, bf16);
    store_part_at(dx, i, mul_add(d, by, mul_add(h, turn, -down)), n - i, bf16);
}

/* The formulas are in op/group_norm.c. Without gamma a group is one channel. */
INLINE void backward_rows(const kolo_simd_group_norm_job *job, int64_t begin, int64_t end,
                          bool bf16, bool past) {
    const bool scaled = job->gamma != NULL;
    const int64_t size = job->channels * job->pixels, later = size <= FETCHED ? size : 0;
    const int64_t channels = scaled ? job->channels : 1, p = size / channels;
    for (int64_t r = begin; r < end; r++) {
        const float *gamma = scaled ? job->gamma + r % job->groups * channels : NULL;
        const void *dy = ahead(job->dy, r * size, bf16), *x = ahead(job->x, r * size, bf16);
        void *dx = ahead_to(job->out, r * size, bf16);
        const float mean = job->mean[r], rstd = job->rstd[r];
        float of_k = 0, of_kh = 0;
        for (int64_t c = 0; c < channels; c++) {
            float of_dy, of_h;
            sum_pair(ahead(dy, c * p, bf16), ahead(x, c * p, bf16), p, mean, later, bf16, &of_dy,
                     &of_h);
            of_k += scaled ? gamma[c] * of_dy : of_dy;
            of_kh += scaled ? gamma[c] * of_h : of_h;
            if (!scaled) continue;
            job->of_dy[r * channels + c] = of_dy;
            job->of_h[r * channels + c] = of_h * rstd;
        }
        const float tilt = of_kh * rstd * rstd * rstd / (float)size;
        const float shift = of_k * rstd / (float)size;
        for (int64_t c = 0; c < channels; c++) {
            slope(ahead(dy, c * p, bf16), ahead(x, c * p, bf16), p, mean,
                  scaled ? gamma[c] * rstd : rstd, tilt, shift, later, ahead_to(dx, c * p, bf16),
                  bf16, past);
        }
    }
}

static void forward(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_group_norm_job *job = arg;
    if (job->bf16) {
        forward_rows(job, begin, end, true, false);
    } else if (job->past) {
        forward_rows(job, begin, end, false, true);
        stream_end();
    } else {
        forward_rows(job, begin, end, false, false);
    }
}

static void backward(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_group_norm_job *job = arg;
    if (job->bf16) {
        backward_rows(job, begin, end, true, false);
    } else if (job->past) {
        backward_rows(job, begin, end, false, true);
        stream_end();
    } else {
        backward_rows(job, begin, end, false, false);
    }
}

static void sums(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_group_norm_job *job = arg;
    const int64_t all = job->groups * job->channels;
    for (int64_t c = begin; c < end; c++) job->dgamma[c] = job->dbeta[c] = 0;
    for (int64_t n = 0; n < job->samples; n++) {
        const float *of_h = job->of_h + n * all, *of_dy = job->of_dy + n * all;
        for (int64_t c = begin; c < end; c++) {
            job->dgamma[c] += of_h[c];
            job->dbeta[c] += of_dy[c];
        }
    }
}

const kolo_simd_group_norm_table KOLO_ISA_SYMBOL(kolo_simd_group_norm) = {
    .forward = forward, .backward = backward, .sums = sums};
