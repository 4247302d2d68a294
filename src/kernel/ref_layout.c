/* reorder, between any two layouts, of any dtype. */
#include "kernel/ref.h"

static double fit(kolo_kernel_spec *spec) {
    const kolo_tensor *from = &spec->in[0], *to = &spec->out[0];
    if (from->dtype != to->dtype || !kolo_shape_equal(&from->shape, &to->shape)) return -1;
    return kolo_ref_seconds(spec);
}

static void run(const kolo_call *call) {
    kolo_tensor_reorder(&call->spec->out[0], call->out[0], &call->spec->in[0], call->in[0]);
}

const kolo_kernel kolo_ref_reorder = {
    .name = "ref_reorder",
    .op = &kolo_op_reorder,
    .fit = fit,
    .run = run,
};
