/* Chains: elementwise nodes on tensors of one shape and layout become one node, whose kernel runs
 * them piece by piece (graph/ops/chain.h), so that what they pass on to each other stays in the
 * cache, and what no other node reads needs no memory.
 *
 *     %5 = silu(%3)  %6 = linear(...)  %7 = mul(%5, %6)  ->  %6 = linear(...)  %7 = chain(%3, %6)
 *
 * The nodes of a chain need not follow each other. It takes the place of the last one, as long as
 * the nodes between them read none of their results and update no parameters; these keep their
 * places. Then its place is fixed, and later nodes join if all that they read is made before it. No
 * chain extends beyond a POST or WAIT: what a POST sends is not delayed by nodes behind it. */
#include "graph/ops/binary.h"
#include "graph/ops/chain.h"
#include "graph/ops/ops.h"
#include "kernel/select/cache.h"
#include "pass/pass.h"

#include <string.h>

/* Other nodes between two links, before its place is fixed and after: memory is needed longer. */
enum { MOST_BETWEEN = 4 };

typedef struct maker {
    kolo_graph *g;
    const kolo_chains_opts *opts;
    kolo_selections own, *selections;
    int *uses;                      /* by value: readers, outputs of the graph included */
    bool *of_samples;               /* by node: it depends on inputs, not only through a WAIT */
    bool *once;                     /* by node: it runs once per step */
    bool *back;                     /* by node: it depends on the gradient of the loss */
    bool *gone;                     /* by node: part of a chain, but for its last link */
    int32_t link[KOLO_CHAIN_LINKS]; /* nodes of the chain that is open, in order */
    int n, between;
    int32_t home; /* the node whose place the chain takes */
    bool fixed;   /* no later one will be */
    kolo_chain chain;
    kolo_value in[KOLO_MAX_IO];
    int n_in;
} maker;

/* ---- which nodes may be links ---- */

static bool is_alike(const kolo_tensor *a, const kolo_tensor *b) {
    return kolo_shape_equal(&a->shape, &b->shape) && kolo_layout_equal(&a->layout, &b->layout);
}

/* Whether a rank's part of v is computed with as if it were whole. */
static bool is_partial(const kolo_graph *g, kolo_value v) {
    const kolo_placements *is = &kolo_info(g, v)->placements;
    for (int a = 0; a < g->mesh.n_axes; a++) {
        if (is->axis[a].kind == KOLO_PLACEMENT_PARTIAL) return true;
    }
    return false;
}

static bool is_one_shape(const kolo_graph *g, const kolo_node *n) {
    const kolo_tensor *y = &kolo_info(g, n->out[0])->tensor;
    if (y->shape.rank == 0 || kolo_shape_count(&y->shape) == 0) return false;
    if (kolo_tensor_elements(y) != kolo_shape_count(&y->shape)) return false;
    for (int k = 0; k < n->n_in; k++) {
        if (!is_alike(&kolo_info(g, n->in[k])->tensor, y) || is_partial(g, n->in[k])) return false;
    }
    return !is_partial(g, n->out[0]);
}

/* Whether a binary node repeats an input: that may have the shape of the others on this rank, where
 * the slice of a divided dimension is 1. */
static bool repeats_input(const kolo_node *n) {
#define IS_OP(X, name, join, linear, forward) || n->op == &kolo_op_##name
    const bool is_binary = false KOLO_BINARY_LIST(IS_OP, );
#undef IS_OP
    return is_binary &&
           (n->attr[KOLO_BINARY_REPEAT_A].i != 0 || n->attr[KOLO_BINARY_REPEAT_B].i != 0);
}

/* Whether the kernel that is selected for the node has a name that begins so. */
static bool is_run_by(maker *m, const kolo_node *n, const char *name) {
    const kolo_kernel *kernel;
    kolo_kernel_spec spec;
    kolo_kernel_spec_init(&spec, m->g, n, m->opts->threads);
    return kolo_kernel_select_cached(m->selections, m->opts->kernels, m->opts->tuner, &spec,
                                     &kernel, NULL) == KOLO_OK &&
           strncmp(kernel->name, name, strlen(name)) == 0;
}

static bool may_be_link(maker *m, int32_t i) {
    const kolo_graph *g = m->g;
    const kolo_node *n = g->nodes[i];
    if (!kolo_op_is_link(n->op) || n->n_out != 1 || n->n_in > KOLO_LINK_INPUTS) return false;
    if (!m->of_samples[i] || m->once[i] || kolo_node_is_update(g, n)) return false;
    for (int k = KOLO_LINK_ATTRS; k < KOLO_MAX_ATTRS; k++) {
        if (n->attr[k].i != 0) return false;
    }
    /* A vector kernel of its own: the chain then has the same bits. */
    return is_one_shape(g, n) && !repeats_input(n) && is_run_by(m, n, "simd_");
}

/* ---- the open chain ---- */

static bool reads_result(const maker *m, const kolo_node *n) {
    for (int k = 0; k < n->n_in; k++) {
        for (int l = 0; l < m->n; l++) {
            if (n->in[k].id == m->g->nodes[m->link[l]]->out[0].id) return true;
        }
    }
    return false;
}

/* The number of v as an input of a link: of the chain, or the result of a link; -1: neither. */
static int place_of(const maker *m, kolo_value v) {
    for (int l = 0; l < m->n; l++) {
        if (m->g->nodes[m->link[l]]->out[0].id == v.id) return KOLO_MAX_IO + l;
    }
    for (int k = 0; k < m->n_in; k++) {
        if (m->in[k].id == v.id) return k;
    }
    return -1;
}

/* Whether v is there at the place of the chain. */
static bool is_made_before(const maker *m, kolo_value v) {
    const kolo_value_info *info = kolo_info(m->g, v);
    if (info->kind == KOLO_VALUE_INPUT) return true;
    return info->kind == KOLO_VALUE_TEMP && info->producer < m->home;
}

/* Adds a node to the chain if it reads what links read or make and there is room. */
static bool join(maker *m, int32_t i) {
    const kolo_node *n = m->g->nodes[i];
    maker with = *m;
    kolo_attr attr[KOLO_MAX_ATTRS];
    bool connected = m->n == 0;
    if (m->n == KOLO_CHAIN_LINKS) return false;
    if (m->n > 0) {
        const kolo_node *last = m->g->nodes[m->link[m->n - 1]];
        if (!is_alike(&kolo_info(m->g, n->out[0])->tensor, &kolo_info(m->g, last->out[0])->tensor))
            return false;
        if (m->back[i] != m->back[m->link[m->n - 1]] || n->segment != last->segment ||
            n->chunk != last->chunk || n->recomputed != last->recomputed) {
            return false;
        }
    }
    kolo_chain_link *link = &with.chain.link[m->n];
    *link = (kolo_chain_link){
        .op = n->op, .dtype = kolo_info(m->g, n->out[0])->tensor.dtype, .n_in = n->n_in, .out = -1};
    for (int k = 0; k < n->n_in; k++) {
        link->in[k] = place_of(&with, n->in[k]);
        connected |= link->in[k] >= 0;
        if (link->in[k] >= 0) continue;
        if (with.n_in == KOLO_MAX_IO || (m->fixed && !is_made_before(m, n->in[k]))) return false;
        link->in[k] = with.n_in;
        with.in[with.n_in++] = n->in[k];
    }
    for (int k = 0; k < KOLO_LINK_ATTRS; k++) link->attr[k] = n->attr[k];
    with.link[with.n++] = i;
    with.chain.n = with.n;
    if (!connected || !kolo_chain_write(&with.chain, attr)) return false;
    *m = with;
    m->between = 0;
    if (!m->fixed) m->home = i;
    return true;
}

/* Readers of the result of link l among the links. */
static int uses_inside(const maker *m, int l) {
    int uses = 0;
    for (int later = l + 1; later < m->n; later++) {
        for (int k = 0; k < m->chain.link[later].n_in; k++) {
            uses += m->chain.link[later].in[k] == KOLO_MAX_IO + l;
        }
    }
    return uses;
}

/* Names the first output of the chain after its links, for dumps. */
static kolo_status name_links(maker *m, const kolo_node *node) {
    kolo_value_info *out = kolo_info(m->g, node->out[0]);
    kolo_text text = {0};
    kolo_chain_print(node->attr, &text);
    if (!out->name && text.text) out->name = kolo_arena_strdup(&m->g->arena, text.text);
    kolo_text_fini(&text);
    return out->name ? KOLO_OK : KOLO_NOMEM(sizeof text);
}

/* Makes the node at its place the chain, unless no vector kernel runs that: the bits and the gain
 * are that kernel's. */
static kolo_status make_chain(maker *m) {
    kolo_graph *g = m->g;
    kolo_value out[KOLO_CHAIN_LINKS];
    int n_out = 0;
    for (int l = m->n - 1; l >= 0; l--) { /* output 0 is that of the last link */
        const kolo_value made = g->nodes[m->link[l]]->out[0];
        if (l < m->n - 1 && m->uses[made.id] == uses_inside(m, l)) continue;
        m->chain.link[l].out = n_out;
        out[n_out++] = made;
    }
    kolo_value *values = kolo_arena_alloc(&g->arena, (size_t)(m->n_in + n_out) * sizeof *values);
    if (!values) return KOLO_NOMEM((size_t)(m->n_in + n_out) * sizeof *values);
    memcpy(values, m->in, (size_t)m->n_in * sizeof *values);
    memcpy(values + m->n_in, out, (size_t)n_out * sizeof *values);
    kolo_node chain = *g->nodes[m->home];
    KOLO_ASSERT(m->chain.link[m->n - 1].out == 0 && kolo_chain_write(&m->chain, chain.attr));
    chain.op = &kolo_op_chain;
    chain.in = values;
    chain.n_in = m->n_in;
    chain.out = values + m->n_in;
    chain.n_out = n_out;
    if (!is_run_by(m, &chain, "simd_chain")) return KOLO_OK;
    *g->nodes[m->home] = chain;
    for (int l = 0; l < m->n; l++) m->gone[m->link[l]] = m->link[l] != m->home;
    return name_links(m, g->nodes[m->home]);
}

/* Makes the open chain a node, if it has several links, and begins with none. */
static kolo_status close_chain(maker *m) {
    const kolo_status status = m->n < 2 ? KOLO_OK : make_chain(m);
    m->fixed = false;
    m->n = m->n_in = 0;
    return status;
}

/* Whether nodes must not move across this one: it starts or completes a collective, or makes what
 * one sends. */
static bool communicates(const kolo_op *op) {
    return op->comm != KOLO_OP_LOCAL && op->comm != KOLO_OP_SLICE;
}

/* Whether a node that is no link fixes the place of the chain before it. */
static bool fixes(const maker *m, const kolo_node *n) {
    if (kolo_node_is_update(m->g, n)) return true;
    for (int k = 0; k < n->n_out; k++) {
        if (kolo_value_ok(kolo_info(m->g, n->out[k])->next_of)) return true;
    }
    return reads_result(m, n) || (!n->op->view && m->between == MOST_BETWEEN);
}

/* ---- the pass ---- */

static void find_facts(maker *m) {
    const kolo_graph *g = m->g;
    const kolo_value seed = kolo_graph_find(g, "grad_scale");
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        m->once[i] = kolo_node_is_once_per_step(g, i, m->once);
        for (int k = 0; k < n->n_in; k++) {
            const kolo_value_info *in = kolo_info(g, n->in[k]);
            const bool is =
                in->kind == KOLO_VALUE_INPUT || (in->producer >= 0 && m->of_samples[in->producer]);
            m->uses[n->in[k].id]++;
            m->back[i] |= n->in[k].id == seed.id || (in->producer >= 0 && m->back[in->producer]);
            m->of_samples[i] |= is && n->op->comm != KOLO_OP_WAIT;
        }
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        m->uses[g->outputs[i].value.id]++;
        if (kolo_value_ok(g->outputs[i].gradient)) m->uses[g->outputs[i].gradient.id]++;
    }
    for (int32_t v = 0; v < g->n_values; v++) {
        if (kolo_value_ok(g->values[v].grad)) m->uses[g->values[v].grad.id]++;
    }
}

static kolo_status make_chains(maker *m) {
    kolo_graph *g = m->g;
    find_facts(m);
    for (int32_t i = 0; i < g->n_nodes; i++) {
        if (may_be_link(m, i)) {
            if (m->n > 0 && join(m, i)) continue;
            KOLO_TRY(close_chain(m));
            (void)join(m, i);
            continue;
        }
        if (m->n == 0) continue;
        if (communicates(g->nodes[i]->op)) {
            KOLO_TRY(close_chain(m));
            continue;
        }
        if (!m->fixed && fixes(m, g->nodes[i])) {
            m->fixed = true;
            m->between = 0;
        }
        m->between += !g->nodes[i]->op->view;
        if (m->fixed && m->between > MOST_BETWEEN) KOLO_TRY(close_chain(m));
    }
    KOLO_TRY(close_chain(m));
    int32_t kept = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        if (!m->gone[i]) g->nodes[kept++] = g->nodes[i];
    }
    return kolo_graph_set_nodes(g, g->nodes, kept);
}

kolo_status kolo_pass_chains(kolo_graph *g, const kolo_chains_opts *opts) {
    kolo_arena arena = {0};
    const size_t nodes = (size_t)g->n_nodes + 1, values = (size_t)g->n_values + 1;
    maker m = {
        .g = g,
        .opts = opts,
        .uses = kolo_arena_alloc(&arena, values * sizeof *m.uses),
        .of_samples = kolo_arena_alloc(&arena, nodes),
        .once = kolo_arena_alloc(&arena, nodes),
        .back = kolo_arena_alloc(&arena, nodes),
        .gone = kolo_arena_alloc(&arena, nodes),
    };
    m.selections = opts->selections ? opts->selections : &m.own;
    const bool has_memory = m.uses && m.of_samples && m.once && m.back && m.gone;
    const kolo_status status = has_memory ? make_chains(&m) : KOLO_NOMEM(values * sizeof *m.uses);
    kolo_selections_fini(&m.own);
    kolo_arena_fini(&arena);
    return status;
}
