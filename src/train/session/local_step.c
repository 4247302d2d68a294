/* Steps of ranks that train on their own, and the rounds that combine what they have learned
 * (plan/rounds.h). */
#include "base/clock.h"
#include "plan/store.h"
#include "train/session/agree.h"
#include "train/session/internal.h"

#include <inttypes.h>
#include <math.h>

/* A step whose metrics the ranks add up. */
typedef struct report {
    kolo_session *session;
    const cached *finish;
    kolo_label_count labels;
    int64_t samples;
} report;

static kolo_status post_metrics(const kolo_session *s, const kolo_sums *sums) {
    double numbers[KOLO_SESSION_SUMS];
    for (int i = 0; i < KOLO_MAX_METRICS; i++) numbers[i] = sums->metric[i];
    numbers[KOLO_MAX_METRICS] = (double)sums->samples;
    numbers[KOLO_MAX_METRICS + 1] = (double)sums->labels;
    numbers[KOLO_MAX_METRICS + 2] = sums->weight;
    return kolo_rounds_post(s->rounds, numbers);
}

/* Once the forward pass is complete: the sum, and the wait for slower ranks, go on behind the
 * backward pass. */
static kolo_status report_metrics(void *arg) {
    const report *r = arg;
    const kolo_sums sums = kolo_session_read_sums(r->finish, r->samples, r->labels);
    return post_metrics(r->session, &sums);
}

static kolo_status await_metrics(const kolo_session *s, kolo_sums *sums) {
    double numbers[KOLO_SESSION_SUMS];
    KOLO_TRY(kolo_rounds_await(s->rounds, numbers));
    for (int i = 0; i < KOLO_MAX_METRICS; i++) sums->metric[i] = numbers[i];
    sums->samples = (int64_t)numbers[KOLO_MAX_METRICS];
    sums->labels = (int64_t)numbers[KOLO_MAX_METRICS + 1];
    sums->weight = numbers[KOLO_MAX_METRICS + 2];
    return KOLO_OK;
}

/* The sums of a rank without samples: no update either. */
static kolo_sums no_sums(const kolo_session *s) {
    kolo_sums sums = {0};
    for (int i = 0; i < KOLO_MAX_METRICS; i++) {
        sums.metric[i] = kolo_value_ok(s->plans[0]->metrics[i]) ? 0 : NAN;
    }
    return sums;
}

/* After an error of this rank the others would wait for the metrics of this step or the next one.
 */
static kolo_status end_others(const kolo_session *s, kolo_status status) {
    const bool own = status != KOLO_ERR_PEER && status != KOLO_ERR_TIMEOUT;
    return own ? kolo_end_group(s->comm, status) : status;
}

kolo_status kolo_session_step_alone(kolo_session *s, const kolo_batch *batch, double lr,
                                    kolo_sums *sums) {
    kolo_batch own = *batch;
    own.global_count = batch->count;
    if (s->consolidated) kolo_session_restore_local(s);
    if (own_steps(s) == 0) kolo_rounds_begin(s->rounds);
    KOLO_TRY(kolo_rounds_start(s->rounds, own_steps(s)));
    if (own.count > 0) {
        report r = {s, .labels = kolo_session_count_labels(s, &own), .samples = own.count};
        const kolo_step_scalars x = kolo_session_scalars(s, lr, r.labels);
        s->reported = report_metrics;
        s->reported_arg = &r;
        const kolo_status status = kolo_session_run_micro_batches(s, &own, &x, &r.finish);
        s->reported = NULL;
        if (status != KOLO_OK) return end_others(s, status);
        s->trained = r.finish->plan;
    } else {
        const kolo_sums none = no_sums(s);
        KOLO_TRY(post_metrics(s, &none));
    }
    const int64_t begin = kolo_now_ns();
    KOLO_TRY(await_metrics(s, sums));
    kolo_session_count_communication(s, begin);
    s->evaluated = NULL;
    s->steps++;
    return kolo_rounds_advance(s->rounds, own_steps(s));
}

void kolo_session_count_rollbacks(kolo_session *s) {
    const int64_t rollbacks = kolo_store_rollbacks(s->store);
    s->steps -= (uint64_t)(rollbacks - s->rollbacks);
    s->rollbacks = rollbacks;
}

static kolo_status run_deferred(kolo_session *s) {
    const kolo_status status = kolo_store_run_deferred(s->store);
    kolo_session_count_rollbacks(s);
    return status;
}

kolo_status kolo_session_consolidate(kolo_session *s) {
    if (s->served) { /* each worker has waited for its pushes */
        if (s->tables) KOLO_TRY(kolo_tables_flush(s->tables));
        if (kolo_consistency_is_alone(&s->opts.consistency)) {
            KOLO_TRY(kolo_served_barrier(s->served, NULL, NULL));
            kolo_served_keep(s->served, s);
            KOLO_TRY(kolo_served_read_all(s->served, s));
            return kolo_served_barrier(s->served, NULL, NULL); /* no push before all have read */
        }
        if (s->comm) KOLO_TRY(kolo_barrier(s->comm));
        return kolo_served_read_all(s->served, s);
    }
    if (!s->rounds) return run_deferred(s);
    if (s->consolidated || own_steps(s) == 0) return KOLO_OK; /* at first all have the same */
    KOLO_TRY(kolo_rounds_average(s->rounds, own_steps(s)));
    s->consolidated = true;
    return KOLO_OK;
}

kolo_status kolo_session_consolidate_errors(kolo_session *s) {
    return s->served ? kolo_served_sum_residuals(s->served, s) : KOLO_OK;
}

kolo_status kolo_session_refresh(kolo_session *s, bool state) {
    if (!s->served) return s->rounds ? KOLO_OK : kolo_session_consolidate(s);
    if (state) return kolo_session_consolidate(s);
    /* With bsp its latest step has read what they have until the next one. */
    const bool newer = kolo_consistency_is_alone(&s->opts.consistency);
    return newer ? kolo_served_pull(s->served, s) : KOLO_OK;
}

kolo_status kolo_session_assign(kolo_session *s, int64_t updates, int64_t steps) {
    if (!s->served) return KOLO_OK;
    const kolo_status status = kolo_served_assign(s->served, s, updates, steps);
    return kolo_session_end(s, kolo_agree(s->comm, status));
}

void kolo_session_restore_local(kolo_session *s) {
    if (s->rounds && own_steps(s) > 0) kolo_rounds_restore(s->rounds);
    s->consolidated = false;
    if (s->served) kolo_served_restore(s->served, s);
}

kolo_status kolo_session_check_new(const kolo_session *s, const char *what) {
    if (!s->rounds || own_steps(s) == 0) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                     "%s after step %" PRIu64
                     ", and the ranks train parameters of their own, which it would replace in the "
                     "middle of a round: do so before the first step",
                     what, s->steps);
}
