/* The update of each parameter, as a node of the graph: SGD with momentum and weight decay. */
#include "graph/op.h"
#include "pass/pass.h"

static kolo_status update(kolo_graph *g, kolo_value w, kolo_value lr,
                          const kolo_optimizer_opts *opts) {
    kolo_value in[] = {w, kolo_info(g, w)->grad, lr, KOLO_NONE}, out[KOLO_MAX_IO];
    int n_in = 3;
    if (opts->momentum != 0) {
        char *name = kolo_format("optimizer.velocity.%s", kolo_info(g, w)->name);
        if (!name) return KOLO_NOMEM(64);
        in[n_in++] = kolo_graph_state(g, name, w);
        kolo_free(name);
    }
    kolo_attr attr[KOLO_MAX_ATTRS] = {0};
    attr[KOLO_SGD_MOMENTUM].f = opts->momentum;
    attr[KOLO_SGD_WEIGHT_DECAY].f = opts->weight_decay;
    attr[KOLO_SGD_NESTEROV].i = opts->nesterov;
    kolo_graph_add(g, &kolo_op_sgd, in, n_in, attr, out);
    KOLO_TRY(kolo_graph_check(g));
    kolo_info(g, out[0])->next_of = w;
    if (n_in == 4) kolo_info(g, out[1])->next_of = in[3];
    return KOLO_OK;
}

kolo_status kolo_pass_optimizer(kolo_graph *g, const kolo_optimizer_opts *opts) {
    kolo_value lr = kolo_graph_find(g, "lr");
    if (!kolo_value_ok(lr)) lr = kolo_scalar(g, "lr");
    const int32_t n_values = g->n_values;
    for (int32_t v = 0; v < n_values; v++) {
        if (g->values[v].kind == KOLO_VALUE_PARAM && kolo_value_ok(g->values[v].grad)) {
            KOLO_TRY(update(g, (kolo_value){v}, lr, opts));
        }
    }
    return kolo_graph_check(g);
}
