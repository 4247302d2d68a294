/* Compression of gradients, with error feedback. Every rank encodes its gradient plus the error of
 * the last step; the codes are gathered, and every rank decodes and adds them up:
 *
 *     redistribute(g)  ->  decode(gather(code))      code, error = encode(g, residual)
 *                                                    residual' = error
 *
 * The residual is LOCAL state: each rank has its own. Seide et al., "1-bit stochastic gradient
 * descent", 2014; Karimireddy et al., "Error feedback fixes SignSGD", 2019. */
#include "graph/ops/ops.h"
#include "pass/gradient_sums.h"
#include "pass/pass.h"

typedef struct compressor {
    kolo_graph *g;
    const kolo_codec *codec;
    size_t min_bytes;
    int axis, ranks;
    int32_t *param_of; /* by value: the parameter of which it is the gradient; -1: none */
    kolo_value *by;    /* by value: what replaces it, or KOLO_NONE */
    int32_t *early;    /* by value: the node that sums it, if it can start at once; -1: none */
    int32_t n_values;  /* before values are added */
    kolo_node **order;
    int32_t n;
} compressor;

/* The parameter whose gradient a node sums over the ranks, if it is large enough; -1: none. */
static int32_t compresses(const compressor *c, const kolo_node *n) {
    int32_t param = kolo_summed_gradient(c->g, n, c->axis, c->param_of);
    if (param < 0) return -1;
    return kolo_tensor_bytes(&kolo_info(c->g, n->in[0])->tensor) >= c->min_bytes ? param : -1;
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

/* Each rank's code and error are its own. */
static kolo_status add_moves(const compressor *c, kolo_node *encode,
                             const kolo_redistribution *of) {
    kolo_redistribution *moves = kolo_arena_alloc(&c->g->arena, 2 * sizeof *moves);
    if (!moves) return KOLO_NOMEM(2 * sizeof *moves);
    const kolo_placements own = on_axis(c, KOLO_PLACEMENT_LOCAL);
    moves[0] = (kolo_redistribution){of->from, own};
    moves[1] = (kolo_redistribution){own, own};
    encode->move = moves;
    return KOLO_OK;
}

static kolo_status compress(compressor *c, const kolo_node *sum, int32_t param) {
    kolo_graph *g = c->g;
    const kolo_redistribution move = *sum->move;
    const kolo_value gradient = sum->in[0];
    const kolo_tensor tensor = kolo_info(g, gradient)->tensor;
    const int64_t bytes = kolo_code_bytes(c->codec, kolo_tensor_elements(&tensor));
    const kolo_tensor code = kolo_tensor_plain(KOLO_DTYPE_U8, kolo_shape_1(bytes));
    const kolo_tensor codes = kolo_tensor_plain(KOLO_DTYPE_U8, kolo_shape_1(c->ranks * bytes));
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_CODE_KIND].i = c->codec->kind, [KOLO_CODE_RATIO].f = c->codec->ratio};
    const kolo_value in[] = {gradient,
                             kolo_gradient_state(g, "residual", gradient, param, c->axis)};
    KOLO_TRY(kolo_graph_check(g));
    kolo_info(g, in[1])->placements = on_axis(c, KOLO_PLACEMENT_LOCAL);
    kolo_node *encode = add(c, &kolo_op_encode, in, 2, 2, (kolo_tensor[]){code, tensor}, attr);
    if (!encode) return kolo_graph_check(g);
    KOLO_TRY(add_moves(c, encode, &move));
    const kolo_placements own = on_axis(c, KOLO_PLACEMENT_LOCAL);
    kolo_value all = kolo_redistribute_as(g, encode->out[0], &own, &move.to, &codes);
    KOLO_TRY(kolo_graph_check(g));
    kolo_node *gather = g->nodes[kolo_info(g, all)->producer];
    gather->attr[KOLO_REDISTRIBUTE_EARLY] = sum->attr[KOLO_REDISTRIBUTE_EARLY];
    c->order[c->n++] = gather;
    kolo_node *decode = add(c, &kolo_op_decode, &all, 1, 1, &tensor, attr);
    if (!decode) return kolo_graph_check(g);
    const kolo_node *keep = add(c, &kolo_op_reorder, &encode->out[1], 1, 1, &tensor, NULL);
    if (!keep) return kolo_graph_check(g);
    kolo_info(g, keep->out[0])->next_of = in[1];
    c->by[sum->out[0].id] = decode->out[0];
    return KOLO_OK;
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

kolo_status kolo_pass_compress(kolo_graph *g, const kolo_codec *codec, size_t min_bytes) {
    compressor c = {.g = g, .codec = codec, .min_bytes = min_bytes, .n_values = g->n_values};
    const size_t values = (size_t)g->n_values + 1, nodes = 4 * (size_t)g->n_nodes + 1;
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
