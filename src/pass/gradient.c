/* Reverse-mode automatic differentiation by the gradient rules of the ops.
 *
 * Forward: a value needs a gradient if a parameter reaches it. Backward, from the loss: for each
 * node whose output has a gradient, the rule of its op adds the nodes for the gradients of the
 * inputs that need one. The gradients of a value with several readers are summed, the last reader
 * first. */
#include "graph/ops/ops.h"
#include "pass/pass.h"

/* needs[v]: a parameter that is trained reaches v, on this stage or one before. */
static void mark_needs(const kolo_graph *g, bool *needs) {
    for (int32_t v = 0; v < g->n_values; v++) {
        needs[v] = g->values[v].kind == KOLO_VALUE_PARAM && !g->values[v].frozen;
        needs[v] |= g->values[v].crossing.wants || kolo_is_pulled(g, v);
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        bool any = false;
        for (int k = 0; k < n->n_in; k++) any |= needs[n->in[k].id];
        for (int k = 0; k < n->n_out; k++) needs[n->out[k].id] = any;
    }
}

static void accumulate(kolo_graph *g, kolo_value *sum, kolo_value part) {
    if (!kolo_value_ok(part)) return;
    *sum = kolo_value_ok(*sum) ? kolo_add(g, *sum, part) : part;
}

/* Differentiates one node: grad[] holds what has come so far, by value. */
static kolo_status differentiate(kolo_graph *g, const kolo_node *n, const bool *needs,
                                 kolo_value *grad) {
    kolo_value d_out[KOLO_MAX_IO], d_in[KOLO_MAX_IO];
    bool wants[KOLO_MAX_IO], any_out = false, any_in = false;
    for (int k = 0; k < n->n_out; k++) {
        d_out[k] = grad[n->out[k].id];
        any_out |= kolo_value_ok(d_out[k]);
    }
    for (int k = 0; k < n->n_in; k++) {
        wants[k] = needs[n->in[k].id];
        d_in[k] = KOLO_NONE;
        any_in |= wants[k];
    }
    if (!any_out || !any_in) return KOLO_OK;
    if (kolo_info(g, n->out[0])->tied.number > 0) return KOLO_OK; /* the gradient is sent */
    if (!n->op->grad) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "%s has no gradient rule, but is on the path from a parameter to the loss",
                         n->op->name);
    }
    const int32_t before = g->n_nodes;
    n->op->grad(g, n, d_out, wants, d_in);
    for (int32_t i = before; i < g->n_nodes; i++) g->nodes[i]->halo = n->halo; /* same windows */
    for (int k = 0; k < n->n_in; k++) {
        if (wants[k]) accumulate(g, &grad[n->in[k].id], d_in[k]);
    }
    for (int32_t i = before; i < g->n_nodes; i++) g->nodes[i]->unit = -n->unit;
    return kolo_graph_check(g);
}

/* The message that answers one of activations. */
static kolo_crossing gradient_of(const kolo_crossing *activations) {
    kolo_crossing crossing = *activations;
    crossing.gradient = true;
    crossing.wants = false;
    return crossing;
}

/* Whether a value is a parameter, or a view of one that another part of the model reads. */
static bool is_parameter(const kolo_value_info *info) {
    return info->kind == KOLO_VALUE_PARAM || info->tied.number > 0;
}

kolo_status kolo_answer_placements(const kolo_graph *g, const kolo_value_info *value,
                                   kolo_placements *gradient) {
    const int dp = kolo_mesh_find(&g->mesh, "dp");
    KOLO_TRY(kolo_placements_gradient(&g->mesh, &value->placements, gradient));
    if (is_parameter(value) && dp >= 0) {
        gradient->axis[dp] = (kolo_placement){.kind = KOLO_PLACEMENT_PARTIAL};
    }
    return KOLO_OK;
}

/* A leaf for the gradient of each value that later stages read: a seed. */
static kolo_status add_seeds(kolo_graph *g) {
    for (int32_t i = 0; i < g->n_outputs; i++) {
        const kolo_crossing crossing = g->outputs[i].crossing;
        if (!crossing.wants) continue;
        const kolo_value_info *info = kolo_info(g, g->outputs[i].value);
        kolo_placements placements;
        KOLO_TRY(kolo_answer_placements(g, info, &placements));
        char name[KOLO_CROSSING_NAME];
        kolo_value seed = kolo_input(g, kolo_crossing_name("gradient", crossing.number, name),
                                     info->tensor.dtype, info->tensor.shape);
        KOLO_TRY(kolo_graph_check(g));
        kolo_info(g, seed)->placements = placements;
        kolo_info(g, seed)->crossing = gradient_of(&crossing);
        g->outputs[i].gradient = seed;
    }
    return KOLO_OK;
}

/* A parameter is no message: the parts that read it answer each other with its gradient only. */
static void drop_tied(kolo_graph *g) {
    int32_t kept = 0;
    for (int32_t i = 0; i < g->n_outputs; i++) {
        const kolo_named_value *o = &g->outputs[i];
        const bool tied = o->crossing.wants && is_parameter(kolo_info(g, o->value));
        if (!tied) g->outputs[kept++] = *o;
    }
    g->n_outputs = kept;
}

/* The gradients that a stage before waits for, as outputs. */
static kolo_status add_sent(kolo_graph *g, int32_t n_values, const kolo_value *grad) {
    for (int32_t v = 0; v < n_values; v++) {
        const kolo_crossing crossing = *kolo_answered(&g->values[v]);
        if (!crossing.wants) continue;
        if (!kolo_value_ok(grad[v])) {
            return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                             "stage %d of the pipeline reads a value of the one before and has no "
                             "gradient for it: choose another number of stages",
                             g->stage);
        }
        char name[KOLO_CROSSING_NAME];
        kolo_output(g, kolo_crossing_name("gradient to the stage before", crossing.number, name),
                    grad[v]);
        KOLO_TRY(kolo_graph_check(g));
        g->outputs[g->n_outputs - 1].crossing = gradient_of(&crossing);
    }
    return KOLO_OK;
}

/* The gradients of the rows that this rank has pulled, as outputs. */
static kolo_status add_pulled(kolo_graph *g, int32_t n_values, const kolo_value *grad) {
    for (int32_t v = 0; v < n_values; v++) {
        char name[KOLO_GRADIENT_NAME];
        if (!kolo_is_pulled(g, v)) continue;
        if (!kolo_value_ok(grad[v])) {
            return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "the loss does not depend on the rows of %s",
                             g->values[v].name);
        }
        kolo_output(g, kolo_gradient_name(v, name), grad[v]);
        KOLO_TRY(kolo_graph_check(g));
    }
    return KOLO_OK;
}

kolo_status kolo_pass_gradient(kolo_graph *g, kolo_value loss, kolo_value seed) {
    KOLO_TRY(kolo_graph_check(g));
    bool seeded = (kolo_value_ok(loss) || g->stages > 0) && kolo_value_ok(seed);
    if (!seeded) {
        return KOLO_FAIL(KOLO_ERR_ARG, "the gradient needs a loss and a seed, both scalars");
    }
    KOLO_TRY(add_seeds(g));
    const int32_t n_values = g->n_values, n_nodes = g->n_nodes; /* of the forward graph */
    bool *needs = kolo_zalloc((size_t)n_values);
    kolo_value *grad = kolo_alloc((size_t)n_values * sizeof *grad);
    kolo_status status = KOLO_OK;
    if (!needs || !grad) {
        status = KOLO_NOMEM((size_t)n_values * sizeof *grad);
        goto done;
    }
    mark_needs(g, needs);
    for (int32_t v = 0; v < n_values; v++) grad[v] = KOLO_NONE;
    if (kolo_value_ok(loss)) grad[loss.id] = seed;
    for (int32_t i = 0; i < g->n_outputs; i++) {
        const kolo_named_value *sent = &g->outputs[i];
        if (sent->crossing.wants) accumulate(g, &grad[sent->value.id], sent->gradient);
    }
    for (int32_t i = n_nodes - 1; i >= 0; i--) {
        KOLO_TRY_GOTO(differentiate(g, g->nodes[i], needs, grad), done);
    }
    for (int32_t v = 0; v < n_values; v++) {
        if (g->values[v].kind == KOLO_VALUE_PARAM) g->values[v].grad = grad[v];
    }
    drop_tied(g);
    KOLO_TRY_GOTO(add_sent(g, n_values, grad), done);
    status = add_pulled(g, n_values, grad);
done:
    kolo_free(needs);
    kolo_free(grad);
    return status;
}
