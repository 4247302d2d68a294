/* Batched matrix products by oneDNN's sgemm, one call per matrix. On plain matrices it is faster
 * than oneDNN's matmul primitive. */
#include "kernel/dnn/dnn.h"

#include <omp.h>

static double fit(kolo_kernel_spec *spec) {
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32) || !kolo_spec_is_plain(spec)) return -1;
    kolo_cost cost = spec->op->cost(
        &(kolo_shape_query){spec->attr, spec->n_in, spec->in, spec->n_out, spec->out, spec->op});
    return 1e-7 * (double)spec->out[0].shape.dim[0] +
           kolo_kernel_seconds(cost.flops, cost.bytes, 0.8);
}

static void run(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    bool ta = spec->attr[KOLO_MATMUL_TRANSPOSE_A].i, tb = spec->attr[KOLO_MATMUL_TRANSPOSE_B].i;
    const int64_t *a_dim = spec->in[0].shape.dim, *b_dim = spec->in[1].shape.dim;
    const int64_t *dim = spec->out[0].shape.dim, inner = a_dim[ta ? 1 : 2];
    const float *a = call->in[0], *b = call->in[1];
    float *y = call->out[0];
    omp_set_num_threads(spec->threads);
    for (int64_t n = 0; n < dim[0]; n++) {
        KOLO_ASSERT(dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', dim[1], dim[2], inner, 1,
                               a + n * a_dim[1] * a_dim[2], a_dim[2], b + n * b_dim[1] * b_dim[2],
                               b_dim[2], 0, y + n * dim[1] * dim[2], dim[2]) == dnnl_success);
    }
}

const kolo_kernel kolo_dnn_matmul = {
    .name = "dnn_matmul", .op = &kolo_op_matmul, .fit = fit, .run = run};
