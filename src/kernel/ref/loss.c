/* Softmax cross-entropy and its gradient, accuracy, confusion matrix. The maximum logit is
 * subtracted before exp, so nothing overflows. Labels equal to ignore_index or outside [0, C)
 * contribute nothing. */
#include "kernel/ref/ref.h"

#include <math.h>
#include <string.h>

/* Labels [N,...] with logits [N,C,...]: the logits of one position are `places` elements apart. */
typedef struct view {
    int64_t n, classes, places;
    const int32_t *labels;
    double smoothing;
    const double *weights; /* of the classes; NULL: 1 */
    const kolo_attr *attr;
} view;

/* `weights`: the number of the input that has them, if it is there. */
static view view_of(const kolo_call *call, int weights) {
    const kolo_shape *s = &call->spec->in[0].shape;
    view v = {
        .n = s->dim[0], .classes = s->dim[1], .labels = call->in[1], .attr = call->spec->attr};
    v.places = kolo_shape_count(s) / (v.n * v.classes);
    v.smoothing = v.attr[KOLO_LOSS_SMOOTHING].f;
    if (call->spec->n_in > weights) v.weights = call->in[weights];
    return v;
}

/* The label of position `p` of sample `n`; -1 when it does not count. */
static int64_t label_of(const view *v, int64_t n, int64_t p) {
    int32_t label = v->labels[n * v->places + p];
    bool is_ignored =
        v->attr[KOLO_LOSS_HAS_IGNORE_INDEX].i && label == v->attr[KOLO_LOSS_IGNORE_INDEX].i;
    return is_ignored || label < 0 || label >= v->classes ? -1 : label;
}

/* The index of class 0 of a position. */
static int64_t place_of(const view *v, int64_t n, int64_t p) {
    return n * v->classes * v->places + p;
}

static double target(const view *v, int64_t label, int64_t c) {
    double t = (c == label ? 1 - v->smoothing : 0) + v->smoothing / (double)v->classes;
    return v->weights ? v->weights[c] * t : t;
}

static void loss(const kolo_call *call) {
    view v = view_of(call, 2);
    double *sum_of = call->out[0];
    *sum_of = 0;
    for (int64_t n = 0; n < v.n; n++) {
        for (int64_t p = 0; p < v.places; p++) {
            const double *x = (const double *)call->in[0] + place_of(&v, n, p);
            double *probs = (double *)call->out[1] + place_of(&v, n, p), max = x[0], sum = 0;
            int64_t label = label_of(&v, n, p);
            for (int64_t c = 1; c < v.classes; c++) max = fmax(max, x[c * v.places]);
            for (int64_t c = 0; c < v.classes; c++) sum += exp(x[c * v.places] - max);
            for (int64_t c = 0; c < v.classes; c++) { /* probs may alias x */
                double above = x[c * v.places] - max;
                probs[c * v.places] = exp(above) / sum;
                if (label < 0 || target(&v, label, c) == 0) continue;
                *sum_of += target(&v, label, c) * (log(sum) - above);
            }
        }
    }
}

/* The sum of the targets of a label. */
static double targets(const view *v, int64_t label) {
    double sum = 0;
    if (!v->weights || label < 0) return 1;
    for (int64_t c = 0; c < v->classes; c++) sum += target(v, label, c);
    return sum;
}

static void softmax_xent_bwd(const kolo_call *call) {
    view v = view_of(call, 3);
    double scale = *(const double *)call->in[2];
    for (int64_t n = 0; n < v.n; n++) {
        for (int64_t p = 0; p < v.places; p++) {
            const double *probs = (const double *)call->in[0] + place_of(&v, n, p);
            double *dx = (double *)call->out[0] + place_of(&v, n, p);
            int64_t label = label_of(&v, n, p);
            double rest = 0, all = targets(&v, label);
            for (int64_t c = 0; c < v.classes; c++) {
                double t = label >= 0 ? target(&v, label, c) : 0;
                double d = label >= 0 ? (probs[c * v.places] * all - t) * scale : 0;
                dx[c * v.places] = d;
                rest += c == label ? 0 : d;
            }
            if (label >= 0)
                dx[label * v.places] = -rest; /* the gradients of a position sum to
                                               * zero */
        }
    }
}

/* The class of the largest logit; the first of equals. */
static int64_t largest(const view *v, const double *x) {
    int64_t best = 0;
    for (int64_t c = 1; c < v->classes; c++) {
        best = x[c * v->places] > x[best * v->places] ? c : best;
    }
    return best;
}

static void count_pairs(const kolo_call *call, bool by_class) {
    view v = view_of(call, 2);
    double *count = call->out[0];
    memset(count, 0, sizeof *count * (size_t)(by_class ? v.classes * v.classes : 1));
    for (int64_t n = 0; n < v.n; n++) {
        for (int64_t p = 0; p < v.places; p++) {
            const double *x = (const double *)call->in[0] + place_of(&v, n, p);
            int64_t label = label_of(&v, n, p);
            if (label < 0) continue;
            if (by_class) {
                count[label * v.classes + largest(&v, x)]++;
            } else {
                *count += largest(&v, x) == label;
            }
        }
    }
}

static void softmax_xent(const kolo_call *call) {
    kolo_call count = *call;
    count.out[0] = call->out[2];
    if (call->spec->attr[KOLO_LOSS_COUNT].i) count_pairs(&count, false);
    loss(call); /* probs may overwrite the logits */
}
static void accuracy(const kolo_call *call) { count_pairs(call, false); }
static void confusion(const kolo_call *call) { count_pairs(call, true); }

static void run_softmax_xent(const kolo_call *call) { kolo_ref_run(call, softmax_xent); }
static void run_softmax_xent_bwd(const kolo_call *call) { kolo_ref_run(call, softmax_xent_bwd); }
static void run_accuracy(const kolo_call *call) { kolo_ref_run(call, accuracy); }
static void run_confusion(const kolo_call *call) { kolo_ref_run(call, confusion); }

const kolo_kernel kolo_ref_softmax_xent =
    KOLO_REF_KERNEL("ref_softmax_xent", &kolo_op_softmax_xent, run_softmax_xent);
const kolo_kernel kolo_ref_softmax_xent_bwd =
    KOLO_REF_KERNEL("ref_softmax_xent_bwd", &kolo_op_softmax_xent_bwd, run_softmax_xent_bwd);
const kolo_kernel kolo_ref_accuracy =
    KOLO_REF_KERNEL("ref_accuracy", &kolo_op_accuracy, run_accuracy);
const kolo_kernel kolo_ref_confusion =
    KOLO_REF_KERNEL("ref_confusion", &kolo_op_confusion, run_confusion);
