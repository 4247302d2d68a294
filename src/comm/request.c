/* Requests: what they check, which schedules they get, starting and ending them. */
#include "base/rng.h"
#include "comm/engine.h"

#include <stdio.h>
#include <string.h>

enum { SLICE_ALIGN_BYTES = 64 };

/* What a request is created from. */
typedef struct request_spec {
    kolo_collective kind;
    const kolo_part *parts;
    int n_parts;
    kolo_dtype dtype;
    kolo_reduce_op op;
    kolo_algorithm algorithm;
    int root;
    const char *site;
} request_spec;

static const char *const kind_names[] = {"allreduce", "broadcast", "barrier"};
static const char *const op_names[] = {"sum", "min", "max", "prod"};

static kolo_status check_spec(const kolo_comm *comm, const request_spec *spec) {
    const char *name = kind_names[spec->kind];
    if ((size_t)spec->dtype >= KOLO_DTYPE_COUNT) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: unknown element type %d", name, (int)spec->dtype);
    }
    if ((size_t)spec->op >= KOLO_REDUCE_OPS) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: unknown operation %d", name, (int)spec->op);
    }
    if ((size_t)spec->algorithm > KOLO_ALGORITHM_DIRECT) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: unknown algorithm %d", name, (int)spec->algorithm);
    }
    if (spec->root < 0 || spec->root >= comm->size) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: root %d outside [0, %d)", name, spec->root, comm->size);
    }
    if (spec->n_parts < 0 || (spec->n_parts > 0 && !spec->parts)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: %d parts at no address", name, spec->n_parts);
    }
    size_t limit = (size_t)INT64_MAX / kolo_dtype_bytes(spec->dtype), count = 0;
    for (int i = 0; i < spec->n_parts; i++) {
        if (spec->parts[i].count > limit - count) {
            return KOLO_FAIL(KOLO_ERR_ARG, "%s: part %d of %zu elements is too long", name, i,
                             spec->parts[i].count);
        }
        if (spec->parts[i].count > 0 && !spec->parts[i].data) {
            return KOLO_FAIL(KOLO_ERR_ARG, "%s: part %d has no data", name, i);
        }
        count += spec->parts[i].count;
    }
    return KOLO_OK;
}

/* Copies the parts; a request without any has one empty part, so that all have a first one. */
static kolo_status copy_parts(kolo_request *q, const request_spec *spec) {
    size_t n = spec->n_parts > 0 ? (size_t)spec->n_parts : 1;
    q->n_parts = (int)n;
    q->parts = kolo_zalloc(n * sizeof *q->parts);
    q->firsts = kolo_zalloc((n + 1) * sizeof *q->firsts);
    q->site = kolo_strdup(spec->site ? spec->site : "");
    if (!q->parts || !q->firsts || !q->site) return KOLO_NOMEM(n * sizeof *q->parts);
    for (int i = 0; i < spec->n_parts; i++) q->parts[i] = spec->parts[i];
    for (size_t i = 0; i < n; i++) q->firsts[i + 1] = q->firsts[i] + q->parts[i].count;
    return KOLO_OK;
}

/* Whether the peers need this rank's DATA and cannot reach it; fills the table of handles. */
static kolo_status find_handles(kolo_request *q) {
    kolo_transport *t = q->comm->transport;
    bool needed = q->kind == KOLO_COLLECTIVE_ALLREDUCE ||
                  (q->kind == KOLO_COLLECTIVE_BROADCAST && q->root == t->rank);
    if (q->n_parts > 1) {
        void *table;
        size_t bytes = (size_t)q->n_parts * sizeof *q->handles;
        KOLO_TRY(kolo_segment_take(&t->segment, bytes, &table));
        q->handles = table;
    }
    for (int i = 0; i < q->n_parts; i++) {
        const kolo_part *part = &q->parts[i];
        uint64_t handle = t->ops->handle(t, part->data, part->count * q->element_bytes);
        if (handle == 0 && part->count > 0) q->private_data = needed;
        if (q->handles) q->handles[i] = handle;
    }
    return KOLO_OK;
}

static kolo_status add_schedule(kolo_request *q, kolo_algorithm algorithm, kolo_variant variant) {
    const kolo_comm *comm = q->comm;
    if (q->kind != KOLO_COLLECTIVE_ALLREDUCE) algorithm = KOLO_ALGORITHM_AUTO;
    const kolo_algorithm_row *row = kolo_algorithm_find(q->kind, algorithm, variant);
    KOLO_ASSERT(row);
    size_t chunk = comm->tuning.chunk_bytes / q->element_bytes;
    size_t align = SLICE_ALIGN_BYTES / q->element_bytes;
    kolo_schedule_spec spec = {
        .kind = q->kind,
        .rank = comm->rank,
        .size = comm->size,
        .root = q->root,
        .count = q->firsts[q->n_parts],
        .chunk = chunk > 0 ? chunk : 1,
        .align = chunk < align ? 1 : align, /* tiny chunks, in tests, cut tiny slices */
    };
    KOLO_TRY(kolo_schedule_build(row, &spec, &q->schedules[q->n_schedules]));
    q->n_schedules++;
    return KOLO_OK;
}

/* Messages for ring; else memory: eager when tiny, and in place, with a staged alternative for the
 * case that some rank's data turns out to be private. */
static kolo_status choose_schedules(kolo_request *q, kolo_algorithm algorithm) {
    const kolo_comm *comm = q->comm;
    size_t bytes = q->firsts[q->n_parts] * q->element_bytes;
    if (algorithm == KOLO_ALGORITHM_RING) {
        return add_schedule(q, algorithm, KOLO_VARIANT_MESSAGES);
    }
    q->eager = q->kind != KOLO_COLLECTIVE_BARRIER && bytes <= comm->tuning.eager_bytes;
    if (q->eager) {
        q->private_data = false; /* the copies that travel are what peers look at */
        return add_schedule(q, KOLO_ALGORITHM_DIRECT, KOLO_VARIANT_EAGER);
    }
    KOLO_TRY(add_schedule(q, KOLO_ALGORITHM_DIRECT, KOLO_VARIANT_WINDOW));
    bool can_be_private = !comm->transport->reaches_all && q->kind != KOLO_COLLECTIVE_BARRIER;
    return can_be_private ? add_schedule(q, KOLO_ALGORITHM_DIRECT, KOLO_VARIANT_STAGED) : KOLO_OK;
}

/* Working arrays of the engine. */
static kolo_status make_tables(kolo_request *q) {
    size_t n = (size_t)q->comm->size, widest = 1;
    for (int i = 0; i < q->n_schedules; i++) {
        size_t w = kolo_schedule_widest(&q->schedules[i]);
        if (w > widest) widest = w;
    }
    q->entries = kolo_zalloc(widest * sizeof *q->entries);
    q->peer_data = kolo_zalloc(n * (size_t)q->n_parts * sizeof *q->peer_data);
    q->peer_scratch = kolo_zalloc(n * sizeof *q->peer_scratch);
    q->met_seq = kolo_zalloc(n * sizeof *q->met_seq);
    q->from = kolo_zalloc(n * sizeof *q->from);
    q->to = kolo_zalloc(n * sizeof *q->to);
    if (!q->entries || !q->peer_data || !q->peer_scratch || !q->met_seq || !q->from || !q->to) {
        return KOLO_NOMEM(n * (size_t)q->n_parts * sizeof *q->peer_data);
    }
    return KOLO_OK;
}

/* The line that names the request in errors, and the hash of all that must agree and has no field
 * of its own in an announcement. */
static void describe(kolo_request *q, kolo_algorithm algorithm) {
    size_t count = q->firsts[q->n_parts];
    char what[64] = "";
    if (q->kind == KOLO_COLLECTIVE_ALLREDUCE) {
        snprintf(what, sizeof what, " (%zu x %s, %s, %s)", count, kolo_dtype_name(q->dtype),
                 op_names[q->op], kolo_algorithm_name(algorithm));
    } else if (q->kind == KOLO_COLLECTIVE_BROADCAST) {
        snprintf(what, sizeof what, " (%zu x %s, from rank %d)", count, kolo_dtype_name(q->dtype),
                 q->root);
    }
    const char *quote = q->site[0] ? "'" : "";
    snprintf(q->title, sizeof q->title, "%s%s%s%.48s%s%s", kind_names[q->kind],
             q->site[0] ? " " : "", quote, q->site, quote, what);
    uint64_t fields[6] = {
        kolo_hash_text(q->site),     (uint64_t)algorithm,         (uint64_t)q->root,
        q->comm->tuning.chunk_bytes, q->comm->tuning.eager_bytes, (uint64_t)q->n_parts,
    };
    q->shape = kolo_hash_bytes(fields, sizeof fields);
    for (int i = 0; i < q->n_parts; i++) {
        uint64_t part[3] = {q->shape, q->parts[i].tree_node, q->parts[i].count};
        q->shape = kolo_hash_bytes(part, sizeof part);
    }
}

/* Direct reaches every rank of the host in one step, so it wins at every size where memory is
 * shared. */
static kolo_algorithm resolve_algorithm(const kolo_comm *comm, kolo_algorithm algorithm) {
    if (algorithm == KOLO_ALGORITHM_AUTO) algorithm = comm->algorithm;
    return algorithm == KOLO_ALGORITHM_AUTO ? KOLO_ALGORITHM_DIRECT : algorithm;
}

static kolo_status request_create(kolo_comm *comm, const request_spec *spec,
                                  kolo_request **request) {
    if (!comm || !request) return KOLO_FAIL(KOLO_ERR_ARG, "a request needs a communicator");
    KOLO_TRY(kolo_comm_check(comm));
    KOLO_TRY(check_spec(comm, spec));
    kolo_request *q = kolo_zalloc(sizeof *q);
    if (!q) return KOLO_NOMEM(sizeof *q);
    *q = (kolo_request){
        .comm = comm,
        .kind = spec->kind,
        .dtype = spec->dtype,
        .op = spec->op,
        .root = spec->root,
        .element_bytes = kolo_dtype_bytes(spec->dtype),
    };
    kolo_algorithm algorithm = resolve_algorithm(comm, spec->algorithm);
    kolo_status status = KOLO_OK;
    KOLO_TRY_GOTO(copy_parts(q, spec), fail);
    KOLO_TRY_GOTO(find_handles(q), fail);
    KOLO_TRY_GOTO(choose_schedules(q, algorithm), fail);
    KOLO_TRY_GOTO(make_tables(q), fail);
    describe(q, algorithm);
    q->number = comm->next_number++;
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
    return request_create(comm,
                          &(request_spec){.kind = KOLO_COLLECTIVE_ALLREDUCE,
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
    return request_create(comm,
                          &(request_spec){.kind = KOLO_COLLECTIVE_BROADCAST,
                                          .parts = parts,
                                          .n_parts = n_parts,
                                          .dtype = dtype,
                                          .root = root,
                                          .site = site},
                          request);
}

kolo_status kolo_barrier_create(kolo_comm *comm, const char *site, kolo_request **request) {
    return request_create(
        comm,
        &(request_spec){.kind = KOLO_COLLECTIVE_BARRIER, .dtype = KOLO_DTYPE_U8, .site = site},
        request);
}

kolo_status kolo_request_start(kolo_request *q) {
    kolo_comm *comm = q->comm;
    KOLO_TRY(kolo_comm_check(comm));
    if (q->state != REQUEST_IDLE) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s is in flight already: wait for it before starting again",
                         q->title);
    }
    if (comm->n_flight == KOLO_FLIGHT_QUEUE) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: %d requests are in flight, which is the most", q->title,
                         comm->n_flight);
    }
    q->state = REQUEST_QUEUED;
    q->seq = comm->next_seq++;
    q->round = 0;
    q->phase = 0;
    q->met = 0;
    comm->flight[comm->n_flight++] = q;
    bool moved; /* at best everything is here already; at least the peers see the announcement */
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
    if (q->state != REQUEST_IDLE) {
        (void)kolo_comm_break(q->comm, KOLO_ERR_ARG, "%s was destroyed while in flight", q->title);
    }
    unlink_request(q);
    for (int i = 0; i < q->n_schedules; i++) kolo_schedule_fini(&q->schedules[i]);
    kolo_segment_give(&q->comm->transport->segment, q->handles,
                      (size_t)q->n_parts * sizeof *q->handles);
    kolo_free(q->parts);
    kolo_free(q->firsts);
    kolo_free(q->site);
    kolo_free(q->entries);
    kolo_free(q->peer_data);
    kolo_free(q->peer_scratch);
    kolo_free(q->met_seq);
    kolo_free(q->from);
    kolo_free(q->to);
    kolo_free(q);
}

uint64_t kolo_request_sequence(const kolo_request *q) { return q->seq; }
const char *kolo_request_site(const kolo_request *q) { return q->site; }
bool kolo_request_in_flight(const kolo_request *q) { return q->state != REQUEST_IDLE; }
kolo_traffic kolo_request_traffic(const kolo_request *q) { return q->traffic; }

kolo_schedule *kolo_request_schedule(kolo_request *q) {
    return &q->schedules[q->private_data ? q->n_schedules - 1 : 0];
}

const char *kolo_request_schedule_name(const kolo_request *q) {
    return q->schedule ? q->schedule->name : q->schedules[0].name;
}
