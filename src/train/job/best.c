/* Runs: the best evaluation, its weights, and patience. Evaluations give the same values on all
 * ranks that take part, so these decide alike. Patience follows the evaluations of the run; weights
 * are compared with those in the folder, which may come from steps that a resumed run makes again.
 */
#include "base/file.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/folder.h"
#include "train/job/job.h"
#include "train/session/agree.h"
#include "train/session/tables.h"

#include <stdio.h>
#include <string.h>

static bool is_wanted(const kolo_job *j) {
    return j->setup.opts.keep_best || j->setup.opts.patience > 0;
}

/* The row of the metric that is compared. */
static int row_of(const kolo_job *j) {
    return j->setup.opts.keep_best ? kolo_metric_row(j->setup.opts.keep_best) : KOLO_METRIC_LOSS;
}

static bool is_out_of_patience(const kolo_job *j) {
    const int64_t patience = j->setup.opts.patience;
    return patience > 0 && j->state.stale >= patience;
}

/* Whether text of a checkpoint is that of an option: it is stored as UTF-8. */
static bool equal(const char *stored, const char *option) {
    kolo_text valid = {0};
    kolo_text_add_utf8(&valid, option ? option : "");
    const bool same = !valid.failed && strcmp(stored ? stored : "", valid.text) == 0;
    kolo_text_fini(&valid);
    return same;
}

/* Whether weights in the folder of a run that starts anew are of the same one, started before. */
static kolo_status check_run(const kolo_job *j, const kolo_checkpoint *c) {
    const kolo_train_opts *o = &j->setup.opts;
    if (j->resume.here) return KOLO_OK; /* its options have been compared */
    if (equal(c->info.model, o->model) && equal(c->info.model_options, o->model_options) &&
        equal(c->info.data, o->data) && c->info.seed == o->seed) {
        return KOLO_OK;
    }
    return KOLO_FAIL(
        KOLO_ERR_ARG,
        "%s is of a run with another model, data or seed: choose another folder with --out, "
        "or remove it",
        c->path);
}

/* Reads of which evaluation the weights in the folder are. */
static void read_record(kolo_job *j, const kolo_checkpoint *c) {
    const char *text = kolo_safetensors_metadata(c->file, "best");
    const size_t name = strlen(j->setup.opts.keep_best);
    char *end;
    if (!text || strncmp(text, j->setup.opts.keep_best, name) != 0 || text[name] != ' ') return;
    const double value = kolo_parse_double(text + name + 1, &end);
    if (*end) return;
    j->kept = (kolo_best){c->info.steps, value};
}

/* Rows of tables that are missing or damaged, or of another step than the weights: FORMAT. */
static kolo_status check_rows(const kolo_job *j, const kolo_checkpoint *c) {
    if (!kolo_session_has_tables(j->session)) return KOLO_OK;
    char *path = kolo_format("%s/tables-best.safetensors", j->setup.opts.out_dir);
    if (!path) return KOLO_NOMEM(64);
    kolo_status status =
        kolo_file_exists(path)
            ? kolo_tables_check(path, c->info.steps)
            : KOLO_FAIL(KOLO_ERR_FORMAT, "%s is missing: %s has no rows of tables", path, c->path);
    kolo_free(path);
    return status;
}

/* Weights that are damaged, or whose rows are, are replaced. */
static kolo_status read_weights(kolo_job *j) {
    const kolo_train_opts *o = &j->setup.opts;
    const char *path = kolo_run_files_best(j->files);
    kolo_checkpoint c;
    if (!kolo_file_exists(path)) return KOLO_OK;
    kolo_status status = kolo_checkpoint_open(path, &c);
    const bool opened = status == KOLO_OK;
    if (opened) status = check_run(j, &c);
    if (status == KOLO_OK) status = check_rows(j, &c);
    if (status == KOLO_OK) read_record(j, &c);
    if (opened) kolo_checkpoint_close(&c);
    if (status != KOLO_ERR_FORMAT) return status;
    if (o->notice) o->notice(o->notice_arg, kolo_last_error(), KOLO_NOTICE_WARNING);
    return KOLO_OK;
}

kolo_status kolo_job_begin_best(kolo_job *j) {
    kolo_run_state *s = &j->state;
    if (!is_wanted(j) || s->best_row != row_of(j)) s->best_step = s->best_row = s->stale = 0;
    if (s->best_step == 0) s->best = 0;
    j->stopped = is_out_of_patience(j) && s->steps < j->end;
    if (j->stopped) j->end = s->steps;
    if (!j->setup.opts.keep_best) return KOLO_OK;
    KOLO_TRY(kolo_agree(j->comm, j->files ? read_weights(j) : KOLO_OK));
    return j->comm ? kolo_broadcast(j->comm, &j->kept, sizeof j->kept, KOLO_DTYPE_U8, 0) : KOLO_OK;
}

static bool is_better(int row, double value, kolo_best than) {
    return than.step == 0 ? value == value : kolo_metric_is_better(row, value, than.value);
}

/* Writes the weights, after the rows of tables, whose step shows if they are of others; "accuracy
 * 0.9123" stands in the metadata of the weights. */
static kolo_status save(kolo_job *j, double value) {
    char best[64], digits[32];
    kolo_double_text(value, digits);
    snprintf(best, sizeof best, "%s %s", j->setup.opts.keep_best, digits);
    KOLO_TRY(kolo_job_check_parameters(j));
    const char *path = j->files ? kolo_run_files_best(j->files) : NULL;
    const bool sharded = kolo_store_is_sharded(kolo_session_store(j->session));
    const bool writes = path || (j->saves && sharded);
    kolo_status status = path ? kolo_job_save_rows(j, "best") : KOLO_OK;
    if (status == KOLO_OK && writes) status = kolo_job_save(j, path, best, false);
    return kolo_agree(j->comm, status);
}

static kolo_status fail_save(kolo_job *j, kolo_status status) {
    if (status != KOLO_ERR_IO) return status;
    status = kolo_job_name_kept(status, KOLO_CHECKPOINT_BEST, j->kept.step);
    return kolo_job_fail_together(j, kolo_job_decide(j, status));
}

/* Keeps the weights if they are better than those in the folder. */
static kolo_status keep_weights(kolo_job *j, double value) {
    const kolo_best now = {j->state.steps, value};
    if (!is_better(row_of(j), value, j->kept)) return KOLO_OK;
    /* The rows of tables are saved once at a time. */
    if (kolo_session_has_tables(j->session)) KOLO_TRY(kolo_job_complete_save(j, true));
    const kolo_status status = save(j, value);
    if (status != KOLO_OK) return fail_save(j, status);
    j->kept = now;
    return KOLO_OK;
}

/* Compares an evaluation with the best one of the run; one that is repeated, as a worker was lost
 * while the weights were saved, only once. */
static void count(kolo_job *j, double value) {
    kolo_run_state *s = &j->state;
    const int row = row_of(j);
    if (j->compared == s->steps) return;
    j->compared = s->steps;
    s->stale++;
    if (is_better(row, value, (kolo_best){s->best_step, s->best})) {
        s->best_step = s->steps;
        s->best_row = row;
        s->best = value;
        s->stale = 0;
    }
}

kolo_status kolo_job_compare_best(kolo_job *j) {
    const double value = j->evaluation.metrics.value[row_of(j)];
    if (!is_wanted(j) || j->state.steps == j->resume.state.steps) return KOLO_OK; /* the same */
    count(j, value);
    return j->setup.opts.keep_best ? keep_weights(j, value) : KOLO_OK;
}

/* Where a run goes on without workers that die, rank 0 evaluates alone from then on, and processes
 * that have joined never evaluate: what it decides goes through the owners. */
kolo_status kolo_job_check_patience(const kolo_job *j, bool *ends) {
    const bool decides = j->rank == 0 || !kolo_job_outlives_workers(j);
    *ends = decides && is_out_of_patience(j);
    if (j->setup.opts.patience == 0 || !kolo_job_outlives_workers(j)) return KOLO_OK;
    return kolo_session_barrier(j->session, NULL, ends);
}

void kolo_job_report_best(const kolo_job *j, kolo_train_result *result) {
    const kolo_run_state *s = &j->state;
    const kolo_best best = j->setup.opts.keep_best ? j->kept : (kolo_best){s->best_step, s->best};
    result->stopped_early = j->stopped;
    if (best.step == 0) return;
    snprintf(result->best_metric, sizeof result->best_metric, "%s",
             kolo_metric_table()[row_of(j)].name);
    result->best_value = best.value;
    result->best_step = best.step;
}
