/* Loops of softmax. For an inner size of 1 the lanes of a vector are elements of one row, else
 * columns. */
#include "kernel/simd/softmax.h"

#include "base/integer.h"
#include "kernel/simd/math.h"

/* VL elements of `p`, or the first n; the others are `rest`. */
INLINE vf load_n(const void *p, int64_t i, int64_t n, vf rest, bool bf16) {
    if (n >= VL) return load_at(p, i, bf16);
    float lanes[VL], kept[VL];
    store(lanes, rest);
    store(kept, load_part_at(p, i, n, bf16));
    for (int64_t k = 0; k < n; k++) lanes[k] = kept[k];
    return load(lanes);
}
INLINE void store_n(void *p, int64_t i, vf v, int64_t n, bool bf16) {
    if (n >= VL) {
        store_at(p, i, v, bf16);
    } else {
        store_part_at(p, i, v, n, bf16);
    }
}

/* A group: `steps` vectors, `step` elements apart. Of a row the last vector has fewer lanes, of
 * columns each vector may have. */
typedef struct group {
    int64_t at, steps, step, lanes, last;
    bool row;
} group;

INLINE group group_of(const kolo_simd_softmax_job *job, int64_t item, bool row) {
    if (row) {
        const int64_t steps = (job->count + VL - 1) / VL;
        return (group){item * job->count, steps, VL, VL, job->count - (steps - 1) * VL, true};
    }
    const int64_t vectors = (job->inner + VL - 1) / VL, first = item % vectors * VL;
    const int64_t lanes = kolo_min_i64(VL, job->inner - first);
    const int64_t at = item / vectors * job->count * job->inner + first;
    return (group){at, job->count, job->inner, lanes, lanes, false};
}
INLINE int64_t lanes_at(const group *g, int64_t k) {
    return k == g->steps - 1 ? g->last : g->lanes;
}

INLINE void forward_group(const kolo_simd_softmax_job *job, group g, bool bf16) {
    const vf lowest = splat(-__builtin_inff());
    vf most = lowest, sum = splat(0);
    for (int64_t k = 0; k < g.steps; k++) {
        most = larger(load_n(job->a, g.at + k * g.step, lanes_at(&g, k), lowest, bf16), most);
    }
    if (g.row) most = splat(largest_lane(most));
    const bool keeps = !job->log && !bf16; /* the exponentials, at their places */
    for (int64_t k = 0; k < g.steps; k++) {
        const int64_t at = g.at + k * g.step, lanes = lanes_at(&g, k);
        vf e = exponential(load_n(job->a, at, lanes, lowest, bf16) - most);
        sum += e;
        if (keeps) store_n(job->out, at, e, lanes, bf16);
    }
    if (g.row) sum = splat(sum_lanes(sum));
    const vf shift = job->log ? most + logarithm(sum) : most, by = 1.0f / sum;
    for (int64_t k = 0; k < g.steps; k++) {
        const int64_t at = g.at + k * g.step, lanes = lanes_at(&g, k);
        if (keeps) {
            store_n(job->out, at, load_n(job->out, at, lanes, by, bf16) * by, lanes, bf16);
            continue;
        }
        vf x = load_n(job->a, at, lanes, lowest, bf16) - shift;
        store_n(job->out, at, job->log ? x : exponential(x) * by, lanes, bf16);
    }
}

INLINE void backward_group(const kolo_simd_softmax_job *job, group g, bool bf16) {
    const vf zero = splat(0);
    vf sum = zero;
    for (int64_t k = 0; k < g.steps; k++) {
        vf dy = load_n(job->a, g.at + k * g.step, lanes_at(&g, k), zero, bf16);
        vf y = load_n(job->y, g.at + k * g.step, lanes_at(&g, k), zero, bf16);
        sum += job->log ? dy : dy * y;
    }
    if (g.row) sum = splat(sum_lanes(sum));
    for (int64_t k = 0; k < g.steps; k++) {
        vf dy = load_n(job->a, g.at + k * g.step, lanes_at(&g, k), zero, bf16);
        vf y = load_n(job->y, g.at + k * g.step, lanes_at(&g, k), zero, bf16);
        vf dx = job->log ? dy - exponential(y) * sum : y * (dy - sum);
        store_n(job->out, g.at + k * g.step, dx, lanes_at(&g, k), bf16);
    }
}

#define LOOP(name)                                                                          \
    INLINE void name##_groups(const kolo_simd_softmax_job *job, int64_t begin, int64_t end, \
                              bool row, bool bf16) {                                        \
        for (int64_t item = begin; item < end; item++) {                                    \
            name##_group(job, group_of(job, item, row), bf16);                              \
        }                                                                                   \
    }                                                                                       \
    static void name(const void *arg, int part, int64_t begin, int64_t end) {               \
        const kolo_simd_softmax_job *job = arg;                                             \
        if (job->inner == 1) {                                                              \
            if (job->bf16) {                                                                \
                name##_groups(job, begin, end, true, true);                                 \
            } else {                                                                        \
                name##_groups(job, begin, end, true, false);                                \
            }                                                                               \
        } else if (job->bf16) {                                                             \
            name##_groups(job, begin, end, false, true);                                    \
        } else {                                                                            \
            name##_groups(job, begin, end, false, false);                                   \
        }                                                                                   \
    }
LOOP(forward)
LOOP(backward)

const kolo_simd_softmax_table KOLO_ISA_SYMBOL(kolo_simd_softmax) = {
    .lanes = VL, .forward = forward, .backward = backward};
