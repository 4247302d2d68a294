/* Starting requests, testing them and waiting for them. */
#include "base/clock.h"
#include "base/status.h"
#include "base/text.h"
#include "comm/engine/backoff.h"
#include "comm/engine/comm_trace.h"
#include "comm/engine/engine.h"
#include "comm/engine/failure.h"
#include "comm/engine/family.h"
#include "comm/engine/flight.h"
#include "comm/engine/lock.h"
#include "comm/engine/p2p.h"
#include "comm/engine/progress_thread.h"
#include "comm/engine/report.h"

static kolo_status timed_out(kolo_comm *comm, int64_t waited_ns) {
    kolo_text text = {0};
    kolo_comm_describe(comm, &text);
    kolo_status status = kolo_comm_break(
        comm, KOLO_ERR_TIMEOUT,
        "waited %.1f s in %s; check that rank, or allow more time (--timeout, timeout_ms)",
        (double)waited_ns * 1e-9, text.text ? text.text : "a collective");
    kolo_text_fini(&text);
    return status;
}

/* What a wait is for: a request, or, if it is NULL, room for another collective in flight. */
static bool waited_for(const kolo_comm *comm, const kolo_request *request) {
    return request ? request->state == REQUEST_IDLE : comm->n_flight < comm->max_in_flight;
}

/* Whether a wait ends: after `*limit_ns`, at first its timeout, unless a hook extends it. */
static bool is_over(const kolo_comm *comm, int64_t waited_ns, int64_t timeout_ns,
                    int64_t *limit_ns) {
    if (waited_ns <= *limit_ns) return false;
    if (!comm->wait_hooks || !comm->wait_hooks->goes_on(comm->wait_hooks->arg)) return true;
    *limit_ns = waited_ns + timeout_ns / 2;
    return false;
}

/* `since_ns` is when the wait began, 0 for now. */
static kolo_status wait_for(kolo_comm *comm, const kolo_request *request, int64_t timeout_ns,
                            int64_t since_ns) {
    KOLO_TRY(kolo_comm_check(comm));
    kolo_idle w = {.started_ns = since_ns};
    int64_t limit_ns = timeout_ns;
    while (!waited_for(comm, request)) {
        bool moved;
        KOLO_TRY(kolo_engine_progress(comm, &moved));
        if (waited_for(comm, request)) break;
        KOLO_TRY(kolo_idle_step(comm, &w, moved));
        int64_t waited_ns = w.now_ns - w.started_ns;
        if (is_over(comm, waited_ns, timeout_ns, &limit_ns)) return timed_out(comm, waited_ns);
    }
    kolo_idle_learn(comm, &w);
    return kolo_comm_check(comm); /* another thread may have broken it */
}

/* Waits as long as another thread makes progress in a wait of its own; the lock is held. */
static kolo_status follow(kolo_comm *comm, const kolo_request *request, int64_t timeout_ns,
                          int64_t since_ns) {
    int64_t limit_ns = timeout_ns;
    while (comm->lock->driven && !waited_for(comm, request)) {
        kolo_comm_follow(comm);
        int64_t now_ns = kolo_now_ns(), waited_ns = now_ns - since_ns;
        KOLO_TRY(kolo_comm_check_interrupted(comm, now_ns));
        if (waited_for(comm, request)) break;
        if (is_over(comm, waited_ns, timeout_ns, &limit_ns)) return timed_out(comm, waited_ns);
    }
    return kolo_comm_check(comm);
}

/* Waits while the progress thread pauses; the lock is held. */
static kolo_status drive(kolo_comm *comm, const kolo_request *request, int64_t timeout_ns) {
    int64_t since_ns = 0;
    if (!comm->lock) return wait_for(comm, request, timeout_ns, 0);
    if (comm->lock->driven && kolo_comm_may_release(comm)) {
        since_ns = kolo_now_ns();
        KOLO_TRY(follow(comm, request, timeout_ns, since_ns));
        if (waited_for(comm, request)) return KOLO_OK;
    }
    bool only = kolo_progress_drive(comm);
    kolo_status status = wait_for(comm, request, timeout_ns, since_ns);
    kolo_progress_end_drive(comm, only);
    return status;
}

static kolo_status wait_driving(kolo_comm *comm, const kolo_request *request, int64_t timeout_ns) {
    const kolo_comm_wait_hooks *hooks = comm->wait_hooks;
    if (hooks) hooks->begin(hooks->arg);
    kolo_status status = drive(comm, request, timeout_ns);
    if (hooks) hooks->end(hooks->arg);
    return status;
}

static kolo_comm *comm_of(const kolo_request *q) { return q ? q->comm : NULL; }

kolo_status kolo_request_start(kolo_request *q) {
    kolo_comm *comm = comm_of(q);
    KOLO_COMM_CLAIM(comm);
    KOLO_COMM_LOCK_SCOPE(comm);
    KOLO_TRY(kolo_comm_check(comm));
    if (q->state != REQUEST_IDLE) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s is in flight: wait for it before starting it again",
                         q->title);
    }
    bool moved; /* the announcement is sent at once */
    if (kolo_collective_is_message(q->kind)) {
        KOLO_TRY(kolo_p2p_start(q));
        if (comm->trace) kolo_comm_trace_begin(comm->trace, q);
        return kolo_engine_progress(comm, &moved);
    }
    while (comm->n_flight == comm->max_in_flight) {
        KOLO_TRY(wait_driving(comm, NULL, comm->timeout_ns));
    }
    q->state = REQUEST_QUEUED;
    q->seq = comm->next_seq++;
    q->round = 0;
    q->phase = 0;
    q->matched = 0;
    q->offloaded = false;
    kolo_flight_add(comm, q);
    if (comm->trace) kolo_comm_trace_begin(comm->trace, q);
    return kolo_engine_progress(comm, &moved);
}

kolo_status kolo_request_wait(kolo_request *request, int64_t timeout_ms) {
    kolo_comm *comm = comm_of(request);
    if (timeout_ms < 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "timeout_ms %lld is negative", (long long)timeout_ms);
    }
    KOLO_COMM_CLAIM(comm);
    KOLO_COMM_LOCK_SCOPE(comm);
    return wait_driving(comm, request,
                        timeout_ms > 0 ? kolo_ms_to_ns(timeout_ms) : comm->timeout_ns);
}

kolo_status kolo_request_test(kolo_request *request, bool *complete) {
    KOLO_COMM_CLAIM(comm_of(request));
    KOLO_COMM_LOCK_SCOPE(request->comm);
    KOLO_TRY(kolo_comm_progress(request->comm));
    *complete = request->state == REQUEST_IDLE;
    return KOLO_OK;
}

kolo_status kolo_comm_progress(kolo_comm *comm) {
    KOLO_COMM_CLAIM(comm);
    if (!kolo_comm_enter_if_free(comm)) return KOLO_OK; /* another thread makes progress */
    bool moved;
    kolo_status status = kolo_engine_progress(comm, &moved);
    if (status == KOLO_OK && !moved && kolo_family_in_flight(comm)) {
        status = kolo_comm_watch_sometimes(comm, kolo_now_ns());
    }
    kolo_comm_leave(&comm);
    return status;
}
