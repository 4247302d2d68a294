/* Creation of requests: validation, and the layout of their data. */
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/api/choose_schedule.h"
#include "comm/engine/combine.h"
#include "comm/engine/failure.h"
#include "comm/engine/family.h"
#include "comm/engine/lifetime.h"
#include "comm/engine/lock.h"
#include "comm/engine/p2p.h"
#include "comm/schedule/algorithms.h"

#include <stdio.h>
#include <string.h>

static const char *const kind_names[] = {
#define KIND_NAME(code, name) name,
    KOLO_COLLECTIVE_LIST(KIND_NAME)
#undef KIND_NAME
};

static bool is_float(kolo_dtype dtype) {
    return dtype == KOLO_DTYPE_F32 || dtype == KOLO_DTYPE_F64 || dtype == KOLO_DTYPE_F16 ||
           dtype == KOLO_DTYPE_BF16 || dtype == KOLO_DTYPE_C64 || dtype == KOLO_DTYPE_C128;
}

enum { OP_NAME_MOST = 24 };

/* ---- validation ---- */

static size_t element_bytes(const kolo_request_opts *o) {
    bool own = o->user_op && o->user_op->element_bytes > 0;
    return own ? o->user_op->element_bytes : kolo_dtype_bytes(o->dtype);
}

/* The operation of the program, if the request has one. */
static kolo_status check_user_op(const kolo_request_opts *o, const char *name) {
    const kolo_user_op *op = o->user_op;
    size_t length = op && op->name ? strnlen(op->name, OP_NAME_MOST + 1) : 0;
    if (!op) return KOLO_OK;
    if (!kolo_collective_reduces(o->kind) || o->op != 0) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s: user_op is for reductions, in place of op, which must be 0", name);
    }
    if (!op->combine || length == 0 || length > OP_NAME_MOST) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s: user_op needs a function and a name of 1 to %d characters", name,
                         OP_NAME_MOST);
    }
    if (op->element_bytes > 0 && o->dtype != 0) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s: operation %s has elements of %zu bytes: leave dtype, which is %s, "
                         "at 0",
                         name, op->name, op->element_bytes, kolo_dtype_name(o->dtype));
    }
    if (op->element_bytes > INT64_MAX) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: elements of %zu bytes are too large", name,
                         op->element_bytes);
    }
    if (o->prescale != 0 || o->postscale != 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: operation %s of the program allows no scales", name,
                         op->name);
    }
    bool other = o->algorithm != KOLO_ALGORITHM_AUTO && !kolo_algorithm_in_order(o->algorithm);
    if (!op->commutative && other && o->kind == KOLO_COLLECTIVE_ALLREDUCE) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s: algorithm %s does not combine in the order of the ranks, which "
                         "operation %s needs, as it is not commutative: use auto, direct or mesh",
                         name, kolo_algorithm_name(o->algorithm), op->name);
    }
    return KOLO_OK;
}

static kolo_status check_shards(const kolo_request_opts *o, const char *name) {
    if (o->shards < 0 || o->shards > 1 << 24 || o->kind != KOLO_COLLECTIVE_ALLREDUCE) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s with %d shards: only an allreduce has shards, at most %d", name,
                         o->shards, 1 << 24);
    }
    if (o->input || (o->prescale != 0 && o->prescale != 1)) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s: shards need parts, and allow neither input nor prescale", name);
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
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: parts is NULL, n_parts is %d", name, o->n_parts);
    }
    if (o->shards != 0) return check_shards(o, name);
    if (o->parts && (!kolo_collective_has_parts(o->kind) || o->input || o->output)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: parts need an allreduce or broadcast in place", name);
    }
    size_t limit = (size_t)INT64_MAX / element_bytes(o), count = 0;
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
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s of %s: prescale and postscale need a reduction of floating point",
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
    if ((size_t)o->op >= KOLO_REDUCE_OP_COUNT) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: unknown operation %d", name, (int)o->op);
    }
    if (kolo_collective_reduces(o->kind) && kolo_reduce_check(o->dtype, o->op) != KOLO_OK) {
        return kolo_fail_in(KOLO_ERR_ARG, "%s", name);
    }
    if ((size_t)o->algorithm >= KOLO_ALGORITHM_COUNT) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: unknown algorithm %d", name, (int)o->algorithm);
    }
    bool any = o->kind == KOLO_COLLECTIVE_RECV && o->root == KOLO_ANY_RANK;
    if (!any && (o->root < 0 || o->root >= comm->size)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: %s %d outside [0, %d)", name,
                         kolo_collective_is_message(o->kind) ? "rank" : "root", o->root,
                         comm->size);
    }
    if (kolo_collective_is_message(o->kind) && o->root == comm->rank) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: rank %d is this rank", name, o->root);
    }
    if (kolo_collective_is_message(o->kind) && o->tag < 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: tag %d: give 0 or more", name, o->tag);
    }
    KOLO_TRY(check_user_op(o, name));
    KOLO_TRY(check_parts(o, name));
    return check_scale(o, name);
}

/* A vector may be NULL only if it has no elements. */
static kolo_status check_vector(const kolo_request *q, const void *data, size_t count,
                                const char *what) {
    if (count == 0 || data) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "%s: the %s of %zu elements is NULL", kind_names[q->kind], what,
                     count);
}

/* ---- data ---- */

/* Sets the starts of the slices; checks that their total size in bytes does not overflow. */
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

/* Sets the first shard of each rank. */
static kolo_status add_shards(const kolo_request *q, const kolo_request_opts *o) {
    int size = q->comm->size;
    KOLO_TRY(add_slices(q, q->slices, o->counts, 0));
    if (q->slices[size] == (size_t)o->shards) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "allreduce of %d shards: the ranks have %zu together", o->shards,
                     q->slices[size]);
}

/* Sets the slices and the specification of the schedules. */
static kolo_status make_spec(kolo_request *q, const kolo_request_opts *o) {
    size_t n = (size_t)q->comm->size + 1;
    bool uneven = o->shards > 0 && o->counts;
    q->slices = kolo_zalloc(2 * n * sizeof *q->slices);
    if (!q->slices) return KOLO_NOMEM(2 * n * sizeof *q->slices);
    if (uneven) KOLO_TRY(add_shards(q, o));
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
        .shard_firsts = uneven ? q->slices : NULL,
        .in_place = scatter ? !o->output : !o->input && o->shards == 0,
        .prescale = q->prescale != 1,
        .postscale = q->postscale != 1,
    };
    bool in_place = q->kind == KOLO_COLLECTIVE_ALLTOALL && q->spec.in_place;
    if (in_place && memcmp(q->slices, q->slices + n, n * sizeof *q->slices) != 0) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "an all-to-all in place needs equal counts and output_counts");
    }
    return KOLO_OK;
}

/* Checks that the parts of a reproducible allreduce are the nodes of this rank. */
static kolo_status set_nodes(kolo_request *q, const kolo_request_opts *o) {
    uint32_t nodes[64];
    int n = kolo_spec_nodes(&q->spec, q->comm->rank, nodes);
    if (o->n_parts != n) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "allreduce of %d shards: %d parts, but rank %d of %d has %d nodes",
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

/* Sets and checks INPUT and DATA. */
static kolo_status set_data(kolo_request *q, const kolo_request_opts *o, kolo_part *whole) {
    bool message = kolo_collective_is_message(q->kind), send = q->kind == KOLO_COLLECTIVE_SEND;
    bool reduce = q->kind == KOLO_COLLECTIVE_REDUCE && q->comm->rank != q->root;
    q->input = reduce && !o->input ? o->output : o->input; /* at the root the output is in DATA */
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

/* Copies the parts; a request without parts gets one. */
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

/* The line that names the request in errors, with the requested algorithm or the one that AUTO
 * chose: "reduce 'loss' (1 x f32, sum, to rank 0)". */
static void name_request(kolo_request *q, kolo_algorithm algorithm) {
    kolo_collective kind = q->kind;
    char what[88] = "", own[32];
    size_t n = sizeof what;
    const char *type = kolo_dtype_name(q->dtype), *op = kolo_reduce_op_name(q->op);
    if (q->user_op.combine) op = q->user_op.name;
    if (q->user_op.element_bytes > 0) {
        snprintf(own, sizeof own, "%zu bytes", q->element_bytes);
        type = own;
    }
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
    } else if (q->any) {
        snprintf(what, n, " (%zu x %s, from any rank)", q->count, type);
    } else if (kind != KOLO_COLLECTIVE_BARRIER) {
        snprintf(what, n, " (%zu x %s, from rank %d)", q->count, type, q->root);
    }
    const char *quote = q->site[0] ? "'" : "";
    const char *group = q->comm->group;
    snprintf(q->title, sizeof q->title, "%s%s%s%.40s%s%s%s%s", kind_names[kind],
             q->site[0] ? " " : "", quote, q->site, quote, what, group[0] ? " in " : "", group);
}

/* A mean is a sum with a factor. In f16 and bf16, whose sums could overflow, a power of two of it,
 * which is exact, is applied before the sum. Values of shards are not scaled before it. */
static void set_scales(kolo_request *q, const kolo_request_opts *o) {
    q->prescale = o->prescale != 0 ? o->prescale : 1;
    q->postscale = o->postscale != 0 ? o->postscale : 1;
    if (!kolo_collective_reduces(o->kind) || o->op != KOLO_MEAN) return;
    int terms = o->shards > 0 ? o->shards : q->comm->size, before = 1;
    bool half = o->dtype == KOLO_DTYPE_F16 || o->dtype == KOLO_DTYPE_BF16;
    while (half && o->shards == 0 && before < terms) before *= 2;
    q->prescale /= before;
    q->postscale *= (double)before / terms;
}

/* Connects to the peers of the schedules, so that the first start does not wait for that. */
static void connect_peers(const kolo_request *q) {
    kolo_transport *t = q->comm->transport;
    if (!t->ops->need) return;
    for (int r = 0; r < q->comm->size && q->n_schedules > 0; r++) {
        if (q->schedules[0].windows) kolo_transport_need(t, r, false);
    }
    for (int i = 0; i < q->n_schedules; i++) {
        const kolo_schedule *s = &q->schedules[i];
        for (size_t k = 0; k < s->n_entries; k++) {
            const kolo_entry *e = &s->entries[k];
            bool message = e->kind == KOLO_ENTRY_SEND || e->kind == KOLO_ENTRY_RECV;
            if (message) kolo_transport_need(t, e->peer, false);
        }
    }
}

static kolo_status create(kolo_comm *comm, const kolo_request_opts *o, bool summands,
                          kolo_request **request) {
    if (!comm || !o || !request)
        return KOLO_FAIL(KOLO_ERR_ARG, "kolo_request_create: an argument is NULL");
    KOLO_COMM_CLAIM(comm);
    KOLO_COMM_LOCK_SCOPE(comm);
    KOLO_TRY(kolo_comm_check(comm));
    KOLO_TRY(check_opts(comm, o));
    kolo_request *q = kolo_zalloc(sizeof *q);
    if (!q) return KOLO_NOMEM(sizeof *q);
    *q = (kolo_request){
        .comm = comm,
        .kind = o->kind,
        .dtype = o->dtype,
        .op = o->user_op                         ? KOLO_REDUCE_OP_COUNT
              : kolo_collective_reduces(o->kind) ? o->op
                                                 : KOLO_SUM,
        .root = o->root,
        .any = o->kind == KOLO_COLLECTIVE_RECV && o->root == KOLO_ANY_RANK,
        .tag = o->tag,
        .priority = o->priority,
        .element_bytes = element_bytes(o),
    };
    set_scales(q, o);
    bool message = kolo_collective_is_message(q->kind);
    kolo_status status = KOLO_OK;
    if (o->user_op) KOLO_TRY_GOTO(kolo_request_set_user_op(q, o->user_op), fail);
    KOLO_TRY_GOTO(make_spec(q, o), fail);
    q->spec.summands = summands;
    KOLO_TRY_GOTO(copy_parts(q, o), fail);
    q->algorithm = kolo_request_resolve(q, o);
    name_request(q, q->algorithm);
    KOLO_TRY_GOTO(message ? kolo_p2p_open(comm) : kolo_request_make_collective(q, q->algorithm),
                  fail);
    connect_peers(q);
    q->next = comm->requests;
    comm->requests = q;
    if (kolo_log_writes(KOLO_LOG_DEBUG)) {
        kolo_log_line(KOLO_LOG_DEBUG, kolo_comm_whole_rank(comm, comm->rank),
                      "created %s: %zu bytes", q->title, q->count * q->element_bytes);
    }
    *request = q;
    return KOLO_OK;
fail:
    kolo_request_destroy(q);
    return status;
}

kolo_status kolo_request_create(kolo_comm *comm, const kolo_request_opts *o,
                                kolo_request **request) {
    return create(comm, o, false, request);
}

kolo_status kolo_summands_create(kolo_comm *comm, const kolo_request_opts *o,
                                 kolo_request **request) {
    KOLO_ASSERT(o->kind == KOLO_COLLECTIVE_REDUCE_SCATTER && !o->input);
    return create(comm, o, true, request);
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
