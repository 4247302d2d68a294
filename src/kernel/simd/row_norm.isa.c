/* Layer and root mean square normalization loops, on f32 or bf16 rows. A row is read from memory
 * once: its later sweeps find it in cache. With `centre` false the mean is 0. */
#include "kernel/simd/row_norm.h"

#include "base/integer.h"
#include "kernel/simd/pointwise.h"
#include "kernel/simd/row_sums.h"

#include <math.h>

enum { BWD_CHAINS = 2 };

INLINE void forward_rows(const kolo_simd_row_norm_job *job, int64_t begin, int64_t end, bool centre,
                         bool bf16) {
    const int64_t n = job->channels;
    for (int64_t r = begin; r < end; r++) {
        const void *x = ahead(job->x, r * n, bf16);
        void *y = ahead_to(job->out, r * n, bf16);
        float mean = centre ? sum_row(x, n, bf16) / (float)n : 0;
        float rstd = 1 / sqrtf(sum_squares(x, mean, n, bf16) / (float)n + job->eps);
        int64_t c = 0;
        for (; c + VL <= n; c += VL) {
            vf h = (load_at(x, c, bf16) - mean) * rstd, gamma = load(job->gamma + c);
            store_at(y, c, centre ? mul_add(h, gamma, load(job->beta + c)) : h * gamma, bf16);
        }
        for (; c < n; c++) {
            float h = (element_at(x, c, bf16) - mean) * rstd;
            set_element(y, c, h * job->gamma[c] + (centre ? job->beta[c] : 0), bf16);
        }
        if (centre) job->mean[r] = mean;
        job->rstd[r] = rstd;
    }
}

/* One row of dx, and its share of dgamma and dbeta; the formulas are in op/layer_norm.c. dx
 * may be dy or x. */
INLINE void backward_row(const kolo_simd_row_norm_job *job, int64_t r, float *dgamma, float *dbeta,
                         bool centre, bool bf16) {
    const int64_t n = job->channels;
    const void *dy = ahead(job->dy, r * n, bf16), *x = ahead(job->x, r * n, bf16);
    void *dx = ahead_to(job->out, r * n, bf16);
    const float *gamma = job->gamma, mean = centre ? job->mean[r] : 0, rstd = job->rstd[r];
    vf of_k[BWD_CHAINS] = {{0}}, of_kh[BWD_CHAINS] = {{0}};
    float rest_k = 0, rest_kh = 0;
    int64_t c = 0;
    for (int64_t step = VL * BWD_CHAINS; c + VL <= n;) {
        const int chains = c + step <= n ? BWD_CHAINS : 1;
        for (int i = 0; i < chains; i++, c += VL) {
            vf d = load_at(dy, c, bf16), h = load_at(x, c, bf16) - mean, k = d * load(gamma + c);
            if (centre) of_k[i] += k;
            of_kh[i] = mul_add(k, h, of_kh[i]);
            store(dgamma + c, mul_add(d, h * rstd, load(dgamma + c)));
            if (centre) store(dbeta + c, load(dbeta + c) + d);
        }
    }
    for (; c < n; c++) {
        float d = element_at(dy, c, bf16), h = element_at(x, c, bf16) - mean, k = d * gamma[c];
        rest_k += k;
        rest_kh += k * h;
        dgamma[c] += d * (h * rstd);
        if (centre) dbeta[c] += d;
    }
    float shift = centre ? (sum_lanes(of_k[0] + of_k[1]) + rest_k) / (float)n : 0;
    float tilt = (sum_lanes(of_kh[0] + of_kh[1]) + rest_kh) * rstd * rstd / (float)n;
    for (c = 0; c + VL <= n; c += VL) {
        vf d = load_at(dy, c, bf16) * load(gamma + c) - shift;
        store_at(dx, c, (d - (load_at(x, c, bf16) - mean) * tilt) * rstd, bf16);
    }
    for (; c < n; c++) {
        float d = element_at(dy, c, bf16) * gamma[c] - shift;
        set_element(dx, c, (d - (element_at(x, c, bf16) - mean) * tilt) * rstd, bf16);
    }
}

INLINE void backward_blocks(const kolo_simd_row_norm_job *job, int64_t begin, int64_t end,
                            bool centre, bool bf16) {
    const int64_t n = job->channels, sums = centre ? 2 * n : n;
    for (int64_t b = begin; b < end; b++) {
        float *dgamma = job->sums + b * sums, *dbeta = dgamma + n;
        const int64_t last = kolo_min_i64((b + 1) * job->each, job->rows);
        memset(dgamma, 0, sizeof(float) * (size_t)sums);
        for (int64_t r = b * job->each; r < last; r++) {
            backward_row(job, r, dgamma, dbeta, centre, bf16);
        }
    }
}

/* BODY for each form, with constants. */
#define EACH_FORM(body)                          \
    const kolo_simd_row_norm_job *job = arg;     \
    if (job->centre) {                           \
        if (job->bf16)                           \
            body(job, begin, end, true, true);   \
        else                                     \
            body(job, begin, end, true, false);  \
    } else {                                     \
        if (job->bf16)                           \
            body(job, begin, end, false, true);  \
        else                                     \
            body(job, begin, end, false, false); \
    }

static void forward(const void *arg, int part, int64_t begin, int64_t end) {
    EACH_FORM(forward_rows)
}

static void backward(const void *arg, int part, int64_t begin, int64_t end) {
    EACH_FORM(backward_blocks)
}

/* dgamma and dbeta of slices of KOLO_SIMD_SLICE channels: adds those of all blocks. */
static void sums(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_row_norm_job *job = arg;
    const int64_t n = job->channels, stride = job->centre ? 2 * n : n;
    const int64_t from = begin * KOLO_SIMD_SLICE, to = kolo_min_i64(end * KOLO_SIMD_SLICE, n);
    for (int which = 0; which < (job->centre ? 2 : 1); which++) {
        const float *of_block = job->sums + which * n;
        float *total = which == 0 ? job->dgamma : job->dbeta;
        memcpy(total + from, of_block + from, sizeof(float) * (size_t)(to - from));
        for (int64_t b = 1; b < job->blocks; b++) {
            for (int64_t c = from; c < to; c++) total[c] += of_block[b * stride + c];
        }
    }
}

const kolo_simd_row_norm_table KOLO_ISA_SYMBOL(kolo_simd_row_norm) = {
    .forward = forward,
    .backward = backward,
    .sums = sums,
};
