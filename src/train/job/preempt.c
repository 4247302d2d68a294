/* Preemption: upon a request to end, such as the SIGTERM of a scheduler, a run saves a checkpoint
 * to resume from. The request may reach one rank only, or each rank in another step, so the ranks
 * agree on the step after which they end. They do so about once a second, which costs nothing even
 * if steps take microseconds: by an allreduce, or, with owners of the parameters, through the
 * owners, since workers may be at different steps and the request may reach a server. In the same
 * way workers that make steps on their own agree on checkpoints by time, for which rank 0 asks. */
#include "base/clock.h"
#include "base/integer.h"
#include "train/job/job.h"
#include "train/session/agree.h"

static kolo_status check_folder(const kolo_job *j) {
    if (j->setup.opts.out_dir) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "a run that saves when it is preempted needs a folder on rank 0: give --out");
}

kolo_status kolo_job_open_preemption(kolo_job *j) {
    kolo_comm *all = j->world ? j->world : j->comm;
    int32_t any = j->preempted != NULL;
    if (all) KOLO_TRY(kolo_allreduce(all, &any, 1, KOLO_DTYPE_I32, KOLO_MAX));
    j->preemption.asks = any;
    j->preemption.saves = kolo_job_is_asynchronous(j) && j->setup.opts.checkpoint_seconds > 0;
    return kolo_agree(all, any && j->rank == 0 ? check_folder(j) : KOLO_OK);
}

void kolo_job_begin_preemption(kolo_job *j) {
    j->preemption.steps = 1;
    j->preemption.next = j->state.steps + 1;
    j->preemption.asked_ns = kolo_now_ns();
}

/* Adapts the steps to the next agreement; `ns`: since the latest one. */
static void plan_next(kolo_job *j, int64_t now, int64_t ns) {
    static const int64_t every_ns = 1000000000;
    kolo_preemption *p = &j->preemption;
    const double fit = (double)p->steps * (double)every_ns / (double)kolo_max_i64(ns, 1);
    p->steps = fit < (double)p->steps * 2 ? kolo_max_i64((int64_t)fit, 1) : p->steps * 2;
    p->next = j->state.steps + p->steps;
    p->asked_ns = now;
}

/* All workers are at the same step. */
static kolo_status ask_workers(kolo_job *j, bool asked) {
    const int64_t now = kolo_now_ns();
    int64_t most[2] = {asked, now - j->preemption.asked_ns};
    if (j->comm) KOLO_TRY(kolo_allreduce(j->comm, most, 2, KOLO_DTYPE_I64, KOLO_MAX));
    if (most[0] != 0) j->preemption.at = j->state.steps;
    plan_next(j, now, most[1]);
    return KOLO_OK;
}

/* Workers may be at different steps, and a server may be asked: the owner of the first parameters
 * finds a step that no worker has passed. */
static kolo_status ask_owners(kolo_job *j, bool asked, bool last) {
    kolo_preemption *p = &j->preemption;
    const int64_t now = kolo_now_ns();
    plan_next(j, now, now - p->asked_ns);
    p->next = last ? j->end + 1 : kolo_min_i64(p->next, j->end);
    if (p->saves) {
        const bool pending = p->save_at >= j->state.steps;
        const bool due = j->rank == 0 && !pending && kolo_job_wants_checkpoint_now(j);
        KOLO_TRY(kolo_session_pause(j->session, due, &p->next, &p->save_at));
    }
    return p->asks ? kolo_session_stop(j->session, asked, &p->next, &p->at) : KOLO_OK;
}

/* A worker that has passed all points before the others were asked: all meet at the end of the run,
 * and save there if any rank has asked. */
static kolo_status meet_at_end(kolo_job *j) {
    bool asked;
    KOLO_TRY(kolo_session_barrier(j->session, &asked, NULL));
    if (asked) j->preemption.at = j->end;
    return KOLO_OK;
}

kolo_status kolo_job_agree_on_preemption(kolo_job *j) {
    kolo_preemption *p = &j->preemption;
    const bool last = j->state.steps >= j->end;
    if (!p->asks && !p->saves) return KOLO_OK;
    if ((p->at == 0 || p->saves) && (j->state.steps >= p->next || last)) {
        const bool asked = j->preempted && j->preempted(j->preempted_arg);
        KOLO_TRY(j->setup.session.served ? ask_owners(j, asked, last) : ask_workers(j, asked));
    }
    if (p->asks && j->setup.session.served && last && p->at != j->end) KOLO_TRY(meet_at_end(j));
    p->due = p->at > 0 && p->at == j->state.steps;
    if (p->due && last) { /* before the evaluation at the end, which may take long */
        KOLO_TRY(kolo_job_save_resumable(j));
        p->due = false;
    }
    if (p->due) j->end = j->state.steps;
    return KOLO_OK;
}
