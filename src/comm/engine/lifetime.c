/* Creation and destruction of communicators and requests. */
#include "comm/engine/lifetime.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/engine/backoff.h"
#include "comm/engine/failure.h"
#include "comm/engine/family.h"
#include "comm/engine/forked.h"
#include "comm/engine/lock.h"
#include "comm/engine/offload.h"
#include "comm/engine/p2p.h"
#include "comm/engine/progress_thread.h"

#include <unistd.h>

kolo_status kolo_comm_over(kolo_transport *transport, const kolo_comm_opts *opts, int local_rank,
                           int local_size, int processors, kolo_comm **comm) {
    kolo_comm *c = kolo_zalloc(sizeof *c);
    size_t n = (size_t)opts->max_in_flight;
    kolo_request **flight = kolo_alloc(2 * n * sizeof *flight);
    if (!c || !flight) {
        transport->ops->destroy(transport);
        kolo_free(c);
        kolo_free(flight);
        return KOLO_NOMEM(2 * n * sizeof *flight);
    }
    *c = (kolo_comm){
        .transport = transport,
        .rank = transport->rank,
        .size = transport->size,
        .local_rank = local_rank,
        .local_size = local_size,
        .algorithm = opts->algorithm,
        .timeout_ns = kolo_ms_to_ns(opts->timeout_ms),
        .reduce = kolo_reduce_best(),
        .flight = flight,
        .by_priority = flight + n,
        .max_in_flight = opts->max_in_flight,
        .interrupted = opts->interrupted,
        .interrupted_arg = opts->interrupted_arg,
        .report_signal.fd = -1,
        .report_fd = opts->report_fd ? opts->report_fd : STDERR_FILENO,
        .processors = processors,
        .oversubscribed = local_size > processors,
    };
    c->spins = c->oversubscribed ? 0 : KOLO_SPINS;
    kolo_comm_set_tuning(c, (kolo_comm_tuning){0});
    c->costs = kolo_comm_costs_builtin(transport->windows);
    *comm = c;
    return KOLO_OK;
}

kolo_status kolo_comm_of_transport(kolo_transport *transport, const kolo_comm_opts *opts,
                                   int local_rank, int local_size, int processors,
                                   kolo_comm **comm) {
    kolo_comm *c;
    KOLO_TRY(kolo_comm_over(transport, opts, local_rank, local_size, processors, &c));
    kolo_fork_register(c);
    kolo_status status = kolo_progress_start(c, opts);
    if (status != KOLO_OK) {
        kolo_comm_destroy(c);
        return status;
    }
    *comm = c;
    return KOLO_OK;
}

/* Removes a request from its communicator's list. */
static void unlink_request(kolo_request *q) {
    kolo_request **p = &q->comm->requests;
    while (*p && *p != q) p = &(*p)->next;
    if (*p) *p = q->next;
}

void kolo_request_destroy(kolo_request *q) {
    if (!q || q->comm->inherited) return;
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

static void destroy(kolo_comm *comm) {
    while (comm->children) kolo_comm_destroy(comm->children);
    kolo_comm_unlink(comm);
    if (!comm->parent) kolo_fork_forget(comm);
    if (!comm->parent) kolo_progress_stop(comm);
    for (int i = 0; i < comm->n_flight; i++) comm->flight[i]->state = REQUEST_IDLE;
    kolo_p2p_drop(comm);
    while (comm->requests) kolo_request_destroy(comm->requests);
    kolo_p2p_close(comm);
    comm->transport->ops->destroy(comm->transport);
    kolo_offload_close(comm);
    if (comm->joined) atomic_store_explicit(comm->joined, 0, memory_order_release);
    kolo_free(comm->flight);
    kolo_free(comm->host_of);
    kolo_free(comm->whole_rank);
    kolo_signals_close(&comm->report_signal);
    kolo_free(comm);
}

void kolo_comm_destroy(kolo_comm *comm) {
    if (comm && comm->inherited) return;
    if (comm && comm->parent) {
        KOLO_COMM_LOCK_SCOPE(comm->parent); /* the progress thread must not see it half destroyed */
        destroy(comm);
    } else if (comm) {
        destroy(comm);
    }
}
