#pragma once
/* A rank's place in its job: from options, from the environment that launchers set, or
 * from the process manager that started it. */

#include "comm/join/authentication.h"
#include "comm/join/manager.h"
#include "kolo/comm.h"

enum { KOLO_WORLD_MAX = 1024, KOLO_MASTER_ADDR_BYTES = 300 };

typedef struct kolo_rank_env {
    int rank, world, local_rank, local_world;
    /* Rank 0's addresses or names, by commas: the others take the first that answers. */
    char master_addr[KOLO_MASTER_ADDR_BYTES];
    int master_port;
    int processors; /* that the ranks of this host may run on together, once they are known */
    uint64_t host;  /* equal where ranks can share memory */
    int listen_fd;  /* rank 0's listening socket, or -1 */
    /* A pipe from the launcher, or -1: on rank 0 it says which ranks have ended well, on the others
     * its end says that rank 0 has. */
    int ended_fd;
} kolo_rank_env;

/* Reads and checks it, with the key that the job's secret makes (world > 1). Contradictions and
 * missing parts are ARG; else the errors of kolo_bootstrap. Blocks only where that does, or for a
 * secret that comes through a pipe. */
kolo_status kolo_rank_env_read(const kolo_comm_opts *opts, int64_t deadline_ns, kolo_rank_env *env,
                               kolo_key *key);
/* The same through a manager that is open; of `opts` and the environment only what that leaves. */
kolo_status kolo_rank_env_from_manager(kolo_manager *manager, const kolo_comm_opts *opts,
                                       int64_t deadline_ns, kolo_rank_env *env, kolo_key *key);
