/* Permutation of dimensions. */
#include "kernel/ref/ref.h"

static void permute(const kolo_call *call) {
    const kolo_shape *from = &call->spec->in[0].shape, *to = &call->spec->out[0].shape;
    const double *x = call->in[0];
    double *y = call->out[0];
    int64_t stride[KOLO_MAX_RANK], step = 1;
    for (int d = from->rank - 1; d >= 0; d--) {
        stride[d] = step;
        step *= from->dim[d];
    }
    for (int64_t k = 0; k < kolo_shape_count(to); k++) {
        int64_t at = 0, rest = k;
        for (int d = to->rank - 1; d >= 0; d--) {
            at += rest % to->dim[d] * stride[call->spec->attr[d].i];
            rest /= to->dim[d];
        }
        y[k] = x[at];
    }
}

static void run_permute(const kolo_call *call) { kolo_ref_run(call, permute); }

const kolo_kernel kolo_ref_permute = KOLO_REF_KERNEL("ref_permute", &kolo_op_permute, run_permute);
