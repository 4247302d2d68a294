/* Runs: checkpoints. */
#include "base/clock.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/folder.h"
#include "train/job/job.h"
#include "train/session/agree.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Saves the store to `path`, on rank 0. With shards the other ranks, which give no path, write too.
 */
kolo_status kolo_job_save(const kolo_job *j, const char *path, const char *best, bool training) {
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
        .best = best,
    };
    if (training) {
        kolo_setup_describe_learning(&j->setup, &options);
        kolo_run_state_write(&j->state, &progress);
        info.options = options.text;
        info.progress = progress.text;
    }
    const kolo_store *store = kolo_session_store(j->session);
    kolo_status status = KOLO_OK;
    if (options.failed || progress.failed) status = KOLO_NOMEM(options.length + progress.length);
    if (kolo_store_is_sharded(store)) status = kolo_agree(j->comm, status); /* all are here */
    if (status == KOLO_OK) status = kolo_checkpoint_save(path, store, &info);
    kolo_text_fini(&options);
    kolo_text_fini(&progress);
    return status;
}

kolo_status kolo_job_name_kept(const kolo_job *j, kolo_status status) {
    char kept[64] = "there is no earlier checkpoint";
    if (status != KOLO_ERR_IO) return status;
    if (j->saved > 0) {
        snprintf(kept, sizeof kept, "the checkpoint of step %" PRId64 " is kept", j->saved);
    }
    char *error = kolo_strdup(kolo_last_error());
    if (error) (void)KOLO_FAIL(status, "%s; %s", error, kept);
    kolo_free(error);
    return status;
}

kolo_status kolo_job_decide(const kolo_job *j, kolo_status status) {
    const kolo_train_opts *o = &j->setup.opts;
    if (status != KOLO_ERR_IO || o->save_error != KOLO_SAVE_ERROR_CONTINUE) return status;
    kolo_text line = {0};
    kolo_text_add(&line, "%s; the run goes on after step %" PRId64, kolo_last_error(),
                  j->state.steps);
    if (j->rank == 0 && o->notice && !line.failed) {
        o->notice(o->notice_arg, line.text, KOLO_NOTICE_WARNING);
    }
    kolo_text_fini(&line);
    return KOLO_OK;
}

bool kolo_job_wants_checkpoint(const kolo_job *j, int64_t done) {
    const kolo_train_opts *o = &j->setup.opts;
    const int64_t every = o->checkpoint_steps + o->checkpoint_epochs * j->setup.epoch_steps;
    return every > 0 && (done % every == 0 || done == j->end);
}

/* Whether a checkpoint is due: by the number of steps, or by the clock of rank 0. */
static kolo_status is_due(kolo_job *j, bool *due) {
    const kolo_train_opts *o = &j->setup.opts;
    const int64_t done = j->state.steps;
    *due = kolo_job_wants_checkpoint(j, done);
    if (o->checkpoint_seconds <= 0) return KOLO_OK;
    *due = done == j->end || (double)(kolo_now_ns() - j->saved_ns) / 1e9 >= o->checkpoint_seconds;
    return j->comm ? kolo_broadcast(j->comm, due, sizeof *due, KOLO_DTYPE_U8, 0) : KOLO_OK;
}

/* Writes a resumable checkpoint. */
static kolo_status save_resumable(kolo_job *j) {
    const kolo_train_opts *o = &j->setup.opts;
    KOLO_TRY(kolo_job_sum_damaged(j));
    j->state.updates = kolo_session_updates(j->session);
    KOLO_TRY(kolo_job_check_parameters(j));
    if (j->setup.opts.ledger) KOLO_TRY(kolo_agree(j->comm, kolo_ledger_sync(j->ledger)));
    char *path = NULL;
    if (j->rank == 0) path = kolo_checkpoint_folder_path(o->out_dir, j->state.steps);
    kolo_status status =
        kolo_agree(j->comm, j->rank == 0 && !path ? KOLO_NOMEM(strlen(o->out_dir)) : KOLO_OK);
    const bool writes = j->rank == 0 || kolo_store_is_sharded(kolo_session_store(j->session));
    if (status == KOLO_OK && writes) status = kolo_job_save(j, path, NULL, true);
    if (status == KOLO_OK && j->rank == 0) {
        status = kolo_checkpoint_folder_commit(o->out_dir, j->state.steps, o->keep);
    }
    kolo_free(path);
    status = kolo_agree(j->comm, status);
    if (status == KOLO_OK) j->saved = j->state.steps;
    return status;
}

/* Writes a resumable checkpoint if one is due. */
kolo_status kolo_job_save_resumable(kolo_job *j) {
    bool due;
    KOLO_TRY(is_due(j, &due));
    if (!due) return KOLO_OK;
    KOLO_TRY(kolo_job_settle(j));
    kolo_session_add_rest(j->session, &j->state.run.sums);
    kolo_status status = save_resumable(j);
    if (kolo_job_goes_on(j, status)) status = save_resumable(j);
    kolo_session_unsettle(j->session);
    j->saved_ns = kolo_now_ns(); /* also of one that failed */
    return kolo_job_decide(j, kolo_job_name_kept(j, status));
}
