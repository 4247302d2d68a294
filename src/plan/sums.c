/* The sums of a plan, found from its POSTs and WAITs. */
#include "plan/sums.h"

#include "graph/ops/ops.h"
#include "pass/gradient_sums.h"
#include "plan/internal.h"

typedef struct finder {
    const kolo_graph *g;
    int32_t *param_of; /* by value: the parameter whose gradient it is; -1: none */
    kolo_plan_sum *sums;
    int n;
} finder;

/* The parameter whose gradient, maybe copied or accumulated, is posted; -1: none. */
static int32_t trained_by(const finder *f, kolo_value v) {
    for (;;) {
        int32_t producer = kolo_info(f->g, v)->producer;
        if (f->param_of[v.id] >= 0) return f->param_of[v.id];
        if (producer < 0) return -1;
        const kolo_op *op = f->g->nodes[producer]->op;
        if (op != &kolo_op_reorder && op != &kolo_op_accumulate) return -1;
        v = f->g->nodes[producer]->in[0];
    }
}

static bool is_sum(const kolo_graph *g, kolo_value v) {
    int32_t producer = kolo_info(g, v)->producer;
    return producer >= 0 && g->nodes[producer]->op->comm == KOLO_OP_WAIT;
}

/* The state that a node updates with the sum v, its i-th, as output i; KOLO_NONE: none. */
static kolo_value updated_with(const kolo_graph *g, const kolo_node *n, kolo_value v) {
    for (int k = 0, i = 0; k < n->n_in; k++) {
        if (n->in[k].id == v.id) {
            kolo_value old = i < n->n_out ? kolo_info(g, n->out[i])->next_of : KOLO_NONE;
            bool state = kolo_value_ok(old) && kolo_info(g, old)->kind == KOLO_VALUE_STATE;
            return state ? old : KOLO_NONE;
        }
        i += is_sum(g, n->in[k]);
    }
    return KOLO_NONE;
}

/* The state that is updated with the sum v; KOLO_NONE: there is none. */
static kolo_value state_of(const kolo_graph *g, kolo_value v) {
    kolo_value state = KOLO_NONE;
    for (int32_t i = 0; i < g->n_nodes && !kolo_value_ok(state); i++) {
        state = updated_with(g, g->nodes[i], v);
    }
    return state;
}

static const char *output_of(const kolo_graph *g, kolo_value v) {
    for (int32_t i = 0; i < g->n_outputs; i++) {
        if (g->outputs[i].value.id == v.id) return g->outputs[i].name;
    }
    return NULL;
}

static kolo_status add(finder *f, int32_t post, kolo_value posted, kolo_value arrived) {
    const kolo_graph *g = f->g;
    int32_t param = trained_by(f, posted);
    kolo_value state = state_of(g, arrived);
    kolo_plan_sum sum = {
        .post = post,
        .posted = posted,
        .arrived = arrived,
        .posts = kolo_tensor_elements(&kolo_info(g, posted)->tensor),
        .arrives = kolo_tensor_elements(&kolo_info(g, arrived)->tensor),
    };
    if (param >= 0) {
        sum.kind = KOLO_SUM_GRADIENT;
        sum.name = g->values[param].name;
    } else if (kolo_value_ok(state)) {
        sum.kind = KOLO_SUM_STATISTIC;
        sum.name = kolo_info(g, state)->name;
    } else {
        sum.kind = KOLO_SUM_METRIC;
        sum.name = output_of(g, arrived);
    }
    if (!sum.name || kolo_info(g, posted)->tensor.dtype != KOLO_DTYPE_F32) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "the plan exchanges more than f32 sums for updates and outputs");
    }
    f->sums[f->n++] = sum;
    return KOLO_OK;
}

/* Whether it is the squares of a range, of which others have the rest. */
static bool is_norm(const kolo_graph *g, kolo_value posted) {
    const int32_t producer = kolo_info(g, posted)->producer;
    return producer >= 0 && g->nodes[producer]->op == &kolo_op_square_blocks;
}

static kolo_status find(finder *f) {
    const kolo_graph *g = f->g;
    kolo_find_gradients(g, f->param_of);
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *wait = g->nodes[i];
        if (wait->op->comm != KOLO_OP_WAIT) continue;
        const int32_t node = kolo_info(g, wait->in[0])->producer;
        const kolo_node *post = g->nodes[node];
        if (post->attr[KOLO_COMM_COLLECTIVE].i == KOLO_COLLECTIVE_ALLGATHER) continue;
        for (int k = 0; k < wait->n_out; k++) {
            if (is_norm(g, post->in[k])) continue;
            KOLO_TRY(add(f, node, post->in[k], wait->out[k]));
        }
    }
    return KOLO_OK;
}

kolo_status kolo_plan_find_sums(const kolo_plan *plan, kolo_plan_sum **sums, int *count) {
    const kolo_graph *g = plan->graph;
    const size_t values = (size_t)g->n_values + 1;
    finder f = {.g = g};
    f.param_of = kolo_alloc(values * sizeof *f.param_of);
    f.sums = kolo_zalloc(values * sizeof *f.sums);
    kolo_status status = f.param_of && f.sums ? find(&f) : KOLO_NOMEM(values * sizeof *f.sums);
    kolo_free(f.param_of);
    if (status != KOLO_OK) {
        kolo_free(f.sums);
        return status;
    }
    *sums = f.sums;
    *count = f.n;
    return KOLO_OK;
}

kolo_status kolo_plan_find_norms(const kolo_plan *plan, kolo_plan_norm **norms, int *count) {
    const kolo_graph *g = plan->graph;
    const size_t bytes = ((size_t)g->n_values + 1) * sizeof **norms;
    kolo_plan_norm *list = kolo_alloc(bytes);
    int n = 0, s = 0;
    if (!list) return KOLO_NOMEM(bytes);
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *wait = g->nodes[i];
        while (s < plan->n_steps && plan->steps[s].node < i) s++;
        if (wait->op->comm != KOLO_OP_WAIT) continue;
        const kolo_node *post = g->nodes[kolo_info(g, wait->in[0])->producer];
        for (int k = 0; k < wait->n_out; k++) {
            if (!is_norm(g, post->in[k])) continue;
            list[n++] =
                (kolo_plan_norm){.step = s,
                                 .posted = post->in[k],
                                 .arrived = wait->out[k],
                                 .count = kolo_tensor_elements(&kolo_info(g, post->in[k])->tensor)};
        }
    }
    *norms = list;
    *count = n;
    return KOLO_OK;
}

/* The group of a node's inputs, of those by value; -1: none; -2: several. */
static int group_of(const kolo_node *n, const int *by_value) {
    int found = -1;
    for (int k = 0; k < n->n_in; k++) {
        const int own = by_value[n->in[k].id];
        if (own < 0 || own == found) continue;
        if (found >= 0) return -2;
        found = own;
    }
    return found;
}

static kolo_status follow_sums(const kolo_plan *p, int *by_value, int *by_node) {
    const kolo_graph *g = p->graph;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        by_node[i] = -1;
        if (n->op->comm == KOLO_OP_POST || n->op->comm == KOLO_OP_WAIT) continue;
        by_node[i] = group_of(n, by_value);
        if (by_node[i] == -2) {
            return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                             "%s reads the sums of several groups of parameters", n->op->name);
        }
        for (int k = 0; k < n->n_out; k++) by_value[n->out[k].id] = by_node[i];
    }
    return KOLO_OK;
}

kolo_status kolo_plan_group_updates(const kolo_plan *plan, const kolo_plan_sum *sums, int n_sums,
                                    const int *group, int *groups) {
    const kolo_graph *g = plan->graph;
    const size_t values = (size_t)g->n_values, nodes = (size_t)g->n_nodes;
    int *by_value = kolo_alloc((values + nodes + 1) * sizeof *by_value);
    if (!by_value) return KOLO_NOMEM((values + nodes) * sizeof *by_value);
    int *by_node = by_value + values;
    for (size_t v = 0; v < values; v++) by_value[v] = -1;
    for (int i = 0; i < n_sums; i++) by_value[sums[i].arrived.id] = group[i];
    kolo_status status = follow_sums(plan, by_value, by_node);
    for (int s = 0; s < plan->n_steps; s++) {
        const int32_t node = plan->steps[s].node;
        groups[s] = by_node[node];
        const bool alone =
            groups[s] < 0 && plan->steps[s].once_per_step && kolo_node_is_update(g, g->nodes[node]);
        if (status != KOLO_OK || !alone) continue;
        status = KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "%s is an update without a sum",
                           g->nodes[node]->op->name);
    }
    kolo_free(by_value);
    return status;
}
