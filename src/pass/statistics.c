/* Running statistics: adds the update of the running mean and variance of each batch normalization.
 *
 * Each rank has the mean and variance of its shard of the batch. Multiplied by its fraction of the
 * global batch, the scalar "share", they (or those of all ranks, which are the same) are summands
 * of their mean over the ranks, even if the fractions differ or are zero; the pass synchronize adds
 * them up. The running variance is unbiased, n / (n - 1) times that of the batch, as in PyTorch. */
#include "graph/ops/ops.h"
#include "pass/pass.h"

static kolo_value scaled(kolo_graph *g, kolo_value x, kolo_value share, double factor) {
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_SCALE_FACTOR].f = factor};
    return kolo_graph_add1(g, &kolo_op_scale, (kolo_value[]){x, share}, 2, attr);
}

/* The statistics of a batch that a node computes, and the running ones. */
typedef struct statistics {
    kolo_value running_mean, running_var, mean, var;
    double unbiased; /* factor of var */
    double momentum;
} statistics;

/* taken: by value, whether a state has an update already. */
static kolo_status update(kolo_graph *g, const statistics *s, kolo_value share, bool *taken) {
    const kolo_value mean = s->running_mean, var = s->running_var;
    if (taken[mean.id] || taken[var.id]) {
        return KOLO_FAIL(
            KOLO_ERR_UNSUPPORTED,
            "two batch_norm nodes share the running statistics \"%s\": give each its own",
            kolo_info(g, mean)->name);
    }
    taken[mean.id] = taken[var.id] = true;
    const kolo_value in[] = {
        mean,
        var,
        scaled(g, s->mean, share, 1),
        scaled(g, s->var, share, s->unbiased),
    };
    kolo_value out[KOLO_MAX_IO];
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_NORM_UPDATE_KEEP].f = 1 - s->momentum,
        [KOLO_NORM_UPDATE_FACTOR].f = s->momentum,
    };
    kolo_graph_add(g, &kolo_op_batch_norm_update, in, 4, attr, out);
    KOLO_TRY(kolo_graph_check(g));
    kolo_info(g, out[0])->next_of = mean;
    kolo_info(g, out[1])->next_of = var;
    return KOLO_OK;
}

static bool keeps_statistics(const kolo_graph *g, const kolo_node *n, statistics *s) {
    if (n->op == &kolo_op_batch_norm) {
        const kolo_shape *x = &kolo_info(g, n->in[0])->tensor.shape;
        double count = (double)(kolo_shape_count(x) / x->dim[1]);
        *s = (statistics){.running_mean = n->in[3],
                          .running_var = n->in[4],
                          .mean = n->out[1],
                          .var = n->out[2],
                          .unbiased = count > 1 ? count / (count - 1) : 1,
                          .momentum = n->attr[KOLO_NORM_MOMENTUM].f};
    } else if (n->op == &kolo_op_sync_norm_statistics) {
        *s = (statistics){.running_mean = n->in[1],
                          .running_var = n->in[2],
                          .mean = n->out[0],
                          .var = n->out[2],
                          .unbiased = 1, /* output 2 is */
                          .momentum = n->attr[KOLO_SYNC_NORM_MOMENTUM].f};
    } else {
        return false;
    }
    return kolo_info(g, s->running_mean)->kind == KOLO_VALUE_STATE &&
           kolo_info(g, s->running_var)->kind == KOLO_VALUE_STATE;
}

kolo_status kolo_pass_statistics(kolo_graph *g) {
    kolo_value share = kolo_graph_find(g, "share");
    const int32_t n_nodes = g->n_nodes;
    bool *taken = kolo_zalloc((size_t)g->n_values + 1);
    if (!taken) return KOLO_NOMEM(g->n_values);
    kolo_status status = KOLO_OK;
    for (int32_t i = 0; status == KOLO_OK && i < n_nodes; i++) {
        statistics s;
        if (!keeps_statistics(g, g->nodes[i], &s)) continue;
        if (!kolo_value_ok(share)) share = kolo_shard_leaf(g, kolo_scalar(g, "share"));
        status = update(g, &s, share, taken);
    }
    kolo_free(taken);
    return status == KOLO_OK ? kolo_graph_check(g) : status;
}
