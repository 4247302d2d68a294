#pragma once
/* A run, as the files of this folder that implement it see it. */

#include "data/ledger.h"
#include "data/prefetch.h"
#include "kolo/session.h"
#include "train/checkpoint/resume.h"
#include "train/inference/evaluate.h"
#include "train/record/event_file.h"
#include "train/record/metrics_server.h"
#include "train/record/rank_times.h"
#include "train/record/run_files.h"
#include "train/record/step_times.h"
#include "train/record/trace.h"
#include "train/session/balance.h"
#include "train/session/metrics.h"
#include "train/session/resident_batch.h"
#include "train/session/run_state.h"
#include "train/session/setup.h"

enum { CHECKED_STEPS = 2 }; /* repeated after a benchmark: a loss before and one after an update */

/* An evaluation, after `step`; 0: none. */
typedef struct kolo_best {
    int64_t step;
    double value;
} kolo_best;

/* Requests to end the run with a checkpoint (preempt.c). */
typedef struct kolo_preemption {
    bool asks;       /* some rank can be asked */
    bool due;        /* one was: the run ends */
    int64_t at;      /* the run ends after this step, counted from 1; 0: not known */
    bool saves;      /* checkpoints by time are agreed on, too: workers make steps on their own */
    int64_t save_at; /* the latest, after this step; 0: there was none */
    int64_t steps, next; /* between agreements, and of the next one */
    int64_t asked_ns;
} kolo_preemption;

typedef struct kolo_job {
    kolo_comm *world;    /* workers, then servers */
    kolo_comm *comm;     /* of the workers; NULL once a worker is lost that the others outlive */
    kolo_comm *own_comm; /* that of workers, where there are servers; else NULL */
    int rank, size;      /* among the workers */
    bool serves;         /* this rank is a server */
    bool serves_wait;    /* the owners of parameters wait for workers to connect */
    bool joined;         /* this process is no rank, and takes part in no collectives */
    char *join_file;     /* rank 0, of a run that processes may join; else NULL */
    int join_lost;       /* servers that the file names as lost */
    int64_t joined_saved, joined_ledger; /* as in the file */
    bool *lost;                          /* by worker; NULL: none */
    bool *lost_servers;                  /* of which the user is informed; NULL: none */
    kolo_text losses;                    /* "rank 2 after 113 steps" */
    int staleness;                       /* where it adapts: of the latest step */
    kolo_text policies;                  /* "bsp, from step 18 on asp" */
    kolo_train_observer observer;
    void *observer_arg;
    kolo_setup setup;
    kolo_run_files *files;               /* rank 0, with out_dir */
    bool saves;                          /* rank 0 has `files`; the same on all ranks */
    int64_t saved_ns;                    /* when the newest was written, or the first step began */
    struct kolo_checkpoint_saver *saver; /* of ranks that write checkpoints; NULL: not used yet */
    int64_t saving;                      /* step of the checkpoint that is being written; 0: none */
    int64_t saved;                       /* step of the newest checkpoint in the folder; 0: none */
    bool lines_fail;                     /* the latest line of metrics.jsonl could not be written */
    kolo_event_file *events;             /* rank 0, with tensorboard */
    kolo_metrics_server *server;         /* rank 0, with metrics_port */
    kolo_session *session;
    kolo_session *own;        /* of kolo_train: the session; else NULL */
    kolo_train_notice notice; /* of kolo_fit; may be NULL */
    void *notice_arg;
    kolo_fit_stop *stop;            /* rank 0; may be NULL */
    bool asks;                      /* rank 0 has one */
    bool (*interrupted)(void *arg); /* may be NULL */
    bool (*preempted)(void *arg);   /* may be NULL */
    void *preempted_arg;
    kolo_preemption preemption;
    int64_t end;       /* the run ends after this step, counted from 1 */
    kolo_trace *trace; /* NULL: not recorded */

    kolo_balance *balance; /* worker weights are measured; else NULL */
    int64_t dealt_from;    /* the step from which its counts hold; 0: already */

    int64_t leases[2]; /* whose batches the loader reads */
    int n_leases;
    bool asked; /* for the next one */
    kolo_loader *loader;
    struct kolo_job_stream *stream; /* of data that are a stream; else NULL */
    kolo_batch dealt;               /* of the stream: this rank's samples of the next step */
    kolo_loader *audit;             /* of the shards of the next rank in audited steps; or NULL */
    kolo_ledger *ledger;            /* of the samples that count here, with `ledger`; else NULL */
    int64_t damaged;                /* of this rank's samples, not yet in state.damaged */
    kolo_resident_batch resident;   /* in_memory */
    double first_losses[CHECKED_STEPS]; /* in_memory */

    int64_t started, reported; /* times of the first step and the last report, ns */
    kolo_resume resume;
    kolo_run_state state;    /* of the whole run, resumed part included */
    kolo_accumulator report; /* since the last report to the observer */
    kolo_accumulator line; /* since the last line of metrics.jsonl; both up to the latest step that
                              has stated samples, which within a round none does, */
    int64_t unstated_ns;   /* and this is the time of the steps since then */
    kolo_step_times times;
    kolo_rank_times *rank_times;
    size_t copied_bytes;      /* of the copy that checkpoints are written from; 0: no copy */
    kolo_plan_times deferred; /* of what steps have left and was completed since the latest one, */
    int64_t deferred_ns;      /* which has taken so long; recorded with the next step */
    bool reported_lanes;      /* the user is informed of them */
    kolo_evaluation evaluation;
    bool evaluated;   /* `evaluation` is valid */
    kolo_best kept;   /* keep_best: of the weights in the folder */
    int64_t compared; /* the step of the latest evaluation that counts for patience; 0: none */
    bool stopped;     /* the run ends before its last step, by patience */
} kolo_job;

/* preempt.c */
/* Whether any rank may be asked: then all take part. Collective over workers and servers. */
kolo_status kolo_job_open_preemption(kolo_job *j);
/* Before the first step. */
void kolo_job_begin_preemption(kolo_job *j);
/* After a step: if the workers agree to end the run here, `end` is this step. Collective, but where
 * owners of the parameters are asked. */
kolo_status kolo_job_agree_on_preemption(kolo_job *j);

/* begin.c */
/* Lets the loader read this rank's shards. */
void kolo_job_add_shards(const kolo_job *j, kolo_loader_opts *opts);
/* Every audit steps, from step `from` on, this rank also reads the shards of the next one. */
kolo_status kolo_job_open_audit(kolo_job *j, int64_t from);
/* Rank 0 reads the initial weights and broadcasts them; each rank reads its ranges of what is
 * sharded. Collective. */
kolo_status kolo_job_load_weights(const kolo_job *j);
/* Opens what is there before a session exists: the checkpoint to resume from, and the files.
 * Collective. */
kolo_status kolo_job_open(kolo_job *j);
/* Creates the session of kolo_train. Collective. */
kolo_status kolo_job_create_session(kolo_job *j);
/* On a mesh that divides layers, compiles the plans of all sizes of batches that the run has.
 * Collective. */
kolo_status kolo_job_compile_sizes(const kolo_job *j);
/* Records all steps from now on, if that is wanted. Collective. */
kolo_status kolo_job_open_trace(kolo_job *j);
/* Before plans of the session are destroyed. */
void kolo_job_close_trace(kolo_job *j);
/* Takes the state of the checkpoint to resume from. Collective. */
kolo_status kolo_job_resume(kolo_job *j);
/* Begins the files of the run, and opens the batches. Collective. */
kolo_status kolo_job_start(kolo_job *j);
void kolo_job_end(kolo_job *j);

/* stages.c */
/* Before step k, after a window of steps: layers may move to other stages of a pipeline. */
kolo_status kolo_job_rebalance(kolo_job *j, int64_t k);

/* step.c */
/* `start`: when it began, before it got a lease. */
kolo_status kolo_job_step(kolo_job *j, int64_t k, int64_t start);
/* If it is due after step k: all workers must have the same parameters. Collective. */
kolo_status kolo_job_check_replicas(kolo_job *j, int64_t k);
/* Parameters, statistics and optimizer state must be finite. Collective. */
kolo_status kolo_job_check_parameters(const kolo_job *j);
/* Adds the damaged samples of all ranks to the state. Collective. */
kolo_status kolo_job_sum_damaged(kolo_job *j);

/* stream.c */
/* Rank 0 opens the stream, whose samples it deals. */
kolo_status kolo_job_open_stream(kolo_job *j, const kolo_loader_opts *opts);
void kolo_job_close_stream(kolo_job *j);
/* Waits for the samples of the next step, about a second; when they have come, `dealt` has those of
 * this rank. ENDED: there are no more; PREEMPTED: the run is to end while it waits. FORMAT: a
 * stream that ended before the first step; the errors of reading. Collective. */
typedef enum kolo_stream_state {
    KOLO_STREAM_SAMPLES_CAME,
    KOLO_STREAM_WAITS,
    KOLO_STREAM_ENDED,
    KOLO_STREAM_PREEMPTED,
    KOLO_STREAM_FAILED,
} kolo_stream_state;
kolo_status kolo_job_deal_stream(kolo_job *j, kolo_stream_state *state);

/* invite.c */
/* The options that a process must have as the ranks do to join, without where the run begins, and
 * where its ledger is. NOMEM. */
kolo_status kolo_job_describe_joining(const kolo_job *j, kolo_text *text);
/* Rank 0, once the owners are there: writes what processes need to join, if they may. IO, NOMEM. */
kolo_status kolo_job_invite(kolo_job *j);
/* Rank 0, after a step: those who join from now on do without the servers that are lost. IO, NOMEM.
 */
kolo_status kolo_job_renew_invitation(kolo_job *j);
/* join.c */
/* A process that joins: from its options to a session with owners. Errors as of
 * kolo_parameters_join. */
kolo_status kolo_job_join(kolo_job *j, const kolo_train_opts *opts);
/* A process that has joined, before its first step: takes part from now on. */
kolo_status kolo_job_enter(kolo_job *j);

/* leases.c */
/* The number of steps before `barrier` at which the workers have waited for each other last; 0: at
 * none. */
int64_t kolo_job_barrier_before(const kolo_job *j, int64_t barrier);
/* All steps, if workers take their samples from one counter. Collective. */
kolo_status kolo_job_run_leases(kolo_job *j);

/* report.c */
/* Whether an evaluation is due once `done` steps are made. */
bool kolo_job_wants_evaluation(const kolo_job *j, int64_t done);
/* The sums of the last `n` steps, at most KOLO_LAST_STEPS and those done. */
kolo_sums kolo_job_last_steps(const kolo_job *j, int64_t n);
/* After step k: evaluation and reports where they are due. Collective. */
kolo_status kolo_job_after_step(kolo_job *j, int64_t k);
kolo_status kolo_job_evaluate(kolo_job *j);
/* Reports the end of a run whose latest step was not expected to be the last. Collective. */
kolo_status kolo_job_report_end(kolo_job *j);

/* save.c */
/* Saves the store to `path`, on rank 0; `best`: see kolo_checkpoint_info. The other ranks, which
 * give no path, take part in reading what is sharded. */
kolo_status kolo_job_save(const kolo_job *j, const char *path, const char *best, bool training);
/* Saves the rows of tables, if there are any, to tables-NAME.safetensors in the folder, on rank 0
 * while no worker pushes. */
kolo_status kolo_job_save_rows(const kolo_job *j, const char *name);
/* Lets the workers wait for such a copy, where they have no communicator to wait in. Collective. */
kolo_status kolo_job_await_rows(kolo_job *j);
/* Whether a resumable checkpoint is due once `done` steps are made, by their number. */
bool kolo_job_wants_checkpoint(const kolo_job *j, int64_t done);
/* Whether one is due by this rank's clock. */
bool kolo_job_wants_checkpoint_now(const kolo_job *j);
/* Writes a resumable checkpoint if one is due, on rank 0. Collective. */
kolo_status kolo_job_save_resumable(kolo_job *j);
/* Completes a checkpoint that is being written in the background. `wait`: else only if no rank
 * would wait. Collective, unless workers make steps without each other: then rank 0 does it alone.
 */
kolo_status kolo_job_complete_save(kolo_job *j, bool wait);
/* After an error that all ranks return in the same step, unless it is that a rank is lost:
 * completes the checkpoint that is being written, and adds to the error which one is kept. Returns
 * `status`. Collective. */
kolo_status kolo_job_fail_together(kolo_job *j, kolo_status status);
/* After `what`, "checkpoint", may not have been written: adds to an error of IO of which step the
 * one is that is kept, 0: there is none. Returns `status`. */
kolo_status kolo_job_name_kept(kolo_status status, const char *what, int64_t step);
/* Decides what an error of writing a file means, IO: OK after a warning if the run goes on without
 * the file, and is to. */
kolo_status kolo_job_decide(const kolo_job *j, kolo_status status);

/* space.c */
/* Whether the files that the run is going to write fit beside what is in its folder: IO if not even
 * one does; a warning if not all do. */
kolo_status kolo_job_check_space(const kolo_job *j);

/* best.c */
/* Before the first step: begins the record of the best evaluation, or goes on with those of the run
 * that is resumed and of the weights in the folder. ARG: these are of another run. Collective. */
kolo_status kolo_job_begin_best(kolo_job *j);
/* After an evaluation: compares it with the best one, and keeps the weights of a better one if that
 * is asked for. The session is consolidated. Collective. */
kolo_status kolo_job_compare_best(kolo_job *j);
/* After an evaluation that is not the last: whether the run ends here, after too many without a
 * better one. Collective. */
kolo_status kolo_job_check_patience(const kolo_job *j, bool *ends);
/* Fills in the fields of the best evaluation. */
void kolo_job_report_best(const kolo_job *j, kolo_train_result *result);

/* finish.c */
/* Compares the replicas, writes the final checkpoint and fills the result. Collective. */
kolo_status kolo_job_finish(kolo_job *j, kolo_train_result *result);
/* Repeats the first steps of a benchmark as training. Collective. */
kolo_status kolo_job_check_losses(kolo_job *j, kolo_train_result *result);

/* serve.c */
/* Divides the ranks into workers and servers. Collective. */
kolo_status kolo_job_divide(kolo_job *j, const kolo_train_opts *opts);
/* A server, until all workers have ended. */
kolo_status kolo_job_serve(kolo_job *j, kolo_train_result *result);
/* Whether workers make steps without each other: they meet in evaluations and checkpoints only. */
bool kolo_job_is_asynchronous(const kolo_job *j);
/* Whether each worker has optimizer state of its own, and owners have that of the outer update. */
bool kolo_job_has_own_state(const kolo_job *j);
/* Before the first step, and after each: takes the policy of owners that choose one. */
void kolo_job_note_policy(kolo_job *j);
/* Whether the run goes on if a worker dies. */
bool kolo_job_outlives_workers(const kolo_job *j);
/* kolo_session_consolidate. If a worker has died without which the job goes on, there are no
 * collectives from then on: rank 0 does alone what is left to do. */
kolo_status kolo_job_consolidate(kolo_job *j);
/* Whether collectives failed because a worker has died without which the job goes on. The caller
 * then repeats what it does, without collectives. */
bool kolo_job_goes_on(kolo_job *j, kolo_status status);
/* A worker, before the first step: connects to the owners of the parameters. `status`: its error so
 * far. No effect without owners. Collective over all ranks. */
kolo_status kolo_job_connect(kolo_job *j, kolo_status status);

/* job.c */
/* The steps, from a session that is ready. Collective. */
kolo_status kolo_job_run(kolo_job *j, kolo_train_result *result);
/* Ends a job, whose status this is. An error stays the last one, whatever fails while it ends. */
void kolo_job_close(kolo_job *j, kolo_status status);
