/* Elementwise functions of two inputs with broadcasting: the formulas of graph/ops/binary.h on
 * doubles. */
#include "kernel/ref/ref.h"

#define N(number) ((double)(number))
#define IF(condition, a, b) ((condition) ? (a) : (b))

typedef double function(double a, double b);

/* The element of input i that belongs to element k of the output. */
static int64_t at(const kolo_kernel_spec *spec, int i, int64_t k) {
    const kolo_shape *y = &spec->out[0].shape, *in = &spec->in[i].shape;
    int64_t stride = 1, offset = 0;
    for (int d = y->rank - 1; d >= 0; d--) {
        int dim = kolo_binary_dim(spec->attr, i, in, y->rank, d);
        if (dim >= 0) offset += k % y->dim[d] * stride;
        if (dim >= 0) stride *= in->dim[dim];
        k /= y->dim[d];
    }
    return offset;
}

static void map(const kolo_call *call, function *f) {
    const kolo_kernel_spec *spec = call->spec;
    const double *a = call->in[0], *b = call->in[1];
    double *y = call->out[0];
    for (int64_t k = 0; k < kolo_shape_count(&spec->out[0].shape); k++) {
        y[k] = f(a[at(spec, 0, k)], b[at(spec, 1, k)]);
    }
}

#define BINARY(X, name, join, linear, forward)                                         \
    static double name##_of(double a, double b) { return forward; }                    \
    static void name##_body(const kolo_call *call) { map(call, name##_of); }           \
    static void run_##name(const kolo_call *call) { kolo_ref_run(call, name##_body); } \
    const kolo_kernel kolo_ref_##name = KOLO_REF_KERNEL("ref_" #name, &kolo_op_##name, run_##name);
KOLO_BINARY_LIST(BINARY, )
