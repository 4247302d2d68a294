#pragma once
/* The local launcher: starts the ranks of a job as children, passes on what they print, and ends
 * the job as soon as one of them fails.
 *
 * The launcher is no rank and has one thread, which sleeps in poll() on signals, the ranks' pipes
 * and its own output. Each rank starts as `kolo __rank`, a shim that asks the kernel for SIGKILL
 * should the launcher die, and then becomes the program (launch_become_rank); it leads a process
 * group of its own, so that what it started ends with it, also when the launcher is killed
 * (cli/guard.h). When a rank fails the others have 1 s to end by themselves (they notice a lost
 * peer), then SIGTERM, 2 s later SIGKILL. SIGUSR1 is passed on to the ranks.
 *
 * What ranks find in their environment: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
 * MASTER_ADDR, MASTER_PORT (a port that is free for the program's own use); KOLO_SECRET_FILE names
 * the job's secret (a sealed memfd, inherited); KOLO_LISTEN_FD, on rank 0, is a socket that listens
 * at KOLO_MASTER_PORT already, so no other program can take that port; OMP_NUM_THREADS and how
 * waiting OpenMP threads behave, unless the user has set them. With `own_command` also
 * KOLO_REPORT_FD, through which a rank gives the text of its failure (launch_report), so that the
 * launcher can print the one that matters, once. */

#include "kolo/status.h"

#include <stdbool.h>

/* How often a waiting OpenMP thread with a core of its own looks before it sleeps. */
enum { LAUNCH_SPINS = 10000 };

typedef struct launch_opts {
    int n_ranks;
    int threads; /* of OpenMP per rank; 0: OMP_NUM_THREADS, or an equal share of the processors */
    char *const *argv;
    /* The ranks are this command itself: rank 0 has the terminal, unprefixed, the other ranks'
     * lines go to standard error, and failures are reported. */
    bool own_command;
} launch_opts;

/* Runs a job to its end. `exit_status` is the command's: 0, 1 when a rank failed (a line on
 * standard error has named it; 2 as cli_exit_status says), 128 + signal when a signal ended the
 * job. IO when it could not start. */
kolo_status launch_job(const launch_opts *opts, int *exit_status);

/* The shim: `argv` is the launcher's process id, the program and its arguments. Returns only when
 * the program cannot be executed: the exit status. */
int launch_become_rank(int argc, char **argv);

/* Threads for each of `n_ranks`: an equal share of the processors, at least 1. */
int launch_thread_share(int processors, int n_ranks);
