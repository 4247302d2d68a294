/* Named tensors: agreement on what all ranks have posted. See kolo/named.h; named_groups.c reduces
 * what is agreed on, named_stall.c words what a wait lacks.
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
#include "comm/sync/named_groups.h"
#include "comm/sync/named_stall.h"

#include <string.h>

enum {
    IDS_MIN = 254,
    NAMES_MAX = 1 << 28, /* bytes of one rank's announcement */
    CYCLE_US_DEFAULT = 1000,
    STALL_MS_DEFAULT = 60000,
};

static const size_t fusion_default = (size_t)64 << 20;

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
    m->bytes = kolo_zalloc(KOLO_NAMED_HEAD + room);
    if (!m->bytes) return KOLO_NOMEM(KOLO_NAMED_HEAD + room);
    return kolo_request_create(m->comm,
                               &(kolo_request_opts){.kind = KOLO_COLLECTIVE_ALLREDUCE,
                                                    .dtype = KOLO_DTYPE_U8,
                                                    .op = KOLO_MIN,
                                                    .output = m->bytes,
                                                    .count = KOLO_NAMED_HEAD + room,
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

void kolo_named_destroy(kolo_named *m) {
    if (!m || m->comm->inherited) return;
    KOLO_COMM_LOCK_SCOPE(m->comm);
    kolo_named_free_groups(m);
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

/* ---- agreements ---- */

static kolo_status begin_agreement(kolo_named *m) {
    KOLO_TRY(make_room(m));
    memset(m->bytes, 0, KOLO_NAMED_HEAD + m->ids_room);
    m->bytes[0] = m->unknown == 0;
    m->bytes[1] = !m->want_table;
    for (size_t id = 0; id < m->names.n_ids; id++) {
        m->bytes[KOLO_NAMED_HEAD + id] = kolo_named_tensor_of(m, id)->state == KOLO_TENSOR_POSTED;
    }
    m->fresh = false;
    m->begun_ns = kolo_now_ns();
    m->phase = KOLO_NAMED_AGREEING;
    return kolo_request_start(m->agreement);
}

static kolo_status end_agreement(kolo_named *m) {
    m->counted.agreements++;
    m->needs_names = m->bytes[0] == 0;
    m->needs_table = m->bytes[1] == 0;
    m->phase = KOLO_NAMED_STARTING;
    return kolo_named_make_groups(m);
}

/* ---- what follows an agreement ---- */

/* Starts an allgather in place of `counts` bytes per rank. */
static kolo_status gather(kolo_named *m, kolo_named_phase next, void *output, const char *site) {
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
    return gather(m, KOLO_NAMED_SIZES, m->sizes, "sizes of announcements");
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
    return gather(m, KOLO_NAMED_NAMES, m->all, "new names");
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
        own[id] = kolo_named_tensor_of(m, id)->state != KOLO_TENSOR_IDLE;
    }
    for (size_t r = 0; r < n; r++) m->counts[r] = m->table_ids;
    m->needs_table = m->want_table = false;
    return gather(m, KOLO_NAMED_TABLE, m->table, "table of posted tensors");
}

/* ---- progress ---- */

/* Whether to begin an agreement. */
static bool may_agree(const kolo_named *m, bool waiting) {
    if (m->posted == 0) return false;
    return (waiting && m->fresh) || kolo_now_ns() >= m->next_ns;
}

static kolo_status end_cycle(kolo_named *m) {
    m->phase = KOLO_NAMED_IDLE;
    m->next_ns = kolo_now_ns() + kolo_min_i64(m->opts.cycle_us, INT64_MAX / 4000) * 1000;
    return KOLO_OK;
}

/* Begins the next phase if this one is complete; then sets `moved`. */
static kolo_status next_phase(kolo_named *m, bool waiting, bool *moved) {
    bool all;
    *moved = true;
    switch (m->phase) {
    case KOLO_NAMED_IDLE:
        if (may_agree(m, waiting)) return begin_agreement(m);
        break;
    case KOLO_NAMED_AGREEING:
        if (!kolo_request_in_flight(m->agreement)) return end_agreement(m);
        break;
    case KOLO_NAMED_STARTING: /* all groups start before any later collective */
        KOLO_TRY(kolo_named_start_groups(m, &all));
        if (!all) break;
        if (m->needs_names) return gather_sizes(m);
        return m->needs_table ? gather_table(m) : end_cycle(m);
    case KOLO_NAMED_SIZES:
    case KOLO_NAMED_NAMES:
    case KOLO_NAMED_TABLE:
        if (kolo_request_in_flight(m->exchange)) break;
        kolo_request_destroy(m->exchange);
        m->exchange = NULL;
        if (m->phase == KOLO_NAMED_SIZES) return gather_names(m);
        if (m->phase == KOLO_NAMED_NAMES) KOLO_TRY(add_names(m));
        return m->needs_table ? gather_table(m) : end_cycle(m);
    }
    *moved = false;
    return KOLO_OK;
}

/* Advances as far as possible. */
static kolo_status advance(kolo_named *m, bool waiting, bool *moved) {
    KOLO_TRY(kolo_engine_progress(m->comm, moved));
    kolo_named_complete_groups(m, moved);
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

static void report_stall(kolo_named *m, const kolo_named_tensor *t, bool answered) {
    kolo_text text = {0};
    kolo_named_describe_stall(m, &text, t, answered);
    if (!text.failed) m->opts.on_stall(m->opts.arg, text.text);
    kolo_text_fini(&text);
}

static kolo_status timed_out(kolo_named *m, const kolo_named_tensor *t, int64_t waited_ns,
                             bool answered) {
    kolo_text text = {0};
    kolo_named_describe_stall(m, &text, t, answered);
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
        bool answered = requested && !m->want_table && m->phase != KOLO_NAMED_TABLE;
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
    kolo_progress_end_drive(m->comm, only);
    return status;
}

kolo_status kolo_named_wait_all(kolo_named *m, int64_t timeout_ms) {
    KOLO_COMM_CLAIM(m->comm);
    for (size_t h = 0; h < m->names.n && m->open > 0; h++) {
        KOLO_TRY(kolo_named_wait(m, (int)h, timeout_ms));
    }
    return KOLO_OK;
}
