/* Tables of rows on servers, as a worker sees them; see kolo/table.h.
 *
 * The ids of a batch are sent once each, those of an owner next to each other: so requests have no
 * more than the distinct ids, and owners on the same host read and write them in place. The push of
 * the ids that were read last takes over how these are grouped. */
#include "kolo/table.h"

#include "base/compiler.h"
#include "base/memory.h"
#include "comm/engine/comm.h"
#include "comm/join/authentication.h"
#include "comm/service/waits.h"
#include "comm/sync/agree.h"
#include "comm/sync/parameters_owner.h"
#include "comm/table/id_batch.h"
#include "comm/table/id_map.h"
#include "comm/table/row_copy.h"
#include "comm/table/table_owner.h"
#include "kolo/service.h"

#include <stdio.h>
#include <string.h>

enum { BATCH_DEFAULT = 65536, BATCH_MOST = 1 << 24, WIDTH_MOST = 1 << 16, LINE = 64 };
static const size_t bytes_default = (size_t)1 << 30;
static const uint64_t message_most = UINT64_C(1) << 30; /* bytes */

/* The distinct ids of a batch, and their owners. */
typedef struct grouping {
    kolo_id_batch ids;
    uint32_t *places; /* [batch]: by position in the batch, of its id */
    size_t n;         /* positions */
    int *owners;      /* [batch]: by place */
} grouping;

/* Where the next id of an owner, and its row or gradient, are in a transfer. */
typedef struct target {
    uint64_t *id;
    float *row;
} target;

/* Requests to the owners for the ids of a batch. */
typedef struct transfer {
    grouping own;
    const grouping *by; /* `own`, or that of the latest read */
    char *memory;       /* what is sent, and what comes back; registered */
    float **rows;       /* [batch]: by place of an id, its row or gradient in `memory` */
    target *targets;    /* [n_servers] */
    kolo_service_request *requests; /* [n_servers] */
    bool started;
    bool counts; /* a read: as one of the clock */
} transfer;

struct kolo_table {
    kolo_comm *comm;
    kolo_table_opts opts;
    kolo_service *service;
    kolo_table_owner *owner;    /* NULL: owns nothing */
    kolo_table_owner *follower; /* of the rows of the server before; NULL: none */
    kolo_replicas *replicas;    /* both; NULL: none */
    bool *moved;                /* [n_servers]: its rows are at the next one */
    int *marked;                /* [n_servers]: the rank where its rows are saved; -1: none */
    int n_workers, n_servers;
    bool works, finished, abandoned;
    uint64_t clock;
    transfer pull, push;
    char *page; /* rows to save or load; registered; NULL: not needed yet */
    uint64_t reads[KOLO_STALENESS_BINS]; /* of this worker, by staleness */
};

/* ---- creation ---- */

static kolo_status check_opts(const kolo_table_opts *o, int ranks, int rank) {
    const bool owns = rank >= ranks - o->servers || o->servers <= 0;
    if (owns && !o->update) return KOLO_FAIL(KOLO_ERR_ARG, "a table without an update");
    if (o->servers < 0 || o->servers >= ranks) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%d servers of %d ranks: there must be a worker", o->servers,
                         ranks);
    }
    if (o->width < 1 || o->width > WIDTH_MOST || o->states < 0 || o->states > KOLO_TABLE_STATES) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s: rows of %zu floats with %d states: there may be 1 to %d floats and "
                         "up to %d states",
                         o->name, o->width, o->states, WIDTH_MOST, KOLO_TABLE_STATES);
    }
    if (o->replicas < 0 || o->replicas > 1 || (o->replicas == 1 && o->servers < 2)) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s: %d replicas with %d servers: there may be 1, with 2 servers or more",
                         o->name, o->replicas, o->servers);
    }
    const uint64_t page = kolo_table_page_bytes(o, o->batch);
    if (o->batch > BATCH_MOST || page > message_most) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s: batches of %zu ids, which is %llu bytes: at most %d, and %llu bytes, "
                         "are possible",
                         o->name, o->batch, (unsigned long long)page, BATCH_MOST,
                         (unsigned long long)message_most);
    }
    if (o->staleness < KOLO_STALENESS_ANY) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s: a staleness of %d: must be KOLO_STALENESS_ANY or at least 0", o->name,
                         o->staleness);
    }
    if ((unsigned)o->initial <= KOLO_TABLE_NORMAL) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "%s: there are no initial values %d", o->name, (int)o->initial);
}

static kolo_status open_transfer(kolo_table *t, transfer *x, uint64_t seed) {
    const size_t n = t->opts.batch, servers = (size_t)t->n_servers;
    const size_t bytes =
        n * (sizeof(uint64_t) + t->opts.width * sizeof(float)) + 2 * servers * LINE;
    void *memory;
    KOLO_TRY(kolo_id_batch_init(&x->own.ids, n, seed));
    x->own.places = kolo_alloc(n * sizeof *x->own.places);
    x->own.owners = kolo_alloc(n * sizeof *x->own.owners);
    x->rows = kolo_alloc(n * sizeof *x->rows);
    x->targets = kolo_zalloc(servers * sizeof *x->targets);
    x->requests = kolo_zalloc(servers * sizeof *x->requests);
    if (!x->own.places || !x->own.owners || !x->rows || !x->targets || !x->requests) {
        return KOLO_NOMEM(n * sizeof *x->rows);
    }
    x->by = &x->own;
    KOLO_TRY(kolo_comm_alloc(t->comm, bytes, &memory));
    x->memory = memory;
    return KOLO_OK;
}

static void close_transfer(transfer *x) {
    kolo_id_batch_fini(&x->own.ids);
    kolo_free(x->own.places);
    kolo_free(x->own.owners);
    kolo_free((void *)x->rows);
    kolo_free(x->targets);
    kolo_free(x->requests);
}

static kolo_status start_request(void *service, kolo_service_request *request) {
    return kolo_service_start(service, request);
}

static bool test_request(void *service, const kolo_service_request *request) {
    return kolo_service_test(service, request);
}

static kolo_status wait_request(void *service, kolo_service_request *request) {
    return kolo_service_wait(service, request, 0);
}

/* What server i has of the rows of the one before it. */
static kolo_status follow(kolo_table *t, int i, uint64_t secret) {
    const size_t row = sizeof(uint64_t) + t->opts.width * sizeof(float);
    if (t->opts.replicas == 0) return KOLO_OK;
    KOLO_TRY(
        kolo_table_owner_create(&t->opts, t->n_workers, secret, kolo_replicas_reply, &t->follower));
    const kolo_replicas_opts opts = {
        .ranks = kolo_comm_size(t->comm),
        .workers = t->n_workers,
        .servers = t->n_servers,
        .index = i,
        .of = &kolo_replicated_rows,
        .leader = t->owner,
        .follower = t->follower,
        .push_bytes = t->opts.batch * row,
        .keeps = t->opts.staleness == 0,
        .channel = {start_request, test_request, wait_request, kolo_service_reply},
    };
    return kolo_replicas_create(&opts, &t->replicas);
}

static kolo_status allocate(kolo_table *t) {
    const int index = kolo_comm_rank(t->comm) - (kolo_comm_size(t->comm) - t->n_servers);
    unsigned char drawn[KOLO_NONCE_BYTES];
    uint64_t secret;
    _Static_assert(sizeof drawn >= sizeof secret, "a number that no other rank has");
    kolo_nonce_draw(drawn);
    memcpy(&secret, drawn, sizeof secret);
    t->moved = kolo_zalloc((size_t)t->n_servers * sizeof *t->moved);
    t->marked = kolo_alloc((size_t)t->n_servers * sizeof *t->marked);
    if (!t->moved || !t->marked) return KOLO_NOMEM((size_t)t->n_servers);
    for (int i = 0; i < t->n_servers; i++) t->marked[i] = -1;
    KOLO_TRY(open_transfer(t, &t->pull, secret)); /* servers may read, too */
    if (t->works) KOLO_TRY(open_transfer(t, &t->push, secret));
    if (index < 0) return KOLO_OK;
    KOLO_TRY(
        kolo_table_owner_create(&t->opts, t->n_workers, secret, kolo_service_reply, &t->owner));
    return follow(t, index, secret);
}

static kolo_status build(kolo_table *t) {
    KOLO_TRY(kolo_agree(t->comm, allocate(t)));
    kolo_service_opts service = {
        /* A read and a push, or a page, beside what is kept for the next ones. */
        .client_bytes = 4 * kolo_table_page_bytes(&t->opts, t->opts.batch) + (1 << 16),
        .credits = 8,
        .timeout_ms = t->opts.timeout_ms,
    };
    if (t->replicas) {
        service.serve = kolo_replicas_serve;
        service.lost = kolo_replicas_lost;
        service.completed = kolo_replicas_completed;
        service.arg = t->replicas;
    } else if (t->owner) {
        service.serve = kolo_table_owner_serve;
        service.lost = kolo_table_owner_lost;
        service.arg = t->owner;
    }
    KOLO_TRY(kolo_service_create(t->comm, &service, &t->service));
    if (t->works) kolo_service_report_progress(t->service);
    if (t->opts.replicas == 0) return KOLO_OK;
    if (t->replicas) kolo_replicas_connect(t->replicas, t->service);
    return kolo_barrier(t->comm); /* before the first request */
}

static void free_table(kolo_table *t) {
    kolo_service_destroy(t->service);
    kolo_replicas_destroy(t->replicas);
    kolo_table_owner_destroy(t->owner);
    kolo_table_owner_destroy(t->follower);
    kolo_free(t->moved);
    kolo_free(t->marked);
    close_transfer(&t->pull);
    close_transfer(&t->push);
    kolo_free((void *)(uintptr_t)t->opts.name);
    kolo_free(t);
}

static kolo_table_opts resolve(const kolo_table_opts *opts) {
    kolo_table_opts o = *opts;
    if (!o.name) o.name = "table";
    if (o.bytes == 0) o.bytes = bytes_default;
    if (o.admit == 0) o.admit = 1;
    if (o.batch == 0) o.batch = BATCH_DEFAULT;
    return o;
}

size_t kolo_table_needs(const kolo_table_opts *opts, int workers, bool works, bool owns, uint64_t n,
                        bool saved) {
    const kolo_table_opts o = resolve(opts);
    const uint64_t owners = (uint64_t)(o.servers > 0 ? o.servers : workers);
    const size_t own = owns ? kolo_table_owner_needs(&o, workers, n / owners + 1, saved) : 0;
    const size_t exchanged = o.batch * (sizeof(uint64_t) + o.width * sizeof(float));
    return (works ? 2 : 1) * exchanged + own * (size_t)(1 + o.replicas);
}

kolo_status kolo_table_create(kolo_comm *comm, const kolo_table_opts *opts, kolo_table **table) {
    const int ranks = kolo_comm_size(comm);
    if (!opts) return KOLO_FAIL(KOLO_ERR_ARG, "a table without options");
    const kolo_table_opts o = resolve(opts);
    KOLO_TRY(check_opts(&o, ranks, kolo_comm_rank(comm)));
    kolo_table *t = kolo_zalloc(sizeof *t);
    char *name = kolo_strdup(o.name);
    if (!t || !name) {
        kolo_free(t);
        kolo_free(name);
        return KOLO_NOMEM(sizeof *t);
    }
    t->comm = comm;
    t->opts = o;
    t->opts.name = name;
    t->n_servers = o.servers > 0 ? o.servers : ranks;
    t->n_workers = o.servers > 0 ? ranks - o.servers : ranks;
    t->works = kolo_comm_rank(comm) < t->n_workers;
    const kolo_status status = build(t);
    if (status != KOLO_OK) {
        free_table(t);
        return status;
    }
    *table = t;
    return KOLO_OK;
}

/* ---- requests ---- */

bool kolo_table_works(const kolo_table *t) { return t->works; }

static kolo_status check_worker(const kolo_table *t) {
    if (t->works) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "rank %d is a server only: workers push and pull",
                     kolo_comm_rank(t->comm));
}

static kolo_status check_batch(const kolo_table *t, size_t n) {
    if (n <= t->opts.batch) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "%s: %zu ids in a batch that has %zu at most", t->opts.name, n,
                     t->opts.batch);
}

/* The owner of an id: independent of where the id is in its index. */
static int owner_of(const kolo_table *t, uint64_t id) {
    if (t->n_servers == 1) return 0;
    const uint64_t upper = kolo_id_mix(id, UINT64_C(0x9e3779b97f4a7c15)) >> 32;
    return (int)(upper * (uint64_t)t->n_servers >> 32);
}

/* The server that has the rows of owner i now. */
static int server_of(const kolo_table *t, int i) {
    const int now = t->moved[i] ? kolo_replicas_follower(i, t->n_servers) : i;
    return kolo_service_server_rank(t->service, now);
}

/* A request about the rows of owner i to a server that has them. */
static kolo_service_request request_to(const kolo_table *t, int i, int server, uint32_t kind) {
    static const char *const names[] = {
        [KOLO_TABLE_PULL] = "a pull of rows",
        [KOLO_TABLE_PUSH] = "a push of gradients of rows",
        [KOLO_TABLE_READ] = "a read of rows",
        [KOLO_TABLE_FINISH] = "the end of this worker",
        [KOLO_TABLE_STATS] = "a request for statistics",
        [KOLO_TABLE_MARK] = "a mark of rows to be saved",
        [KOLO_TABLE_SAVE] = "a copy of rows",
        [KOLO_TABLE_FORGET] = "the end of a copy of rows",
        [KOLO_TABLE_LOAD] = "rows to restore",
    };
    return (kolo_service_request){.server = server,
                                  .name = names[kind],
                                  .kind = kolo_replicas_kind(kind, t->opts.replicas > 0 ? i : 0)};
}

/* The same of this worker's clock, to the server that has the rows now. */
static kolo_service_request request_of(const kolo_table *t, int i, uint32_t kind) {
    kolo_service_request q = request_to(t, i, server_of(t, i), kind);
    q.clock = t->clock;
    return q;
}

static char *to_line(const transfer *x, char *at) {
    const size_t used = (size_t)(at - x->memory);
    return x->memory + (used + LINE - 1) / LINE * LINE;
}

/* Collects the distinct ids of a batch, and finds their owners. */
static void collect(const kolo_table *t, grouping *g, const uint64_t *ids, size_t n) {
    kolo_id_batch_begin(&g->ids, n);
    g->n = n;
    kolo_id_batch_add_all(&g->ids, ids, n, g->places);
    for (size_t i = 0; i < g->ids.count; i++) g->owners[i] = owner_of(t, g->ids.ids[i]);
}

/* Whether a batch has these ids, in this order. */
static bool has_ids(const grouping *g, const uint64_t *ids, size_t n) {
    if (g->n != n) return false;
    for (size_t i = 0; i < n; i++) {
        if (g->ids.ids[g->places[i]] != ids[i]) return false;
    }
    return true;
}

/* Divides the distinct ids among the owners: each gets a request with its ids, behind which is room
 * for their rows. */
static void divide(const kolo_table *t, transfer *x, uint32_t kind) {
    const size_t row = t->opts.width * sizeof(float);
    char *at = x->memory;
    for (int s = 0; s < t->n_servers; s++) x->requests[s] = request_of(t, s, kind);
    for (size_t i = 0; i < x->by->ids.count; i++) x->requests[x->by->owners[i]].key++;
    for (int s = 0; s < t->n_servers; s++) {
        kolo_service_request *q = &x->requests[s];
        const size_t n = (size_t)q->key, ids = n * sizeof(uint64_t);
        at = to_line(x, at);
        x->targets[s] = (target){(uint64_t *)(void *)at, (float *)(void *)(at + ids)};
        q->input = at;
        q->input_bytes = kind == KOLO_TABLE_PUSH ? ids + n * row : ids;
        q->output = kind == KOLO_TABLE_PUSH ? NULL : at + ids;
        q->output_bytes = kind == KOLO_TABLE_PUSH ? 0 : n * row;
        at += ids + n * row;
    }
}

/* Writes the ids to the requests, and finds the places of their rows. */
static void place_ids(const kolo_table *t, transfer *x) {
    for (size_t i = 0; i < x->by->ids.count; i++) {
        target *to = &x->targets[x->by->owners[i]];
        *to->id++ = x->by->ids.ids[i];
        x->rows[i] = to->row;
        to->row += t->opts.width;
    }
}

/* ---- requests to an owner, or to its replica once its server is lost ---- */

/* After a request to owner i has failed, returns OK if the replica has its rows now. Then it has
 * got the latest push, unless that was complete. */
static kolo_status move(kolo_table *t, int i, kolo_status status) {
    kolo_service_request *push = &t->push.requests[i];
    if (t->opts.replicas == 0 || !kolo_service_is_lost(t->service, server_of(t, i))) return status;
    if (t->moved[i]) return status; /* the replica is lost, too */
    t->moved[i] = true;
    if (!t->push.started || kolo_service_wait(t->service, push, 0) == KOLO_OK) return KOLO_OK;
    push->server = server_of(t, i);
    return kolo_service_start(t->service, push);
}

/* After a request has failed, returns OK if the server that has the rows of owner i now can get it.
 */
static kolo_status redirect(kolo_table *t, int i, const kolo_service_request *q,
                            kolo_status status) {
    if (q->server == server_of(t, i)) return move(t, i, status);
    return kolo_service_is_lost(t->service, q->server) ? KOLO_OK : status;
}

static kolo_status start_at(kolo_table *t, int i, kolo_service_request *q) {
    const kolo_status status = kolo_service_start(t->service, q);
    if (status == KOLO_OK) return status;
    KOLO_TRY(redirect(t, i, q, status));
    q->server = server_of(t, i);
    return kolo_service_start(t->service, q);
}

static kolo_status await_at(kolo_table *t, int i, kolo_service_request *q) {
    const bool pushes = q == &t->push.requests[i] && t->push.started;
    const kolo_status status = kolo_service_await(t->service, q, 0);
    if (status == KOLO_OK) return status;
    KOLO_TRY(redirect(t, i, q, status));
    if (!pushes) { /* `move` has sent a push */
        q->server = server_of(t, i);
        KOLO_TRY(kolo_service_start(t->service, q));
    }
    return kolo_service_await(t->service, q, 0);
}

static kolo_status run_at(kolo_table *t, int i, kolo_service_request *q) {
    KOLO_TRY(start_at(t, i, q));
    return await_at(t, i, q);
}

/* Waits for the first n requests, which were started together; returns the first error. Once one
 * has timed out the others have been waited for as long, too. */
static kolo_status wait_all(kolo_table *t, kolo_service_request *requests, int n) {
    kolo_status first = KOLO_OK;
    bool timed_out = false;
    char text[KOLO_REPORT_BYTES] = "";
    for (int s = 0; s < n; s++) {
        const kolo_status status = timed_out ? kolo_service_wait(t->service, &requests[s], 1)
                                             : await_at(t, s, &requests[s]);
        timed_out |= status == KOLO_ERR_TIMEOUT;
        if (status == KOLO_OK || first != KOLO_OK) continue;
        first = status;
        snprintf(text, sizeof text, "%s", kolo_last_error());
    }
    return first == KOLO_OK ? first : KOLO_FAIL(first, "%s", text);
}

/* Starts the requests to all owners, also of no ids if the clocks need them. */
static kolo_status start_all(kolo_table *t, transfer *x) {
    for (int s = 0; s < t->n_servers; s++) {
        const kolo_status status = start_at(t, s, &x->requests[s]);
        if (status == KOLO_OK) continue;
        char text[KOLO_REPORT_BYTES];
        snprintf(text, sizeof text, "%s", kolo_last_error());
        (void)wait_all(t, x->requests, s);
        return KOLO_FAIL(status, "%s", text);
    }
    x->started = true;
    return KOLO_OK;
}

static kolo_status wait_transfer(kolo_table *t, transfer *x) {
    if (!x->started) return KOLO_OK;
    const kolo_status status = wait_all(t, x->requests, t->n_servers);
    x->started = false;
    return status;
}

/* ---- reads ---- */

static kolo_status start_read(kolo_table *t, const uint64_t *ids, size_t n, uint32_t kind) {
    transfer *x = &t->pull;
    KOLO_TRY(check_batch(t, n));
    if (x->started) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: two reads at a time: wait for the first one",
                         t->opts.name);
    }
    collect(t, &x->own, ids, n);
    divide(t, x, kind);
    place_ids(t, x);
    x->counts = kind == KOLO_TABLE_PULL;
    return start_all(t, x);
}

static kolo_status finish_read(kolo_table *t, float *rows) {
    transfer *x = &t->pull;
    const size_t width = t->opts.width;
    uint64_t stale = 0;
    KOLO_TRY(wait_transfer(t, x));
    for (size_t i = 0; i < x->by->n; i++) {
        kolo_row_copy(rows + i * width, x->rows[x->by->places[i]], width);
    }
    for (int s = 0; s < t->n_servers; s++) {
        if (x->requests[s].reply_clock > stale) stale = x->requests[s].reply_clock;
    }
    if (x->counts) t->reads[kolo_staleness_bin(stale)]++;
    return KOLO_OK;
}

kolo_status kolo_table_pull_start(kolo_table *t, const uint64_t *ids, size_t n) {
    KOLO_TRY(check_worker(t));
    return start_read(t, ids, n, KOLO_TABLE_PULL);
}

kolo_status kolo_table_pull_wait(kolo_table *t, float *rows) {
    KOLO_TRY(check_worker(t));
    if (!t->pull.started) return KOLO_FAIL(KOLO_ERR_ARG, "%s: no read was started", t->opts.name);
    return finish_read(t, rows);
}

static kolo_status read_rows(kolo_table *t, const uint64_t *ids, size_t n, uint32_t kind,
                             float *rows) {
    kolo_service_hold(t->service);
    kolo_status status = start_read(t, ids, n, kind);
    if (status == KOLO_OK) status = finish_read(t, rows);
    kolo_service_release(t->service);
    return status;
}

kolo_status kolo_table_pull(kolo_table *t, const uint64_t *ids, size_t n, float *rows) {
    KOLO_TRY(check_worker(t));
    return read_rows(t, ids, n, KOLO_TABLE_PULL, rows);
}

kolo_status kolo_table_read(kolo_table *t, const uint64_t *ids, size_t n, float *rows) {
    return read_rows(t, ids, n, KOLO_TABLE_READ, rows);
}

void kolo_table_count_reads(const kolo_table *t, uint64_t *counts) {
    for (int i = 0; i < KOLO_STALENESS_BINS; i++) counts[i] += t->reads[i];
}

/* ---- pushes ---- */

/* Adds the gradients of equal ids, in their order. */
static void add_gradients(const kolo_table *t, transfer *x, const float *gradients) {
    const size_t width = t->opts.width;
    for (size_t i = 0, seen = 0; i < x->by->n; i++) {
        const size_t place = x->by->places[i];
        const float *gradient = gradients + i * width;
        float *sum = x->rows[place];
        if (place == seen) {
            kolo_row_copy(sum, gradient, width);
            seen++;
        } else {
            for (size_t c = 0; c < width; c++) sum[c] += gradient[c];
        }
    }
}

kolo_status kolo_table_flush(kolo_table *t) {
    KOLO_TRY(check_worker(t));
    return wait_transfer(t, &t->push);
}

kolo_status kolo_table_push(kolo_table *t, const uint64_t *ids, size_t n, const float *gradients) {
    transfer *x = &t->push;
    KOLO_TRY(check_worker(t));
    KOLO_TRY(check_batch(t, n));
    if (t->finished) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: a push after the end: this worker has finished",
                         t->opts.name);
    }
    KOLO_TRY(wait_transfer(t, x));
    x->by = has_ids(&t->pull.own, ids, n) ? &t->pull.own : &x->own;
    if (x->by == &x->own) collect(t, &x->own, ids, n);
    divide(t, x, KOLO_TABLE_PUSH);
    place_ids(t, x);
    add_gradients(t, x, gradients);
    kolo_service_hold(t->service);
    const kolo_status status = start_all(t, x);
    if (status != KOLO_OK) {
        kolo_service_release(t->service);
        return status;
    }
    kolo_service_release_sent(t->service); /* the next push, or the flush, waits for the replies */
    t->clock++;
    return KOLO_OK;
}

kolo_status kolo_table_finish(kolo_table *t) {
    KOLO_TRY(check_worker(t));
    if (t->finished) return KOLO_OK;
    t->finished = true;
    kolo_status first = kolo_table_flush(t);
    char text[KOLO_REPORT_BYTES];
    snprintf(text, sizeof text, "%s", kolo_last_error());
    for (int s = 0; s < t->n_servers; s++) { /* also if one is lost: the others wait for it */
        kolo_service_request q = request_of(t, s, KOLO_TABLE_FINISH);
        const kolo_status status = run_at(t, s, &q);
        if (status == KOLO_OK || first != KOLO_OK) continue;
        first = status;
        snprintf(text, sizeof text, "%s", kolo_last_error());
    }
    return first == KOLO_OK ? first : KOLO_FAIL(first, "%s", text);
}

/* ---- the whole ---- */

void kolo_table_stats_add(kolo_table_stats *sum, const kolo_table_stats *s) {
    sum->rows += s->rows;
    sum->room += s->room;
    sum->waiting += s->waiting;
    if (s->version > sum->version) sum->version = s->version;
    sum->gradients += s->gradients;
    sum->created += s->created;
    sum->restored += s->restored;
    sum->early += s->early;
    sum->refused += s->refused;
    sum->evicted += s->evicted;
    sum->expired += s->expired;
    sum->forgotten += s->forgotten;
}

/* Asks all owners, and adds up what they have seen. */
static kolo_status ask_all(kolo_table *t, uint32_t kind, kolo_table_stats *stats) {
    kolo_table_stats sum = {0};
    for (int s = 0; s < t->n_servers; s++) {
        kolo_table_stats one = {0};
        kolo_service_request q = request_of(t, s, kind);
        q.output = &one;
        q.output_bytes = sizeof one;
        KOLO_TRY(run_at(t, s, &q));
        if (kind == KOLO_TABLE_MARK) t->marked[s] = q.server;
        kolo_table_stats_add(&sum, &one);
    }
    *stats = sum;
    return KOLO_OK;
}

kolo_status kolo_table_stats_get(kolo_table *t, kolo_table_stats *stats) {
    return ask_all(t, KOLO_TABLE_STATS, stats);
}

/* Memory for a page of a whole batch. */
static kolo_status get_page(kolo_table *t) {
    void *page;
    if (t->page) return KOLO_OK;
    KOLO_TRY(kolo_comm_alloc(t->comm, kolo_table_page_bytes(&t->opts, t->opts.batch), &page));
    t->page = page;
    return KOLO_OK;
}

kolo_status kolo_table_save_begin(kolo_table *t, kolo_table_stats *stats) {
    KOLO_TRY(get_page(t));
    return ask_all(t, KOLO_TABLE_MARK, stats);
}

/* At the server that has marked them: a replica has other rows by now. It uses nothing that other
 * functions change. */
kolo_status kolo_table_save_rows(kolo_table *t, int owner, size_t most, bool *more,
                                 kolo_table_rows *rows) {
    if (owner < 0 || owner >= t->n_servers || most == 0 || t->marked[owner] < 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: %zu rows of owner %d of %d, which are not being saved",
                         t->opts.name, most, owner, t->n_servers);
    }
    KOLO_TRY(check_batch(t, most));
    kolo_service_request q = request_to(t, owner, t->marked[owner], KOLO_TABLE_SAVE);
    q.clock = rows->pushes != NULL;
    q.output = t->page;
    q.output_bytes = kolo_table_page_bytes(&t->opts, most);
    KOLO_TRY(kolo_service_run(t->service, &q, 0));
    kolo_service_note_progress(t->service); /* all workers may wait for it */
    const kolo_table_rows got = kolo_table_page_rows(t->page, most);
    if (got.n > most) return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: an invalid page", t->opts.name);
    *more = q.reply_clock != 0;
    if (!*more) t->marked[owner] = -1;
    rows->n = got.n;
    rows->version = got.version;
    memcpy(rows->ids, got.ids, got.n * sizeof *rows->ids);
    memcpy(rows->ages, got.ages, got.n * sizeof *rows->ages);
    if (rows->pushes) memcpy(rows->pushes, got.pushes, got.n * sizeof *rows->pushes);
    memcpy(rows->values, got.values,
           got.n * kolo_rows_saved_width(&t->opts) * sizeof *rows->values);
    return KOLO_OK;
}

void kolo_table_save_end(kolo_table *t) {
    for (int s = 0; s < t->n_servers; s++) {
        if (t->marked[s] < 0) continue;
        kolo_service_request q = request_to(t, s, t->marked[s], KOLO_TABLE_FORGET);
        t->marked[s] = -1;
        (void)kolo_service_run(t->service, &q, 0); /* else it is lost, with what it had to save */
    }
}

/* Sends an owner its rows of those given. */
static kolo_status load_at(kolo_table *t, int owner, const kolo_table_rows *rows, size_t n) {
    const size_t wide = kolo_rows_saved_width(&t->opts);
    const kolo_table_rows to = kolo_table_page_rows(t->page, n);
    size_t k = 0;
    ((kolo_table_page *)(void *)t->page)->version = rows->version;
    for (size_t i = 0; i < rows->n; i++) {
        if (owner_of(t, rows->ids[i]) != owner) continue;
        to.ids[k] = rows->ids[i];
        to.ages[k] = rows->ages[i];
        to.pushes[k] = rows->pushes ? rows->pushes[i] : 0;
        memcpy(to.values + k * wide, rows->values + i * wide, wide * sizeof *to.values);
        k++;
    }
    kolo_service_request q = request_of(t, owner, KOLO_TABLE_LOAD);
    q.key = k;
    q.input = t->page;
    q.input_bytes = kolo_table_page_bytes(&t->opts, n);
    return run_at(t, owner, &q);
}

kolo_status kolo_table_load_rows(kolo_table *t, const kolo_table_rows *rows) {
    KOLO_TRY(check_batch(t, rows->n));
    KOLO_TRY(get_page(t));
    for (int s = 0; s < t->n_servers; s++) {
        size_t n = 0;
        for (size_t i = 0; i < rows->n; i++) n += owner_of(t, rows->ids[i]) == s;
        KOLO_TRY(load_at(t, s, rows, n > 0 ? n : 1)); /* the version at least */
    }
    return KOLO_OK;
}

void kolo_table_abandon(kolo_table *t) {
    t->abandoned = true;
    kolo_service_abandon(t->service, kolo_last_error());
}

void kolo_table_destroy(kolo_table *t) {
    if (!t || t->comm->inherited) return;
    if (t->works && !t->abandoned) (void)kolo_table_finish(t);
    if (t->owner && !t->abandoned) {
        kolo_service_begin_wait(t->service);
        kolo_table_owner_wait(t->owner);
        if (t->follower) kolo_table_owner_wait(t->follower);
        kolo_service_end_wait(t->service);
    }
    free_table(t);
}
