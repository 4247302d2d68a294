/* Local response normalization and its gradient, written as the formulas of ops/lrn.c. */
#include "base/integer.h"
#include "kernel/ref/ref.h"

#include <math.h>

typedef struct lrn {
    int64_t n, channels, plane, size;
    double alpha, beta, k; /* alpha divided by the size */
} lrn;

static lrn lrn_of(const kolo_call *call) {
    const kolo_shape *s = &call->spec->in[0].shape;
    const kolo_attr *a = call->spec->attr;
    lrn l = {.n = s->dim[0], .channels = s->dim[1], .size = a[KOLO_LRN_SIZE].i};
    l.plane = kolo_shape_count(s) / (l.n * l.channels);
    l.alpha = a[KOLO_LRN_ALPHA].f / (double)l.size;
    l.beta = a[KOLO_LRN_BETA].f;
    l.k = a[KOLO_LRN_K].f;
    return l;
}

static void forwards(const kolo_call *call) {
    lrn l = lrn_of(call);
    for (int64_t i = 0; i < l.n * l.channels * l.plane; i++) {
        int64_t c = i / l.plane % l.channels;
        int64_t first = kolo_max_i64(c - l.size / 2, 0);
        int64_t last = kolo_min_i64(c + (l.size - 1) / 2, l.channels - 1);
        const double *x = (const double *)call->in[0] + i;
        double sum = 0;
        for (int64_t j = first; j <= last; j++) {
            double other = x[(j - c) * l.plane];
            sum += other * other;
        }
        double s = ((double *)call->out[1])[i] = l.k + l.alpha * sum;
        ((double *)call->out[0])[i] = *x * pow(s, -l.beta);
    }
}

static void backwards(const kolo_call *call) {
    lrn l = lrn_of(call);
    for (int64_t i = 0; i < l.n * l.channels * l.plane; i++) {
        int64_t c = i / l.plane % l.channels;
        int64_t first = kolo_max_i64(c - (l.size - 1) / 2, 0);
        int64_t last = kolo_min_i64(c + l.size / 2, l.channels - 1);
        const double *dy = (const double *)call->in[0] + i, *x = (const double *)call->in[1] + i;
        const double *s = (const double *)call->in[2] + i;
        double sum = 0;
        for (int64_t j = first; j <= last; j++) {
            int64_t at = (j - c) * l.plane;
            sum += dy[at] * x[at] * pow(s[at], -l.beta - 1);
        }
        ((double *)call->out[0])[i] = *dy * pow(*s, -l.beta) - 2 * l.alpha * l.beta * *x * sum;
    }
}

static void run_lrn(const kolo_call *call) { kolo_ref_run(call, forwards); }
static void run_lrn_bwd(const kolo_call *call) { kolo_ref_run(call, backwards); }

const kolo_kernel kolo_ref_lrn = KOLO_REF_KERNEL("ref_lrn", &kolo_op_lrn, run_lrn);
const kolo_kernel kolo_ref_lrn_bwd = KOLO_REF_KERNEL("ref_lrn_bwd", &kolo_op_lrn_bwd, run_lrn_bwd);
