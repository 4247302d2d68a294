/* Softmax cross-entropy, its gradient, accuracy and the confusion matrix, with one label per sample
 * or per pixel. The forward op stores the probabilities; its gradient reads these and the labels.
 * Label smoothing: Szegedy et al., "Rethinking the Inception architecture", CVPR 2016, section 7.
 */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *const attrs[] = {"has_ignore_index", "ignore_index", "%smoothing", NULL};
static const char *const xent_attrs[] = {"has_ignore_index", "ignore_index", "%smoothing", "count",
                                         NULL};

/* Input 0 is [N,C,...], input 1 the labels [N,...]. */
static kolo_status check_labels(const kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fiff"));
    const kolo_shape *logits = &q->in[0].shape, *labels = &q->in[1].shape;
    if (logits->rank < 2) {
        return KOLO_RULE_FAIL(q, "input 0 has %d dimensions; it must have two or more: N,C,...",
                              logits->rank);
    }
    kolo_shape want = {logits->rank - 1, {logits->dim[0]}};
    for (int i = 2; i < logits->rank; i++) want.dim[i - 1] = logits->dim[i];
    char text[KOLO_SHAPE_TEXT];
    if (!kolo_shape_equal(labels, &want)) {
        return KOLO_RULE_FAIL(q, "the labels must be %s, one for each place of the logits",
                              kolo_shape_text(&want, text));
    }
    double smoothing = q->attr[KOLO_LOSS_SMOOTHING].f;
    if (smoothing >= 0 && smoothing < 1) return KOLO_OK;
    return KOLO_RULE_FAIL(q, "smoothing is %g; it must be in [0, 1)", smoothing);
}

/* Input i is [C], if it is there. */
static kolo_status check_weights(const kolo_shape_query *q, int i) {
    if (q->n_in <= i) return KOLO_OK;
    KOLO_TRY(kolo_rule_rank(q, i, 1, "C"));
    if (q->in[i].shape.dim[0] == q->in[0].shape.dim[1]) return KOLO_OK;
    return KOLO_RULE_FAIL(q, "the weights must be [%" PRId64 "], one for each class",
                          q->in[0].shape.dim[1]);
}

static kolo_status softmax_xent_shape(kolo_shape_query *q) {
    KOLO_TRY(check_labels(q));
    KOLO_TRY(check_weights(q, 2));
    kolo_dtype wide = kolo_dtype_wide(q->in[0].dtype);
    KOLO_TRY(kolo_rule_out(q, 0, wide, kolo_shape_0()));
    KOLO_TRY(kolo_rule_out(q, 1, q->in[0].dtype, q->in[0].shape));
    if (!q->attr[KOLO_LOSS_COUNT].i) return KOLO_OK;
    return kolo_rule_out(q, 2, wide, kolo_shape_0());
}

static kolo_status softmax_xent_bwd_shape(kolo_shape_query *q) {
    KOLO_TRY(check_labels(q));
    KOLO_TRY(kolo_rule_rank(q, 2, 0, "a scalar"));
    KOLO_TRY(check_weights(q, 3));
    return kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape);
}

static kolo_status accuracy_shape(kolo_shape_query *q) {
    KOLO_TRY(check_labels(q));
    return kolo_rule_out(q, 0, kolo_dtype_wide(q->in[0].dtype), kolo_shape_0());
}

static kolo_status confusion_shape(kolo_shape_query *q) {
    KOLO_TRY(check_labels(q));
    int64_t classes = q->in[0].shape.dim[1];
    return kolo_rule_out(q, 0, kolo_dtype_wide(q->in[0].dtype), kolo_shape_2(classes, classes));
}

static void softmax_xent_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                              const bool *wants, kolo_value *d_in) {
    if (kolo_value_ok(d_out[1])) {
        kolo_graph_set_failed(
            g,
            KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                      "softmax_xent: its probabilities have no gradient: train on its loss, or use "
                      "softmax"));
        return;
    }
    const bool weighted = n->n_in > 2;
    if (weighted && wants[2]) {
        kolo_graph_set_failed(
            g, KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "softmax_xent: the weights depend on a parameter, and have no gradient; "
                         "freeze it (kolo_freeze)"));
        return;
    }
    if (!wants[0] || !kolo_value_ok(d_out[0])) return;
    const kolo_value in[] = {n->out[1], n->in[1], d_out[0], weighted ? n->in[2] : KOLO_NONE};
    kolo_attr attr[KOLO_MAX_ATTRS];
    memcpy(attr, n->attr, sizeof attr);
    attr[KOLO_LOSS_COUNT].i = 0;
    d_in[0] = kolo_graph_add1(g, &kolo_op_softmax_xent_bwd, in, weighted ? 4 : 3, attr);
}

const kolo_op kolo_op_softmax_xent = {
    .name = "softmax_xent",
    .index = "nC*,n*,C->,nC*,",
    .min_in = 2,
    .max_in = 3,
    .layout = {.in = "app", .out = "pap"},
    .attrs = xent_attrs,
    .shape = softmax_xent_shape,
    .grad = softmax_xent_grad,
    .divide = kolo_divide_xent,
    .overwrite = 1u << 0,
    .overwriter = 1, /* the probabilities */
    .bf16 = 1u << 0,
    .samples = {.in = 0x3u, .out = 0x2u, .sums = 0x5u},
};
const kolo_op kolo_op_softmax_xent_bwd = {
    .name = "softmax_xent_bwd",
    .index = "nC*,n*,,C->nC*",
    .linear = 0x4u,
    .min_in = 3,
    .max_in = 4,
    .layout = {.in = "appp", .out = "a"},
    .attrs = attrs,
    .shape = softmax_xent_bwd_shape,
    .overwrite = 1u << 0,
    .bf16 = 1u << 0,
    .samples = {.in = 0x3u, .out = 0x1u},
};
const kolo_op kolo_op_accuracy = {
    .name = "accuracy",
    .index = "nC*,n*->",
    .min_in = 2,
    .max_in = 2,
    .layout = {.in = "ap", .out = "p"},
    .attrs = attrs,
    .shape = accuracy_shape,
    .bf16 = 1u << 0,
    .samples = {.in = 0x3u, .sums = 0x1u},
};
const kolo_op kolo_op_confusion = {
    .name = "confusion",
    .index = "nC*,n*->CC",
    .min_in = 2,
    .max_in = 2,
    .layout = {.in = "ap", .out = "p"},
    .attrs = attrs,
    .shape = confusion_shape,
    .bf16 = 1u << 0,
    .samples = {.in = 0x3u, .sums = 0x1u},
};

/* A loss, or a count, which has neither smoothing nor weights. */
static kolo_value with_labels(kolo_graph *g, const kolo_op *op, kolo_value logits,
                              kolo_value labels, const kolo_loss_opts *opts) {
    const bool is_loss = op == &kolo_op_softmax_xent;
    const kolo_loss_opts o = opts ? *opts : (kolo_loss_opts){0};
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_LOSS_HAS_IGNORE_INDEX].i = o.has_ignore_index,
        [KOLO_LOSS_IGNORE_INDEX].i = o.has_ignore_index ? o.ignore_index : 0,
        [KOLO_LOSS_SMOOTHING].f = is_loss ? o.smoothing : 0,
    };
    const kolo_value in[] = {logits, labels, o.weights};
    return kolo_graph_add1(g, op, in, is_loss && o.use_weights ? 3 : 2, attr);
}

kolo_value kolo_softmax_xent_opts(kolo_graph *g, kolo_value logits, kolo_value labels,
                                  const kolo_loss_opts *opts) {
    return with_labels(g, &kolo_op_softmax_xent, logits, labels, opts);
}

kolo_value kolo_softmax_xent(kolo_graph *g, kolo_value logits, kolo_value labels) {
    return kolo_softmax_xent_opts(g, logits, labels, NULL);
}

kolo_value kolo_accuracy_opts(kolo_graph *g, kolo_value logits, kolo_value labels,
                              const kolo_loss_opts *opts) {
    return with_labels(g, &kolo_op_accuracy, logits, labels, opts);
}

kolo_value kolo_accuracy(kolo_graph *g, kolo_value logits, kolo_value labels) {
    return kolo_accuracy_opts(g, logits, labels, NULL);
}

kolo_value kolo_confusion(kolo_graph *g, kolo_value logits, kolo_value labels) {
    return with_labels(g, &kolo_op_confusion, logits, labels, NULL);
}

/* ---- reference ---- */

/* Softmax cross-entropy and its gradient, accuracy, confusion matrix. The maximum logit is
 * subtracted before exp, so nothing overflows. Labels equal to ignore_index or outside [0, C)
 * contribute nothing. */

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

const kolo_kernel kolo_ops_loss[] = {
    KOLO_REF_KERNEL("ref_softmax_xent", &kolo_op_softmax_xent, run_softmax_xent),
    KOLO_REF_KERNEL("ref_softmax_xent_bwd", &kolo_op_softmax_xent_bwd, run_softmax_xent_bwd),
    KOLO_REF_KERNEL("ref_accuracy", &kolo_op_accuracy, run_accuracy),
    KOLO_REF_KERNEL("ref_confusion", &kolo_op_confusion, run_confusion),
    {0},
};
