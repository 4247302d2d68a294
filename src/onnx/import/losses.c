/* SoftmaxCrossEntropyLoss and NegativeLogLikelihoodLoss, of x [N,C,...] and integer labels [N,...]
 * that depend on the samples: log-probabilities times 1 at the class of each label, and 0 elsewhere
 * and for labels that are ignored. */
#include "onnx/import/ops.h"

#include <inttypes.h>
#include <string.h>

/* The weight of each class, where it is the label, as x: 1 unless input 2 states it. */
static kolo_status weights_of_labels(onnx_call *c, const kolo_shape *x, kolo_value *weights) {
    const int64_t n = x->dim[0], classes = x->dim[1], each = kolo_shape_count(x) / n / classes;
    const int64_t ignored = onnx_int(c, "ignore_index", -1);
    const kolo_shape square = kolo_shape_2(classes, classes);
    kolo_value labels, table, of_class;
    float *f = NULL;
    KOLO_TRY(onnx_value(c, 1, &labels));
    const kolo_shape of_labels = kolo_value_shape(c->g, labels);
    if (kolo_value_dtype(c->g, labels) != KOLO_DTYPE_I32) {
        return ONNX_FAIL(c, "input 1 (\"%.100s\") must be an input of integers", c->in[1]->name);
    }
    if (kolo_shape_count(&of_labels) != n * each) return ONNX_FAIL(c, "the labels do not fit");
    KOLO_TRY(onnx_floats(c, host_count(&square, HOST_MOST), &f));
    for (int64_t k = 0; k < classes * classes; k++) {
        f[k] = k / classes == k % classes && k / classes != ignored ? 1 : 0;
    }
    KOLO_TRY(onnx_table(c, onnx_text(c->node->output[0]), &square, f, &table));
    const kolo_value ids = onnx_as(c, labels, kolo_shape_2(n, each));
    const kolo_value by_label = kolo_embedding(c->g, table, ids, KOLO_NONE); /* [N,each,C] */
    *weights = onnx_as(c, kolo_transpose(c->g, by_label, 1, 2), *x);
    KOLO_TRY(kolo_graph_check(c->g));
    if (!onnx_has(c, 2)) return KOLO_OK;
    KOLO_TRY(onnx_value(c, 2, &of_class));
    kolo_shape wide = {.rank = x->rank - 1, .dim = {classes}};
    for (int d = 1; d < wide.rank; d++) wide.dim[d] = 1;
    *weights = kolo_mul(c->g, *weights, onnx_as(c, of_class, wide));
    return kolo_graph_check(c->g);
}

static kolo_value sum_of(onnx_call *c, kolo_value x) {
    return kolo_reduce_sum(c->g, x, NULL, 0, false);
}

static bool is_reduction(const onnx_call *c) {
    return onnx_text_is(c, "reduction", "none", true) ||
           onnx_text_is(c, "reduction", "sum", true) || onnx_text_is(c, "reduction", "mean", true);
}

kolo_status onnx_map_loss(onnx_call *c) {
    const bool takes_logits = c->node->op_type[0] == 'S';
    const bool counts = onnx_has(c, 2) || onnx_attribute(c, "ignore_index");
    const int classes = 1;
    kolo_value x, weights = KOLO_NONE;
    KOLO_TRY(onnx_value(c, 0, &x));
    const kolo_shape s = kolo_value_shape(c->g, x);
    if (!is_reduction(c)) return ONNX_FAIL(c, "attribute reduction: none, sum and mean are known");
    if (s.rank < 2) return ONNX_FAIL(c, "an input of %d dimensions; [N,C,...] is needed", s.rank);
    if (takes_logits) x = kolo_log_softmax(c->g, x, classes);
    KOLO_TRY(weights_of_labels(c, &s, &weights));
    kolo_value y =
        kolo_neg(c->g, kolo_reduce_sum(c->g, kolo_mul(c->g, x, weights), &classes, 1, false));
    if (c->n_out > 1 && *onnx_text(c->node->output[1])) KOLO_TRY(onnx_set(c, 1, x));
    if (onnx_text_is(c, "reduction", "none", false)) return onnx_set(c, 0, y);
    const double n = (double)kolo_shape_count(&s) / (double)s.dim[1];
    y = sum_of(c, y);
    if (onnx_text_is(c, "reduction", "sum", false)) return onnx_set(c, 0, y);
    return onnx_set(c, 0,
                    counts ? kolo_div(c->g, y, sum_of(c, weights)) : kolo_scale(c->g, y, 1 / n));
}
