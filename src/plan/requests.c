/* The collectives of a plan: a persistent request, or a link of the mesh, for each POST, over its
 * bucket. */
#include "base/integer.h"
#include "comm/engine/request.h"
#include "comm/transport/transport.h"
#include "graph/propagate.h"
#include "plan/internal.h"

#include <stdlib.h>
#include <string.h>

/* The collective of flat shards in a bucket. `counts`: by rank, filled. */
static void shard_request(const kolo_plan *p, const kolo_bucket *bucket, size_t element, int ranks,
                          kolo_request_opts *opts, size_t *counts) {
    for (int r = 0; r < ranks; r++) {
        counts[r] = (bucket->ends[r] - (r > 0 ? bucket->ends[r - 1] : 0)) / element;
    }
    opts->kind = bucket->collective;
    opts->counts = counts;
    if (bucket->collective != KOLO_COLLECTIVE_REDUCE_SCATTER || bucket->in_place) return;
    opts->input = opts->output;
    opts->output = kolo_regions_host(p->store->regions, p->gradients + bucket->slice);
}

/* The allgather of rows; `arrives` is the output of the WAIT. */
static void rows_request(const kolo_plan *p, const kolo_node *post, kolo_value arrives,
                         kolo_request_opts *opts) {
    const kolo_tensor *first = &kolo_info(p->graph, post->in[0])->tensor;
    const void *own = kolo_plan_host(p, post->in[0].id, 0);
    void *all = kolo_plan_host(p, arrives.id, 0);
    *opts = (kolo_request_opts){
        .kind = KOLO_COLLECTIVE_ALLGATHER,
        .dtype = first->dtype,
        .input = own != all ? own : NULL, /* NULL: in place, one rank */
        .output = all,
        .count = (size_t)kolo_shape_count(&first->shape),
        .priority = opts->priority,
    };
}

/* The reduce-scatter of an activation, of which each rank gets an equal slice of the samples. */
static void slices_request(const kolo_plan *p, kolo_value arrives, int ranks,
                           kolo_request_opts *opts, size_t *counts) {
    const kolo_tensor *slice = &kolo_info(p->graph, arrives)->tensor;
    for (int r = 0; r < ranks; r++) counts[r] = (size_t)kolo_tensor_elements(slice);
    opts->kind = KOLO_COLLECTIVE_REDUCE_SCATTER;
    opts->counts = counts;
    opts->input = opts->output;
    opts->output = kolo_plan_host(p, arrives.id, 0);
}

/* Whether a POST sums blocks of tensor parallelism, along a tree: the rank has one node of it. */
static bool sums_blocks(const kolo_plan *p, const kolo_node *post) {
    return p->graph->blocks > 0 && post->attr[KOLO_COMM_OP].i == KOLO_SUM &&
           post->attr[KOLO_COMM_COLLECTIVE].i == KOLO_COLLECTIVE_ALLREDUCE;
}

/* The allreduce of the ranks of a group, of which each has a logical shard in the output. */
static void tree_request(const kolo_comm *group, kolo_request_opts *opts, kolo_part *part) {
    const int rank = kolo_comm_rank(group);
    uint32_t node[KOLO_SHARD_NODES];
    opts->shards = kolo_comm_size(group);
    (void)kolo_tree_range_nodes(opts->shards, rank, rank + 1, node);
    *part = (kolo_part){node[0], opts->output, opts->count};
    opts->parts = part;
    opts->n_parts = 1;
}

/* Where the values of a bucket are on the host side, in the plan's current slot while `bank` of the
 * store is current. */
static char *bucket_memory(const kolo_plan *p, const kolo_bucket *bucket, int bank) {
    if (kolo_value_ok(bucket->joins)) {
        return kolo_store_host(p->store, kolo_plan_entry(p, bucket->joins.id), !bank);
    }
    char *memory =
        bucket->of_model ? p->model + (size_t)p->slot * p->map.model_bytes : p->gradients;
    return kolo_regions_host(p->store->regions, memory + bucket->offset);
}

/* The name of a collective in errors, the same on all ranks of its group: the number of its bucket
 * among those of these axes. Ranks with slices of different sizes have different numbers of others,
 * and so have stages. */
static char *site_of(const kolo_plan *p, const kolo_node *post) {
    const kolo_graph *g = p->graph;
    const kolo_axes axes = (kolo_axes)post->attr[KOLO_COMM_AXES].i;
    const int pp = kolo_mesh_find(&g->mesh, "pp");
    int number = 0;
    if (g->stages > 0 && axes == (kolo_axes)1 << pp) return kolo_format("sum over the stages");
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        number += n->op->comm == KOLO_OP_POST && (kolo_axes)n->attr[KOLO_COMM_AXES].i == axes &&
                  n->attr[KOLO_COMM_BUCKET].i < post->attr[KOLO_COMM_BUCKET].i;
    }
    return kolo_format("bucket %d", number);
}

/* Whether the sums of a step and those inside the passes of the next one may all be in flight. Else
 * a sum that is behind the others delays the start of those. */
static bool all_fit(const kolo_plan *p) {
    int inside = 0;
    for (int i = 0; i < p->n_steps; i++) {
        inside += p->steps[i].kind == KOLO_STEP_POST && p->steps[i].inside;
    }
    return p->map.n_buckets + inside <= KOLO_FLIGHT_MAX;
}

/* The sum that the next step needs first goes before the others. */
static int priority_of(const kolo_plan *p, int bucket) {
    if (!all_fit(p)) return 0;
    for (int i = 0; i < p->n_deferred; i++) {
        const kolo_step *step = &p->steps[p->deferred[i].step];
        if (step->kind == KOLO_STEP_WAIT && step->bucket == bucket) return -1 - i;
    }
    return 0;
}

/* The collective of a POST in the plan's current slot, while `bank` of the store is current;
 * `arrives` is the output of its WAIT. */
static kolo_status make_request(kolo_plan *p, const kolo_node *post, kolo_value arrives, int bank) {
    int i = (int)post->attr[KOLO_COMM_BUCKET].i;
    const kolo_bucket *bucket = &p->map.buckets[i];
    /* Activations may be bf16. */
    const kolo_dtype dtype =
        bucket->ends ? p->graph->dtype : kolo_info(p->graph, post->in[0])->tensor.dtype;
    size_t element = kolo_dtype_bytes(dtype);
    kolo_request_opts opts = {
        .kind = KOLO_COLLECTIVE_ALLREDUCE,
        .dtype = dtype,
        .op = (kolo_reduce_op)post->attr[KOLO_COMM_OP].i,
        .output = bucket_memory(p, bucket, bank),
        .count = bucket->bytes / element,
        .algorithm = p->algorithm,
        .priority = priority_of(p, i),
    };
    kolo_part parts[KOLO_SHARD_NODES];
    kolo_comm *group = p->comm;
    if (p->groups) {
        KOLO_TRY(kolo_mesh_comms_get(p->groups, (kolo_axes)post->attr[KOLO_COMM_AXES].i, &group));
    }
    size_t *counts = kolo_zalloc((size_t)kolo_comm_size(p->comm) * sizeof *counts);
    char *site = site_of(p, post);
    kolo_status status = counts && site ? KOLO_OK : KOLO_NOMEM(32);
    if (status == KOLO_OK) {
        if (p->sum && post->attr[KOLO_COMM_OF_SAMPLES].i) {
            kolo_shard_sum_request(p->sum, kolo_regions_host(p->store->regions, p->gradients),
                                   bucket->offset, &opts, parts);
        } else if (sums_blocks(p, post)) {
            tree_request(group, &opts, parts);
        } else if (bucket->collective == KOLO_COLLECTIVE_BARRIER) {
            opts = (kolo_request_opts){.kind = KOLO_COLLECTIVE_BARRIER};
        } else if (bucket->ends) {
            const kolo_axes axes = (kolo_axes)post->attr[KOLO_COMM_AXES].i;
            shard_request(p, bucket, element, kolo_mesh_group_size(&p->graph->mesh, axes), &opts,
                          counts);
        } else if (bucket->collective == KOLO_COLLECTIVE_ALLGATHER) {
            rows_request(p, post, arrives, &opts);
        } else if (bucket->collective == KOLO_COLLECTIVE_REDUCE_SCATTER) {
            slices_request(p, arrives, kolo_comm_size(group), &opts, counts);
        }
        opts.site = site;
        kolo_request **request = kolo_plan_request_at(p, p->slot, i, bank);
        status = bucket->summands ? kolo_summands_create(group, &opts, request)
                                  : kolo_request_create(group, &opts, request);
        if (status == KOLO_OK && p->times) kolo_request_measure(*request);
    }
    kolo_free(site);
    kolo_free(counts);
    return status;
}

/* The tensor that the ranks of the axes along which a move changes placements hold together. A
 * dimension that is cut on one side is whole on the other, or in slices that are rotated: equal
 * ones, or of a length that the placement states. */
static kolo_shape whole_of(const kolo_mesh_link_opts *link, const kolo_shape *from,
                           const kolo_shape *to) {
    kolo_shape whole = *from;
    for (int d = 0; d < whole.rank; d++) whole.dim[d] = kolo_max_i64(from->dim[d], to->dim[d]);
    for (int a = 0; a < link->mesh->n_axes; a++) {
        const kolo_placement *was = &link->from.axis[a], *is = &link->to.axis[a];
        const bool cut = was->kind == KOLO_PLACEMENT_SHARDED && is->kind == KOLO_PLACEMENT_SHARDED;
        const kolo_halo *halo = was->halo ? was->halo : is->halo;
        if (!cut || was->dim != is->dim) continue;
        const int64_t length = halo ? halo->length : is->length;
        if (length > 0) {
            whole.dim[is->dim] = length;
        } else {
            whole.dim[is->dim] *= link->mesh->axes[a].size;
        }
    }
    return whole;
}

/* The link of a POST in the plan's current slot. Along other axes every group moves its own. */
static kolo_status make_link(kolo_plan *p, const kolo_node *post, kolo_value arrives) {
    const int bucket = (int)post->attr[KOLO_COMM_BUCKET].i;
    const kolo_tensor *from = &kolo_info(p->graph, post->in[0])->tensor;
    char *site = site_of(p, post);
    kolo_mesh_link **link = &p->links[p->slot * p->map.n_buckets + bucket];
    char *memory = p->model + (size_t)p->slot * p->map.model_bytes;
    kolo_mesh_link_opts opts = {
        .mesh = &p->graph->mesh,
        .rank = p->graph->rank,
        .dtype = from->dtype,
        .source = kolo_plan_host(p, post->in[0].id, 0),
        .target = kolo_plan_host(p, arrives.id, 0),
        .buffers = kolo_regions_host(p->store->regions, memory + p->map.buckets[bucket].slice),
        .buffer_bytes = p->map.buckets[bucket].buffer_bytes,
        .site = site,
        .moves = kolo_axis_of_halo(&p->graph->mesh, post->move) >= 0,
    };
    if (!site) return KOLO_NOMEM(32);
    for (int a = 0; a < opts.mesh->n_axes; a++) {
        if (!((kolo_axes)post->attr[KOLO_COMM_AXES].i >> a & 1)) continue;
        opts.from.axis[a] = post->move->from.axis[a];
        opts.to.axis[a] = post->move->to.axis[a];
    }
    opts.shape = whole_of(&opts, &from->shape, &kolo_info(p->graph, arrives)->tensor.shape);
    kolo_status status = kolo_mesh_link_create(&opts, link);
    kolo_free(site);
    KOLO_TRY(status);
    p->link_bytes += kolo_mesh_link_bytes(*link);
    if (!p->groups) return KOLO_OK; /* nothing runs it */
    KOLO_TRY(kolo_mesh_link_attach(*link, p->groups));
    kolo_request *request;
    for (int i = 0; p->times && (request = kolo_mesh_link_request(*link, i)); i++) {
        kolo_request_measure(request);
    }
    return KOLO_OK;
}

void kolo_plan_destroy_requests(kolo_plan *p) {
    const int n = 2 * p->slots * p->map.n_buckets;
    for (int i = 0; p->links && i < p->slots * p->map.n_buckets; i++) {
        kolo_mesh_link_destroy(p->links[i]);
    }
    kolo_free((void *)p->links);
    p->links = NULL;
    p->link_bytes = 0;
    for (int i = 0; p->requests && i < n; i++) kolo_request_destroy(p->requests[i]);
    kolo_free((void *)p->requests);
    p->requests = NULL;
}

static const kolo_node *post_of(const kolo_graph *g, const kolo_node *wait) {
    return g->nodes[kolo_info(g, wait->in[0])->producer];
}

/* Whether a WAIT has a request or link of the current slot: slots share the sums over
 * micro-batches. */
static bool is_of_slot(const kolo_plan *p, const kolo_node *wait) {
    const kolo_node *post = post_of(p->graph, wait);
    if (p->map.buckets[post->attr[KOLO_COMM_BUCKET].i].of_model) {
        return kolo_plan_is_of_slot(p, post, p->slot);
    }
    return p->slot == 0 && !p->adds_to; /* of the first; its own */
}

static bool is_exchange(const kolo_plan *p, const kolo_node *wait) {
    const kolo_bucket *bucket = &p->map.buckets[wait->attr[KOLO_COMM_BUCKET].i];
    return bucket->collective == KOLO_COLLECTIVE_ALLTOALL;
}

static int by_order(const void *a, const void *b) {
    const kolo_node *const *x = a, *const *y = b;
    const int64_t i = (*x)->attr[KOLO_COMM_ORDER].i, k = (*y)->attr[KOLO_COMM_ORDER].i;
    return i < k ? -1 : i > k;
}

/* Links take their tags in the order in which they are attached. That of WAITs may differ between
 * ranks with images of different sizes, whose layouts differ; that of redistributions does not. */
static kolo_status make_slot_links(kolo_plan *p) {
    const kolo_graph *g = p->graph;
    const kolo_node **waits = kolo_alloc(((size_t)p->map.n_buckets + 1) * sizeof *waits);
    size_t n = 0;
    if (!waits) return KOLO_NOMEM((size_t)p->map.n_buckets * sizeof *waits);
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *wait = g->nodes[i];
        if (wait->op->comm != KOLO_OP_WAIT || !is_exchange(p, wait)) continue;
        if (is_of_slot(p, wait)) waits[n++] = wait;
    }
    qsort((void *)waits, n, sizeof *waits, by_order);
    kolo_status status = KOLO_OK;
    for (size_t i = 0; i < n && status == KOLO_OK; i++) {
        status = make_link(p, post_of(g, waits[i]), waits[i]->out[0]);
    }
    kolo_free((void *)waits);
    return status;
}

static kolo_status make_slot_requests(kolo_plan *p) {
    const kolo_graph *g = p->graph;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *wait = g->nodes[i];
        if (wait->op->comm != KOLO_OP_WAIT || is_exchange(p, wait) || !is_of_slot(p, wait)) {
            continue;
        }
        const kolo_node *post = post_of(g, wait);
        const kolo_bucket *bucket = &p->map.buckets[post->attr[KOLO_COMM_BUCKET].i];
        for (int bank = 0; bank <= kolo_value_ok(bucket->joins); bank++) {
            KOLO_TRY(make_request(p, post, wait->out[0], bank));
        }
    }
    return make_slot_links(p);
}

kolo_status kolo_plan_make_requests(kolo_plan *p) {
    const size_t n = 2 * (size_t)p->slots * (size_t)p->map.n_buckets;
    if (!p->comm || n == 0) return KOLO_OK;
    p->requests = kolo_zalloc(n * sizeof(kolo_request *));
    if (!p->ready_ns) p->ready_ns = kolo_zalloc((size_t)p->map.n_buckets * sizeof *p->ready_ns);
    p->links = kolo_zalloc(n * sizeof(kolo_mesh_link *));
    if (!p->needed_ns) p->needed_ns = kolo_zalloc((size_t)p->map.n_buckets * sizeof *p->needed_ns);
    if (!p->requests || !p->links || !p->ready_ns || !p->needed_ns) {
        return KOLO_NOMEM(n * sizeof(kolo_request *));
    }
    kolo_status status = KOLO_OK;
    for (p->slot = 0; status == KOLO_OK && p->slot < p->slots; p->slot++) {
        status = make_slot_requests(p);
    }
    p->slot = 0;
    return status == KOLO_OK ? kolo_plan_reserve_flight(p) : status;
}

kolo_status kolo_plan_deal(kolo_plan *p, const int *counts) {
    KOLO_ASSERT(!p->adds_to);
    if (!p->sum) return KOLO_OK; /* nothing to sum */
    kolo_plan_destroy_requests(p);
    KOLO_TRY(kolo_shard_sum_deal(p->sum, counts));
    return kolo_plan_make_requests(p);
}
