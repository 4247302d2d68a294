/* kolo_fit: a run with the session and the data of a program. */
#include "train/job/job.h"
#include "train/session/agree.h"
#include "train/session/exchange.h"

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
    o.tensorboard = fit->tensorboard;
    o.metrics_port = fit->metrics_port;
    o.metrics_address = fit->metrics_address;
    o.checkpoint_steps = fit->checkpoint_steps;
    o.checkpoint_epochs = fit->checkpoint_epochs;
    o.keep = fit->keep;
    o.checkpoint_seconds = fit->checkpoint_seconds;
    o.wait_for_saves = fit->wait_for_saves;
    o.keep_best = fit->keep_best;
    o.patience = fit->patience;
    o.save_error = fit->save_error;
    o.preempted = fit->preempted;
    o.resume = fit->resume;
    o.resume_if_any = fit->resume_if_any;
    o.eval_every = fit->eval_every;
    o.eval_steps = fit->eval_steps;
    o.log_every = fit->log_every;
    o.no_cross_step = fit->no_cross_step;
    return o;
}

/* Runs the callback of the program for notices. */
static void pass_notice(void *arg, const char *line, kolo_notice_kind kind) {
    const kolo_job *j = arg;
    kolo_session_set_callback(j->session, true);
    j->notice(j->notice_arg, line, kind);
    kolo_session_set_callback(j->session, false);
}

static kolo_status open_fit(kolo_job *j, const kolo_dataset *train, const kolo_dataset *test,
                            const kolo_fit_opts *fit) {
    kolo_train_opts opts = options_of(j->session, fit);
    if (fit->notice) {
        opts.notice = pass_notice;
        opts.notice_arg = j;
    }
    if (!kolo_session_trains(j->session)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a session that evaluates only cannot be fitted");
    }
    if (!train) return KOLO_FAIL(KOLO_ERR_ARG, "no data set to train on: create or open one");
    if (fit->resume) KOLO_TRY(kolo_session_check_new(j->session, "resuming a run"));
    KOLO_TRY(kolo_session_check_dataset(j->session, train));
    if (test) KOLO_TRY(kolo_session_check_dataset(j->session, test));
    return kolo_setup_open_fit(&opts, j->session, train, test, j->size, &j->setup);
}

/* Of a checkpoint to resume from: the session compresses what that of the run did. */
static kolo_status enter_exchange(kolo_job *j) {
    kolo_exchange_before before = {0};
    if (j->state.steps == 0) return KOLO_OK;
    const kolo_status status =
        kolo_session_enter_exchange(j->session, j->state.steps, j->resume.compressed, &before);
    return kolo_session_leave_exchange(j->session, &before, status);
}

static kolo_status fit_session(kolo_job *j, const kolo_dataset *train, const kolo_dataset *test,
                               const kolo_fit_opts *fit, kolo_train_result *result) {
    KOLO_TRY(kolo_agree(j->comm, open_fit(j, train, test, fit)));
    KOLO_TRY(kolo_job_open_preemption(j));
    KOLO_TRY(kolo_job_open(j));
    if (j->preemption.asks || j->preemption.saves) KOLO_TRY(kolo_session_forget_stop(j->session));
    KOLO_TRY(enter_exchange(j));
    KOLO_TRY(kolo_job_compile_sizes(j));
    if (j->setup.counts) KOLO_TRY(kolo_session_deal(j->session, j->setup.counts));
    j->asks = j->stop != NULL;
    if (j->comm) KOLO_TRY(kolo_broadcast(j->comm, &j->asks, sizeof j->asks, KOLO_DTYPE_U8, 0));
    return kolo_job_run(j, result);
}

kolo_status kolo_fit(kolo_session *session, const kolo_dataset *train, const kolo_dataset *test,
                     const kolo_fit_opts *opts, kolo_train_result *result) {
    const kolo_fit_opts o = opts ? *opts : (kolo_fit_opts){0};
    kolo_train_result unused;
    if (!session) return KOLO_FAIL(KOLO_ERR_ARG, "no session to fit: create one");
    KOLO_TRY(kolo_session_check_works(session));
    KOLO_TRY(kolo_session_check_f32(session, "runs"));
    kolo_comm *comm = kolo_session_comm(session);
    kolo_job j = {
        .comm = comm,
        .rank = comm ? kolo_comm_rank(comm) : 0,
        .size = comm ? kolo_comm_size(comm) : 1,
        .session = session,
        .observer = o.observer,
        .observer_arg = o.arg,
        .stop = o.stop,
        .notice = o.notice,
        .notice_arg = o.notice_arg,
        .interrupted = o.interrupted,
        .preempted = o.preempted,
        .preempted_arg = o.arg,
    };
    kolo_status status = fit_session(&j, train, test, &o, result ? result : &unused);
    kolo_job_close(&j, status);
    return status;
}
