/* Folding: forward rewrites that make fewer, larger nodes of the same numbers.
 *
 *   bias(conv2d(x, w), b)       -> conv2d(x, w, b)           the same for linear
 *   relu(conv2d(...))           -> conv2d(...) relu=1        the same for linear
 *   gelu(linear(...))           -> linear_gelu(...)          keeps linear's result to train
 *   add(batch_norm(...), r)     -> batch_norm(..., r)        where r is made before it
 *   relu(batch_norm(...))       -> batch_norm(...) relu=1    the same for add
 *   max_pool2d(relu(x))         -> max_pool2d(x) relu=1      max and ReLU commute; less work
 *   softmax_xent(x, labels) and accuracy(x, labels) -> softmax_xent(x, labels) count=1
 *   linear(flatten(x), w)       -> linear(x, w as [O,C,H,W]) w may then be ordered as x is
 *
 * A node is folded away only if nothing else reads its result. One walk in order; `alias` says
 * which value stands for one that is gone. */
#include "graph/op.h"
#include "pass/pass.h"

#include <string.h>

typedef struct folder {
    kolo_graph *g;
    bool train;
    int *uses;         /* of each value, by nodes and outputs */
    kolo_value *alias; /* the value that stands for it now */
} folder;

static bool is_product(const kolo_node *n) {
    return n->op == &kolo_op_conv2d || n->op == &kolo_op_linear;
}

static bool is_norm(const kolo_node *n) {
    return n->op == &kolo_op_batch_norm || n->op == &kolo_op_batch_norm_infer;
}

/* Whether a ReLU may be a part of the node. */
static bool takes_relu(const kolo_node *n) {
    return is_product(n) || is_norm(n) || n->op == &kolo_op_add;
}

/* The ReLU attribute of such a node. */
static int64_t *relu_of(kolo_node *n) {
    if (is_norm(n)) return &n->attr[KOLO_NORM_RELU].i;
    if (n->op == &kolo_op_add) return &n->attr[KOLO_ADD_RELU].i;
    return n->op == &kolo_op_conv2d ? &n->attr[KOLO_CONV_RELU].i : &n->attr[KOLO_LINEAR_RELU].i;
}

/* The node that makes v, if its one result is read once only. */
static kolo_node *only_maker(const folder *f, kolo_value v) {
    int32_t producer = kolo_info(f->g, v)->producer;
    return producer >= 0 && f->uses[v.id] == 1 ? f->g->nodes[producer] : NULL;
}

/* The only node that reads v (before folding), NULL when there are several or an output is. */
static const kolo_node *only_reader(const folder *f, kolo_value v) {
    if (f->uses[v.id] != 1) return NULL;
    for (int32_t i = 0; i < f->g->n_nodes; i++) {
        const kolo_node *n = f->g->nodes[i];
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

/* dropout(flatten(x)) that only n reads becomes dropout(x), whose draws are the same: plans to
 * train and to evaluate then see n's weights alike. */
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

/* Sees the weights of a linear layer as [O,C,H,W] and lets it read what its flatten reads. */
static void fold_flatten(const folder *f, kolo_node *n) {
    kolo_value_info *w = kolo_info(f->g, n->in[1]);
    if (w->kind != KOLO_VALUE_PARAM || f->uses[n->in[1].id] != 1) return;
    if (kolo_info(f->g, n->in[0])->tensor.shape.rank > 2) return; /* tokens, or folded already */
    lift_dropout(f, n);
    const kolo_node *maker = only_maker(f, n->in[0]);
    bool flat = maker && maker->op == &kolo_op_flatten;
    kolo_shape shape = kolo_info(f->g, flat ? maker->in[0] : n->in[0])->tensor.shape;
    /* A flatten gives a vector the dimension that linear needs. */
    if (shape.rank < 2 || shape.rank == w->tensor.shape.rank) return;
    shape.dim[0] = w->tensor.shape.dim[0];
    w->tensor = kolo_tensor_plain(w->tensor.dtype, shape);
    if (flat) n->in[0] = maker->in[0];
}

/* Lets the normalisation that makes one side of an addition add the other, when that is made before
 * it; gives which side it is, -1 when there is none. */
static int norm_side(const folder *f, const kolo_node *add) {
    for (int side = 0; side < 2; side++) {
        const kolo_node *norm = only_maker(f, add->in[side]);
        if (!norm || !is_norm(norm) || norm->n_in != 5 || norm->attr[KOLO_NORM_RELU].i) continue;
        if (norm->out[0].id != add->in[side].id) continue; /* it is a statistic */
        int32_t other = kolo_info(f->g, add->in[1 - side])->producer;
        if (other < kolo_info(f->g, add->in[side])->producer) return side;
    }
    return -1;
}

/* linear, whose one reader is n, gives n's result besides its own, or in its place. */
static kolo_status fold_gelu(const folder *f, kolo_node *linear, const kolo_node *n) {
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
    return KOLO_OK;
}

static bool takes_gelu(const folder *f, const kolo_node *n) {
    return n->op == &kolo_op_linear && !n->attr[KOLO_LINEAR_RELU].i &&
           kolo_info(f->g, n->in[1])->tensor.shape.rank == 2;
}

static bool same_labels(const kolo_node *a, const kolo_node *b) {
    return a->in[0].id == b->in[0].id && a->in[1].id == b->in[1].id &&
           a->attr[KOLO_LOSS_HAS_IGNORE_INDEX].i == b->attr[KOLO_LOSS_HAS_IGNORE_INDEX].i &&
           a->attr[KOLO_LOSS_IGNORE_INDEX].i == b->attr[KOLO_LOSS_IGNORE_INDEX].i;
}

/* The loss of the same logits and labels, if it stands before the count n. */
static kolo_node *loss_beside(const folder *f, const kolo_node *n) {
    for (int32_t i = 0; f->g->nodes[i] != n; i++) {
        kolo_node *loss = f->g->nodes[i];
        if (loss->op == &kolo_op_softmax_xent && !loss->attr[KOLO_LOSS_COUNT].i &&
            same_labels(loss, n)) {
            return loss;
        }
    }
    return NULL;
}

/* Folds a count of correct samples into the loss; true when it is gone. */
static kolo_status fold_count(const folder *f, const kolo_node *n, bool *gone) {
    kolo_node *loss = loss_beside(f, n);
    if (!loss) return KOLO_OK;
    kolo_value *out = kolo_arena_alloc(&f->g->arena, 3 * sizeof *out);
    if (!out) return KOLO_NOMEM(3 * sizeof *out);
    out[0] = loss->out[0];
    out[1] = loss->out[1];
    out[2] = n->out[0];
    loss->out = out;
    loss->n_out = 3;
    loss->attr[KOLO_LOSS_COUNT].i = 1;
    *gone = true;
    return KOLO_OK;
}

/* Folds one node; true when it is gone. */
static kolo_status fold_node(folder *f, kolo_node *n, bool *gone) {
    *gone = false;
    kolo_node *maker = n->n_in ? only_maker(f, n->in[0]) : NULL;
    if (n->op == &kolo_op_linear) {
        fold_flatten(f, n);
    } else if (n->op == &kolo_op_bias && maker && is_product(maker) && maker->n_in == 2 &&
               !*relu_of(maker) && kolo_info(f->g, n->in[1])->producer < 0) {
        KOLO_TRY(append_input(f->g, maker, n->in[1]));
        *gone = true;
    } else if (n->op == &kolo_op_accuracy) {
        return fold_count(f, n, gone);
    } else if (n->op == &kolo_op_gelu && maker && takes_gelu(f, maker)) {
        *gone = true;
        return fold_gelu(f, maker, n);
    } else if (n->op == &kolo_op_relu) {
        const kolo_node *reader = only_reader(f, n->out[0]);
        if (reader && reader->op == &kolo_op_max_pool2d) {
            *gone = true; /* the pool does it: see below */
        } else if (maker && takes_relu(maker) && !*relu_of(maker)) {
            *relu_of(maker) = 1;
            *gone = true;
        }
    }
    int side = n->op == &kolo_op_add ? norm_side(f, n) : -1;
    if (side >= 0) {
        kolo_node *norm = only_maker(f, n->in[side]);
        KOLO_TRY(append_input(f->g, norm, n->in[1 - side]));
        f->alias[n->out[0].id] = n->in[side];
        f->uses[n->in[side].id] += f->uses[n->out[0].id] - 1;
        *gone = true;
        return KOLO_OK;
    }
    if (*gone) {
        f->alias[n->out[0].id] = n->in[0];
        f->uses[n->in[0].id] += f->uses[n->out[0].id] - 1;
    }
    return KOLO_OK;
}

/* Before folding starts: marks each max pool whose input is a ReLU that only it reads. */
static void mark_pools(const folder *f) {
    for (int32_t i = 0; i < f->g->n_nodes; i++) {
        kolo_node *n = f->g->nodes[i];
        if (n->op != &kolo_op_max_pool2d) continue;
        const kolo_node *maker = only_maker(f, n->in[0]);
        if (maker && maker->op == &kolo_op_relu) n->attr[KOLO_POOL_RELU].i = 1;
    }
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
    for (int32_t v = 0; v < g->n_values; v++) f.alias[v] = (kolo_value){v};
    for (int32_t i = 0; i < g->n_nodes; i++) {
        for (int k = 0; k < g->nodes[i]->n_in; k++) f.uses[g->nodes[i]->in[k].id]++;
    }
    for (int32_t i = 0; i < g->n_outputs; i++) f.uses[g->outputs[i].value.id]++;
    mark_pools(&f);
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
