/* Batched matrix products. */
#include "kernel/ref/ref.h"

static void matmul(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    bool ta = spec->attr[KOLO_MATMUL_TRANSPOSE_A].i, tb = spec->attr[KOLO_MATMUL_TRANSPOSE_B].i;
    const int64_t *dim = spec->out[0].shape.dim;
    int64_t rows = dim[1], columns = dim[2], inner = spec->in[0].shape.dim[ta ? 1 : 2];
    const double *a = call->in[0], *b = call->in[1];
    double *y = call->out[0];
    for (int64_t n = 0; n < dim[0]; n++, a += rows * inner, b += inner * columns) {
        for (int64_t i = 0; i < rows; i++) {
            for (int64_t j = 0; j < columns; j++) {
                double sum = 0;
                for (int64_t k = 0; k < inner; k++) {
                    sum += a[ta ? k * rows + i : i * inner + k] *
                           b[tb ? j * inner + k : k * columns + j];
                }
                *y++ = sum;
            }
        }
    }
}

static void run_matmul(const kolo_call *call) { kolo_ref_run(call, matmul); }

const kolo_kernel kolo_ref_matmul = KOLO_REF_KERNEL("ref_matmul", &kolo_op_matmul, run_matmul);
