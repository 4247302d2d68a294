/* Runs: checkpoints. */
#include "base/clock.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/folder.h"
#include "train/job/job.h"
#include "train/session/agree.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* What a checkpoint states besides tensors. The texts are those of `info`. */
typedef struct description {
    kolo_checkpoint_info info;
    kolo_text options, progress;
} description;

static kolo_status describe(const kolo_job *j, const char *best, bool training, description *d) {
    *d = (description){.info = {
                           .model = j->setup.opts.model,
                           .model_options = j->setup.opts.model_options,
                           .sample = j->setup.session.sample,
                           .classes = j->setup.session.classes,
                           .data = j->setup.opts.data,
                           .epochs = j->state.steps / j->setup.epoch_steps,
                           .steps = j->state.steps,
                           .seed = j->setup.opts.seed,
                           .order = kolo_session_order(j->session),
                           .best = best,
                           .table = j->setup.opts.table,
                       }};
    if (training) {
        kolo_setup_describe_learning(&j->setup, &d->options);
        kolo_run_state_write(&j->state, &d->progress);
        d->info.options = d->options.text;
        d->info.progress = d->progress.text;
        d->info.compressed = kolo_session_compressed(j->session);
        if (!d->info.compressed) d->info.compressed = j->resume.compressed;
    }
    if (!d->options.failed && !d->progress.failed) return KOLO_OK;
    return KOLO_NOMEM(d->options.length + d->progress.length);
}

static void forget(description *d) {
    kolo_text_fini(&d->options);
    kolo_text_fini(&d->progress);
}

/* Describes the checkpoint on all ranks that write it. */
static kolo_status describe_on_all(const kolo_job *j, const char *best, bool training,
                                   description *d) {
    kolo_status status = describe(j, best, training, d);
    const bool all = kolo_store_is_sharded(kolo_session_store(j->session));
    return all ? kolo_agree(j->comm, status) : status;
}

/* Saves the store to `path`, on rank 0. With shards the other ranks, which give no path, write too.
 */
kolo_status kolo_job_save(const kolo_job *j, const char *path, const char *best, bool training) {
    description d;
    kolo_status status = describe_on_all(j, best, training, &d);
    if (status == KOLO_OK) {
        status = kolo_checkpoint_save(path, kolo_session_store(j->session), &d.info);
    }
    forget(&d);
    return status;
}

kolo_status kolo_job_name_kept(kolo_status status, const char *what, int64_t step) {
    if (status != KOLO_ERR_IO) return status;
    if (step == 0) return KOLO_FAIL(status, "%s; there is no earlier %s", kolo_last_error(), what);
    return KOLO_FAIL(status, "%s; the %s of step %" PRId64 " is kept", kolo_last_error(), what,
                     step);
}

kolo_status kolo_job_decide(const kolo_job *j, kolo_status status) {
    const kolo_train_opts *o = &j->setup.opts;
    if (status != KOLO_ERR_IO || o->save_error != KOLO_SAVE_ERROR_CONTINUE) return status;
    if (j->rank == 0) {
        kolo_notify(o, KOLO_NOTICE_WARNING, "%s; the run goes on after step %" PRId64,
                    kolo_last_error(), j->state.steps);
    }
    return KOLO_OK;
}

static bool has_interval(const kolo_job *j) {
    const kolo_train_opts *o = &j->setup.opts;
    return o->checkpoint_steps + o->checkpoint_epochs > 0 || o->checkpoint_seconds > 0;
}

bool kolo_job_wants_checkpoint(const kolo_job *j, int64_t done) {
    const kolo_train_opts *o = &j->setup.opts;
    const int64_t every = o->checkpoint_steps + o->checkpoint_epochs * j->setup.epoch_steps;
    return every > 0 && (done % every == 0 || done == j->end);
}

bool kolo_job_wants_checkpoint_now(const kolo_job *j) {
    const double seconds = j->setup.opts.checkpoint_seconds;
    return seconds > 0 && (double)(kolo_now_ns() - j->saved_ns) / 1e9 >= seconds;
}

/* Whether a checkpoint is due: by the number of steps, or by the clock of rank 0. */
static kolo_status is_due(kolo_job *j, bool *due) {
    const kolo_train_opts *o = &j->setup.opts;
    const int64_t done = j->state.steps;
    /* A run that was preempted also leaves the checkpoint of its end, so that it is not resumed
     * from an earlier one. */
    const bool last = done == j->end && j->saved > 0;
    *due = kolo_job_wants_checkpoint(j, done) || j->preemption.due || last;
    if (j->preemption.due || last) return KOLO_OK;
    if (o->checkpoint_seconds <= 0) return KOLO_OK;
    const bool agreed = j->preemption.saves; /* at steps that are the same on all workers */
    *due = done == j->end ||
           (agreed ? done == j->preemption.save_at : kolo_job_wants_checkpoint_now(j));
    if (agreed) return KOLO_OK;
    return j->comm ? kolo_broadcast(j->comm, due, sizeof *due, KOLO_DTYPE_U8, 0) : KOLO_OK;
}

static bool writes(const kolo_job *j) {
    return j->rank == 0 || kolo_store_is_sharded(kolo_session_store(j->session));
}

kolo_status kolo_job_save_rows(const kolo_job *j, const char *name) {
    if (!kolo_session_has_tables(j->session)) return KOLO_OK;
    char *path = kolo_format("%s/tables-%s.safetensors", j->setup.opts.out_dir, name);
    if (!path) return KOLO_NOMEM(strlen(name));
    const kolo_status status = kolo_session_save_tables(j->session, path, j->state.steps);
    kolo_free(path);
    return status;
}

/* Begins the file of the rows of tables beside the checkpoint `path`, which is completed before
 * that: so there is none without them. *copy NULL: there are no tables. */
static kolo_status copy_tables(const kolo_job *j, const char *path, kolo_tables_copy **copy) {
    *copy = NULL;
    if (!kolo_session_has_tables(j->session)) return KOLO_OK;
    char *rows = kolo_checkpoint_tables_path(path);
    if (!rows) return KOLO_NOMEM(strlen(path));
    const kolo_status status = kolo_session_copy_tables(j->session, rows, j->state.steps, copy);
    kolo_free(rows);
    return status;
}

static kolo_status save_tables_once(const kolo_job *j, const char *path) {
    kolo_tables_copy *copy;
    KOLO_TRY(copy_tables(j, path, &copy));
    kolo_status status = copy ? kolo_tables_copy_write(copy) : KOLO_OK;
    if (status == KOLO_OK && copy) status = kolo_tables_copy_finish(copy);
    kolo_tables_copy_destroy(copy);
    return status;
}

/* If a server is lost meanwhile, from its replica. */
static kolo_status save_tables(const kolo_job *j, const char *path) {
    const kolo_status status = save_tables_once(j, path);
    return status == KOLO_ERR_PEER ? save_tables_once(j, path) : status;
}

/* Writes a checkpoint and makes it the latest. */
static kolo_status save_at_once(kolo_job *j) {
    const kolo_train_opts *o = &j->setup.opts;
    char *path = NULL;
    if (j->rank == 0) path = kolo_checkpoint_folder_path(o->out_dir, j->state.steps);
    kolo_status status =
        kolo_agree(j->comm, j->rank == 0 && !path ? KOLO_NOMEM(strlen(o->out_dir)) : KOLO_OK);
    if (status == KOLO_OK && path) status = save_tables(j, path);
    if (status == KOLO_OK && writes(j)) status = kolo_job_save(j, path, NULL, true);
    if (status == KOLO_OK && j->rank == 0) {
        /* Those of preemptions alone are kept as --keep does by default. */
        const int64_t keep = has_interval(j) ? o->keep : 2;
        status = kolo_checkpoint_folder_commit(o->out_dir, j->state.steps, keep);
    }
    kolo_free(path);
    status = kolo_agree(j->comm, status);
    if (status == KOLO_OK) j->saved = j->state.steps;
    return status;
}

/* Rank 0: the copy of the rows of tables, of the checkpoint that begins. */
static kolo_status begin_tables(const kolo_job *j, kolo_tables_copy **rows) {
    char *path = kolo_checkpoint_folder_path(j->setup.opts.out_dir, j->state.steps);
    if (!path) return KOLO_NOMEM(strlen(j->setup.opts.out_dir));
    const kolo_status status = copy_tables(j, path, rows);
    kolo_free(path);
    return status;
}

/* Starts to write a checkpoint in the background. */
static kolo_status start_saving(kolo_job *j) {
    const kolo_train_opts *o = &j->setup.opts;
    description d = {0};
    kolo_tables_copy *rows = NULL;
    kolo_status status = KOLO_OK;
    kolo_checkpoint_saver_leave(j->saver); /* of a first try, after which a worker was lost */
    if (writes(j) && !j->saver) status = kolo_checkpoint_saver_create(&j->saver);
    if (status == KOLO_OK && j->rank == 0) status = begin_tables(j, &rows);
    status = kolo_agree(j->comm, status);
    if (status == KOLO_OK && writes(j)) status = describe_on_all(j, NULL, true, &d);
    if (status == KOLO_OK && writes(j)) {
        status = kolo_checkpoint_saver_start(j->saver, o->out_dir, j->state.steps, o->keep,
                                             kolo_session_store(j->session), &d.info, rows);
    } else {
        kolo_tables_copy_destroy(rows);
    }
    forget(&d);
    status = kolo_agree(j->comm, status);
    if (status == KOLO_OK) j->saving = j->state.steps;
    return status;
}

/* As kolo_job_complete_save; all errors count. Workers that make steps without each other have no
 * collectives in between: rank 0, which alone writes, ends the run where a checkpoint failed. */
static kolo_status complete_save(kolo_job *j, bool wait) {
    kolo_comm *comm = kolo_job_is_asynchronous(j) ? NULL : j->comm;
    bool done = false;
    while (j->saving > 0 && !done) {
        int32_t busy = j->saver && kolo_checkpoint_saver_is_busy(j->saver);
        if (!wait && comm) KOLO_TRY(kolo_allreduce(comm, &busy, 1, KOLO_DTYPE_I32, KOLO_MAX));
        if (!wait && busy) return KOLO_OK;
        done = true; /* of ranks that do not write */
        kolo_status status = j->saver ? kolo_checkpoint_saver_advance(j->saver, &done) : KOLO_OK;
        status = kolo_agree(comm, status);
        if (status == KOLO_OK && done) j->saved = j->saving;
        if (status != KOLO_OK || done) j->saving = 0;
        if (status != KOLO_OK) return kolo_job_name_kept(status, "checkpoint", j->saved);
        if (!wait) return KOLO_OK;
    }
    return KOLO_OK;
}

kolo_status kolo_job_complete_save(kolo_job *j, bool wait) {
    const int64_t step = j->saving;
    const kolo_status status = complete_save(j, wait);
    if (status == KOLO_OK) return KOLO_OK;
    if (status != KOLO_ERR_FORMAT) return kolo_job_decide(j, status);
    if (j->rank == 0) { /* the rows went with a server, whose replica has others by now */
        kolo_notify(&j->setup.opts, KOLO_NOTICE_WARNING,
                    "there is no checkpoint of step %" PRId64 ": %s", step, kolo_last_error());
    }
    return KOLO_OK;
}

kolo_status kolo_job_fail_together(kolo_job *j, kolo_status status) {
    if (status == KOLO_OK || status == KOLO_ERR_PEER || status == KOLO_ERR_TIMEOUT) return status;
    char *error = kolo_strdup(kolo_last_error()), kept[64] = "";
    const kolo_status saved = complete_save(j, true);
    if (j->saved > 0) {
        snprintf(kept, sizeof kept, "; the checkpoint of step %" PRId64 " is kept", j->saved);
    }
    (void)KOLO_FAIL(status, "%s%s%s", error ? error : "out of memory", saved == KOLO_OK ? "" : "; ",
                    saved == KOLO_OK ? kept : kolo_last_error());
    kolo_free(error);
    return status;
}

/* Writes a resumable checkpoint. The run does not go on without its ledger. */
static kolo_status save_resumable(kolo_job *j) {
    KOLO_TRY(kolo_job_sum_damaged(j));
    j->state.updates = kolo_session_updates(j->session);
    KOLO_TRY(kolo_job_check_parameters(j));
    if (j->setup.opts.ledger) KOLO_TRY(kolo_agree(j->comm, kolo_ledger_sync(j->ledger)));
    const bool starts = !j->setup.opts.wait_for_saves && has_interval(j) && !j->preemption.due;
    const kolo_status status =
        kolo_job_name_kept(starts ? start_saving(j) : save_at_once(j), "checkpoint", j->saved);
    return j->preemption.due ? status : kolo_job_decide(j, status);
}

/* Until rank 0 has marked the rows that it saves. Once a worker is lost there is no communicator in
 * which the others wait, and one rank may have found the loss before another. */
kolo_status kolo_job_await_rows(kolo_job *j) {
    const bool copied = kolo_session_has_tables(j->session) && kolo_job_is_asynchronous(j);
    return copied ? kolo_session_barrier(j->session, NULL, NULL) : KOLO_OK;
}

/* Writes a resumable checkpoint if one is due. */
kolo_status kolo_job_save_resumable(kolo_job *j) {
    bool due;
    KOLO_TRY(is_due(j, &due));
    KOLO_TRY(kolo_job_complete_save(j, due)); /* saves do not overlap */
    if (!due) return KOLO_OK;
    KOLO_TRY(kolo_session_consolidate_errors(j->session));
    KOLO_TRY(kolo_job_consolidate(j));
    kolo_session_add_rest(j->session, &j->state.run.sums);
    kolo_status status = save_resumable(j);
    if (kolo_job_goes_on(j, status)) status = save_resumable(j);
    if (status == KOLO_OK) status = kolo_job_await_rows(j);
    kolo_session_restore_local(j->session);
    j->saved_ns = kolo_now_ns(); /* also of one that failed */
    return status;
}
