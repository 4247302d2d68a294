/* bias, relu and add with their gradients. An output may alias an input (op->overwrite). */
#include "kernel/ref/ref.h"

#include <string.h>

static int64_t count_of(const kolo_tensor *t) { return kolo_shape_count(&t->shape); }

/* Elements per index of dimension 1. */
static int64_t plane_of(const kolo_tensor *t) {
    return count_of(t) / (t->shape.dim[0] * t->shape.dim[1]);
}

static void bias(const kolo_call *call) {
    const kolo_tensor *t = &call->spec->in[0];
    const double *x = call->in[0], *b = call->in[1];
    double *y = call->out[0];
    int64_t plane = plane_of(t), channels = t->shape.dim[1];
    for (int64_t i = 0; i < count_of(t); i++) y[i] = x[i] + b[i / plane % channels];
}

static void bias_bwd(const kolo_call *call) {
    const kolo_tensor *t = &call->spec->in[0];
    const double *dy = call->in[0];
    double *db = call->out[0];
    int64_t plane = plane_of(t), channels = t->shape.dim[1];
    memset(db, 0, sizeof(double) * (size_t)channels);
    for (int64_t i = 0; i < count_of(t); i++) db[i / plane % channels] += dy[i];
}

static void relu(const kolo_call *call) {
    const double *x = call->in[0];
    double *y = call->out[0];
    for (int64_t i = 0; i < count_of(&call->spec->in[0]); i++) y[i] = x[i] < 0 ? 0 : x[i];
}

static void relu_bwd(const kolo_call *call) {
    const double *dy = call->in[0], *y = call->in[1];
    const double *dy2 = call->spec->n_in > 2 ? call->in[2] : NULL;
    double *dx = call->out[0];
    for (int64_t i = 0; i < count_of(&call->spec->in[0]); i++) {
        double d = dy[i] + (dy2 ? dy2[i] : 0);
        dx[i] = y[i] > 0 ? d : 0;
    }
}

static void add(const kolo_call *call) {
    const double *a = call->in[0], *b = call->in[1];
    double *y = call->out[0];
    bool relu = call->spec->attr[KOLO_ADD_RELU].i;
    for (int64_t i = 0; i < count_of(&call->spec->in[0]); i++) {
        double v = a[i] + b[i];
        y[i] = relu && v < 0 ? 0 : v;
    }
}

static void run_bias(const kolo_call *call) { kolo_ref_run(call, bias); }
static void run_bias_bwd(const kolo_call *call) { kolo_ref_run(call, bias_bwd); }
static void run_relu(const kolo_call *call) { kolo_ref_run(call, relu); }
static void run_relu_bwd(const kolo_call *call) { kolo_ref_run(call, relu_bwd); }
static void run_add(const kolo_call *call) { kolo_ref_run(call, add); }

const kolo_kernel kolo_ref_bias = KOLO_REF_KERNEL("ref_bias", &kolo_op_bias, run_bias);
const kolo_kernel kolo_ref_bias_bwd =
    KOLO_REF_KERNEL("ref_bias_bwd", &kolo_op_bias_bwd, run_bias_bwd);
const kolo_kernel kolo_ref_relu = KOLO_REF_KERNEL("ref_relu", &kolo_op_relu, run_relu);
const kolo_kernel kolo_ref_relu_bwd =
    KOLO_REF_KERNEL("ref_relu_bwd", &kolo_op_relu_bwd, run_relu_bwd);
const kolo_kernel kolo_ref_add = KOLO_REF_KERNEL("ref_add", &kolo_op_add, run_add);
