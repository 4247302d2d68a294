#include "train/session/share.h"

#include "kolo/host_memory.h"
#include "train/session/internal.h"

enum { LARGE = 4 << 20 }; /* bytes of parameters, from which their memory counts */

/* By how much the slowest rank of a host takes longer for a step than each; the rates of a core, of
 * operations and of bytes in its caches. */
static const double waited = 0.02, flops_per_second = 100e9, bytes_per_second = 30e9;

/* Whether updates may run in the next step (pass/cross_step.c), and what is computed before them
 * may (pass/late_weights.c). */
static bool runs_ahead(const kolo_plan_opts *plan) {
    const kolo_optimizer_opts *o = &plan->optimizer;
    const bool norms =
        o->clip > 0 || o->kind == KOLO_OPTIMIZER_LARS || o->kind == KOLO_OPTIMIZER_LAMB;
    return plan->cross_step && !plan->completes && !norms && plan->zero == 0 && plan->shards == 0 &&
           plan->micro_batches <= 1 && !plan->sync_batch_norm;
}

kolo_status kolo_prefers_copies(const kolo_plan_opts *plan, int ranks, kolo_share_build *build,
                                const void *arg, bool *copies) {
    kolo_graph *g;
    double flops = 0, bytes = 0;
    *copies = false;
    if (!runs_ahead(plan)) return KOLO_OK;
    KOLO_TRY(build(arg, &g));
    for (int32_t i = 0; i < g->n_nodes; i++) flops += kolo_node_cost(g, g->nodes[i]).flops;
    for (int32_t v = 0; v < g->n_values; v++) {
        const bool param = g->values[v].kind == KOLO_VALUE_PARAM;
        if (param) bytes += (double)kolo_tensor_bytes(&g->values[v].tensor);
    }
    kolo_graph_destroy(g);
    const double step = 3 * flops / flops_per_second;   /* the backward pass has twice as many */
    const double update = 5 * bytes / bytes_per_second; /* three reads, two writes with momentum */
    *copies = bytes < LARGE && update * (1 - 1.0 / ranks) < waited * step;
    return KOLO_OK;
}

static kolo_status build_batch(const void *config, kolo_graph **graph) {
    const kolo_session_config *c = config;
    return kolo_session_build(c, c->batch, graph);
}

kolo_status kolo_session_prefers_copies(const kolo_session_config *c, int ranks, bool *copies) {
    kolo_plan_opts plan = c->plan;
    plan.micro_batches = c->accumulate;
    plan.shards = c->shards;
    return kolo_prefers_copies(&plan, ranks, build_batch, c, copies);
}

const char *kolo_session_unshared(const kolo_session_config *c, const kolo_comm *comm) {
    const int ranks = comm ? kolo_comm_size(comm) : 1;
    const bool hosts = ranks > 1 && kolo_comm_host_count(comm) > 1;
    const bool trees = c->shards > 0; /* of logical shards: any algorithm gives their sums */
    const struct {
        bool holds;
        const char *text;
    } reasons[] = {
        {ranks == 1 || c->evaluate_only, "one worker has them"},
        {c->served, "parameter servers have them"},
        {kolo_device_is_apart(c->device), "they are in memory of devices"},
        {kolo_mesh_has_model_axis(&c->plan.mesh), "the mesh divides layers"},
        {c->plan.tp_blocks > 0, "--tp-blocks divides layers"},
        {c->consistency.kind != KOLO_CONSISTENCY_BSP, "--consistency lets them differ"},
        {kolo_compresses(&c->plan.compression), "--compress keeps errors of whole gradients"},
        {c->plan.sparse_embedding, "--sparse-embedding updates tables in place"},
        {c->plan.keep_gradients, "the program reads whole gradients"},
        {c->measure_buckets || c->plan.n_bucket_sizes > 0, "--buckets sums whole gradients"},
        {hosts, "there are several hosts"},
        {c->copies, "copies of a small model let them run ahead of each other"},
        {ranks > 1 && !kolo_comm_shares_memory(comm), "the transport has no shared memory"},
        {ranks > 1 && !trees && !kolo_comm_sums_in_rank_order(comm, c->plan.algorithm),
         "the allreduce is not direct, so sums of ranges round differently"},
    };
    for (size_t i = 0; i < KOLO_COUNT(reasons); i++) {
        if (reasons[i].holds) return reasons[i].text;
    }
    return NULL;
}
