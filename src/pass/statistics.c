/* Running statistics: adds the update of the running mean and variance of each batch normalization.
 *
 * Each rank has the mean and variance of its shard of the batch. Multiplied by its fraction of the
 * global batch, the scalar "share", they (or those of all ranks, which are the same) are summands
 * of their mean over the ranks, even if the fractions differ or are zero; the pass synchronize adds
 * them up. The running variance is unbiased, n / (n - 1) times that of the batch, as in PyTorch.
 * Tensor parallelism in blocks (partition/blocks.c) divides normalization into nodes that each have
 * some of the channels, and read parts of the running statistics: their results are joined. */
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

static bool has_statistics(const kolo_graph *g, const kolo_node *n, statistics *s) {
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
    return true;
}

static bool is_state(const kolo_graph *g, kolo_value v) {
    return kolo_info(g, v)->kind == KOLO_VALUE_STATE;
}

/* The node that divides a state into v and others; NULL: there is none. */
static const kolo_node *divider_of(const kolo_graph *g, kolo_value v) {
    const kolo_value_info *info = kolo_info(g, v);
    const kolo_node *n = info->producer >= 0 ? g->nodes[info->producer] : NULL;
    return n && n->op == &kolo_op_deinterleave && is_state(g, n->in[0]) ? n : NULL;
}

/* The statistics of the node that reads this running mean; there is one. */
static statistics reader_of(const kolo_graph *g, kolo_value mean, int32_t n_nodes) {
    statistics s = {.running_mean = KOLO_NONE};
    for (int32_t i = 0; i < n_nodes && s.running_mean.id != mean.id; i++) {
        (void)has_statistics(g, g->nodes[i], &s);
    }
    KOLO_ASSERT(s.running_mean.id == mean.id);
    return s;
}

/* Makes the statistics of the first of several blocks those of all. */
static void join_blocks(kolo_graph *g, const kolo_node *divider, int32_t n_nodes, statistics *s) {
    kolo_value mean[KOLO_MAX_IO], var[KOLO_MAX_IO];
    for (int k = 0; k < divider->n_out; k++) {
        const statistics block = reader_of(g, divider->out[k], n_nodes);
        mean[k] = block.mean;
        var[k] = block.var;
    }
    s->mean = kolo_graph_add1(g, &kolo_op_interleave, mean, divider->n_out, divider->attr);
    s->var = kolo_graph_add1(g, &kolo_op_interleave, var, divider->n_out, divider->attr);
    s->running_var = divider_of(g, s->running_var)->in[0];
    s->running_mean = divider->in[0];
}

/* Whether a node updates running statistics, with those of the blocks that follow it. */
static bool keeps_statistics(kolo_graph *g, const kolo_node *n, int32_t n_nodes, statistics *s) {
    if (!has_statistics(g, n, s)) return false;
    const kolo_node *divider = divider_of(g, s->running_mean);
    if (!divider) return is_state(g, s->running_mean) && is_state(g, s->running_var);
    if (s->running_mean.id != divider->out[0].id) return false;
    join_blocks(g, divider, n_nodes, s);
    return true;
}

kolo_status kolo_pass_statistics(kolo_graph *g) {
    kolo_value share = kolo_graph_find(g, "share");
    const int32_t n_nodes = g->n_nodes;
    bool *taken = kolo_zalloc((size_t)g->n_values + 1);
    if (!taken) return KOLO_NOMEM(g->n_values);
    kolo_status status = KOLO_OK;
    for (int32_t i = 0; status == KOLO_OK && i < n_nodes; i++) {
        statistics s;
        if (!keeps_statistics(g, g->nodes[i], n_nodes, &s)) continue;
        if (!kolo_value_ok(share)) share = kolo_shard_leaf(g, kolo_scalar(g, "share"));
        status = update(g, &s, share, taken);
    }
    kolo_free(taken);
    return status == KOLO_OK ? kolo_graph_check(g) : status;
}
