/* kolo_train and kolo_fit: a run from its options to the final checkpoint. kolo_train opens the
 * data and the model of its options and creates the session; kolo_fit has those of a program. The
 * run is the same.
 *
 * All ranks call the same collectives in the same order: agree on the options; find the checkpoint
 * to resume from; agree on the files; create the session; agree on the loader. Each step runs the
 * collectives of the plan, those of evaluation at the end of an epoch, and agreement on a
 * checkpoint if one is due. At the end: comparison of parameters, result, agreement on the final
 * checkpoint. A benchmark then repeats its first steps. */
#include "base/clock.h"
#include "base/file.h"
#include "base/integer.h"
#include "base/number.h"
#include "base/process.h"
#include "data/prefetch.h"
#include "kernel/select/families.h"
#include "kolo/session.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/finite.h"
#include "train/checkpoint/folder.h"
#include "train/checkpoint/resume.h"
#include "train/checkpoint/weights.h"
#include "train/evaluate.h"
#include "train/run_files.h"
#include "train/session/agree.h"
#include "train/session/agree_kernels.h"
#include "train/session/balance.h"
#include "train/session/learning_rate.h"
#include "train/session/memory.h"
#include "train/session/metrics.h"
#include "train/session/replicas.h"
#include "train/session/resident_batch.h"
#include "train/session/setup.h"
#include "train/session/tuning.h"
#include "train/step_times.h"
#include "train/trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const int64_t report_ns = 100000000;

enum { LOADER_SLOTS = 4 };
enum { CHECKED_STEPS = 2 }; /* repeated after a benchmark: a loss before and one after an update */

typedef struct job {
    kolo_comm *comm;
    int rank, size;
    kolo_train_observer observer;
    void *observer_arg;
    kolo_setup setup;
    kolo_run_files *files; /* rank 0, with out_dir */
    kolo_session *session;
    kolo_session *own;   /* of kolo_train: the session; else NULL */
    kolo_fit_stop *stop; /* rank 0; may be NULL */
    bool asks;           /* rank 0 has one */
    int64_t end;         /* the run ends after this step, counted from 1 */
    kolo_trace *trace;   /* NULL: not recorded */

    kolo_balance *balance; /* worker weights are measured; else NULL */
    int64_t dealt_from;    /* the step from which its counts hold; 0: already */

    kolo_loader *loader;
    kolo_loader *audit;           /* of the shards of the next rank in audited steps; or NULL */
    kolo_resident_batch resident; /* in_memory */
    double first_losses[CHECKED_STEPS]; /* in_memory */

    int64_t started, reported; /* times of the first step and the last report, ns */
    kolo_resume resume;
    kolo_run_state state;    /* of the whole run, resumed part included */
    kolo_accumulator report; /* since the last report to the observer */
    kolo_accumulator line;   /* since the last line of metrics.jsonl */
    kolo_step_times times;
    kolo_evaluation evaluation;
    bool evaluated; /* `evaluation` is valid */
} job;

/* ---- beginning ---- */

/* Lets the loader read this rank's shards. */
static void add_shards(const job *j, kolo_loader_opts *opts) {
    opts->shards = (int)j->setup.opts.reproducible;
    kolo_session_shards(j->session, j->rank, &opts->first_shard, &opts->end_shard);
}

static kolo_loader_opts loader_opts(const job *j) {
    return (kolo_loader_opts){
        .dataset = j->setup.train,
        .global_batch = j->setup.global_batch,
        .seed = j->setup.opts.seed,
        .rank = j->rank,
        .world = j->size,
        .first = j->state.steps,
        .end = j->setup.total_steps,
        .augment = j->setup.augment,
        .slots = LOADER_SLOTS,
    };
}

/* Every audit steps, from step `from` on, this rank also reads the shards of the next one. */
static kolo_status open_audit(job *j, int64_t from) {
    const int64_t every = j->setup.opts.audit;
    kolo_loader_opts opts = loader_opts(j);
    if (every == 0 || j->size == 1) return KOLO_OK;
    opts.first = (from / every + 1) * every - 1;
    if (opts.first >= opts.end) return KOLO_OK;
    opts.every = every;
    opts.slots = 2;
    opts.shards = (int)j->setup.opts.reproducible;
    kolo_session_shards(j->session, (j->rank + 1) % j->size, &opts.first_shard, &opts.end_shard);
    return kolo_loader_create(&opts, &j->audit);
}

static kolo_status open_batches(job *j) {
    KOLO_TRY(kolo_step_times_init(&j->times, j->end));
    if (j->setup.opts.in_memory) return kolo_resident_batch_load(&j->setup, j->rank, &j->resident);
    kolo_loader_opts opts = loader_opts(j);
    add_shards(j, &opts);
    KOLO_TRY(open_audit(j, j->state.steps));
    return kolo_loader_create(&opts, &j->loader);
}

static kolo_status open_balance(job *j) {
    if (!j->setup.measured) return KOLO_OK;
    return kolo_balance_create(j->comm, (int)j->setup.opts.reproducible, j->setup.counts,
                               LOADER_SLOTS, &j->balance);
}

static kolo_status open_files(job *j) {
    const kolo_train_opts *o = &j->setup.opts;
    if (o->trace && j->rank == 0) { /* written at the end: detect an unwritable path now */
        kolo_file_writer *writer;
        KOLO_TRY(kolo_file_create(o->trace, &writer));
        kolo_file_abandon(writer);
    }
    if (!o->out_dir || j->rank != 0) return KOLO_OK;
    int64_t step = j->resume.here ? j->state.steps : 0;
    bool named = j->resume.here && !kolo_folder_exists(o->resume); /* maybe not the latest */
    if (named) KOLO_TRY(kolo_checkpoint_folder_check_latest(o->out_dir, step));
    return kolo_run_files_open(o->out_dir, step, &j->files);
}

/* Replaces config.yaml and the metrics of an earlier run: after everything that can fail. */
static kolo_status begin_files(const job *j) {
    int64_t step = j->resume.here ? j->state.steps : 0;
    return j->files ? kolo_run_files_begin(j->files, j->setup.opts.resolved_config, step) : KOLO_OK;
}

static kolo_status compare_options(const job *j) {
    kolo_text text = {0};
    kolo_setup_describe(&j->setup, &text);
    kolo_status status = kolo_agree(j->comm, text.failed ? KOLO_NOMEM(text.length) : KOLO_OK);
    if (status == KOLO_OK) status = kolo_agree_text(j->comm, text.text);
    kolo_text_fini(&text);
    return status;
}

/* Informs the user that bf16 saves memory only on this processor. */
static void notify_precision(const job *j) {
    const kolo_train_opts *o = &j->setup.opts;
    bool half = o->precision == KOLO_PRECISION_BF16 && !o->reference_kernels;
    if (j->rank != 0 || !o->notice || !half || kolo_kernel_has_bf16()) return;
    o->notice(o->notice_arg,
              "precision bf16 saves memory only: this processor has no bf16 arithmetic",
              KOLO_NOTICE_INFO);
}

/* Informs the user that a step has fewer samples than asked for. */
static void notify_batch(const job *j) {
    const kolo_train_opts *o = &j->setup.opts;
    int64_t count = kolo_dataset_describe(j->setup.train)->count;
    kolo_text line = {0};
    if (j->rank != 0 || !o->notice || j->setup.global_batch <= count) return;
    kolo_text_add(&line,
                  "a step of %" PRId64 " samples exceeds the %" PRId64
                  " of the training data: each step uses all of them",
                  j->setup.global_batch, count);
    if (!line.failed) o->notice(o->notice_arg, line.text, KOLO_NOTICE_INFO);
    kolo_text_fini(&line);
}

/* Rank 0 reads the initial weights and broadcasts them; each rank reads its ranges of what is
 * sharded. */
static kolo_status load_weights(const job *j) {
    const kolo_train_opts *o = &j->setup.opts;
    kolo_store *store = kolo_session_store(j->session);
    if (!o->init || j->resume.here) return KOLO_OK;
    bool reads = j->rank == 0 || (o->zero > 2 && kolo_store_is_sharded(store));
    kolo_status status = reads ? kolo_weights_load(o->init, o->model, store, NULL) : KOLO_OK;
    KOLO_TRY(kolo_agree(j->comm, status));
    return j->comm ? kolo_store_broadcast(store, j->comm) : KOLO_OK;
}

/* What is open before a session exists: the checkpoint to resume from, and the files. */
static kolo_status open_run(job *j) {
    KOLO_TRY(compare_options(j));
    KOLO_TRY(kolo_resume_open(&j->setup, j->comm, &j->resume));
    j->state = j->resume.state;
    KOLO_TRY(kolo_agree(j->comm, open_files(j)));
    notify_precision(j);
    notify_batch(j);
    return KOLO_OK;
}

static kolo_status create_session(job *j) {
    KOLO_TRY(kolo_tuning_begin(&j->setup, j->comm));
    KOLO_TRY(kolo_session_create_for(&j->setup.session, j->comm, &j->own));
    j->session = j->own;
    KOLO_TRY(kolo_agree(j->comm, kolo_session_check_memory(j->session, j->comm)));
    if (j->setup.opts.reproducible > 0)
        KOLO_TRY(kolo_agree_kernels(j->comm, kolo_session_plan(j->session)));
    kolo_status recorded = KOLO_OK;
    if (j->files) recorded = kolo_tuning_record(&j->setup, j->setup.opts.out_dir);
    KOLO_TRY(kolo_agree(j->comm, recorded));
    KOLO_TRY(kolo_session_init(j->session, j->setup.opts.seed));
    kolo_session_set_schedule(j->session, kolo_lr_make(&j->setup.opts, j->setup.global_batch,
                                                       j->setup.epoch_steps, j->setup.total_steps));
    return load_weights(j);
}

static kolo_status start_run(job *j) {
    KOLO_TRY(kolo_resume_load(&j->resume, j->session, j->comm));
    j->state.steps = kolo_session_steps(j->session);
    j->end = j->setup.total_steps;
    if (j->setup.opts.trace) {
        kolo_plan *plan = kolo_session_plan(j->session);
        KOLO_TRY(kolo_agree(j->comm, kolo_trace_create(plan, &j->trace)));
    }
    KOLO_TRY(kolo_agree(j->comm, begin_files(j)));
    KOLO_TRY(kolo_agree(j->comm, open_batches(j)));
    return kolo_agree(j->comm, open_balance(j));
}

static void end(job *j) {
    kolo_loader_destroy(j->loader);
    kolo_loader_destroy(j->audit);
    kolo_balance_destroy(j->balance);
    kolo_trace_destroy(j->trace);
    kolo_session_destroy(j->own);
    kolo_run_files_close(j->files);
    kolo_resume_close(&j->resume);
    kolo_setup_close(&j->setup);
    kolo_step_times_fini(&j->times);
    kolo_resident_batch_fini(&j->resident);
}

/* ---- one step ---- */

/* The largest plausible loss: far above the first one and that of uniform guesses, ln(classes). */
static double most_loss(const job *j) {
    return 1e4 * fmax(1, fmax(j->state.first_loss, log((double)j->setup.session.classes)));
}

/* `what` states what shows that training diverged, after step k. */
static kolo_status fail_diverged(const job *j, const char *what, int64_t k) {
    return KOLO_FAIL(KOLO_ERR_DIVERGED,
                     "%s at step %" PRId64 " (epoch %" PRId64
                     "): training diverged; lower the learning rate, which is %g here, or warm it "
                     "up over more epochs%s",
                     what, k + 1, k / j->setup.epoch_steps + 1, kolo_session_lr_at(j->session, k),
                     j->setup.opts.checkpoint_steps + j->setup.opts.checkpoint_epochs > 0
                         ? "; earlier checkpoints are kept"
                         : "");
}

static kolo_status check_loss(const job *j, int64_t k, const kolo_sums *sums) {
    double loss = kolo_sums_loss(sums);
    char what[64];
    if (isfinite(loss) && loss <= most_loss(j)) return KOLO_OK;
    /* The sum is equal on all ranks, so all ranks fail here. */
    kolo_snprintf(what, sizeof what, "the loss is %.4g", isnan(loss) ? NAN : loss); /* never -nan */
    return kolo_agree(j->comm, j->rank == 0 ? fail_diverged(j, what, k) : KOLO_OK);
}

/* Parameters, statistics and optimizer state must be finite wherever they are kept. They are equal
 * on all ranks; rank 0 reads them. */
static kolo_status check_parameters(const job *j) {
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

/* ---- unequal ranks ---- */

/* Deals the shards of step k as decided some steps before. */
static kolo_status deal(job *j, int64_t k) {
    if (j->dealt_from == 0 || k < j->dealt_from) return KOLO_OK;
    j->dealt_from = 0;
    KOLO_TRY(kolo_session_deal(j->session, kolo_balance_counts(j->balance)));
    kolo_loader_destroy(j->audit);
    j->audit = NULL;
    return kolo_agree(j->comm, open_audit(j, k));
}

/* Informs the user of a new deal: "shards of ranks from step 9 on: 6 2". */
static void notify_deal(const job *j, const int *counts) {
    const kolo_train_opts *o = &j->setup.opts;
    if (j->rank != 0 || !o->notice) return;
    kolo_text text = {0};
    kolo_text_add(&text, "shards of the workers from step %" PRId64 " on:", j->dealt_from + 1);
    for (int r = 0; r < j->size; r++) kolo_text_add(&text, " %d", counts[r]);
    if (!text.failed) o->notice(o->notice_arg, text.text, KOLO_NOTICE_INFO);
    kolo_text_fini(&text);
}

/* After step k: measures, and announces another deal to the loader. */
static kolo_status balance(job *j, int64_t k) {
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
static kolo_status check_replicas(const job *j, int64_t k) {
    int64_t every = j->setup.opts.check_replicas;
    char when[48];
    if (every == 0 || (k + 1) % every != 0) return KOLO_OK;
    snprintf(when, sizeof when, "after step %" PRId64, k + 1);
    return kolo_compare_replicas(j->comm, kolo_session_store(j->session), when);
}

/* If step k is audited, reads the batch that this rank audits. */
static kolo_status prepare_audit(job *j, int64_t k) {
    kolo_batch other;
    if (!j->audit || (k + 1) % j->setup.opts.audit != 0) return KOLO_OK;
    KOLO_TRY(kolo_loader_next(j->audit, &other));
    kolo_session_audit(j->session, &other);
    return KOLO_OK;
}

static kolo_status step(job *j, int64_t k) {
    int64_t start = kolo_now_ns();
    double lr = kolo_session_lr_at(j->session, k);
    kolo_batch batch = j->resident.batch;
    kolo_sums sums;
    KOLO_TRY(deal(j, k));
    /* The next batch. */
    if (j->loader) KOLO_TRY(kolo_loader_next(j->loader, &batch));
    KOLO_TRY(prepare_audit(j, k));
    if (j->trace) kolo_trace_add(j->trace, "next batch", start, kolo_now_ns());
    /* Forward, backward, allreduce of the gradients, update. */
    KOLO_TRY(kolo_session_step_batch(j->session, &batch, lr, &sums));
    if (j->state.run.sums.samples == 0) j->state.first_loss = kolo_sums_loss(&sums);
    KOLO_TRY(check_loss(j, k, &sums));
    KOLO_TRY(check_replicas(j, k));
    KOLO_TRY(balance(j, k));
    /* Record the time and the metrics. */
    int64_t ns = kolo_now_ns() - start;
    kolo_step_times_add(&j->times, ns);
    kolo_accumulator_add(&j->state.run, &sums, ns);
    kolo_accumulator_add(&j->state.epoch, &sums, ns);
    kolo_accumulator_add(&j->report, &sums, ns);
    kolo_accumulator_add(&j->line, &sums, ns);
    j->state.recent[k % KOLO_LAST_STEPS] = sums;
    j->state.steps = k + 1;
    if (k < CHECKED_STEPS) j->first_losses[k] = sums.metric[KOLO_METRIC_LOSS];
    return KOLO_OK;
}

/* ---- reports ---- */

/* The sums of the last `n` steps, at most KOLO_LAST_STEPS and those done. */
static kolo_sums last_steps(const job *j, int64_t n) {
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
static kolo_train_progress progress_at(const job *j, int64_t k, const kolo_sums *sums, double rate,
                                       bool epoch_end, bool evaluated) {
    int64_t done = k + 1;
    double step_seconds = (double)j->state.run.ns / 1e9 / (double)done;
    return (kolo_train_progress){
        .epoch = k / j->setup.epoch_steps + 1,
        .step = done,
        .total_steps = j->setup.total_steps,
        .train = kolo_sums_metrics(sums, kolo_session_has_tokens(j->session)),
        .samples = sums->samples,
        .samples_per_second = rate,
        .test = evaluated ? j->evaluation.metrics : kolo_metrics_none(),
        .lr = kolo_session_lr_at(j->session, k),
        .seconds = (double)(kolo_now_ns() - j->started) / 1e9,
        .seconds_left = step_seconds * (double)(j->setup.total_steps - done),
        .epoch_end = epoch_end,
        .evaluated = evaluated,
    };
}

static kolo_train_progress epoch_progress(const job *j, int64_t k, bool evaluated) {
    const kolo_accumulator *epoch = &j->state.epoch;
    return progress_at(j, k, &epoch->sums, kolo_accumulator_rate(epoch), true, evaluated);
}

/* Writes the lines of metrics.jsonl that are due after step k. They depend on steps only. */
static kolo_status write_lines(job *j, int64_t k, bool epoch_end, bool evaluated) {
    int64_t every = j->setup.opts.log_every;
    bool within = evaluated && !epoch_end; /* evaluated within an epoch */
    if (!j->files) return KOLO_OK;
    if ((k + 1) % every == 0 || within) {
        kolo_sums sums = last_steps(j, every);
        double rate = kolo_accumulator_rate(&j->line);
        kolo_train_progress line = progress_at(j, k, &sums, rate, false, within);
        j->line = (kolo_accumulator){0};
        KOLO_TRY(kolo_run_files_report(j->files, &line));
    }
    if (!epoch_end) return KOLO_OK;
    kolo_train_progress line = epoch_progress(j, k, evaluated);
    return kolo_run_files_report(j->files, &line);
}

/* Informs the observer, about ten times a second. */
static void inform(job *j, int64_t k, bool epoch_end, bool evaluated) {
    int64_t now = kolo_now_ns();
    if (!epoch_end && !evaluated && now - j->reported < report_ns) return;
    kolo_train_progress p = epoch_end
                                ? epoch_progress(j, k, evaluated)
                                : progress_at(j, k, &j->report.sums,
                                              kolo_accumulator_rate(&j->report), false, evaluated);
    j->reported = now;
    j->report = (kolo_accumulator){0};
    if (j->observer) j->observer(j->observer_arg, &p);
}

static bool wants_evaluation(const job *j, int64_t done) {
    if (!j->setup.test) return false;
    if (done == j->end) return true;
    int64_t epochs = j->setup.opts.eval_every * j->setup.epoch_steps;
    int64_t steps = j->setup.opts.eval_steps;
    return (epochs > 0 && done % epochs == 0) || (steps > 0 && done % steps == 0);
}

static kolo_status evaluate(job *j) {
    if (!j->setup.test) return KOLO_OK;
    j->evaluated = true;
    return kolo_session_evaluate_all(j->session, j->comm, j->setup.test, j->setup.opts.batch,
                                     &j->evaluation);
}

/* Whether the program ends the run after step k; rank 0 asks it. Collective. */
static kolo_status ask_to_stop(job *j, int64_t k, bool epoch_end, bool evaluated, bool *stops) {
    if (!j->asks) return KOLO_OK;
    if (j->rank == 0) {
        const kolo_train_progress p =
            epoch_end ? epoch_progress(j, k, evaluated)
                      : progress_at(j, k, &j->report.sums, kolo_accumulator_rate(&j->report), false,
                                    evaluated);
        *stops = j->stop(j->observer_arg, &p);
    }
    return j->comm ? kolo_broadcast(j->comm, stops, sizeof *stops, KOLO_DTYPE_U8, 0) : KOLO_OK;
}

/* After step k: evaluation and reports where they are due. */
static kolo_status after_step(job *j, int64_t k) {
    int64_t done = k + 1;
    bool whole = done % j->setup.epoch_steps == 0;
    bool epoch_end = whole || done == j->end, due = wants_evaluation(j, done);
    if (due) KOLO_TRY(evaluate(j));
    bool stops = false;
    if (epoch_end || due) KOLO_TRY(ask_to_stop(j, k, epoch_end, due, &stops));
    if (stops) {
        j->end = done;
        epoch_end = true;
        if (!due) KOLO_TRY(evaluate(j));
        due = j->setup.test != NULL;
    }
    kolo_status status = KOLO_OK;
    if (j->rank == 0) {
        status = write_lines(j, k, epoch_end, due);
        inform(j, k, epoch_end, due);
    }
    if (whole) j->state.epoch = (kolo_accumulator){0};
    return status;
}

/* ---- checkpoints ---- */

/* Saves the store to `path`, on rank 0. The other ranks, which give no path, take part in reading
 * what is sharded. */
static kolo_status save(const job *j, const char *path, bool training) {
    kolo_text options = {0}, progress = {0};
    kolo_checkpoint_info info = {
        .model = j->setup.opts.model,
        .model_options = j->setup.opts.model_options,
        .sample = j->setup.session.sample,
        .classes = j->setup.session.classes,
        .data = j->setup.opts.data,
        .epochs = j->state.steps / j->setup.epoch_steps,
        .steps = j->state.steps,
        .seed = j->setup.opts.seed,
    };
    if (training) {
        kolo_setup_describe_learning(&j->setup, &options);
        kolo_run_state_write(&j->state, &progress);
        info.options = options.text;
        info.progress = progress.text;
    }
    kolo_status status = !options.failed && !progress.failed
                             ? kolo_checkpoint_save(path, kolo_session_store(j->session), &info)
                             : KOLO_NOMEM(options.length + progress.length);
    kolo_text_fini(&options);
    kolo_text_fini(&progress);
    return status;
}

static bool wants_checkpoint(const job *j) {
    const kolo_train_opts *o = &j->setup.opts;
    int64_t done = j->state.steps;
    int64_t every = o->checkpoint_steps + o->checkpoint_epochs * j->setup.epoch_steps;
    return every > 0 && (done % every == 0 || done == j->end);
}

/* Writes a resumable checkpoint if one is due, on rank 0. */
static kolo_status save_resumable(const job *j) {
    const kolo_train_opts *o = &j->setup.opts;
    if (!wants_checkpoint(j)) return KOLO_OK;
    KOLO_TRY(check_parameters(j));
    kolo_status status = KOLO_OK;
    if (j->rank == 0) {
        char *path = kolo_checkpoint_folder_path(o->out_dir, j->state.steps);
        status = path ? save(j, path, true) : KOLO_NOMEM(strlen(o->out_dir));
        kolo_free(path);
        if (status == KOLO_OK)
            status = kolo_checkpoint_folder_commit(o->out_dir, j->state.steps, o->keep);
    } else if (kolo_store_is_sharded(kolo_session_store(j->session))) {
        status = save(j, NULL, true);
    }
    return kolo_agree(j->comm, status);
}

/* ---- ending ---- */

/* Samples of the largest micro-batch: a step has no more than the data. */
static int64_t largest_batch(const job *j) {
    int64_t samples =
        kolo_min_i64(j->setup.global_batch, kolo_dataset_describe(j->setup.train)->count);
    return kolo_min_i64(j->setup.opts.batch, (samples - 1) / j->size + 1);
}

static kolo_status finish(job *j, kolo_train_result *result) {
    uint64_t hash;
    KOLO_TRY(kolo_store_hash_shards(kolo_session_store(j->session), &hash));
    KOLO_TRY(kolo_compare_replicas(j->comm, kolo_session_store(j->session), "at the end"));
    KOLO_TRY(check_parameters(j));
    double times[3] = {(double)j->state.run.ns / 1e9, kolo_accumulator_rate(&j->state.run),
                       kolo_step_times_median_ms(&j->times)};
    if (j->comm) KOLO_TRY(kolo_broadcast(j->comm, times, 3, KOLO_DTYPE_F64, 0));
    const kolo_sums last = last_steps(j, KOLO_LAST_STEPS);
    const char *final = j->files ? kolo_run_files_checkpoint(j->files) : NULL;
    bool takes_part =
        j->setup.opts.out_dir && kolo_store_is_sharded(kolo_session_store(j->session));
    kolo_status status = final || takes_part ? save(j, final, false) : KOLO_OK;
    if (status == KOLO_OK && j->files) status = kolo_run_files_draw(j->files);
    KOLO_TRY(kolo_agree(j->comm, status));
    if (j->trace) KOLO_TRY(kolo_trace_write(j->trace, j->comm, j->setup.opts.trace));
    *result = (kolo_train_result){
        .workers = j->size,
        .threads = j->setup.opts.threads,
        .batch = largest_batch(j),
        .parameters = kolo_session_parameters(j->session),
        .steps = j->end,
        .epochs = j->setup.opts.in_memory ? 0 : j->end / j->setup.epoch_steps,
        .samples = j->state.run.sums.samples,
        .first_loss = j->state.first_loss,
        .final = kolo_sums_metrics(&last, kolo_session_has_tokens(j->session)),
        .evaluated = j->evaluated,
        .test = j->evaluated ? j->evaluation.metrics : kolo_metrics_none(),
        .train_seconds = times[0],
        .samples_per_second = times[1],
        .step_ms_median = times[2],
        .peak_rss_bytes = kolo_peak_rss_bytes(),
        .parameter_hash = hash,
    };
    const char *options = j->setup.opts.model_options;
    snprintf(result->model, sizeof result->model, "%s%s%s", j->setup.opts.model,
             options && *options ? ":" : "", options ? options : "");
    return KOLO_OK;
}

/* ---- losses of a benchmark ---- */

/* A step on the resident batch, read through a loader as in training. */
static kolo_status step_by_loader(job *j, double lr, kolo_sums *sums) {
    kolo_loader_opts opts = {
        .dataset = j->setup.train,
        .global_batch = j->setup.global_batch,
        .no_shuffle = true,
        .rank = j->rank,
        .world = j->size,
        .end = 1,
    };
    kolo_loader *loader = NULL;
    kolo_batch batch;
    add_shards(j, &opts);
    kolo_status status = kolo_loader_create(&opts, &loader);
    if (status == KOLO_OK) status = kolo_loader_next(loader, &batch);
    status = kolo_agree(j->comm, status);
    if (status == KOLO_OK) status = kolo_session_step_batch(j->session, &batch, lr, sums);
    kolo_loader_destroy(loader);
    return status;
}

/* Repeats the first steps from the same parameters: the losses must be bitwise equal. The sums are
 * equal on all ranks, so all ranks fail together. */
static kolo_status check_losses(job *j, kolo_train_result *result) {
    const kolo_train_opts *o = &j->setup.opts;
    KOLO_TRY(kolo_session_init(j->session, o->seed));
    KOLO_TRY(load_weights(j));
    int64_t steps = kolo_min_i64(CHECKED_STEPS, j->setup.total_steps);
    for (int64_t k = 0; k < steps; k++) {
        kolo_sums sums;
        KOLO_TRY(step_by_loader(j, kolo_session_lr_at(j->session, k), &sums));
        double loss = sums.metric[KOLO_METRIC_LOSS];
        if (loss == j->first_losses[k]) continue;
        return KOLO_FAIL(KOLO_ERR_DIVERGED,
                         "the sum of losses of step %" PRId64
                         " was %.17g in the benchmark and is %.17g in training: the benchmark does "
                         "not measure training",
                         k + 1, j->first_losses[k], loss);
    }
    result->losses_checked = steps;
    return KOLO_OK;
}

/* ---- the job ---- */

/* The steps, from a session that is ready. */
static kolo_status run(job *j, kolo_train_result *result) {
    KOLO_TRY(start_run(j));
    j->started = j->reported = kolo_now_ns();
    if (j->state.steps >= j->end) KOLO_TRY(evaluate(j)); /* nothing to train */
    for (int64_t k = j->state.steps; k < j->end; k++) {
        KOLO_TRY(step(j, k));
        KOLO_TRY(after_step(j, k));
        KOLO_TRY(save_resumable(j));
    }
    return finish(j, result);
}

static kolo_status train(job *j, const kolo_train_opts *opts, kolo_train_result *result) {
    KOLO_TRY(kolo_agree(j->comm, kolo_setup_open(opts, j->size, &j->setup)));
    KOLO_TRY(open_run(j));
    KOLO_TRY(create_session(j));
    KOLO_TRY(run(j, result));
    return j->setup.opts.in_memory ? check_losses(j, result) : KOLO_OK;
}

kolo_status kolo_train(kolo_comm *comm, const kolo_train_opts *opts, kolo_train_observer observer,
                       void *arg, kolo_train_result *result) {
    job j = {
        .comm = comm,
        .rank = comm ? kolo_comm_rank(comm) : 0,
        .size = comm ? kolo_comm_size(comm) : 1,
        .observer = observer,
        .observer_arg = arg,
    };
    kolo_status status = train(&j, opts, result);
    end(&j);
    return status;
}

/* ---- runs of a program ---- */

static kolo_train_opts options_of(const kolo_session *session, const kolo_fit_opts *fit) {
    kolo_train_opts o = *kolo_session_options(session);
    o.model = "";
    o.epochs = fit->epochs;
    o.steps = fit->steps;
    o.augment = fit->augment;
    o.worker_weights = fit->worker_weights;
    o.audit = fit->audit;
    o.check_replicas = fit->check_replicas;
    o.out_dir = fit->out_dir;
    o.trace = fit->trace;
    o.checkpoint_steps = fit->checkpoint_steps;
    o.checkpoint_epochs = fit->checkpoint_epochs;
    o.keep = fit->keep;
    o.resume = fit->resume;
    o.resume_if_any = fit->resume_if_any;
    o.eval_every = fit->eval_every;
    o.eval_steps = fit->eval_steps;
    o.log_every = fit->log_every;
    o.notice = fit->notice;
    o.notice_arg = fit->notice_arg;
    return o;
}

static kolo_status open_fit(job *j, const kolo_dataset *train, const kolo_dataset *test,
                            const kolo_fit_opts *fit) {
    const kolo_train_opts opts = options_of(j->session, fit);
    if (!kolo_session_trains(j->session)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a session that evaluates only cannot be fitted");
    }
    if (!train) return KOLO_FAIL(KOLO_ERR_ARG, "no data set to train on: create or open one");
    KOLO_TRY(kolo_session_check_dataset(j->session, train));
    if (test) KOLO_TRY(kolo_session_check_dataset(j->session, test));
    return kolo_setup_open_fit(&opts, j->session, train, test, j->size, &j->setup);
}

static kolo_status fit_session(job *j, const kolo_dataset *train, const kolo_dataset *test,
                               const kolo_fit_opts *fit, kolo_train_result *result) {
    KOLO_TRY(kolo_agree(j->comm, open_fit(j, train, test, fit)));
    KOLO_TRY(open_run(j));
    if (j->setup.counts) KOLO_TRY(kolo_session_deal(j->session, j->setup.counts));
    j->asks = j->stop != NULL;
    if (j->comm) KOLO_TRY(kolo_broadcast(j->comm, &j->asks, sizeof j->asks, KOLO_DTYPE_U8, 0));
    return run(j, result);
}

kolo_status kolo_fit(kolo_session *session, const kolo_dataset *train, const kolo_dataset *test,
                     const kolo_fit_opts *opts, kolo_train_result *result) {
    const kolo_fit_opts o = opts ? *opts : (kolo_fit_opts){0};
    kolo_train_result unused;
    if (!session) return KOLO_FAIL(KOLO_ERR_ARG, "no session to fit: create one");
    kolo_comm *comm = kolo_session_comm(session);
    job j = {
        .comm = comm,
        .rank = comm ? kolo_comm_rank(comm) : 0,
        .size = comm ? kolo_comm_size(comm) : 1,
        .session = session,
        .observer = o.observer,
        .observer_arg = o.arg,
        .stop = o.stop,
    };
    kolo_status status = fit_session(&j, train, test, &o, result ? result : &unused);
    end(&j);
    return status;
}

kolo_status kolo_train_check(const kolo_train_opts *opts, int workers) {
    kolo_setup setup;
    KOLO_TRY(kolo_setup_open(opts, workers, &setup));
    kolo_setup_close(&setup);
    return opts->out_dir ? kolo_run_files_try(opts->out_dir, opts->resume) : KOLO_OK;
}
