/* The layouts of a whole model. A stage of a pipeline sees its part of the model only, and would
 * choose other layouts for it, whose kernels may round differently. Where results must have the
 * bits of one worker, each stage first runs the passes on the whole model, takes the layouts of its
 * values, and compares what its nodes compute with the nodes of the whole. */
#include "base/rng.h"
#include "graph/ops/ops.h"
#include "pass/layout/layout.h"

#include <stdlib.h>

/* Elementwise ops, whose notation names no index, round alike in any layout. */
static bool is_elementwise(const kolo_op *op) {
    return op->index && !strpbrk(op->index, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
}

/* Whether a node computes activations or gradients, whose bits depend on its kernel. */
static bool computes(const kolo_graph *g, const kolo_node *n) {
    return n->op->comm == KOLO_OP_LOCAL && !n->op->view && n->op != &kolo_op_reorder &&
           !is_elementwise(n->op) && !kolo_node_is_update(g, n);
}

static uint64_t hash_tensor(uint64_t hash, const kolo_tensor *t) {
    char text[KOLO_LAYOUT_TEXT];
    const uint64_t facts[] = {hash, (uint64_t)t->dtype, (uint64_t)t->shape.rank,
                              kolo_hash_text(kolo_layout_text(&t->layout, text))};
    hash = kolo_hash_bytes(facts, sizeof facts);
    for (int d = 0; d < t->shape.rank; d++) hash = 31 * hash + (uint64_t)t->shape.dim[d];
    return hash;
}

/* What the kernel of a node is selected by. */
static uint64_t hash_work(const kolo_graph *g, const kolo_node *n) {
    uint64_t hash = kolo_hash_text(n->op->name);
    for (int i = 0; i < KOLO_MAX_ATTRS; i++) hash = 31 * hash + (uint64_t)n->attr[i].i;
    for (int k = 0; k < n->n_in + n->n_out; k++) {
        hash = hash_tensor(31 * hash + (uint64_t)n->n_in, &kolo_info(g, value_at(n, k))->tensor);
    }
    return hash;
}

static int by_value(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static bool is_of_images(const kolo_tensor *t) { return t->shape.rank == 4; }

/* The images of the model, but for copies in other layouts: of a reorder that the pass layout has
 * added, the newer value. */
static kolo_status take_images(const kolo_graph *g, kolo_whole_layouts *w) {
    bool *copied = kolo_arena_alloc(&w->arena, (size_t)g->n_values + 1);
    if (!copied) return KOLO_NOMEM(g->n_values);
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        if (n->op != &kolo_op_reorder) continue;
        copied[n->in[0].id > n->out[0].id ? n->in[0].id : n->out[0].id] = true;
    }
    for (int32_t v = 0; v < g->n_values; v++) {
        const kolo_tensor *t = &g->values[v].tensor;
        if (!w->known[v] || copied[v] || !is_of_images(t)) continue;
        w->work[w->n_work++] = hash_tensor(0, t);
    }
    return KOLO_OK;
}

kolo_status kolo_whole_layouts_take(const kolo_graph *g, kolo_whole_layouts *w) {
    const size_t values = (size_t)g->n_values + 1, hashes = (size_t)g->n_nodes + values;
    w->n_values = g->n_values;
    w->layouts = kolo_arena_alloc(&w->arena, values * sizeof *w->layouts);
    w->known = kolo_arena_alloc(&w->arena, values * sizeof *w->known);
    w->work = kolo_arena_alloc(&w->arena, hashes * sizeof *w->work);
    if (!w->layouts || !w->known || !w->work) return KOLO_NOMEM(values * sizeof *w->layouts);
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        if (computes(g, n)) w->work[w->n_work++] = hash_work(g, n);
        for (int k = 0; k < n->n_in + n->n_out; k++) {
            const kolo_value v = value_at(n, k);
            w->known[v.id] = true;
            w->layouts[v.id] = kolo_info(g, v)->tensor.layout;
        }
    }
    KOLO_TRY(take_images(g, w));
    qsort(w->work, w->n_work, sizeof *w->work, by_value);
    return KOLO_OK;
}

/* Gives v the layout of value `as` of the whole model. */
static void fix(layouter *l, const kolo_whole_layouts *w, kolo_value v, int32_t as) {
    component *c = component_of(l, v);
    if (as >= w->n_values || !w->known[as] || c->kind == PLAIN || c->fixed) return;
    c->fixed = true;
    c->layout = w->layouts[as];
}

static bool has(const kolo_whole_layouts *w, uint64_t hash) {
    return bsearch(&hash, w->work, w->n_work, sizeof hash, by_value) != NULL;
}

/* Values of the backward pass differ in their numbers: each takes the layout that all images of its
 * shape have in the whole model, if it is one. */
static void fix_by_shape(layouter *l, const kolo_whole_layouts *w, kolo_value v) {
    kolo_tensor t = *tensor_of(l, v);
    component *c = component_of(l, v);
    int found = -1;
    if (c->kind != ACTIVATION || c->fixed || !is_of_images(&t)) return;
    for (int f = 0; f < N_FAMILIES; f++) {
        t.layout = l->families[f];
        if (!has(w, hash_tensor(0, &t))) continue;
        if (found >= 0) return;
        found = f;
    }
    if (found < 0) return;
    c->fixed = true;
    c->layout = l->families[found];
}

/* What arrives from another stage or goes there, an activation or its gradient, has the layout of
 * the activation in the whole model on this side of its reorder. */
void kolo_layout_take_whole(layouter *l, const kolo_whole_layouts *w) {
    const kolo_graph *g = l->g;
    for (int32_t v = 0; v < g->n_whole; v++) fix(l, w, (kolo_value){.id = v}, v);
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        const int number = n->op == &kolo_op_reorder ? kolo_info(g, n->in[0])->crossing.number : 0;
        if (number > 0) fix(l, w, n->out[0], (number - 1) % g->n_whole);
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        const kolo_named_value *o = &g->outputs[i];
        const int32_t made = o->crossing.gradient ? kolo_info(g, o->value)->producer : -1;
        if (made < 0 || g->nodes[made]->op != &kolo_op_reorder) continue;
        fix(l, w, g->nodes[made]->in[0], (o->crossing.number - 1) % g->n_whole);
    }
    for (int32_t v = 0; v < g->n_values; v++) fix_by_shape(l, w, (kolo_value){.id = v});
}

kolo_status kolo_layout_check_whole(const kolo_graph *g, const kolo_whole_layouts *w) {
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        const uint64_t hash = computes(g, n) ? hash_work(g, n) : 0;
        if (hash == 0 || has(w, hash)) continue;
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "stage %d of the pipeline computes a %s in a form that one worker does "
                         "not, so that its bits may differ, and --reproducible was given: choose "
                         "another number of stages or --kernels ref",
                         g->stage, n->op->name);
    }
    return KOLO_OK;
}
