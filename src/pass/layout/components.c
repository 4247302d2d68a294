/* Layout components: values that must share a layout, from the layout letters of the ops. */
#include "pass/layout/layout.h"

static void join(layouter *l, kolo_value a, kolo_value b) {
    int32_t x = root_of(l, a.id), y = root_of(l, b.id);
    if (x == y) return;
    component *into = &l->components[x];
    const component *from = &l->components[y];
    into->is_param |= from->is_param;
    into->is_input |= from->is_input;
    into->is_weight |= from->is_weight;
    into->is_activation |= from->is_activation;
    into->is_plain |= from->is_plain;
    l->root[y] = x;
}

/* Images of one size. */
static bool same_size(const layouter *l, kolo_value a, kolo_value b) {
    const int64_t *x = tensor_of(l, a)->shape.dim, *y = tensor_of(l, b)->shape.dim;
    return x[2] == y[2] && x[3] == y[3];
}

/* Letter k of a descriptor's layout, outputs after inputs. */
static char letter_of(const kolo_node *n, int k) {
    return k < n->n_in ? n->op->layout.in[k] : n->op->layout.out[k - n->n_in];
}

/* Joins the values of one node that must share a layout. */
static void join_node(layouter *l, const kolo_node *n) {
    if (n->op->view) return;
    kolo_value images[2] = {KOLO_NONE, KOLO_NONE}, equal = KOLO_NONE; /* a node has two sizes */
    for (int k = 0; k < n->n_in + n->n_out; k++) {
        kolo_value v = value_at(n, k);
        int rank = tensor_of(l, v)->shape.rank;
        switch (letter_of(n, k)) {
        case 'w':
            component_of(l, v)->is_weight = true;
            break;
        case 'p':
            component_of(l, v)->is_plain = true;
            break;
        case 'e':
            if (rank == 0) break;
            if (kolo_value_ok(equal)) join(l, equal, v);
            equal = v;
            break;
        case 'a':
            component_of(l, v)->is_activation = true;
            if (rank != 4 || kolo_info(l->g, v)->kind == KOLO_VALUE_INPUT) break;
            int size = kolo_value_ok(images[0]) && !same_size(l, images[0], v);
            if (kolo_value_ok(images[size])) join(l, images[size], v);
            images[size] = v;
            break;
        default: /* 'x' */
            break;
        }
    }
}

/* Whether each rank has some of the rows of images. */
static bool divides_rows(const kolo_graph *g) {
    for (int32_t i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i]->halo) return true;
    }
    return false;
}

kolo_status kolo_layout_find_components(layouter *l, kolo_fixed_layout fixed, void *arg) {
    kolo_graph *g = l->g;
    const bool rows = divides_rows(g);
    for (int32_t v = 0; v < g->n_values; v++) {
        kolo_value_kind kind = g->values[v].kind;
        l->root[v] = v;
        l->components[v].is_param = kind == KOLO_VALUE_PARAM || kind == KOLO_VALUE_STATE;
        l->components[v].is_input = kind == KOLO_VALUE_INPUT;
        l->components[v].is_plain = g->values[v].crossing.number > 0;
    }
    for (int32_t i = 0; i < g->n_nodes; i++) join_node(l, g->nodes[i]);
    for (int32_t v = 0; v < g->n_values; v++) {
        if (kolo_value_ok(g->values[v].grad)) join(l, (kolo_value){.id = v}, g->values[v].grad);
    }
    for (int32_t v = 0; v < g->n_values; v++) {
        const kolo_value_info *info = &g->values[v];
        component *c = component_of(l, (kolo_value){.id = v});
        kolo_tensor known;
        if (l->root[v] == v) {
            c->layout = kolo_layout_plain(info->tensor.shape.rank);
            bool image = g->blocks == 0 && info->tensor.shape.rank == 4 && !c->is_param &&
                         !c->is_weight && !c->is_plain;
            if (c->is_weight && !c->is_activation && !c->is_plain && !c->is_input) {
                c->kind = WEIGHT;
            } else if (image && c->is_input) {
                c->kind = INPUT;
            } else if (image && c->is_activation) {
                c->kind = ACTIVATION;
            }
        }
        if (rows && c->is_param) { /* ranks have images of different sizes, and one choice */
            c->fixed = true;
            c->layout = kolo_layout_plain(info->tensor.shape.rank);
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
