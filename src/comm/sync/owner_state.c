/* What the files of an owner share: clocks, events, and the update of its part. */
#include "base/integer.h"
#include "base/status.h"
#include "comm/sync/owner_internal.h"

#include <stdio.h>

typedef kolo_owner_worker worker;
typedef kolo_parameters_owner owner;

uint64_t kolo_owner_slowest(const owner *o) {
    uint64_t least = UINT64_MAX;
    for (int w = 0; w < o->n_workers; w++) {
        const worker *x = &o->workers[w];
        const bool counts = kolo_owner_is_active(x) && !x->idle;
        if (counts && o->pushes[w] - x->from < least) least = o->pushes[w] - x->from;
    }
    return least;
}

void kolo_owner_observe(const owner *o, kolo_parameters_event event) {
    event.pushes = o->pushes;
    event.workers = o->n_workers;
    if (o->opts->observe) o->opts->observe(o->opts->arg, &event);
}

/* The loss of the latest update. */
static void add_loss(owner *o) {
    double samples = 0, loss = 0;
    if (!o->opts->progress) return;
    o->opts->progress(o->opts->arg, &samples, &loss);
    if (samples > o->samples) {
        kolo_adapt_add_loss(o->adapt, (loss - o->loss) / (samples - o->samples));
    }
    o->samples = samples;
    o->loss = loss;
}

/* The gradients that a mean is over at least: as many as a step or round of all workers waits for.
 */
static int least_of(const owner *o) {
    if (o->opts->drop > 0) return o->n_not_lost - o->opts->drop;
    return (int)kolo_min_i64(o->opts->quorum, o->n_not_lost);
}

kolo_parameters_update kolo_owner_describe(const owner *o, const float *gradient, int n, int w,
                                           uint64_t clock) {
    return (kolo_parameters_update){.first = o->has.values.first,
                                    .count = o->has.values.count,
                                    .values = o->opts->copy_values ? NULL : o->values,
                                    .gradient = gradient,
                                    .workers = n,
                                    .least = least_of(o),
                                    .worker = w,
                                    .clock = clock,
                                    .latest = w >= 0 ? w : o->latest,
                                    .version = o->version,
                                    .not_lost = o->n_not_lost};
}

void kolo_owner_apply(owner *o, const float *gradient, int n, int w, uint64_t clock) {
    const kolo_parameters_update u = kolo_owner_describe(o, gradient, n, w, clock);
    if (o->has.values.count > 0) o->opts->update(o->opts->arg, &u);
    o->current = !o->opts->copy_values;
    if (o->adapt) add_loss(o);
    o->version++;
    pthread_mutex_lock(&o->mutex);
    o->stats.version = o->version;
    pthread_mutex_unlock(&o->mutex);
}

/* ---- the end of the job ---- */

kolo_status kolo_owner_fail(const owner *o) { return KOLO_FAIL(KOLO_ERR_PEER, "%s", o->why); }

static void refuse(const owner *o, kolo_service_call *call) {
    if (call) o->reply(call, kolo_owner_fail(o), 0, NULL, 0);
}

void kolo_owner_end_job(owner *o, const char *what, int number, const char *reason) {
    if (o->ends) return;
    o->ends = true;
    snprintf(o->why, sizeof o->why, "%s %d is lost: %s", what, number, reason);
    for (int i = 0; i < o->n_workers; i++) { /* what is kept will not be answered */
        worker *w = &o->workers[i];
        refuse(o, kolo_owner_take(&w->push));
        refuse(o, kolo_owner_take(&w->pull));
        refuse(o, kolo_owner_take(&w->state));
        refuse(o, kolo_owner_take(&w->barrier));
        refuse(o, kolo_owner_take(&w->lease));
    }
}
