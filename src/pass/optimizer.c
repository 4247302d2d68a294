/* The optimizer: adds the update of each parameter as nodes of the graph. Clipping by norm
 * (Pascanu, Mikolov, Bengio, "On the difficulty of training recurrent neural networks", ICML 2013)
 * sums the squares of all gradients and scales each. These nodes are updates too: they read
 * synchronized gradients. So is the merge of the rows of all ranks, for a row-sparse gradient. */
#include "base/integer.h"
#include "base/range.h"
#include "graph/ops/ops.h"
#include "pass/pass.h"

#include <inttypes.h>
#include <string.h>

typedef kolo_status add_update(kolo_graph *g, kolo_value w, kolo_value gradient,
                               const kolo_optimizer_opts *opts);
static add_update add_sgd, add_adam, add_lars, add_lamb;

/* One row for each optimizer. */
static const struct {
    bool momentum; /* has one; else the decay rates of moments */
    bool scales;   /* by norms of whole tensors */
    double eps;
    add_update *add;
} optimizers[KOLO_OPTIMIZER_COUNT] = {
    [KOLO_OPTIMIZER_SGD] = {.momentum = true, .add = add_sgd},
    [KOLO_OPTIMIZER_NESTEROV] = {.momentum = true, .add = add_sgd},
    [KOLO_OPTIMIZER_ADAM] = {.eps = 1e-8, .add = add_adam},
    [KOLO_OPTIMIZER_ADAMW] = {.eps = 1e-8, .add = add_adam},
    [KOLO_OPTIMIZER_LARS] = {.momentum = true, .scales = true, .add = add_lars},
    [KOLO_OPTIMIZER_LAMB] = {.scales = true, .eps = 1e-6, .add = add_lamb},
};

bool kolo_optimizer_has_momentum(kolo_optimizer kind) { return optimizers[kind].momentum; }
bool kolo_optimizer_scales(kolo_optimizer kind) { return optimizers[kind].scales; }

kolo_status kolo_optimizer_resolve(const kolo_optimizer_opts *in, kolo_optimizer_opts *out) {
    kolo_optimizer_opts o = *in;
    KOLO_TRY(kolo_check_count("optimizer", o.kind, 0, KOLO_OPTIMIZER_COUNT - 1));
    if (o.beta1 == 0) o.beta1 = 0.9;
    if (o.beta2 == 0) o.beta2 = 0.999;
    if (o.eps == 0) o.eps = optimizers[o.kind].eps;
    if (o.trust == 0) o.trust = 0.001;
    KOLO_TRY(kolo_check_real("momentum", o.momentum, 0, false, 1));
    KOLO_TRY(kolo_check_real("weight decay", o.weight_decay, 0, false, 1e6));
    if (o.kind == KOLO_OPTIMIZER_NESTEROV && o.momentum == 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "nesterov without momentum: give a momentum above 0");
    }
    if (!optimizers[o.kind].momentum && o.momentum != 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s has no momentum of %g: give beta1",
                         kolo_optimizer_name(o.kind), o.momentum);
    }
    KOLO_TRY(kolo_check_count("delay of the momentum", o.delay, 0, KOLO_DELAY_MOST));
    KOLO_TRY(kolo_check_real("momentum ahead of a delay", o.ahead, 0, false, 1));
    if (o.delay > 0 && o.kind != KOLO_OPTIMIZER_NESTEROV) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s with a delay of %" PRId64 ": Nesterov's momentum is what is delayed: "
                         "give --optimizer nesterov",
                         kolo_optimizer_name(o.kind), o.delay);
    }
    if (o.ahead * (double)o.delay > 1 || (o.ahead > 0 && o.delay == 0)) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "the momentum ahead is %g with a delay of %" PRId64
                         ": give at most 1 / delay",
                         o.ahead, o.delay);
    }
    KOLO_TRY(kolo_check_real("beta1", o.beta1, 0, true, 0.999999));
    KOLO_TRY(kolo_check_real("beta2", o.beta2, 0, true, 0.999999));
    KOLO_TRY(kolo_check_real("eps", o.eps, 0, optimizers[o.kind].eps > 0, 1));
    KOLO_TRY(kolo_check_real("trust coefficient", o.trust, 0, true, 1e6));
    KOLO_TRY(kolo_check_real("maximum norm of the gradients", o.clip, 0, false, 1e12));
    *out = o;
    return KOLO_OK;
}

double kolo_optimizer_number(const kolo_optimizer_opts *opts, uint64_t updates) {
    if (opts->delay > 0) updates = (updates - 1) % (uint64_t)opts->delay + 1;
    return (double)updates;
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

static bool is_vector(const kolo_graph *g, kolo_value w) { return kolo_info(g, w)->canon.rank < 2; }

static double decay_of(const kolo_graph *g, kolo_value w, const kolo_optimizer_opts *opts) {
    bool excluded = kolo_name_matches(opts->no_decay, kolo_info(g, w)->name);
    excluded |= is_vector(g, w) && opts->decay_matrices_only;
    return excluded ? 0 : opts->weight_decay;
}

static bool is_scaled(const kolo_graph *g, kolo_value w, const kolo_optimizer_opts *opts) {
    if (is_vector(g, w) && opts->scale_matrices_only) return false;
    return !kolo_name_matches(opts->no_scale, kolo_info(g, w)->name);
}

int64_t kolo_largest_slice(const kolo_graph *g, kolo_value param, int64_t multiple) {
    kolo_shape shape = kolo_info(g, param)->whole.shape;
    for (int a = 0; a < g->mesh.n_axes; a++) {
        const kolo_placement *p = &kolo_info(g, param)->placements.axis[a];
        const int64_t blocks = p->blocks > 0 ? p->blocks : 1, ranks = g->mesh.axes[a].size;
        if (p->kind != KOLO_PLACEMENT_SHARDED || p->dim == KOLO_DIM_FLAT) continue;
        shape.dim[p->dim] = blocks * ((shape.dim[p->dim] / blocks + ranks - 1) / ranks);
    }
    for (int d = 0; d < shape.rank && d < 2; d++) {
        shape.dim[d] = (shape.dim[d] + multiple - 1) / multiple * multiple;
    }
    return kolo_shape_count(&shape);
}

/* The slices of w that the ranks have, and which is this rank's. */
static int64_t count_slices(const kolo_graph *g, kolo_value w, int64_t *own) {
    const kolo_placements *is = &kolo_info(g, w)->placements;
    int64_t parts = 1;
    *own = 0;
    for (int a = 0; a < g->mesh.n_axes; a++) {
        if (is->axis[a].kind != KOLO_PLACEMENT_SHARDED) continue;
        *own = *own * g->mesh.axes[a].size + kolo_mesh_coordinate(&g->mesh, g->rank, a);
        parts *= g->mesh.axes[a].size;
    }
    return parts;
}

/* The node that divides w into the blocks of tensor parallelism; NULL: there is none. */
static const kolo_node *deinterleave_of(const kolo_graph *g, kolo_value w) {
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        if (n->op == &kolo_op_deinterleave && n->in[0].id == w.id) return n;
    }
    return NULL;
}

/* The squares of v, like w, in the blocks of each part that `deinterleave` makes of w: their sum,
 * as no part fills those of another. */
static kolo_value squares_of_parts(kolo_graph *g, kolo_value v, kolo_value w,
                                   const kolo_node *divides) {
    const int n = divides->n_out;
    kolo_value part[KOLO_MAX_IO], sum = KOLO_NONE;
    int64_t own;
    const int64_t slices = count_slices(g, w, &own);
    kolo_graph_add(g, &kolo_op_deinterleave, &v, 1, divides->attr, part);
    if (kolo_graph_check(g) != KOLO_OK) return KOLO_NONE;
    g->nodes[g->n_nodes - 1]->with_updates = true;
    for (int k = 0; k < n; k++) {
        const int64_t most =
            kolo_square_blocks(kolo_tensor_elements(&kolo_info(g, part[k])->tensor));
        const kolo_attr attr[KOLO_MAX_ATTRS] = {
            [KOLO_SQUARE_FIRST].i = (own * n + k) * most, [KOLO_SQUARE_ALL].i = slices * n * most};
        const kolo_value blocks = kolo_graph_add1(g, &kolo_op_square_blocks, &part[k], 1, attr);
        sum = kolo_value_ok(sum) ? kolo_add(g, sum, blocks) : blocks;
    }
    return sum;
}

/* The squares of v, a gradient or parameter like w. The ranks that have slices of w fill blocks of
 * their own. */
static kolo_value square_blocks(kolo_graph *g, kolo_value v, kolo_value w) {
    const kolo_node *divides = deinterleave_of(g, w);
    kolo_attr attr[KOLO_MAX_ATTRS] = {{0}};
    int64_t own;
    if (divides) return squares_of_parts(g, v, w, divides);
    const int64_t parts = count_slices(g, w, &own);
    if (parts > 1) {
        int64_t most = kolo_square_blocks(kolo_largest_slice(g, w, 1));
        attr[KOLO_SQUARE_FIRST].i = own * most;
        attr[KOLO_SQUARE_ALL].i = parts * most;
    }
    return kolo_graph_add1(g, &kolo_op_square_blocks, &v, 1, attr);
}

static kolo_status add_delayed_sgd(kolo_graph *g, kolo_value w, kolo_value gradient,
                                   const kolo_optimizer_opts *opts) {
    const kolo_value in[] = {w,
                             gradient,
                             scalar(g, "lr"),
                             scalar(g, "update"),
                             state_of(g, "velocity", w),
                             state_of(g, "delayed", w)};
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_DELAYED_SGD_MOMENTUM].f = opts->momentum,
        [KOLO_DELAYED_SGD_WEIGHT_DECAY].f = decay_of(g, w, opts),
        [KOLO_DELAYED_SGD_DELAY].i = opts->delay,
        [KOLO_DELAYED_SGD_AHEAD].f = opts->ahead,
    };
    kolo_value out[KOLO_MAX_IO];
    kolo_graph_add(g, &kolo_op_delayed_sgd, in, 6, attr, out);
    KOLO_TRY(kolo_graph_check(g));
    kolo_info(g, out[0])->next_of = w;
    kolo_info(g, out[1])->next_of = in[4];
    kolo_info(g, out[2])->next_of = in[5];
    return KOLO_OK;
}

static kolo_status add_sgd(kolo_graph *g, kolo_value w, kolo_value gradient,
                           const kolo_optimizer_opts *opts) {
    if (opts->delay > 0) return add_delayed_sgd(g, w, gradient, opts);
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

static kolo_status add_lars(kolo_graph *g, kolo_value w, kolo_value gradient,
                            const kolo_optimizer_opts *opts) {
    const bool scaled = is_scaled(g, w, opts);
    const kolo_value in[] = {w,
                             gradient,
                             scalar(g, "lr"),
                             state_of(g, "velocity", w),
                             scaled ? square_blocks(g, w, w) : KOLO_NONE,
                             scaled ? square_blocks(g, gradient, w) : KOLO_NONE};
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_LARS_MOMENTUM].f = opts->momentum,
        [KOLO_LARS_WEIGHT_DECAY].f = decay_of(g, w, opts),
        [KOLO_LARS_TRUST].f = opts->trust,
    };
    kolo_value out[KOLO_MAX_IO];
    kolo_graph_add(g, &kolo_op_lars, in, scaled ? 6 : 4, attr, out);
    KOLO_TRY(kolo_graph_check(g));
    kolo_info(g, out[0])->next_of = w;
    kolo_info(g, out[1])->next_of = in[3];
    return KOLO_OK;
}

static kolo_status add_lamb(kolo_graph *g, kolo_value w, kolo_value gradient,
                            const kolo_optimizer_opts *opts) {
    const kolo_value in[] = {w, gradient, scalar(g, "update"), state_of(g, "mean", w),
                             state_of(g, "square", w)};
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_ADAM_BETA1].f = opts->beta1,
        [KOLO_ADAM_BETA2].f = opts->beta2,
        [KOLO_ADAM_EPS].f = opts->eps,
        [KOLO_ADAM_WEIGHT_DECAY].f = decay_of(g, w, opts),
    };
    kolo_value out[KOLO_MAX_IO];
    kolo_graph_add(g, &kolo_op_lamb, in, 5, attr, out);
    KOLO_TRY(kolo_graph_check(g));
    kolo_info(g, out[0])->next_of = in[3];
    kolo_info(g, out[1])->next_of = in[4];
    const bool scaled = is_scaled(g, w, opts);
    const kolo_value step[] = {w, out[2], scalar(g, "lr"),
                               scaled ? square_blocks(g, w, w) : KOLO_NONE,
                               scaled ? square_blocks(g, out[2], w) : KOLO_NONE};
    kolo_value next = kolo_graph_add1(g, &kolo_op_lamb_step, step, scaled ? 5 : 3, NULL);
    KOLO_TRY(kolo_graph_check(g));
    kolo_info(g, next)->next_of = w;
    return KOLO_OK;
}

static bool is_trained(const kolo_graph *g, int32_t v) {
    return g->values[v].kind == KOLO_VALUE_PARAM && kolo_value_ok(g->values[v].grad);
}

/* The state of a parameter that another stage has, in the order of all. */
static void add_foreign_state(kolo_graph *g, kolo_value w, const kolo_optimizer_opts *opts) {
    bool momentum = optimizers[opts->kind].momentum;
    if (momentum && (opts->momentum != 0 || optimizers[opts->kind].scales)) {
        (void)state_of(g, "velocity", w);
        if (opts->delay > 0) (void)state_of(g, "delayed", w);
    } else if (!momentum) {
        (void)state_of(g, "mean", w);
        (void)state_of(g, "square", w);
    }
}

/* ---- row-sparse gradients ---- */

static kolo_status check_rows(const kolo_graph *g, kolo_value w, const kolo_optimizer_opts *opts) {
    double decay = decay_of(g, w, opts);
    bool momentum = opts->momentum != 0;
    if (kolo_optimizer_scales(opts->kind)) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s scales updates by norms of whole tensors, %s has a sparse gradient: "
                         "use SGD or Adam, or omit --sparse-embedding",
                         kolo_optimizer_name(opts->kind), kolo_info(g, w)->name);
    }
    if (!momentum && decay == 0) return KOLO_OK;
    return KOLO_FAIL(
        KOLO_ERR_ARG,
        "a %s of %g changes rows of %s without a gradient: with a sparse embedding %s, "
        "or omit --sparse-embedding",
        momentum ? "momentum" : "weight decay", momentum ? opts->momentum : decay,
        kolo_info(g, w)->name,
        momentum ? "use SGD without it, or Adam" : "use a weight decay of 0");
}

/* Replaces the rows of this rank by the merged rows of all ranks and micro-batches. */
static void merge_ranks(kolo_graph *g, kolo_value w) {
    const kolo_value_info *info = kolo_info(g, w);
    const kolo_node *maker = g->nodes[kolo_info(g, info->grad)->producer];
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_ROWS_TABLE] = maker->attr[KOLO_ROWS_TABLE],
        [KOLO_ROWS_ROOM].i = kolo_min_i64(info->all_rows, maker->attr[KOLO_ROWS_TABLE].i),
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

/* Summands of sums over all stages: times 1, which is their summand of a scalar; or times 0. */
static kolo_value over_stages(kolo_graph *g, kolo_value sums, double factor) {
    if (g->stages == 0) return sums;
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_SCALE_FACTOR].f = factor};
    kolo_value one = scalar(g, "stage");
    if (!kolo_value_ok(one)) return KOLO_NONE;
    kolo_info(g, one)->placements.axis[kolo_mesh_find(&g->mesh, "pp")].kind =
        KOLO_PLACEMENT_PARTIAL;
    return kolo_graph_add1(g, &kolo_op_scale, (kolo_value[]){sums, one}, 2, attr);
}

/* The sums of squares of the gradients, one for each parameter of the model: 0 where another stage
 * has it. */
static kolo_value add_square_sums(kolo_graph *g) {
    const int32_t n_values = g->n_values;
    kolo_attr attr[KOLO_MAX_ATTRS] = {{0}};
    kolo_value sums = KOLO_NONE;
    for (int32_t v = 0; v < n_values; v++) {
        attr[KOLO_SQUARE_PLACES].i += g->values[v].kind == KOLO_VALUE_PARAM;
    }
    for (int32_t v = 0; v < n_values; v++) {
        if (g->values[v].kind != KOLO_VALUE_PARAM) continue;
        if (is_trained(g, v) && kolo_is_held_first(g, &g->values[v])) {
            const kolo_value blocks = square_blocks(g, g->values[v].grad, (kolo_value){.id = v});
            const kolo_value in[] = {blocks, sums};
            sums = kolo_graph_add1(g, &kolo_op_square_sum, in, kolo_value_ok(sums) ? 2 : 1, attr);
        }
        attr[KOLO_SQUARE_PLACE].i++;
    }
    return sums;
}

/* Sums like those of a stage that trains a parameter: of a scalar, which every stage has. */
static kolo_value add_any_sums(kolo_graph *g) {
    kolo_attr attr[KOLO_MAX_ATTRS] = {{0}};
    for (int32_t v = 0; v < g->n_values; v++) {
        attr[KOLO_SQUARE_PLACES].i += g->values[v].kind == KOLO_VALUE_PARAM;
    }
    const kolo_value lr = scalar(g, "lr");
    const kolo_value blocks = kolo_graph_add1(g, &kolo_op_square_blocks, &lr, 1, NULL);
    return kolo_graph_add1(g, &kolo_op_square_sum, &blocks, 1, attr);
}

/* The factor of all gradients. Their squares are summed by parameter, so that the norm depends
 * neither on the ranks nor on the stages. */
static kolo_value add_clip(kolo_graph *g, double norm) {
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_CLIP_NORM].f = norm};
    kolo_value sums = add_square_sums(g);
    const bool none = !kolo_value_ok(sums); /* no parameter is trained */
    if (none && g->stages > 0) sums = add_any_sums(g);
    if (!kolo_value_ok(sums)) return KOLO_NONE;
    sums = over_stages(g, sums, none ? 0 : 1);
    sums = kolo_graph_add1(g, &kolo_op_square_sum, &sums, 1, NULL);
    const kolo_value factor = kolo_graph_add1(g, &kolo_op_clip_factor, &sums, 1, attr);
    if (none) kolo_output(g, "clip_factor", factor); /* the other stages wait for this one */
    return factor;
}

kolo_status kolo_pass_optimizer(kolo_graph *g, const kolo_optimizer_opts *opts) {
    const int32_t n_values = g->n_values;
    kolo_optimizer_opts resolved;
    KOLO_TRY(kolo_optimizer_resolve(opts, &resolved));
    opts = &resolved;
    KOLO_TRY(kolo_patterns_check(g, "no-decay", opts->no_decay));
    KOLO_TRY(kolo_patterns_check(g, "no-scale", opts->no_scale));
    for (int32_t v = 0; v < n_values; v++) {
        if (is_trained(g, v) && g->values[v].all_rows > 0) merge_ranks(g, (kolo_value){.id = v});
    }
    KOLO_TRY(kolo_graph_check(g));
    kolo_value factor = opts->clip > 0 ? add_clip(g, opts->clip) : KOLO_NONE;
    KOLO_TRY(kolo_graph_check(g));
    (void)scalar(g, "lr"); /* even without a trainable parameter */
    for (int32_t v = 0; v < n_values; v++) {
        bool foreign = g->values[v].kind == KOLO_VALUE_PARAM && !g->values[v].frozen &&
                       !kolo_is_held(g, &g->values[v]);
        if (foreign) add_foreign_state(g, (kolo_value){.id = v}, opts);
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
        KOLO_TRY(optimizers[opts->kind].add(g, w, gradient, opts));
    }
    return kolo_graph_check(g);
}

kolo_status kolo_pass_outer_state(kolo_graph *g, bool delays) {
    const int32_t n_values = g->n_values;
    for (int32_t v = 0; v < n_values; v++) {
        if (!is_trained(g, v)) continue;
        (void)state_of(g, "outer", (kolo_value){.id = v});
        if (delays) (void)state_of(g, "delayed", (kolo_value){.id = v});
    }
    return kolo_graph_check(g);
}
