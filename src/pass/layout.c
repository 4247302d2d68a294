/* Layout: in which order each value's elements lie, chosen by what the kernels say it costs.
 *
 * Values that must agree form *components*: the activations of one image size that a chain of
 * convolutions, pools and pointwise ops pass on; a parameter with its gradient, optimiser state and
 * next version. Each component of activations takes one of a few families (NCHW, NHWC, channels in
 * blocks of 8 or 16); each input is NCHW or NHWC, since that is what a loader can write; weights
 * are left open, and the first kernel that reads them chooses. Whatever else there is stays plain.
 *
 * The time of an assignment is the sum of what the best kernel of each node asks for (fit). A node
 * may make a *detour*: its activations are reordered into another family, for one node that is slow
 * or cannot run in the family around it, and for nodes between two regions. Families are tried for
 * all components together, then for one component at a time while the others stand. Where layouts
 * must change (in a detour, before a flatten that stayed, at an output that users read, for weights
 * that a kernel cannot take as they are) a reorder node stands, one for each value and layout;
 * those that turn out to change nothing go. */
#include "graph/op.h"
#include "pass/pass.h"

#include <math.h>
#include <string.h>

enum { N_FAMILIES = 4, N_INPUT_FAMILIES = 2 };
static const char *const family_names[N_FAMILIES] = {"abcd", "acdb", "aBcd8b", "aBcd16b"};

typedef enum component_kind {
    PLAIN,      /* nothing to choose */
    ACTIVATION, /* one of the families */
    INPUT,      /* one of the first two families */
    WEIGHT,     /* open until a kernel chooses, or fixed from outside */
} component_kind;

typedef struct component {
    component_kind kind;
    bool is_param, is_input, is_weight, is_activation, fixed;
    bool chosen;        /* WEIGHT: by a kernel, in the assignment at hand */
    kolo_layout layout; /* of the assignment at hand */
} component;

/* What the best kernel of a node said about one combination of layouts. */
typedef struct memo {
    struct memo *next;
    kolo_kernel_spec asked;
    kolo_layout weights; /* of input 1, chosen */
    int detour;          /* a family, or NO_DETOUR */
    double seconds;      /* negative: no kernel */
} memo;

enum { NO_DETOUR = -1 };

/* A value in the layout of a detour. */
typedef struct copy {
    struct copy *next;
    kolo_value value;
    kolo_layout layout;
} copy;

typedef struct layouter {
    kolo_graph *g;
    kolo_kernel_set kernels;
    struct kolo_tuner *tuner;
    int threads;
    kolo_layout families[N_FAMILIES];
    int32_t *root;          /* by value */
    component *components;  /* by root value */
    memo **memos;           /* by node */
    kolo_layout *reordered; /* by node: layout that its weights need first; rank 0: none */
    int *detour;            /* by node */
    copy **copies;          /* by value, while reorders are placed */
    kolo_arena arena;
} layouter;

static int32_t root_of(layouter *l, int32_t v) {
    while (l->root[v] != v) v = l->root[v] = l->root[l->root[v]];
    return v;
}

static component *component_of(layouter *l, kolo_value v) {
    return &l->components[root_of(l, v.id)];
}

static void join(layouter *l, kolo_value a, kolo_value b) {
    int32_t x = root_of(l, a.id), y = root_of(l, b.id);
    if (x == y) return;
    component *into = &l->components[x];
    const component *from = &l->components[y];
    into->is_param |= from->is_param;
    into->is_input |= from->is_input;
    into->is_weight |= from->is_weight;
    into->is_activation |= from->is_activation;
    l->root[y] = x;
}

/* ---- what must agree ---- */

static bool reads_weights(const kolo_op *op, int input) {
    return input == 1 &&
           (op == &kolo_op_conv2d || op == &kolo_op_conv2d_bwd_data || op == &kolo_op_linear ||
            op == &kolo_op_linear_gelu || op == &kolo_op_linear_bwd_data);
}

static bool makes_weights(const kolo_op *op, int output) {
    return output == 0 && (op == &kolo_op_conv2d_bwd_weights || op == &kolo_op_linear_bwd_weights);
}

static const kolo_tensor *tensor_of(const layouter *l, kolo_value v) {
    return &kolo_info(l->g, v)->tensor;
}

/* Images of one size. */
static bool same_size(const layouter *l, kolo_value a, kolo_value b) {
    const int64_t *x = tensor_of(l, a)->shape.dim, *y = tensor_of(l, b)->shape.dim;
    return x[2] == y[2] && x[3] == y[3];
}

/* Whether all that a node reads and makes, scalars aside, lies alike. */
static bool is_elementwise(const layouter *l, const kolo_node *n) {
    bool of_rows = n->op == &kolo_op_merge_rows || n->op->in_place;
    return n->op == &kolo_op_add || n->op == &kolo_op_convert ||
           (kolo_node_is_update(l->g, n) && n->op != &kolo_op_batch_norm_update && !of_rows);
}

/* Joins what one node makes agree. */
static void join_node(layouter *l, const kolo_node *n) {
    if (n->op->view || n->op == &kolo_op_reorder) return;
    kolo_value images[2] = {KOLO_NONE, KOLO_NONE}, equal = KOLO_NONE; /* a node has two sizes */
    for (int k = 0; k < n->n_in + n->n_out; k++) {
        bool input = k < n->n_in;
        kolo_value v = input ? n->in[k] : n->out[k - n->n_in];
        int rank = tensor_of(l, v)->shape.rank;
        if (input ? reads_weights(n->op, k) : makes_weights(n->op, k - n->n_in)) {
            component_of(l, v)->is_weight = true;
        } else if (is_elementwise(l, n)) {
            if (rank == 0) continue;
            if (kolo_value_ok(equal)) join(l, equal, v);
            equal = v;
        } else {
            component_of(l, v)->is_activation = true;
            if (rank != 4 || kolo_info(l->g, v)->kind == KOLO_VALUE_INPUT) continue;
            int size = kolo_value_ok(images[0]) && !same_size(l, images[0], v);
            if (kolo_value_ok(images[size])) join(l, images[size], v);
            images[size] = v;
        }
    }
}

static kolo_status find_components(layouter *l, kolo_fixed_layout fixed, void *arg) {
    kolo_graph *g = l->g;
    for (int32_t v = 0; v < g->n_values; v++) {
        kolo_value_kind kind = g->values[v].kind;
        l->root[v] = v;
        l->components[v].is_param = kind == KOLO_VALUE_PARAM || kind == KOLO_VALUE_STATE;
        l->components[v].is_input = kind == KOLO_VALUE_INPUT;
    }
    for (int32_t i = 0; i < g->n_nodes; i++) join_node(l, g->nodes[i]);
    for (int32_t v = 0; v < g->n_values; v++) {
        if (kolo_value_ok(g->values[v].grad)) join(l, (kolo_value){v}, g->values[v].grad);
    }
    for (int32_t v = 0; v < g->n_values; v++) {
        const kolo_value_info *info = &g->values[v];
        component *c = component_of(l, (kolo_value){v});
        kolo_tensor known;
        if (l->root[v] == v) {
            c->layout = kolo_layout_plain(info->tensor.shape.rank);
            bool image = info->tensor.shape.rank == 4 && !c->is_param && !c->is_weight;
            if (c->is_weight && !c->is_activation && !c->is_input) {
                c->kind = WEIGHT;
            } else if (image && c->is_input) {
                c->kind = INPUT;
            } else if (image && c->is_activation) {
                c->kind = ACTIVATION;
            }
        }
        if (fixed && info->name && c->is_param && fixed(arg, info->name, &known)) {
            if (!kolo_shape_equal(&known.shape, &info->tensor.shape)) {
                char have[KOLO_SHAPE_TEXT], want[KOLO_SHAPE_TEXT];
                return KOLO_FAIL(KOLO_ERR_ARG, "parameter %s is %s here and %s in the store",
                                 info->name, kolo_shape_text(&info->tensor.shape, want),
                                 kolo_shape_text(&known.shape, have));
            }
            c->fixed = true;
            c->layout = known.layout;
        }
    }
    return KOLO_OK;
}

/* ---- the time of an assignment ---- */

static double select_seconds(const layouter *l, kolo_kernel_spec *spec) {
    const kolo_kernel *kernel;
    double seconds;
    kolo_status status = kolo_kernel_select_tuned(l->kernels, l->tuner, spec, &kernel, &seconds);
    return status == KOLO_OK ? seconds : -1;
}

static double reorder_seconds(const layouter *l, const kolo_tensor *from, const kolo_tensor *to) {
    kolo_kernel_spec spec = {.op = &kolo_op_reorder, .n_in = 1, .n_out = 1, .threads = l->threads};
    spec.in[0] = *from;
    spec.out[0] = *to;
    return select_seconds(l, &spec);
}

/* Tensor k of a node, its outputs after its inputs. */
static kolo_tensor *tensor_at(kolo_kernel_spec *spec, int k) {
    return k < spec->n_in ? &spec->in[k] : &spec->out[k - spec->n_in];
}
static kolo_value *value_at(const kolo_node *n, int k) {
    return k < n->n_in ? &n->in[k] : &n->out[k - n->n_in];
}

/* Whether tensor k of a node takes part in its detours. */
static bool is_image(layouter *l, const kolo_node *n, int k) {
    component_kind kind = component_of(l, *value_at(n, k))->kind;
    return (kind == ACTIVATION || kind == INPUT) && tensor_of(l, *value_at(n, k))->shape.rank == 4;
}

/* The node with its images in a family, and reorders where they are not; negative: it cannot be. */
static double detour_seconds(layouter *l, const kolo_node *n, int family, kolo_kernel_spec *spec) {
    double reorders = 0;
    bool differs = false;
    for (int k = 0; k < n->n_in + n->n_out; k++) {
        kolo_tensor *t = tensor_at(spec, k), before = *t;
        if (!is_image(l, n, k) || kolo_layout_equal(&t->layout, &l->families[family])) continue;
        t->layout = l->families[family];
        double seconds =
            k < n->n_in ? reorder_seconds(l, &before, t) : reorder_seconds(l, t, &before);
        if (seconds < 0) return -1;
        reorders += seconds;
        differs = true;
    }
    double seconds = differs ? select_seconds(l, spec) : -1;
    return seconds < 0 ? -1 : seconds + reorders;
}

/* The best kernel for one node under the layouts of `spec`, or after a detour; its open weights are
 * chosen. */
static double node_seconds(layouter *l, int32_t i, kolo_kernel_spec *spec) {
    const kolo_node *n = l->g->nodes[i];
    kolo_kernel_spec asked = *spec;
    for (const memo *m = l->memos[i]; m; m = m->next) {
        bool same = true;
        for (int k = 0; same && k < spec->n_in; k++) {
            same = kolo_layout_equal(&m->asked.in[k].layout, &asked.in[k].layout);
        }
        for (int k = 0; same && k < spec->n_out; k++) {
            same = kolo_layout_equal(&m->asked.out[k].layout, &asked.out[k].layout);
        }
        if (!same) continue;
        if (spec->n_in > 1) spec->in[1].layout = m->weights;
        l->detour[i] = m->detour;
        return m->seconds;
    }
    double seconds = select_seconds(l, spec);
    l->detour[i] = NO_DETOUR;
    for (int f = 0; f < N_FAMILIES && n->op != &kolo_op_reorder; f++) {
        kolo_kernel_spec trial = asked;
        double other = detour_seconds(l, n, f, &trial);
        if (other < 0 || (seconds >= 0 && other >= seconds * 0.99)) continue;
        seconds = other;
        l->detour[i] = f;
        if (spec->n_in > 1) spec->in[1].layout = trial.in[1].layout;
    }
    memo *m = kolo_arena_alloc(&l->arena, sizeof *m);
    if (m) {
        *m =
            (memo){.next = l->memos[i], .asked = asked, .detour = l->detour[i], .seconds = seconds};
        if (spec->n_in > 1) m->weights = spec->in[1].layout;
        l->memos[i] = m;
    }
    return seconds;
}

/* Adds one node's time, choosing its weights' layout where it is the first to read them. */
static double place_node(layouter *l, int32_t i) {
    const kolo_node *n = l->g->nodes[i];
    kolo_kernel_spec spec;
    kolo_kernel_spec_init(&spec, l->g, n, l->threads);
    for (int k = 0; k < n->n_in; k++) spec.in[k].layout = component_of(l, n->in[k])->layout;
    for (int k = 0; k < n->n_out; k++) spec.out[k].layout = component_of(l, n->out[k])->layout;
    l->reordered[i].rank = 0;
    if (n->op == &kolo_op_reorder && kolo_layout_equal(&spec.in[0].layout, &spec.out[0].layout)) {
        return 0;
    }
    component *weights = NULL;
    if (n->n_in > 1 && reads_weights(n->op, 1)) weights = component_of(l, n->in[1]);
    bool choose = weights && weights->kind == WEIGHT && !weights->fixed && !weights->chosen;
    if (choose) spec.in[1].layout = (kolo_layout){0};
    double seconds = node_seconds(l, i, &spec);
    if (choose && seconds >= 0) {
        weights->layout = spec.in[1].layout;
        weights->chosen = true;
    }
    if (seconds < 0 && weights && !choose) { /* as it is no kernel takes it: through a reorder? */
        spec.in[1].layout = (kolo_layout){0};
        seconds = node_seconds(l, i, &spec);
        l->reordered[i] = spec.in[1].layout;
        if (seconds >= 0) {
            seconds += kolo_kernel_seconds(0, 2.0 * (double)kolo_tensor_bytes(&spec.in[1]), 0.25);
        }
    }
    return seconds < 0 ? INFINITY : seconds;
}

/* The time of the assignment at hand; infinite when some node has no kernel for it. */
static double total_seconds(layouter *l) {
    for (int32_t v = 0; v < l->g->n_values; v++) l->components[v].chosen = false;
    double total = 0;
    for (int32_t i = 0; i < l->g->n_nodes && isfinite(total); i++) {
        if (!l->g->nodes[i]->op->view) total += place_node(l, i);
    }
    return total;
}

/* Sets every component of a kind to a family. */
static void set_all(layouter *l, component_kind kind, int family) {
    for (int32_t v = 0; v < l->g->n_values; v++) {
        component *c = &l->components[v];
        if (l->root[v] == v && c->kind == kind && !c->fixed) c->layout = l->families[family];
    }
}

/* Improves one component while the others stand. */
static double improve(layouter *l, component *c, double best) {
    kolo_layout before = c->layout;
    int n = c->kind == INPUT ? N_INPUT_FAMILIES : N_FAMILIES;
    for (int f = 0; f < n; f++) {
        c->layout = l->families[f];
        double seconds = total_seconds(l);
        if (seconds < best * 0.999) { /* equal times keep the first: choices stay stable */
            best = seconds;
            before = c->layout;
        }
    }
    c->layout = before;
    return best;
}

static kolo_status search(layouter *l) {
    double best = INFINITY;
    int best_family = 0, best_input = 0, n_components = 0;
    for (int input = 0; input < N_INPUT_FAMILIES; input++) {
        for (int family = 0; family < N_FAMILIES; family++) {
            set_all(l, INPUT, input);
            set_all(l, ACTIVATION, family);
            double seconds = total_seconds(l);
            if (seconds < best * 0.999) {
                best = seconds;
                best_family = family;
                best_input = input;
            }
        }
    }
    if (!isfinite(best)) return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "%s", kolo_last_error());
    set_all(l, INPUT, best_input);
    set_all(l, ACTIVATION, best_family);
    for (int32_t v = 0; v < l->g->n_values; v++) {
        component_kind kind = l->components[v].kind;
        n_components += l->root[v] == v && (kind == ACTIVATION || kind == INPUT);
    }
    for (int32_t v = 0; v < l->g->n_values && n_components > 2; v++) {
        component *c = &l->components[v];
        if (l->root[v] != v || c->fixed) continue;
        if (c->kind == ACTIVATION || c->kind == INPUT) best = improve(l, c, best);
    }
    (void)total_seconds(l); /* leaves the weights chosen for the assignment that stays */
    return KOLO_OK;
}

/* ---- reorders ---- */

/* Puts a reorder of v at the end of the graph and gives its result. */
static kolo_value reorder_of(kolo_graph *g, kolo_value v) {
    return kolo_graph_add1(g, &kolo_op_reorder, &v, 1, NULL);
}

/* Before the search: a reorder at every place where a layout may have to change. Nodes are appended
 * by the builder; `order` is where they belong. */
static kolo_status add_borders(kolo_graph *g) {
    int32_t n_old = g->n_nodes, n = 0;
    kolo_node **order = kolo_alloc(((size_t)n_old * 3 + (size_t)g->n_outputs + 1) * sizeof *order);
    kolo_value *alias = kolo_alloc(((size_t)g->n_values + 1) * sizeof *alias);
    kolo_status status = KOLO_OK;
    if (!order || !alias) {
        status = KOLO_NOMEM((size_t)n_old * sizeof *order);
        goto done;
    }
    int32_t n_values = g->n_values;
    for (int32_t v = 0; v < n_values; v++) alias[v] = (kolo_value){v};
    for (int32_t i = 0; i < n_old; i++) {
        kolo_node *node = g->nodes[i];
        for (int k = 0; k < node->n_in; k++) node->in[k] = alias[node->in[k].id];
        if (node->op->view && kolo_info(g, node->in[0])->tensor.shape.rank == 4) {
            node->in[0] = reorder_of(g, node->in[0]);
            KOLO_TRY_GOTO(kolo_graph_check(g), done);
            order[n++] = g->nodes[g->n_nodes - 1];
        }
        order[n++] = node;
        if (node->op->view && kolo_info(g, node->out[0])->tensor.shape.rank == 4) {
            alias[node->out[0].id] = reorder_of(g, node->out[0]);
            KOLO_TRY_GOTO(kolo_graph_check(g), done);
            order[n++] = g->nodes[g->n_nodes - 1];
        }
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        kolo_value *v = &g->outputs[i].value;
        if (v->id < n_values) *v = alias[v->id];
        if (kolo_info(g, *v)->tensor.shape.rank != 4) continue;
        *v = reorder_of(g, *v);
        KOLO_TRY_GOTO(kolo_graph_check(g), done);
        order[n++] = g->nodes[g->n_nodes - 1];
    }
    for (int32_t v = 0; v < n_values; v++) {
        kolo_value *grad = &g->values[v].grad;
        if (kolo_value_ok(*grad) && grad->id < n_values) *grad = alias[grad->id];
    }
    status = kolo_graph_set_nodes(g, order, n);
done:
    kolo_free(order);
    kolo_free(alias);
    return status;
}

/* The nodes of the graph to be. */
typedef struct node_list {
    kolo_node **nodes;
    size_t count, capacity;
} node_list;

static kolo_status append(node_list *list, kolo_node *node) {
    if (!KOLO_GROW(list->nodes, list->count, list->capacity)) return KOLO_NOMEM(64);
    list->nodes[list->count++] = node;
    return KOLO_OK;
}

/* A new reorder of v into a layout, at the end of the list. */
static kolo_status append_reorder(layouter *l, node_list *list, kolo_value v, kolo_layout layout,
                                  kolo_value *to) {
    *to = reorder_of(l->g, v);
    KOLO_TRY(kolo_graph_check(l->g));
    kolo_info(l->g, *to)->tensor.layout = layout;
    return append(list, l->g->nodes[l->g->n_nodes - 1]);
}

/* v in a layout: itself, the copy that stands already, or a new one. */
static kolo_status in_layout(layouter *l, node_list *list, kolo_value v, kolo_layout layout,
                             kolo_value *to) {
    *to = v;
    if (kolo_layout_equal(&tensor_of(l, v)->layout, &layout)) return KOLO_OK;
    for (const copy *c = l->copies[v.id]; c; c = c->next) {
        *to = c->value;
        if (kolo_layout_equal(&c->layout, &layout)) return KOLO_OK;
    }
    copy *c = kolo_arena_alloc(&l->arena, sizeof *c);
    if (!c) return KOLO_NOMEM(sizeof *c);
    KOLO_TRY(append_reorder(l, list, v, layout, to));
    *c = (copy){.next = l->copies[v.id], .value = *to, .layout = layout};
    l->copies[v.id] = c;
    return KOLO_OK;
}

/* Appends a node with the reorders of its detour before and behind it; `images` says which of its
 * tensors take part. */
static kolo_status append_detour(layouter *l, node_list *list, kolo_node *node, int family,
                                 const bool *images) {
    kolo_layout layout = l->families[family];
    int n_behind = 0;
    kolo_node *behind[KOLO_MAX_IO];
    for (int k = 0; k < node->n_in; k++) {
        if (images[k]) KOLO_TRY(in_layout(l, list, node->in[k], layout, &node->in[k]));
    }
    for (int k = 0; k < node->n_out; k++) {
        kolo_value v = node->out[k];
        if (!images[node->n_in + k] || kolo_layout_equal(&tensor_of(l, v)->layout, &layout)) {
            continue;
        }
        /* The node makes a new value; a reorder makes the one that others read. */
        kolo_value made = reorder_of(l->g, v);
        KOLO_TRY(kolo_graph_check(l->g));
        kolo_info(l->g, made)->tensor.layout = layout;
        kolo_node *reorder = l->g->nodes[l->g->n_nodes - 1];
        reorder->in[0] = made;
        reorder->out[0] = v;
        node->out[k] = made;
        behind[n_behind++] = reorder;
    }
    KOLO_TRY(append(list, node));
    for (int k = 0; k < n_behind; k++) KOLO_TRY(append(list, behind[k]));
    return KOLO_OK;
}

/* After the search: writes the layouts into the values, adds the reorders that weights and detours
 * need, and drops those that change nothing. */
static kolo_status apply(layouter *l) {
    kolo_graph *g = l->g;
    int32_t n_old = g->n_nodes, n_values = g->n_values;
    node_list list = {0};
    kolo_value *alias = kolo_alloc(((size_t)n_values + 1) * sizeof *alias);
    kolo_status status = KOLO_OK;
    if (!alias) return KOLO_NOMEM((size_t)n_values * sizeof *alias);
    for (int32_t v = 0; v < n_values; v++) {
        alias[v] = (kolo_value){v};
        g->values[v].tensor.layout = component_of(l, (kolo_value){v})->layout;
    }
    for (int32_t i = 0; i < n_old; i++) {
        kolo_node *node = g->nodes[i];
        bool images[2 * KOLO_MAX_IO] = {false};
        int detour = node->op->view ? NO_DETOUR : l->detour[i];
        for (int k = 0; detour != NO_DETOUR && k < node->n_in + node->n_out; k++) {
            images[k] = is_image(l, node, k);
        }
        for (int k = 0; k < node->n_in; k++) node->in[k] = alias[node->in[k].id];
        if (node->op == &kolo_op_reorder &&
            kolo_layout_equal(&kolo_info(g, node->in[0])->tensor.layout,
                              &kolo_info(g, node->out[0])->tensor.layout)) {
            alias[node->out[0].id] = node->in[0];
            continue;
        }
        if (l->reordered[i].rank > 0) {
            KOLO_TRY_GOTO(append_reorder(l, &list, node->in[1], l->reordered[i], &node->in[1]),
                          done);
        }
        if (detour == NO_DETOUR) {
            KOLO_TRY_GOTO(append(&list, node), done);
        } else {
            KOLO_TRY_GOTO(append_detour(l, &list, node, detour, images), done);
        }
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        g->outputs[i].value = alias[g->outputs[i].value.id];
    }
    for (int32_t v = 0; v < n_values; v++) {
        kolo_value *grad = &g->values[v].grad;
        if (kolo_value_ok(*grad)) *grad = alias[grad->id];
    }
    status = kolo_graph_set_nodes(g, list.nodes, (int32_t)list.count);
done:
    kolo_free(list.nodes);
    kolo_free(alias);
    return status;
}

kolo_status kolo_pass_layout(kolo_graph *g, kolo_kernel_set kernels, struct kolo_tuner *tuner,
                             int threads, kolo_fixed_layout fixed, void *arg) {
    if (kernels == KOLO_KERNELS_REF) return KOLO_OK; /* all is plain already */
    KOLO_TRY(add_borders(g));
    layouter l = {.g = g, .kernels = kernels, .tuner = tuner, .threads = threads};
    kolo_status status = KOLO_OK;
    size_t n_values = (size_t)g->n_values + 1, n_nodes = (size_t)g->n_nodes + 1;
    l.root = kolo_arena_alloc(&l.arena, n_values * sizeof *l.root);
    l.components = kolo_arena_alloc(&l.arena, n_values * sizeof *l.components);
    l.memos = kolo_arena_alloc(&l.arena, n_nodes * sizeof(memo *));
    l.reordered = kolo_arena_alloc(&l.arena, n_nodes * sizeof *l.reordered);
    l.detour = kolo_arena_alloc(&l.arena, n_nodes * sizeof *l.detour);
    l.copies = kolo_arena_alloc(&l.arena, n_values * sizeof(copy *));
    if (!l.root || !l.components || !l.memos || !l.reordered || !l.detour || !l.copies) {
        status = KOLO_NOMEM(n_values * sizeof *l.components);
        goto done;
    }
    for (int f = 0; f < N_FAMILIES; f++) {
        KOLO_TRY_GOTO(kolo_layout_parse(family_names[f], &l.families[f]), done);
    }
    KOLO_TRY_GOTO(find_components(&l, fixed, arg), done);
    KOLO_TRY_GOTO(search(&l), done);
    status = apply(&l);
done:
    kolo_arena_fini(&l.arena);
    return status;
}
