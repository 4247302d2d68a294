/* Loops of softmax. For an inner size of 1 the lanes of a vector are elements of one row, else
 * columns. */
#include "kernel/simd/softmax.h"

#include "base/integer.h"
#include "kernel/simd/math.h"

/* n elements of `p`, fewer than VL; the other lanes are `rest`. */
INLINE vf load_n(const void *p, int64_t i, int64_t n, vf rest, bool bf16) {
    return join_lanes(load_part_at(p, i, n, bf16), rest, n);
}

/* A group: `steps` vectors, `step` elements apart, the first `whole` of them with all lanes. Of a
 * row the last vector may have fewer, of columns all have as many. */
typedef struct group {
    int64_t at, steps, whole, step, rest;
    bool row;
} group;

INLINE group group_of(const kolo_simd_softmax_job *job, int64_t item, bool row) {
    if (row) {
        const int64_t whole = job->count / VL, rest = job->count % VL;
        return (group){item * job->count, whole + (rest > 0), whole, VL, rest, true};
    }
    const int64_t vectors = (job->inner + VL - 1) / VL, first = item % vectors * VL;
    const int64_t lanes = kolo_min_i64(VL, job->inner - first);
    const int64_t at = item / vectors * job->count * job->inner + first;
    return (group){at, job->count, lanes == VL ? job->count : 0, job->inner, lanes, false};
}

/* Vector k of the numbers at `p`, of the `whole` ones or not; lanes that the group does not have
 * are `rest`. */
INLINE vf load_step(const void *p, const group *g, int64_t k, bool whole, vf rest, bool bf16) {
    const int64_t at = g->at + k * g->step;
    return whole ? load_at(p, at, bf16) : load_n(p, at, g->rest, rest, bf16);
}
INLINE void store_step(void *p, const group *g, int64_t k, bool whole, vf v, bool bf16) {
    const int64_t at = g->at + k * g->step;
    if (whole) {
        store_at(p, at, v, bf16);
    } else {
        store_part_at(p, at, v, g->rest, bf16);
    }
}

/* `body`(k, chain, whole) for each vector: two independent chains hide the latency of additions. */
#define EACH_STEP(body)                          \
    do {                                         \
        int64_t step = 0;                        \
        for (; step + 2 <= g.whole; step += 2) { \
            body(step, 0, true);                 \
            body(step + 1, 1, true);             \
        }                                        \
        for (; step < g.whole; step++) {         \
            body(step, 0, true);                 \
        }                                        \
        for (; step < g.steps; step++) {         \
            body(step, 0, false);                \
        }                                        \
    } while (0)

INLINE void forward_group(const kolo_simd_softmax_job *job, group g, bool bf16) {
    const vf lowest = splat(-__builtin_inff());
    vf most[2] = {lowest, lowest}, sum[2] = {splat(0), splat(0)};
    /* What a sample or row has here, the next one has at the same place: it is fetched meanwhile.
     */
    const int64_t span = job->count * job->inner;
#define MOST(k, j, whole)                                                         \
    do {                                                                          \
        __builtin_prefetch(ahead(job->a, g.at + (k)*g.step + span, bf16), 0, 2);  \
        most[j] = larger(load_step(job->a, &g, k, whole, lowest, bf16), most[j]); \
    } while (0)
    EACH_STEP(MOST);
    vf largest = larger(most[1], most[0]);
    if (g.row) largest = splat(largest_lane(largest));
    const bool keeps = !job->log && !bf16; /* the exponentials, at their places */
#define EXPONENTIAL(k, j, whole)                                                     \
    do {                                                                             \
        vf e = exponential(load_step(job->a, &g, k, whole, lowest, bf16) - largest); \
        sum[j] += e;                                                                 \
        if (keeps) store_step(job->out, &g, k, whole, e, bf16);                      \
    } while (0)
    EACH_STEP(EXPONENTIAL);
    vf total = sum[0] + sum[1];
    if (g.row) total = splat(sum_lanes(total));
    const vf shift = job->log ? largest + logarithm(total) : largest, by = 1.0f / total;
#define SCALED(k, j, whole) \
    store_step(job->out, &g, k, whole, load_step(job->out, &g, k, whole, by, bf16) * by, bf16)
#define RESULT(k, j, whole)                                                           \
    do {                                                                              \
        vf x = load_step(job->a, &g, k, whole, lowest, bf16) - shift;                 \
        store_step(job->out, &g, k, whole, job->log ? x : exponential(x) * by, bf16); \
    } while (0)
    if (keeps) {
        EACH_STEP(SCALED);
    } else {
        EACH_STEP(RESULT);
    }
}

INLINE void backward_group(const kolo_simd_softmax_job *job, group g, bool bf16) {
    const vf zero = splat(0);
    vf sum[2] = {zero, zero};
#define SUM(k, j, whole)                                                            \
    do {                                                                            \
        vf dy = load_step(job->a, &g, k, whole, zero, bf16);                        \
        sum[j] += job->log ? dy : dy * load_step(job->y, &g, k, whole, zero, bf16); \
    } while (0)
    EACH_STEP(SUM);
    vf total = sum[0] + sum[1];
    if (g.row) total = splat(sum_lanes(total));
#define SLOPE(k, j, whole)                                                 \
    do {                                                                   \
        vf dy = load_step(job->a, &g, k, whole, zero, bf16);               \
        vf y = load_step(job->y, &g, k, whole, zero, bf16);                \
        vf dx = job->log ? dy - exponential(y) * total : y * (dy - total); \
        store_step(job->out, &g, k, whole, dx, bf16);                      \
    } while (0)
    EACH_STEP(SLOPE);
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
