#pragma once
/* Process managers: the interfaces that mpirun, mpiexec, srun and torchrun offer to the processes
 * they start.
 *
 * A manager provides the rank and the world size, and broadcasts one text from rank 0, which is
 * enough to bootstrap the group. It is finalized right after that, so that it does not end the
 * survivors when a rank dies. */

#include "kolo/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { KOLO_MANAGER_TEXT_BYTES = 500 };

typedef struct kolo_manager kolo_manager;

typedef struct kolo_manager_ops {
    const char *name;
    /* Broadcasts rank 0's text; blocks until all ranks have called it. IO, TIMEOUT. */
    kolo_status (*share)(kolo_manager *m, char text[KOLO_MANAGER_TEXT_BYTES], int64_t deadline_ns);
    void (*close)(kolo_manager *m);
} kolo_manager_ops;

struct kolo_manager {
    const kolo_manager_ops *ops;
    int rank, world;
    bool failed;         /* `share` failed; set before `close` */
    bool one_host;       /* all ranks are on this host; false if unknown */
    bool any_port;       /* KOLO_MASTER_PORT is not for this group, which may be one of several */
    const char *address; /* of rank 0's host, known to all ranks; or NULL */
};

/* Reads a number in [least, most] from an environment variable. FORMAT. */
kolo_status kolo_manager_number(const char *name, long least, long most, int *value);

/* The error for a rank that was started but has published nothing: it joins in another way. ARG. */
kolo_status kolo_manager_missing(const kolo_manager *m, int missing);

/* PMIx: Open MPI, PRRTE, srun --mpi=pmix. UNSUPPORTED if this build or system has no libpmix. */
kolo_status kolo_pmix_open(int64_t deadline_ns, kolo_manager **manager);
/* Whether PMIx is available. */
typedef enum kolo_pmix_condition {
    KOLO_PMIX_USABLE,
    KOLO_PMIX_NOT_BUILT,     /* built without libpmix-dev */
    KOLO_PMIX_NOT_INSTALLED, /* libpmix.so.2 not found */
} kolo_pmix_condition;
kolo_pmix_condition kolo_pmix_state(void);
/* PMI version 1: MPICH, Intel MPI, srun --mpi=pmi2. */
kolo_status kolo_pmi_open(int64_t deadline_ns, kolo_manager **manager);
/* The key-value store of torchrun's agent. Connects in `share`. */
kolo_status kolo_torchrun_open(int64_t deadline_ns, kolo_manager **manager);
