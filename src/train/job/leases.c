/* Runs whose workers take their samples from one counter, at a server. With n workers lease L is
 * the share of worker L % n in step L / n, whichever worker uses it. Between two points where the
 * workers wait for each other, a worker makes as many steps as it gets leases. During a step the
 * batch of the next lease is read and the lease after it is requested, in an order that does not
 * depend on timing, so that a replay gets the same leases. */
#include "base/clock.h"
#include "base/integer.h"
#include "train/job/job.h"

/* Whether the workers wait for each other once `done` steps are made. */
static bool is_barrier(const kolo_job *j, int64_t done) {
    const int64_t replicas = j->setup.opts.check_replicas;
    return done >= j->end || kolo_job_wants_evaluation(j, done) ||
           kolo_job_wants_checkpoint(j, done) || (replicas > 0 && done % replicas == 0);
}

/* The step before which the workers wait for each other next, after step k. */
static int64_t next_barrier(const kolo_job *j, int64_t k) {
    int64_t done = k + 1;
    while (!is_barrier(j, done)) done++;
    return done;
}

int64_t kolo_job_barrier_before(const kolo_job *j, int64_t barrier) {
    int64_t done = barrier - 1;
    while (done > 0 && !is_barrier(j, done)) done--;
    return done;
}

/* Takes the answer to a request, and lets the loader read the batch. */
static kolo_status take_answer(kolo_job *j) {
    int64_t lease;
    j->asked = false;
    KOLO_TRY(kolo_session_lease(j->session, &lease));
    if (lease < 0) return KOLO_OK;
    kolo_loader_ask(j->loader, lease / j->size, (int)(lease % j->size));
    j->leases[j->n_leases++] = lease;
    return KOLO_OK;
}

/* The next lease of steps before `barrier`; -1: all of them are used. */
static kolo_status next_lease(kolo_job *j, int64_t barrier, int64_t *lease) {
    const int64_t end = barrier * j->size;
    if (j->asked) KOLO_TRY(take_answer(j));
    *lease = -1;
    if (j->n_leases == 0) { /* it waits for the others, whose leases may return */
        KOLO_TRY(kolo_session_ask(j->session, end));
        KOLO_TRY(take_answer(j));
    }
    if (j->n_leases == 1) { /* the batch that is read during the step; it does not wait */
        KOLO_TRY(kolo_session_ask(j->session, end));
        KOLO_TRY(take_answer(j));
    }
    if (j->n_leases == 0) return KOLO_OK;
    *lease = j->leases[0];
    j->leases[0] = j->leases[1];
    j->n_leases--;
    KOLO_TRY(kolo_session_ask(j->session, end));
    j->asked = true;
    return KOLO_OK;
}

/* This worker has no more leases of step k, or had none. */
static kolo_status pass_step(kolo_job *j, int64_t k) {
    if (j->state.steps == k) j->state.recent[k % KOLO_LAST_STEPS] = j->setup.zero;
    j->state.steps = k + 1;
    KOLO_TRY(kolo_job_check_replicas(j, k));
    KOLO_TRY(kolo_job_after_step(j, k));
    return kolo_job_save_resumable(j);
}

kolo_status kolo_job_run_leases(kolo_job *j) {
    int64_t k = j->state.steps;
    while (k < j->end) {
        int64_t lease;
        const int64_t start = kolo_now_ns(), barrier = next_barrier(j, k);
        KOLO_TRY(next_lease(j, barrier, &lease));
        const int64_t step = lease < 0 ? barrier : kolo_max_i64(lease / j->size, k);
        for (; k < step && k < j->end; k++) KOLO_TRY(pass_step(j, k)); /* may end the run */
        if (lease < 0) continue;
        /* A step may have several leases, and each has a row of times. */
        if (kolo_rank_times_is_full(j->rank_times)) {
            KOLO_TRY(kolo_rank_times_exchange(j->rank_times));
        }
        KOLO_TRY(kolo_job_step(j, k, start));
        KOLO_TRY(kolo_job_renew_invitation(j));
    }
    return KOLO_OK;
}
