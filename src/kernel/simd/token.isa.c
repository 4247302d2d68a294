/* Loops over tokens: embedding, row-sparse gradients. Parallel over rows.
 * Parameter gradients are parallel over slices of channels instead: each thread adds all rows in
 * order, so they do not depend on the thread count. */
#include "kernel/simd/token.h"

#include "base/integer.h"
#include "kernel/simd/math.h"
#include "kernel/simd/pointwise.h"

#include <math.h>

/* ---- embedding ---- */

static void add_row(float *to, const float *from, int64_t count) {
    for (int64_t c = 0; c < count; c++) to[c] += from[c];
}

static void embedding(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_embedding_job *job = arg;
    int64_t n = job->channels;
    for (int64_t i = begin; i < end; i++) {
        int64_t id = job->ids[i] - job->first;
        const int64_t at = i % job->length, t = at < job->half ? at : at + job->jump;
        const float *p = job->positions ? job->positions + t * n : NULL;
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
        int64_t at = t - job->first;
        if (at >= job->half) at = at < job->half + job->jump ? -1 : at - job->jump;
        if (at < 0 || at >= job->length) continue;
        for (int64_t i = at; i < job->tokens; i += job->length) add_row(to, job->dy + i * n, n);
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
    .embedding = embedding,
    .embedding_bwd = embedding_bwd,
    .position_bwd = position_bwd,
    .sum_rows = sum_rows,
    .sgd_rows = sgd_rows,
    .adam_rows = adam_rows,
};
