/* Optimisers as ops: the next version of a parameter and of its state from the gradient; the sum of
 * gradients over micro-batches. */
#include "graph/op.h"
#include "graph/op_rules.h"

static const char *const sgd_attrs[] = {"%momentum", "%weight_decay", "nesterov", NULL};
static const char *const accumulate_attrs[] = {"%keep", NULL};

static kolo_status sgd_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ffff"));
    KOLO_TRY(kolo_rule_same(q, 0, 1));
    KOLO_TRY(kolo_rule_rank(q, 2, 0, "a scalar, the learning rate"));
    double momentum = q->attr[KOLO_SGD_MOMENTUM].f;
    if (q->n_in == 3 && momentum != 0) {
        return KOLO_RULE_FAIL(q, "momentum %g without a velocity; give one", momentum);
    }
    if (q->attr[KOLO_SGD_NESTEROV].i && momentum == 0) {
        return KOLO_RULE_FAIL(q, "nesterov without momentum; give one above 0");
    }
    KOLO_TRY(kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape));
    if (q->n_in == 3) return KOLO_OK;
    KOLO_TRY(kolo_rule_same(q, 0, 3));
    return kolo_rule_out(q, 1, q->in[0].dtype, q->in[0].shape);
}

static kolo_status accumulate_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ff"));
    KOLO_TRY(kolo_rule_rank(q, 1, 0, "a scalar"));
    return kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape);
}

const kolo_op kolo_op_sgd = {
    .name = "sgd",
    .min_in = 3,
    .max_in = 4,
    .attrs = sgd_attrs,
    .shape = sgd_shape,
};
const kolo_op kolo_op_accumulate = {
    .name = "accumulate",
    .min_in = 2,
    .max_in = 2,
    .attrs = accumulate_attrs,
    .shape = accumulate_shape,
};
