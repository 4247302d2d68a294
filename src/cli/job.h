#pragma once
/* Commands that run as a job of ranks: one process alone, or this command started again as each of
 * several local ranks, or a rank that somebody's launcher (ours, mpirun's, torchrun's) has started.
 */

#include "base/option.h"
#include "kolo/comm.h"

typedef struct job_opts {
    int workers;        /* as asked for; 0: not asked for */
    int threads;        /* per rank; 0: an equal share of the processors */
    int64_t timeout_ms; /* of communication; 0: the library's */
    kolo_algorithm algorithm;
} job_opts;

/* What each rank does; `threads` is resolved. Rank 0 does the talking. */
typedef kolo_status (*job_body)(kolo_comm *comm, int threads, kolo_options *o);

/* Runs `body` on every rank. Gives the exit status of the command. */
int job_run(kolo_options *o, const job_opts *opts, job_body body);

/* Fails early when the file that --json names cannot be written; NULL and "-" are fine. */
kolo_status job_check_json(const char *path);

/* The options that every command of a job has: --workers, --threads, --timeout. */
job_opts job_opts_of(const kolo_options *o);
