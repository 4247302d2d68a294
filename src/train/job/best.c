/* Runs: the best evaluation, its weights, and patience. Evaluations give the same values on all
 * ranks, so all decide alike. */
#include "base/number.h"
#include "train/job/job.h"
#include "train/session/agree.h"

#include <stdio.h>

static bool is_wanted(const kolo_job *j) {
    return j->setup.opts.keep_best || j->setup.opts.patience > 0;
}

/* The row of the metric that is compared. */
static int row_of(const kolo_job *j) {
    return j->setup.opts.keep_best ? kolo_metric_row(j->setup.opts.keep_best) : KOLO_METRIC_LOSS;
}

/* The record is of the weights in the folder: it begins anew in another one, or with another
 * metric. */
void kolo_job_begin_best(kolo_job *j) {
    kolo_run_state *s = &j->state;
    const bool same = s->best_row == row_of(j) && (j->resume.here || !j->setup.opts.keep_best);
    if (!is_wanted(j) || !same) s->best_step = s->best_row = s->stale = 0;
    if (s->best_step == 0) s->best = 0;
    j->stopped = kolo_job_lacks_patience(j) && s->steps < j->end;
    if (j->stopped) j->end = s->steps;
}

bool kolo_job_lacks_patience(const kolo_job *j) {
    const int64_t patience = j->setup.opts.patience;
    return patience > 0 && j->state.stale >= patience;
}

/* Writes the weights; "accuracy 0.9123" stands in their metadata. */
static kolo_status save(kolo_job *j, const kolo_metric *m, double value) {
    char best[64];
    kolo_snprintf(best, sizeof best, "%s %.6g", m->name, value);
    KOLO_TRY(kolo_job_check_parameters(j));
    const char *path = j->files ? kolo_run_files_best(j->files) : NULL;
    const bool sharded = kolo_store_is_sharded(kolo_session_store(j->session));
    const bool writes = path || (j->saves && sharded);
    return kolo_agree(j->comm, writes ? kolo_job_save(j, path, best, false) : KOLO_OK);
}

static kolo_status fail_save(kolo_job *j, kolo_status status) {
    if (status != KOLO_ERR_IO) return status;
    status = kolo_job_name_kept(status, "checkpoint-best.safetensors", j->state.best_step);
    return kolo_job_fail_together(j, kolo_job_decide(j, status));
}

/* A better value that could not be saved counts for patience only. */
kolo_status kolo_job_compare_best(kolo_job *j) {
    kolo_run_state *s = &j->state;
    const int row = row_of(j);
    const double value = j->evaluation.metrics.value[row];
    if (!is_wanted(j) || s->steps == j->resume.state.steps) return KOLO_OK; /* no step since then */
    const bool first = s->best_step == 0 && value == value;
    if (!first && !kolo_metric_is_better(row, value, s->best)) {
        s->stale++;
        return KOLO_OK;
    }
    s->stale = 0;
    if (j->setup.opts.keep_best) {
        const kolo_status status = save(j, &kolo_metric_table()[row], value);
        if (status != KOLO_OK) return fail_save(j, status);
    }
    s->best_step = s->steps;
    s->best_row = row;
    s->best = value;
    return KOLO_OK;
}

void kolo_job_report_best(const kolo_job *j, kolo_train_result *result) {
    const kolo_run_state *s = &j->state;
    result->stopped_early = j->stopped;
    if (s->best_step == 0) return;
    snprintf(result->best_metric, sizeof result->best_metric, "%s",
             kolo_metric_table()[s->best_row].name);
    result->best_value = s->best;
    result->best_step = s->best_step;
}
