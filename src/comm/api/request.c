/* Requests: what they check, which schedules they get, starting and ending them. */
#include "base/rng.h"
#include "comm/engine/offload.h"

#include <stdio.h>
#include <string.h>

enum {
    SLICE_ALIGN_BYTES = 64,
    PRIVATE_MESH_BYTES = 64 << 10, /* from here private data goes as messages, which peers may read
                                      where it lies; below, through SCRATCH */
};

static const char *const kind_names[] = {
#define KIND_NAME(code, name) name,
    KOLO_COLLECTIVE_LIST(KIND_NAME)
#undef KIND_NAME
};

static bool has_parts(kolo_collective kind) {
    return kind == KOLO_COLLECTIVE_ALLREDUCE || kind == KOLO_COLLECTIVE_BROADCAST;
}

static bool is_message(kolo_collective kind) {
    return kind == KOLO_COLLECTIVE_SEND || kind == KOLO_COLLECTIVE_RECV;
}

static bool is_float(kolo_dtype dtype) {
    return dtype == KOLO_DTYPE_F32 || dtype == KOLO_DTYPE_F64 || dtype == KOLO_DTYPE_F16 ||
           dtype == KOLO_DTYPE_BF16;
}

/* ---- what is asked for makes sense ---- */

static kolo_status check_shards(const kolo_request_opts *o, const char *name) {
    if (o->shards < 0 || o->shards > 1 << 24 || o->kind != KOLO_COLLECTIVE_ALLREDUCE) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s with %d shards: an allreduce takes up to %d", name,
                         o->shards, 1 << 24);
    }
    if (o->input || (o->prescale != 0 && o->prescale != 1)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: shards come as parts, and without prescale", name);
    }
    for (int i = 0; i < o->n_parts; i++) {
        if (o->parts[i].count != o->count || (o->count > 0 && !o->parts[i].data)) {
            return KOLO_FAIL(KOLO_ERR_ARG, "%s: part %d has %zu elements, not %zu", name, i,
                             o->parts[i].count, o->count);
        }
    }
    return KOLO_OK;
}

static kolo_status check_parts(const kolo_request_opts *o, const char *name) {
    if (o->n_parts < 0 || (o->n_parts > 0 && !o->parts)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: %d parts at no address", name, o->n_parts);
    }
    if (o->shards != 0) return check_shards(o, name);
    if (o->parts && (!has_parts(o->kind) || o->input || o->output)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: parts are for allreduce and broadcast in place", name);
    }
    size_t limit = (size_t)INT64_MAX / kolo_dtype_bytes(o->dtype), count = 0;
    for (int i = 0; i < o->n_parts; i++) {
        if (o->parts[i].count > limit - count) {
            return KOLO_FAIL(KOLO_ERR_ARG, "%s: part %d of %zu elements is too long", name, i,
                             o->parts[i].count);
        }
        if (o->parts[i].count > 0 && !o->parts[i].data) {
            return KOLO_FAIL(KOLO_ERR_ARG, "%s: part %d has no data", name, i);
        }
        count += o->parts[i].count;
    }
    return KOLO_OK;
}

static kolo_status check_scale(const kolo_request_opts *o, const char *name) {
    bool scales = o->prescale != 0 || o->postscale != 0;
    if (scales && (!kolo_collective_reduces(o->kind) || !is_float(o->dtype))) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s of %s: only reductions of floating point are scaled",
                         name, kolo_dtype_name(o->dtype));
    }
    return KOLO_OK;
}

static kolo_status check_opts(const kolo_comm *comm, const kolo_request_opts *o) {
    if ((size_t)o->kind >= KOLO_COLLECTIVE_COUNT) {
        return KOLO_FAIL(KOLO_ERR_ARG, "unknown kind of request %d", (int)o->kind);
    }
    const char *name = kind_names[o->kind];
    if ((size_t)o->dtype >= KOLO_DTYPE_COUNT) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: unknown element type %d", name, (int)o->dtype);
    }
    if ((size_t)o->op > KOLO_MEAN) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: unknown operation %d", name, (int)o->op);
    }
    if ((size_t)o->algorithm >= KOLO_ALGORITHM_COUNT) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: unknown algorithm %d", name, (int)o->algorithm);
    }
    if (o->root < 0 || o->root >= comm->size) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: %s %d outside [0, %d)", name,
                         is_message(o->kind) ? "rank" : "root", o->root, comm->size);
    }
    if (is_message(o->kind) && o->root == comm->rank) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: rank %d is this rank itself", name, o->root);
    }
    KOLO_TRY(check_parts(o, name));
    return check_scale(o, name);
}

/* A vector of `count` elements at `data` is there, or not needed. */
static kolo_status check_vector(const kolo_request *q, const void *data, size_t count,
                                const char *what) {
    if (count == 0 || data) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "%s: no %s of %zu elements", kind_names[q->kind], what, count);
}

/* ---- where the data is ---- */

/* Where slices start; the sum of all must be small enough to count its bytes. */
static kolo_status add_slices(const kolo_request *q, size_t *firsts, const size_t *counts,
                              size_t count) {
    size_t limit = (size_t)INT64_MAX / q->element_bytes;
    firsts[0] = 0;
    for (int r = 0; r < q->comm->size; r++) {
        size_t slice = counts ? counts[r] : count;
        if (slice > limit - firsts[r]) {
            return KOLO_FAIL(KOLO_ERR_ARG, "%s: a slice of %zu elements for rank %d is too long",
                             kind_names[q->kind], slice, r);
        }
        firsts[r + 1] = firsts[r] + slice;
    }
    return KOLO_OK;
}

/* Slices, and what of the schedules' spec hangs on the data. */
static kolo_status make_spec(kolo_request *q, const kolo_request_opts *o) {
    size_t n = (size_t)q->comm->size + 1;
    q->slices = kolo_zalloc(2 * n * sizeof *q->slices);
    if (!q->slices) return KOLO_NOMEM(2 * n * sizeof *q->slices);
    if (kolo_collective_has_slices(q->kind)) {
        const size_t *out = o->output_counts ? o->output_counts : o->counts;
        KOLO_TRY(add_slices(q, q->slices, o->counts, o->count));
        KOLO_TRY(add_slices(q, q->slices + n, out, o->count));
        q->count = q->slices[n - 1];
    } else if (o->parts && o->shards == 0) {
        for (int i = 0; i < o->n_parts; i++) q->count += o->parts[i].count;
    } else {
        q->count = q->kind == KOLO_COLLECTIVE_BARRIER ? 0 : o->count;
        if (q->count > (size_t)INT64_MAX / q->element_bytes) {
            return KOLO_FAIL(KOLO_ERR_ARG, "%s: %zu elements are too many", kind_names[q->kind],
                             q->count);
        }
    }
    bool own_slices = q->kind == KOLO_COLLECTIVE_ALLTOALL && o->counts;
    bool scatter = q->kind == KOLO_COLLECTIVE_SCATTER;
    q->agreed = own_slices ? UINT64_MAX : q->count;
    q->spec = (kolo_schedule_spec){
        .kind = q->kind,
        .rank = q->comm->rank,
        .size = q->comm->size,
        .root = q->root,
        .count = q->count,
        .firsts = q->slices,
        .output_firsts = q->slices + n,
        .hosts = q->comm->host_of,
        .shards = o->shards,
        .in_place = scatter ? !o->output : !o->input && o->shards == 0,
        .prescale = q->prescale != 1,
        .postscale = q->postscale != 1,
    };
    bool in_place = q->kind == KOLO_COLLECTIVE_ALLTOALL && q->spec.in_place;
    if (in_place && memcmp(q->slices, q->slices + n, n * sizeof *q->slices) != 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "an all-to-all in place needs slices alike in both ways");
    }
    return KOLO_OK;
}

/* The parts of a reproducible allreduce are the nodes that this rank should have. */
static kolo_status set_nodes(kolo_request *q, const kolo_request_opts *o) {
    uint32_t nodes[64];
    int n = kolo_tree_nodes(o->shards, q->comm->size, q->comm->rank, nodes);
    if (o->n_parts != n) {
        return KOLO_FAIL(KOLO_ERR_ARG, "allreduce of %d shards: %d parts, rank %d of %d brings %d",
                         o->shards, o->n_parts, q->comm->rank, q->comm->size, n);
    }
    q->nodes = kolo_zalloc((size_t)(n + 1) * sizeof *q->nodes);
    if (!q->nodes) return KOLO_NOMEM((size_t)(n + 1) * sizeof *q->nodes);
    for (int i = 0; i < n; i++) {
        q->nodes[i] = o->parts[i];
        if (o->parts[i].tree_node == nodes[i]) continue;
        return KOLO_FAIL(KOLO_ERR_ARG, "allreduce of %d shards: part %d is node %u, not %u",
                         o->shards, i, (unsigned)o->parts[i].tree_node, (unsigned)nodes[i]);
    }
    return KOLO_OK;
}

/* INPUT and DATA, and that they are where they are needed. */
static kolo_status set_data(kolo_request *q, const kolo_request_opts *o, kolo_part *whole) {
    bool message = is_message(q->kind), send = q->kind == KOLO_COLLECTIVE_SEND;
    bool reduce = q->kind == KOLO_COLLECTIVE_REDUCE && q->comm->rank != q->root;
    q->input = reduce && !o->input ? o->output : o->input; /* elsewhere the output is one */
    size_t n_input = message ? (send ? q->count : 0) : kolo_spec_input(&q->spec);
    size_t n_data = message ? (send ? 0 : q->count) : kolo_spec_data(&q->spec);
    *whole = (kolo_part){.data = o->output, .count = n_data};
    if (o->shards > 0) {
        KOLO_TRY(set_nodes(q, o));
        return check_vector(q, o->output, n_data, "output");
    }
    KOLO_TRY(check_vector(q, q->input, n_input, "input"));
    return o->parts ? KOLO_OK : check_vector(q, o->output, n_data, "output");
}

/* Copies the parts; a request without any has one empty part, so that all have a first one. */
static kolo_status copy_parts(kolo_request *q, const kolo_request_opts *o) {
    kolo_part whole;
    KOLO_TRY(set_data(q, o, &whole));
    bool several = o->parts && o->n_parts > 0 && o->shards == 0;
    const kolo_part *parts = several ? o->parts : &whole;
    size_t n = several ? (size_t)o->n_parts : 1;
    q->n_parts = (int)n;
    q->parts = kolo_zalloc(n * sizeof *q->parts);
    q->firsts = kolo_zalloc((n + 1) * sizeof *q->firsts);
    q->site = kolo_strdup(o->site ? o->site : "");
    if (!q->parts || !q->firsts || !q->site) return KOLO_NOMEM(n * sizeof *q->parts);
    for (size_t i = 0; i < n; i++) q->parts[i] = parts[i];
    for (size_t i = 0; i < n; i++) q->firsts[i + 1] = q->firsts[i] + q->parts[i].count;
    return KOLO_OK;
}

int kolo_request_exposed(const kolo_request *q, int rank) {
    return q->spec.shards > 0 ? 1 + kolo_tree_nodes(q->spec.shards, q->comm->size, rank, NULL)
                              : q->n_parts;
}

bool kolo_request_reads_from(const kolo_request *q, int rank, int owner) {
    if (q->kind == KOLO_COLLECTIVE_BROADCAST) return owner == q->root;
    if (q->algorithm != KOLO_ALGORITHM_HIERARCHICAL) return true;
    return kolo_comm_host(q->comm, rank) == kolo_comm_host(q->comm, owner);
}

/* Whether some peer looks at this rank's memory, and whether all that do have it in reach. */
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

/* Whether the peers need this rank's memory and cannot reach it; its names. Peers look at what the
 * rank contributes, but the root of a reduce shows where the result goes (and has its own share
 * there). */
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

static kolo_status add_schedule(kolo_request *q, kolo_algorithm algorithm, kolo_variant variant) {
    const kolo_comm *comm = q->comm;
    if (q->kind != KOLO_COLLECTIVE_ALLREDUCE) algorithm = KOLO_ALGORITHM_AUTO;
    const kolo_algorithm_row *row = kolo_algorithm_find(q->kind, algorithm, variant);
    KOLO_ASSERT(row);
    size_t chunk = comm->tuning.chunk_bytes / q->element_bytes;
    size_t align = SLICE_ALIGN_BYTES / q->element_bytes;
    q->spec.chunk = chunk > 0 ? chunk : 1;
    q->spec.align = chunk < align ? 1 : align; /* tiny chunks, in tests, cut tiny slices */
    KOLO_TRY(kolo_schedule_build(row, &q->spec, &q->schedules[q->n_schedules]));
    q->n_schedules++;
    return KOLO_OK;
}

/* Through the memory of each host, with an alternative for the case that some rank's is out of the
 * others' reach; this does not depend on the transport, which a rank alone on its host may have of
 * another kind. */
static kolo_status choose_hierarchical(kolo_request *q) {
    const kolo_algorithm algorithm = KOLO_ALGORITHM_HIERARCHICAL;
    if (kolo_comm_host_count(q->comm) < q->comm->size) {
        KOLO_TRY(add_schedule(q, algorithm, KOLO_VARIANT_WINDOW));
        if (q->comm->transport->reaches_all) return KOLO_OK;
    }
    return add_schedule(q, algorithm, KOLO_VARIANT_MESSAGES);
}

/* Messages where the algorithm or the transport has nothing else. Else memory: eager when tiny, and
 * in place, with an alternative for the case that some rank's data turns out to be private. */
static kolo_status choose_schedules(kolo_request *q, kolo_algorithm algorithm) {
    const kolo_comm *comm = q->comm;
    size_t bytes = q->count * q->element_bytes;
    if (algorithm == KOLO_ALGORITHM_HIERARCHICAL) return choose_hierarchical(q);
    bool window =
        kolo_algorithm_find(q->kind,
                            q->kind == KOLO_COLLECTIVE_ALLREDUCE ? algorithm : KOLO_ALGORITHM_AUTO,
                            KOLO_VARIANT_WINDOW) != NULL;
    bool shards = q->spec.shards > 0 && comm->transport->windows;
    if ((algorithm != KOLO_ALGORITHM_DIRECT && !shards) || !window) {
        return add_schedule(q, algorithm, KOLO_VARIANT_MESSAGES);
    }
    bool barrier = q->kind == KOLO_COLLECTIVE_BARRIER, staged = has_parts(q->kind);
    if (staged && bytes <= comm->tuning.eager_bytes) {
        KOLO_TRY(add_schedule(q, algorithm, KOLO_VARIANT_EAGER));
        q->eager = q->schedules[0].scratch * q->element_bytes <= comm->tuning.eager_bytes;
        if (q->eager) {
            q->private_data = false; /* the copies that travel are what peers look at */
            return KOLO_OK;
        }
        kolo_schedule_fini(&q->schedules[--q->n_schedules]); /* all nodes are too much */
    }
    KOLO_TRY(add_schedule(q, algorithm, KOLO_VARIANT_WINDOW));
    if (comm->transport->reaches_all || barrier) return KOLO_OK;
    if (shards) return add_schedule(q, algorithm, KOLO_VARIANT_MESSAGES);
    bool reads = comm->transport->reads_private && bytes >= PRIVATE_MESH_BYTES;
    if (q->kind == KOLO_COLLECTIVE_ALLREDUCE && reads) {
        return add_schedule(q, KOLO_ALGORITHM_MESH, KOLO_VARIANT_MESSAGES);
    }
    return add_schedule(q, algorithm, staged ? KOLO_VARIANT_STAGED : KOLO_VARIANT_MESSAGES);
}

/* Working arrays of the engine. */
static kolo_status make_tables(kolo_request *q) {
    size_t n = (size_t)q->comm->size, widest = 1;
    for (int i = 0; i < q->n_schedules; i++) {
        size_t w = kolo_schedule_widest(&q->schedules[i]);
        if (w > widest) widest = w;
    }
    q->entries = kolo_zalloc(widest * sizeof *q->entries);
    q->ahead = kolo_zalloc(widest * sizeof *q->ahead);
    q->peer_data = kolo_zalloc(n * (size_t)q->exposed_most * sizeof *q->peer_data);
    q->peer_scratch = kolo_zalloc(n * sizeof *q->peer_scratch);
    q->matched_seq = kolo_zalloc(n * sizeof *q->matched_seq);
    q->from = kolo_zalloc((n + 1) * sizeof *q->from); /* two, in a sum of a rank alone */
    q->to = kolo_zalloc(n * sizeof *q->to);
    if (!q->entries || !q->ahead || !q->peer_data || !q->peer_scratch || !q->matched_seq ||
        !q->from || !q->to) {
        return KOLO_NOMEM(n * (size_t)q->exposed_most * sizeof *q->peer_data);
    }
    return KOLO_OK;
}

/* The line that names the request in errors: "reduce 'loss' (1 x f32, sum, to rank 0)". */
static void name_request(kolo_request *q, kolo_algorithm algorithm) {
    kolo_collective kind = q->kind;
    char what[64] = "";
    size_t n = sizeof what;
    const char *type = kolo_dtype_name(q->dtype), *op = kolo_reduce_op_name(q->op);
    if (kind == KOLO_COLLECTIVE_ALLREDUCE) {
        bool shards = q->spec.shards > 0;
        snprintf(what, n, " (%zu x %s, %s, %s)", q->count, type, op,
                 shards ? "reproducible" : kolo_algorithm_name(algorithm));
    } else if (kind == KOLO_COLLECTIVE_REDUCE) {
        snprintf(what, n, " (%zu x %s, %s, to rank %d)", q->count, type, op, q->root);
    } else if (kind == KOLO_COLLECTIVE_REDUCE_SCATTER) {
        snprintf(what, n, " (%zu x %s, %s)", q->count, type, op);
    } else if (kind == KOLO_COLLECTIVE_SEND || kind == KOLO_COLLECTIVE_GATHER) {
        snprintf(what, n, " (%zu x %s, to rank %d)", q->count, type, q->root);
    } else if (kind == KOLO_COLLECTIVE_ALLGATHER || kind == KOLO_COLLECTIVE_ALLTOALL) {
        snprintf(what, n, " (%zu x %s)", q->count, type);
    } else if (kind != KOLO_COLLECTIVE_BARRIER) {
        snprintf(what, n, " (%zu x %s, from rank %d)", q->count, type, q->root);
    }
    const char *quote = q->site[0] ? "'" : "";
    const char *group = q->comm->group;
    snprintf(q->title, sizeof q->title, "%s%s%s%.40s%s%s%s%s", kind_names[kind],
             q->site[0] ? " " : "", quote, q->site, quote, what, group[0] ? " in " : "", group);
}

/* The hash of all that must agree and has no field of its own in an announcement. */
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
    if (has_parts(q->kind)) {
        for (int i = 0; i < q->n_parts; i++) {
            uint64_t part[3] = {q->shape, q->parts[i].tree_node, q->parts[i].count};
            q->shape = kolo_hash_bytes(part, sizeof part);
        }
    } else if (kolo_collective_reduces(q->kind)) { /* peers read the prescaled copy */
        uint64_t prescaled[2] = {q->shape, q->spec.prescale};
        q->shape = kolo_hash_bytes(prescaled, sizeof prescaled);
    }
    if (algorithm == KOLO_ALGORITHM_HIERARCHICAL && q->comm->host_of) {
        size_t bytes = (size_t)q->comm->size * sizeof *q->comm->host_of;
        uint64_t hosts[2] = {q->shape, kolo_hash_bytes(q->comm->host_of, bytes)};
        q->shape = kolo_hash_bytes(hosts, sizeof hosts);
    }
    if (kolo_collective_has_slices(q->kind) && q->kind != KOLO_COLLECTIVE_ALLTOALL) {
        size_t bytes = (size_t)(q->comm->size + 1) * sizeof *q->slices;
        uint64_t slices[2] = {q->shape, kolo_hash_bytes(q->slices, bytes)};
        q->shape = kolo_hash_bytes(slices, sizeof slices);
    }
}

/* What the algorithm of a request is. Only an allreduce has a choice; the others go through memory
 * where all ranks reach it. */
static kolo_algorithm resolve_algorithm(const kolo_request *q, const kolo_request_opts *o) {
    const kolo_comm *comm = q->comm;
    bool windows = comm->transport->windows;
    kolo_algorithm algorithm = o->algorithm ? o->algorithm : comm->algorithm;
    if (o->shards > 0) return KOLO_ALGORITHM_REPRODUCIBLE;
    if (algorithm != KOLO_ALGORITHM_AUTO || comm->backend) return algorithm;
    if (q->kind == KOLO_COLLECTIVE_ALLREDUCE) {
        return kolo_comm_costs_choose(&comm->costs, windows, comm->size, kolo_comm_host_count(comm),
                                      q->count * q->element_bytes);
    }
    return windows ? KOLO_ALGORITHM_DIRECT : KOLO_ALGORITHM_RING;
}

/* What an uneven all-to-all tells each rank: the elements that it will get. */
static kolo_status set_peer_counts(kolo_request *q) {
    size_t n = (size_t)q->comm->size;
    if (q->agreed != UINT64_MAX) return KOLO_OK;
    q->peer_counts = kolo_alloc(n * sizeof *q->peer_counts);
    if (!q->peer_counts) return KOLO_NOMEM(n * sizeof *q->peer_counts);
    for (size_t p = 0; p < n; p++) q->peer_counts[p] = q->slices[p + 1] - q->slices[p];
    return KOLO_OK;
}

/* What a collective has and a message has not: schedules, and a number. */
static kolo_status make_collective(kolo_request *q, kolo_algorithm algorithm) {
    if (q->comm->backend && algorithm != KOLO_ALGORITHM_AUTO && q->spec.shards == 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "algorithm %s: transport %s chooses by itself; take auto",
                         kolo_algorithm_name(algorithm), kolo_comm_transport(q->comm));
    }
    if (algorithm == KOLO_ALGORITHM_DIRECT && !q->comm->transport->windows) {
        return KOLO_FAIL(
            KOLO_ERR_ARG,
            "algorithm direct reads all ranks' memory, which transport %s cannot: take "
            "another or auto",
            kolo_comm_transport(q->comm));
    }
    for (int r = 0; r < q->comm->size; r++) {
        int exposed = kolo_request_exposed(q, r);
        if (r == q->comm->rank) q->n_exposed = exposed;
        if (exposed > q->exposed_most) q->exposed_most = exposed;
    }
    KOLO_TRY(set_peer_counts(q));
    if (q->comm->backend && q->spec.shards == 0) {
        KOLO_TRY(kolo_offload_prepare(q));
    } else {
        KOLO_TRY(find_handles(q));
        KOLO_TRY(choose_schedules(q, algorithm));
    }
    KOLO_TRY(make_tables(q));
    hash_request(q, algorithm);
    q->number = q->comm->next_number++;
    return KOLO_OK;
}

kolo_status kolo_request_create(kolo_comm *comm, const kolo_request_opts *o,
                                kolo_request **request) {
    if (!comm || !o || !request) return KOLO_FAIL(KOLO_ERR_ARG, "a request needs a communicator");
    KOLO_COMM_LOCK_SCOPE(comm);
    KOLO_TRY(kolo_comm_check(comm));
    KOLO_TRY(check_opts(comm, o));
    kolo_request *q = kolo_zalloc(sizeof *q);
    if (!q) return KOLO_NOMEM(sizeof *q);
    double mean = kolo_collective_reduces(o->kind) && o->op == KOLO_MEAN ? 1.0 / comm->size : 1;
    *q = (kolo_request){
        .comm = comm,
        .kind = o->kind,
        .dtype = o->dtype,
        .op = kolo_collective_reduces(o->kind) ? o->op : KOLO_SUM,
        .root = o->root,
        .tag = o->tag,
        .prescale = o->prescale != 0 ? o->prescale : 1,
        .postscale = (o->postscale != 0 ? o->postscale : 1) * mean,
        .priority = o->priority,
        .element_bytes = kolo_dtype_bytes(o->dtype),
    };
    bool message = is_message(q->kind);
    kolo_status status = KOLO_OK;
    KOLO_TRY_GOTO(make_spec(q, o), fail);
    KOLO_TRY_GOTO(copy_parts(q, o), fail);
    q->algorithm = resolve_algorithm(q, o);
    name_request(q, q->algorithm);
    KOLO_TRY_GOTO(message ? kolo_p2p_open(comm) : make_collective(q, q->algorithm), fail);
    q->next = comm->requests;
    comm->requests = q;
    *request = q;
    return KOLO_OK;
fail:
    kolo_request_destroy(q);
    return status;
}

kolo_status kolo_allreduce_create(kolo_comm *comm, const kolo_part *parts, int n_parts,
                                  kolo_dtype dtype, kolo_reduce_op op, kolo_algorithm algorithm,
                                  const char *site, kolo_request **request) {
    return kolo_request_create(comm,
                               &(kolo_request_opts){.kind = KOLO_COLLECTIVE_ALLREDUCE,
                                                    .parts = parts,
                                                    .n_parts = n_parts,
                                                    .dtype = dtype,
                                                    .op = op,
                                                    .algorithm = algorithm,
                                                    .site = site},
                               request);
}

kolo_status kolo_broadcast_create(kolo_comm *comm, const kolo_part *parts, int n_parts,
                                  kolo_dtype dtype, int root, const char *site,
                                  kolo_request **request) {
    return kolo_request_create(comm,
                               &(kolo_request_opts){.kind = KOLO_COLLECTIVE_BROADCAST,
                                                    .parts = parts,
                                                    .n_parts = n_parts,
                                                    .dtype = dtype,
                                                    .root = root,
                                                    .site = site},
                               request);
}

kolo_status kolo_barrier_create(kolo_comm *comm, const char *site, kolo_request **request) {
    return kolo_request_create(
        comm, &(kolo_request_opts){.kind = KOLO_COLLECTIVE_BARRIER, .site = site}, request);
}

/* ---- starting and ending ---- */

/* Its place among those in flight: behind the last one of at least its priority. */
static void take_turn(kolo_comm *comm, kolo_request *q) {
    int at = comm->n_flight;
    while (at > 0 && comm->by_priority[at - 1]->priority < q->priority) {
        comm->by_priority[at] = comm->by_priority[at - 1];
        at--;
    }
    comm->by_priority[at] = q;
    comm->flight[comm->n_flight++] = q;
}

kolo_status kolo_request_start(kolo_request *q) {
    kolo_comm *comm = q->comm;
    KOLO_COMM_LOCK_SCOPE(comm);
    KOLO_TRY(kolo_comm_check(comm));
    if (q->state != REQUEST_IDLE) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s is in flight already: wait for it before starting again",
                         q->title);
    }
    bool moved; /* at best everything is here already; at least the peers see the announcement */
    if (is_message(q->kind)) {
        KOLO_TRY(kolo_p2p_start(q));
        return kolo_engine_progress(comm, &moved);
    }
    if (comm->n_flight == KOLO_FLIGHT_QUEUE) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: %d requests are in flight, which is the most", q->title,
                         comm->n_flight);
    }
    q->state = REQUEST_QUEUED;
    q->seq = comm->next_seq++;
    q->round = 0;
    q->phase = 0;
    q->matched = 0;
    q->offloaded = false;
    take_turn(comm, q);
    return kolo_engine_progress(comm, &moved);
}

/* Takes a request out of the list of its communicator. */
static void unlink_request(kolo_request *q) {
    kolo_request **p = &q->comm->requests;
    while (*p && *p != q) p = &(*p)->next;
    if (*p) *p = q->next;
}

void kolo_request_destroy(kolo_request *q) {
    if (!q) return;
    KOLO_COMM_LOCK_SCOPE(q->comm);
    if (q->state != REQUEST_IDLE) {
        (void)kolo_comm_break(q->comm, KOLO_ERR_ARG, "%s was destroyed while in flight", q->title);
    }
    unlink_request(q);
    if (q->call) q->comm->backend->ops->release(q->call);
    for (int i = 0; i < q->n_schedules; i++) kolo_schedule_fini(&q->schedules[i]);
    kolo_segment_give(&q->comm->transport->segment, q->handles,
                      (size_t)q->n_exposed * sizeof *q->handles);
    kolo_free(q->peer_counts);
    kolo_free(q->slices);
    kolo_free(q->nodes);
    kolo_free(q->parts);
    kolo_free(q->firsts);
    kolo_free(q->site);
    kolo_free(q->entries);
    kolo_free(q->ahead);
    kolo_free(q->peer_data);
    kolo_free(q->peer_scratch);
    kolo_free(q->matched_seq);
    kolo_free(q->from);
    kolo_free(q->to);
    kolo_free(q);
}

kolo_algorithm kolo_request_algorithm(const kolo_request *q) {
    return q->algorithm < KOLO_ALGORITHM_COUNT ? q->algorithm : KOLO_ALGORITHM_AUTO;
}
uint64_t kolo_request_sequence(const kolo_request *q) { return q->seq; }
const char *kolo_request_site(const kolo_request *q) { return q->site; }
bool kolo_request_in_flight(const kolo_request *q) {
    KOLO_COMM_LOCK_SCOPE(q->comm);
    return q->state != REQUEST_IDLE;
}
kolo_traffic kolo_request_traffic(const kolo_request *q) {
    KOLO_COMM_LOCK_SCOPE(q->comm);
    return q->traffic;
}

kolo_schedule *kolo_request_schedule(kolo_request *q) {
    return &q->schedules[q->private_data ? q->n_schedules - 1 : 0];
}

const char *kolo_request_schedule_name(const kolo_request *q) {
    return q->schedule ? q->schedule->name : q->schedules[0].name;
}
