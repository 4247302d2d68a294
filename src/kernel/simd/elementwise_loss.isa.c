/* Loops of the elementwise losses and their gradients. Remainders use the same vector arithmetic as
 * whole vectors. */
#include "kernel/simd/elementwise_loss.h"

#include "base/integer.h"
#include "kernel/simd/math.h"

INLINE vf magnitude(vf x) { return select(x < splat(0), -x, x); }

/* ---- losses: x, target, delta ---- */

INLINE vf mse(vf x, vf t, vf delta) { return (x - t) * (x - t); }
INLINE vf mse_slope(vf x, vf t, vf delta) { return 2.0f * (x - t); }

INLINE vf l1(vf x, vf t, vf delta) { return magnitude(x - t); }
INLINE vf l1_slope(vf x, vf t, vf delta) {
    vf d = x - t;
    return select(d > splat(0), splat(1), select(d < splat(0), splat(-1), d));
}

INLINE vf huber(vf x, vf t, vf delta) {
    vf d = x - t, size = magnitude(d);
    return select(size > delta, delta * (size - 0.5f * delta), 0.5f * d * d);
}
INLINE vf huber_slope(vf x, vf t, vf delta) {
    vf d = x - t;
    return select(d > delta, delta, select(d < -delta, -delta, d));
}

INLINE vf bce(vf x, vf t, vf delta) {
    vf positive = select(x < splat(0), splat(0), x);
    return positive - x * t + log_1p(exponential(-magnitude(x)));
}
INLINE vf bce_slope(vf x, vf t, vf delta) { return sigmoid(x) - t; }

/* ---- loops ---- */

typedef vf loss_function(vf x, vf target, vf delta);

/* The first n lanes; the others are zero. */
INLINE vf lanes_of(vf v, int64_t n) {
    float kept[VL];
    store(kept, v);
    return load_part(kept, n);
}

INLINE void sum_blocks(loss_function *function, const kolo_simd_losses_job *job, int64_t begin,
                       int64_t end) {
    for (int64_t block = begin; block < end; block++) {
        int64_t i = block * KOLO_SIMD_LOSS_BLOCK;
        int64_t last = kolo_min_i64(i + KOLO_SIMD_LOSS_BLOCK, job->count);
        vf sum = splat(0), delta = splat(job->delta);
        for (; i + VL <= last; i += VL) {
            sum += function(load(job->x + i), load(job->target + i), delta);
        }
        int64_t n = last - i;
        if (n > 0) {
            vf x = load_part(job->x + i, n), t = load_part(job->target + i, n);
            sum += lanes_of(function(x, t, delta), n);
        }
        job->sums[block] = sum_lanes(sum);
    }
}

INLINE void slopes(loss_function *function, const kolo_simd_losses_job *job, int64_t begin,
                   int64_t end) {
    const vf delta = splat(job->delta), dloss = splat(job->dloss);
    int64_t i = begin;
    for (; i + VL <= end; i += VL) {
        store(job->dx + i, dloss * function(load(job->x + i), load(job->target + i), delta));
    }
    int64_t n = end - i;
    if (n == 0) return;
    vf x = load_part(job->x + i, n), t = load_part(job->target + i, n);
    store_part(job->dx + i, dloss * function(x, t, delta), n);
}

#define LOOPS(name)                                                                      \
    static void name##_forward(const void *arg, int part, int64_t begin, int64_t end) {  \
        sum_blocks(name, arg, begin, end);                                               \
    }                                                                                    \
    static void name##_backward(const void *arg, int part, int64_t begin, int64_t end) { \
        slopes(name##_slope, arg, begin, end);                                           \
    }
LOOPS(mse)
LOOPS(l1)
LOOPS(huber)
LOOPS(bce)

const kolo_simd_losses_table KOLO_ISA_SYMBOL(kolo_simd_losses) = {
    .forward = {[KOLO_LOSS_MSE] = mse_forward,
                [KOLO_LOSS_L1] = l1_forward,
                [KOLO_LOSS_HUBER] = huber_forward,
                [KOLO_LOSS_BCE] = bce_forward},
    .backward = {[KOLO_LOSS_MSE] = mse_backward,
                 [KOLO_LOSS_L1] = l1_backward,
                 [KOLO_LOSS_HUBER] = huber_backward,
                 [KOLO_LOSS_BCE] = bce_backward},
};
