/* The optimizer: adds the update of each parameter as nodes of the graph, SGD with momentum or
 * Adam. Clipping by norm (Pascanu, Mikolov, Bengio, "On the difficulty of training recurrent neural
 * networks", ICML 2013) sums the squares of all gradients and scales each. These nodes are updates
 * too: they read synchronised gradients. So is the merge of the rows of all ranks, for a row-sparse
 * gradient. */
#include "base/range.h"
#include "graph/ops/ops.h"
#include "pass/pass.h"

#include <string.h>

kolo_status kolo_optimizer_resolve(const kolo_optimizer_opts *in, kolo_optimizer_opts *out) {
    kolo_optimizer_opts o = *in;
    if (o.beta1 == 0) o.beta1 = 0.9;
    if (o.beta2 == 0) o.beta2 = 0.999;
    if (o.eps == 0) o.eps = 1e-8;
    KOLO_TRY(kolo_check_count("optimizer", o.kind, 0, KOLO_OPTIMIZER_COUNT - 1));
    KOLO_TRY(kolo_check_real("momentum", o.momentum, 0, false, 1));
    KOLO_TRY(kolo_check_real("weight decay", o.weight_decay, 0, false, 1e6));
    if (o.kind == KOLO_OPTIMIZER_NESTEROV && o.momentum == 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "nesterov without momentum: give a momentum above 0");
    }
    if (o.kind > KOLO_OPTIMIZER_NESTEROV && o.momentum != 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "Adam has no momentum of %g: give beta1", o.momentum);
    }
    KOLO_TRY(kolo_check_real("beta1", o.beta1, 0, false, 0.999999));
    KOLO_TRY(kolo_check_real("beta2", o.beta2, 0, false, 0.999999));
    KOLO_TRY(kolo_check_real("eps", o.eps, 0, false, 1));
    KOLO_TRY(kolo_check_real("maximum norm of the gradients", o.clip, 0, false, 1e12));
    *out = o;
    return KOLO_OK;
}

static kolo_value scalar(kolo_graph *g, const char *name) {
    return kolo_graph_scalar(g, name, g->dtype);
}

/* State of parameter w: "optimizer.velocity.conv1.weight". */
static kolo_value state_of(kolo_graph *g, const char *what, kolo_value w) {
    char *name = kolo_format("optimizer.%s.%s", what, kolo_info(g, w)->name);
    if (!name) {
        kolo_graph_set_failed(g, KOLO_NOMEM(64));
        return KOLO_NONE;
    }
    kolo_value v = kolo_graph_state(g, name, w);
    kolo_free(name);
    return v;
}

static double decay_of(const kolo_graph *g, kolo_value w, const kolo_optimizer_opts *opts) {
    bool vector = kolo_info(g, w)->canon.rank < 2;
    return vector && opts->decay_matrices_only ? 0 : opts->weight_decay;
}

static kolo_status add_sgd(kolo_graph *g, kolo_value w, kolo_value gradient,
                           const kolo_optimizer_opts *opts) {
    kolo_value in[] = {w, gradient, scalar(g, "lr"), KOLO_NONE}, out[KOLO_MAX_IO];
    int n_in = 3;
    if (opts->momentum != 0) in[n_in++] = state_of(g, "velocity", w);
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_SGD_MOMENTUM].f = opts->momentum,
        [KOLO_SGD_WEIGHT_DECAY].f = decay_of(g, w, opts),
        [KOLO_SGD_NESTEROV].i = opts->kind == KOLO_OPTIMIZER_NESTEROV,
    };
    kolo_graph_add(g, &kolo_op_sgd, in, n_in, attr, out);
    KOLO_TRY(kolo_graph_check(g));
    kolo_info(g, out[0])->next_of = w;
    if (n_in == 4) kolo_info(g, out[1])->next_of = in[3];
    return KOLO_OK;
}

static kolo_status add_adam(kolo_graph *g, kolo_value w, kolo_value gradient,
                            const kolo_optimizer_opts *opts) {
    const kolo_value in[] = {w,
                             gradient,
                             scalar(g, "lr"),
                             scalar(g, "update"),
                             state_of(g, "mean", w),
                             state_of(g, "square", w)};
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_ADAM_BETA1].f = opts->beta1,
        [KOLO_ADAM_BETA2].f = opts->beta2,
        [KOLO_ADAM_EPS].f = opts->eps,
        [KOLO_ADAM_WEIGHT_DECAY].f = decay_of(g, w, opts),
        [KOLO_ADAM_DECOUPLED].i = opts->kind == KOLO_OPTIMIZER_ADAMW,
    };
    kolo_value out[KOLO_MAX_IO];
    kolo_graph_add(g, &kolo_op_adam, in, 6, attr, out);
    KOLO_TRY(kolo_graph_check(g));
    kolo_info(g, out[0])->next_of = w;
    kolo_info(g, out[1])->next_of = in[4];
    kolo_info(g, out[2])->next_of = in[5];
    return KOLO_OK;
}

static bool is_trained(const kolo_graph *g, int32_t v) {
    return g->values[v].kind == KOLO_VALUE_PARAM && kolo_value_ok(g->values[v].grad);
}

/* ---- row-sparse gradients ---- */

static kolo_status check_rows(const kolo_graph *g, kolo_value w, const kolo_optimizer_opts *opts) {
    double decay = decay_of(g, w, opts);
    bool momentum = opts->momentum != 0;
    if (!momentum && decay == 0) return KOLO_OK;
    return KOLO_FAIL(
        KOLO_ERR_ARG,
        "a %s of %g changes rows of %s without a gradient: with a sparse embedding %s, "
        "or omit --sparse-embedding",
        momentum ? "momentum" : "weight decay", momentum ? opts->momentum : decay,
        kolo_info(g, w)->name,
        momentum ? "take SGD without it, or Adam" : "take a weight decay of 0");
}

/* Replaces the rows of this rank by the merged rows of all ranks. */
static void merge_ranks(kolo_graph *g, kolo_value w) {
    const kolo_value_info *info = kolo_info(g, w);
    const kolo_node *maker = g->nodes[kolo_info(g, info->grad)->producer];
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_ROWS_TABLE] = maker->attr[KOLO_ROWS_TABLE],
        [KOLO_ROWS_ROOM].i = info->all_rows,
    };
    kolo_value merged = kolo_graph_add1(g, &kolo_op_merge_rows, maker->out, 2, attr);
    kolo_info(g, w)->grad = merged;
}

static kolo_status add_rows_update(kolo_graph *g, kolo_value w, kolo_value rows,
                                   const kolo_optimizer_opts *opts) {
    bool adam = opts->kind == KOLO_OPTIMIZER_ADAM || opts->kind == KOLO_OPTIMIZER_ADAMW;
    kolo_value ids = g->nodes[kolo_info(g, kolo_info(g, w)->grad)->producer]->out[1];
    kolo_value in[] = {w, rows, ids, scalar(g, "lr"), KOLO_NONE, KOLO_NONE, KOLO_NONE};
    kolo_value out[KOLO_MAX_IO];
    const kolo_op *op = adam ? &kolo_op_adam_rows : &kolo_op_sgd_rows;
    KOLO_TRY(check_rows(g, w, opts));
    if (adam) {
        in[4] = scalar(g, "update");
        in[5] = state_of(g, "mean", w);
        in[6] = state_of(g, "square", w);
    }
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_ADAM_BETA1].f = adam ? opts->beta1 : 0,
        [KOLO_ADAM_BETA2].f = adam ? opts->beta2 : 0,
        [KOLO_ADAM_EPS].f = adam ? opts->eps : 0,
    };
    kolo_graph_add(g, op, in, adam ? 7 : 4, attr, out);
    KOLO_TRY(kolo_graph_check(g));
    kolo_info(g, out[0])->next_of = w;
    for (int k = 1; adam && k < 3; k++) kolo_info(g, out[k])->next_of = in[4 + k];
    return KOLO_OK;
}

/* ---- the whole ---- */

/* The factor of all gradients. */
static kolo_value add_clip(kolo_graph *g, double norm) {
    const int32_t n_values = g->n_values;
    kolo_value sum = KOLO_NONE;
    for (int32_t v = 0; v < n_values; v++) {
        if (!is_trained(g, v)) continue;
        const kolo_value in[] = {
            kolo_graph_add1(g, &kolo_op_square_blocks, &g->values[v].grad, 1, NULL), sum};
        sum = kolo_graph_add1(g, &kolo_op_square_sum, in, kolo_value_ok(sum) ? 2 : 1, NULL);
    }
    if (!kolo_value_ok(sum)) return KOLO_NONE; /* no trainable parameter */
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_CLIP_NORM].f = norm};
    return kolo_graph_add1(g, &kolo_op_clip_factor, &sum, 1, attr);
}

kolo_status kolo_pass_optimizer(kolo_graph *g, const kolo_optimizer_opts *opts) {
    const int32_t n_values = g->n_values;
    kolo_optimizer_opts resolved;
    KOLO_TRY(kolo_optimizer_resolve(opts, &resolved));
    opts = &resolved;
    bool adam = opts->kind == KOLO_OPTIMIZER_ADAM || opts->kind == KOLO_OPTIMIZER_ADAMW;
    for (int32_t v = 0; v < n_values; v++) {
        if (is_trained(g, v) && g->values[v].all_rows > 0) merge_ranks(g, (kolo_value){.id = v});
    }
    KOLO_TRY(kolo_graph_check(g));
    kolo_value factor = opts->clip > 0 ? add_clip(g, opts->clip) : KOLO_NONE;
    (void)scalar(g, "lr"); /* even without a trainable parameter */
    for (int32_t v = 0; v < n_values; v++) {
        if (!is_trained(g, v)) continue;
        kolo_value w = {.id = v}, gradient = g->values[v].grad;
        if (kolo_value_ok(factor)) {
            const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_SCALE_FACTOR].f = 1};
            const kolo_value in[] = {gradient, factor};
            gradient = kolo_graph_add1(g, &kolo_op_scale, in, 2, attr);
        }
        if (g->values[v].rows > 0) {
            KOLO_TRY(add_rows_update(g, w, gradient, opts));
            continue;
        }
        KOLO_TRY(adam ? add_adam(g, w, gradient, opts) : add_sgd(g, w, gradient, opts));
    }
    return kolo_graph_check(g);
}
