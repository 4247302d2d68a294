/* Permutation of dimensions, reversal along one. */
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

static void flip(const kolo_call *call) {
    const kolo_shape *s = &call->spec->in[0].shape;
    const int axis = (int)call->spec->attr[KOLO_FLIP_AXIS].i;
    const int64_t size = s->dim[axis];
    const double *x = call->in[0];
    double *y = call->out[0];
    int64_t inner = 1;
    for (int d = axis + 1; d < s->rank; d++) inner *= s->dim[d];
    for (int64_t k = 0; k < kolo_shape_count(s); k++) {
        const int64_t i = k / inner % size;
        y[k] = x[k + (size - 1 - 2 * i) * inner];
    }
}

static void run_flip(const kolo_call *call) { kolo_ref_run(call, flip); }
static void run_permute(const kolo_call *call) { kolo_ref_run(call, permute); }

const kolo_kernel kolo_ref_permute = KOLO_REF_KERNEL("ref_permute", &kolo_op_permute, run_permute);
const kolo_kernel kolo_ref_flip = KOLO_REF_KERNEL("ref_flip", &kolo_op_flip, run_flip);
