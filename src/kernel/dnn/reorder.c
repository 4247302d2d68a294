/* Layout conversions on oneDNN. */
#include "kernel/dnn/dnn.h"

static kolo_status reorder_build(const kolo_kernel_spec *spec, kolo_dnn_plan *plan) {
    KOLO_TRY(kolo_dnn_plan_init(plan, spec->threads));
    if (!kolo_dnn_add_reorder(plan, &spec->in[0], kolo_dnn_in(0), &spec->out[0], kolo_dnn_out(0),
                              1)) {
        kolo_dnn_plan_fini(plan);
    }
    return KOLO_OK;
}

KOLO_DNN_KERNEL_AS(reorder, reorder, false, false);
