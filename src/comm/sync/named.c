/* Named tensors: agreement on what all ranks have posted, and its reduction. See kolo/named.h.
 *
 * All collectives of a kolo_named follow from the result of an agreement, so every rank starts the
 * same ones in the same order:
 *
 *     agreement     allreduce, minimum, of bytes that are 0 or 1. Byte 0: this rank has no new
 *                   names; byte 1: it does not request the table; byte 2 + id: it has posted
 *                   tensor id
 *     groups        an allreduce for each group of tensors posted by all ranks, by ascending id
 *     sizes, names  if byte 0 is 0: allgathers of the announcements of new names, which get ids
 *     table         if byte 1 is 0: an allgather of which rank has posted which tensor
 *
 * A rank joins an agreement only while it has posted a tensor that is not agreed on. Otherwise
 * there is no tensor that all ranks can have posted: the agreement waits until this rank posts one.
 */
#include "comm/sync/named.h"

#include "base/clock.h"
#include "base/integer.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"
#include "comm/engine/backoff.h"
#include "comm/engine/comm.h"
#include "comm/engine/engine.h"
#include "comm/engine/failure.h"
#include "comm/engine/lock.h"
#include "comm/engine/progress_thread.h"
#include "comm/engine/request.h"

#include <stdio.h>
#include <string.h>

enum {
    HEAD = 2, /* bytes of an agreement before those of the names */
    IDS_MIN = 254,
    NAMES_MAX = 1 << 28,              /* bytes of one rank's announcement */
    FLIGHT_MAX = KOLO_FLIGHT_MAX / 2, /* requests in flight; further groups are queued */
    CYCLE_US_DEFAULT = 1000,
    STALL_MS_DEFAULT = 60000,
    NAMED_IN_TEXTS = 3,
    ABSENT_NS = 100000000, /* a rank that has posted a tensor joins much sooner */
};

static const size_t fusion_default = (size_t)64 << 20;

/* Fused tensors. */
typedef struct group {
    struct group *next;
    kolo_request *request; /* NULL: not started */
    void *buffer;          /* of several tensors, in the segment; NULL: one tensor */
    size_t bytes;
    kolo_dtype dtype;
    kolo_reduce_op op;
    int n, handles[];
} group;

typedef enum phase { IDLE, AGREEING, STARTING, SIZES, NAMES, TABLE } phase;

struct kolo_named {
    kolo_comm *comm;
    kolo_named_opts opts;
    kolo_name_table names;
    phase phase;
    kolo_request *agreement; /* persistent */
    kolo_request *exchange;  /* of the phases after it */
    uint8_t *bytes;          /* [HEAD + ids_room]: of the agreement */
    size_t ids_room;
    bool needs_names, needs_table; /* requested by the agreement */
    uint64_t *sizes;               /* [size]: bytes of each rank's message */
    char *own, *all;               /* announcements of this rank and of all; owned */
    size_t own_bytes;
    size_t *counts; /* [size] */
    uint8_t *table; /* [size][table_ids]: 1: the rank has posted the tensor */
    size_t table_ids;
    group *first, **last; /* in the order of ids */
    int posted, unknown;  /* tensors not agreed on; those of them without id */
    int open;             /* incomplete tensors */
    bool fresh;           /* a tensor was posted since the last agreement began */
    bool want_table;
    int64_t begun_ns; /* when this rank joined the agreement */
    int64_t next_ns;  /* earliest start of the next agreement, unless a wait needs it */
    kolo_named_counts counted;
};

static kolo_status fail(kolo_named *m, kolo_status status) {
    return kolo_comm_break(m->comm, status, "%s", kolo_last_error());
}

/* ---- creation ---- */

static kolo_status resolve(const kolo_named_opts *opts, kolo_named_opts *out) {
    kolo_named_opts o = opts ? *opts : (kolo_named_opts){0};
    if (o.cycle_us < 0 || o.stall_ms < 0) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "an option of named tensors is negative: cycle_us %lld, stall_ms %lld",
                         (long long)o.cycle_us, (long long)o.stall_ms);
    }
    if (o.fusion_bytes == 0) o.fusion_bytes = fusion_default;
    if (o.cycle_us == 0) o.cycle_us = CYCLE_US_DEFAULT;
    if (o.stall_ms == 0) o.stall_ms = STALL_MS_DEFAULT;
    *out = o;
    return KOLO_OK;
}

/* Makes room for the bytes of all ids, and recreates the agreement request. */
static kolo_status make_room(kolo_named *m) {
    if (m->bytes && m->names.n_ids <= m->ids_room) return KOLO_OK;
    size_t room = m->ids_room ? 2 * m->ids_room : IDS_MIN;
    while (room < m->names.n_ids) room *= 2;
    kolo_request_destroy(m->agreement);
    m->agreement = NULL;
    kolo_free(m->bytes);
    m->ids_room = room;
    m->bytes = kolo_zalloc(HEAD + room);
    if (!m->bytes) return KOLO_NOMEM(HEAD + room);
    return kolo_request_create(m->comm,
                               &(kolo_request_opts){.kind = KOLO_COLLECTIVE_ALLREDUCE,
                                                    .dtype = KOLO_DTYPE_U8,
                                                    .op = KOLO_MIN,
                                                    .output = m->bytes,
                                                    .count = HEAD + room,
                                                    .site = "agreement on posted tensors"},
                               &m->agreement);
}

kolo_status kolo_named_create(kolo_comm *comm, const kolo_named_opts *opts, kolo_named **named) {
    if (!comm || !named) return KOLO_FAIL(KOLO_ERR_ARG, "kolo_named_create: an argument is NULL");
    kolo_named_opts o;
    KOLO_TRY(resolve(opts, &o));
    kolo_named *m = kolo_zalloc(sizeof *m);
    if (!m) return KOLO_NOMEM(sizeof *m);
    KOLO_COMM_LOCK_SCOPE(comm);
    size_t n = (size_t)comm->size;
    *m = (kolo_named){.comm = comm, .opts = o};
    m->last = &m->first;
    m->sizes = kolo_zalloc(n * sizeof *m->sizes);
    m->counts = kolo_zalloc(n * sizeof *m->counts);
    kolo_status status = KOLO_OK;
    if (!m->sizes || !m->counts) status = KOLO_NOMEM(n * sizeof *m->sizes);
    if (status == KOLO_OK) status = make_room(m);
    if (status != KOLO_OK) {
        kolo_named_destroy(m);
        return status;
    }
    *named = m;
    return KOLO_OK;
}

static void free_group(kolo_named *m, group *g) {
    kolo_request_destroy(g->request);
    if (g->buffer) kolo_segment_give(&m->comm->transport->segment, g->buffer, g->bytes);
    kolo_free(g);
}

void kolo_named_destroy(kolo_named *m) {
    if (!m || m->comm->inherited) return;
    KOLO_COMM_LOCK_SCOPE(m->comm);
    for (group *g = m->first, *next; g; g = next) {
        next = g->next;
        free_group(m, g);
    }
    kolo_request_destroy(m->agreement);
    kolo_request_destroy(m->exchange);
    kolo_names_fini(&m->names);
    kolo_free(m->bytes);
    kolo_free(m->sizes);
    kolo_free(m->counts);
    kolo_free(m->own);
    kolo_free(m->all);
    kolo_free(m->table);
    kolo_free(m);
}

kolo_named_counts kolo_named_count(const kolo_named *m) {
    kolo_named_counts counts = m->counted;
    counts.names = m->names.n_ids;
    return counts;
}

/* ---- groups ---- */

static kolo_named_tensor *tensor_of_id(kolo_named *m, size_t id) {
    return &m->names.tensors[m->names.by_id[id]];
}

static size_t tensor_bytes(const kolo_named_tensor *t) {
    return t->signature.count * kolo_dtype_bytes(t->signature.dtype);
}

/* Creates a group: the tensor with this id, and later ones of the same type and operation that fit.
 */
static kolo_status make_group(kolo_named *m, size_t first, size_t *left) {
    const kolo_signature *kind = &tensor_of_id(m, first)->signature;
    group *g = kolo_zalloc(sizeof *g + *left * sizeof g->handles[0]);
    if (!g) return KOLO_NOMEM(*left * sizeof g->handles[0]);
    g->dtype = kind->dtype;
    g->op = kind->op;
    for (size_t id = first; id < m->names.n_ids; id++) {
        kolo_named_tensor *t = tensor_of_id(m, id);
        size_t bytes = tensor_bytes(t);
        bool like = t->signature.dtype == g->dtype && t->signature.op == g->op;
        if (m->bytes[HEAD + id] != 1 || t->state != KOLO_TENSOR_POSTED || !like) continue;
        bool fits = bytes <= m->opts.fusion_bytes && g->bytes <= m->opts.fusion_bytes - bytes;
        if (g->n > 0 && !fits) continue;
        t->state = KOLO_TENSOR_REDUCED;
        g->handles[g->n++] = m->names.by_id[id];
        g->bytes += bytes;
    }
    m->posted -= g->n;
    *left -= (size_t)g->n;
    *m->last = g;
    m->last = &g->next;
    return KOLO_OK;
}

static kolo_status make_groups(kolo_named *m) {
    size_t left = 0;
    for (size_t id = 0; id < m->names.n_ids; id++) {
        if (m->bytes[HEAD + id] != 1) continue;
        if (tensor_of_id(m, id)->state != KOLO_TENSOR_POSTED) {
            return KOLO_FAIL(KOLO_ERR_FORMAT,
                             "the ranks agreed on tensor '%.100s', which this rank "
                             "has not posted",
                             tensor_of_id(m, id)->name);
        }
        left++;
    }
    m->counted.tensors += left;
    for (size_t id = 0; left > 0; id++) {
        bool ready = m->bytes[HEAD + id] == 1;
        if (!ready || tensor_of_id(m, id)->state != KOLO_TENSOR_POSTED) continue;
        KOLO_TRY(make_group(m, id, &left));
    }
    return KOLO_OK;
}

static kolo_status start_group(kolo_named *m, group *g) {
    kolo_named_tensor *first = &m->names.tensors[g->handles[0]];
    void *data = first->data;
    if (g->n > 1) {
        KOLO_TRY(kolo_segment_take(&m->comm->transport->segment, g->bytes, &g->buffer));
        data = g->buffer;
        char *to = data;
        for (int i = 0; i < g->n; i++) {
            const kolo_named_tensor *t = &m->names.tensors[g->handles[i]];
            if (tensor_bytes(t) > 0) memcpy(to, t->data, tensor_bytes(t));
            to += tensor_bytes(t);
        }
    }
    char site[KOLO_NAME_BYTES + 24];
    snprintf(site, sizeof site, g->n > 1 ? "%.32s and %d more" : "%.44s", first->name, g->n - 1);
    KOLO_TRY(
        kolo_request_create(m->comm,
                            &(kolo_request_opts){.kind = KOLO_COLLECTIVE_ALLREDUCE,
                                                 .dtype = g->dtype,
                                                 .op = g->op,
                                                 .output = data,
                                                 .count = g->bytes / kolo_dtype_bytes(g->dtype),
                                                 .site = site},
                            &g->request));
    m->counted.reductions++;
    return kolo_request_start(g->request);
}

/* Starts groups in order, up to FLIGHT_MAX requests in flight; sets `all` if none is left. */
static kolo_status start_groups(kolo_named *m, bool *all) {
    *all = true;
    for (group *g = m->first; g; g = g->next) {
        if (g->request) continue;
        *all = m->comm->n_flight < FLIGHT_MAX;
        if (!*all) return KOLO_OK;
        KOLO_TRY(start_group(m, g));
    }
    return KOLO_OK;
}

static void complete_group(kolo_named *m, group *g) {
    const char *from = g->buffer;
    for (int i = 0; i < g->n; i++) {
        kolo_named_tensor *t = &m->names.tensors[g->handles[i]];
        if (from && tensor_bytes(t) > 0) memcpy(t->data, from, tensor_bytes(t));
        if (from) from += tensor_bytes(t);
        t->state = KOLO_TENSOR_IDLE;
    }
    m->open -= g->n;
}

static void complete_groups(kolo_named *m, bool *moved) {
    for (group **at = &m->first, *g; (g = *at);) {
        if (!g->request || kolo_request_in_flight(g->request)) {
            at = &g->next;
            continue;
        }
        complete_group(m, g);
        *at = g->next;
        if (m->last == &g->next) m->last = at;
        free_group(m, g);
        *moved = true;
    }
}

/* ---- agreements ---- */

static kolo_status begin_agreement(kolo_named *m) {
    KOLO_TRY(make_room(m));
    memset(m->bytes, 0, HEAD + m->ids_room);
    m->bytes[0] = m->unknown == 0;
    m->bytes[1] = !m->want_table;
    for (size_t id = 0; id < m->names.n_ids; id++) {
        m->bytes[HEAD + id] = tensor_of_id(m, id)->state == KOLO_TENSOR_POSTED;
    }
    m->fresh = false;
    m->begun_ns = kolo_now_ns();
    m->phase = AGREEING;
    return kolo_request_start(m->agreement);
}

static kolo_status end_agreement(kolo_named *m) {
    m->counted.agreements++;
    m->needs_names = m->bytes[0] == 0;
    m->needs_table = m->bytes[1] == 0;
    m->phase = STARTING;
    return make_groups(m);
}

/* ---- what follows an agreement ---- */

/* Starts an allgather in place of `counts` bytes per rank. */
static kolo_status gather(kolo_named *m, phase next, void *output, const char *site) {
    m->phase = next;
    KOLO_TRY(kolo_request_create(m->comm,
                                 &(kolo_request_opts){.kind = KOLO_COLLECTIVE_ALLGATHER,
                                                      .dtype = KOLO_DTYPE_U8,
                                                      .output = output,
                                                      .counts = m->counts,
                                                      .site = site},
                                 &m->exchange));
    return kolo_request_start(m->exchange);
}

static kolo_status gather_sizes(kolo_named *m) {
    KOLO_TRY(kolo_names_write(&m->names, &m->own, &m->own_bytes));
    for (int r = 0; r < m->comm->size; r++) m->counts[r] = sizeof *m->sizes;
    m->sizes[m->comm->rank] = m->own_bytes;
    return gather(m, SIZES, m->sizes, "sizes of announcements");
}

static kolo_status gather_names(kolo_named *m) {
    size_t total = 0, before = 0;
    for (int r = 0; r < m->comm->size; r++) {
        if (m->sizes[r] > NAMES_MAX) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d announces %llu bytes of names", r,
                             (unsigned long long)m->sizes[r]);
        }
        if (r < m->comm->rank) before += (size_t)m->sizes[r];
        m->counts[r] = (size_t)m->sizes[r];
        total += m->counts[r];
    }
    m->all = kolo_alloc(total ? total : 1);
    if (!m->all) return KOLO_NOMEM(total);
    memcpy(m->all + before, m->own, m->own_bytes);
    return gather(m, NAMES, m->all, "new names");
}

static kolo_status add_names(kolo_named *m) {
    const char *at = m->all;
    for (int r = 0; r < m->comm->size; r++) {
        KOLO_TRY(kolo_names_read(&m->names, r, at, m->counts[r]));
        at += m->counts[r];
    }
    kolo_free(m->own);
    kolo_free(m->all);
    m->own = m->all = NULL;
    m->unknown = 0; /* except names posted since the announcement was written */
    for (size_t h = 0; h < m->names.n; h++) m->unknown += m->names.tensors[h].id < 0;
    m->needs_names = false;
    m->fresh = true; /* tensors with a new id may be ready on all ranks */
    return KOLO_OK;
}

static kolo_status gather_table(kolo_named *m) {
    size_t n = (size_t)m->comm->size;
    m->table_ids = m->names.n_ids;
    kolo_free(m->table);
    m->table = kolo_zalloc(n * m->table_ids + 1);
    if (!m->table) return KOLO_NOMEM(n * m->table_ids);
    uint8_t *own = m->table + (size_t)m->comm->rank * m->table_ids;
    for (size_t id = 0; id < m->table_ids; id++) {
        own[id] = tensor_of_id(m, id)->state != KOLO_TENSOR_IDLE;
    }
    for (size_t r = 0; r < n; r++) m->counts[r] = m->table_ids;
    m->needs_table = m->want_table = false;
    return gather(m, TABLE, m->table, "table of posted tensors");
}

/* ---- progress ---- */

/* Whether to begin an agreement. */
static bool may_agree(const kolo_named *m, bool waiting) {
    if (m->posted == 0) return false;
    return (waiting && m->fresh) || kolo_now_ns() >= m->next_ns;
}

static kolo_status end_cycle(kolo_named *m) {
    m->phase = IDLE;
    m->next_ns = kolo_now_ns() + kolo_min_i64(m->opts.cycle_us, INT64_MAX / 4000) * 1000;
    return KOLO_OK;
}

/* Begins the next phase if this one is complete; then sets `moved`. */
static kolo_status next_phase(kolo_named *m, bool waiting, bool *moved) {
    bool all;
    *moved = true;
    switch (m->phase) {
    case IDLE:
        if (may_agree(m, waiting)) return begin_agreement(m);
        break;
    case AGREEING:
        if (!kolo_request_in_flight(m->agreement)) return end_agreement(m);
        break;
    case STARTING: /* all groups start before any later collective */
        KOLO_TRY(start_groups(m, &all));
        if (!all) break;
        if (m->needs_names) return gather_sizes(m);
        return m->needs_table ? gather_table(m) : end_cycle(m);
    case SIZES:
    case NAMES:
    case TABLE:
        if (kolo_request_in_flight(m->exchange)) break;
        kolo_request_destroy(m->exchange);
        m->exchange = NULL;
        if (m->phase == SIZES) return gather_names(m);
        if (m->phase == NAMES) KOLO_TRY(add_names(m));
        return m->needs_table ? gather_table(m) : end_cycle(m);
    }
    *moved = false;
    return KOLO_OK;
}

/* Advances as far as possible. */
static kolo_status advance(kolo_named *m, bool waiting, bool *moved) {
    KOLO_TRY(kolo_engine_progress(m->comm, moved));
    complete_groups(m, moved);
    for (bool more = true; more;) {
        kolo_status status = next_phase(m, waiting, &more);
        if (status != KOLO_OK) return fail(m, status);
        *moved = *moved || more;
    }
    return KOLO_OK;
}

kolo_status kolo_named_progress(kolo_named *m) {
    KOLO_COMM_CLAIM(m->comm);
    KOLO_COMM_LOCK_SCOPE(m->comm);
    bool moved;
    KOLO_TRY(advance(m, false, &moved));
    return moved ? KOLO_OK : kolo_comm_progress(m->comm); /* checks the peers */
}

/* ---- posting ---- */

kolo_status kolo_named_post(kolo_named *m, const char *name, void *data, size_t count,
                            kolo_dtype dtype, kolo_reduce_op op, int *handle) {
    KOLO_COMM_CLAIM(m->comm);
    KOLO_COMM_LOCK_SCOPE(m->comm);
    KOLO_TRY(kolo_comm_check(m->comm));
    size_t length = name ? strlen(name) : 0;
    if (length == 0 || length >= KOLO_NAME_BYTES) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a tensor name of %zu bytes: the length must be 1 to %d",
                         length, KOLO_NAME_BYTES - 1);
    }
    if (kolo_reduce_check(dtype, op) != KOLO_OK) {
        return kolo_fail_in(KOLO_ERR_ARG, "tensor '%.100s'", name);
    }
    if ((count > 0 && !data) || count > (size_t)INT64_MAX / kolo_dtype_bytes(dtype)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "tensor '%.100s': type %d, operation %d, %zu elements at %p",
                         name, (int)dtype, (int)op, count, data);
    }
    kolo_signature signature = {.count = count, .dtype = dtype, .op = op};
    int h = kolo_names_find(&m->names, name, length);
    if (h < 0) KOLO_TRY(kolo_names_add(&m->names, name, length, &signature, &h));
    kolo_named_tensor *t = &m->names.tensors[h];
    if (t->state != KOLO_TENSOR_IDLE) {
        return KOLO_FAIL(KOLO_ERR_ARG, "tensor '%.100s' is already posted: wait for it first",
                         name);
    }
    kolo_status status = kolo_names_check(t, &signature, m->comm->rank);
    if (status != KOLO_OK) return fail(m, status);
    t->state = KOLO_TENSOR_POSTED;
    t->data = data;
    m->posted++;
    m->open++;
    m->unknown += t->id < 0;
    m->fresh = true;
    *handle = h;
    return kolo_named_progress(m);
}

kolo_status kolo_named_test(kolo_named *m, int handle, bool *complete) {
    KOLO_COMM_CLAIM(m->comm);
    if (handle < 0 || (size_t)handle >= m->names.n) {
        return KOLO_FAIL(KOLO_ERR_ARG, "handle %d belongs to no tensor", handle);
    }
    KOLO_TRY(kolo_named_progress(m));
    *complete = m->names.tensors[handle].state == KOLO_TENSOR_IDLE;
    return KOLO_OK;
}

/* ---- waiting and stalls ---- */

/* Adds the ranks that have not joined an agreement for long: they have posted no tensor that is not
 * agreed on. */
static bool add_absent(kolo_named *m, kolo_text *text) {
    kolo_transport *transport = m->comm->transport;
    int n = 0;
    bool old = m->phase == AGREEING && kolo_now_ns() - m->begun_ns > ABSENT_NS;
    for (int r = 0; r < m->comm->size && old; r++) {
        kolo_peer_call call;
        uint64_t seq = kolo_request_sequence(m->agreement);
        if (r == m->comm->rank || transport->ops->query(transport, seq, r, &call)) continue;
        if (n < NAMED_IN_TEXTS) kolo_text_add(text, "%s%d", n ? ", " : "not posted by rank ", r);
        n++;
    }
    if (n > NAMED_IN_TEXTS) kolo_text_add(text, " and %d more", n - NAMED_IN_TEXTS);
    if (n > 0)
        kolo_text_add(text, ", which %s posted no other tensor either", n > 1 ? "have" : "has");
    return n > 0;
}

/* Adds " (but 'a', 'b' and 3 more)": what a rank has posted and another one has not. */
static void add_others(kolo_named *m, kolo_text *text, int rank) {
    const uint8_t *own = m->table + (size_t)rank * m->table_ids;
    int n = 0;
    for (size_t id = 0; id < m->table_ids; id++) {
        if (!own[id]) continue;
        if (n < NAMED_IN_TEXTS) {
            kolo_text_add(text, "%s'%.60s'", n ? ", " : " (but ", tensor_of_id(m, id)->name);
        }
        n++;
    }
    if (n > NAMED_IN_TEXTS) kolo_text_add(text, " and %d more", n - NAMED_IN_TEXTS);
    if (n > 0) kolo_text_add(text, ")");
}

static bool add_from_table(kolo_named *m, kolo_text *text, const kolo_named_tensor *t) {
    int n = 0;
    if (!m->table || m->phase == TABLE || t->id < 0 || (size_t)t->id >= m->table_ids) return false;
    for (int r = 0; r < m->comm->size; r++) {
        if (m->table[(size_t)r * m->table_ids + (size_t)t->id]) continue;
        if (n < NAMED_IN_TEXTS) {
            kolo_text_add(text, "%s%d", n ? ", " : "not posted by rank ", r);
            add_others(m, text, r);
        }
        n++;
    }
    if (n > NAMED_IN_TEXTS) kolo_text_add(text, " and %d more", n - NAMED_IN_TEXTS);
    return n > 0;
}

/* `answered`: the table is the answer to this wait's request. Then it comes first: a rank of an
 * oversubscribed host may be absent from an agreement for long although it has posted its tensors.
 */
static void add_stall(kolo_named *m, kolo_text *text, const kolo_named_tensor *t, bool answered) {
    char what[64];
    kolo_signature_text(&t->signature, what, sizeof what);
    kolo_text_add(text, "tensor '%.100s' (%s): ", t->name, what);
    if (t->state == KOLO_TENSOR_REDUCED) {
        kolo_text_add(text, "posted by all ranks, its reduction is in flight");
    } else if (!(answered && add_from_table(m, text, t)) && !add_absent(m, text) &&
               !add_from_table(m, text, t)) {
        kolo_text_add(text, "not posted by all ranks");
    }
}

static void report_stall(kolo_named *m, const kolo_named_tensor *t, bool answered) {
    kolo_text text = {0};
    add_stall(m, &text, t, answered);
    if (!text.failed) m->opts.on_stall(m->opts.arg, text.text);
    kolo_text_fini(&text);
}

static kolo_status timed_out(kolo_named *m, const kolo_named_tensor *t, int64_t waited_ns,
                             bool answered) {
    kolo_text text = {0};
    add_stall(m, &text, t, answered);
    kolo_status status = kolo_comm_break(
        m->comm, KOLO_ERR_TIMEOUT,
        "waited %.1f s for %s; all ranks must post the same names, or allow more time (timeout_ms)",
        (double)waited_ns * 1e-9, text.failed ? "a tensor" : text.text);
    kolo_text_fini(&text);
    return status;
}

static kolo_status wait_for(kolo_named *m, int handle, int64_t timeout_ns) {
    int64_t stall_ns = kolo_min_i64(kolo_ms_to_ns(m->opts.stall_ms), timeout_ns / 2);
    bool requested = false, reported = m->opts.on_stall == NULL;
    kolo_idle w = {0};
    while (m->names.tensors[handle].state != KOLO_TENSOR_IDLE) { /* `tensors` may be reallocated */
        bool moved;
        KOLO_TRY(advance(m, true, &moved));
        const kolo_named_tensor *t = &m->names.tensors[handle];
        if (t->state == KOLO_TENSOR_IDLE) break;
        KOLO_TRY(kolo_idle_step(m->comm, &w, moved));
        int64_t waited_ns = w.now_ns - w.started_ns;
        bool answered = requested && !m->want_table && m->phase != TABLE;
        if (waited_ns > timeout_ns) return timed_out(m, t, waited_ns, answered);
        if (waited_ns > stall_ns && !requested) requested = m->want_table = true;
        if (!reported && (answered || waited_ns > stall_ns + stall_ns / 2)) {
            report_stall(m, t, answered);
            reported = true;
        }
    }
    return KOLO_OK;
}

kolo_status kolo_named_wait(kolo_named *m, int handle, int64_t timeout_ms) {
    KOLO_COMM_CLAIM(m->comm);
    if (handle < 0 || (size_t)handle >= m->names.n || timeout_ms < 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "invalid wait: timeout_ms %lld, handle %d",
                         (long long)timeout_ms, handle);
    }
    KOLO_COMM_LOCK_SCOPE(m->comm);
    bool only = kolo_progress_drive(m->comm);
    kolo_status status =
        wait_for(m, handle, timeout_ms > 0 ? kolo_ms_to_ns(timeout_ms) : m->comm->timeout_ns);
    kolo_progress_rest(m->comm, only);
    return status;
}

kolo_status kolo_named_wait_all(kolo_named *m, int64_t timeout_ms) {
    KOLO_COMM_CLAIM(m->comm);
    for (size_t h = 0; h < m->names.n && m->open > 0; h++) {
        KOLO_TRY(kolo_named_wait(m, (int)h, timeout_ms));
    }
    return KOLO_OK;
}
