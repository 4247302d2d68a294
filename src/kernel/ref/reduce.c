/* The sum of all elements, and its gradient. */
#include "kernel/ref/ref.h"

static void sum(const kolo_call *call) {
    const double *x = call->in[0];
    double total = 0;
    for (int64_t i = 0; i < kolo_shape_count(&call->spec->in[0].shape); i++) total += x[i];
    *(double *)call->out[0] = total;
}

static void sum_bwd(const kolo_call *call) {
    const double dy = *(const double *)call->in[0];
    double *dx = call->out[0];
    for (int64_t i = 0; i < kolo_shape_count(&call->spec->out[0].shape); i++) dx[i] = dy;
}

static void run_sum(const kolo_call *call) { kolo_ref_run(call, sum); }
static void run_sum_bwd(const kolo_call *call) { kolo_ref_run(call, sum_bwd); }

const kolo_kernel kolo_ref_sum = KOLO_REF_KERNEL("ref_sum", &kolo_op_sum, run_sum);
const kolo_kernel kolo_ref_sum_bwd = KOLO_REF_KERNEL("ref_sum_bwd", &kolo_op_sum_bwd, run_sum_bwd);
