/* Updates that scale the step of each parameter to its norm, for training with large batches: LARS
 * (You, Gitman, Ginsburg, "Large batch training of convolutional networks", 2017, algorithm 1) and
 * LAMB (You et al., "Large batch optimization for deep learning", ICLR 2020, algorithm 2). Norms
 * are given by the block sums of square_blocks. */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"

static const char *const lars_attrs[] = {"%momentum", "%weight_decay", "%trust", NULL};
static const char *const lamb_attrs[] = {"%beta1", "%beta2", "%eps", "%weight_decay", NULL};
static const char *const no_attrs[] = {NULL};

/* Inputs from `first` on are two vectors of block sums of input 0, or none. */
static kolo_status check_blocks(const kolo_shape_query *q, int first) {
    if (q->n_in == first) return KOLO_OK;
    if (q->n_in == first + 1) return KOLO_RULE_FAIL(q, "give the blocks of both norms");
    int64_t blocks = kolo_square_blocks(kolo_shape_count(&q->in[0].shape));
    for (int i = first; i < first + 2; i++) {
        KOLO_TRY(kolo_rule_rank(q, i, 1, "blocks"));
        /* More, where w is a range of the whole. */
        bool same = q->in[i].shape.dim[0] == q->in[first].shape.dim[0];
        if (q->in[i].shape.dim[0] >= blocks && same) continue;
        return KOLO_RULE_FAIL(q, "wrong number of blocks");
    }
    return KOLO_OK;
}

static kolo_status lars_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ffffff"));
    KOLO_TRY(kolo_rule_same(q, 0, 1));
    KOLO_TRY(kolo_rule_rank(q, 2, 0, "a scalar, the learning rate"));
    KOLO_TRY(kolo_rule_same(q, 0, 3));
    KOLO_TRY(check_blocks(q, 4));
    KOLO_TRY(kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape));
    return kolo_rule_out(q, 1, q->in[0].dtype, q->in[0].shape);
}

static kolo_status lamb_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fffff"));
    KOLO_TRY(kolo_rule_same(q, 0, 1));
    KOLO_TRY(kolo_rule_rank(q, 2, 0, "a scalar, the number of the update"));
    for (int i = 0; i < 3; i++) {
        if (i < 2) KOLO_TRY(kolo_rule_same(q, 0, 3 + i));
        KOLO_TRY(kolo_rule_out(q, i, q->in[0].dtype, q->in[0].shape));
    }
    return KOLO_OK;
}

static kolo_status lamb_step_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fffff"));
    KOLO_TRY(kolo_rule_same(q, 0, 1));
    KOLO_TRY(kolo_rule_rank(q, 2, 0, "a scalar, the learning rate"));
    KOLO_TRY(check_blocks(q, 3));
    return kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape);
}

const kolo_op kolo_op_lars = {
    .name = "lars",
    .index = "*,*,,*,B,B->*,*",
    .min_in = 4,
    .max_in = 6,
    .layout = {.in = "eepepp", .out = "ee"},
    .attrs = lars_attrs,
    .shape = lars_shape,
    .with_updates = true,
};
const kolo_op kolo_op_lamb = {
    .name = "lamb",
    .index = "*,*,,*,*->*,*,*",
    .min_in = 5,
    .max_in = 5,
    .layout = {.in = "eepee", .out = "eee"},
    .attrs = lamb_attrs,
    .shape = lamb_shape,
    .with_updates = true,
};
const kolo_op kolo_op_lamb_step = {
    .name = "lamb_step",
    .index = "*,*,,B,B->*",
    .min_in = 3,
    .max_in = 5,
    .layout = {.in = "eeppp", .out = "e"},
    .attrs = no_attrs,
    .shape = lamb_step_shape,
    .with_updates = true,
};
