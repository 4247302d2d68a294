/* Softmax with cross-entropy, its gradient, and accuracy. The forward op keeps the probabilities,
 * which are all that its gradient needs besides the labels. */
#include "graph/op.h"
#include "graph/op_rules.h"

#include <inttypes.h>

static const char *const no_attrs[] = {NULL};

/* Input 0 is [N,C], input 1 the labels [N]. */
static kolo_status check_labels(const kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fif"));
    KOLO_TRY(kolo_rule_rank(q, 0, 2, "N,C"));
    KOLO_TRY(kolo_rule_rank(q, 1, 1, "N"));
    int64_t n = q->in[0].shape.dim[0];
    if (q->in[1].shape.dim[0] == n) return KOLO_OK;
    return KOLO_RULE_FAIL(q, "the labels must be [%" PRId64 "], one a sample", n);
}

static kolo_status softmax_xent_shape(kolo_shape_query *q) {
    KOLO_TRY(check_labels(q));
    KOLO_TRY(kolo_rule_out(q, 0, q->in[0].dtype, kolo_shape_0()));
    return kolo_rule_out(q, 1, q->in[0].dtype, q->in[0].shape);
}

static kolo_status softmax_xent_bwd_shape(kolo_shape_query *q) {
    KOLO_TRY(check_labels(q));
    KOLO_TRY(kolo_rule_rank(q, 2, 0, "a scalar"));
    return kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape);
}

static kolo_status accuracy_shape(kolo_shape_query *q) {
    KOLO_TRY(check_labels(q));
    return kolo_rule_out(q, 0, q->in[0].dtype, kolo_shape_0());
}

static void softmax_xent_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                              const bool *wants, kolo_value *d_in) {
    if (kolo_value_ok(d_out[1])) {
        kolo_graph_set_failed(
            g, KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "softmax_xent: no gradient flows through the probabilities; derive from "
                         "the loss"));
        return;
    }
    if (!wants[0] || !kolo_value_ok(d_out[0])) return;
    const kolo_value in[3] = {n->out[1], n->in[1], d_out[0]};
    d_in[0] = kolo_graph_add1(g, &kolo_op_softmax_xent_bwd, in, 3, NULL);
}

const kolo_op kolo_op_softmax_xent = {
    .name = "softmax_xent",
    .min_in = 2,
    .max_in = 2,
    .attrs = no_attrs,
    .shape = softmax_xent_shape,
    .grad = softmax_xent_grad,
};
const kolo_op kolo_op_softmax_xent_bwd = {
    .name = "softmax_xent_bwd",
    .min_in = 3,
    .max_in = 3,
    .attrs = no_attrs,
    .shape = softmax_xent_bwd_shape,
    .overwrite = 1u << 0,
};
const kolo_op kolo_op_accuracy = {
    .name = "accuracy",
    .min_in = 2,
    .max_in = 2,
    .attrs = no_attrs,
    .shape = accuracy_shape,
};

kolo_value kolo_softmax_xent(kolo_graph *g, kolo_value logits, kolo_value labels) {
    return kolo_graph_add1(g, &kolo_op_softmax_xent, (kolo_value[]){logits, labels}, 2, NULL);
}

kolo_value kolo_accuracy(kolo_graph *g, kolo_value logits, kolo_value labels) {
    return kolo_graph_add1(g, &kolo_op_accuracy, (kolo_value[]){logits, labels}, 2, NULL);
}
