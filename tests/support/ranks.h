#pragma once
/* Runs a function as every rank of a group: as threads of this process or as processes.
 *
 * A body returns a kolo_status and never asserts, because a failing cmocka assertion must not run
 * in a second thread or process. It writes its findings to its `result`; the parent asserts.
 *
 * A rank process is the test program again, started by posix_spawn with the rank environment; it
 * shares nothing with the test but `arg` (copied) and `result` (shared memory). The test runner
 * calls ranks_child() in it. */

#include "kolo/comm.h"

/* `comm` is the rank's communicator, NULL in a job that is `bare`. */
typedef kolo_status (*rank_body)(kolo_comm *comm, const void *arg, void *result);

/* THREAD: threads of this process. All others are processes: SHM, TCP and UCX use that transport on
 * one host; HOSTS gives every two ranks a host id of their own, so that shared memory and TCP are
 * used side by side, and HOSTS_UCX does the same with UCX; OPENMPI and MPICH are started by that
 * MPI's mpiexec and use transport mpi. */
typedef enum rank_transport {
    RANKS_THREAD,
    RANKS_SHM,
    RANKS_TCP,
    RANKS_UCX,
    RANKS_HOSTS,
    RANKS_HOSTS_UCX,
    RANKS_OPENMPI,
    RANKS_MPICH
} rank_transport;

/* Whether a transport is available: MPI needs its module and its mpiexec, UCX its module. Tables of
 * transports skip the missing ones; test_comm_ucx reports them. */
bool ranks_have(rank_transport transport);
/* The mpiexec of a transport; NULL when Kolo was built without that MPI library. */
const char *ranks_mpiexec(rank_transport transport);

/* How a rank ended. */
typedef struct rank_outcome {
    kolo_status status;
    int signal; /* that killed its process, 0 if none */
    int64_t ended_ns;
    char error[640]; /* kolo_last_error() when status is not OK */
} rank_outcome;

typedef struct rank_job {
    int n;
    rank_transport transport;
    rank_body body;
    const void *arg;
    size_t arg_bytes;
    void *results; /* [n] of result_bytes each; zeroed first */
    size_t result_bytes;
    rank_outcome *outcomes; /* [n], or NULL */
    int64_t timeout_ms;     /* of the communicator; default 20000 */
    int64_t segment_bytes;  /* default 1 GiB */
    int64_t heartbeat_ms;   /* default the communicator's */
    bool bare;              /* the body creates its communicator itself; processes only */
    bool no_fork;           /* start each rank as a program, under the address sanitizer too: the
                               test has no other child, which could keep its descriptors open */
} rank_job;

/* Returns OK when every rank's body returned OK, else the first failure, with the rank in its text.
 * A job that takes more than a minute is killed. */
kolo_status run_rank_job(const rank_job *job);
/* The common case: `body(comm, arg, NULL)` on n ranks. */
kolo_status run_ranks(int n, rank_transport transport, rank_body body, const void *arg,
                      size_t arg_bytes);

/* Ends the process of the rank by SIGALRM after some time. */
void ranks_die_after(int64_t us);

/* In a bare body: this process's rank, and the options to create its communicator with. */
int ranks_own_rank(void);
kolo_comm_opts ranks_own_opts(void);

/* Whether this process is a rank that run_rank_job has started; if so, ranks_child() runs its body
 * and returns the exit status. */
bool ranks_is_child(void);
int ranks_child(void);
