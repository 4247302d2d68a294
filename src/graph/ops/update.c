/* Optimizer updates as ops: the next version of a parameter and its state from the gradient; the
 * sum of gradients over micro-batches; gradient clipping. */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"

#include <inttypes.h>

static const char *const square_attrs[] = {"first", "all", NULL};
static const char *const sgd_attrs[] = {"%momentum", "%weight_decay", "nesterov", NULL};
static const char *const delayed_sgd_attrs[] = {"%momentum", "%weight_decay", "delay", "%ahead",
                                                NULL};
static const char *const accumulate_attrs[] = {"%keep", NULL};

static const char *const adam_attrs[] = {"%beta1",    "%beta2", "%eps", "%weight_decay",
                                         "decoupled", "frozen", NULL};
static const char *const no_attrs[] = {NULL}, *const clip_attrs[] = {"%norm", NULL};

static kolo_status adam_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ffffff"));
    KOLO_TRY(kolo_rule_same(q, 0, 1));
    KOLO_TRY(kolo_rule_rank(q, 2, 0, "a scalar, the learning rate"));
    KOLO_TRY(kolo_rule_rank(q, 3, 0, "a scalar, the number of the update"));
    for (int i = KOLO_ADAM_BETA1; i <= KOLO_ADAM_BETA2; i++) {
        if (q->attr[i].f >= 0 && q->attr[i].f < 1) continue;
        return KOLO_RULE_FAIL(q, "beta%d is %g; it must be in [0, 1)", i + 1, q->attr[i].f);
    }
    if (q->attr[KOLO_ADAM_FROZEN].i < 0) {
        return KOLO_RULE_FAIL(q, "frozen is %" PRId64 "; it must be the number of an update, or 0",
                              q->attr[KOLO_ADAM_FROZEN].i);
    }
    KOLO_TRY(kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape));
    for (int i = 1; i < 3; i++) {
        KOLO_TRY(kolo_rule_same(q, 0, 3 + i));
        KOLO_TRY(kolo_rule_out(q, i, q->in[0].dtype, q->in[0].shape));
    }
    return KOLO_OK;
}

static kolo_status square_blocks_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "f"));
    int64_t own = kolo_square_blocks(kolo_shape_count(&q->in[0].shape));
    int64_t first = q->attr[KOLO_SQUARE_FIRST].i, all = q->attr[KOLO_SQUARE_ALL].i;
    int64_t blocks = all > 0 ? all : own;
    if (first < 0 || first + own > blocks) {
        return KOLO_RULE_FAIL(q, "blocks %" PRId64 " to %" PRId64 " of %" PRId64, first,
                              first + own, blocks);
    }
    return kolo_rule_out(q, 0, q->in[0].dtype, kolo_shape_1(blocks));
}

static kolo_status square_sum_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ff"));
    KOLO_TRY(kolo_rule_rank(q, 0, 1, "blocks"));
    if (q->n_in == 2) KOLO_TRY(kolo_rule_rank(q, 1, 0, "a scalar"));
    return kolo_rule_out(q, 0, q->in[0].dtype, kolo_shape_0());
}

static kolo_status clip_factor_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "f"));
    KOLO_TRY(kolo_rule_rank(q, 0, 0, "a scalar"));
    if (!(q->attr[KOLO_CLIP_NORM].f > 0)) return KOLO_RULE_FAIL(q, "the norm must be above 0");
    return kolo_rule_out(q, 0, q->in[0].dtype, kolo_shape_0());
}

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

static kolo_status delayed_sgd_shape(kolo_shape_query *q) {
    const int64_t delay = q->attr[KOLO_DELAYED_SGD_DELAY].i;
    const double ahead = q->attr[KOLO_DELAYED_SGD_AHEAD].f;
    KOLO_TRY(kolo_rule_types(q, "ffffff"));
    KOLO_TRY(kolo_rule_same(q, 0, 1));
    KOLO_TRY(kolo_rule_rank(q, 2, 0, "a scalar, the learning rate"));
    KOLO_TRY(kolo_rule_rank(q, 3, 0, "a scalar, the number of the update"));
    if (delay < 1) return KOLO_RULE_FAIL(q, "a delay of %" PRId64 "; give one above 0", delay);
    if (!(ahead >= 0 && ahead * (double)delay <= 1)) {
        return KOLO_RULE_FAIL(q, "ahead is %g; it must be in [0, 1 / delay]", ahead);
    }
    KOLO_TRY(kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape));
    for (int i = 1; i < 3; i++) {
        KOLO_TRY(kolo_rule_same(q, 0, 3 + i));
        KOLO_TRY(kolo_rule_out(q, i, q->in[0].dtype, q->in[0].shape));
    }
    return KOLO_OK;
}

static kolo_status accumulate_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ff"));
    KOLO_TRY(kolo_rule_rank(q, 1, 0, "a scalar"));
    return kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape);
}

const kolo_op kolo_op_sgd = {
    .name = "sgd",
    .index = "*,*,,*->*,*",
    .min_in = 3,
    .max_in = 4,
    .layout = {.in = "eepe", .out = "ee"},
    .attrs = sgd_attrs,
    .shape = sgd_shape,
    .with_updates = true,
};
const kolo_op kolo_op_delayed_sgd = {
    .name = "delayed_sgd",
    .index = "*,*,,,*,*->*,*,*",
    .min_in = 6,
    .max_in = 6,
    .layout = {.in = "eeppee", .out = "eee"},
    .attrs = delayed_sgd_attrs,
    .shape = delayed_sgd_shape,
    .with_updates = true,
};
const kolo_op kolo_op_adam = {
    .name = "adam",
    .index = "*,*,,,*,*->*,*,*",
    .min_in = 6,
    .max_in = 6,
    .layout = {.in = "eeppee", .out = "eee"},
    .attrs = adam_attrs,
    .shape = adam_shape,
    .with_updates = true,
};
/* Ranges of x give summands of the blocks. */
static const char *square_blocks_index(const kolo_attr *attr, int n_in, const kolo_shape *in,
                                       char *buffer) {
    return attr[KOLO_SQUARE_ALL].i > 0 ? "*->B" : "#->B";
}

const kolo_op kolo_op_square_blocks = {
    .name = "square_blocks",
    .index_of = square_blocks_index,
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "x", .out = "p"},
    .attrs = square_attrs,
    .shape = square_blocks_shape,
    .with_updates = true,
};
const kolo_op kolo_op_square_sum = {
    .name = "square_sum",
    .index = "b+->",
    .linear = 0x3u,
    .min_in = 1,
    .max_in = 2,
    .layout = {.in = "pp", .out = "p"},
    .attrs = no_attrs,
    .shape = square_sum_shape,
    .with_updates = true,
};
const kolo_op kolo_op_clip_factor = {
    .name = "clip_factor",
    .index = "->",
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "p", .out = "p"},
    .attrs = clip_attrs,
    .shape = clip_factor_shape,
    .with_updates = true,
};
const kolo_op kolo_op_accumulate = {
    .name = "accumulate",
    .index = "*,->*",
    .linear = 0x1u,
    .min_in = 2,
    .max_in = 2,
    .layout = {.in = "ep", .out = "e"},
    .attrs = accumulate_attrs,
    .shape = accumulate_shape,
};
