/* Synchronized batch normalization: normalizes by the statistics of the samples of all ranks, so
 * that N ranks with B samples compute what one computes with N x B.
 *
 *     batch_norm(x, ...)  ->  s = redistribute(sync_norm_sums(x, running_mean, weight))
 *                             mean, var = sync_norm_statistics(s, ...)
 *                             sync_norm(x, gamma, beta, mean, var, weight)
 *
 * A rank adds up its samples about the running mean, which is the same on all ranks and close to
 * that of the batch, so that the variance, a difference of two means, loses little precision. The
 * scalar "sample_weight" is one over the samples of all ranks in the micro-batch. The sums are
 * PARTIAL where the samples are SHARDED, and redistributed to all ranks. Runs after the pass shard
 * and before statistics and the gradient, whose sums over the ranks the rule of sync_norm adds.
 * Where ranks have rows of images each (partition/rows.c), these nodes are there already and sum
 * over the rows alone; they get the samples. (PyTorch's SyncBatchNorm.) */
#include "graph/ops/ops.h"
#include "graph/propagate.h"
#include "pass/pass.h"

#include <string.h>

typedef struct synchronizer {
    kolo_graph *g;
    kolo_value weight;
    kolo_node **order;
    int32_t n;
} synchronizer;

/* Moves the nodes that were added since there were `before` into the order. */
static void place(synchronizer *s, int32_t before) {
    for (int32_t i = before; i < s->g->n_nodes; i++) s->order[s->n++] = s->g->nodes[i];
}

static kolo_status replace(synchronizer *s, kolo_node *n) {
    kolo_graph *g = s->g;
    const int32_t before = g->n_nodes;
    const kolo_shape *shape = &kolo_info(g, n->in[0])->tensor.shape;
    const int64_t plane = kolo_shape_count(shape) / (shape->dim[0] * shape->dim[1]);
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_SYNC_NORM_MOMENTUM] = n->attr[KOLO_NORM_MOMENTUM],
        [KOLO_SYNC_NORM_PLANE].i = plane,
    };
    const kolo_attr of_sums[KOLO_MAX_ATTRS] = {[KOLO_SYNC_SUMS_PLANE].i = plane};
    kolo_attr apply_attr[KOLO_MAX_ATTRS];
    memcpy(apply_attr, n->attr, sizeof apply_attr);
    apply_attr[KOLO_SYNC_NORM_PIXELS].i = plane;
    const kolo_value summed[] = {n->in[0], n->in[3], s->weight};
    kolo_value sums = kolo_graph_add1(g, &kolo_op_sync_norm_sums, summed, 3, of_sums);
    sums = kolo_sum_over_samples(g, sums, n->in[0], false);
    const kolo_value in[] = {sums, n->in[3], n->in[4], s->weight};
    kolo_value out[KOLO_MAX_IO];
    kolo_graph_add(g, &kolo_op_sync_norm_statistics, in, 4, attr, out);
    kolo_value apply[] = {n->in[0], n->in[1], n->in[2], out[0], out[1], s->weight, KOLO_NONE};
    if (n->n_in == 6) apply[6] = n->in[5];
    kolo_value y = kolo_graph_add1(g, &kolo_op_sync_norm, apply, n->n_in + 1, apply_attr);
    KOLO_TRY(kolo_graph_check(g));
    kolo_node *made = g->nodes[kolo_info(g, y)->producer];
    made->out[0] = n->out[0]; /* which others read */
    for (int32_t i = before; i < g->n_nodes - 1; i++) {
        for (int k = 0; k < g->nodes[i]->n_out; k++) {
            kolo_info(g, g->nodes[i]->out[k])->canon = (kolo_shape){0}; /* other ranks have more */
        }
        KOLO_TRY(kolo_node_propagate(g, g->nodes[i]));
    }
    place(s, before);
    return KOLO_OK;
}

/* A redistribution of what belonged to the samples of a rank: of sums, now over the samples too; of
 * statistics, which are those of all samples. */
static kolo_status widen_move(kolo_graph *g, kolo_node *n) {
    const int dp = kolo_mesh_find(&g->mesh, "dp");
    const int32_t producer = kolo_info(g, n->in[0])->producer;
    const bool sums = producer >= 0 && g->nodes[producer]->op == &kolo_op_sync_norm_sums;
    kolo_redistribution *move = kolo_arena_alloc(&g->arena, sizeof *move);
    if (!move) return KOLO_NOMEM(sizeof *move);
    *move = *n->move;
    move->from.axis[dp] = kolo_info(g, n->in[0])->placements.axis[dp];
    move->to.axis[dp] =
        sums ? (kolo_placement){.kind = KOLO_PLACEMENT_REPLICATED} : move->from.axis[dp];
    n->move = move;
    return KOLO_OK;
}

static bool is_of_samples(const kolo_graph *g, const kolo_node *n) {
    const int dp = kolo_mesh_find(&g->mesh, "dp");
    return n->op == &kolo_op_redistribute && dp >= 0 &&
           n->move->from.axis[dp].kind == KOLO_PLACEMENT_LOCAL;
}

/* The nodes that the pass partition makes of a normalization where each rank has some rows of the
 * images (partition/rows.c) sum over the rows of a rank's samples: now over all samples. */
static kolo_status widen(const synchronizer *s, kolo_node *n) {
    if (n->op == &kolo_op_sync_norm_sums) {
        n->attr[KOLO_SYNC_SUMS_OF_RANK].i = 0;
        n->in[2] = s->weight;
    } else if (n->op == &kolo_op_sync_norm_statistics) {
        n->in[3] = s->weight;
    } else if (n->op == &kolo_op_sync_norm) {
        n->attr[KOLO_SYNC_NORM_OF_RANK].i = 0;
        n->in[5] = s->weight;
    } else if (is_of_samples(s->g, n)) {
        KOLO_TRY(widen_move(s->g, n));
    } else {
        return KOLO_OK;
    }
    return kolo_node_propagate(s->g, n);
}

static kolo_status walk(synchronizer *s) {
    kolo_graph *g = s->g;
    const int32_t n_nodes = g->n_nodes;
    for (int32_t i = 0; i < n_nodes; i++) {
        kolo_node *n = g->nodes[i];
        if (n->op != &kolo_op_batch_norm) {
            KOLO_TRY(widen(s, n));
            s->order[s->n++] = n;
            continue;
        }
        if (kolo_value_is_read(g, n->out[1]) || kolo_value_is_read(g, n->out[2])) {
            return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "batch_norm: the graph reads its statistics, "
                                                   "which is not supported when synchronized");
        }
        KOLO_TRY(replace(s, n));
    }
    return kolo_graph_set_nodes(g, s->order, s->n);
}

int kolo_count_batch_norms(const kolo_graph *g) {
    int norms = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_op *op = g->nodes[i]->op;
        norms += op == &kolo_op_batch_norm || op == &kolo_op_sync_norm;
    }
    return norms;
}

kolo_status kolo_pass_sync_batch_norm(kolo_graph *g) {
    const int norms = kolo_count_batch_norms(g);
    if (norms == 0 && g->stages > 1) return KOLO_OK; /* other stages have them */
    if (norms == 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "the model has no batch normalization to synchronize: "
                                       "omit --sync-bn");
    }
    if (kolo_mesh_size(&g->mesh) == 1) return KOLO_OK; /* a rank alone has all samples */
    synchronizer s = {.g = g};
    s.weight = kolo_shard_leaf(g, kolo_graph_scalar(g, "sample_weight", g->dtype));
    KOLO_TRY(kolo_graph_check(g));
    size_t nodes = (size_t)g->n_nodes + 4 * (size_t)norms;
    s.order = kolo_alloc(nodes * sizeof *s.order);
    if (!s.order) return KOLO_NOMEM(nodes * sizeof *s.order);
    kolo_status status = walk(&s);
    kolo_free((void *)s.order);
    return status;
}
