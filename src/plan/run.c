/* The step loop. */
#include "base/clock.h"
#include "plan/internal.h"

static kolo_status run_step(kolo_plan *p, const kolo_step *step, int bank, int *in_flight) {
    switch (step->kind) {
    case KOLO_STEP_KERNEL:
        step->kernel->run(&step->calls[bank]);
        return *in_flight ? kolo_comm_progress(p->comm) : KOLO_OK;
    case KOLO_STEP_POST:
        ++*in_flight;
        return kolo_request_start(p->requests[step->bucket]);
    case KOLO_STEP_WAIT:
        --*in_flight;
        return kolo_request_wait(p->requests[step->bucket], 0);
    }
    return KOLO_OK;
}

static kolo_status run_steps(kolo_plan *p, bool last_micro_batch) {
    if (p->bound_at != p->store->moves) KOLO_TRY(kolo_plan_bind(p));
    int bank = p->store->current, in_flight = 0;
    p->ran_bank = bank;
    for (int i = 0; i < p->n_steps; i++) {
        const kolo_step *step = &p->steps[i];
        if (step->once_per_step && !last_micro_batch) continue;
        int64_t begin = p->observer ? kolo_now_ns() : 0;
        KOLO_TRY(run_step(p, step, bank, &in_flight));
        if (p->observer) {
            p->observer(p->observer_arg, i, step->kind, step->bucket, begin, kolo_now_ns());
        }
    }
    return KOLO_OK;
}

kolo_status kolo_plan_run(kolo_plan *p) {
    KOLO_ASSERT(!p->adds_to);
    KOLO_TRY(run_steps(p, true));
    if (p->train) p->store->current = !p->store->current; /* commit */
    return KOLO_OK;
}

kolo_status kolo_plan_accumulate(kolo_plan *p) {
    KOLO_ASSERT(p->accumulates);
    return run_steps(p, false);
}

void kolo_plan_observe(kolo_plan *p, kolo_plan_observer observer, void *arg) {
    p->observer = observer;
    p->observer_arg = arg;
}
