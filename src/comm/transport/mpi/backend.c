/* Backends in a communicator: finding and loading one, joining through it, handing requests over.
 *
 * Joining: to the backend's library the ranks are known already, so it serves as a process manager
 * does: it carries rank 0's address and a secret to the others, and the group forms as any other.
 * (Not by the manager of the launcher: that is one connection, which is MPI's.) */
#include "comm/transport/mpi/backend.h"

#include "base/clock.h"
#include "comm/join/bootstrap.h"
#include "comm/schedule/algorithms.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* ---- loading ---- */

static const char *const mpis[] = {"openmpi", "mpich"};

/* The library for the MPI of that name; NULL, with the reason in `why`. */
static const kolo_backend_ops *load_mpi(const char *mpi, char why[256]) {
    char file[64];
    snprintf(file, sizeof file, "libkolo-mpi-%s.so", mpi);
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    const kolo_backend_ops *ops = library ? dlsym(library, "kolo_backend_table") : NULL;
    if (!ops) snprintf(why, 256, "%s", dlerror());
    return ops;
}

/* The MPI whose launcher has started this process, else whichever there is. */
static kolo_status load(const char *launcher, const kolo_backend_ops **ops) {
    char why[256] = "";
    *ops = NULL;
    for (size_t i = 0; i < KOLO_COUNT(mpis) && !*ops; i++) {
        if (!launcher || strcmp(launcher, mpis[i]) == 0) *ops = load_mpi(mpis[i], why);
    }
    if (*ops) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                     "transport mpi is not there (%s): build Kolo with -DKOLO_MPI=%s", why,
                     launcher ? launcher : "openmpi or mpich");
}

/* ---- joining ---- */

/* The backend as a process manager. */
typedef struct backend_manager {
    kolo_manager base;
    const kolo_backend *backend;
} backend_manager;

static kolo_status share(kolo_manager *m, char text[KOLO_MANAGER_TEXT_BYTES], int64_t deadline_ns) {
    const kolo_backend *b = ((backend_manager *)m)->backend;
    return b->ops->share(b->state, text, KOLO_MANAGER_TEXT_BYTES);
}

static void stay(kolo_manager *m) {} /* it is the communicator's */

static kolo_status meet(const kolo_backend *b, const kolo_backend_place *place, kolo_joining *j,
                        kolo_comm **comm) {
    static const kolo_manager_ops ops = {.name = "mpi", .share = share, .close = stay};
    backend_manager m = {.base = {.ops = &ops,
                                  .rank = place->rank,
                                  .world = place->world,
                                  .one_host = place->one_host},
                         .backend = b};
    j->opts.transport = KOLO_TRANSPORT_AUTO;
    KOLO_TRY(kolo_rank_env_from_manager(&m.base, &j->opts, j->deadline_ns, &j->env, &j->key));
    return kolo_comm_join(j, comm);
}

/* Ranks that the launcher of another MPI has started would each be alone. */
static kolo_status check_world(const kolo_joining *j, long launched,
                               const kolo_backend_place *place) {
    long world = j->opts.world ? j->opts.world : launched;
    if (world == 0 || world == place->world) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "a job of %ld ranks, of which MPI knows %d: start it with the mpirun of an "
                     "MPI for which Kolo was built",
                     world, place->world);
}

/* All ranks see this alike, so that all can leave MPI in order. */
static kolo_status check_wait(const kolo_backend_place *place) {
    if (place->waited_ns <= place->timeout_ns) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_TIMEOUT,
                     "rank %d: MPI has waited %.1f s for the last of its %d ranks to start, more "
                     "than the %.1f s allowed: see why that one was late, or allow more time "
                     "(--timeout, timeout_ms)",
                     place->rank, (double)place->waited_ns * 1e-9, place->world,
                     (double)place->timeout_ns * 1e-9);
}

kolo_status kolo_backend_join(kolo_joining *j, kolo_comm **comm) {
    long launched;
    const char *launcher = kolo_bootstrap_mpi(&launched);
    kolo_backend_place place;
    if (j->opts.algorithm != KOLO_ALGORITHM_AUTO) {
        return KOLO_FAIL(KOLO_ERR_ARG, "algorithm %s: with transport mpi, MPI chooses; take auto",
                         kolo_algorithm_name(j->opts.algorithm));
    }
    kolo_backend *b = kolo_zalloc(sizeof *b);
    if (!b) return KOLO_NOMEM(sizeof *b);
    kolo_status status = load(launcher, &b->ops);
    if (status == KOLO_OK)
        status = b->ops->open(&b->state, j->started_ns, kolo_ms_to_ns(j->opts.timeout_ms), &place);
    if (status != KOLO_OK) {
        kolo_free(b);
        return status;
    }
    kolo_comm *made = NULL;
    status = check_world(j, launched, &place);
    if (status == KOLO_OK) status = check_wait(&place);
    bool late = status == KOLO_ERR_TIMEOUT;
    if (status == KOLO_OK) status = meet(b, &place, j, &made);
    if (status != KOLO_OK) {
        b->ops->close(b->state, late);
        kolo_free(b);
        return status;
    }
    made->backend = b;
    made->transport->no_wakeup = true; /* MPI has nothing to sleep on */
    *comm = made;
    return KOLO_OK;
}

void kolo_backend_leave(kolo_comm *comm) {
    kolo_backend *b = comm->backend;
    if (!b) return;
    bool lost = comm->broken == KOLO_ERR_PEER || comm->broken == KOLO_ERR_TIMEOUT;
    b->ops->close(b->state, !lost && comm->n_offloaded == 0);
    kolo_free(b);
}

/* ---- requests ---- */

kolo_status kolo_backend_prepare(kolo_request *q) {
    const kolo_backend *b = q->comm->backend;
    kolo_reduce_op op = q->op == KOLO_MEAN ? KOLO_SUM : q->op;
    const kolo_algorithm_row *row = q->n_parts > 1 ? &kolo_offloaded_packed : &kolo_offloaded;
    q->spec.chunk = q->spec.align = 1; /* the backend's business */
    KOLO_TRY(kolo_schedule_build(row, &q->spec, &q->schedules[0]));
    q->n_schedules = 1;
    return b->ops->prepare(b->state, &q->spec, q->dtype, op, &q->call);
}

/* Every request that was started before has been handed over, if it is the backend's. */
static bool is_next(const kolo_request *q) {
    const kolo_comm *comm = q->comm;
    for (int i = 0; i < comm->n_flight && comm->flight[i] != q; i++) {
        if (comm->flight[i]->call && !comm->flight[i]->offloaded) return false;
    }
    return true;
}

/* Where an entry's buffer starts. */
static void *base_of(const kolo_request *q, kolo_buffer buffer, size_t first) {
    char *base = buffer == KOLO_BUFFER_SCRATCH ? q->scratch
                 : buffer == KOLO_BUFFER_INPUT ? (char *)q->input
                                               : q->parts[0].data;
    return base ? base + first * q->element_bytes : NULL;
}

kolo_status kolo_backend_run(kolo_request *q, const kolo_entry *e, entry_progress *p) {
    static const char nothing;
    const kolo_backend_ops *ops = q->comm->backend->ops;
    if (!q->offloaded) {
        if (!is_next(q)) return KOLO_OK;
        const void *input = NULL;
        if (e->from != e->to) input = base_of(q, e->from, e->from_first);
        if (e->from != e->to && !input) input = &nothing; /* no elements are not "in place" */
        q->offloaded = true;
        q->comm->n_offloaded++;
        p->issued = true;
        KOLO_TRY(ops->start(q->call, input, base_of(q, e->to, e->to_first)));
    }
    KOLO_TRY(ops->test(q->call, &p->done));
    if (p->done) q->comm->n_offloaded--;
    return KOLO_OK;
}
