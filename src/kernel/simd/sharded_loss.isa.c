/* Softmax cross-entropy of some of the classes, row by row. */

#include "kernel/simd/sharded_loss.h"

#include "kernel/simd/math.h"

static void class_max(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_sharded_loss_job *job = arg;
    for (int64_t i = begin; i < end; i++) {
        job->out[i] = largest_in(job->logits + i * job->classes, job->classes);
    }
}

/* How many of the first n numbers are equal to `most`. */
INLINE float equal_to(const float *x, float most, int64_t n) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) count += x[i] == most;
    return (float)count;
}

static void class_sums(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_sharded_loss_job *job = arg;
    const int64_t n = job->classes;
    for (int64_t i = begin; i < end; i++) {
        const float *x = job->logits + i * n, max = job->max[i];
        const int64_t label = job->labels[i] - job->first;
        const bool has_label = label >= 0 && label < n;
        vf sum = splat(0), all = splat(0);
        int64_t c = 0;
        for (; c + VL <= n; c += VL) {
            vf above = load(x + c) - max;
            sum += exponential(above);
            all += above;
        }
        float exponentials_of_tail[VL], sum_of = sum_lanes(sum), all_of = sum_lanes(all);
        store_part(exponentials_of_tail, exponential(load_part(x + c, n - c) - max), n - c);
        for (int64_t k = 0; c + k < n; k++) {
            sum_of += exponentials_of_tail[k];
            all_of += x[c + k] - max;
        }
        job->out[i] = sum_of;
        job->out[job->rows + i] = has_label ? x[label] - max : 0;
        job->out[2 * job->rows + i] = all_of;
        job->out[3 * job->rows + i] = equal_to(x, max,
                                               label < 0   ? 0
                                               : label < n ? label
                                                           : n) +
                                      (has_label && x[label] < max ? 1 : 0);
    }
}

/* dlogits may be logits. */
static void class_sums_bwd(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_sharded_loss_job *job = arg;
    const int64_t n = job->classes;
    for (int64_t i = begin; i < end; i++) {
        const float *x = job->logits + i * n, max = job->max[i];
        const float of_exponential = job->dsums[i], of_all = job->dsums[2 * job->rows + i];
        const int64_t label = job->labels[i] - job->first;
        float *to = job->out + i * n;
        int64_t c = 0;
        for (; c + VL <= n; c += VL) {
            store(to + c, exponential(load(x + c) - max) * of_exponential + of_all);
        }
        if (c < n) {
            vf tail = exponential(load_part(x + c, n - c) - max) * of_exponential + of_all;
            store_part(to + c, tail, n - c);
        }
        if (label >= 0 && label < n) to[label] += job->dsums[job->rows + i];
    }
}

const kolo_simd_sharded_loss_table KOLO_ISA_SYMBOL(kolo_simd_sharded_loss) = {
    .class_max = class_max,
    .class_sums = class_sums,
    .class_sums_bwd = class_sums_bwd,
};
