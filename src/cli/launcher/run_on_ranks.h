#pragma once
/* Runs a command on ranks: as a single process, as the launcher of local ranks that run the same
 * command, or as a rank that a launcher (Kolo's, mpirun, torchrun) started. */

#include "base/option.h"
#include "kolo/comm.h"

/* Checks options for that many workers without starting them. */
typedef kolo_status (*ranks_check)(kolo_options *o, int workers);

/* How many ranks may be killed, as in launch_opts: from rank 1 on, and of the last ones. */
typedef struct spared_ranks {
    int first, last;
} spared_ranks;
typedef spared_ranks (*ranks_spared)(kolo_options *o, int workers);

typedef struct ranks_opts {
    const char *option;    /* the option with the number of ranks: "workers" */
    int workers;           /* 0: as many as the outer launcher started */
    int threads;           /* per rank; 0: an equal share of the processors */
    int64_t timeout_ms;    /* of communication */
    const char *json;      /* --json */
    const char *resumable; /* folder of checkpoints to resume from after a stop, or NULL */
    double grace;          /* seconds from SIGTERM to the end of a run that saves; 0: it does not */
    bool no_bind;          /* do not bind local ranks to cores */
    ranks_check check;     /* run first if there are more ranks than processors; NULL: none */
    ranks_spared spared;   /* run by the launcher; NULL: none may be killed */
} ranks_opts;

/* From --timeout, --json and the option with the number of ranks. */
ranks_opts ranks_opts_of(const kolo_options *o, const char *option);

/* The work of each rank; `threads` is resolved. Rank 0 prints the results. */
typedef kolo_status (*rank_body)(kolo_comm *comm, int threads, kolo_options *o);

/* Runs `body` on every rank and returns the exit status of the command. Checks first that the JSON
 * file can be written. */
int run_on_ranks(kolo_options *o, const ranks_opts *opts, rank_body body);
