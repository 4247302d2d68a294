/* Runs: reports and evaluation after a step. */
#include "base/clock.h"
#include "base/integer.h"
#include "data/dataset.h"
#include "train/job/job.h"
#include "train/session/agree.h"

#include <inttypes.h>
#include <math.h>

static const int64_t report_ns = 100000000;

/* The sums of the last `n` steps, at most KOLO_LAST_STEPS and those done. */
kolo_sums kolo_job_last_steps(const kolo_job *j, int64_t n) {
    kolo_sums last = {0};
    n = kolo_min_i64(n, j->state.steps);
    for (int64_t slot = 0; slot < KOLO_LAST_STEPS; slot++) {
        int64_t age = (j->state.steps - 1 - slot) % KOLO_LAST_STEPS; /* in steps */
        if (age < 0) age += KOLO_LAST_STEPS;
        if (age < n) kolo_sums_add(&last, &j->state.recent[slot]);
    }
    return last;
}

/* The progress after step k, with the means of `sums`. */
static kolo_train_progress progress_at(const kolo_job *j, int64_t k, const kolo_sums *sums,
                                       double rate, bool epoch_end, bool evaluated) {
    const kolo_times_window window = epoch_end ? KOLO_TIMES_EPOCH : KOLO_TIMES_LINE;
    int64_t done = k + 1;
    double step_seconds = (double)j->state.run.ns / 1e9 / (double)done;
    kolo_train_progress p = {
        .epoch = k / j->setup.epoch_steps + 1,
        .step = done,
        .total_steps = j->setup.total_steps,
        .train = sums->samples > 0 ? kolo_sums_metrics(sums, kolo_session_has_tokens(j->session))
                                   : kolo_metrics_none(), /* within a round with servers */
        .samples = sums->samples,
        .samples_per_second = rate,
        .damaged = j->state.damaged,
        .test = evaluated ? j->evaluation.metrics : kolo_metrics_none(),
        .lr = kolo_session_lr_at(j->session, k),
        .seconds = (double)(kolo_now_ns() - j->started) / 1e9,
        .seconds_left = step_seconds * (double)(j->setup.total_steps - done),
        .epoch_end = epoch_end,
        .evaluated = evaluated,
        .times = kolo_rank_times_report(j->rank_times, window),
    };
    if (j->policies.text) kolo_consistency_print(j->staleness, p.consistency);
    return p;
}

static kolo_train_progress epoch_progress(const kolo_job *j, int64_t k, bool evaluated) {
    const kolo_accumulator *epoch = &j->state.epoch;
    return progress_at(j, k, &epoch->sums, kolo_accumulator_rate(epoch), true, evaluated);
}

/* Whether lines are written at all. */
static bool has_lines(const kolo_job *j) {
    const kolo_train_opts *o = &j->setup.opts;
    return o->out_dir || o->tensorboard || o->metrics_port != 0;
}

static kolo_status write_line(kolo_job *j, const kolo_train_progress *line) {
    if (j->server) kolo_metrics_server_report(j->server, line);
    const kolo_status written = j->files ? kolo_run_files_report(j->files, line) : KOLO_OK;
    const kolo_status event = j->events ? kolo_event_file_report(j->events, line) : KOLO_OK;
    const kolo_status status = event != KOLO_OK ? event : written;
    const bool known = status == KOLO_ERR_IO && j->lines_fail; /* one warning */
    j->lines_fail = status == KOLO_ERR_IO;
    if (known && j->setup.opts.save_error == KOLO_SAVE_ERROR_CONTINUE) return KOLO_OK;
    return kolo_job_decide(j, status);
}

/* Writes the lines that are due after step k to metrics.jsonl and for viewers. They depend on steps
 * only. */
static kolo_status write_lines(kolo_job *j, int64_t k, bool epoch_end, bool evaluated) {
    int64_t every = j->setup.opts.log_every;
    bool within = evaluated && !epoch_end; /* evaluated within an epoch */
    if (!has_lines(j)) return KOLO_OK;
    if ((k + 1) % every == 0 || within) {
        kolo_sums sums = kolo_job_last_steps(j, every);
        double rate = kolo_accumulator_rate(&j->line);
        kolo_train_progress line = progress_at(j, k, &sums, rate, false, within);
        j->line = (kolo_accumulator){0};
        kolo_rank_times_reset(j->rank_times, KOLO_TIMES_LINE);
        KOLO_TRY(write_line(j, &line));
    }
    if (!epoch_end) return KOLO_OK;
    kolo_train_progress line = epoch_progress(j, k, evaluated);
    return write_line(j, &line);
}

/* Informs the observer, about ten times a second. */
static void inform(kolo_job *j, int64_t k, bool epoch_end, bool evaluated) {
    int64_t now = kolo_now_ns();
    if (!epoch_end && !evaluated && now - j->reported < report_ns) return;
    kolo_train_progress p = epoch_end
                                ? epoch_progress(j, k, evaluated)
                                : progress_at(j, k, &j->report.sums,
                                              kolo_accumulator_rate(&j->report), false, evaluated);
    j->reported = now;
    j->report = (kolo_accumulator){0};
    if (!j->observer) return;
    kolo_session_set_callback(j->session, true);
    j->observer(j->observer_arg, &p);
    kolo_session_set_callback(j->session, false);
}

/* Whether an evaluation is due by the number of steps. */
static bool is_evaluation_due(const kolo_job *j, int64_t done) {
    int64_t epochs = j->setup.opts.eval_every * j->setup.epoch_steps;
    int64_t steps = j->setup.opts.eval_steps;
    return (epochs > 0 && done % epochs == 0) || (steps > 0 && done % steps == 0);
}

bool kolo_job_wants_evaluation(const kolo_job *j, int64_t done) {
    return j->setup.test && (done == j->end || is_evaluation_due(j, done));
}

/* Parameters may be finite and give no finite loss, and data may have a NaN. The run goes on. */
static void notify_nan(const kolo_job *j) {
    if (j->rank != 0 || !isnan(j->evaluation.metrics.value[KOLO_METRIC_LOSS])) return;
    kolo_notify(&j->setup.opts, KOLO_NOTICE_WARNING,
                "the test loss is NaN after step %" PRId64
                ": training diverged, or the test data have samples that are not finite",
                j->state.steps);
}

static kolo_status evaluate(kolo_job *j) {
    if (!j->comm && j->rank > 0) return KOLO_OK; /* rank 0 does it alone */
    KOLO_TRY(kolo_session_evaluate_all(j->session, j->comm, j->setup.test, j->setup.opts.batch,
                                       &j->evaluation));
    return kolo_job_compare_best(j);
}

kolo_status kolo_job_evaluate(kolo_job *j) {
    if (!j->setup.test) return KOLO_OK;
    j->evaluated = true;
    KOLO_TRY(kolo_job_consolidate(j));
    kolo_status status = evaluate(j);
    if (kolo_job_goes_on(j, status)) status = evaluate(j);
    if (status == KOLO_OK && j->setup.opts.keep_best) status = kolo_job_await_rows(j);
    KOLO_TRY(status);
    kolo_session_restore_local(j->session);
    notify_nan(j);
    return KOLO_OK;
}

/* Whether the program ends the run after step k; rank 0 asks it. Collective. */
static kolo_status ask_to_stop(kolo_job *j, int64_t k, bool epoch_end, bool evaluated,
                               bool *stops) {
    if (!j->asks) return KOLO_OK;
    if (j->rank == 0) {
        const kolo_train_progress p =
            epoch_end ? epoch_progress(j, k, evaluated)
                      : progress_at(j, k, &j->report.sums, kolo_accumulator_rate(&j->report), false,
                                    evaluated);
        kolo_session_set_callback(j->session, true);
        *stops = j->stop(j->observer_arg, &p);
        kolo_session_set_callback(j->session, false);
    }
    return j->comm ? kolo_broadcast(j->comm, stops, sizeof *stops, KOLO_DTYPE_U8, 0) : KOLO_OK;
}

/* One rank may be interrupted alone: the others do not wait for it. */
static kolo_status check_interrupted(const kolo_job *j, int64_t k) {
    if (!j->interrupted || !j->interrupted(j->observer_arg)) return KOLO_OK;
    const kolo_status status =
        KOLO_FAIL(KOLO_ERR_PEER, "interrupted by the user after step %" PRId64, k + 1);
    return kolo_job_is_asynchronous(j) ? status : kolo_end_group(j->comm, status);
}

/* Whether a line of metrics.jsonl is due after a step: the same on all ranks, though rank 0 alone
 * may have the folder. */
static bool is_line_due(const kolo_job *j, int64_t done, bool evaluated) {
    return evaluated || done % j->setup.opts.log_every == 0;
}

kolo_status kolo_job_report_end(kolo_job *j) {
    const int64_t done = j->state.steps;
    if (j->setup.test && !is_evaluation_due(j, done)) KOLO_TRY(kolo_job_evaluate(j));
    KOLO_TRY(kolo_rank_times_exchange(j->rank_times));
    KOLO_TRY(kolo_job_sum_damaged(j));
    const bool tests = j->setup.test != NULL;
    const kolo_train_progress line = epoch_progress(j, done - 1, tests);
    const kolo_status status = j->rank == 0 && has_lines(j) ? write_line(j, &line) : KOLO_OK;
    if (j->rank == 0) inform(j, done - 1, true, tests);
    return kolo_job_fail_together(j, kolo_agree(j->comm, status));
}

/* The times so far are not those of the run's result. Collective. */
static kolo_status forget_times(kolo_job *j) {
    KOLO_TRY(kolo_rank_times_exchange(j->rank_times));
    kolo_rank_times_reset(j->rank_times, KOLO_TIMES_RUN);
    kolo_step_times_clear(&j->times);
    return KOLO_OK;
}

/* After step k: evaluation and reports where they are due. */
kolo_status kolo_job_after_step(kolo_job *j, int64_t k) {
    int64_t done = k + 1;
    const bool ends = done == j->end, whole = done % j->setup.epoch_steps == 0;
    bool epoch_end = whole || ends, due = kolo_job_wants_evaluation(j, done);
    if (done == j->setup.opts.untimed_steps) KOLO_TRY(forget_times(j));
    KOLO_TRY(kolo_job_agree_on_preemption(j)); /* has no effect on what is due now */
    if (due) KOLO_TRY(kolo_job_evaluate(j));
    KOLO_TRY(check_interrupted(j, k));
    bool stops = false;
    if (epoch_end || due) KOLO_TRY(ask_to_stop(j, k, epoch_end, due, &stops));
    if (due && !ends) KOLO_TRY(kolo_job_check_patience(j, &j->stopped));
    if (stops || j->stopped) {
        j->preemption.due = false; /* the run is complete */
        j->end = done;
        epoch_end = true;
        if (!due) KOLO_TRY(kolo_job_evaluate(j));
        due = j->setup.test != NULL;
    }
    const bool line_due = epoch_end || is_line_due(j, done, due);
    if (line_due || kolo_rank_times_is_full(j->rank_times)) {
        KOLO_TRY(kolo_rank_times_exchange(j->rank_times));
        if (!kolo_job_is_asynchronous(j)) KOLO_TRY(kolo_job_sum_damaged(j));
    }
    kolo_status status = KOLO_OK;
    if (j->rank == 0) {
        status = write_lines(j, k, epoch_end, due);
        inform(j, k, epoch_end, due);
    }
    if (line_due && !kolo_job_is_asynchronous(j)) {
        status = kolo_job_fail_together(j, kolo_agree(j->comm, status));
    }
    if (whole) {
        j->state.epoch = (kolo_accumulator){0};
        kolo_rank_times_reset(j->rank_times, KOLO_TIMES_EPOCH);
    }
    return status;
}
