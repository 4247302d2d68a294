/* Creation of communicators, and loading of cost constants. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/status.h"
#include "comm/engine/comm_opts.h"
#include "comm/engine/lifetime.h"
#include "comm/join/join_mpi.h"

#include <stdio.h>

enum { RANKS_MAX = 1024 };

/* Joins the group that the launcher has started, once at a time: this process is one rank of it. */
static kolo_status join_environment(kolo_joining *j, kolo_comm **comm) {
    /* The generation joined, plus 1; 0: none. Process-wide, as the environment is. */
    static _Atomic uint64_t joined;
    uint64_t none = 0, own = (uint64_t)j->opts.generation + 1;
    bool first = atomic_compare_exchange_strong_explicit(&joined, &none, own, memory_order_acq_rel,
                                                         memory_order_acquire);
    if (!first && none == own) {
        return KOLO_FAIL(KOLO_ERR_ARG, "this process has already joined its group: use that "
                                       "communicator, split it, or destroy it first");
    }
    kolo_status status = kolo_rank_env_read(&j->opts, j->deadline_ns, &j->env, &j->key);
    if (status == KOLO_OK) status = kolo_comm_join(j, comm);
    if (!first) return status;
    if (status == KOLO_OK) {
        (*comm)->joined = &joined;
    } else {
        atomic_store_explicit(&joined, 0, memory_order_release);
    }
    return status;
}

static kolo_status join(kolo_joining *j, kolo_comm **comm) {
    if (j->opts.transport == KOLO_TRANSPORT_MPI) return kolo_join_mpi(j, comm);
    if (j->opts.world == 0 && kolo_comm_launched()) return join_environment(j, comm);
    KOLO_TRY(kolo_rank_env_read(&j->opts, j->deadline_ns, &j->env, &j->key));
    return kolo_comm_join(j, comm);
}

kolo_status kolo_comm_create(const kolo_comm_opts *opts, kolo_comm **comm) {
    kolo_joining j = {
        .local_listener = -1, .tcp_listener = -1, .leader.fd = -1, .started_ns = kolo_now_ns()};
    KOLO_TRY(kolo_comm_resolve(opts, &j.opts));
    j.deadline_ns = j.started_ns + kolo_ms_to_ns(j.opts.timeout_ms);
    return kolo_joining_log(&j, join(&j, comm), comm);
}

kolo_status kolo_comm_create_threads(int n, const kolo_comm_opts *opts, kolo_comm **comms) {
    if (n < 1 || n > RANKS_MAX) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a group of %d threads: the size must be 1 to %d", n,
                         RANKS_MAX);
    }
    kolo_comm_opts o;
    KOLO_TRY(kolo_comm_resolve(opts, &o));
    kolo_transport **transports = kolo_zalloc((size_t)n * sizeof(kolo_transport *));
    if (!transports) return KOLO_NOMEM((size_t)n * sizeof(kolo_transport *));
    kolo_status status = kolo_thread_transports(n, (size_t)o.segment_bytes, transports);
    int made = 0;
    for (; status == KOLO_OK && made < n; made++) {
        status =
            kolo_comm_of_transport(transports[made], &o, made, n, kolo_processors(), &comms[made]);
        if (status != KOLO_OK) { /* which has destroyed this transport, but not the others */
            for (int r = 0; r < made; r++) kolo_comm_destroy(comms[r]);
            for (int r = made + 1; r < n; r++) transports[r]->ops->destroy(transports[r], NULL);
        }
    }
    kolo_free(transports);
    return status;
}

/* What rank 0 has read, or its error. */
typedef struct read_costs {
    int32_t status;
    kolo_comm_costs costs;
    char error[KOLO_REPORT_BYTES];
} read_costs;

kolo_status kolo_comm_load_costs(kolo_comm *comm, const char *path) {
    read_costs r = {.costs = comm->costs};
    if (comm->rank == 0) {
        r.status = kolo_comm_costs_read(path, kolo_comm_transport(comm), &r.costs);
        if (r.status) snprintf(r.error, sizeof r.error, "%s", kolo_last_error());
    }
    kolo_request_opts o = {.kind = KOLO_COLLECTIVE_BROADCAST,
                           .dtype = KOLO_DTYPE_U8,
                           .output = &r,
                           .count = sizeof r,
                           .site = "costs"};
    KOLO_TRY(kolo_request_run(comm, &o, 0));
    r.error[sizeof r.error - 1] = '\0';
    if (r.status) return KOLO_FAIL((kolo_status)r.status, "%s", r.error);
    comm->costs = r.costs;
    return KOLO_OK;
}
