/* LARS and LAMB (graph/ops/layerwise.c). */
#include "kernel/ref/ref.h"

#include <math.h>

/* The norm whose block sums are input i. */
static double norm_of(const kolo_call *call, int i) {
    const double *blocks = call->in[i];
    double sum = 0;
    for (int64_t b = 0; b < call->spec->in[i].shape.dim[0]; b++) sum += blocks[b];
    return sqrt(sum);
}

static void lars(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const double *w = call->in[0], *g = call->in[1], *v = call->in[3];
    double *w_next = call->out[0], *v_next = call->out[1];
    double momentum = spec->attr[KOLO_LARS_MOMENTUM].f;
    double decay = spec->attr[KOLO_LARS_WEIGHT_DECAY].f, rate = *(const double *)call->in[2];
    if (spec->n_in > 4) {
        double of_w = norm_of(call, 4), of_g = norm_of(call, 5);
        double trust = spec->attr[KOLO_LARS_TRUST].f;
        if (of_w > 0 && of_g > 0) rate *= trust * of_w / (of_g + decay * of_w);
    }
    for (int64_t i = 0; i < kolo_shape_count(&spec->in[0].shape); i++) {
        v_next[i] = momentum * v[i] + rate * (g[i] + decay * w[i]);
        w_next[i] = w[i] - v_next[i];
    }
}

static void lamb(const kolo_call *call) {
    const kolo_attr *attr = call->spec->attr;
    const double *w = call->in[0], *g = call->in[1], *m = call->in[3], *v = call->in[4];
    double *m_next = call->out[0], *v_next = call->out[1], *u = call->out[2];
    double beta1 = attr[KOLO_ADAM_BETA1].f, beta2 = attr[KOLO_ADAM_BETA2].f;
    double update = *(const double *)call->in[2];
    double of_m = 1 - pow(beta1, update), of_v = 1 - pow(beta2, update);
    for (int64_t i = 0; i < kolo_shape_count(&call->spec->in[0].shape); i++) {
        m_next[i] = beta1 * m[i] + (1 - beta1) * g[i];
        v_next[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
        u[i] = m_next[i] / of_m / (sqrt(v_next[i] / of_v) + attr[KOLO_ADAM_EPS].f) +
               attr[KOLO_ADAM_WEIGHT_DECAY].f * w[i];
    }
}

static void lamb_step(const kolo_call *call) {
    const double *w = call->in[0], *u = call->in[1];
    double *w_next = call->out[0], rate = *(const double *)call->in[2];
    if (call->spec->n_in > 3) {
        double of_w = norm_of(call, 3), of_u = norm_of(call, 4);
        if (of_w > 0 && of_u > 0) rate *= of_w / of_u;
    }
    for (int64_t i = 0; i < kolo_shape_count(&call->spec->in[0].shape); i++) {
        w_next[i] = w[i] - rate * u[i];
    }
}

static void run_lars(const kolo_call *call) { kolo_ref_run(call, lars); }
static void run_lamb(const kolo_call *call) { kolo_ref_run(call, lamb); }
static void run_lamb_step(const kolo_call *call) { kolo_ref_run(call, lamb_step); }

const kolo_kernel kolo_ref_lars = KOLO_REF_KERNEL("ref_lars", &kolo_op_lars, run_lars);
const kolo_kernel kolo_ref_lamb = KOLO_REF_KERNEL("ref_lamb", &kolo_op_lamb, run_lamb);
const kolo_kernel kolo_ref_lamb_step =
    KOLO_REF_KERNEL("ref_lamb_step", &kolo_op_lamb_step, run_lamb_step);
