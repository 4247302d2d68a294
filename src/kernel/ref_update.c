/* Stochastic gradient descent with momentum (Sutskever et al., "On the importance of initialization
 * and momentum in deep learning", ICML 2013, in the form that PyTorch gives it). */
#include "kernel/ref.h"

static void sgd(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const double *w = call->in[0], *g = call->in[1], lr = *(const double *)call->in[2];
    const double *v = spec->n_in == 4 ? call->in[3] : NULL;
    double *w_next = call->out[0], *v_next = v ? call->out[1] : NULL;
    double momentum = spec->attr[KOLO_SGD_MOMENTUM].f, decay = spec->attr[KOLO_SGD_WEIGHT_DECAY].f;
    bool nesterov = spec->attr[KOLO_SGD_NESTEROV].i;
    for (int64_t i = 0; i < kolo_shape_count(&spec->in[0].shape); i++) {
        double d = g[i] + decay * w[i], step = d;
        if (v) {
            double velocity = momentum * v[i] + d;
            v_next[i] = velocity;
            step = nesterov ? d + momentum * velocity : velocity;
        }
        w_next[i] = w[i] - lr * step;
    }
}

static void run_sgd(const kolo_call *call) { kolo_ref_run(call, sgd); }

const kolo_kernel kolo_ref_sgd = KOLO_REF_KERNEL("ref_sgd", &kolo_op_sgd, run_sgd);

/* ---- sums over micro-batches ---- */

/* Reads its output, which kolo_ref_run would not bring along. */
static void run_accumulate(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    int64_t count = kolo_shape_count(&spec->out[0].shape);
    double keep = spec->attr[KOLO_ACCUMULATE_KEEP].f;
    if (spec->out[0].dtype == KOLO_DTYPE_F64) {
        const double *x = call->in[0], *fresh = call->in[1];
        double *sum = call->out[0];
        for (int64_t i = 0; i < count; i++) sum[i] = *fresh != 0 ? x[i] : keep * sum[i] + x[i];
    } else {
        const float *x = call->in[0], *fresh = call->in[1];
        float *sum = call->out[0];
        for (int64_t i = 0; i < count; i++) {
            sum[i] = *fresh != 0 ? x[i] : (float)(keep * (double)sum[i] + (double)x[i]);
        }
    }
}

const kolo_kernel kolo_ref_accumulate = {
    .name = "ref_accumulate",
    .op = &kolo_op_accumulate,
    .fit = kolo_ref_fit,
    .run = run_accumulate,
};
