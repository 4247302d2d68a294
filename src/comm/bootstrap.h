#pragma once
/* How ranks that another launcher than kolo run has started find each other. */

#include "comm/contract.h"
#include "comm/manager.h"

/* Whether a launcher has started this process as one rank of several; kolo_bootstrap then says who
 * and where they are, or what is missing for that. Reads the environment only. */
bool kolo_bootstrap_wanted(void);
/* Fills the place of this rank, where rank 0 listens (rank 0: with its socket) and the key. Blocks
 * until all ranks have called it. UNSUPPORTED; ARG; IO; TIMEOUT. */
kolo_status kolo_bootstrap(const kolo_comm_opts *opts, int64_t deadline_ns, kolo_contract *contract,
                           kolo_key *key);
