/* Connectionist temporal classification and its gradient (Graves et al., "Connectionist temporal
 * classification", ICML 2006). The op includes the softmax. Labels have no gradient; the gradient
 * computes the forward variables again, so that nothing is kept. */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"

#include <inttypes.h>

static const char *const attrs[] = {"blank", NULL};

/* Logits [N,T,C], labels [N,S], and lengths [N] as input `lengths`, if it is there. */
static kolo_status check(const kolo_shape_query *q, int lengths) {
    const kolo_shape *logits = &q->in[0].shape;
    KOLO_TRY(kolo_rule_rank(q, 0, 3, "N,T,C"));
    KOLO_TRY(kolo_rule_rank(q, 1, 2, "N,S"));
    bool same = q->in[1].shape.dim[0] == logits->dim[0];
    if (q->n_in > lengths) {
        KOLO_TRY(kolo_rule_rank(q, lengths, 1, "N"));
        same &= q->in[lengths].shape.dim[0] == logits->dim[0];
    }
    if (!same) return KOLO_RULE_FAIL(q, "all inputs need the same number of samples");
    int64_t blank = q->attr[KOLO_CTC_BLANK].i;
    if (blank >= 0 && blank < logits->dim[2]) return KOLO_OK;
    return KOLO_RULE_FAIL(q, "the blank is %" PRId64 "; it must be one of the classes", blank);
}

static kolo_status ctc_loss_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fii"));
    KOLO_TRY(check(q, 2));
    return kolo_rule_out(q, 0, q->in[0].dtype, kolo_shape_0());
}

static kolo_status ctc_loss_bwd_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fifi"));
    KOLO_TRY(check(q, 3));
    KOLO_TRY(kolo_rule_rank(q, 2, 0, "a scalar"));
    return kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape);
}

static void ctc_loss_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                          const bool *wants, kolo_value *d_in) {
    const bool lengths = n->n_in > 2;
    const kolo_value in[] = {n->in[0], n->in[1], d_out[0], lengths ? n->in[2] : KOLO_NONE};
    if (wants[0]) d_in[0] = kolo_graph_add1(g, &kolo_op_ctc_loss_bwd, in, lengths ? 4 : 3, n->attr);
}

/* An exponential for each class and three for each label and blank of a time step. */
static kolo_cost ctc_cost(const kolo_shape_query *q) {
    const double classes = (double)q->in[0].shape.dim[2], labels = (double)q->in[1].shape.dim[1];
    const double steps = (double)kolo_shape_count(&q->in[0].shape) / classes;
    return (kolo_cost){20 * steps * (classes + 3 * (2 * labels + 1)), kolo_query_bytes(q)};
}

const kolo_op kolo_op_ctc_loss = {
    .name = "ctc_loss",
    .index = "nTC,nS,n->",
    .min_in = 2,
    .max_in = 3,
    .layout = {.in = "ppp", .out = "p"},
    .attrs = attrs,
    .shape = ctc_loss_shape,
    .grad = ctc_loss_grad,
    .cost = ctc_cost,
};
const kolo_op kolo_op_ctc_loss_bwd = {
    .name = "ctc_loss_bwd",
    .index = "nTC,nS,,n->nTC",
    .linear = 0x4u,
    .min_in = 3,
    .max_in = 4,
    .layout = {.in = "pppp", .out = "p"},
    .attrs = attrs,
    .shape = ctc_loss_bwd_shape,
    .cost = ctc_cost,
};

kolo_value kolo_ctc_loss(kolo_graph *g, kolo_value logits, kolo_value labels,
                         const kolo_ctc_opts *opts) {
    const kolo_ctc_opts o = opts ? *opts : (kolo_ctc_opts){0};
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_CTC_BLANK].i = o.blank};
    const kolo_value in[] = {logits, labels, o.lengths};
    return kolo_graph_add1(g, &kolo_op_ctc_loss, in, o.use_lengths ? 3 : 2, attr);
}
