/* Stochastic gradient descent with momentum (Sutskever et al., "On the importance of initialization
 * and momentum in deep learning", ICML 2013, in the form that PyTorch gives it). */
#include "base/integer.h"
#include "kernel/ref/ref.h"

#include <math.h>

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

static void delayed_sgd(const kolo_call *call) {
    const kolo_attr *attr = call->spec->attr;
    const double *w = call->in[0], *g = call->in[1], lr = *(const double *)call->in[2];
    const double *v = call->in[4], *s = call->in[5];
    double *w_next = call->out[0], *v_next = call->out[1], *s_next = call->out[2];
    const double momentum = attr[KOLO_DELAYED_SGD_MOMENTUM].f;
    const double decay = attr[KOLO_DELAYED_SGD_WEIGHT_DECAY].f;
    const double n = (double)attr[KOLO_DELAYED_SGD_DELAY].i, c = attr[KOLO_DELAYED_SGD_AHEAD].f;
    const bool due = fmod(*(const double *)call->in[3], n) == 0;
    const double ahead = momentum * (due ? 1 - (n - 1) * c : c);
    for (int64_t i = 0; i < kolo_shape_count(&call->spec->in[0].shape); i++) {
        const double d = g[i] + decay * w[i], sum = s[i] + d;
        v_next[i] = due ? momentum * v[i] + sum / n : v[i];
        s_next[i] = due ? 0 : sum;
        w_next[i] = w[i] - lr * (d / n + ahead * v_next[i]);
    }
}

static void run_delayed_sgd(const kolo_call *call) { kolo_ref_run(call, delayed_sgd); }

const kolo_kernel kolo_ref_delayed_sgd =
    KOLO_REF_KERNEL("ref_delayed_sgd", &kolo_op_delayed_sgd, run_delayed_sgd);

/* ---- sums over micro-batches ---- */

/* Runs in place: kolo_ref_run would not copy the output in. */
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

/* Kingma, Ba, "Adam", ICLR 2015; decoupled: Loshchilov, Hutter, "Decoupled weight decay
 * regularization", ICLR 2019. In the form that PyTorch gives them. */
static void adam(const kolo_call *call) {
    const kolo_attr *attr = call->spec->attr;
    const double *w = call->in[0], *g = call->in[1], *m = call->in[4], *v = call->in[5];
    double lr = *(const double *)call->in[2], update = *(const double *)call->in[3];
    double beta1 = attr[KOLO_ADAM_BETA1].f, beta2 = attr[KOLO_ADAM_BETA2].f;
    double decay = attr[KOLO_ADAM_WEIGHT_DECAY].f;
    bool decoupled = attr[KOLO_ADAM_DECOUPLED].i, frozen = attr[KOLO_ADAM_FROZEN].i > 0;
    double *w_next = call->out[0], *m_next = call->out[1], *v_next = call->out[2];
    double seen = frozen ? (double)attr[KOLO_ADAM_FROZEN].i : update;
    double step = lr / (1 - pow(beta1, update)), widen = sqrt(1 - pow(beta2, seen));
    for (int64_t i = 0; i < kolo_shape_count(&call->spec->in[0].shape); i++) {
        double d = decoupled ? g[i] : g[i] + decay * w[i];
        double kept = decoupled ? w[i] * (1 - lr * decay) : w[i];
        m_next[i] = frozen ? (v[i] > 0 ? g[i] : 0) : beta1 * m[i] + (1 - beta1) * d;
        v_next[i] = frozen ? v[i] : beta2 * v[i] + (1 - beta2) * d * d;
        w_next[i] = kept - step * m_next[i] / (sqrt(v_next[i]) / widen + attr[KOLO_ADAM_EPS].f);
    }
}

static void square_blocks(const kolo_call *call) {
    const double *x = call->in[0];
    const kolo_attr *attr = call->spec->attr;
    double *sums = call->out[0];
    int64_t count = kolo_shape_count(&call->spec->in[0].shape);
    for (int64_t b = 0; b < attr[KOLO_SQUARE_ALL].i; b++) sums[b] = 0;
    sums += attr[KOLO_SQUARE_FIRST].i;
    for (int64_t b = 0, i = 0; i < count; b++) {
        int64_t end = kolo_min_i64(i + KOLO_SQUARE_BLOCK, count);
        for (sums[b] = 0; i < end; i++) sums[b] += x[i] * x[i];
    }
}

static void square_sum(const kolo_call *call) {
    const double *blocks = call->in[0];
    double sum = call->spec->n_in == 2 ? *(const double *)call->in[1] : 0;
    for (int64_t i = 0; i < call->spec->in[0].shape.dim[0]; i++) sum += blocks[i];
    *(double *)call->out[0] = sum;
}

static void clip_factor(const kolo_call *call) {
    double norm = sqrt(*(const double *)call->in[0]);
    *(double *)call->out[0] = fmin(1, call->spec->attr[KOLO_CLIP_NORM].f / (norm + 1e-6));
}

static void run_adam(const kolo_call *call) { kolo_ref_run(call, adam); }
static void run_square_blocks(const kolo_call *call) { kolo_ref_run(call, square_blocks); }
static void run_square_sum(const kolo_call *call) { kolo_ref_run(call, square_sum); }
static void run_clip_factor(const kolo_call *call) { kolo_ref_run(call, clip_factor); }

const kolo_kernel kolo_ref_adam = KOLO_REF_KERNEL("ref_adam", &kolo_op_adam, run_adam);
const kolo_kernel kolo_ref_square_blocks =
    KOLO_REF_KERNEL("ref_square_blocks", &kolo_op_square_blocks, run_square_blocks);
const kolo_kernel kolo_ref_square_sum =
    KOLO_REF_KERNEL("ref_square_sum", &kolo_op_square_sum, run_square_sum);
const kolo_kernel kolo_ref_clip_factor =
    KOLO_REF_KERNEL("ref_clip_factor", &kolo_op_clip_factor, run_clip_factor);
