/* What the units of a model cost (cuts.h), from the graph that one rank would train.
 *
 * The pass units gives the nodes of the forward graph their unit, the gradient pass those that it
 * adds the negative one. Nodes that later passes add belong to the unit of what they read:
 * reorders, conversions, chains; updates to that of their parameter. */
#include "graph/ops/ops.h"
#include "kernel/select/cache.h"
#include "kernel/select/tune.h"
#include "pass/cuts.h"

#include <stdlib.h>
#include <string.h>

typedef struct counter {
    const kolo_graph *g;
    const kolo_pipeline_opts *opts;
    kolo_selections *selections;
    kolo_unit *units;
    int *unit;    /* by node: its unit, from 1; negative: of the backward pass */
    bool *once;   /* by node: it runs once per step */
    double *kept; /* by value: its bytes, if the backward pass reads it */
    double seconds, measured;
    kolo_arena arena;
} counter;

static bool is_leaf(const kolo_value_info *info) {
    return info->kind == KOLO_VALUE_PARAM || info->kind == KOLO_VALUE_STATE;
}

/* The unit of a node that has none yet: that of a value that it reads, else of a parameter. An
 * update belongs to its parameter. */
static int unit_by_inputs(const counter *c, const kolo_node *n) {
    const bool update = kolo_node_is_update(c->g, n);
    int by_value = 0, by_leaf = 0;
    for (int k = 0; k < n->n_in; k++) {
        const kolo_value_info *in = kolo_info(c->g, n->in[k]);
        if (is_leaf(in) && by_leaf == 0) by_leaf = in->of_unit;
        if (in->producer >= 0 && by_value == 0) by_value = c->unit[in->producer];
    }
    if (update) by_leaf = -by_leaf;
    const int unit = by_leaf == 0 || (by_value != 0 && !update) ? by_value : by_leaf;
    return unit != 0 ? unit : 1;
}

static void find_units(const counter *c) {
    for (int32_t i = 0; i < c->g->n_nodes; i++) {
        const kolo_node *n = c->g->nodes[i];
        c->once[i] = kolo_node_is_once_per_step(c->g, i, c->once);
        c->unit[i] = n->unit != 0 ? n->unit : unit_by_inputs(c, n);
    }
}

/* Adds the seconds of a node; those of an update count for each of the micro-batches. */
static void add_seconds(counter *c, int32_t i) {
    const kolo_node *n = c->g->nodes[i];
    const kolo_kernel *kernel;
    kolo_kernel_spec spec;
    double seconds;
    if (n->op->view || n->op->comm != KOLO_OP_LOCAL) return;
    kolo_kernel_spec_init(&spec, c->g, n, c->opts->threads);
    if (kolo_kernel_select_cached(c->selections, c->opts->kernels, c->opts->tuner, &spec, &kernel,
                                  &seconds) != KOLO_OK) {
        return; /* an op of the program without a kernel for it */
    }
    const double known =
        c->opts->tuner && !n->op->custom ? kolo_tuner_time(c->opts->tuner, kernel, &spec) : -1;
    if (known >= 0) seconds = known;
    if (c->once[i] && c->opts->micro_batches > 1) seconds /= (double)c->opts->micro_batches;
    c->units[abs(c->unit[i]) - 1].seconds += seconds;
    c->seconds += seconds;
    if (known >= 0) c->measured += seconds;
}

/* What a value is a view of. */
static kolo_value memory_of(const kolo_graph *g, kolo_value v) {
    for (;;) {
        const int32_t producer = kolo_info(g, v)->producer;
        if (producer < 0 || !g->nodes[producer]->op->view) return v;
        v = g->nodes[producer]->in[0];
    }
}

/* Values of the forward pass that the backward pass or a recomputation reads. */
static void add_kept(const counter *c) {
    const kolo_graph *g = c->g;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        if (c->once[i] || (c->unit[i] > 0 && !g->nodes[i]->recomputed)) continue;
        for (int k = 0; k < g->nodes[i]->n_in; k++) {
            const kolo_value v = memory_of(g, g->nodes[i]->in[k]);
            const int32_t producer = kolo_info(g, v)->producer;
            if (producer < 0 || c->unit[producer] < 0 || g->nodes[producer]->recomputed) continue;
            c->kept[v.id] = (double)kolo_tensor_bytes(&kolo_info(g, v)->tensor);
        }
    }
    for (int32_t v = 0; v < g->n_values; v++) {
        if (c->kept[v] > 0) c->units[c->unit[g->values[v].producer] - 1].kept += c->kept[v];
    }
}

/* Parameters and state, in two banks, and gradients. */
static void add_state(const counter *c) {
    const kolo_graph *g = c->g;
    for (int32_t v = 0; v < g->n_values; v++) {
        const kolo_value_info *info = &g->values[v];
        if (!is_leaf(info) || info->of_unit == 0) continue;
        kolo_unit *unit = &c->units[info->of_unit - 1];
        const double bytes = (double)kolo_tensor_bytes(&info->tensor);
        unit->state += info->in_place ? bytes : 2 * bytes;
        if (info->kind == KOLO_VALUE_PARAM && kolo_value_ok(info->grad)) unit->state += bytes;
    }
}

static kolo_status add_up(counter *c) {
    const size_t nodes = (size_t)c->g->n_nodes + 1, values = (size_t)c->g->n_values + 1;
    c->unit = kolo_arena_alloc(&c->arena, nodes * sizeof *c->unit);
    c->once = kolo_arena_alloc(&c->arena, nodes * sizeof *c->once);
    c->kept = kolo_arena_alloc(&c->arena, values * sizeof *c->kept);
    if (!c->unit || !c->once || !c->kept) return KOLO_NOMEM(values * sizeof *c->kept);
    find_units(c);
    for (int32_t i = 0; i < c->g->n_nodes; i++) add_seconds(c, i);
    add_kept(c);
    add_state(c);
    return KOLO_OK;
}

static kolo_status count(const kolo_graph *g, const kolo_pipeline_opts *opts,
                         kolo_unit_costs *costs) {
    const size_t bytes = (size_t)g->n_units * sizeof *costs->units;
    costs->n = g->n_units;
    costs->units = kolo_arena_alloc(&costs->arena, bytes);
    if (!costs->units) return KOLO_NOMEM(bytes);
    for (int u = 1; u < costs->n; u++) {
        costs->units[u].name = kolo_arena_strdup(&costs->arena, g->units[u]);
        if (!costs->units[u].name) return KOLO_NOMEM(64);
    }
    counter c = {.g = g, .opts = opts, .selections = opts->selections, .units = costs->units};
    const kolo_status status = add_up(&c);
    kolo_arena_fini(&c.arena);
    costs->measured = c.seconds > 0 ? c.measured / c.seconds : 0;
    return status;
}

kolo_status kolo_unit_costs_find(kolo_graph *g, const kolo_pipeline_opts *opts,
                                 kolo_unit_costs *costs) {
    kolo_selections selections = {0};
    kolo_pipeline_opts o = *opts;
    const int stages = kolo_mesh_find(&o.mesh, "pp");
    if (stages >= 0) o.mesh.axes[stages].size = 1;
    o.rank = 0;
    o.parts = (kolo_parts){0};
    o.splits = false;
    o.marks_units = true;
    o.selections = &selections;
    *costs = (kolo_unit_costs){0};
    kolo_status status = kolo_pipeline_run(g, &o);
    if (status == KOLO_OK) status = count(g, &o, costs);
    if (status != KOLO_OK) kolo_unit_costs_fini(costs);
    kolo_selections_fini(&selections);
    return status;
}

void kolo_unit_costs_fini(kolo_unit_costs *costs) {
    kolo_arena_fini(&costs->arena);
    *costs = (kolo_unit_costs){0};
}

/* ---- what cuts are chosen by ---- */

void kolo_cut_choice_fini(kolo_cut_choice *c) {
    kolo_unit_costs_fini(&c->costs);
    kolo_graph_destroy(c->graph);
}

kolo_status kolo_cut_choice_make(const kolo_cut_choice *c, kolo_text *lines) {
    kolo_stage_cuts cuts = {0};
    kolo_arena names = {0};
    const kolo_status status = kolo_pass_cuts(c->graph, &c->opts, &cuts, &names);
    for (int i = 0; status == KOLO_OK && i < cuts.n; i++) {
        kolo_text_add(lines, "%s\n", cuts.names[i]);
    }
    kolo_arena_fini(&names);
    return status;
}
