/* A lag of s steps: the update of step k uses the gradients of all ranks of step k - s. Each rank
 * keeps its own gradient for s steps, and the ranks sum what is s steps old while they compute the
 * next ones:
 *
 *     update(redistribute(g))  ->  update(redistribute(copy(q_s)))
 *                                  q_1' = g, q_2' = q_1, ..
 *
 * The copies stand at the beginning of the step, so that the sums overlap with all of it. Kept
 * gradients are LOCAL state, initially zero. Statistics and outputs are those of the step. */
#include "graph/ops/ops.h"
#include "pass/gradient_sums.h"
#include "pass/pass.h"

#include <stdio.h>
#include <string.h>

typedef struct delayer {
    kolo_graph *g;
    int steps, axis;
    int32_t *param_of; /* by value: the parameter of which it is the gradient; -1: none */
    int32_t n_values;  /* before values are added */
    kolo_node **first, **rest;
    int32_t n_first, n_rest;
} delayer;

static kolo_value copy_of(const delayer *d, kolo_value v, kolo_node **list, int32_t *n) {
    const kolo_tensor tensor = kolo_info(d->g, v)->tensor;
    kolo_node *copy = kolo_graph_add_raw(d->g, &kolo_op_reorder, &v, 1, 1, &tensor, NULL);
    if (!copy) return KOLO_NONE;
    list[(*n)++] = copy;
    return copy->out[0];
}

static kolo_status keep(delayer *d, kolo_value v, kolo_value state) {
    kolo_value copy = copy_of(d, v, d->rest, &d->n_rest);
    KOLO_TRY(kolo_graph_check(d->g));
    kolo_info(d->g, copy)->next_of = state;
    return KOLO_OK;
}

/* `sum` takes the gradient of `param` that is as old as the lag. The oldest is copied first: where
 * there is one version of everything, copies overwrite what is older. */
static kolo_status delay(delayer *d, kolo_node *sum, int32_t param, kolo_value *kept) {
    kept[0] = sum->in[0];
    for (int age = 1; age <= d->steps; age++) {
        char what[24];
        snprintf(what, sizeof what, "lag%d", age);
        kept[age] = kolo_gradient_state(d->g, what, kept[0], param, d->axis);
        KOLO_TRY(kolo_graph_check(d->g));
        kolo_info(d->g, kept[age])->placements = sum->move->from;
    }
    for (int age = d->steps; age >= 1; age--) KOLO_TRY(keep(d, kept[age - 1], kept[age]));
    kolo_value posted = copy_of(d, kept[d->steps], d->first, &d->n_first);
    KOLO_TRY(kolo_graph_check(d->g));
    kolo_info(d->g, (kolo_value){.id = param})->grad = posted;
    sum->in[0] = posted;
    sum->attr[KOLO_REDISTRIBUTE_EARLY].i = 1;
    return KOLO_OK;
}

static kolo_status walk(delayer *d, kolo_value *kept) {
    kolo_graph *g = d->g;
    const int32_t n_nodes = g->n_nodes;
    kolo_find_gradients(g, d->param_of);
    for (int32_t i = 0; i < n_nodes; i++) {
        int32_t param = kolo_summed_gradient(g, g->nodes[i], d->axis, d->param_of);
        if (param >= 0) KOLO_TRY(delay(d, g->nodes[i], param, kept));
        d->rest[d->n_rest++] = g->nodes[i];
    }
    memcpy((void *)(d->first + d->n_first), (void *)d->rest, (size_t)d->n_rest * sizeof *d->rest);
    return kolo_graph_set_nodes(g, d->first, d->n_first + d->n_rest);
}

kolo_status kolo_pass_lag(kolo_graph *g, int steps) {
    delayer d = {.g = g, .steps = steps, .axis = kolo_mesh_find(&g->mesh, "dp")};
    const size_t values = (size_t)g->n_values + 1;
    const size_t nodes = ((size_t)steps + 2) * ((size_t)g->n_nodes + 1);
    kolo_arena arena = {0};
    if (d.axis < 0) return KOLO_OK;
    d.param_of = kolo_arena_alloc(&arena, values * sizeof *d.param_of);
    d.first = kolo_arena_alloc(&arena, 2 * nodes * sizeof *d.first);
    d.rest = kolo_arena_alloc(&arena, nodes * sizeof *d.rest);
    kolo_value *kept = kolo_arena_alloc(&arena, ((size_t)steps + 1) * sizeof *kept);
    kolo_status status = d.param_of && d.first && d.rest && kept
                             ? walk(&d, kept)
                             : KOLO_NOMEM(nodes * sizeof *d.rest);
    kolo_arena_fini(&arena);
    return status;
}
