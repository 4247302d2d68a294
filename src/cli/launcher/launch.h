#pragma once
/* The local launcher: starts the ranks of a job as child processes, forwards their output, and ends
 * the job when one of them fails.
 *
 * The launcher is not a rank. Its single thread polls signals, the ranks' pipes and its own output.
 * Each rank starts as `kolo __rank`, a shim that requests SIGKILL on the launcher's death and then
 * executes the program (launch_become_rank). It leads its own process group, so that its
 * descendants end with it, also if the launcher is killed (guard.h). When a rank fails, the others
 * have 1 s to fail by themselves on the lost peer, then get SIGTERM, and 2 s later SIGKILL; ranks
 * that save upon SIGTERM get SIGKILL at once. A job may go on without ranks that were killed
 * (`spared`). Upon SIGTERM, ranks that save first have `grace_ms` for it; a second signal ends the
 * job. SIGUSR1 is forwarded to the ranks.
 *
 * Environment of the ranks: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR,
 * MASTER_PORT (a free port for the program's own use); KOLO_SECRET_FILE names the job's secret (an
 * inherited, sealed memfd); KOLO_LISTEN_FD, on rank 0, is a socket that already listens on
 * KOLO_MASTER_PORT, so that no other program can take the port; OMP_NUM_THREADS and the wait policy
 * of OpenMP, unless set by the user. With `own_command` also KOLO_REPORT_FD, the pipe of
 * error_report.h.
 */

#include "kolo/status.h"

#include <stdbool.h>
#include <stdint.h>

/* The message after a stop continues with these words and the folder, if it holds the file. */
#define LAUNCH_RESUME "; resume it with: kolo train --resume "
#define LAUNCH_LATEST "/latest"

/* The message of a job that saves first. */
#define LAUNCH_SAVES "signal 15 (Terminated): the run saves a checkpoint and ends"

/* A SIGTERM so soon after the first one is the same request. */
#define LAUNCH_REPEAT_NS INT64_C(1000000000)

/* The program of ranks that run this command; process lists show it as "kolo". */
#define LAUNCH_SELF "/proc/self/exe"

/* Spins of a waiting OpenMP thread on its own core before it sleeps. */
enum { LAUNCH_SPINS = 10000 };

typedef struct launch_opts {
    int n_ranks;
    int threads; /* of OpenMP per rank; 0: OMP_NUM_THREADS, or an equal share of the processors */
    char *const *argv;
    /* The ranks run this command: rank 0 has the terminal, without a prefix, the output of the
     * others goes to standard error, and ranks report their errors. */
    bool own_command;
    const char *resumable; /* folder of checkpoints to resume from after a stop, or NULL */
    int64_t grace_ms;      /* from SIGTERM to the end of a job that saves first; 0: it does not */
    int spared;            /* this many ranks from rank 1 on may be killed: the others go on */
    int spared_last;       /* and this many of the last ranks */
    bool survive;          /* all of them may, as long as one is left */
} launch_opts;

/* Runs a job to its end. `exit_status` is that of the command: 0, that of the rank that failed
 * (named on standard error), or 128 + signal if a signal ended the job. IO: a rank cannot be
 * started. */
kolo_status launch_job(const launch_opts *opts, int *exit_status);

/* The shim: `argv` is the launcher's process id, the program and its arguments. Returns the exit
 * status only if the program cannot be executed. */
int launch_become_rank(int argc, char **argv);

/* Threads for each of `n_ranks`: an equal share of the processors, at least 1. */
int launch_thread_share(int processors, int n_ranks);
/* Warns that ranks have more threads than there are processors. */
void launch_warn(int ranks, int threads, int processors);
