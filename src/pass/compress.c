/* Compression of gradients, with error feedback. Every rank encodes its gradient plus the error of
 * the last step; the codes are gathered, and every rank decodes and adds them up:
 *
 *     redistribute(g)  ->  decode(gather(code))      code, error = encode(g, residual)
 *                                                    residual' = error
 *
 * The residual is LOCAL state: each rank has its own. Seide et al., "1-bit stochastic gradient
 * descent", 2014; Karimireddy et al., "Error feedback fixes SignSGD", 2019.
 *
 * PowerSGD sums two factors of the gradients instead (Vogels et al., 2019; graph/ops/ops.h). b is a
 * basis that all ranks have, and q begins the next step:
 *
 *     redistribute(g)  ->  power_sum(b, q)    b = power_basis(redistribute(p))
 *                                             p = power_project(g, residual, q of the last step)
 *                                             part, error = power_back(g, residual, b)
 *                                             q = redistribute(part), residual' = error
 *
 * 1-bit Adam compresses what the ranks add to the momentum m (Tang et al., 2021). The second moment
 * stays as it is:
 *
 *     adam(redistribute(g), m)  ->  adam(m'), frozen    m' = decode(gather(code))
 *                                                       code, error = encode(part, residual)
 *                                                       part = momentum_part(g, m) */
#include "base/text.h"
#include "graph/ops/ops.h"
#include "pass/gradient_sums.h"
#include "pass/pass.h"

enum { ADAM_WEIGHT = 0, ADAM_GRADIENT = 1, ADAM_MEAN = 4 }; /* inputs */

typedef struct compressor {
    kolo_graph *g;
    const kolo_compression *how;
    int axis, ranks;
    int32_t *param_of; /* by value: the parameter of which it is the gradient; -1: none */
    kolo_value *by;    /* by value: what replaces it, or KOLO_NONE */
    int32_t *early;    /* by value: the node that sums it, if it can start at once; -1: none */
    int32_t n_values;  /* before values are added */
    int32_t n_nodes;   /* the same */
    kolo_node **order;
    int32_t n;
} compressor;

/* Whether factors of a rank are smaller than the whole. */
static bool has_factors(const kolo_tensor *t, int rank) {
    const int64_t count = kolo_shape_count(&t->shape);
    return t->shape.rank > 1 && rank * (t->shape.dim[0] + count / t->shape.dim[0]) < count;
}

/* The parameter whose gradient a node sums over the ranks, if it is large enough; -1: none. */
static int32_t compresses(const compressor *c, const kolo_node *n) {
    int32_t param = kolo_summed_gradient(c->g, n, c->axis, c->param_of);
    if (param < 0) return -1;
    const kolo_tensor *t = &kolo_info(c->g, n->in[0])->tensor;
    if (kolo_tensor_bytes(t) < c->how->min_bytes) return -1;
    if (c->how->only && !kolo_name_matches(c->how->only, c->g->values[param].name)) return -1;
    return c->how->power_rank == 0 || has_factors(t, c->how->power_rank) ? param : -1;
}

static kolo_placements on_axis(const compressor *c, kolo_placement_kind kind) {
    kolo_placements p = {0};
    p.axis[c->axis].kind = kind;
    return p;
}

static kolo_node *add(compressor *c, const kolo_op *op, const kolo_value *in, int n_in, int n_out,
                      const kolo_tensor *out, const kolo_attr *attr) {
    kolo_node *n = kolo_graph_add_raw(c->g, op, in, n_in, n_out, out, attr);
    if (n) c->order[c->n++] = n;
    return n;
}

/* Output 0 of an encoding, from a summand, is placed as `to`; each rank's error is its own. */
static kolo_status add_moves(const compressor *c, kolo_node *encode, const kolo_placements *from,
                             const kolo_placements *to) {
    kolo_redistribution *moves = kolo_arena_alloc(&c->g->arena, 2 * sizeof *moves);
    if (!moves) return KOLO_NOMEM(2 * sizeof *moves);
    const kolo_placements own = on_axis(c, KOLO_PLACEMENT_LOCAL);
    moves[0] = (kolo_redistribution){*from, *to};
    moves[1] = (kolo_redistribution){own, own};
    encode->move = moves;
    return KOLO_OK;
}

/* A redistribution as that of `sum`, which it replaces. */
static kolo_value redistribute(compressor *c, kolo_value from, const kolo_placements *is,
                               const kolo_node *sum, const kolo_tensor *tensor) {
    kolo_value all = kolo_redistribute_as(c->g, from, is, &sum->move->to, tensor);
    if (!kolo_value_ok(all)) return all;
    kolo_node *n = c->g->nodes[kolo_info(c->g, all)->producer];
    n->attr[KOLO_REDISTRIBUTE_EARLY] = sum->attr[KOLO_REDISTRIBUTE_EARLY];
    c->order[c->n++] = n;
    return all;
}

/* A copy of v becomes the next version of a state. */
static kolo_status keep(compressor *c, kolo_value v, kolo_value state) {
    const kolo_tensor tensor = kolo_info(c->g, v)->tensor;
    const kolo_node *n = add(c, &kolo_op_reorder, &v, 1, 1, &tensor, NULL);
    if (n) kolo_info(c->g, n->out[0])->next_of = state;
    return kolo_graph_check(c->g);
}

/* The error of each rank. */
static kolo_value residual_of(compressor *c, kolo_value gradient, int32_t param) {
    kolo_value e = kolo_gradient_state(c->g, "residual", gradient, param, c->axis);
    if (kolo_value_ok(e)) kolo_info(c->g, e)->placements = on_axis(c, KOLO_PLACEMENT_LOCAL);
    return e;
}

/* The second factor of the last step, the same on all ranks. */
static kolo_value factor_of(compressor *c, const kolo_tensor *q, int32_t param) {
    char *name = kolo_format("optimizer.power.%s", c->g->values[param].name);
    if (!name) {
        kolo_graph_set_failed(c->g, KOLO_NOMEM(64));
        return KOLO_NONE;
    }
    kolo_value state = kolo_graph_state(c->g, name, (kolo_value){.id = param});
    kolo_free(name);
    if (!kolo_value_ok(state)) return state;
    kolo_value_info *info = kolo_info(c->g, state);
    info->tensor = *q;
    info->canon = q->shape;
    info->in_place = false;
    info->placements = (kolo_placements){0};
    return state;
}

static kolo_status factor(compressor *c, const kolo_node *sum, int32_t param) {
    kolo_graph *g = c->g;
    const kolo_value gradient = sum->in[0];
    const kolo_placements from = sum->move->from;
    const kolo_tensor tensor = kolo_info(g, gradient)->tensor;
    const int64_t rank = c->how->power_rank, rows = tensor.shape.dim[0];
    const int64_t columns = kolo_shape_count(&tensor.shape) / rows;
    const kolo_tensor p = kolo_tensor_plain(tensor.dtype, kolo_shape_2(rows, rank));
    const kolo_tensor q = kolo_tensor_plain(tensor.dtype, kolo_shape_2(rank, columns));
    kolo_value in[] = {gradient, residual_of(c, gradient, param), factor_of(c, &q, param)};
    const kolo_value state = in[2];
    KOLO_TRY(kolo_graph_check(g));
    kolo_node *project = add(c, &kolo_op_power_project, in, 3, 1, &p, NULL);
    if (!project) return kolo_graph_check(g);
    KOLO_TRY(add_moves(c, project, &from, &from));
    kolo_value whole = redistribute(c, project->out[0], &from, sum, &p);
    KOLO_TRY(kolo_graph_check(g));
    const kolo_node *basis = add(c, &kolo_op_power_basis, &whole, 1, 1, &p, NULL);
    if (!basis) return kolo_graph_check(g);
    in[2] = basis->out[0];
    kolo_node *back = add(c, &kolo_op_power_back, in, 3, 2, (kolo_tensor[]){q, tensor}, NULL);
    if (!back) return kolo_graph_check(g);
    KOLO_TRY(add_moves(c, back, &from, &from));
    whole = redistribute(c, back->out[0], &from, sum, &q);
    KOLO_TRY(kolo_graph_check(g));
    const kolo_value factors[] = {basis->out[0], whole};
    const kolo_node *product = add(c, &kolo_op_power_sum, factors, 2, 1, &tensor, NULL);
    if (!product) return kolo_graph_check(g);
    c->by[sum->out[0].id] = product->out[0];
    KOLO_TRY(keep(c, whole, state));
    return keep(c, back->out[1], in[1]);
}

/* The update of a sum, which alone reads it; NULL: there is none, or others read it too. */
static kolo_node *only_adam(const compressor *c, kolo_value sum) {
    kolo_node *adam = NULL;
    for (int32_t i = 0; i < c->n_nodes; i++) {
        kolo_node *n = c->g->nodes[i];
        for (int k = 0; k < n->n_in; k++) {
            if (n->in[k].id != sum.id) continue;
            if (adam || n->op != &kolo_op_adam || k != ADAM_GRADIENT) return NULL;
            adam = n;
        }
    }
    for (int32_t i = 0; i < c->g->n_outputs; i++) {
        if (c->g->outputs[i].value.id == sum.id) return NULL;
    }
    return adam;
}

/* What this rank adds to the momentum, whose sum its update takes in place of a gradient: a
 * rank's share of the old one, and its gradient, which is zero without samples. */
static kolo_status add_momentum_part(compressor *c, const kolo_node *sum, int32_t param,
                                     kolo_value *part) {
    kolo_node *adam = only_adam(c, sum->out[0]);
    if (!adam) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "1-bit Adam: the gradient of %s is not for an update of Adam alone",
                         c->g->values[param].name);
    }
    const double beta1 = adam->attr[KOLO_ADAM_BETA1].f, share = 1.0 / c->ranks;
    const double decay =
        adam->attr[KOLO_ADAM_DECOUPLED].i ? 0 : adam->attr[KOLO_ADAM_WEIGHT_DECAY].f;
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_MOMENTUM_PART].f = beta1 * share,
        [KOLO_MOMENTUM_OF_GRADIENT].f = 1 - beta1,
        [KOLO_MOMENTUM_OF_WEIGHT].f = (1 - beta1) * decay * share,
    };
    const kolo_value in[] = {sum->in[0], adam->in[ADAM_MEAN], adam->in[ADAM_WEIGHT]};
    const kolo_tensor tensor = kolo_info(c->g, sum->in[0])->tensor;
    kolo_node *n = add(c, &kolo_op_momentum_part, in, decay > 0 ? 3 : 2, 1, &tensor, attr);
    if (!n) return kolo_graph_check(c->g);
    KOLO_TRY(add_moves(c, n, &sum->move->from, &sum->move->from));
    adam->attr[KOLO_ADAM_FROZEN].i = c->how->frozen;
    *part = n->out[0];
    return KOLO_OK;
}

static kolo_status encode(compressor *c, const kolo_node *sum, int32_t param) {
    kolo_graph *g = c->g;
    const kolo_codec *codec = &c->how->codec;
    kolo_value gradient = sum->in[0];
    if (c->how->frozen > 0) KOLO_TRY(add_momentum_part(c, sum, param, &gradient));
    const kolo_tensor tensor = kolo_info(g, gradient)->tensor;
    const int64_t bytes = kolo_code_bytes(codec, kolo_tensor_elements(&tensor));
    const kolo_tensor code = kolo_tensor_plain(KOLO_DTYPE_U8, kolo_shape_1(bytes));
    const kolo_tensor codes = kolo_tensor_plain(KOLO_DTYPE_U8, kolo_shape_1(c->ranks * bytes));
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_CODE_KIND].i = codec->kind, [KOLO_CODE_RATIO].f = codec->ratio};
    const kolo_value in[] = {gradient, residual_of(c, gradient, param)};
    KOLO_TRY(kolo_graph_check(g));
    kolo_node *code_of = add(c, &kolo_op_encode, in, 2, 2, (kolo_tensor[]){code, tensor}, attr);
    if (!code_of) return kolo_graph_check(g);
    const kolo_placements own = on_axis(c, KOLO_PLACEMENT_LOCAL);
    KOLO_TRY(add_moves(c, code_of, &sum->move->from, &own));
    kolo_value all = redistribute(c, code_of->out[0], &own, sum, &codes);
    KOLO_TRY(kolo_graph_check(g));
    const kolo_node *decode = add(c, &kolo_op_decode, &all, 1, 1, &tensor, attr);
    if (!decode) return kolo_graph_check(g);
    c->by[sum->out[0].id] = decode->out[0];
    return keep(c, code_of->out[1], in[1]);
}

static kolo_status compress(compressor *c, const kolo_node *sum, int32_t param) {
    return c->how->power_rank > 0 ? factor(c, sum, param) : encode(c, sum, param);
}

/* Readers take what replaces a sum. */
static kolo_value replaced(const compressor *c, kolo_value v) {
    return v.id < c->n_values && kolo_value_ok(c->by[v.id]) ? c->by[v.id] : v;
}

/* Sums that can start at once are made right behind what they are of. */
static kolo_status visit(compressor *c, kolo_node *n) {
    int32_t param = compresses(c, n);
    for (int k = 0; k < n->n_in; k++) n->in[k] = replaced(c, n->in[k]);
    if (param < 0) {
        c->order[c->n++] = n;
    } else if (!kolo_value_ok(c->by[n->out[0].id])) {
        return compress(c, n, param);
    }
    for (int k = 0; k < n->n_out; k++) {
        int32_t early = c->early[n->out[k].id];
        if (early < 0) continue;
        const kolo_node *sum = c->g->nodes[early];
        KOLO_TRY(compress(c, sum, compresses(c, sum)));
    }
    return KOLO_OK;
}

static kolo_status walk(compressor *c) {
    kolo_graph *g = c->g;
    const int32_t n_nodes = g->n_nodes;
    kolo_find_gradients(g, c->param_of);
    for (int32_t v = 0; v < c->n_values; v++) {
        c->by[v] = KOLO_NONE;
        c->early[v] = -1;
    }
    for (int32_t i = 0; i < n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        bool early = compresses(c, n) >= 0 && n->attr[KOLO_REDISTRIBUTE_EARLY].i;
        if (early) c->early[n->in[0].id] = i;
    }
    for (int32_t i = 0; i < n_nodes; i++) KOLO_TRY(visit(c, g->nodes[i]));
    for (int32_t i = 0; i < g->n_outputs; i++) {
        g->outputs[i].value = replaced(c, g->outputs[i].value);
    }
    return kolo_graph_set_nodes(g, c->order, c->n);
}

kolo_status kolo_pass_residual_state(kolo_graph *g, const kolo_compression *how, int ranks,
                                     int rank) {
    const int32_t n_values = g->n_values;
    for (int32_t v = 0; v < n_values; v++) {
        const kolo_value_info *info = &g->values[v];
        const bool trained = info->kind == KOLO_VALUE_PARAM && kolo_value_ok(info->grad);
        if (!trained || kolo_tensor_bytes(&info->tensor) < how->min_bytes) continue;
        if (how->only && !kolo_name_matches(how->only, info->name)) continue;
        char *name = kolo_format("optimizer.residual.%s", info->name);
        if (!name) return KOLO_NOMEM(64);
        const kolo_value state = kolo_graph_state(g, name, (kolo_value){.id = v});
        kolo_free(name);
        KOLO_TRY(kolo_graph_check(g));
        if (ranks > 1) kolo_graph_make_local(g, state, ranks, rank);
    }
    return KOLO_OK;
}

kolo_status kolo_pass_compress(kolo_graph *g, const kolo_compression *how) {
    compressor c = {.g = g, .how = how, .n_values = g->n_values, .n_nodes = g->n_nodes};
    const size_t values = (size_t)g->n_values + 1, nodes = 8 * (size_t)g->n_nodes + 1;
    kolo_arena arena = {0};
    c.axis = kolo_mesh_find(&g->mesh, "dp");
    if (c.axis < 0 || g->mesh.axes[c.axis].size == 1) return KOLO_OK; /* nothing is sent */
    c.ranks = g->mesh.axes[c.axis].size;
    c.param_of = kolo_arena_alloc(&arena, values * sizeof *c.param_of);
    c.by = kolo_arena_alloc(&arena, values * sizeof *c.by);
    c.early = kolo_arena_alloc(&arena, values * sizeof *c.early);
    c.order = kolo_arena_alloc(&arena, nodes * sizeof *c.order);
    kolo_status status =
        c.param_of && c.by && c.early && c.order ? walk(&c) : KOLO_NOMEM(nodes * sizeof *c.order);
    kolo_arena_fini(&arena);
    return status;
}
