/* Runs: one step, its checks, and shards that move between the ranks. */
#include "base/clock.h"
#include "base/number.h"
#include "data/dataset.h"
#include "train/checkpoint/finite.h"
#include "train/job/job.h"
#include "train/session/agree.h"
#include "train/session/exchange.h"
#include "train/session/memory.h"
#include "train/session/replicas.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* The largest plausible loss: far above the first one and that of uniform guesses, ln(classes). */
static double most_loss(const kolo_job *j) {
    return 1e4 * fmax(1, fmax(j->state.first_loss, log((double)j->setup.session.classes)));
}

/* `what` states what shows that training diverged, after step k. */
static kolo_status fail_diverged(const kolo_job *j, const char *what, int64_t k) {
    return KOLO_FAIL(KOLO_ERR_DIVERGED,
                     "%s at step %" PRId64 " (epoch %" PRId64
                     "): training diverged; lower the learning rate, which is %g here, or warm it "
                     "up over more epochs",
                     what, k + 1, k / j->setup.epoch_steps + 1, kolo_session_lr_at(j->session, k));
}

static kolo_status check_loss(const kolo_job *j, int64_t k, const kolo_sums *sums) {
    double loss = kolo_sums_loss(sums);
    char what[64];
    if (isfinite(loss) && loss <= most_loss(j)) return KOLO_OK;
    /* The sum is equal on all ranks, so all ranks fail here. */
    kolo_snprintf(what, sizeof what, "the loss is %.4g", isnan(loss) ? NAN : loss); /* never -nan */
    if (kolo_job_is_asynchronous(j)) {
        return fail_diverged(j, what, k); /* workers see different sums */
    }
    return kolo_agree(j->comm, j->rank == 0 ? fail_diverged(j, what, k) : KOLO_OK);
}

/* Parameters, statistics and optimizer state must be finite wherever they are kept. They are equal
 * on all ranks; rank 0 reads them. */
kolo_status kolo_job_check_parameters(const kolo_job *j) {
    kolo_text what = {0};
    kolo_status status = KOLO_OK;
    const kolo_store *store = kolo_session_store(j->session);
    if (j->rank == 0 || kolo_store_is_sharded(store)) {
        status = kolo_store_find_not_finite(store, &what);
    }
    if (status == KOLO_OK && what.text) status = fail_diverged(j, what.text, j->state.steps - 1);
    kolo_text_fini(&what);
    return kolo_agree(j->comm, status);
}

/* Deals the shards of step k as decided some steps before. */
static kolo_status deal(kolo_job *j, int64_t k) {
    if (j->dealt_from == 0 || k < j->dealt_from) return KOLO_OK;
    j->dealt_from = 0;
    KOLO_TRY(kolo_session_deal(j->session, kolo_balance_counts(j->balance)));
    kolo_loader_destroy(j->audit);
    j->audit = NULL;
    return kolo_agree(j->comm, kolo_job_open_audit(j, k));
}

/* Informs the user of a new deal: "shards of ranks from step 9 on: 6 2". */
static void notify_deal(const kolo_job *j, const int *counts) {
    const kolo_train_opts *o = &j->setup.opts;
    if (j->rank != 0 || !o->notice) return;
    kolo_text text = {0};
    kolo_text_add(&text, "shards of the workers from step %" PRId64 " on:", j->dealt_from + 1);
    for (int r = 0; r < j->size; r++) kolo_text_add(&text, " %d", counts[r]);
    if (!text.failed) o->notice(o->notice_arg, text.text, KOLO_NOTICE_INFO);
    kolo_text_fini(&text);
}

/* After step k: measures, and announces another deal to the loader. */
static kolo_status balance(kolo_job *j, int64_t k) {
    int64_t from;
    if (!j->balance || !j->loader) return KOLO_OK;
    KOLO_TRY(kolo_balance_add(j->balance, k, kolo_session_busy_ns(j->session), &from));
    if (from == 0) return KOLO_OK;
    const int *counts = kolo_balance_counts(j->balance);
    int first = 0;
    for (int r = 0; r < j->rank; r++) first += counts[r];
    kolo_loader_deal(j->loader, from, first, first + counts[j->rank]);
    j->dealt_from = from;
    notify_deal(j, counts);
    return KOLO_OK;
}

/* After step k, if it is due: the parameters must be bitwise equal on all ranks. */
kolo_status kolo_job_check_replicas(kolo_job *j, int64_t k) {
    int64_t every = j->setup.opts.check_replicas;
    char when[48];
    if (every == 0 || (k + 1) % every != 0) return KOLO_OK;
    snprintf(when, sizeof when, "after step %" PRId64, k + 1);
    KOLO_TRY(kolo_job_consolidate(j));
    kolo_status status = kolo_compare_replicas(j->comm, kolo_session_store(j->session),
                                               kolo_job_has_own_state(j), when);
    if (status != KOLO_OK && !kolo_job_goes_on(j, status)) return status;
    kolo_session_restore_local(j->session);
    return KOLO_OK;
}

/* If step k is audited, reads the batch that this rank audits. */
static kolo_status prepare_audit(kolo_job *j, int64_t k) {
    kolo_batch other;
    if (!j->audit || (k + 1) % j->setup.opts.audit != 0) return KOLO_OK;
    KOLO_TRY(kolo_loader_next(j->audit, &other));
    kolo_session_audit(j->session, &other);
    return KOLO_OK;
}

/* Records where the step that took `ns`, with what was completed before it, spent its time;
 * wait_ns: waiting for the batch. */
static void record_times(kolo_job *j, int64_t ns, int64_t wait_ns) {
    kolo_plan_times *t = &j->deferred;
    const kolo_plan_times *step = kolo_session_times(j->session);
    for (int i = 0; i < KOLO_PHASES; i++) t->phase_ns[i] += step->phase_ns[i];
    t->communication_ns += step->communication_ns;
    int64_t row[KOLO_TIMES] = {
        [KOLO_TIME_STEP] = ns,
        [KOLO_TIME_INPUT] = wait_ns + t->phase_ns[KOLO_PHASE_INPUT],
        [KOLO_TIME_FORWARD] = t->phase_ns[KOLO_PHASE_FORWARD],
        [KOLO_TIME_BACKWARD] = t->phase_ns[KOLO_PHASE_BACKWARD],
        [KOLO_TIME_EXPOSED] = t->phase_ns[KOLO_PHASE_SYNCHRONIZE],
        [KOLO_TIME_UPDATE] = t->phase_ns[KOLO_PHASE_UPDATE],
        [KOLO_TIME_COMMUNICATION] = t->communication_ns,
    };
    row[KOLO_TIME_OTHER] = ns - wait_ns;
    for (int i = 0; i < KOLO_PHASES; i++) row[KOLO_TIME_OTHER] -= t->phase_ns[i];
    kolo_rank_times_add(j->rank_times, row);
    j->deferred = (kolo_plan_times){0};
    j->deferred_ns = 0;
}

/* Informs the user of what was chosen: "buckets of gradients from step 6 on: 1048576,400",
 * "compression of gradients from step 6 on: bf16,only=fc1.weight". */
static void notify_buckets(const kolo_job *j, int64_t k) {
    const kolo_train_opts *o = &j->setup.opts;
    if (j->rank != 0 || !o->notice) return;
    kolo_text text = {0};
    kolo_text_add(
        &text, "%s of gradients from step %" PRId64 " on: ",
        kolo_session_config_of(j->session)->measure_compression ? "compression" : "buckets", k + 1);
    kolo_session_describe_buckets(j->session, &text);
    if (!text.failed) o->notice(o->notice_arg, text.text, KOLO_NOTICE_INFO);
    kolo_text_fini(&text);
}

/* Before step k, once the session has measured enough: it compiles its plans anew. */
static kolo_status choose_buckets(kolo_job *j, int64_t k) {
    if (!kolo_session_has_measured_buckets(j->session)) return KOLO_OK;
    kolo_job_close_trace(j); /* of the old plans */
    KOLO_TRY(kolo_session_choose_buckets(j->session));
    notify_buckets(j, k);
    return kolo_job_open_trace(j);
}

static void notify_end_of_warm_up(const kolo_job *j, int64_t k) {
    const kolo_consistency *c = &kolo_session_config_of(j->session)->consistency;
    if (j->rank != 0) return;
    if (kolo_consistency_has_rounds(c)) {
        kolo_notify(&j->setup.opts, KOLO_NOTICE_INFO,
                    "workers train on their own from step %" PRId64
                    " on, with a round every %" PRId64 " steps",
                    k + 1, c->steps);
    } else {
        kolo_notify(&j->setup.opts, KOLO_NOTICE_INFO,
                    "1-bit Adam: second moments stay as they are from step %" PRId64
                    " on, and momenta are compressed",
                    k + 1);
    }
}

/* Before step k, after the warm-up: the session compiles its plans anew. */
static kolo_status end_warm_up(kolo_job *j, int64_t k) {
    const kolo_session_config *c = kolo_session_config_of(j->session);
    if (!kolo_session_warms_up(j->session) || k < kolo_exchange_warm_up(c, j->size)) {
        return KOLO_OK;
    }
    kolo_job_close_trace(j); /* of the old plans */
    KOLO_TRY(kolo_session_end_warm_up(j->session));
    KOLO_TRY(kolo_session_check_memory(j->session, j->comm, j->copied_bytes));
    KOLO_TRY(kolo_job_open_trace(j));
    notify_end_of_warm_up(j, k);
    return KOLO_OK;
}

kolo_status kolo_job_sum_damaged(kolo_job *j) {
    if (!j->setup.train->encoded && !j->stream) return KOLO_OK;
    int64_t here = j->damaged;
    if (j->comm) KOLO_TRY(kolo_allreduce(j->comm, &here, 1, KOLO_DTYPE_I64, KOLO_SUM));
    j->damaged = 0;
    j->state.damaged += here;
    return KOLO_OK;
}

/* Lets the step read the rows of the batch after it, if that is there. */
static void prefetch_rows(kolo_job *j) {
    kolo_batch next = {0};
    if (!j->setup.opts.table_prefetch || !j->loader) return;
    if (!kolo_loader_peek(j->loader, &next)) next = (kolo_batch){0};
    kolo_session_prefetch_rows(j->session, &next);
}

/* Makes the deferred updates at the end of the step, if the run asks for that: the plans of a
 * program's session may defer some. */
static kolo_status run_deferred(kolo_job *j) {
    const bool left = kolo_store_has_deferred(kolo_session_store(j->session));
    return left && j->setup.opts.no_cross_step ? kolo_session_consolidate(j->session) : KOLO_OK;
}

/* Reads the samples of a step. An error is of this rank alone. It ends the run on the others, which
 * may wait for this one; those that do not get it from the owners of the parameters. */
static kolo_status load_batch(kolo_job *j, kolo_batch *batch) {
    kolo_status status = j->stream ? KOLO_OK : kolo_loader_next(j->loader, batch);
    if (status == KOLO_OK) status = kolo_session_check_loaded(j->session, batch, true);
    if (status == KOLO_OK || kolo_job_is_asynchronous(j)) return status;
    return kolo_end_group(j->comm, status);
}

/* The samples of step k. */
static kolo_status take_batch(kolo_job *j, int64_t k, kolo_batch *batch) {
    KOLO_TRY(deal(j, k));
    *batch = j->stream ? j->dealt : j->resident.batch;
    if (j->loader || j->stream) KOLO_TRY(load_batch(j, batch));
    if (kolo_session_counts(j->session)) j->damaged += batch->damaged;
    KOLO_TRY(prepare_audit(j, k));
    prefetch_rows(j);
    if (kolo_session_leases(j->session)) {
        kolo_session_seek(j->session, batch->epoch * j->setup.epoch_steps + batch->step);
    }
    return KOLO_OK;
}

/* Forward, backward, allreduce of the gradients, update. */
static kolo_status train_on(kolo_job *j, const kolo_batch *batch, double lr, kolo_sums *sums) {
    const bool before = kolo_job_outlives_workers(j);
    if (j->ledger && before) KOLO_TRY(kolo_ledger_add(j->ledger, batch));
    KOLO_TRY(kolo_session_step_batch(j->session, batch, lr, sums));
    KOLO_TRY(run_deferred(j));
    return j->ledger && !before ? kolo_ledger_add(j->ledger, batch) : KOLO_OK;
}

/* Adds the sums of step k, which took `ns`, to all that is reported. */
static void record_sums(kolo_job *j, int64_t k, const kolo_sums *sums, int64_t ns) {
    kolo_accumulator_add(&j->state.run, sums, ns);
    kolo_accumulator_add(&j->state.epoch, sums, ns);
    j->unstated_ns += ns;
    if (sums->samples > 0) {
        kolo_accumulator_add(&j->report, sums, j->unstated_ns);
        kolo_accumulator_add(&j->line, sums, j->unstated_ns);
        j->unstated_ns = 0;
    }
    kolo_sums *recent = &j->state.recent[k % KOLO_LAST_STEPS];
    if (j->state.steps == k) *recent = (kolo_sums){0}; /* else another lease of the step */
    kolo_sums_add(recent, sums);
    if (k < CHECKED_STEPS) j->first_losses[k] = sums->metric[KOLO_METRIC_LOSS];
}

/* Informs the user, after step k, of the regions of rank 0 that run in lanes, once that is decided:
 * "lanes from step 13 on: 4 of 35 regions, which save 3.1 of 140 ms". */
static void notify_lanes(kolo_job *j, int64_t k) {
    if (j->rank != 0 || j->reported_lanes) return;
    const kolo_plan_lanes l = kolo_plan_lanes_of(kolo_session_plan(j->session));
    j->reported_lanes = l.undecided == 0;
    if (l.undecided > 0 || l.regions == 0) return;
    kolo_notify(&j->setup.opts, KOLO_NOTICE_INFO,
                "lanes from step %" PRId64 " on: %d of %d regions, which save %.3g of %.3g ms",
                k + 2, l.chosen, l.regions, l.saved_ms, l.ms);
}

kolo_status kolo_job_step(kolo_job *j, int64_t k, int64_t start) {
    const int64_t begun = kolo_now_ns();
    KOLO_TRY(choose_buckets(j, k));
    KOLO_TRY(end_warm_up(j, k));
    start += kolo_now_ns() - begun;
    kolo_batch batch;
    kolo_sums sums;
    KOLO_TRY(take_batch(j, k, &batch));
    const int64_t ready = kolo_now_ns();
    if (j->trace) kolo_trace_add(j->trace, "next batch", start, ready);
    KOLO_TRY(train_on(j, &batch, kolo_session_lr_at(j->session, k), &sums));
    notify_lanes(j, k);
    if (j->state.run.sums.samples == 0) j->state.first_loss = kolo_sums_loss(&sums);
    KOLO_TRY(check_loss(j, k, &sums));
    KOLO_TRY(balance(j, k));
    const int64_t ns = kolo_now_ns() - start;
    kolo_step_times_add(&j->times, ns + j->deferred_ns);
    record_times(j, ns + j->deferred_ns, ready - start);
    record_sums(j, k, &sums, ns);
    j->state.steps = k + 1;
    kolo_job_note_policy(j);
    return KOLO_OK;
}
