/* Softmax with cross-entropy, its gradient, and accuracy. A row's maximum is subtracted before exp,
 * so nothing overflows; a label outside [0, C) adds nothing. */
#include "kernel/ref.h"

#include <math.h>

static void softmax_xent(const kolo_call *call) {
    const int64_t *dim = call->spec->in[0].shape.dim, classes = dim[1];
    const double *x = call->in[0];
    const int32_t *label = call->in[1];
    double *loss = call->out[0], *probs = call->out[1];
    *loss = 0;
    for (int64_t n = 0; n < dim[0]; n++, x += classes, probs += classes) {
        double max = x[0], sum = 0;
        for (int64_t c = 1; c < classes; c++) max = fmax(max, x[c]);
        for (int64_t c = 0; c < classes; c++) sum += probs[c] = exp(x[c] - max);
        for (int64_t c = 0; c < classes; c++) probs[c] /= sum;
        if (label[n] >= 0 && label[n] < classes) *loss += log(sum) - (x[label[n]] - max);
    }
}

static void softmax_xent_bwd(const kolo_call *call) {
    const int64_t *dim = call->spec->in[0].shape.dim, classes = dim[1];
    const double *probs = call->in[0], scale = *(const double *)call->in[2];
    const int32_t *label = call->in[1];
    double *dx = call->out[0];
    for (int64_t n = 0; n < dim[0]; n++, dx += classes, probs += classes) {
        bool counts = label[n] >= 0 && label[n] < classes;
        for (int64_t c = 0; c < classes; c++) {
            dx[c] = counts ? (probs[c] - (c == label[n])) * scale : 0;
        }
    }
}

static void accuracy(const kolo_call *call) {
    const int64_t *dim = call->spec->in[0].shape.dim, classes = dim[1];
    const double *x = call->in[0];
    const int32_t *label = call->in[1];
    double *count = call->out[0];
    *count = 0;
    for (int64_t n = 0; n < dim[0]; n++, x += classes) {
        int64_t best = 0;
        for (int64_t c = 1; c < classes; c++) best = x[c] > x[best] ? c : best;
        *count += best == label[n];
    }
}

static void run_softmax_xent(const kolo_call *call) { kolo_ref_run(call, softmax_xent); }
static void run_softmax_xent_bwd(const kolo_call *call) { kolo_ref_run(call, softmax_xent_bwd); }
static void run_accuracy(const kolo_call *call) { kolo_ref_run(call, accuracy); }

const kolo_kernel kolo_ref_softmax_xent =
    KOLO_REF_KERNEL("ref_softmax_xent", &kolo_op_softmax_xent, run_softmax_xent);
const kolo_kernel kolo_ref_softmax_xent_bwd =
    KOLO_REF_KERNEL("ref_softmax_xent_bwd", &kolo_op_softmax_xent_bwd, run_softmax_xent_bwd);
const kolo_kernel kolo_ref_accuracy =
    KOLO_REF_KERNEL("ref_accuracy", &kolo_op_accuracy, run_accuracy);
