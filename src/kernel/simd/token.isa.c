/* Loops over tokens: layer normalization, embedding, row-sparse gradients. Parallel over rows.
 * Parameter gradients are parallel over slices of channels instead: each thread adds all rows in
 * order, so they do not depend on the thread count. */
#include "kernel/simd/token.h"

#include "base/integer.h"
#include "kernel/simd/math.h"
#include "kernel/simd/pointwise.h"

#include <math.h>

/* ---- layer normalization ---- */

/* Independent accumulators, to hide the latency of additions. */
enum { CHAINS = 4 };

INLINE float sum_chains(const vf sum[CHAINS]) {
    return sum_lanes((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

INLINE float sum_row(const float *x, int64_t n) {
    vf sum[CHAINS] = {{0}};
    int64_t c = 0;
    for (; c + CHAINS * VL <= n; c += CHAINS * VL) {
        for (int k = 0; k < CHAINS; k++) sum[k] += load(x + c + k * VL);
    }
    for (; c + VL <= n; c += VL) sum[0] += load(x + c);
    sum[1] += load_part(x + c, n - c);
    return sum_chains(sum);
}

/* The sum of squares about `mean`. */
INLINE float sum_squares(const float *x, float mean, int64_t n) {
    vf sum[CHAINS] = {{0}};
    int64_t c = 0;
    for (; c + CHAINS * VL <= n; c += CHAINS * VL) {
        for (int k = 0; k < CHAINS; k++) {
            vf d = load(x + c + k * VL) - mean;
            sum[k] = mul_add(d, d, sum[k]);
        }
    }
    for (; c + VL <= n; c += VL) {
        vf d = load(x + c) - mean;
        sum[0] = mul_add(d, d, sum[0]);
    }
    float rest = 0;
    for (; c < n; c++) rest += (x[c] - mean) * (x[c] - mean);
    return sum_chains(sum) + rest;
}

static void layer_norm(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_layer_norm_job *job = arg;
    int64_t n = job->channels;
    for (int64_t r = begin; r < end; r++) {
        const float *x = job->x + r * n;
        float *y = job->out + r * n;
        float mean = sum_row(x, n) / (float)n;
        float rstd = 1 / sqrtf(sum_squares(x, mean, n) / (float)n + job->eps);
        int64_t c = 0;
        for (; c + VL <= n; c += VL) {
            vf h = (load(x + c) - mean) * rstd;
            store(y + c, mul_add(h, load(job->gamma + c), load(job->beta + c)));
        }
        for (; c < n; c++) y[c] = (x[c] - mean) * rstd * job->gamma[c] + job->beta[c];
        job->mean[r] = mean;
        job->rstd[r] = rstd;
    }
}

/* dx of rows; the formula is in kernel/ref/layer_norm.c. dx may alias dy or x. */
static void layer_norm_bwd(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_layer_norm_job *job = arg;
    int64_t n = job->channels;
    for (int64_t r = begin; r < end; r++) {
        const float *dy = job->dy + r * n, *x = job->x + r * n, *gamma = job->gamma;
        float *dx = job->out + r * n, mean = job->mean[r], rstd = job->rstd[r];
        vf of_k = splat(0), of_kh = splat(0);
        int64_t c = 0;
        for (; c + VL <= n; c += VL) {
            vf k = load(dy + c) * load(gamma + c);
            of_k += k;
            of_kh = mul_add(k, load(x + c) - mean, of_kh);
        }
        vf k = load_part(dy + c, n - c) * load_part(gamma + c, n - c);
        of_k += k;
        of_kh += k * (load_part(x + c, n - c) - mean); /* k is zero past the end of the row */
        float shift = sum_lanes(of_k) / (float)n, tilt = sum_lanes(of_kh) * rstd * rstd / (float)n;
        for (c = 0; c + VL <= n; c += VL) {
            vf d = load(dy + c) * load(gamma + c) - shift - (load(x + c) - mean) * tilt;
            store(dx + c, d * rstd);
        }
        for (; c < n; c++) dx[c] = (dy[c] * gamma[c] - shift - (x[c] - mean) * tilt) * rstd;
    }
}

/* dgamma and dbeta of slices of KOLO_SIMD_SLICE channels. */
static void layer_norm_sums(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_layer_norm_job *job = arg;
    int64_t n = job->channels;
    for (int64_t s = begin; s < end; s++) {
        float of_dy[KOLO_SIMD_SLICE] = {0}, of_dyh[KOLO_SIMD_SLICE] = {0};
        int64_t first = s * KOLO_SIMD_SLICE, lanes = kolo_min_i64(KOLO_SIMD_SLICE, n - first);
        const float *dy = job->dy + first, *x = job->x + first;
        for (int64_t r = 0; r < job->rows; r++, dy += n, x += n) {
            float mean = job->mean[r], rstd = job->rstd[r];
            int64_t c = 0;
            for (; c + VL <= lanes; c += VL) {
                vf d = load(dy + c);
                store(of_dy + c, load(of_dy + c) + d);
                store(of_dyh + c, mul_add(d, (load(x + c) - mean) * rstd, load(of_dyh + c)));
            }
            for (; c < lanes; c++) {
                of_dy[c] += dy[c];
                of_dyh[c] += dy[c] * (x[c] - mean) * rstd;
            }
        }
        memcpy(job->dgamma + first, of_dyh, sizeof(float) * (size_t)lanes);
        memcpy(job->dbeta + first, of_dy, sizeof(float) * (size_t)lanes);
    }
}

/* ---- embedding ---- */

static void add_row(float *to, const float *from, int64_t count) {
    for (int64_t c = 0; c < count; c++) to[c] += from[c];
}

static void embedding(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_embedding_job *job = arg;
    int64_t n = job->channels;
    for (int64_t i = begin; i < end; i++) {
        int64_t id = job->ids[i] - job->first;
        const float *p = job->positions ? job->positions + i % job->length * n : NULL;
        float *y = job->out + i * n;
        if (id >= 0 && id < job->rows) {
            memcpy(y, job->table + id * n, sizeof(float) * (size_t)n);
        } else {
            memset(y, 0, sizeof(float) * (size_t)n);
        }
        if (p) add_row(y, p, n);
    }
}

/* Parallel over slices of channels; each processes all tokens in order. */
static void embedding_bwd(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_embedding_job *job = arg;
    int64_t n = job->channels, first = begin * KOLO_SIMD_SLICE;
    int64_t lanes = kolo_min_i64(end * KOLO_SIMD_SLICE, n) - first;
    if (begin == end) return;
    for (int64_t r = 0; r < job->rows; r++) {
        memset(job->out + r * n + first, 0, sizeof(float) * (size_t)lanes);
    }
    for (int64_t i = 0; i < job->tokens; i++) {
        int64_t id = job->ids[i] - job->first;
        if (id < 0 || id >= job->rows) continue;
        add_row(job->out + id * n + first, job->dy + i * n + first, lanes);
    }
}

/* Parallel over positions. */
static void position_bwd(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_embedding_job *job = arg;
    int64_t n = job->channels;
    for (int64_t t = begin; t < end; t++) {
        float *to = job->out + t * n;
        memset(to, 0, sizeof(float) * (size_t)n);
        if (t >= job->length) continue;
        for (int64_t i = t; i < job->tokens; i += job->length) add_row(to, job->dy + i * n, n);
    }
}

/* ---- row-sparse gradients ---- */

/* Parallel over rows of the result: the sum of x's rows order[first[k] .. first[k + 1]). */
static void sum_rows(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_rows_job *job = arg;
    int64_t n = job->channels;
    for (int64_t k = begin; k < end; k++) {
        float *to = job->out + k * n;
        const int32_t *i = job->order + job->first[k], *last = job->order + job->first[k + 1];
        if (i == last) {
            memset(to, 0, sizeof(float) * (size_t)n);
            continue;
        }
        memcpy(to, job->x + *i * n, sizeof(float) * (size_t)n);
        while (++i < last) add_row(to, job->x + *i * n, n);
    }
}

static void sgd_rows(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_rows_job *job = arg;
    int64_t n = job->channels;
    for (int64_t k = begin; k < end && job->ids[k] >= 0; k++) {
        const float *g = job->x + k * n;
        float *w = job->out + job->ids[k] * n, lr = job->lr;
        for (int64_t c = 0; c < n; c++) w[c] -= lr * g[c];
    }
}

static void adam_rows(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_rows_job job = *(const kolo_simd_rows_job *)arg;
    int64_t n = job.channels;
    for (int64_t k = begin; k < end && job.ids[k] >= 0; k++) {
        const float *g = job.x + k * n;
        float *w = job.out + job.ids[k] * n;
        float *m = job.mean + job.ids[k] * n, *v = job.square + job.ids[k] * n;
        for (int64_t c = 0; c < n; c++) {
            m[c] = job.beta1 * m[c] + (1 - job.beta1) * g[c];
            v[c] = job.beta2 * v[c] + (1 - job.beta2) * g[c] * g[c];
            w[c] -= job.lr * m[c] / (sqrtf(v[c]) + job.eps);
        }
    }
}

const kolo_simd_token_table KOLO_ISA_SYMBOL(kolo_simd_token) = {
    .layer_norm = layer_norm,
    .layer_norm_bwd = layer_norm_bwd,
    .layer_norm_sums = layer_norm_sums,
    .embedding = embedding,
    .embedding_bwd = embedding_bwd,
    .position_bwd = position_bwd,
    .sum_rows = sum_rows,
    .sgd_rows = sgd_rows,
    .adam_rows = adam_rows,
};
