/* linear, y = x w^T + b, also fused with GELU, and its gradients dx = dy w, dw = dy^T x, db =
 * column sums of dy. */
#include "kernel/ref/ref.h"

#include <string.h>

/* Elements of a row of the weights. */
static int64_t inner_of(const kolo_tensor *w) {
    return kolo_shape_count(&w->shape) / w->shape.dim[0];
}
/* Rows of x, or of y: the samples of the batch, or all tokens. */
static int64_t rows_of(const kolo_tensor *t, int64_t columns) {
    return kolo_shape_count(&t->shape) / columns;
}

static void product(const kolo_call *call, double *y) {
    const kolo_kernel_spec *spec = call->spec;
    const double *x = call->in[0], *w = call->in[1];
    const double *b = spec->n_in == 3 ? call->in[2] : NULL;
    int64_t inner = inner_of(&spec->in[1]), batch = rows_of(&spec->in[0], inner);
    int64_t outer = spec->in[1].shape.dim[0];
    for (int64_t n = 0; n < batch; n++) {
        for (int64_t o = 0; o < outer; o++) {
            double sum = b ? b[o] : 0;
            for (int64_t i = 0; i < inner; i++) sum += x[n * inner + i] * w[o * inner + i];
            y[n * outer + o] = sum;
        }
    }
}

static void linear(const kolo_call *call) {
    double *y = call->out[0];
    product(call, y);
    if (!call->spec->attr[KOLO_LINEAR_RELU].i) return;
    for (int64_t i = 0; i < kolo_shape_count(&call->spec->out[0].shape); i++) {
        y[i] = y[i] < 0 ? 0 : y[i];
    }
}

static void linear_gelu(const kolo_call *call) {
    const kolo_attr *attr = call->spec->attr;
    double *y = call->out[0], *z = attr[KOLO_LINEAR_GELU_KEEP].i ? call->out[1] : y;
    product(call, z);
    for (int64_t i = 0; i < kolo_shape_count(&call->spec->out[0].shape); i++) {
        y[i] = kolo_ref_gelu_at(z[i], attr[KOLO_LINEAR_GELU_TANH].i);
    }
}

static void bwd_data(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const double *dy = call->in[0], *w = call->in[1];
    double *dx = call->out[0];
    int64_t inner = inner_of(&spec->in[1]), batch = rows_of(&spec->out[0], inner);
    int64_t outer = spec->in[1].shape.dim[0];
    memset(dx, 0, sizeof(double) * (size_t)(batch * inner));
    for (int64_t n = 0; n < batch; n++) {
        for (int64_t o = 0; o < outer; o++) {
            double scale = dy[n * outer + o];
            for (int64_t i = 0; i < inner; i++) dx[n * inner + i] += scale * w[o * inner + i];
        }
    }
}

static void bwd_weights(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const double *dy = call->in[0], *x = call->in[1];
    double *dw = call->out[0], *db = spec->n_out == 2 ? call->out[1] : NULL;
    int64_t inner = inner_of(&spec->out[0]), batch = rows_of(&spec->in[1], inner);
    int64_t outer = spec->out[0].shape.dim[0];
    memset(dw, 0, sizeof(double) * (size_t)(outer * inner));
    for (int64_t n = 0; n < batch; n++) {
        for (int64_t o = 0; o < outer; o++) {
            double scale = dy[n * outer + o];
            for (int64_t i = 0; i < inner; i++) dw[o * inner + i] += scale * x[n * inner + i];
        }
    }
    for (int64_t o = 0; db && o < outer; o++) {
        db[o] = 0;
        for (int64_t n = 0; n < batch; n++) db[o] += dy[n * outer + o];
    }
}

static void run_linear(const kolo_call *call) { kolo_ref_run(call, linear); }
static void run_linear_gelu(const kolo_call *call) { kolo_ref_run(call, linear_gelu); }
static void run_bwd_data(const kolo_call *call) { kolo_ref_run(call, bwd_data); }
static void run_bwd_weights(const kolo_call *call) { kolo_ref_run(call, bwd_weights); }

const kolo_kernel kolo_ref_linear = KOLO_REF_KERNEL("ref_linear", &kolo_op_linear, run_linear);
const kolo_kernel kolo_ref_linear_gelu =
    KOLO_REF_KERNEL("ref_linear_gelu", &kolo_op_linear_gelu, run_linear_gelu);
const kolo_kernel kolo_ref_linear_bwd_data =
    KOLO_REF_KERNEL("ref_linear_bwd_data", &kolo_op_linear_bwd_data, run_bwd_data);
const kolo_kernel kolo_ref_linear_bwd_weights =
    KOLO_REF_KERNEL("ref_linear_bwd_weights", &kolo_op_linear_bwd_weights, run_bwd_weights);
