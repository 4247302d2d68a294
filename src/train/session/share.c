#include "train/session/share.h"

#include "kolo/host_memory.h"

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
        {ranks > 1 && !kolo_comm_shares_memory(comm), "the transport has no shared memory"},
        {ranks > 1 && !trees && !kolo_comm_sums_in_rank_order(comm, c->plan.algorithm),
         "the allreduce is not direct, so sums of ranges round differently"},
    };
    for (size_t i = 0; i < KOLO_COUNT(reasons); i++) {
        if (reasons[i].holds) return reasons[i].text;
    }
    return NULL;
}
