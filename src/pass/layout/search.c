/* Layout search: the time of an assignment of layouts, from the estimates of the kernels, and the
 * choice of the fastest. */
#include "graph/ops/ops.h"
#include "kernel/select/cache.h"
#include "pass/layout/layout.h"

#include <math.h>

/* ---- nodes that do the same work ---- */

/* Whether two nodes differ in nothing but their values: kernels take equal times for them. */
static bool same_work(layouter *l, const kolo_node *a, const kolo_node *b) {
    if (a->op != b->op || a->n_in != b->n_in || a->n_out != b->n_out) return false;
    for (int i = 0; i < KOLO_MAX_ATTRS; i++) {
        if (a->attr[i].i != b->attr[i].i) return false; /* the bits, also of doubles */
    }
    for (int k = 0; k < a->n_in + a->n_out; k++) {
        const kolo_tensor *x = tensor_of(l, value_at(a, k)), *y = tensor_of(l, value_at(b, k));
        if (x->dtype != y->dtype || !kolo_shape_equal(&x->shape, &y->shape)) return false;
        if (is_image(l, a, k) != is_image(l, b, k)) return false;
    }
    return true;
}

/* Deep networks repeat their blocks: equal nodes share their memos. */
static void find_twins(layouter *l) {
    for (int32_t i = 0; i < l->g->n_nodes; i++) {
        int32_t j = 0;
        while (j < i && (l->twin[j] != j || !same_work(l, l->g->nodes[j], l->g->nodes[i]))) j++;
        l->twin[i] = j;
    }
}

/* ---- the time of an assignment ---- */

static double select_seconds(const layouter *l, kolo_kernel_spec *spec) {
    const kolo_kernel *kernel;
    double seconds;
    kolo_status status =
        kolo_kernel_select_cached(l->selections, l->kernels, l->tuner, spec, &kernel, &seconds);
    return status == KOLO_OK ? seconds : -1;
}

static double reorder_seconds(const layouter *l, const kolo_tensor *from, const kolo_tensor *to) {
    kolo_kernel_spec spec = {.op = &kolo_op_reorder,
                             .n_in = 1,
                             .n_out = 1,
                             .threads = l->threads,
                             .device = l->g->device};
    spec.in[0] = *from;
    spec.out[0] = *to;
    return select_seconds(l, &spec);
}

/* Tensor k of a node, its outputs after its inputs. */
static kolo_tensor *tensor_at(kolo_kernel_spec *spec, int k) {
    return k < spec->n_in ? &spec->in[k] : &spec->out[k - spec->n_in];
}

/* The time of a node with its images in a family, reorders included; negative: no kernel. */
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

/* The time of the best kernel for a node under the layouts of `spec`, or in a detour. Chooses the
 * layout of open weights. */
static double node_seconds(layouter *l, int32_t i, kolo_kernel_spec *spec) {
    const kolo_node *n = l->g->nodes[i];
    kolo_kernel_spec asked = *spec;
    const int w = weights_input(n->op);
    memo **memos = &l->memos[l->twin[i]];
    for (const memo *m = *memos; m; m = m->next) {
        bool same = true;
        for (int k = 0; same && k < spec->n_in; k++) {
            same = kolo_layout_equal(&m->asked.in[k].layout, &asked.in[k].layout);
        }
        for (int k = 0; same && k < spec->n_out; k++) {
            same = kolo_layout_equal(&m->asked.out[k].layout, &asked.out[k].layout);
        }
        if (!same) continue;
        if (w >= 0) spec->in[w].layout = m->weights;
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
        if (w >= 0) spec->in[w].layout = trial.in[w].layout;
    }
    memo *m = kolo_arena_alloc(&l->arena, sizeof *m);
    if (m) {
        *m = (memo){.next = *memos, .asked = asked, .detour = l->detour[i], .seconds = seconds};
        if (w >= 0) m->weights = spec->in[w].layout;
        *memos = m;
    }
    return seconds;
}

/* The time of one node. The first node that reads weights chooses their layout. */
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
    const int w = weights_input(n->op);
    component *weights = w >= 0 ? component_of(l, n->in[w]) : NULL;
    bool choose = weights && weights->kind == WEIGHT && !weights->fixed && !weights->chosen;
    if (choose) spec.in[w].layout = (kolo_layout){0};
    double seconds = node_seconds(l, i, &spec);
    if (choose && seconds >= 0) {
        weights->layout = spec.in[w].layout;
        weights->chosen = true;
    }
    if (seconds < 0 && weights && !choose) { /* no kernel takes this layout: try a reorder */
        spec.in[w].layout = (kolo_layout){0};
        seconds = node_seconds(l, i, &spec);
        l->reordered[i] = spec.in[w].layout;
        if (seconds >= 0) {
            seconds += kolo_kernel_seconds(0, 2.0 * (double)kolo_tensor_bytes(&spec.in[w]), 0.25);
        }
    }
    return seconds < 0 ? INFINITY : seconds;
}

/* The time of the current assignment; infinite if a node has no kernel for it. */
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

/* Improves one component while the others are fixed. */
static double improve(layouter *l, component *c, double best) {
    kolo_layout before = c->layout;
    int n = c->kind == INPUT ? N_INPUT_FAMILIES : N_FAMILIES;
    for (int f = 0; f < n; f++) {
        c->layout = l->families[f];
        double seconds = total_seconds(l);
        if (seconds < best * 0.999) { /* equal times keep the first, for stable choices */
            best = seconds;
            before = c->layout;
        }
    }
    c->layout = before;
    return best;
}

void kolo_layout_begin(layouter *l) { find_twins(l); }

bool kolo_layout_place_nodes(layouter *l) { return isfinite(total_seconds(l)); }

kolo_status kolo_layout_search(layouter *l) {
    double best = INFINITY;
    int best_family = 0, best_input = 0, n_components = 0;
    kolo_layout_begin(l);
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
    (void)total_seconds(l); /* chooses the weights for the final assignment */
    return KOLO_OK;
}
