/* Mixed precision: activations and their gradients in bf16, everything else in f32: parameters,
 * their gradients, statistics, losses. Micikevicius et al., "Mixed precision training", 2018, with
 * bf16, whose range needs no scaling of the loss (Kalamkar et al., "A study of bfloat16 for deep
 * learning training", 2019).
 *
 * One walk in node order. The descriptor of an op (op->bf16) lists the inputs that it reads in
 * bf16 (of the logarithm of a softmax none), its shape rule the types of its outputs. Where a value
 * has the other type, a `convert` node is inserted, one for all readers. If kernels multiply bf16,
 * parameters are converted once per step, and updates change the f32 value; otherwise parameters
 * stay f32. So do inputs of the graph.
 */
#include "graph/ops/ops.h"
#include "pass/pass.h"

typedef struct converter {
    kolo_graph *g;
    kolo_value *other; /* by value: its conversion to the other type, or KOLO_NONE */
    bool *as_it_is;   /* by value: an input of the graph or a parameter, or a view or part of one */
    int32_t n_values; /* before nodes are added */
    kolo_node **order;
    int32_t n;
} converter;

static kolo_dtype dtype_of(const converter *c, kolo_value v) {
    return kolo_info(c->g, v)->tensor.dtype;
}

/* v in `dtype`, converted at the current position of the walk if necessary. */
static kolo_value in_dtype(converter *c, kolo_value v, kolo_dtype dtype) {
    if (dtype_of(c, v) == dtype) return v;
    if (kolo_value_ok(c->other[v.id])) return c->other[v.id];
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_CONVERT_DTYPE].i = dtype};
    kolo_value made = kolo_graph_add1(c->g, &kolo_op_convert, &v, 1, attr);
    if (kolo_graph_check(c->g) != KOLO_OK) return v;
    c->order[c->n++] = c->g->nodes[c->g->n_nodes - 1];
    return c->other[v.id] = made;
}

static bool is_float(kolo_dtype dtype) {
    return dtype == KOLO_DTYPE_F32 || dtype == KOLO_DTYPE_BF16;
}

static bool any_is_half(const converter *c, const kolo_node *n) {
    for (int k = 0; k < n->n_in; k++) {
        if (dtype_of(c, n->in[k]) == KOLO_DTYPE_BF16) return true;
    }
    return false;
}

/* The inputs that a node reads in bf16. The logarithm of a softmax is part of a loss: its output
 * has as few digits as bf16, if it were that, and so does its gradient. */
static unsigned half_inputs(const kolo_node *n) {
    const bool softmax = n->op == &kolo_op_softmax || n->op == &kolo_op_softmax_bwd;
    return softmax && n->attr[KOLO_SOFTMAX_LOG].i ? 0 : n->op->bf16;
}

/* Converts each input to the type that the op reads. */
static void convert_inputs(converter *c, kolo_node *n) {
    const unsigned halves = half_inputs(n);
    if (n->op->bf16_joins && !any_is_half(c, n)) return;
    for (int k = 0; k < n->n_in; k++) {
        kolo_value v = n->in[k];
        if (!is_float(dtype_of(c, v))) continue;
        bool half = k < 32 && halves >> k & 1;
        if (!half) {
            n->in[k] = in_dtype(c, v, KOLO_DTYPE_F32);
        } else if (!c->as_it_is[v.id]) {
            n->in[k] = in_dtype(c, v, KOLO_DTYPE_BF16);
        }
    }
}

static kolo_status retype_outputs(const converter *c, const kolo_node *n) {
    kolo_tensor in[KOLO_MAX_IO], have[KOLO_MAX_IO], want[KOLO_MAX_IO];
    if (n->op->comm) { /* a redistribution */
        kolo_info(c->g, n->out[0])->tensor.dtype = dtype_of(c, n->in[0]);
        return KOLO_OK;
    }
    kolo_shape_query q = kolo_node_query(c->g, n, in, have);
    q.out = want;
    KOLO_TRY(n->op->shape(&q));
    for (int k = 0; k < n->n_out; k++) kolo_info(c->g, n->out[k])->tensor.dtype = want[k].dtype;
    return KOLO_OK;
}

static kolo_status convert_node(converter *c, kolo_node *n) {
    if (n->op->view || n->op == &kolo_op_deinterleave) {
        for (int k = 0; k < n->n_out; k++) c->as_it_is[n->out[k].id] = c->as_it_is[n->in[0].id];
    } else {
        convert_inputs(c, n);
        KOLO_TRY(kolo_graph_check(c->g));
    }
    c->order[c->n++] = n;
    return retype_outputs(c, n);
}

/* Outputs are f32, but for what another stage reads in bf16. */
static kolo_status convert_outputs(converter *c) {
    for (int32_t i = 0; i < c->g->n_outputs; i++) {
        kolo_named_value *o = &c->g->outputs[i];
        const kolo_dtype dtype = o->crossing.half ? KOLO_DTYPE_BF16 : KOLO_DTYPE_F32;
        if (is_float(dtype_of(c, o->value))) o->value = in_dtype(c, o->value, dtype);
    }
    return kolo_graph_check(c->g);
}

/* Values of other stages, activations and gradients, arrive as they have been sent. */
static void type_received(const converter *c) {
    for (int32_t v = 0; v < c->n_values; v++) {
        kolo_value_info *info = &c->g->values[v];
        if (!info->crossing.half) continue;
        info->tensor.dtype = KOLO_DTYPE_BF16;
        c->as_it_is[v] = false;
    }
}

kolo_status kolo_pass_precision(kolo_graph *g, bool narrow_parameters) {
    if (g->dtype != KOLO_DTYPE_F32) {
        return KOLO_FAIL(KOLO_ERR_ARG, "precision bf16 requires a model in f32; this one is in %s",
                         kolo_dtype_name(g->dtype));
    }
    converter c = {.g = g, .n_values = g->n_values};
    kolo_arena arena = {0};
    kolo_status status = KOLO_OK;
    const int32_t n_nodes = g->n_nodes;
    size_t n = (size_t)g->n_values;
    c.other = kolo_arena_alloc(&arena, n * sizeof *c.other);
    c.as_it_is = kolo_arena_alloc(&arena, n);
    c.order = kolo_arena_alloc(&arena, (n + (size_t)n_nodes) * sizeof *c.order);
    if (!c.other || !c.as_it_is || !c.order) {
        status = KOLO_NOMEM(n * sizeof *c.other);
        goto done;
    }
    for (int32_t v = 0; v < g->n_values; v++) {
        c.other[v] = KOLO_NONE;
        kolo_value_kind kind = g->values[v].kind;
        c.as_it_is[v] =
            kind == KOLO_VALUE_INPUT || (kind == KOLO_VALUE_PARAM && !narrow_parameters);
    }
    type_received(&c);
    for (int32_t i = 0; i < n_nodes; i++) {
        KOLO_TRY_GOTO(convert_node(&c, g->nodes[i]), done);
    }
    KOLO_TRY_GOTO(convert_outputs(&c), done);
    status = kolo_graph_set_nodes(g, c.order, c.n);
done:
    kolo_arena_fini(&arena);
    return status;
}

kolo_status kolo_pass_halves(kolo_graph *g, bool narrow_parameters) {
    kolo_graph *copy;
    KOLO_TRY(kolo_graph_copy(g, &copy));
    kolo_status status = kolo_pass_precision(copy, narrow_parameters);
    for (int32_t v = 0; v < g->n_values && status == KOLO_OK; v++) {
        g->values[v].half = copy->values[v].tensor.dtype == KOLO_DTYPE_BF16;
    }
    kolo_graph_destroy(copy);
    return status;
}
