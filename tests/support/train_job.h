#pragma once
/* Training jobs on several ranks. */

#include "kolo/train.h"
#include "support/ranks.h"

enum { TRAIN_JOB_RANKS = 8 };

/* The outcome of a rank; the body itself always succeeds. */
typedef struct train_outcome {
    kolo_status status;
    char error[640];
    kolo_train_result result;
} train_outcome;

/* The notices of jobs, a line each, but for transient ones; a test empties them. */
extern char train_notices[4096];
void train_note(void *arg, const char *line, kolo_notice_kind kind);
/* Runs kolo_train; `result` is a train_outcome. */
kolo_status train_body(kolo_comm *comm, const kolo_train_opts *opts, void *result);
/* The outcome of each rank, valid until the next call. */
const train_outcome *train_job(int ranks, rank_transport transport, const kolo_train_opts *opts);
/* The result of rank 0 of ranks that are threads; all must succeed. */
kolo_train_result train_well(int ranks, const kolo_train_opts *opts);
/* The outcomes of ranks that are threads, all of which must succeed, valid until the next call.
 * `rank` is asked to end: its first `checks` checks find nothing, all later ones do; -1: no rank is
 * asked. `what` names the job if it fails. */
const train_outcome *train_preempted(const char *what, int ranks, const kolo_train_opts *opts,
                                     int rank, int checks);
/* The result of rank 0 of ranks on hosts, whose body calls train_body; all must succeed. They are
 * processes of their own: the argument contains no pointers. */
kolo_train_result train_on_hosts(int ranks, rank_body body, const void *arg, size_t arg_bytes);
/* The bytes that each rank sends over tcp in a job, whose body calls train_counted. Ranks are
 * processes of their own: the argument contains no pointers. */
kolo_train_result train_traffic(int ranks, rank_body body, const void *arg, size_t arg_bytes,
                                double *sent);
/* Runs kolo_train and counts; `result` is that of a body of train_traffic. */
kolo_status train_counted(kolo_comm *comm, const kolo_train_opts *opts, void *result);
/* Fails unless losses, metrics and parameters of two runs are bitwise equal. */
void assert_same_run(const char *what, const kolo_train_result *a, const kolo_train_result *b);
/* Fails unless two values differ by at most `bound`, relative to the first. */
void assert_near(const char *what, double one, double other, double bound);
/* Fails unless two f32 runs differ by rounding only: 1e-5 in the first loss, 1e-3 in the last. */
void assert_near_run(const char *what, const kolo_train_result *a, const kolo_train_result *b);
/* Fails unless a run of six steps is, to rounding, that of one rank if its first two steps run on
 * `first`, the next two on `second`, and the last two on one rank; each mesh is of so many ranks as
 * the digit at its end states. In the folder "run". */
void assert_resumes_on_meshes(const kolo_train_opts *opts, const char *first, const char *second);
/* Fails, naming `what`, unless a checkpoint is intact. */
void assert_intact(const char *what, const char *path);
/* Fails unless all ranks, which are threads, refuse the job with this text. */
void assert_job_refused(int ranks, const kolo_train_opts *opts, const char *text);
