#pragma once
/* Bootstraps ranks that were started by a launcher other than kolo run. */

#include "comm/join/manager.h"
#include "comm/join/rank_env.h"

/* Whether a launcher started this process as one of several ranks; kolo_bootstrap then finds the
 * others, or fails with what is missing. Reads the environment only. */
bool kolo_bootstrap_detected(void);
/* Whether torchrun started this process and serves a store to its ranks. Reads the environment
 * only.
 */
bool kolo_bootstrap_by_torchrun(void);
/* Fills in this rank's number, the address of rank 0 (for rank 0: its listening socket) and the
 * key. Blocks until all ranks have called it. UNSUPPORTED; ARG; IO; TIMEOUT. */
kolo_status kolo_bootstrap_with(kolo_manager *manager, const kolo_comm_opts *opts,
                                int64_t deadline_ns, kolo_rank_env *env, kolo_key *key);
/* The same with the manager that the launcher offers. */
kolo_status kolo_bootstrap(const kolo_comm_opts *opts, int64_t deadline_ns, kolo_rank_env *env,
                           kolo_key *key);
/* The MPI whose launcher started this process: "openmpi" or "mpich"; NULL if unknown. `world`: the
 * number of processes started, 0 if unknown. */
const char *kolo_bootstrap_mpi(long *world);
