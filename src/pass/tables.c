/* Tables at servers: takes parameters that embeddings look up out of the graph. The parameter
 * becomes an input, the rows that the embedding would read, which a session pulls for each batch;
 * the embedding goes. So nothing in the graph has the height of the table, and what the servers get
 * is the gradient of that input, which the gradient pass makes an output.
 *
 *     emb.weight [V,C], embedding(emb.weight, ids [N,T])    ->    input emb.weight [N,T,C] */
#include "graph/graph.h"
#include "graph/ops/ops.h"
#include "pass/pass.h"

#include <string.h>

static kolo_status refuse(const kolo_graph *g, kolo_value table, const char *why) {
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                     "--table %s: %s; a table at servers is looked up by one embedding, with an "
                     "input of the model",
                     kolo_info(g, table)->name, why);
}

/* The embedding is the only reader of the table, and reads nothing else. */
static kolo_status check(const kolo_graph *g, const kolo_node *n) {
    const kolo_value table = n->in[0];
    if (kolo_info(g, table)->tensor.dtype != KOLO_DTYPE_F32) {
        return refuse(g, table, "its elements are not f32");
    }
    if (n->n_in > 2) return refuse(g, table, "positions are added to its rows");
    if (kolo_info(g, n->in[1])->kind != KOLO_VALUE_INPUT) {
        return refuse(g, table, "its ids are computed");
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *other = g->nodes[i];
        for (int k = 0; k < other->n_in; k++) {
            if (other->in[k].id == table.id && other != n) {
                return refuse(g, table, "the model reads it in several places");
            }
        }
    }
    return KOLO_OK;
}

static bool is_looked_up(const kolo_graph *g, const kolo_node *n, const char *names) {
    if (!n->op->lookup) return false;
    const kolo_value_info *table = kolo_info(g, n->in[0]);
    return table->kind == KOLO_VALUE_PARAM && kolo_name_matches(names, table->name);
}

/* The table becomes its rows for the ids of a batch. */
static void make_input(kolo_graph *g, const kolo_node *n) {
    kolo_value_info *table = kolo_info(g, n->in[0]);
    const kolo_value_info *rows = kolo_info(g, n->out[0]);
    table->rows = table->tensor.shape.dim[0];
    table->kind = KOLO_VALUE_INPUT;
    table->tensor = rows->tensor;
}

bool kolo_is_pulled(const kolo_graph *g, int32_t value) {
    return g->values[value].kind == KOLO_VALUE_INPUT && g->values[value].rows > 0;
}

bool kolo_output_is_own(const kolo_graph *g, int32_t output) {
    char name[KOLO_GRADIENT_NAME];
    for (int32_t v = 0; v < g->n_values; v++) {
        if (!kolo_is_pulled(g, v)) continue;
        if (strcmp(g->outputs[output].name, kolo_gradient_name(v, name)) == 0) return true;
    }
    return false;
}

/* Every parameter that the patterns name is a table. */
static kolo_status check_names(const kolo_graph *g, const char *names) {
    KOLO_TRY(kolo_patterns_check(g, "table", names));
    for (int32_t v = 0; v < g->n_values; v++) {
        const kolo_value_info *info = &g->values[v];
        if (info->kind != KOLO_VALUE_PARAM || !kolo_name_matches(names, info->name)) continue;
        bool found = false;
        for (int32_t i = 0; i < g->n_nodes && !found; i++) {
            found = g->nodes[i]->op->lookup && g->nodes[i]->in[0].id == v;
        }
        if (!found) return refuse(g, (kolo_value){.id = v}, "no embedding looks it up");
    }
    return KOLO_OK;
}

static kolo_status take_out(kolo_graph *g, const char *names, kolo_value *alias,
                            kolo_node **order) {
    int32_t n = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        kolo_node *node = g->nodes[i];
        for (int k = 0; k < node->n_in; k++) node->in[k] = alias[node->in[k].id];
        if (!is_looked_up(g, node, names)) {
            order[n++] = node;
            continue;
        }
        KOLO_TRY(check(g, node));
        make_input(g, node);
        alias[node->out[0].id] = node->in[0];
    }
    KOLO_TRY(kolo_graph_set_nodes(g, order, n));
    for (int32_t i = 0; i < g->n_outputs; i++) {
        g->outputs[i].value = alias[g->outputs[i].value.id];
    }
    return KOLO_OK;
}

kolo_status kolo_pass_tables(kolo_graph *g, const char *names) {
    KOLO_TRY(check_names(g, names));
    kolo_value *alias = kolo_alloc(((size_t)g->n_values + 1) * sizeof *alias);
    kolo_node **order = kolo_alloc(((size_t)g->n_nodes + 1) * sizeof *order);
    kolo_status status = alias && order ? KOLO_OK : KOLO_NOMEM((size_t)g->n_values * sizeof *alias);
    for (int32_t v = 0; alias && v < g->n_values; v++) alias[v] = (kolo_value){.id = v};
    if (status == KOLO_OK) status = take_out(g, names, alias, order);
    kolo_free(alias);
    kolo_free((void *)order);
    return status;
}
