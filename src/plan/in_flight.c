/* How many collectives of a plan are in flight at once, so that no POST waits for room. */
#include "comm/engine/flight.h"
#include "graph/ops/ops.h"
#include "plan/internal.h"

static kolo_axes axes_of(const kolo_plan *p, const kolo_step *step) {
    return (kolo_axes)p->graph->nodes[step->node]->attr[KOLO_COMM_AXES].i;
}

static bool is_among(const kolo_plan *p, int step, kolo_step_kind kind, kolo_axes axes) {
    const kolo_step *s = &p->steps[step];
    return s->kind == kind && (!p->groups || axes_of(p, s) == axes);
}

/* A stage: passes of several micro-batches, each with a slot, follow each other in any order. */
static int most_of_stage(const kolo_plan *p, kolo_axes axes) {
    int most = 0;
    for (int i = 0; i < p->n_steps; i++) {
        if (!is_among(p, i, KOLO_STEP_POST, axes)) continue;
        most += p->map.buckets[p->steps[i].bucket].of_model ? p->slots : 1;
    }
    return most;
}

int kolo_plan_most_in_flight(const kolo_plan *p, kolo_axes axes) {
    int n = 0, most = 0, left = 0;
    if (p->slots > 1) return most_of_stage(p, axes);
    for (int i = 0; i < p->n_deferred; i++) { /* what the run before has left */
        n += is_among(p, p->deferred[i].step, KOLO_STEP_WAIT, axes);
    }
    for (int i = 0; i < p->n_steps; i++) {
        for (; left < p->n_deferred && p->deferred[left].before <= i; left++) {
            n -= is_among(p, p->deferred[left].step, KOLO_STEP_WAIT, axes);
        }
        n += is_among(p, i, KOLO_STEP_POST, axes);
        if (n > most) most = n;
        n -= !p->steps[i].deferred && is_among(p, i, KOLO_STEP_WAIT, axes);
    }
    return most;
}

kolo_status kolo_plan_reserve_flight(const kolo_plan *p) {
    for (int i = 0; i < p->n_steps; i++) {
        kolo_comm *group = p->comm;
        if (p->steps[i].kind != KOLO_STEP_POST) continue;
        const kolo_axes axes = axes_of(p, &p->steps[i]);
        if (p->groups) KOLO_TRY(kolo_mesh_comms_get(p->groups, axes, &group));
        /* Between two steps the session has one of its own, while sums are left to the next. */
        KOLO_TRY(kolo_flight_reserve(group, kolo_plan_most_in_flight(p, axes) + 1));
    }
    return KOLO_OK;
}
