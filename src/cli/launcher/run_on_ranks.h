#pragma once
/* Commands that run as a job of ranks: one process alone, or this command started again as each of
 * several local ranks, or a rank that somebody's launcher (ours, mpirun's, torchrun's) has started.
 */

#include "base/option.h"
#include "kolo/comm.h"

/* What would make that many ranks refuse the job, found out without starting any. */
typedef kolo_status (*ranks_check)(kolo_options *o, int workers);

typedef struct ranks_opts {
    const char *option; /* the one that says how many ranks: "workers" */
    int workers;        /* 0: as many as an outer launcher has started */
    int threads;        /* per rank; 0: an equal share of the processors */
    int64_t timeout_ms; /* of communication */
    const char *json;   /* --json */
    bool no_bind;       /* local ranks may run anywhere */
    ranks_check
        check; /* called before more ranks are started than there are processors; NULL: no */
} ranks_opts;

/* From --timeout, --json and the option for the ranks. */
ranks_opts ranks_opts_of(const kolo_options *o, const char *option);

/* What each rank does; `threads` is resolved. Rank 0 does the talking. */
typedef kolo_status (*rank_body)(kolo_comm *comm, int threads, kolo_options *o);

/* Runs `body` on every rank. Gives the exit status of the command. A JSON file that could not be
 * written is found out before anything starts. */
int run_on_ranks(kolo_options *o, const ranks_opts *opts, rank_body body);
