/* Choice of algorithm and schedules. AUTO follows the cost model (schedule/costs.h), whose
 * constants are in the rows of schedule/alg_*.c.
 *
 * A request gets up to two schedules: the second one is for the case that some rank's memory is
 * private, which is known only when all ranks have announced the collective. */
#include "comm/api/choose_schedule.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "comm/engine/offload.h"

#include <math.h>
#include <string.h>

enum {
    SLICE_ALIGN_BYTES = 64,
    PRIVATE_MESH_BYTES = 64 << 10, /* from here private data is sent by mesh, whose messages peers
                                      may read in place; below, it is staged through SCRATCH */
    NEAR_RING_BYTES = 1 << 20,     /* from here a reduce-scatter of few connections is that of the
                                      ring, whose SCRATCH is a slice and two chunks */
};

/* Whether some peer reads this rank's memory, and whether all that do can map it. */
static bool is_read(const kolo_request *q, bool *reached) {
    kolo_transport *t = q->comm->transport;
    bool needed = false;
    *reached = true;
    for (int p = 0; p < t->size; p++) {
        if (p == t->rank || !kolo_request_reads_from(q, p, t->rank)) continue;
        needed = true;
        *reached = *reached && (t->ops->reaches ? t->ops->reaches(t, p) : t->windows);
    }
    return needed;
}

/* Gets the handles of this rank's memory, and whether peers need it but cannot map it. Peers read
 * what a rank contributes; the root of a reduce exposes its output, which holds its contribution.
 */
static kolo_status find_handles(kolo_request *q) {
    kolo_transport *t = q->comm->transport;
    bool reached, needed = is_read(q, &reached);
    if (q->spec.shards == 0 && kolo_spec_source(&q->spec, t->rank) == KOLO_BUFFER_INPUT) {
        q->handle = t->ops->handle(t, q->input, q->count * q->element_bytes);
        q->private_data = q->handle == 0 && q->count > 0;
        return KOLO_OK;
    }
    if (q->n_exposed > 1) {
        void *table;
        size_t bytes = (size_t)q->n_exposed * sizeof *q->handles;
        KOLO_TRY(kolo_segment_take(&t->segment, bytes, &table));
        q->handles = table;
    }
    for (int i = 0; i < q->n_exposed; i++) {
        const kolo_part *part = q->nodes && i > 0 ? &q->nodes[i - 1] : &q->parts[i];
        uint64_t handle = t->ops->handle(t, part->data, part->count * q->element_bytes);
        if ((handle == 0 && part->count > 0) || !reached) q->private_data = needed;
        if (q->handles) q->handles[i] = handle;
        q->handle = handle;
    }
    return KOLO_OK;
}

/* ---- schedules ---- */

/* The algorithm by messages of another kind than allreduce. Those of groups in which ranks connect
 * on demand need few connections. */
static kolo_algorithm by_messages(const kolo_request *q) {
    bool ordered = kolo_request_is_ordered(q), sparse = q->comm->transport->sparse;
    if (q->kind == KOLO_COLLECTIVE_REDUCE && ordered) return KOLO_ALGORITHM_MESH;
    if (q->kind == KOLO_COLLECTIVE_ALLGATHER && sparse) return KOLO_ALGORITHM_HALVING_DOUBLING;
    if (q->kind == KOLO_COLLECTIVE_REDUCE_SCATTER && sparse && !ordered) {
        bool small = q->count * q->element_bytes < NEAR_RING_BYTES;
        return small ? KOLO_ALGORITHM_HALVING_DOUBLING : KOLO_ALGORITHM_RING;
    }
    return KOLO_ALGORITHM_AUTO;
}

static const kolo_algorithm_row *find_row(const kolo_request *q, kolo_algorithm algorithm,
                                          kolo_variant variant) {
    if (q->kind != KOLO_COLLECTIVE_ALLREDUCE) {
        algorithm = variant == KOLO_VARIANT_MESSAGES ? by_messages(q) : KOLO_ALGORITHM_AUTO;
    }
    return kolo_algorithm_find(q->kind, algorithm, variant);
}

static kolo_status add_schedule(kolo_request *q, kolo_algorithm algorithm, kolo_variant variant) {
    const kolo_comm *comm = q->comm;
    const kolo_algorithm_row *row = find_row(q, algorithm, variant);
    KOLO_ASSERT(row);
    size_t chunk = comm->tuning.chunk_bytes / q->element_bytes;
    size_t align = SLICE_ALIGN_BYTES / q->element_bytes;
    q->spec.chunk = chunk > 0 ? chunk : 1;
    q->spec.align =
        chunk < align || align == 0 ? 1 : align; /* tiny chunks, in tests, give tiny slices */
    KOLO_TRY(kolo_schedule_build(row, &q->spec, &q->schedules[q->n_schedules]));
    q->n_schedules++;
    return KOLO_OK;
}

/* Windows inside each host, and messages in case some rank's memory is private. The choice must not
 * depend on the transport, since a rank that is alone on its host may have another one. */
static kolo_status choose_within_hosts(kolo_request *q, kolo_algorithm algorithm) {
    if (kolo_comm_host_count(q->comm) < q->comm->size) {
        KOLO_TRY(add_schedule(q, algorithm, KOLO_VARIANT_WINDOW));
        if (q->comm->transport->reaches_all) return KOLO_OK;
    }
    return add_schedule(q, algorithm, KOLO_VARIANT_MESSAGES);
}

/* Messages, unless the algorithm and the transport support windows. With windows: eager for tiny
 * vectors, else in place, with an alternative in case some rank's data is private. */
static kolo_status choose_schedules(kolo_request *q, kolo_algorithm algorithm) {
    const kolo_comm *comm = q->comm;
    size_t bytes = q->count * q->element_bytes;
    if (kolo_algorithm_spans_hosts(algorithm)) return choose_within_hosts(q, algorithm);
    bool allreduce = q->kind == KOLO_COLLECTIVE_ALLREDUCE;
    bool windows = allreduce ? comm->transport->windows : algorithm == KOLO_ALGORITHM_DIRECT;
    if (!windows || !find_row(q, algorithm, KOLO_VARIANT_WINDOW)) {
        return add_schedule(q, algorithm, KOLO_VARIANT_MESSAGES);
    }
    bool eager = find_row(q, algorithm, KOLO_VARIANT_EAGER) != NULL;
    if (eager && bytes <= comm->tuning.eager_bytes) {
        KOLO_TRY(add_schedule(q, algorithm, KOLO_VARIANT_EAGER));
        q->eager = q->schedules[0].scratch * q->element_bytes <= comm->tuning.eager_bytes;
        if (q->eager) {
            q->private_data = false; /* peers read the copy in the announcement */
            return KOLO_OK;
        }
        kolo_schedule_fini(
            &q->schedules[--q->n_schedules]); /* the nodes of all ranks are too large */
    }
    KOLO_TRY(add_schedule(q, algorithm, KOLO_VARIANT_WINDOW));
    if (comm->transport->reaches_all || q->kind == KOLO_COLLECTIVE_BARRIER || q->spec.summands) {
        return KOLO_OK;
    }
    bool reads = comm->transport->reads_private && bytes >= PRIVATE_MESH_BYTES;
    if (reads && !find_row(q, algorithm, KOLO_VARIANT_MESSAGES)) {
        return add_schedule(q, KOLO_ALGORITHM_MESH, KOLO_VARIANT_MESSAGES);
    }
    bool staged = find_row(q, algorithm, KOLO_VARIANT_STAGED) != NULL;
    return add_schedule(q, algorithm, staged ? KOLO_VARIANT_STAGED : KOLO_VARIANT_MESSAGES);
}

/* Working arrays of the engine. */
static kolo_status make_tables(kolo_request *q) {
    size_t n = (size_t)q->comm->size, widest = 1;
    for (int i = 0; i < q->n_schedules; i++) {
        const kolo_schedule *s = &q->schedules[i];
        size_t w = kolo_schedule_widest(s), scratch = s->scratch * q->element_bytes;
        if (w > widest) widest = w;
        if (scratch > q->scratch_need) q->scratch_need = scratch;
    }
    q->entries = kolo_zalloc(widest * sizeof *q->entries);
    q->ahead = kolo_zalloc(widest * sizeof *q->ahead);
    q->peer_data = kolo_zalloc(n * (size_t)q->exposed_most * sizeof *q->peer_data);
    q->peer_scratch = kolo_zalloc(n * sizeof *q->peer_scratch);
    q->matched_seq = kolo_zalloc(n * sizeof *q->matched_seq);
    q->from = kolo_zalloc((n + 1) * sizeof *q->from); /* a group of one sums two */
    q->to = kolo_zalloc(n * sizeof *q->to);
    if (!q->entries || !q->ahead || !q->peer_data || !q->peer_scratch || !q->matched_seq ||
        !q->from || !q->to) {
        return KOLO_NOMEM(n * (size_t)q->exposed_most * sizeof *q->peer_data);
    }
    return KOLO_OK;
}

/* Hashes everything that must agree and has no field of its own in an announcement. */
static void hash_request(kolo_request *q, kolo_algorithm algorithm) {
    uint64_t scale;
    memcpy(&scale, &q->postscale, sizeof scale);
    uint64_t fields[] = {
        kolo_hash_text(q->site),
        (uint64_t)algorithm,
        (uint64_t)q->root,
        q->comm->tuning.chunk_bytes,
        q->comm->tuning.eager_bytes,
        (uint64_t)q->n_parts,
        scale,
        (uint64_t)q->spec.shards,
    };
    q->shape = kolo_hash_bytes(fields, sizeof fields);
    if (q->user_op.combine) {
        uint64_t own[4] = {q->shape, kolo_hash_text(q->user_op.name), q->element_bytes,
                           q->user_op.commutative};
        q->shape = kolo_hash_bytes(own, sizeof own);
    }
    if (kolo_collective_has_parts(q->kind)) {
        for (int i = 0; i < q->n_parts; i++) {
            uint64_t part[3] = {q->shape, q->parts[i].tree_node, q->parts[i].count};
            q->shape = kolo_hash_bytes(part, sizeof part);
        }
    } else if (kolo_collective_reduces(q->kind)) { /* peers read the prescaled copy */
        uint64_t prescaled[2] = {q->shape, q->spec.prescale + 2u * q->spec.summands};
        q->shape = kolo_hash_bytes(prescaled, sizeof prescaled);
    }
    if (kolo_algorithm_spans_hosts(algorithm) && q->comm->host_of) {
        size_t bytes = (size_t)q->comm->size * sizeof *q->comm->host_of;
        uint64_t hosts[2] = {q->shape, kolo_hash_bytes(q->comm->host_of, bytes)};
        q->shape = kolo_hash_bytes(hosts, sizeof hosts);
    }
    bool sliced = kolo_collective_has_slices(q->kind) && q->kind != KOLO_COLLECTIVE_ALLTOALL;
    if (sliced || q->spec.shard_firsts) {
        size_t bytes = (size_t)(q->comm->size + 1) * sizeof *q->slices;
        uint64_t slices[2] = {q->shape, kolo_hash_bytes(q->slices, bytes)};
        q->shape = kolo_hash_bytes(slices, sizeof slices);
    }
}

static kolo_algorithm choose_allreduce(const kolo_request *q) {
    const kolo_comm *comm = q->comm;
    kolo_comm_costs costs = comm->costs;
    for (int a = KOLO_ALGORITHM_AUTO + 1; a < KOLO_ALGORITHM_COUNT && comm->transport->sparse;
         a++) {
        if (kolo_algorithm_all_pairs((kolo_algorithm)a)) costs.of[a].step_us = HUGE_VAL;
    }
    return kolo_comm_costs_choose(&costs, comm->transport->windows, comm->size,
                                  kolo_comm_host_count(comm), q->count * q->element_bytes);
}

kolo_algorithm kolo_request_resolve(const kolo_request *q, const kolo_request_opts *o) {
    const kolo_comm *comm = q->comm;
    bool windows = comm->transport->windows;
    kolo_algorithm algorithm = o->algorithm ? o->algorithm : comm->algorithm;
    if (o->shards > 0) return KOLO_ALGORITHM_REPRODUCIBLE;
    if (kolo_request_is_ordered(q) && !kolo_algorithm_in_order(algorithm)) {
        return windows ? KOLO_ALGORITHM_DIRECT : KOLO_ALGORITHM_MESH;
    }
    if (algorithm != KOLO_ALGORITHM_AUTO || kolo_request_offloads(q)) return algorithm;
    if (q->kind == KOLO_COLLECTIVE_ALLREDUCE) return choose_allreduce(q);
    return windows ? KOLO_ALGORITHM_DIRECT : KOLO_ALGORITHM_RING;
}

/* The elements that an uneven all-to-all sends to and gets from each rank, for the announcement. */
static kolo_status set_peer_counts(kolo_request *q) {
    size_t n = (size_t)q->comm->size;
    if (q->agreed != UINT64_MAX) return KOLO_OK;
    q->peer_counts = kolo_alloc(2 * n * sizeof *q->peer_counts);
    if (!q->peer_counts) return KOLO_NOMEM(2 * n * sizeof *q->peer_counts);
    for (size_t p = 0; p < n; p++) {
        const size_t *in = &q->slices[p], *out = &q->slices[n + 1 + p];
        q->peer_counts[p] = in[1] - in[0];
        q->peer_counts[n + p] = out[1] - out[0];
    }
    return KOLO_OK;
}

/* Summands that the ranks read themselves. */
static kolo_status check_summands(const kolo_request *q) {
    if (!q->spec.summands || (q->comm->transport->windows && !q->private_data)) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "%s: the ranks cannot read each other's vectors",
                     q->title);
}

kolo_status kolo_request_make_collective(kolo_request *q, kolo_algorithm algorithm) {
    if (kolo_request_offloads(q) && algorithm != KOLO_ALGORITHM_AUTO) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "algorithm %s: transport %s selects the algorithm itself; use auto",
                         kolo_algorithm_name(algorithm), kolo_comm_transport(q->comm));
    }
    bool named = algorithm > KOLO_ALGORITHM_AUTO && algorithm < KOLO_ALGORITHM_COUNT;
    if (named && !kolo_algorithm_usable(algorithm, q->comm->transport->windows, 2)) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "algorithm %s needs access to the memory of all ranks, which transport %s "
                         "does not give: use another algorithm or auto",
                         kolo_algorithm_name(algorithm), kolo_comm_transport(q->comm));
    }
    for (int r = 0; r < q->comm->size; r++) {
        int exposed = kolo_request_exposed(q, r);
        if (r == q->comm->rank) q->n_exposed = exposed;
        if (exposed > q->exposed_most) q->exposed_most = exposed;
    }
    KOLO_TRY(set_peer_counts(q));
    if (kolo_request_offloads(q)) {
        KOLO_TRY(kolo_offload_prepare(q));
    } else {
        KOLO_TRY(find_handles(q));
        KOLO_TRY(check_summands(q));
        KOLO_TRY(choose_schedules(q, algorithm));
    }
    KOLO_TRY(make_tables(q));
    hash_request(q, algorithm);
    q->number = ++q->comm->n_created;
    return KOLO_OK;
}
