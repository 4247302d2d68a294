/* Preemption: a run that is asked to end, as by the SIGTERM of a scheduler, saves a checkpoint to
 * resume from. The request may reach one rank, or each in another step. The ranks agree on the step
 * after which they end about once a second, so that steps of microseconds pay nothing for it. */
#include "base/clock.h"
#include "base/integer.h"
#include "train/job/job.h"
#include "train/session/agree.h"

static kolo_status check_folder(const kolo_job *j) {
    if (j->setup.opts.out_dir) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "a run that saves when it is preempted needs a folder on rank 0: give --out");
}

/* Whether any rank has the callback: then all take part. Collective. */
kolo_status kolo_job_begin_preemption(kolo_job *j) {
    int32_t any = j->preempted != NULL;
    if (j->comm) KOLO_TRY(kolo_allreduce(j->comm, &any, 1, KOLO_DTYPE_I32, KOLO_MAX));
    KOLO_TRY(kolo_agree(j->comm, any && j->rank == 0 ? check_folder(j) : KOLO_OK));
    j->preemption.asks = any;
    j->preemption.steps = 1;
    j->preemption.next = j->state.steps + 1;
    j->preemption.asked_ns = kolo_now_ns();
    return KOLO_OK;
}

kolo_status kolo_job_agree_on_preemption(kolo_job *j) {
    static const int64_t every_ns = 1000000000;
    kolo_preemption *p = &j->preemption;
    const bool last = j->state.steps >= j->end;
    if (!p->asks || (j->state.steps < p->next && !last)) return KOLO_OK;
    const int64_t now = kolo_now_ns();
    int64_t most[2] = {j->preempted && j->preempted(j->preempted_arg), now - p->asked_ns};
    if (j->comm) KOLO_TRY(kolo_allreduce(j->comm, most, 2, KOLO_DTYPE_I64, KOLO_MAX));
    p->due = most[0] != 0;
    if (p->due && last) { /* before the evaluation at the end, which may take long */
        KOLO_TRY(kolo_job_save_resumable(j));
        p->due = false;
    }
    if (p->due) j->end = j->state.steps;
    const double fit = (double)p->steps * (double)every_ns / (double)kolo_max_i64(most[1], 1);
    p->steps = fit < (double)p->steps * 2 ? kolo_max_i64((int64_t)fit, 1) : p->steps * 2;
    p->next = j->state.steps + p->steps;
    p->asked_ns = now;
    return KOLO_OK;
}
