/* Folding: forward rewrites into fewer, larger nodes with the same results.
 *
 *   bias(conv2d(x, w), b)       -> conv2d(x, w, b)           any op with fuse.bias
 *   relu(conv2d(...))           -> conv2d(...) relu=1        any op with fuse.relu
 *   hardtanh(batch_norm(...))   -> batch_norm(...) relu=6    from 0 to an integer: ReLU6
 *   gelu(linear(...))           -> linear_gelu(...)          keeps linear's result for training
 *   add(batch_norm(...), r)     -> batch_norm(..., r)        any op with fuse.residual, after r
 *   max_pool2d(relu(x))         -> max_pool2d(x) relu=1      max and ReLU commute; less work
 *   softmax_xent(x, labels) and accuracy(x, labels) -> softmax_xent(x, labels) count=1
 *   linear(flatten(x), w)       -> linear(x, w as [O,C,H,W]) w may then share the layout of x
 *
 * Each rewrite is a row of `patterns`. A node is folded only if it is the one reader of the value
 * that it continues. One walk in node order; `alias` maps a folded value to its replacement. */
#include "graph/ops/ops.h"
#include "pass/pass.h"

#include <math.h>
#include <string.h>

typedef struct folder {
    kolo_graph *g;
    bool train;
    int *uses;         /* by value: readers, nodes and outputs */
    kolo_value *alias; /* by value: its replacement, or itself */
} folder;

/* The producer of v, if v is read once. */
static kolo_node *only_maker(const folder *f, kolo_value v) {
    int32_t producer = kolo_info(f->g, v)->producer;
    return producer >= 0 && f->uses[v.id] == 1 ? f->g->nodes[producer] : NULL;
}

/* The one reader of v among the nodes that are not folded yet; NULL if there are several, or it is
 * an output. */
static kolo_node *only_reader(const folder *f, kolo_value v) {
    if (f->uses[v.id] != 1) return NULL;
    for (int32_t i = kolo_info(f->g, v)->producer + 1; i < f->g->n_nodes; i++) {
        kolo_node *n = f->g->nodes[i];
        for (int k = 0; k < n->n_in; k++) {
            if (n->in[k].id == v.id) return n;
        }
    }
    return NULL;
}

static kolo_status append_input(kolo_graph *g, kolo_node *n, kolo_value v) {
    kolo_value *in = kolo_arena_alloc(&g->arena, (size_t)(n->n_in + 1) * sizeof *in);
    if (!in) return KOLO_NOMEM(sizeof *in);
    memcpy(in, n->in, (size_t)n->n_in * sizeof *in);
    in[n->n_in++] = v;
    n->in = in;
    return KOLO_OK;
}

/* ---- patterns ---- */

/* Folds node n if its surroundings match: sets *by to the value that replaces output 0, which is
 * output 0 itself if another node writes it now. Leaves *by alone if n stays. */
typedef kolo_status (*fold_function)(const folder *f, kolo_node *n, kolo_value *by);

/* dropout(flatten(x)) with n as its one reader becomes dropout(x), which draws the same: training
 * and evaluation plans then see the weights of n in the same shape. */
static void lift_dropout(const folder *f, const kolo_node *n) {
    kolo_node *dropout = only_maker(f, n->in[0]);
    if (!dropout || dropout->op != &kolo_op_dropout) return;
    const kolo_node *flatten = only_maker(f, dropout->in[0]);
    kolo_shape flat = kolo_info(f->g, n->in[0])->tensor.shape;
    if (!flatten || flatten->op != &kolo_op_flatten || flat.rank != 2) return;
    kolo_tensor x = kolo_info(f->g, flatten->in[0])->tensor;
    if (x.shape.rank < 2) return;
    dropout->in[0] = flatten->in[0];
    kolo_info(f->g, n->in[0])->tensor = x;
}

/* linear(flatten(x), w): views the weights as [O,C,H,W] and reads x. */
static kolo_status fold_flatten(const folder *f, kolo_node *n, kolo_value *by) {
    (void)by;
    kolo_value_info *w = kolo_info(f->g, n->in[1]);
    if (w->kind != KOLO_VALUE_PARAM || f->uses[n->in[1].id] != 1) return KOLO_OK;
    if (kolo_info(f->g, n->in[0])->tensor.shape.rank > 2) return KOLO_OK; /* tokens, or folded */
    lift_dropout(f, n);
    const kolo_node *maker = only_maker(f, n->in[0]);
    bool flat = maker && maker->op == &kolo_op_flatten;
    kolo_shape shape = kolo_info(f->g, flat ? maker->in[0] : n->in[0])->tensor.shape;
    /* A flatten gives a vector the dimension that linear needs. */
    if (shape.rank < 2 || shape.rank == w->tensor.shape.rank) return KOLO_OK;
    shape.dim[0] = w->tensor.shape.dim[0];
    w->tensor = kolo_tensor_plain(w->tensor.dtype, shape);
    if (flat) n->in[0] = maker->in[0];
    return KOLO_OK;
}

/* Whether a node applies a ReLU already. */
static bool has_relu(kolo_node *n) {
    return n->op->fuse.relu && kolo_node_attr(n, n->op->fuse.relu)->i != 0;
}

/* bias(f(x), b) -> f(x, b). */
static kolo_status fold_bias(const folder *f, kolo_node *n, kolo_value *by) {
    kolo_node *maker = only_maker(f, n->in[0]);
    if (!maker || !maker->op->fuse.bias || maker->n_in != maker->op->fuse.bias) return KOLO_OK;
    if (has_relu(maker) || kolo_info(f->g, n->in[1])->producer >= 0) return KOLO_OK;
    KOLO_TRY(append_input(f->g, maker, n->in[1]));
    *by = n->in[0];
    return KOLO_OK;
}

/* max_pool2d(relu(x)) -> max_pool2d(x) relu=1. */
static kolo_status fold_relu_into_pool(const folder *f, kolo_node *n, kolo_value *by) {
    kolo_node *reader = only_reader(f, n->out[0]);
    if (!reader || reader->op != &kolo_op_max_pool2d) return KOLO_OK;
    reader->attr[KOLO_POOL_RELU].i = 1;
    *by = n->in[0];
    return KOLO_OK;
}

/* relu(f(x)) -> f(x) relu=1. */
static kolo_status fold_relu(const folder *f, kolo_node *n, kolo_value *by) {
    kolo_node *maker = only_maker(f, n->in[0]);
    if (!maker || !maker->op->fuse.relu || has_relu(maker)) return KOLO_OK;
    kolo_node_attr(maker, maker->op->fuse.relu)->i = 1;
    *by = n->in[0];
    return KOLO_OK;
}

/* hardtanh(batch_norm(x)) from 0 to `max` -> batch_norm(x) relu=max. */
static kolo_status fold_clip(const folder *f, kolo_node *n, kolo_value *by) {
    kolo_node *maker = only_maker(f, n->in[0]);
    const double max = n->attr[KOLO_UNARY_Q].f;
    if (!maker || (maker->op != &kolo_op_batch_norm && maker->op != &kolo_op_batch_norm_infer) ||
        maker->out[0].id != n->in[0].id || has_relu(maker) || maker->n_in == maker->op->max_in) {
        return KOLO_OK;
    }
    if (n->attr[KOLO_UNARY_P].f != 0 || !(max > 1 && max <= INT16_MAX) || max != floor(max)) {
        return KOLO_OK;
    }
    maker->attr[KOLO_NORM_RELU].i = (int64_t)max;
    *by = n->in[0];
    return KOLO_OK;
}

/* gelu(linear(x)) -> linear_gelu(x), which also writes linear's result for training. */
static kolo_status fold_gelu(const folder *f, kolo_node *n, kolo_value *by) {
    kolo_node *linear = only_maker(f, n->in[0]);
    if (!linear || linear->op != &kolo_op_linear || has_relu(linear) ||
        kolo_info(f->g, linear->in[1])->tensor.shape.rank != 2) {
        return KOLO_OK;
    }
    kolo_value *out = kolo_arena_alloc(&f->g->arena, 2 * sizeof *out);
    if (!out) return KOLO_NOMEM(2 * sizeof *out);
    out[0] = n->out[0];
    out[1] = linear->out[0];
    linear->out = out;
    linear->n_out = f->train ? 2 : 1;
    linear->op = &kolo_op_linear_gelu;
    memset(linear->attr, 0, sizeof linear->attr);
    linear->attr[KOLO_LINEAR_GELU_TANH] = n->attr[KOLO_GELU_TANH];
    linear->attr[KOLO_LINEAR_GELU_KEEP].i = f->train;
    *by = n->out[0];
    return KOLO_OK;
}

/* add(f(x), r) -> f(x, r), if r is made before f(x). */
static kolo_status fold_residual(const folder *f, kolo_node *n, kolo_value *by) {
    for (int side = 0; side < 2; side++) {
        kolo_node *maker = only_maker(f, n->in[side]);
        if (!maker || !maker->op->fuse.residual || maker->n_in != maker->op->fuse.residual ||
            has_relu(maker)) {
            continue;
        }
        if (maker->out[0].id != n->in[side].id) continue; /* a statistic */
        int32_t other = kolo_info(f->g, n->in[1 - side])->producer;
        if (other >= kolo_info(f->g, n->in[side])->producer) continue;
        KOLO_TRY(append_input(f->g, maker, n->in[1 - side]));
        *by = n->in[side];
        return KOLO_OK;
    }
    return KOLO_OK;
}

static bool same_labels(const kolo_node *a, const kolo_node *b) {
    return a->in[0].id == b->in[0].id && a->in[1].id == b->in[1].id &&
           a->attr[KOLO_LOSS_HAS_IGNORE_INDEX].i == b->attr[KOLO_LOSS_HAS_IGNORE_INDEX].i &&
           a->attr[KOLO_LOSS_IGNORE_INDEX].i == b->attr[KOLO_LOSS_IGNORE_INDEX].i;
}

/* The loss of the same logits and labels before node n. */
static kolo_node *loss_before(const folder *f, const kolo_node *n) {
    for (int32_t i = 0; f->g->nodes[i] != n; i++) {
        kolo_node *loss = f->g->nodes[i];
        if (loss->op == &kolo_op_softmax_xent && !loss->attr[KOLO_LOSS_COUNT].i &&
            same_labels(loss, n)) {
            return loss;
        }
    }
    return NULL;
}

/* accuracy(x, labels) -> output 2 of softmax_xent(x, labels) count=1. */
static kolo_status fold_count(const folder *f, kolo_node *n, kolo_value *by) {
    kolo_node *loss = loss_before(f, n);
    if (!loss) return KOLO_OK;
    kolo_value *out = kolo_arena_alloc(&f->g->arena, 3 * sizeof *out);
    if (!out) return KOLO_NOMEM(3 * sizeof *out);
    out[0] = loss->out[0];
    out[1] = loss->out[1];
    out[2] = n->out[0];
    loss->out = out;
    loss->n_out = 3;
    loss->attr[KOLO_LOSS_COUNT].i = 1;
    *by = n->out[0];
    return KOLO_OK;
}

/* The patterns, by the op of the node that is folded. The first row that folds a node wins. */
static const struct {
    const kolo_op *op;
    fold_function fold;
} patterns[] = {
    {&kolo_op_linear, fold_flatten},      {&kolo_op_bias, fold_bias},
    {&kolo_op_relu, fold_relu_into_pool}, {&kolo_op_relu, fold_relu},
    {&kolo_op_hardtanh, fold_clip},       {&kolo_op_gelu, fold_gelu},
    {&kolo_op_add, fold_residual},        {&kolo_op_accuracy, fold_count},
};

/* ---- the walk ---- */

/* Folds one node; *gone: whether it is to be removed. */
static kolo_status fold_node(const folder *f, kolo_node *n, bool *gone) {
    kolo_value by = KOLO_NONE;
    for (size_t i = 0; i < KOLO_COUNT(patterns) && !kolo_value_ok(by); i++) {
        if (patterns[i].op == n->op) KOLO_TRY(patterns[i].fold(f, n, &by));
    }
    *gone = kolo_value_ok(by);
    if (*gone && by.id != n->out[0].id) {
        f->alias[n->out[0].id] = by;
        f->uses[by.id] += f->uses[n->out[0].id] - 1;
    }
    return KOLO_OK;
}

kolo_status kolo_pass_fold(kolo_graph *g, bool train) {
    kolo_status status = KOLO_OK;
    folder f = {.g = g, .train = train};
    f.uses = kolo_zalloc(((size_t)g->n_values + 1) * sizeof *f.uses);
    f.alias = kolo_alloc(((size_t)g->n_values + 1) * sizeof *f.alias);
    kolo_node **kept = kolo_alloc(((size_t)g->n_nodes + 1) * sizeof *kept);
    if (!f.uses || !f.alias || !kept) {
        status = KOLO_NOMEM((size_t)g->n_values * sizeof *f.uses);
        goto done;
    }
    for (int32_t v = 0; v < g->n_values; v++) f.alias[v] = (kolo_value){.id = v};
    for (int32_t i = 0; i < g->n_nodes; i++) {
        for (int k = 0; k < g->nodes[i]->n_in; k++) f.uses[g->nodes[i]->in[k].id]++;
    }
    for (int32_t i = 0; i < g->n_outputs; i++) f.uses[g->outputs[i].value.id]++;
    int32_t n_kept = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        kolo_node *n = g->nodes[i];
        for (int k = 0; k < n->n_in; k++) n->in[k] = f.alias[n->in[k].id];
        bool gone;
        KOLO_TRY_GOTO(fold_node(&f, n, &gone), done);
        if (!gone) kept[n_kept++] = n;
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        g->outputs[i].value = f.alias[g->outputs[i].value.id];
    }
    KOLO_TRY_GOTO(kolo_graph_set_nodes(g, kept, n_kept), done);
    status = kolo_graph_prune(g);
done:
    kolo_free(f.uses);
    kolo_free(f.alias);
    kolo_free(kept);
    return status;
}
