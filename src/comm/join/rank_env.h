#pragma once
/* The rank environment: a rank's number, the world size and the address of rank 0, from options,
 * from the environment that launchers set, or from the process manager. */

#include "comm/join/authentication.h"
#include "comm/join/manager.h"
#include "kolo/comm.h"

enum { KOLO_WORLD_MAX = 1024, KOLO_MASTER_ADDR_BYTES = 300 };

typedef struct kolo_rank_env {
    int rank, world, local_rank, local_world;
    /* Comma-separated addresses or names of rank 0; ranks use the first that answers. */
    char master_addr[KOLO_MASTER_ADDR_BYTES];
    int master_port;
    int processors; /* available to all ranks of this host together, once they are known */
    uint64_t host;  /* equal if ranks can share memory */
    int listen_fd;  /* rank 0's listening socket, or -1 */
    /* A pipe from the launcher, or -1. Rank 0 reads from it which ranks exited with status 0; for
     * the others it is closed when rank 0 has. */
    int ended_fd;
} kolo_rank_env;

/* Reads and checks the environment, and derives the key from the job's secret (world > 1).
 * Inconsistent or missing variables are ARG; else the errors of kolo_bootstrap. Blocks only in
 * kolo_bootstrap, or if the secret is read from a pipe. */
kolo_status kolo_rank_env_read(const kolo_comm_opts *opts, int64_t deadline_ns, kolo_rank_env *env,
                               kolo_key *key);
/* The same through an open manager; `opts` and the environment provide only what it does not. */
kolo_status kolo_rank_env_from_manager(kolo_manager *manager, const kolo_comm_opts *opts,
                                       int64_t deadline_ns, kolo_rank_env *env, kolo_key *key);
