/* kolo_train and kolo_fit: a run from its options to the final checkpoint. kolo_train opens the
 * data and the model of its options and creates the session; kolo_fit has those of a program. The
 * run is the same.
 *
 * All ranks call the same collectives in the same order: agree on the options; find the checkpoint
 * to resume from; agree on the files; create the session; agree on the loader. Each step runs the
 * collectives of the plan, those of evaluation at the end of an epoch, and agreement on a
 * checkpoint if one is due. At the end: comparison of parameters, result, agreement on the final
 * checkpoint. A benchmark then repeats its first steps. */
#include "train/job/job.h"

#include "base/clock.h"
#include "base/memory.h"
#include "mesh/link.h"
#include "pass/pass.h"
#include "train/session/agree.h"
#include "train/session/tuning.h"

#include <string.h>

/* The run ends here, though its latest step was not expected to be the last. */
static kolo_status end_with_stream(kolo_job *j, bool preempted) {
    j->end = j->state.steps;
    j->preemption.due = preempted;
    if (!preempted) KOLO_TRY(kolo_job_report_end(j));
    KOLO_TRY(kolo_job_complete_save(j, true));
    return !preempted && j->saved == j->end ? KOLO_OK : kolo_job_save_resumable(j);
}

/* Takes the samples of the next step of a stream, or ends the run. A checkpoint that is being
 * written is completed meanwhile. */
static kolo_status wait_for_samples(kolo_job *j) {
    kolo_stream_state state;
    for (;;) {
        const kolo_status status = kolo_job_deal_stream(j, &state);
        if (status != KOLO_OK) return kolo_job_fail_together(j, status);
        if (state != KOLO_STREAM_WAITS) break;
        KOLO_TRY(kolo_job_complete_save(j, false));
    }
    if (state == KOLO_STREAM_SAMPLES_CAME) return KOLO_OK;
    return end_with_stream(j, state == KOLO_STREAM_PREEMPTED);
}

static kolo_status run_steps(kolo_job *j) {
    if (kolo_session_leases(j->session)) KOLO_TRY(kolo_job_run_leases(j));
    for (int64_t k = j->state.steps; k < j->end; k++) {
        KOLO_TRY(kolo_job_rebalance(j, k));
        const int64_t start = kolo_now_ns();
        if (j->stream) KOLO_TRY(wait_for_samples(j));
        if (k == j->end) break; /* the stream has ended */
        KOLO_TRY(kolo_job_step(j, k, start));
        KOLO_TRY(kolo_job_check_replicas(j, k));
        KOLO_TRY(kolo_job_after_step(j, k));
        KOLO_TRY(kolo_job_save_resumable(j));
    }
    return KOLO_OK;
}

/* A run that cannot go on touches no file of an earlier one. */
static kolo_status start(kolo_job *j) {
    KOLO_TRY(kolo_job_resume(j));
    KOLO_TRY(kolo_job_begin_best(j));
    KOLO_TRY(kolo_agree(j->comm, kolo_job_check_space(j)));
    return kolo_job_start(j);
}

/* The steps, from a session that is ready. */
kolo_status kolo_job_run(kolo_job *j, kolo_train_result *result) {
    KOLO_TRY(kolo_job_connect(j, start(j)));
    KOLO_TRY(kolo_agree(j->comm, kolo_job_invite(j)));
    KOLO_TRY(kolo_job_enter(j));
    j->started = j->reported = j->saved_ns = kolo_now_ns();
    kolo_job_begin_preemption(j);
    kolo_job_note_policy(j);
    if (j->state.steps >= j->end) KOLO_TRY(kolo_job_evaluate(j)); /* nothing to train */
    const kolo_status status = run_steps(j);
    if (status == KOLO_ERR_DIVERGED) return kolo_job_fail_together(j, status);
    KOLO_TRY(status);
    return kolo_job_finish(j, result);
}

/* What workers and servers do alike, before the session. */
static kolo_status open_all(kolo_job *j) {
    KOLO_TRY(kolo_job_open_preemption(j));
    kolo_status status = kolo_job_open(j);
    if (j->own_comm) status = kolo_agree(j->world, status);
    KOLO_TRY(status);
    return kolo_tuning_begin(&j->setup, j->world);
}

/* Errors name the place of a rank from here on, also before there is a session. */
static void name_ranks(const kolo_job *j) {
    const kolo_mesh *mesh = &j->setup.mesh;
    if (j->world && kolo_mesh_has_model_axis(mesh)) kolo_mesh_name_ranks(mesh, j->world);
}

static kolo_status train(kolo_job *j, const kolo_train_opts *opts, kolo_train_result *result) {
    if (opts && opts->join) {
        KOLO_TRY(kolo_job_join(j, opts));
        return kolo_job_run(j, result);
    }
    KOLO_TRY(kolo_job_divide(j, opts));
    const kolo_status opened = kolo_setup_open(opts, j->size, &j->setup);
    if (opened == KOLO_OK) name_ranks(j);
    KOLO_TRY(kolo_agree(j->world, opened));
    KOLO_TRY(open_all(j));
    if (j->serves) return kolo_job_serve(j, result);
    j->setup.session.plan.cross_step = true;
    j->setup.session.plan.completes = j->setup.opts.no_cross_step;
    j->serves_wait = true;
    KOLO_TRY(kolo_job_create_session(j));
    KOLO_TRY(kolo_job_run(j, result));
    return j->setup.opts.in_memory ? kolo_job_check_losses(j, result) : KOLO_OK;
}

/* After an error: lets the sums of the latest step end, which the other ranks have begun too. */
static void complete_sums(const kolo_job *j) {
    kolo_store *store = j->session ? kolo_session_store(j->session) : NULL;
    if (store && kolo_store_has_deferred(store)) (void)kolo_session_consolidate(j->session);
}

/* With its place, where nothing else has failed. */
static void restore_error(kolo_status status, const char *error) {
    if (error && strcmp(error, kolo_last_error()) == 0) return;
    (void)KOLO_FAIL(status, "%s", error ? error : "out of memory");
}

void kolo_job_close(kolo_job *j, kolo_status status) {
    if (status == KOLO_OK) {
        kolo_job_end(j);
        return;
    }
    char *error = kolo_strdup(kolo_last_error());
    complete_sums(j);
    restore_error(status, error);
    kolo_session_fail(j->own ? j->own : j->started > 0 ? j->session : NULL, status);
    kolo_job_end(j);
    restore_error(status, error);
    kolo_free(error);
}

kolo_status kolo_train(kolo_comm *comm, const kolo_train_opts *opts, kolo_train_observer observer,
                       void *arg, kolo_train_result *result) {
    kolo_job j = {
        .world = comm,
        .comm = comm,
        .rank = comm ? kolo_comm_rank(comm) : 0,
        .size = comm ? kolo_comm_size(comm) : 1,
        .observer = observer,
        .observer_arg = arg,
        .preempted = opts ? opts->preempted : NULL,
        .preempted_arg = opts ? opts->preempted_arg : NULL,
    };
    kolo_status status = train(&j, opts, result);
    if (status != KOLO_OK && j.own_comm) status = kolo_job_connect(&j, status);
    kolo_job_close(&j, status);
    if (comm) kolo_mesh_unname_ranks(&j.setup.mesh, comm);
    return status;
}

kolo_status kolo_train_check(const kolo_train_opts *opts, int workers) {
    kolo_setup setup;
    KOLO_TRY(kolo_setup_open(opts, workers, &setup));
    kolo_setup_close(&setup);
    return opts->out_dir ? kolo_run_files_try(opts->out_dir, opts->resolved_config, opts->resume)
                         : KOLO_OK;
}
