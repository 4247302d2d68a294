#pragma once
/* Process managers: what mpirun, mpiexec and srun offer to the processes that they start. Each
 * tells a process its rank and how many there are, and carries one text from rank 0 to all, which
 * is enough to meet. A manager is left as soon as that is done: to one that has been left, a rank
 * that dies is no reason to end its survivors. */

#include "kolo/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { KOLO_MANAGER_TEXT_BYTES = 500 };

typedef struct kolo_manager kolo_manager;

typedef struct kolo_manager_ops {
    const char *name;
    /* Rank 0's text becomes everybody's; blocks until all ranks have called it. IO, TIMEOUT. */
    kolo_status (*share)(kolo_manager *m, char text[KOLO_MANAGER_TEXT_BYTES], int64_t deadline_ns);
    void (*close)(kolo_manager *m);
} kolo_manager_ops;

struct kolo_manager {
    const kolo_manager_ops *ops;
    int rank, world;
    bool failed;   /* the meeting; said before close */
    bool one_host; /* all ranks are on this host; false where the manager does not say */
};

/* That rank has met the others, but left no word: it joins by another way. ARG. */
kolo_status kolo_manager_missing(const kolo_manager *m, int missing);

/* PMIx: Open MPI, PRRTE, srun --mpi=pmix. UNSUPPORTED where this build or system has no libpmix. */
kolo_status kolo_pmix_open(kolo_manager **manager);
/* Whether it could be used here. */
typedef enum kolo_pmix_condition {
    KOLO_PMIX_USABLE,
    KOLO_PMIX_NOT_BUILT,     /* this build was made without libpmix-dev */
    KOLO_PMIX_NOT_INSTALLED, /* libpmix.so.2 is not on this system */
} kolo_pmix_condition;
kolo_pmix_condition kolo_pmix_state(void);
/* PMI, the first version: MPICH, Intel MPI, srun --mpi=pmi2. */
kolo_status kolo_pmi_open(int64_t deadline_ns, kolo_manager **manager);
