/* Creation and destruction of communicators and requests. */
#define _GNU_SOURCE
#include "comm/engine/lifetime.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/engine/agreement.h"
#include "comm/engine/backoff.h"
#include "comm/engine/comm_trace.h"
#include "comm/engine/failure.h"
#include "comm/engine/family.h"
#include "comm/engine/forked.h"
#include "comm/engine/lock.h"
#include "comm/engine/offload.h"
#include "comm/engine/p2p.h"
#include "comm/engine/progress_thread.h"
#include "comm/engine/traffic.h"

#include <string.h>
#include <unistd.h>

enum { LEAVE_NS = 100000 }; /* between checks whether all threads have left */

kolo_status kolo_comm_over(kolo_transport *transport, const kolo_comm_opts *opts, int local_rank,
                           int local_size, int processors, kolo_comm **comm) {
    kolo_comm *c = kolo_zalloc(sizeof *c);
    size_t n = (size_t)opts->max_in_flight;
    kolo_request **flight = kolo_alloc(2 * n * sizeof *flight);
    kolo_peer_traffic *traffic = kolo_zalloc((size_t)transport->size * sizeof *traffic);
    if (!c || !flight || !traffic) {
        transport->ops->destroy(transport, NULL);
        kolo_free(c);
        kolo_free(flight);
        kolo_free(traffic);
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
        .traffic = traffic,
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
    kolo_status status = kolo_comm_trace_open(c->rank, c->size, &c->trace);
    if (status == KOLO_OK) status = kolo_progress_start(c, opts);
    if (status != KOLO_OK) {
        kolo_comm_destroy(c);
        return status;
    }
    *comm = c;
    return KOLO_OK;
}

/* Removes a request from its communicator's list. Reports name it for longer, if it was the last
 * collective. */
static void unlink_request(kolo_request *q) {
    kolo_request **p = &q->comm->requests;
    while (*p && *p != q) p = &(*p)->next;
    if (*p) *p = q->next;
    if (q->comm->last != q) return;
    memcpy(q->comm->last_title, q->title, sizeof q->title);
    q->comm->last = NULL;
}

void kolo_request_destroy(kolo_request *q) {
    if (!q || q->comm->inherited) return;
    KOLO_COMM_LOCK_SCOPE(q->comm);
    if (q->state != REQUEST_IDLE) {
        (void)kolo_comm_break(q->comm, KOLO_ERR_ARG, "%s was destroyed while in flight", q->title);
    }
    kolo_traffic_collect(q);
    unlink_request(q);
    if (q->call) q->comm->backend->ops->release(q->call);
    for (int i = 0; i < q->n_schedules; i++) kolo_schedule_fini(&q->schedules[i]);
    kolo_segment_give(&q->comm->transport->segment, q->handles,
                      (size_t)q->n_exposed * sizeof *q->handles);
    kolo_free(q->peer_counts);
    kolo_free(q->slices);
    kolo_free(q->nodes);
    kolo_free(q->combined);
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

/* Logs what was exchanged with all other ranks, and with each. */
static void log_traffic(const kolo_comm *comm) {
    kolo_peer_traffic all = {0};
    int own = kolo_comm_whole_rank(comm, comm->rank);
    for (int r = 0; r < comm->size; r++) {
        const kolo_peer_traffic *t = &comm->traffic[r];
        all.sent_bytes += t->sent_bytes;
        all.received_bytes += t->received_bytes;
        if (t->sends + t->receives == 0) continue;
        kolo_log_line(KOLO_LOG_DEBUG, own,
                      "rank %d: sent %llu bytes in %llu transfers, received %llu in "
                      "%llu",
                      kolo_comm_whole_rank(comm, r), (unsigned long long)t->sent_bytes,
                      (unsigned long long)t->sends, (unsigned long long)t->received_bytes,
                      (unsigned long long)t->receives);
    }
    kolo_log_line(KOLO_LOG_INFO, own,
                  "%s%sleft after %llu collectives: sent %llu bytes, received %llu", comm->group,
                  comm->group[0] ? " " : "", (unsigned long long)comm->next_seq,
                  (unsigned long long)all.sent_bytes, (unsigned long long)all.received_bytes);
}

static bool used(const kolo_comm_lock *l) {
    return atomic_load_explicit(&l->inside, memory_order_acquire) > 0 ||
           atomic_load_explicit(&l->waiters, memory_order_relaxed) > 0;
}

/* Breaks a communicator that other threads use, and waits until they have left it. False if the
 * caller is in a call itself, which asks the program whether it is interrupted. */
static bool wait_for_threads(kolo_comm *comm) {
    kolo_comm_lock *l = comm->lock;
    if (!l || !l->shared) return true;
    kolo_comm_relock(comm);
    bool own = l->asking == gettid();
    comm->aborts++;
    while (used(l)) {
        kolo_comm_break_all(comm, KOLO_ERR_PEER, "destroyed while a thread waited in it");
        if (own) break;
        kolo_comm_unlock(comm);
        kolo_sleep_ns(LEAVE_NS);
        kolo_comm_relock(comm);
    }
    kolo_comm_unlock(comm);
    return !own;
}

static void destroy(kolo_comm *comm) {
    if (!comm->parent && !wait_for_threads(comm))
        return; /* the call in progress needs its memory */
    while (comm->children) kolo_comm_destroy(comm->children);
    kolo_comm_unlink(comm);
    if (!comm->parent) kolo_fork_forget(comm);
    if (!comm->parent) kolo_progress_stop(comm);
    comm->transport->unfinished = kolo_comm_in_flight(comm);
    for (int i = 0; i < comm->n_flight; i++) {
        kolo_traffic_collect(comm->flight[i]);
        comm->flight[i]->state = REQUEST_IDLE;
    }
    kolo_p2p_drop(comm);
    while (comm->requests) kolo_request_destroy(comm->requests);
    if (kolo_log_writes(KOLO_LOG_INFO)) log_traffic(comm);
    if (!comm->parent) kolo_comm_trace_close(comm->trace);
    kolo_agreement_destroy(comm->agreement);
    const char *why = kolo_comm_whole(comm)->leaves_for;
    comm->transport->ops->destroy(comm->transport, why[0] ? why : NULL);
    kolo_p2p_close(comm); /* the transport may read its frames until then */
    kolo_offload_close(comm);
    if (comm->joined) atomic_store_explicit(comm->joined, 0, memory_order_release);
    kolo_free(comm->flight);
    kolo_free(comm->traffic);
    kolo_free(comm->host_of);
    kolo_free(comm->addresses);
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
