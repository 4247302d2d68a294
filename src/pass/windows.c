/* Windows move towards what they are taken of, so that what nobody reads is not computed:
 *
 *     window(f(x, w)) -> f(window(x), w)
 *
 * if f does the same for each index of the dimension, by its index notation, and the window is the
 * only thing that is read of it. A transformer that classifies by one token thus computes the last
 * layer behind the attention for that token alone, and its gradients too.
 *
 * One walk against the order of nodes. A window is found before its maker, and waits for it: either
 * the maker takes it over, and asks for windows of its inputs, or the window stays. */
#include "graph/index.h"
#include "graph/ops/ops.h"
#include "pass/pass.h"

#include <string.h>

/* The windows of a value that are equal to the first one. */
typedef struct wanted {
    kolo_node *window; /* NULL: none */
    int32_t place;     /* in the new order; -1: to be inserted behind the maker */
    int readers;
} wanted;

typedef struct mover {
    kolo_graph *g;
    int *uses;         /* by value: readers, nodes and outputs */
    wanted *wanted;    /* by value */
    kolo_value *alias; /* by value: its replacement, or itself */
    kolo_node **order; /* the new order, from its end; NULL: none */
    int32_t n;
    bool moved;
} mover;

static bool is_same(const kolo_node *a, const kolo_attr *attr) {
    return a->attr[KOLO_WINDOW_FIRST].i == attr[KOLO_WINDOW_FIRST].i &&
           a->attr[KOLO_WINDOW_COUNT].i == attr[KOLO_WINDOW_COUNT].i &&
           a->attr[KOLO_WINDOW_AXIS].i == attr[KOLO_WINDOW_AXIS].i;
}

/* Whether a node takes a range of what a node computes, at most half of it: a window of each input
 * of an addition takes longer than one of its result, unless it is much smaller. */
static bool is_range(const kolo_graph *g, const kolo_node *n) {
    if (n->op != &kolo_op_window || kolo_info(g, n->in[0])->producer < 0) return false;
    const int64_t first = n->attr[KOLO_WINDOW_FIRST].i, count = n->attr[KOLO_WINDOW_COUNT].i;
    const int64_t length = kolo_info(g, n->in[0])->tensor.shape.dim[n->attr[KOLO_WINDOW_AXIS].i];
    return first >= 0 && first + count <= length && 2 * count <= length;
}

/* Whether dimension d of a term is an index, by itself. */
static bool is_index(const kolo_index_term *term, int d) {
    return term->code[d] != KOLO_INDEX_WHOLE && term->parts[d] == 1 && !term->window[d] &&
           !term->listed[d] && term->inner[d] == 0;
}

/* Attributes of a node may be of all that has an index, or state where it begins. */
static bool has_parts(const kolo_op *op, int code) {
    return op->part.index == '*' || op->part.index == code || op->part.dims || op->part.sample ||
           op->part.position;
}

/* Finds the dimension of each input that has the index of dimension `axis` of output 0; -1: none.
 * False: a range of that is not one of each of these. */
static bool find_axes(const kolo_graph *g, const kolo_node *n, int axis, int *of_input) {
    kolo_index index;
    bool any = false;
    if (n->op->custom || n->op->view || n->op->comm != KOLO_OP_LOCAL) return false;
    if (!kolo_op_has_index(n->op) || kolo_index_of(g, n, &index) != KOLO_OK) return false;
    if (!is_index(&index.out[0], axis) || has_parts(n->op, index.out[0].code[axis])) return false;
    const kolo_value_info *out = kolo_info(g, n->out[0]);
    const int64_t length = out->tensor.shape.dim[axis];
    for (int k = 0; k < n->n_in; k++) {
        const kolo_value_info *in = kolo_info(g, n->in[k]);
        const int d = of_input[k] = kolo_index_find(&index.in[k], index.out[0].code[axis]);
        if (d < 0) continue;
        if (d == 0 || !is_index(&index.in[k], d) || in->producer < 0) return false;
        if (in->tensor.shape.dim[d] != length || in->tensor.dtype != out->tensor.dtype)
            return false;
        any = true;
    }
    return any;
}

/* Whether the windows that wait for output 0 are all that is read of a node. */
static bool is_read_by_windows(const mover *m, const kolo_node *n) {
    const int32_t v = n->out[0].id;
    for (int k = 1; k < n->n_out; k++) {
        if (m->uses[n->out[k].id] > 0) return false;
    }
    return m->wanted[v].window && m->uses[v] == m->wanted[v].readers;
}

static void insert_window(mover *m, wanted *w) {
    if (w->place >= 0) m->order[w->place] = NULL;
    w->place = -1;
}

/* The window of an input, which is to stand before the node in hand. */
static kolo_status window_of(mover *m, kolo_value v, const kolo_attr *attr, kolo_value *window) {
    wanted *w = &m->wanted[v.id];
    if (w->window && is_same(w->window, attr)) {
        insert_window(m, w);
        w->readers++;
        *window = w->window->out[0];
        return KOLO_OK;
    }
    *window = kolo_graph_add1(m->g, &kolo_op_window, &v, 1, attr);
    KOLO_TRY(kolo_graph_check(m->g));
    kolo_node *made = m->g->nodes[m->g->n_nodes - 1];
    if (w->window) { /* another one waits */
        m->order[m->n++] = made;
    } else {
        *w = (wanted){.window = made, .place = -1, .readers = 1};
    }
    return KOLO_OK;
}

/* Makes the outputs of a node those of its inputs. */
static kolo_status infer(kolo_graph *g, const kolo_node *n) {
    kolo_tensor in[KOLO_MAX_IO], out[KOLO_MAX_IO];
    kolo_shape_query q = kolo_node_query(g, n, in, out);
    KOLO_TRY(n->op->shape(&q));
    for (int k = 0; k < n->n_out; k++) kolo_info(g, n->out[k])->tensor = out[k];
    return KOLO_OK;
}

/* Takes over the windows of a node, if it can: its output is then theirs. */
static kolo_status take_over(mover *m, kolo_node *n, bool *taken) {
    int axes[KOLO_MAX_IO];
    *taken = false;
    if (n->n_out == 0 || !is_read_by_windows(m, n)) return KOLO_OK;
    wanted *w = &m->wanted[n->out[0].id];
    kolo_attr attr[KOLO_MAX_ATTRS];
    memcpy(attr, w->window->attr, sizeof attr);
    if (!find_axes(m->g, n, (int)attr[KOLO_WINDOW_AXIS].i, axes)) return KOLO_OK;
    insert_window(m, w);
    n->out[0] = w->window->out[0];
    *w = (wanted){0};
    m->order[m->n++] = n;
    for (int k = 0; k < n->n_in; k++) {
        if (axes[k] < 0) continue;
        attr[KOLO_WINDOW_AXIS].i = axes[k];
        KOLO_TRY(window_of(m, n->in[k], attr, &n->in[k]));
    }
    *taken = m->moved = true;
    return infer(m->g, n);
}

static kolo_status visit(mover *m, kolo_node *n) {
    bool taken;
    KOLO_TRY(take_over(m, n, &taken));
    if (taken) return KOLO_OK;
    for (int k = 0; k < n->n_out; k++) {
        const wanted *w = &m->wanted[n->out[k].id];
        if (w->window && w->place < 0) m->order[m->n++] = w->window;
    }
    if (is_range(m->g, n)) {
        wanted *w = &m->wanted[n->in[0].id];
        if (!w->window) {
            *w = (wanted){.window = n, .place = m->n, .readers = 1};
        } else if (is_same(w->window, n->attr)) {
            insert_window(m, w);
            w->readers++;
            m->alias[n->out[0].id] = w->window->out[0];
            return KOLO_OK;
        }
    }
    m->order[m->n++] = n;
    return KOLO_OK;
}

static bool has_range(const kolo_graph *g) {
    for (int32_t i = 0; i < g->n_nodes; i++) {
        if (is_range(g, g->nodes[i])) return true;
    }
    return false;
}

/* Each input may get a window. */
static size_t most_windows(const kolo_graph *g) {
    size_t n = 1;
    for (int32_t i = 0; i < g->n_nodes; i++) n += (size_t)g->nodes[i]->n_in;
    return n;
}

static kolo_status set_order(mover *m) {
    kolo_graph *g = m->g;
    int32_t n = 0;
    for (int32_t i = 0; i < m->n; i++) {
        kolo_node *node = m->order[i];
        if (!node) continue;
        for (int k = 0; k < node->n_in; k++) node->in[k] = m->alias[node->in[k].id];
        m->order[n++] = node;
    }
    for (int32_t i = 0; i < n / 2; i++) {
        kolo_node *node = m->order[i];
        m->order[i] = m->order[n - 1 - i];
        m->order[n - 1 - i] = node;
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        g->outputs[i].value = m->alias[g->outputs[i].value.id];
    }
    return kolo_graph_set_nodes(g, m->order, n);
}

kolo_status kolo_pass_windows(kolo_graph *g) {
    const int32_t n_nodes = g->n_nodes;
    if (!has_range(g)) return KOLO_OK;
    const size_t values = (size_t)g->n_values + most_windows(g);
    kolo_status status = KOLO_OK;
    mover m = {.g = g};
    m.uses = kolo_zalloc(values * sizeof *m.uses);
    m.wanted = kolo_zalloc(values * sizeof *m.wanted);
    m.alias = kolo_alloc(values * sizeof *m.alias);
    m.order = kolo_alloc((values + (size_t)n_nodes) * sizeof *m.order);
    if (!m.uses || !m.wanted || !m.alias || !m.order) {
        status = KOLO_NOMEM(values * sizeof *m.wanted);
        goto done;
    }
    for (size_t v = 0; v < values; v++) m.alias[v] = (kolo_value){.id = (int32_t)v};
    for (int32_t i = 0; i < n_nodes; i++) {
        for (int k = 0; k < g->nodes[i]->n_in; k++) m.uses[g->nodes[i]->in[k].id]++;
    }
    for (int32_t i = 0; i < g->n_outputs; i++) m.uses[g->outputs[i].value.id]++;
    for (int32_t i = n_nodes - 1; i >= 0; i--) KOLO_TRY_GOTO(visit(&m, g->nodes[i]), done);
    if (m.moved) status = set_order(&m);
done:
    kolo_free(m.uses);
    kolo_free(m.wanted);
    kolo_free(m.alias);
    kolo_free((void *)m.order);
    return status;
}
