/* What a worker does between steps: the wait for all workers, leases, and an early end of the run.
 */
#include "base/memory.h"
#include "base/status.h"
#include "comm/sync/parameters_internal.h"

/* Starts a barrier at all owners, before it waits for one: their steps may need each other's. */
static kolo_status barrier(kolo_parameters *p, const float *numbers, bool reports, uint64_t *lost) {
    const size_t n = (size_t)p->n_workers + (size_t)p->opts.joins;
    for (int i = 0; i < p->n_parts; i++) {
        kolo_service_request *q = &p->pulls[i];
        *q = kolo_parameters_request(p, i, KOLO_OWNER_BARRIER);
        q->key = 2 * (uint64_t)p->barriers + reports;
        q->output = lost + (size_t)i * n;
        q->output_bytes = n * sizeof *lost;
        if (numbers) {
            q->input = numbers + p->owned[i].gradient.first;
            q->input_bytes = p->owned[i].gradient.count * sizeof *numbers;
        }
        kolo_status status = kolo_parameters_start(p, i, q);
        if (status != KOLO_OK) return kolo_parameters_fail_after(p, p->pulls, i, status);
    }
    return kolo_parameters_wait_for(p, p->pulls, 0, p->n_parts);
}

kolo_status kolo_parameters_barrier(kolo_parameters *p, uint64_t *lost, bool *asked, bool *any) {
    return kolo_parameters_barrier_sum(p, NULL, lost, asked, any);
}

kolo_status kolo_parameters_barrier_sum(kolo_parameters *p, const float *numbers, uint64_t *lost,
                                        bool *asked, bool *any) {
    const size_t n = (size_t)p->n_workers + (size_t)p->opts.joins, all = n * (size_t)p->n_parts;
    KOLO_TRY(kolo_parameters_check_worker(p));
    if (p->pushing || p->finished) {
        return KOLO_FAIL(KOLO_ERR_ARG, p->finished ? "a barrier after the end"
                                                   : "a barrier after a push: pull first");
    }
    if (numbers && !p->opts.sums) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a barrier with a sum: set `sums` of kolo_parameters_opts");
    }
    uint64_t *seen = kolo_zalloc(all * sizeof *seen);
    if (!seen) return KOLO_NOMEM(all * sizeof *seen);
    kolo_status status = barrier(p, numbers, any && *any, seen);
    p->barriers += status == KOLO_OK;
    for (size_t w = 0; w < n && lost && status == KOLO_OK; w++) {
        /* One that dies in the barrier is lost to some owners only, after all its pushes. */
        lost[w] = seen[w];
        for (size_t at = w; at < all && lost[w] == 0; at += n) lost[w] = seen[at];
    }
    const uint64_t flags = status == KOLO_OK ? p->pulls[0].reply_clock : 0;
    if (status == KOLO_OK && asked) *asked = flags & KOLO_BARRIER_STOPS;
    if (status == KOLO_OK && any) *any = flags & KOLO_BARRIER_ANY;
    kolo_free(seen);
    return status;
}

kolo_status kolo_parameters_ask(kolo_parameters *p, uint64_t end) {
    KOLO_TRY(kolo_parameters_check_worker(p));
    if (!p->opts.leases || p->asked || p->finished) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s",
                         p->asked ? "the answer to an earlier request for a lease is not taken"
                                  : "a request for a lease after the end, or without `leases`");
    }
    const bool bounded = p->opts.staleness != KOLO_STALENESS_ANY;
    if (bounded && p->held == 0 && p->pushing) { /* its clock holds up those who have leases */
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "a request for a lease after the push of the last one, with "
                         "a staleness of %d: pull first, or ask before the push",
                         p->opts.staleness);
    }
    if (bounded && p->held == 0 && !p->idle) { /* the others go on without it */
        KOLO_TRY(kolo_parameters_signal_all(p, KOLO_OWNER_IDLE, KOLO_OK));
        p->idle = true;
    }
    p->lease = kolo_parameters_request(p, 0, KOLO_OWNER_LEASE);
    p->lease.key = p->leases;
    p->lease.clock = end;
    p->lease.output = &p->resume;
    p->lease.output_bytes = sizeof p->resume;
    KOLO_TRY(kolo_parameters_start(p, 0, &p->lease));
    p->asked = true;
    return KOLO_OK;
}

kolo_status kolo_parameters_lease(kolo_parameters *p, bool *given, uint64_t *number) {
    KOLO_TRY(kolo_parameters_check_worker(p));
    if (!p->asked) return KOLO_FAIL(KOLO_ERR_ARG, "no lease was asked for");
    p->asked = false;
    KOLO_TRY(kolo_parameters_await(p, 0, &p->lease));
    p->leases++;
    *given = p->lease.reply_clock > 0;
    if (!*given) return KOLO_OK;
    *number = p->lease.reply_clock - 1;
    p->held++;
    if (!p->idle) return KOLO_OK;
    p->idle = false;
    p->goes_on = true;
    p->clock = p->resume;
    return KOLO_OK;
}

bool kolo_parameters_reads_again(const kolo_parameters *p) { return p->goes_on; }

/* Asks the first owner for a point. */
static kolo_status ask_for_point(kolo_parameters *p, uint32_t kind, uint64_t key, uint64_t next,
                                 uint64_t *at) {
    if (!p->service) return KOLO_FAIL(KOLO_ERR_ARG, "a request after the wait for all workers");
    if (p->opts.record || p->opts.replay) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a run that is recorded or replayed does not stop or pause "
                                       "upon request: its steps would depend on the time");
    }
    if (p->works && next == 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a worker that passes no point before it stops");
    }
    kolo_service_request q = kolo_parameters_request(p, 0, kind);
    q.key = key;
    q.clock = p->works ? next : 0;
    KOLO_TRY(kolo_parameters_run(p, 0, &q));
    *at = q.reply_clock;
    return KOLO_OK;
}

kolo_status kolo_parameters_stop(kolo_parameters *p, bool asks, uint64_t next, uint64_t *at) {
    return ask_for_point(p, KOLO_OWNER_STOP, asks, next, at);
}

kolo_status kolo_parameters_forget_stop(kolo_parameters *p) {
    uint64_t at;
    KOLO_TRY(kolo_parameters_check_worker(p));
    KOLO_TRY(ask_for_point(p, KOLO_OWNER_STOP, KOLO_STOP_FORGETS, 1, &at));
    p->paused_at = 0;
    return KOLO_OK;
}

kolo_status kolo_parameters_pause(kolo_parameters *p, bool asks, uint64_t next, uint64_t *at) {
    KOLO_TRY(kolo_parameters_check_worker(p));
    if (p->opts.leases) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a pause with leases: some behind it may be given out");
    }
    KOLO_TRY(ask_for_point(p, KOLO_OWNER_PAUSE, asks ? p->paused_at + 1 : 0, next, at));
    p->paused_at = *at;
    return KOLO_OK;
}
