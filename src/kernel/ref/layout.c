/* reorder between any two layouts, for any dtype; convert. */
#include "kernel/ref/ref.h"

#include <string.h>

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

static void convert(const kolo_call *call) {
    size_t count = (size_t)kolo_shape_count(&call->spec->out[0].shape);
    memcpy(call->out[0], call->in[0], count * sizeof(double));
}

static void run_convert(const kolo_call *call) { kolo_ref_run(call, convert); }

const kolo_kernel kolo_ref_convert = KOLO_REF_KERNEL("ref_convert", &kolo_op_convert, run_convert);
