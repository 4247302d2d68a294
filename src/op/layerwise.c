/* Updates that scale the step of each parameter to its norm, for training with large batches: LARS
 * (You, Gitman, Ginsburg, "Large batch training of convolutional networks", 2017, algorithm 1) and
 * LAMB (You et al., "Large batch optimization for deep learning", ICLR 2020, algorithm 2). Norms
 * are given by the block sums of square_blocks. */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"

#include <math.h>

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

/* ---- reference ---- */

/* The norm whose block sums are input i. */
static double norm_of(const kolo_call *call, int i) {
    const double *blocks = call->in[i];
    double sum = 0;
    for (int64_t b = 0; b < call->spec->in[i].shape.dim[0]; b++) sum += blocks[b];
    return sqrt(sum);
}

static void lars(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const double *w = call->in[0], *g = call->in[1], *v = call->in[3];
    double *w_next = call->out[0], *v_next = call->out[1];
    double momentum = spec->attr[KOLO_LARS_MOMENTUM].f;
    double decay = spec->attr[KOLO_LARS_WEIGHT_DECAY].f, rate = *(const double *)call->in[2];
    if (spec->n_in > 4) {
        double of_w = norm_of(call, 4), of_g = norm_of(call, 5);
        double trust = spec->attr[KOLO_LARS_TRUST].f;
        if (of_w > 0 && of_g > 0) rate *= trust * of_w / (of_g + decay * of_w);
    }
    for (int64_t i = 0; i < kolo_shape_count(&spec->in[0].shape); i++) {
        v_next[i] = momentum * v[i] + rate * (g[i] + decay * w[i]);
        w_next[i] = w[i] - v_next[i];
    }
}

static void lamb(const kolo_call *call) {
    const kolo_attr *attr = call->spec->attr;
    const double *w = call->in[0], *g = call->in[1], *m = call->in[3], *v = call->in[4];
    double *m_next = call->out[0], *v_next = call->out[1], *u = call->out[2];
    double beta1 = attr[KOLO_ADAM_BETA1].f, beta2 = attr[KOLO_ADAM_BETA2].f;
    double update = *(const double *)call->in[2];
    double of_m = 1 - pow(beta1, update), of_v = 1 - pow(beta2, update);
    for (int64_t i = 0; i < kolo_shape_count(&call->spec->in[0].shape); i++) {
        m_next[i] = beta1 * m[i] + (1 - beta1) * g[i];
        v_next[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
        u[i] = m_next[i] / of_m / (sqrt(v_next[i] / of_v) + attr[KOLO_ADAM_EPS].f) +
               attr[KOLO_ADAM_WEIGHT_DECAY].f * w[i];
    }
}

static void lamb_step(const kolo_call *call) {
    const double *w = call->in[0], *u = call->in[1];
    double *w_next = call->out[0], rate = *(const double *)call->in[2];
    if (call->spec->n_in > 3) {
        double of_w = norm_of(call, 3), of_u = norm_of(call, 4);
        if (of_w > 0 && of_u > 0) rate *= of_w / of_u;
    }
    for (int64_t i = 0; i < kolo_shape_count(&call->spec->in[0].shape); i++) {
        w_next[i] = w[i] - rate * u[i];
    }
}

static void run_lars(const kolo_call *call) { kolo_ref_run(call, lars); }
static void run_lamb(const kolo_call *call) { kolo_ref_run(call, lamb); }
static void run_lamb_step(const kolo_call *call) { kolo_ref_run(call, lamb_step); }

const kolo_kernel kolo_ops_layerwise[] = {
    KOLO_REF_KERNEL("ref_lars", &kolo_op_lars, run_lars),
    KOLO_REF_KERNEL("ref_lamb", &kolo_op_lamb, run_lamb),
    KOLO_REF_KERNEL("ref_lamb_step", &kolo_op_lamb_step, run_lamb_step),
    {0},
};
