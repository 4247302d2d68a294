#pragma once
/* How ranks that another launcher than kolo run has started find each other. */

#include "comm/join/manager.h"
#include "comm/join/rank_env.h"

/* Whether a launcher has started this process as one rank of several; kolo_bootstrap then says who
 * and where they are, or what is missing for that. Reads the environment only. */
bool kolo_bootstrap_detected(void);
/* Fills the place of this rank, where rank 0 listens (rank 0: with its socket) and the key. Blocks
 * until all ranks have called it. UNSUPPORTED; ARG; IO; TIMEOUT. */
kolo_status kolo_bootstrap_with(kolo_manager *manager, const kolo_comm_opts *opts,
                                int64_t deadline_ns, kolo_rank_env *env, kolo_key *key);
/* By the manager that the launcher offers. */
kolo_status kolo_bootstrap(const kolo_comm_opts *opts, int64_t deadline_ns, kolo_rank_env *env,
                           kolo_key *key);
/* The MPI whose launcher has started this process: "openmpi" or "mpich"; NULL: none that is known.
 * `world`: how many processes have been started, 0 when nobody says. */
const char *kolo_bootstrap_mpi(long *world);
