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
