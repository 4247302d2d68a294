/* Loops of attention to cached keys and values. A step of generation has one query for each head,
 * so the time is that of reading the cache once: four keys, or values, at a time. */
#include "kernel/simd/cache.h"

#include "kernel/simd/math.h"

#include <math.h>

enum { KEYS = 4 };

/* scores[j] = scale <q, k[j]>; `n` keys, of which the last may repeat. */
INLINE void score_keys(const float *q, const float *k, int64_t n, int64_t width, float scale,
                       float *scores) {
    const float *key[KEYS];
    vf sum[KEYS];
    int64_t c = 0;
    for (int i = 0; i < KEYS; i++) {
        key[i] = k + (i < n ? i : n - 1) * width;
        sum[i] = splat(0);
    }
    for (; c + VL <= width; c += VL) {
        const vf of_q = load(q + c);
        for (int i = 0; i < KEYS; i++) sum[i] = mul_add(of_q, load(key[i] + c), sum[i]);
    }
    if (c < width) {
        const vf of_q = load_part(q + c, width - c);
        for (int i = 0; i < KEYS; i++) {
            sum[i] = mul_add(of_q, load_part(key[i] + c, width - c), sum[i]);
        }
    }
    for (int i = 0; i < KEYS && i < n; i++) scores[i] = sum_lanes(sum[i]) * scale;
}

/* sum[c] += the sum over n values of weights[j] v[j][c]. */
INLINE void add_values(const float *weights, const float *v, int64_t n, int64_t width, float *sum) {
    int64_t c = 0;
    for (; c + VL <= width; c += VL) {
        vf of_sum = load(sum + c);
        for (int64_t j = 0; j < n; j++) {
            of_sum = mul_add(splat(weights[j]), load(v + j * width + c), of_sum);
        }
        store(sum + c, of_sum);
    }
    for (; c < width; c++) {
        for (int64_t j = 0; j < n; j++) sum[c] += weights[j] * v[j * width + c];
    }
}

static void attend(const float *q, const float *k, const float *v, int64_t seen, int64_t width,
                   float *scores, float *o) {
    const float scale = 1.0f / sqrtf((float)width);
    for (int64_t c = 0; c < width; c++) o[c] = 0;
    if (seen == 0) return;
    for (int64_t j = 0; j < seen; j += KEYS) {
        score_keys(q, k + j * width, seen - j < KEYS ? seen - j : KEYS, width, scale, scores + j);
    }
    const float sum = exponentials(scores, largest_in(scores, seen), seen, scores);
    for (int64_t j = 0; j < seen; j += KEYS) {
        const int64_t n = seen - j < KEYS ? seen - j : KEYS;
        if (n == KEYS) {
            add_values(scores + j, v + j * width, KEYS, width, o);
        } else {
            add_values(scores + j, v + j * width, n, width, o);
        }
    }
    for (int64_t c = 0; c < width; c++) o[c] /= sum;
}

/* Items: groups of samples. */
static void attention(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_cache_job *job = arg;
    float *scores = job->scratch + part * job->part_stride;
    const int64_t width = job->width, all = job->rows * width;
    for (int64_t item = begin; item < end; item++) {
        const int64_t n = item / job->groups, group = item % job->groups;
        const float *k = job->cache + (2 * n * job->groups + group) * all;
        const float *v = k + job->groups * all;
        for (int64_t i = n * job->length; i < (n + 1) * job->length; i++) {
            const int64_t at = job->positions[i];
            for (int64_t h = group * job->each; h < (group + 1) * job->each; h++) {
                attend(job->x + i * job->channels + h * width, k, v,
                       at >= 0 && at < job->rows ? at + 1 : 0, width, scores,
                       job->out + (i * job->groups * job->each + h) * width);
            }
        }
    }
}

const kolo_simd_cache_table KOLO_ISA_SYMBOL(kolo_simd_cache) = {.attention = attention};
